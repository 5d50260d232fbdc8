// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "analysis/report.h"
#include "cli/asked.h"
#include "cli/command.h"
#include "cli/render/json.h"
#include "cli/render/layout.h"
#include "cli/render/words.h"
#include "merge/coverage.h"
#include "merge/nvtx.h"
#include "merge/trace_reader.h"

namespace ingero::cli {
namespace {

using analysis::Operation;
using analysis::ProcessIndex;
using merge::NvtxSummary;
using merge::ProcessCoverage;

constexpr const char* kHelp =
    "Count and time what a program asked of CUDA: every function with its\n"
    "percentiles, and its NVTX ranges, by process. Reads the newest store that\n"
    "'ingero merge' made, or the one given with --db.\n";

constexpr const char* kExamples =
    "Examples:\n"
    "  ingero stats\n"
    "  ingero stats --since 60s --all       every function, the last minute\n"
    "  ingero stats --pid 4242 --json       for scripts\n"
    "  ingero stats --coverage              what was seen, and what escaped\n"
    "\n"
    "Times: durations 60s, 5m, 1h30m, 250ms; days as 2026-11-29T22:01:30.";

constexpr size_t kTopOperations = 20;
constexpr int kAllColumns = 120;  // narrower pages get fewer figures

// What a report about one store needs at hand.
struct View {
  const merge::TraceReader& trace;
  Interval window;
  bool all = false;
  int columns = 80;

