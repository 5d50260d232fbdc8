// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "cli/render/layout.h"
#include "cli/render/report.h"
#include "cli/render/words.h"

namespace ingero::cli {
namespace {

using analysis::Finding;
using analysis::Layer;
using analysis::Operation;
using analysis::ProcessActivity;
using analysis::ProcessIndex;
using analysis::Report;
using analysis::Severity;

constexpr size_t kTopOperations = 8;  // per layer
constexpr size_t kTopOthers = 10;
constexpr size_t kTopListed = 5;  // culprits, cold operations
constexpr int kLabelColumns = 13;
// A name longer than this helps nobody; --json has all of it.
constexpr int kNameColumns = 60;
constexpr int kWordColumns = 120;  // paths in commands stay whole
constexpr size_t kSentenceBytes = 1000;

std::string Name(std::string_view text, int columns = kNameColumns) {
  return Ellipsize(SanitizeForTerminal(text, text.size() * 4), columns);
}

// Names inside a sentence may be endless; what it says must not drown in them.
std::string Sentence(std::string_view text) {
  std::string out;
  const std::string clean = SanitizeForTerminal(text, text.size() * 4);
  for (size_t i = 0; i < clean.size();) {
    const size_t end = std::min(clean.find(' ', i), clean.size());
    if (i > 0) out += ' ';
    out += Ellipsize(std::string_view(clean).substr(i, end - i), kWordColumns);
    i = end + 1;
  }
  return SanitizeForTerminal(out, kSentenceBytes);
}

std::string Join(const std::vector<std::string>& parts,
                 std::string_view separator = ", ") {
  return fmt::format("{}", fmt::join(parts, separator));
}

Tone ToneOf(Severity severity) {
  switch (severity) {
    case Severity::kHigh:
      return Tone::kRed;
    case Severity::kMedium:
      return Tone::kYellow;
    case Severity::kLow:
      return Tone::kCyan;
    case Severity::kInfo:
      break;
  }
  return Tone::kGreen;
}

const char* Tag(Severity severity) {
  switch (severity) {
    case Severity::kHigh:
      return "[HIGH]";
    case Severity::kMedium:
      return "[MEDIUM]";
    case Severity::kLow:
      return "[LOW]";
    case Severity::kInfo:
      break;
  }
  return "[INFO]";
}

std::string Tag(analysis::TimelineLine::Layer layer) {
  using L = analysis::TimelineLine::Layer;
  switch (layer) {
    case L::kSystem:
      return Toned(Tone::kMagenta, "[SYSTEM]");
    case L::kHost:
      return Toned(Tone::kBlue, "[HOST]");
    case L::kCuda:
      break;
  }
  return Toned(Tone::kGreen, "[CUDA]");
}

// "31.0 s", or "31.0 s to 33.1 s" where it is known only so far.
std::string FromTo(Ns least, Ns most) {
  std::string a = FormatDuration(least), b = FormatDuration(most);
  return most <= least || a == b ? a : fmt::format("{} to {}", a, b);
}

class TextReport {
 public:
  TextReport(const Report& report, const TextOptions& options)
      : r_(report), o_(options), page_(options.columns, options.color) {}

  std::string Render() {
    Title();
    Answer();
    Facts();
    if (o_.per_process) {
      Processes();
    } else if (o_.chains) {
      Chains();
    } else {
      Findings();
      Steps();
      OperationTables();
      ColdStart();
      NotEvaluated();
    }
    return page_.text();
  }

 private:
  // ---- names ------------------------------------------------------------

  const analysis::Process* Find(ProcessIndex index) const {
    return index < r_.processes.size() ? &r_.processes[index] : nullptr;
  }

  // "python3/2254".
  std::string Short(ProcessIndex index, int columns = 28) const {
    const analysis::Process* p = Find(index);
    if (p == nullptr) return "unknown process";
    const std::string pid = fmt::format("/{}", p->pid);
    return Name(p->name.empty() ? "?" : p->name,
                std::max(columns - static_cast<int>(pid.size()), 8)) +
           pid;
  }

  // "python3 benchmark.py, pid 2254".
  std::string Program(ProcessIndex index) const {
    const analysis::Process* p = Find(index);
    if (p == nullptr) return "unknown process";
    std::string command = p->cmdline.empty() ? p->name : p->cmdline;
    // Arguments as /proc and the companion separate them.
    for (char& c : command)
      if (c == '\0' || c == '\x1f') c = ' ';
    std::string pid = fmt::format("pid {}", p->pid);
    if (p->ns_pid != 0 && p->ns_pid != p->pid)
      pid += fmt::format(" ({} in its container)", p->ns_pid);
    return fmt::format("{}, {}", Name(TrimWhitespace(command)), pid);
  }

