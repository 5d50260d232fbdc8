// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "cli/render/report.h"
#include "cli/render/report_words.h"

namespace ingero::cli {
namespace {

using analysis::Evidence;
using analysis::Finding;
using analysis::Report;

constexpr size_t kTopListed = 5;  // culprits

// Sanitised text as text: nothing in it is markup, a link, a mention of a
// person or a reference to an issue.
std::string Plain(std::string_view text) {
  std::string out;
  const auto at = [text](size_t i) { return i < text.size() ? text[i] : ' '; };
  const auto word = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0;
  };
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (std::string_view("\\`*_[]<|~&$#").find(c) != std::string_view::npos)
      out += '\\';
    // A paragraph that begins so is a list, a quotation or a rule.
    const bool begins = text.substr(0, i).find_first_not_of("0123456789") ==
                        std::string_view::npos;
    const bool ends = at(i + 1) == ' ';
    if (begins && ((i == 0 && (c == '>' || ((c == '-' || c == '+') &&
                                            (ends || at(i + 1) == c)))) ||
                   (i > 0 && (c == '.' || c == ')') && ends)))
      out += '\\';
    out += c;
    // References are looked for in what is shown, so an escape does not do.
    if ((c == '@' || c == '#') && word(at(i + 1))) out += "<!-- -->";
    if ((c == ':' && at(i + 1) == '/' && at(i + 2) == '/') ||
        (c == 'w' && text.substr(i + 1).starts_with("ww.")))
      out += "<!-- -->";
  }
  return out;
}

class MarkdownReport : private ReportWords {
 public:
  MarkdownReport(const Report& report, const MarkdownOptions& options)
      : ReportWords(report, options.pid), all_(options.all) {}

  std::string Render() {
    Line("### " + Plain(Title()));
    if (!r_.verdict.empty())
      Paragraph("**Verdict:** " + Plain(Sentence(r_.verdict)));
    if (const std::string next = DoNext(); !next.empty())
      Paragraph("**Do next:** " + Plain(next));
    if (!r_.findings.empty()) Findings();
    for (const analysis::Account& a : r_.accounts)
      if (const std::string sum = Sum(a); !sum.empty()) Paragraph(Plain(sum));
    if (!r_.chains.empty()) Chains();
    Recording();
    return std::move(text_);
  }

 private:
  void Line(std::string_view line) { text_.append(line).append("\n"); }
  void Paragraph(std::string_view text) {
    Line("");
    Line(text);
  }
  void Heading(std::string_view text) {
    Paragraph(fmt::format("#### {}", text));
    Line("");
  }
  // Without a label: below the one before.
  void Item(std::string_view label, std::string_view text) {
    if (text.empty()) return;
    if (label.empty())
      Line(fmt::format("  - {}", Plain(text)));
    else
      Line(fmt::format("- {}: {}", Plain(label), Plain(text)));
  }
  // One is said beside its label, several below.
  void Items(const char* label, const std::vector<std::string>& texts) {
    if (texts.size() > 1) Line(fmt::format("- {}:", label));
    for (const std::string& text : texts)
      Item(texts.size() > 1 ? "" : label, text);
  }

  void Findings() {
    Paragraph("| Severity | Cause | GPU use lost |");
    Line("|---|---|---|");
    for (const Finding& f : r_.findings) {
      const std::string lost = Lost(f);
      Line(fmt::format("| {} | {} | {} |", Word(f.severity),
                       Plain(Name(f.cause)),
                       lost.empty() ? "none, or not known" : lost));
    }
    for (const Finding& f : r_.findings) ShowFinding(f);
  }

  void ShowFinding(const Finding& f) {
    Heading(fmt::format("{} ({})", Plain(Name(f.cause)), Word(f.severity)));
    Line(Plain(Sentence(f.claim)));
    Line("");
    Item("When", When(f));
    Item("Root cause", Culprits(f, all_ ? f.culprits.size() : kTopListed));
    Item("Code", Sentence(analysis::CodeText(f)));
    std::vector<std::string> texts;
    for (const analysis::Recommendation& a : f.recommendations)
      texts.push_back(Advice(a, f.base));
    Items("Fix", texts);
    texts.clear();
    for (const analysis::TimelineLine& line : f.timeline)
      texts.push_back(Moment(r_.window.begin + line.at) + ": " +
                      Sentence(line.text));
    Items("Timeline", texts);
    texts.clear();
    for (const Evidence& e : f.evidence) texts.push_back(Sentence(e.text));
    Items("Evidence", texts);
    Item("Confidence", Confidence(f));
    Commands(f);
  }

  void Commands(const Finding& f) {
    std::set<std::string> shown;  // several facts may share one
    std::vector<std::string> commands;
    for (const Evidence& e : f.evidence)
      if (!e.query.empty() && shown.insert(e.query).second)
        commands.push_back(SanitizeForTerminal(e.query));
    if (commands.empty()) return;
    // Longer than any within, so that none ends it.
    std::string fence = "```";
    const auto inside = [&](const std::string& command) {
      return command.find(fence) != std::string::npos;
    };
    while (std::any_of(commands.begin(), commands.end(), inside)) fence += '`';
    Paragraph(fence + "sh");
    for (const std::string& command : commands) Line(command);
    Line(fence);
  }

  void Chains() {
    Heading("Operations with a long tail");
    for (const analysis::Chain& c : r_.chains)
      Item(Word(c.severity), Sentence(c.text));
  }

  void Recording() {
    Heading("Recording");
    for (const LabeledFact& f : Facts()) Item(f.label, f.text);
    Items("Not evaluated", NotEvaluated());
    std::string made = "ingero";
    if (!r_.facts.tool_version.empty()) made += " " + r_.facts.tool_version;
    Paragraph("Made by " + Plain(Sentence(made)) +
              " with `ingero explain --format markdown`.");
  }

  const bool all_;
  std::string text_;
};

}  // namespace

std::string RenderMarkdown(const Report& report,
                           const MarkdownOptions& options) {
  return MarkdownReport(report, options).Render();
}

}  // namespace ingero::cli