  std::string Program(ProcessIndex p) const {
    const analysis::Process& process = trace.processes()[p];
    return fmt::format("{}/{}",
                       process.name.empty()
                           ? "process"
                           : SanitizeForTerminal(process.name, 64),
                       process.pid);
  }
  Json Identity(ProcessIndex p) const {
    const analysis::Process& process = trace.processes()[p];
    return {{"pid", process.pid},
            {"start_ns", process.start.value},
            {"name", process.name}};
  }
};

// ---- operations -----------------------------------------------------------

// Columns by falling index.
void LeaveOut(std::initializer_list<size_t> columns, Table* table) {
  for (size_t c : columns) {
    table->header.erase(table->header.begin() + static_cast<ptrdiff_t>(c));
    for (std::vector<std::string>& row : table->rows)
      row.erase(row.begin() + static_cast<ptrdiff_t>(c));
  }
}

void PrintOperations(const View& view, const std::vector<Operation>& operations,
                     Page* page) {
  std::vector<ProcessIndex> order;
  for (const Operation& o : operations)
    if (std::find(order.begin(), order.end(), o.process) == order.end())
      order.push_back(o.process);
  for (ProcessIndex p : order) {
    uint64_t calls = 0, errors = 0;
    size_t hidden = 0;
    Table table;
    table.header = {"Function", "Layer", "Count", "avg", "p50",
                    "p95",      "p99",   "Max",   "Total"};
    for (const Operation& o : operations) {
      if (o.process != p) continue;
      calls += o.count + o.first_uses;
      errors += o.errors;
      if (!view.all && table.rows.size() == kTopOperations) {
        ++hidden;
        continue;
      }
      const analysis::Function& f = view.trace.functions()[o.func];
      std::vector<std::string> row = {SanitizeForTerminal(f.name),
                                      NameOf(f.layer),
                                      FormatCount(o.count + o.first_uses)};
      if (o.count == 0) { // only first uses: no steady state to speak of
        row.insert(row.end(), 5, "-");
        row.push_back(FormatDuration(o.first_use_time));
      } else {
        row.push_back(FormatDuration(o.average));
        row.push_back(FormatDuration(o.p50));
        row.push_back(Percentile(o.p95, o.count, kLeastForP95));
        row.push_back(Percentile(o.p99, o.count, kLeastForP99));
        row.push_back(FormatDuration(o.max));
        row.push_back(FormatDuration(o.total + o.first_use_time));
      }
      table.rows.push_back(std::move(row));
    }
    if (view.columns < kAllColumns) LeaveOut({5, 3, 1}, &table);  // p95, avg, Layer
    page->Heading(fmt::format(
        "{}: {} of {}{}", view.Program(p),
        FormatCounted(calls, "call", "calls"),
        FormatCounted(table.rows.size() + hidden, "function", "functions"),
        errors > 0
            ? fmt::format(", {} failed", FormatCount(errors))
            : std::string()));
    page->Add(table, 2);
    if (hidden > 0)
      page->Paragraph(fmt::format("and {} more; --all lists them",
                                  FormatCount(hidden)),
                      2);
  }
  if (!order.empty())
    page->Paragraph(
        "Averages and percentiles are without first uses. A driver call inside "
        "a runtime call is in both figures.");
}

// ---- NVTX -----------------------------------------------------------------

void PrintNvtx(const View& view, const std::vector<NvtxSummary>& ranges,
               Page* page) {
  std::vector<ProcessIndex> order;
  for (const NvtxSummary& r : ranges)
    if (std::find(order.begin(), order.end(), r.process) == order.end())
      order.push_back(r.process);
  for (ProcessIndex p : order) {
    Table table;
    table.header = {"Range", "Count", "avg", "p50", "Max", "Total"};
    size_t hidden = 0;
    for (const NvtxSummary& r : ranges) {
      if (r.process != p) continue;
      if (!view.all && table.rows.size() == kTopOperations) {
        ++hidden;
        continue;
      }
      std::string name = SanitizeForTerminal(r.name, 256);
      if (name.empty()) name = "(no name)";
      if (!r.domain.empty())
        name = SanitizeForTerminal(r.domain, 64) + ": " + name;
      if (r.open) name += " (open at the end)";
      std::vector<std::string> row = {name, FormatCount(r.count)};
      for (Ns t : {r.average, r.p50, r.max, r.total})
        row.push_back(r.mark ? "mark" : FormatDuration(t));
      table.rows.push_back(std::move(row));
    }
    page->Heading("NVTX ranges of " + view.Program(p));
    page->Add(table, 2);
    if (hidden > 0)
      page->Paragraph(
          fmt::format("and {} more; --all lists them", FormatCount(hidden)), 2);
  }
}

Json ToJson(const View& view, const NvtxSummary& r) {
  return {{"domain", r.domain},
          {"name", r.name},
          {"kind", r.mark ? "mark" : "range"},
          {"open", r.open},
          {"process", view.Identity(r.process)},
          {"count", r.count},
          {"total_ns", r.total.value},
          {"avg_ns", r.average.value},
          {"p50_ns", r.p50.value},
          {"p95_ns", r.p95.value},
          {"p99_ns", r.p99.value},
          {"max_ns", r.max.value}};
}

// ---- coverage -------------------------------------------------------------

std::string Words(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& w : words) {
    if (!text.empty()) text += ' ';
    text += SanitizeForTerminal(w);
  }
  return text;
}

void PrintCoverage(const View& view, const std::vector<ProcessCoverage>& all,
                   Page* page) {
  constexpr int kLabel = 12;
  for (const ProcessCoverage& c : all) {
    page->Heading(view.Program(c.process));
    page->Paragraph(SanitizeForTerminal(merge::CoverageSentence(
                        c, view.trace.processes()[c.process])) +
                        ".",
                    2, 2);
    const auto fact = [&](std::string_view label, std::string_view text) {
      page->Labeled(label, SanitizeForTerminal(text, 1 << 20), 2, kLabel, 2);
    };
    if (c.recorded)
      fact("Calls",
           FormatCounted(c.calls, "recorded", "recorded") +
               (c.skipped_calls > 0
                    ? fmt::format(", {} {}", FormatCount(c.skipped_calls),
                                  merge::LeftOut(c.choice))
                    : std::string()));
    for (size_t i = 0; i < c.libraries.size(); ++i) {
      const merge::CoverageLibrary& l = c.libraries[i];
      fact(i == 0 ? "Libraries" : "",
           fmt::format("{}{}{}: {}", l.name,
                       l.version.empty() ? "" : ", version " + l.version,
                       l.runtime ? ", shared runtime" : "", l.path));
    }
    if (!c.asked.empty()) {
      std::vector<std::string> lines;
      for (const std::string& group : c.asked) {
        bool any = false;
        for (const merge::CoverageEntryPoints& e : c.entry_points) {
          if (e.group != group) continue;
          any = true;
          lines.push_back(fmt::format(
              "{}: {} of {}", group,
              FormatCounted(e.functions, "function", "functions"), e.path));
        }
        if (!any)
          lines.push_back(group + ": asked for, and nothing refers to it");
      }
      for (size_t i = 0; i < lines.size(); ++i)
        fact(i == 0 ? "By name" : "", lines[i]);
    }
    for (size_t i = 0; i < c.static_runtimes.size(); ++i)
      fact(i == 0 ? "Static" : "",
           "runtime (or a loader of its own) in " + c.static_runtimes[i]);
    if (!c.ways.empty())
      fact("Hooked", FormatCounted(c.hooked(), "function", "functions"));
    for (const merge::CoverageWay& w : c.ways) {
      // The way is the label, or begins the list.
      const std::string names =
          w.entries.empty() ? "names not recorded" : Words(w.entries);
      if (w.way == "the PLT" || w.way == "dlsym")
        fact(w.way == "dlsym" ? "dlsym" : "PLT", names);
      else
        fact("Pointers", w.way + ": " + names);
    }
    for (size_t i = 0; i < c.escapes.size(); ++i) {
      const merge::CoverageEscape& e = c.escapes[i];
      fact(i == 0 ? "Escaped" : "",
           fmt::format("{}: {}, asked for {}", e.name,
                       e.by_design ? "left alone by design" : e.why,
                       e.count == 1 ? std::string("once")
                                    : FormatCount(e.count) + " times"));
    }
    if (c.escapes.empty() && !c.ways.empty()) fact("Escaped", "none");
    for (size_t i = 0; i < c.deep_bound.size(); ++i)
      fact(i == 0 ? "Deep-bound" : "",
           c.deep_bound[i].file +
               (c.deep_bound[i].kept
                    ? ": RTLD_DEEPBIND kept, its own calls are not seen"
                    : ": RTLD_DEEPBIND cleared, its calls are seen"));
  }
}

Json ToJson(const View& view, const ProcessCoverage& c) {
  Json libraries = Json::array(), ways = Json::array(), escaped = Json::array(),
       deep = Json::array(), entries = Json::array();
  for (const merge::CoverageLibrary& l : c.libraries)
    libraries.push_back({{"path", l.path},
                         {"version", l.version},
                         {"shared_runtime", l.runtime}});
  for (const merge::CoverageWay& w : c.ways)
    ways.push_back(
        {{"way", w.way}, {"count", w.count}, {"functions", w.entries}});
  for (const merge::CoverageEscape& e : c.escapes)
    escaped.push_back({{"name", e.name},
                       {"why", e.why},
                       {"count", e.count},
                       {"by_design", e.by_design}});
  for (const merge::CoverageDeepBind& d : c.deep_bound)
    deep.push_back({{"file", d.file}, {"kept", d.kept}});
  for (const merge::CoverageEntryPoints& e : c.entry_points)
    entries.push_back({{"group", e.group},
                       {"path", e.path},
                       {"functions", e.functions}});
  return {{"process", view.Identity(c.process)},
          {"recorded", c.recorded},
          {"summary", merge::CoverageSentence(
                          c, view.trace.processes()[c.process])},
          {"not_recorded", c.not_recorded},
          {"calls", c.calls},
          {"skipped_calls", c.skipped_calls},
          {"libraries", libraries},
          {"static_runtimes", c.static_runtimes},
          {"ways", ways},
          {"hooked", c.hooked()},
          {"escaped", escaped},
          {"deep_bound", deep},
          {"apis", c.choice},
          {"asked", c.asked},
          {"entry_points", entries}};
}

// `process` is that pid, or descends from it.
bool Wanted(const merge::TraceReader& trace, ProcessIndex process,
            std::optional<uint32_t> pid) {
  if (!pid) return true;
  for (int depth = 0; depth < 64 && process < trace.processes().size();
       ++depth) {
    if (trace.processes()[process].pid == *pid) return true;
    process = trace.processes()[process].parent;
  }
  return false;
}

}  // namespace