  std::string FunctionName(analysis::FuncIndex index) const {
    return index < r_.functions.size() ? Name(r_.functions[index].name)
                                       : "unknown function";
  }

  // ---- times ------------------------------------------------------------

  bool KnowsTimeOfDay() const {
    return r_.facts.wall_clock_at_span_begin_ns != 0;
  }
  int64_t Realtime(Ns t) const {
    return r_.facts.wall_clock_at_span_begin_ns + (t - r_.span.begin).value;
  }
  // "+12.345 s (22:00:47)".
  std::string Moment(Ns t) const {
    std::string text = FormatOffset(t - r_.span.begin);
    if (KnowsTimeOfDay())
      text += fmt::format(" ({})", FormatTimeOfDay(Realtime(t)));
    return text;
  }
  std::string Between(Interval i) const {
    return fmt::format("{} to {}", Moment(i.begin), Moment(i.end));
  }

  // ---- top --------------------------------------------------------------

  // The process that the report is about: the one asked for, else the one
  // that fed a GPU longest.
  ProcessIndex MainProcess() const {
    ProcessIndex best = analysis::kNone;
    if (o_.pid) {
      for (const ProcessActivity& a : r_.activities)
        if (const auto* p = Find(a.process); p != nullptr && p->pid == o_.pid)
          return a.process;
      for (ProcessIndex i = 0; i < r_.processes.size(); ++i)
        if (r_.processes[i].pid == o_.pid) best = i;
      return best;
    }
    if (!r_.feeding.empty()) return r_.feeding.front().process;
    for (const ProcessActivity& a : r_.activities)
      if (a.role == "main") return a.process;
    for (ProcessIndex i = 0; i < r_.processes.size(); ++i)
      if (r_.processes[i].has_cuda) return i;
    return analysis::kNone;
  }

  std::string Idle(const analysis::Feeding& f) const {
    return fmt::format(
        "in use for {}, of that idle at least {} ({}), at most {} ({})",
        FormatDuration(f.span), FormatDuration(f.idle_at_least),
        FormatPercent(f.idle_at_least, f.span),
        FormatDuration(f.idle_at_most), FormatPercent(f.idle_at_most, f.span));
  }

  void Title() {
    const ProcessIndex main = MainProcess();
    std::string title = main == analysis::kNone
                            ? "No program with CUDA calls was recorded"
                            : Program(main);
    Interval life = r_.window;
    if (main != analysis::kNone)
      life = life.Clip({r_.processes[main].first_seen,
                        r_.processes[main].last_seen});
    if (life.empty()) life = r_.window;
    title += fmt::format(", {}", FormatDuration(life.length()));
    for (const analysis::Feeding& f : r_.feeding) {
      if (f.process != main) continue;
      std::string least = FormatPercent(f.idle_at_least, f.span);
      std::string most = FormatPercent(f.idle_at_most, f.span);
      title += fmt::format(": GPU {} idle {} of the {} of its use", f.device,
                           least == most ? least : least + " to " + most,
                           FormatDuration(f.span));
      break;
    }
    page_.Paragraph(Toned(Tone::kBold, title), 0, 2);
    page_.Blank();
  }

  void Answer() {
    if (!r_.verdict.empty())
      page_.Labeled(Toned(Tone::kBold, "Verdict"), Sentence(r_.verdict), 0,
                    kLabelColumns);
    // The verdict is about the first; another one's advice would not answer it.
    if (!r_.findings.empty() && !r_.findings[0].context &&
        !r_.findings[0].recommendations.empty())
      page_.Labeled(Toned(Tone::kBold, "Do next"),
                    Advice(r_.findings[0].recommendations[0],
                           r_.findings[0].base),
                    0, kLabelColumns);
    page_.Blank();
  }

  void Fact(std::string_view label, std::string_view text) {
    page_.Labeled(label, text, 0, kLabelColumns);
  }
  // One label for all of them.
  void Facts(std::string_view label, const std::vector<std::string>& facts) {
    for (size_t i = 0; i < facts.size(); ++i)
      Fact(i == 0 ? label : std::string_view(), Sentence(facts[i]));
  }

