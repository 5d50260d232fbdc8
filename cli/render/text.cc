// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <vector>

#include "cli/render/layout.h"
#include "cli/render/report.h"
#include "cli/render/report_words.h"
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

std::string Tag(Severity severity) {
  return Toned(ToneOf(severity), fmt::format("[{}]", Word(severity)));
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

class TextReport : private ReportWords {
 public:
  TextReport(const Report& report, const TextOptions& options)
      : ReportWords(report, options.pid),
        o_(options),
        page_(options.columns, options.color) {}

  std::string Render() {
    page_.Paragraph(Toned(Tone::kBold, Title()), 0, 2);
    page_.Blank();
    Answer();
    for (const LabeledFact& f : Facts())
      page_.Labeled(f.tone && !f.label.empty() ? Toned(*f.tone, f.label)
                                               : f.label,
                    f.text, 0, kLabelColumns);
    if (o_.per_process) {
      Processes();
    } else if (o_.chains) {
      Chains();
    } else {
      Findings();
      Steps();
      OperationTables();
      ColdStart();
      ShowNotEvaluated();
    }
    return page_.text();
  }

 private:
  void Answer() {
    if (!r_.verdict.empty())
      page_.Labeled(Toned(Tone::kBold, "Verdict"), Sentence(r_.verdict), 0,
                    kLabelColumns);
    if (const std::string next = DoNext(); !next.empty())
      page_.Labeled(Toned(Tone::kBold, "Do next"), next, 0, kLabelColumns);
    page_.Blank();
  }

  // ---- findings ---------------------------------------------------------

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
    for (const analysis::Account& a : r_.accounts) {
      const std::string sum = Sum(a);
      if (sum.empty()) continue;
      page_.Blank();
      page_.Paragraph(sum, 0, 2);
    }
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
    if (!text.empty()) page_.Labeled(label, text, 2, kLabelColumns - 2, 2);
  }

  void ShowFinding(const Finding& f) {
    page_.Paragraph(
        fmt::format("{} {}: {}", Tag(f.severity),
                    Toned(Tone::kBold, Name(f.cause)), Sentence(f.claim)),
        0, 2);
    Item("Lost time", Lost(f));
    Item("When", When(f));
    std::string_view label = "Timeline";
    for (const analysis::TimelineLine& line : f.timeline) {
      const Ns at = r_.window.begin + line.at;
      Item(label, fmt::format("{} {} {}", Moment(at), Tag(line.layer),
                              Sentence(line.text)));
      label = "";
    }
    Item("Root cause",
         Culprits(f, o_.all ? f.culprits.size() : kTopListed));
    Item("Code", Sentence(analysis::CodeText(f)));
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
    Item("Confidence", Confidence(f));
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
                                  Tag(c.severity),
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

  void ShowNotEvaluated() {
    const std::vector<std::string> lines = NotEvaluated();
    if (!lines.empty()) page_.Heading("Not evaluated");
    for (const std::string& line : lines) page_.Paragraph(line, 2, 2);
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

  const TextOptions& o_;
  Page page_;
};

}  // namespace

std::string RenderText(const Report& report, const TextOptions& options) {
  return TextReport(report, options).Render();
}

}  // namespace ingero::cli