int RunStats(const Args& args, const Io& io) {
  AskedOptions asked;
  bool coverage = false, json = false, all = false;
  CLI::App app(kHelp, "ingero stats");
  app.footer(kExamples);
  asked.AddTo(&app);
  app.add_flag("--coverage", coverage,
               "How each process's calls were seen: libraries,\n"
               "ways, hooked functions, and what escaped");
  app.add_flag("--json", json, "Print everything as JSON, for programs");
  app.add_flag("--all", all, "Show every row of every table");
  if (auto status = Parse(app, args, io)) return *status;
  if (auto status = asked.Check("stats", io)) return *status;
  auto opened = asked.Open("stats", io);
  if (!opened.ok()) {
    PrintError(io, "stats", opened.status().message());
    return kFailed;
  }
  const merge::TraceReader& trace = *opened->trace;
  const View view{trace, opened->window, all, io.columns};

  std::vector<ProcessCoverage> processes = merge::ReadCoverage(trace);
  std::erase_if(processes, [&](const ProcessCoverage& c) {
    return !Wanted(trace, c.process, opened->options.pid);
  });
  std::vector<Operation> operations =
      trace.Operations(opened->window);
  std::erase_if(operations, [&](const Operation& o) {
    return !Wanted(trace, o.process, opened->options.pid);
  });
  std::stable_sort(operations.begin(), operations.end(),
                   [](const Operation& a, const Operation& b) {
                     return a.total + a.first_use_time >
                            b.total + b.first_use_time;
                   });
  std::vector<NvtxSummary> ranges;
  if (!coverage) ranges = merge::SummarizeNvtx(trace, opened->window);
  std::erase_if(ranges, [&](const NvtxSummary& r) {
    return !Wanted(trace, r.process, opened->options.pid);
  });
  const std::vector<std::string> missing = trace.facts().missing;
  if (Status read = trace.AllRead(); !read.ok()) {
    PrintError(io, "stats", read.message());
    return kFailed;
  }

  if (json) {
    Json out = {{"schema", {{"name", "ingero.stats"}, {"version", 1}}},
                {"store", asked.db()},
                {"window",
                 {{"begin_ns", opened->window.begin.value},
                  {"end_ns", opened->window.end.value}}},
                {"missing", missing}};
    if (coverage) {
      out["coverage"] = Json::array();
      for (const ProcessCoverage& c : processes)
        out["coverage"].push_back(ToJson(view, c));
    } else {
      out["operations"] = Json::array();
      for (const Operation& o : operations)
        out["operations"].push_back(
            OperationJson(o, view.trace.functions()[o.func],
                          view.Identity(o.process)));
      out["nvtx"] = Json::array();
      for (const NvtxSummary& r : ranges)
        out["nvtx"].push_back(ToJson(view, r));
    }
    Write(io.out, out.dump(2, ' ', false, Json::error_handler_t::replace) +
                      "\n");
  } else {
    Page page(io.columns, false);
    if (coverage) {
      PrintCoverage(view, processes, &page);
      if (processes.empty())
        page.Paragraph("No process with CUDA was seen.");
    } else {
      PrintOperations(view, operations, &page);
      PrintNvtx(view, ranges, &page);
      if (operations.empty())
        page.Paragraph("No CUDA call in this time.");
    }
    // Zero events never pass without a reason.
    if (coverage ? processes.empty() : operations.empty())
      for (const std::string& m : missing)
        page.Paragraph(SanitizeForTerminal(m) + ".", 2, 2);
    Write(io.out, page.text());
  }
  return FinishOutput(io, "stats") ? kDone : kFailed;
}

}  // namespace ingero::cli