  void Facts() {
    const analysis::TraceFacts& facts = r_.facts;
    std::string recorded = FormatDuration(r_.span.length());
    if (KnowsTimeOfDay())
      recorded +=
          fmt::format(", {} to {} {}", FormatDateTime(Realtime(r_.span.begin)),
                      FormatTimeOfDay(Realtime(r_.span.end)),
                      FormatTimeZone(Realtime(r_.span.begin)));
    if (!facts.host.empty())
      recorded += fmt::format(", on {}", Name(facts.host));
    if (facts.cpus > 0)
      recorded +=
          fmt::format(" with {}", FormatCounted(facts.cpus, "CPU", "CPUs"));
    Fact("Recorded", recorded);
    if (r_.window != r_.span)
      Fact("Looked at", Between(r_.window) + ", all figures are of this time");

    // With several programs or GPUs, a line for each.
    for (const analysis::Feeding& f : r_.feeding) {
      std::string text = Idle(f);
      if (f.known_busy > Ns(0))
        text += fmt::format(", known busy {}", FormatDuration(f.known_busy));
      if (r_.feeding.size() > 1)
        text = fmt::format("{}: {}", Short(f.process), text);
      Fact(fmt::format("GPU {}", f.device), text);
    }
    std::vector<std::string> coverage;
    for (const analysis::CoverageFact& c : facts.coverage)
      coverage.push_back(c.text);
    Facts("Coverage", coverage);
    if (!facts.scope.empty()) Fact("Scope", Sentence(facts.scope));
    Facts(Toned(Tone::kYellow, "Missing"), facts.missing);
    Facts("System", facts.system);
    Losses();
    if (facts.clock_error > Ns(0))
      Fact("Accuracy", "clocks joined within " +
                           FormatDuration(facts.clock_error));
    Cost();
  }

  // Of the whole recording: the shim's time is the program's own, a probe takes
  // its time on whatever CPU the switch is.
  void Cost() {
    const analysis::TraceFacts& facts = r_.facts;
    const Ns probes =
        facts.companion_cost / std::max<int64_t>(1, facts.cpus);
    const Ns cost = facts.tracing_cost + probes;
    std::string text = fmt::format(
        "tracing cost about {} of {} ({}): the shim {}", FormatDuration(cost),
        FormatDuration(r_.span.length()),
        FormatPercent(cost, r_.span.length()),
        FormatDuration(facts.tracing_cost));
    if (facts.switches > 0)
      text += fmt::format(
          ", the companion's probes {} on each CPU ({})",
          FormatDuration(probes),
          FormatCounted(facts.switches, "switch", "switches"));
    Ns ran, waited;
    for (const ProcessActivity& a : r_.activities)
      if (a.role == "ingero") ran += a.running;
    for (const analysis::Account& a : r_.accounts)
      waited += a.waited_for_ingero;
    if (ran > Ns(0))
      text += fmt::format("; {}ingero's own processes ran for {}",
                          r_.window == r_.span ? "" : "in the time looked at ",
                          FormatDuration(ran));
    if (waited > Ns(0))
      text += fmt::format("; for {}, blamed on nobody, GPU work waited for a "
                          "CPU that they held",
                          FormatDuration(waited));
    Fact("Cost", text);
  }

  // One line for each kind of loss, with how often and when; notices last.
  void Losses() {
    struct Kind {
      uint64_t count = 0;
      size_t ranges = 0;
      Interval range;
      std::string text;
    };
    std::map<std::pair<int, std::string>, Kind> kinds;
    for (const analysis::Loss& loss : r_.losses) {
      Kind& k = kinds[{-loss.severity, loss.id}];
      k.range = k.ranges++ == 0
                    ? loss.range
                    : Interval{std::min(k.range.begin, loss.range.begin),
                               std::max(k.range.end, loss.range.end)};
      k.count += loss.count;
      k.text = loss.text;
    }
    if (kinds.empty() || kinds.begin()->first.first > -2)
      Fact("Losses", !r_.complete    ? "the data are incomplete"
                     : kinds.empty() ? "none"
                                     : "no event was lost; see the notice");
    for (const auto& [key, k] : kinds) {
      std::string text =
          fmt::format("{} ({})", FormatCounted(k.count, "event", "events"),
                      Name(key.second));
      if (k.ranges > 1) text += fmt::format(" in {} places", k.ranges);
      // It may begin before the first event that was kept.
      const Interval shown{std::max(k.range.begin, r_.span.begin),
                           std::max(k.range.end, r_.span.begin)};
      text += fmt::format(", {}: {}", Between(shown), Sentence(k.text));
      Fact(key.first <= -2 ? Toned(Tone::kRed, "Lost") : "Notice", text);
    }
    for (const analysis::Account& a : r_.accounts)
      if (a.unseen > Ns(0))
        Fact(Toned(Tone::kYellow, "Unknown"),
             fmt::format("for {} in which {}'s GPU was or may have been "
                         "starved, what held its work up: context switches "
                         "were not seen{}",
                         FormatDuration(a.unseen), Short(a.process),
                         r_.facts.scope.empty()
                             ? ""
                             : ", or were outside the scope"));
  }

