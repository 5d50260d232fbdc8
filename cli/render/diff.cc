// SPDX-License-Identifier: Apache-2.0
#include "cli/render/diff.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>

#include "base/text.h"
#include "cli/render/layout.h"
#include "cli/render/words.h"

namespace ingero::cli {
namespace {

using analysis::Change;
using analysis::Diff;
using analysis::DiffSide;

constexpr size_t kTopRows = 8;
constexpr int kLabelColumns = 13;

int64_t Whole(double ns) { return std::llround(ns); }

Json ToJson(const Change& c) {
  return {{"a_ns", Whole(c.a)},
          {"b_ns", Whole(c.b)},
          {"change_ns", Whole(c.b) - Whole(c.a)},
          {"band_ns", Whole(c.band)},
          {"significant", c.significant}};
}

Json ToJson(const analysis::OperationSide& o) {
  return {{"count", o.count},
          {"total_ns", o.total.value},
          {"avg_ns", o.average.value},
          {"p50_ns", o.p50.value},
          {"p99_ns", o.p99.value}};
}

Json ToJson(const DiffSide& s) {
  return {{"store", s.store},
          {"host", s.host},
          {"cpus", s.cpus},
          {"program", s.program},
          {"cmdline", s.cmdline},
          {"processes", s.processes},
          {"gpus", s.gpus},
          {"steps", s.steps},
          {"step", s.step},
          {"use_ns", s.use.value},
          {"cold_start_ns", s.cold_start.value},
          {"complete", s.complete},
          {"scheduled", s.scheduled},
          {"verdict", s.verdict}};
}

std::string Clean(std::string_view text) {
  return SanitizeForTerminal(text, 1000);
}

std::string Words(double ns) { return FormatDuration(Ns(Whole(ns))); }

std::string PartName(const std::string& part) {
  if (part == "gpu-busy") return "work on the GPU";
  if (part == "not-known") return "not known";
  return part;
}

class TextDiff {
 public:
  TextDiff(const Diff& diff, const FailAnswers& answers,
           const DiffTextOptions& options)
      : d_(diff), answers_(answers), o_(options),
        page_(options.columns, options.color) {}

  std::string Render() {
    ShowSide("A", d_.a);
    ShowSide("B", d_.b);
    page_.Blank();
    page_.Labeled(Toned(Tone::kBold, "Verdict"), Clean(d_.verdict), 0,
                  kLabelColumns);
    for (const std::string& note : d_.notes)
      page_.Labeled(Toned(Tone::kYellow, "Note"), Clean(note), 0,
                    kLabelColumns);
    for (const auto& [condition, answer] : answers_)
      page_.Labeled(answer.failed ? Toned(Tone::kRed, "Failed")
                    : answer.judged ? std::string("Passed")
                                    : Toned(Tone::kYellow, "Not judged"),
                    Clean(answer.text), 0, kLabelColumns);
    if (d_.parts.empty()) return page_.text();
    Parts();
    Operations();
    return page_.text();
  }

 private:
  void ShowSide(const char* name, const DiffSide& s) {
    std::string text = Clean(s.store);
    if (!s.program.empty())
      text += fmt::format(", {}", Clean(s.cmdline.empty() ? s.program
                                                          : s.cmdline));
    if (!s.host.empty()) text += fmt::format(", on {}", Clean(s.host));
    if (s.cpus > 0)
      text += fmt::format(" with {}", FormatCounted(s.cpus, "CPU", "CPUs"));
    if (s.gpus > 0)
      text += fmt::format("; {} of GPU use{}", FormatDuration(s.use),
                          s.cold_start > Ns(0)
                              ? fmt::format(", {} of start-up left out",
                                            FormatDuration(s.cold_start))
                              : "");
    page_.Labeled(Toned(Tone::kBold, name), text, 0, kLabelColumns);
    if (!s.step.empty()) page_.Labeled("", Clean(s.step), 0, kLabelColumns);
  }