  // ---- findings ---------------------------------------------------------

  // `base`: the time of which it was lost.
  std::string Advice(const analysis::Recommendation& a, Ns base) const {
    std::string text = Sentence(a.text);
    if (a.gain > Ns(0))
      text += fmt::format(" Gain: up to {} of {}.", FormatDuration(a.gain),
                          FormatDuration(base > Ns(0) ? base
                                                      : r_.window.length()));
    return text;
  }

  void Findings() {
    page_.Heading("Findings");
    if (r_.findings.empty())
      page_.Paragraph("none: no cause could be given any lost time.");
    else
      page_.Paragraph(
          "\"GPU use\" is the time from the first work for the GPU to the end "
          "of the last CUDA call; shares of it decide the severity.");
    for (const Finding& f : r_.findings) {
      page_.Blank();
      ShowFinding(f);
    }
    for (const analysis::Account& a : r_.accounts) Sum(a);
  }

  // Each nanosecond has one cause.
  void Sum(const analysis::Account& a) {
    if (a.starved <= Ns(0)) return;
    std::vector<std::string> parts;
    for (const auto& [cause, lost] : a.causes)
      parts.push_back(FormatDuration(lost) + " " + Name(cause));
    if (a.below > Ns(0))
      parts.push_back(FormatDuration(a.below) + " in causes below 1 %");
    if (a.unexplained > Ns(0))
      parts.push_back(FormatDuration(a.unexplained) + " unexplained");
    page_.Blank();
    page_.Paragraph(
        fmt::format("Sum{}: {} = {} for which the GPU was starved for certain.",
                    r_.accounts.size() > 1 ? " of " + Short(a.process)
                                           : std::string(),
                    Join(parts, " + "), FormatDuration(a.starved)),
        0, 2);
  }

  void Steps() {
    if (r_.steps.empty()) return;
    page_.Heading("Steps");
    for (const analysis::StepSummary& s : r_.steps) {
      page_.Paragraph(
          (r_.steps.size() > 1 ? Short(s.process) + ": " : std::string()) +
              Sentence(s.text),
          2);
      for (const analysis::SlowStep& slow : s.slowest) {
        std::string text = fmt::format(
            "{} at {}", FormatDuration(slow.range.length()),
            Moment(slow.range.begin));
        for (const analysis::Extra& e : slow.extra)
          text += fmt::format("; {} more {}", FormatDuration(e.time),
                              e.part == "gpu-busy"    ? "work on the GPU"
                              : e.part == "not-known" ? "not known"
                                                      : Name(e.part));
        page_.Labeled(fmt::format("Step {}", FormatCount(slow.number)), text,
                      2, kLabelColumns - 2, 2);
      }
    }
  }

  void Item(std::string_view label, std::string_view text) {
    page_.Labeled(label, text, 2, kLabelColumns - 2, 2);
  }

  void ShowFinding(const Finding& f) {
    page_.Paragraph(
        fmt::format("{} {}: {}", Toned(ToneOf(f.severity), Tag(f.severity)),
                    Toned(Tone::kBold, Name(f.cause)), Sentence(f.claim)),
        0, 2);
    if (f.lost > Ns(0) || f.lost_at_most > Ns(0))
      Item("Lost time",
           fmt::format("{} of {} of GPU use ({})",
                       FromTo(f.lost, f.lost_at_most), FormatDuration(f.base),
                       FormatPercent(f.lost, f.base)));
    Where(f);
    std::string_view label = "Timeline";
    for (const analysis::TimelineLine& line : f.timeline) {
      const Ns at = r_.window.begin + line.at;
      Item(label, fmt::format("{} {} {}", Moment(at), Tag(line.layer),
                              Sentence(line.text)));
      label = "";
    }
    Culprits(f);
    label = "Fix";
    for (const analysis::Recommendation& a : f.recommendations) {
      Item(label, Advice(a, f.base));
      label = "";
    }
    label = "Evidence";
    std::set<std::string> shown;  // several facts may share a command
    for (const analysis::Evidence& e : f.evidence) {
      Item(label, Sentence(e.text));
      if (!e.query.empty() && shown.insert(e.query).second)
        page_.Command(SanitizeForTerminal(e.query), kLabelColumns);
      label = "";
    }
    if (!f.symptoms.empty()) {
      std::vector<std::string> names;
      for (const std::string& s : f.symptoms) names.push_back(Sentence(s));
      Item("Symptoms", Join(names, "; "));
    }
    static constexpr const char* kConfidence[] = {"low", "medium", "high"};
    std::string confidence =
        kConfidence[std::min<size_t>(static_cast<size_t>(f.confidence), 2)];
    if (!f.coverage.empty())
      confidence += fmt::format("; data: {}", Sentence(f.coverage));
    Item("Confidence", confidence);
  }

  void Where(const Finding& f) {
    std::vector<std::string> parts;
    for (Interval w : f.windows) parts.push_back(Between(w));
    if (parts.empty()) return;
    const double outside = Ratio(f.outside_windows, f.lost_at_most);
    if (outside >= 0.005)
      parts.push_back(fmt::format("{} of it elsewhere", FormatPercent(outside)));
    Item("When", Join(parts));
  }

  void Culprits(const Finding& f) {
    std::vector<std::string> parts;
    const size_t n =
        o_.all ? f.culprits.size() : std::min(f.culprits.size(), kTopListed);
    for (size_t i = 0; i < n; ++i) {
      const analysis::Culprit& c = f.culprits[i];
      std::string text = Name(c.name);
      if (c.time > Ns(0))
        text += fmt::format(" {} ({}{})", FormatDuration(c.time),
                            FormatPercent(c.share),
                            i == 0 ? " of this finding" : "");
      parts.push_back(text);
    }
    if (parts.empty()) return;
    if (n < f.culprits.size())
      parts.push_back(fmt::format("and {} more", f.culprits.size() - n));
    Item("Root cause", Join(parts));
  }

  // ---- chains -----------------------------------------------------------

  void Chains() {
    page_.Heading("Operations with a long tail");
    page_.Paragraph(
        r_.chains.empty()
            ? "none: no operation with 100 calls or more has a p99 of 1 ms or "
              "more that is 10 times its p50."
            : "What their slow calls were doing. The tag is that of the "
              "program's first finding: a ratio alone proves nothing.");
    for (const analysis::Chain& c : r_.chains) {
      page_.Blank();
      page_.Paragraph(fmt::format("{} {}",
                                  Toned(ToneOf(c.severity), Tag(c.severity)),
                                  Sentence(c.text)),
                      0, 2);
    }
  }

  // ---- operations -------------------------------------------------------

  Layer LayerOf(const Operation& op) const {
    return op.func < r_.functions.size() ? r_.functions[op.func].layer
                                         : Layer::kLibrary;
  }

  void OperationTables() {
    std::vector<const Operation*> steady;
    bool failed = false, several = false;
    for (const Operation& op : r_.operations) {
      if (op.count == 0) continue;
      steady.push_back(&op);
      failed |= op.errors > 0;
      several |= op.process != steady[0]->process;
    }
    if (steady.empty()) {
      LibraryFirstCalls();
      return;
    }
    page_.Heading("CUDA operations (first uses are kept apart)");
    page_.Paragraph(
        fmt::format("Wall: share of the {} looked at in which the program was "
                    "in such a call. p95 needs {} calls, p99 {}.",
                    FormatDuration(r_.window.length()), kLeastForP95,
                    kLeastForP99),
        2);
    for (Layer layer : {Layer::kRuntime, Layer::kDriver, Layer::kLibrary})
      OperationTable(steady, layer, several);
    LibraryFirstCalls();
    if (failed) page_.Blank();
    bool see_codes = false;
    for (const Operation* op : steady) {
      if (op->errors == 0) continue;
      // Programs ask for functions that only a newer driver has.
      const bool asks = op->func < r_.functions.size() &&
                        r_.functions[op->func].call_class ==
                            analysis::CallClass::kResolve;
      see_codes |= !asks;
      page_.Paragraph(
          fmt::format("{} {} {} in {}{}", FunctionName(op->func),
                      asks ? "did not find what it was asked for"
                           : "failed",
                      FormatCounted(op->errors, "time", "times"),
                      Short(op->process),
                      asks ? ": harmless, newer functions are looked for."
                           : "."),
          2, 2);
    }
    if (see_codes)
      page_.Paragraph(
          "\"Failed\": returned another result than success; 'ingero dump' "
          "with '--table calls' shows each call's result.",
          2, 2);
  }