  std::vector<std::string> Row(std::string name, const Change& c) const {
    const double change = c.change();
    return {std::move(name), Words(c.a), Words(c.b),
            std::string(change < 0 ? "-" : "+").append(Words(std::abs(change))),
            Words(c.band), c.significant ? "yes" : "no"};
  }

  void Parts() {
    page_.Heading(d_.by_step ? "Time of a step, for each GPU"
                             : "Each second of GPU use");
    page_.Paragraph(
        fmt::format("Noise: a smaller change is none, judged by {} parts of "
                    "each run. Causes are time in which the GPU was starved "
                    "for certain.",
                    analysis::kSegments),
        2);
    Table table;
    table.header = {"", "A", "B", "Change", "Noise", "Differs"};
    if (d_.by_step) table.rows.push_back(Row("all of it", d_.whole));
    for (const analysis::PartChange& p : d_.parts)
      table.rows.push_back(Row(Clean(PartName(p.part)), p.time));
    table.rows.push_back(Row("all causes", d_.starved));
    page_.Add(table, 2);
  }

  void Operations() {
    page_.Heading(fmt::format("Operations, time in each {} (first uses left "
                              "out; driver calls are inside runtime calls)",
                              d_.by_step ? "step" : "second of GPU use"));
    Table time, calls;
    time.header = {"", "A", "B", "Change", "Noise", "Differs"};
    calls.header = {"One call", "p50 A", "p50 B", "p99 A", "p99 B", "Count A",
                    "Count B"};
    size_t hidden = 0;
    for (const analysis::OperationChange& o : d_.operations) {
      if (!o_.all && time.rows.size() == kTopRows) {
        ++hidden;
        continue;
      }
      const std::string name = Clean(o.name);
      time.rows.push_back(Row(name, o.time));
      calls.rows.push_back(
          {name, FormatDuration(o.a.p50), FormatDuration(o.b.p50),
           Percentile(o.a.p99, o.a.count, kLeastForP99),
           Percentile(o.b.p99, o.b.count, kLeastForP99),
           FormatCount(o.a.count), FormatCount(o.b.count)});
    }
    page_.Add(time, 2);
    page_.Blank();
    page_.Add(calls, 2);
    if (hidden > 0)
      page_.Paragraph(fmt::format("and {} more that changed less; --all lists "
                                  "them",
                                  hidden),
                      2);
  }

  const Diff& d_;
  const FailAnswers& answers_;
  const DiffTextOptions& o_;
  Page page_;
};

}  // namespace

std::string RenderDiffText(const Diff& diff, const FailAnswers& answers,
                           const DiffTextOptions& options) {
  return TextDiff(diff, answers, options).Render();
}

Json DiffJson(const Diff& diff, const FailAnswers& answers) {
  Json parts = Json::array(), operations = Json::array(),
       fail_on = Json::array();
  for (const analysis::PartChange& p : diff.parts)
    parts.push_back({{"part", p.part}, {"time", ToJson(p.time)}});
  for (const analysis::OperationChange& o : diff.operations)
    operations.push_back({{"name", o.name},
                          {"layer", NameOf(o.layer)},
                          {"a", ToJson(o.a)},
                          {"b", ToJson(o.b)},
                          {"time", ToJson(o.time)}});
  for (const auto& [condition, answer] : answers)
    fail_on.push_back({{"what", condition.what},
                       {"percent", condition.percent},
                       {"judged", answer.judged},
                       {"failed", answer.failed},
                       {"text", answer.text}});
  return {{"schema",
           {{"name", kDiffSchemaName}, {"version", kDiffSchemaVersion}}},
          {"verdict", diff.verdict},
          {"unit", diff.by_step ? "step" : "second"},
          {"not_judged", diff.not_judged.empty() ? Json(nullptr)
                                                 : Json(diff.not_judged)},
          {"a", ToJson(diff.a)},
          {"b", ToJson(diff.b)},
          {"notes", diff.notes},
          {"whole", ToJson(diff.whole)},
          {"starved", ToJson(diff.starved)},
          {"parts", parts},
          {"operations", operations},
          {"fail_on", fail_on}};
}

}  // namespace ingero::cli