  void OperationTable(const std::vector<const Operation*>& all, Layer layer,
                      bool several) {
    static constexpr const char* kTitles[] = {"", "Runtime", "Driver",
                                              "Libraries"};
    Table table;
    table.header = {kTitles[static_cast<size_t>(layer)]};
    if (several) table.header.push_back("Process");
    for (const char* h : {"Count", "p50", "p95", "p99", "Max", "Total", "Wall"})
      table.header.push_back(h);
    size_t hidden = 0;
    Ns hidden_total;
    for (const Operation* op : all) {
      if (LayerOf(*op) != layer) continue;
      if (!o_.all && table.rows.size() == kTopOperations) {
        ++hidden;
        hidden_total += op->total;
        continue;
      }
      std::vector<std::string> row = {FunctionName(op->func)};
      if (several) row.push_back(Short(op->process, 16));
      for (std::string cell :
           {FormatCount(op->count), FormatDuration(op->p50),
            Percentile(op->p95, op->count, kLeastForP95),
            Percentile(op->p99, op->count, kLeastForP99),
            FormatDuration(op->max), FormatDuration(op->total),
            op->wall_share > 0 ? FormatPercent(op->wall_share)
                               : std::string("-")})
        row.push_back(std::move(cell));
      table.rows.push_back(std::move(row));
    }
    if (table.rows.empty()) return;
    page_.Blank();
    page_.Add(table, 2);
    if (hidden > 0)
      page_.Paragraph(fmt::format("and {} with {} in all; --all lists them",
                                  FormatCounted(hidden, "more", "more"),
                                  FormatDuration(hidden_total)),
                      2);
    if (layer == Layer::kDriver)
      page_.Paragraph(
          "Wall is \"-\" where every call was part of a runtime call, which "
          "counts it.",
          2);
  }

  // What a library did at its first call holds CUDA's first uses, so these are
  // no part of the cold start's sum.
  void LibraryFirstCalls() {
    constexpr Ns kWorthALine{1'000'000};
    std::vector<const Operation*> first;
    for (const Operation& op : r_.operations)
      if (op.first_uses > 0 && LayerOf(op) == Layer::kLibrary &&
          (o_.all || op.first_use_time >= kWorthALine))
        first.push_back(&op);
    if (first.empty()) return;
    std::stable_sort(first.begin(), first.end(),
                     [](const Operation* a, const Operation* b) {
                       return a->first_use_time > b->first_use_time;
                     });
    if (!o_.all && first.size() > kTopListed) first.resize(kTopListed);
    std::vector<std::string> parts;
    for (const Operation* op : first)
      parts.push_back(FunctionName(op->func) + " " +
                      FormatDuration(op->first_use_time));
    page_.Paragraph("First calls into libraries, CUDA's first uses inside: " +
                        Join(parts) + ".",
                    2);
  }

  void ColdStart() {
    std::vector<const Operation*> cold;
    uint64_t uses = 0;
    Ns total;
    for (const Operation& op : r_.operations) {
      // A library's first call holds CUDA's first uses, which are counted.
      if (op.first_uses == 0 || LayerOf(op) == Layer::kLibrary) continue;
      cold.push_back(&op);
      uses += op.first_uses;
      total += op.first_use_time;
    }
    if (cold.empty()) return;
    std::stable_sort(cold.begin(), cold.end(),
                     [](const Operation* a, const Operation* b) {
                       return a->first_use_time > b->first_use_time;
                     });
    page_.Heading("Cold start (paid once, not part of the figures above)");
    Ns starved;
    for (const analysis::Feeding& f : r_.feeding) starved += f.cold_start;
    page_.Paragraph(
        fmt::format("{} took {}{}.",
                    FormatCounted(uses, "first use", "first uses"),
                    FormatDuration(total),
                    starved > Ns(0)
                        ? fmt::format("; the GPU was idle for {} of start-up",
                                      FormatDuration(starved))
                        : std::string()),
        2);
    Table table;
    table.header = {"First use of", "Count", "Total"};
    const size_t n = o_.all ? cold.size() : std::min(cold.size(), kTopListed);
    for (size_t i = 0; i < n; ++i)
      table.rows.push_back({FunctionName(cold[i]->func),
                            FormatCount(cold[i]->first_uses),
                            cold[i]->first_use_time > Ns(0)
                                ? FormatDuration(cold[i]->first_use_time)
                                : "within others"});
    page_.Add(table, 2);
    if (n < cold.size())
      page_.Paragraph(
          fmt::format("and {} more; --all lists them", cold.size() - n), 2);
  }

  // Causes that share a reason share a line.
  void NotEvaluated() {
    if (r_.not_evaluated.empty()) return;
    page_.Heading("Not evaluated");
    std::vector<std::pair<std::string, std::vector<std::string>>> reasons;
    for (const analysis::NotEvaluated& n : r_.not_evaluated) {
      auto it = std::find_if(reasons.begin(), reasons.end(),
                             [&](const auto& r) { return r.first == n.why; });
      if (it == reasons.end()) it = reasons.insert(it, {n.why, {}});
      it->second.push_back(Name(n.cause));
    }
    for (const auto& [why, causes] : reasons)
      page_.Paragraph(fmt::format("{}: {}", Join(causes), Sentence(why)), 2, 2);
  }

  // ---- processes --------------------------------------------------------

  static bool Active(const ProcessActivity& a) {
    return a.calls > 0 || a.preempted + a.slept + a.yielded > 0 ||
           a.running > Ns(0) || a.pages > 0;
  }

  void Processes() {
    std::vector<const ProcessActivity*> mains, workers, others, own;
    size_t inactive = 0, outside = 0;
    for (const ProcessActivity& a : r_.activities) {
      if (!Active(a))
        ++(Outside(a.process) ? outside : inactive);
      else if (a.role == "main")
        mains.push_back(&a);
      else if (a.role == "worker")
        workers.push_back(&a);
      else if (a.role == "ingero")
        own.push_back(&a);
      else
        others.push_back(&a);
    }
    for (auto* group : {&mains, &workers, &others, &own})
      std::stable_sort(group->begin(), group->end(),
                       [](const ProcessActivity* a, const ProcessActivity* b) {
                         return a->running > b->running;
                       });
    page_.Heading("Processes");
    if (mains.empty() && workers.empty() && others.empty() && own.empty())
      page_.Paragraph("no process was active in this time.", 2);
    for (const ProcessActivity* a : mains) MainProcessDetails(*a);
    for (const ProcessActivity* a : mains) {
      const auto others_of = std::stable_partition(
          workers.begin(), workers.end(), [&](const ProcessActivity* w) {
            return IsDescendant(w->process, a->process);
          });
      ActivityTable(fmt::format("Workers of {}", Short(a->process)),
                    {workers.begin(), others_of},
                    static_cast<size_t>(others_of - workers.begin()));
      workers.erase(workers.begin(), others_of);
    }
    ActivityTable("Workers", workers, workers.size());
    ActivityTable("Other processes, most CPU time first", others,
                  o_.all ? others.size() : kTopOthers);
    ActivityTable("ingero itself (never blamed)", own, own.size());
    if (outside > 0) {
      page_.Blank();
      page_.Paragraph(fmt::format(
          "{} outside the scope: what they did was not recorded.",
          FormatCounted(outside, "further process", "further processes")));
    }
    if (inactive > 0) {
      page_.Blank();
      page_.Paragraph(fmt::format(
          "{} without any activity in this time.",
          FormatCounted(inactive, "further process", "further processes")));
    }
  }

  bool Outside(ProcessIndex process) const {
    const analysis::Process* p = Find(process);
    return p != nullptr && p->outside_scope;
  }

  bool IsDescendant(ProcessIndex process, ProcessIndex ancestor) const {
    // Bounded: a damaged store could hold a ring of parents.
    for (int depth = 0; depth < 64; ++depth) {
      const analysis::Process* p = Find(process);
      if (p == nullptr) return false;
      process = p->parent;
      if (process == ancestor) return true;
    }
    return false;
  }

  void MainProcessDetails(const ProcessActivity& a) {
    page_.Blank();
    page_.Paragraph(Toned(Tone::kBold, Program(a.process)), 0, 2);
    CudaOf(a.process);
    const uint64_t switches = a.preempted + a.slept + a.yielded;
    Item("Switches",
         fmt::format("{}: {} preempted, {} went to sleep, {} yielded",
                     FormatCount(switches), FormatCount(a.preempted),
                     FormatCount(a.slept), FormatCount(a.yielded)));
    Item("Off CPU",
         fmt::format("average {}, worst {}", FormatDuration(a.average_off_cpu),
                     FormatDuration(a.worst_off_cpu)));
    Item("Threads",
         fmt::format("ran {}{}, waited {} for a CPU, slept {}, waited {} for "
                     "disks (sums over all threads)",
                     FormatDuration(a.running),
                     a.kernel > Ns(0)
                         ? " (" + FormatDuration(a.kernel) + " in the kernel)"
                         : std::string(),
                     FormatDuration(a.runnable),
                     FormatDuration(a.sleeping), FormatDuration(a.io)));
    Item("Memory",
         fmt::format("{} allocated ({}), {} minor and {} major faults",
                     FormatCounted(a.pages, "page", "pages"),
                     FormatBytes(a.pages * 4096), FormatCount(a.min_faults),
                     FormatCount(a.maj_faults)));
  }

  void CudaOf(ProcessIndex process) {
    for (Layer layer : {Layer::kRuntime, Layer::kDriver, Layer::kLibrary}) {
      Table table;
      static constexpr const char* kTitles[] = {
          "", "CUDA runtime", "CUDA driver", "CUDA libraries"};
      table.header = {kTitles[static_cast<size_t>(layer)],
                      "Count",
                      "avg",
                      "p50",
                      "p99",
                      "max"};
      size_t hidden = 0;
      for (const Operation& op : r_.operations) {
        if (op.process != process || op.count == 0 || LayerOf(op) != layer)
          continue;
        if (!o_.all && table.rows.size() == kTopOperations) {
          ++hidden;
          continue;
        }
        table.rows.push_back({FunctionName(op.func), FormatCount(op.count),
                              FormatDuration(op.average),
                              FormatDuration(op.p50),
                              Percentile(op.p99, op.count, kLeastForP99),
                              FormatDuration(op.max)});
      }
      if (table.rows.empty()) continue;
      page_.Add(table, 2);
      if (hidden > 0)
        page_.Paragraph(fmt::format("and {} more; --all lists them", hidden),
                        2);
    }
  }

  static std::string Cell(Ns time) {
    return time == Ns(0) ? "-" : FormatDuration(time);
  }

  void ActivityTable(std::string_view title,
                     const std::vector<const ProcessActivity*>& rows,
                     size_t limit) {
    if (rows.empty()) return;
    page_.Heading(title);
    // Two short tables rather than one that is too wide for a terminal.
    Table cpu, switches;
    cpu.header = {"Process", "Ran", "Waited for CPU", "Slept", "Disk", "Pages"};
    switches.header = {"Process", "Preempted", "Asleep", "Off CPU avg",
                       "worst"};
    Ns rest;
    bool outside = false;
    for (size_t i = 0; i < rows.size(); ++i) {
      const ProcessActivity& a = *rows[i];
      if (i >= limit) {
        rest += a.running;
        continue;
      }
      std::string name = Short(a.process);
      if (Outside(a.process)) {
        outside = true;
        name += "*";
      }
      cpu.rows.push_back({name, Cell(a.running), Cell(a.runnable),
                          Cell(a.sleeping), Cell(a.io), FormatCount(a.pages)});
      switches.rows.push_back({name, FormatCount(a.preempted),
                               FormatCount(a.slept), Cell(a.average_off_cpu),
                               Cell(a.worst_off_cpu)});
    }
    page_.Add(cpu, 2);
    page_.Blank();
    page_.Add(switches, 2);
    if (outside)
      page_.Paragraph(
          "* outside the scope: only a part of what it ran was recorded, and "
          "nothing of its waits",
          2);
    if (rows.size() > limit)
      page_.Paragraph(
          fmt::format("and {} more that ran for {} in all; --all lists them",
                      rows.size() - limit, FormatDuration(rest)),
          2);
  }

  const Report& r_;
  const TextOptions& o_;
  Page page_;
};

}  // namespace

std::string RenderText(const Report& report, const TextOptions& options) {
  return TextReport(report, options).Render();
}

}  // namespace ingero::cli
