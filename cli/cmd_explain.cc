// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <charconv>

#include "analysis/report.h"
#include "base/text.h"
#include "base/trace_dir.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/render/report.h"
#include "cli/time_window.h"
#include "merge/store_trace.h"

namespace ingero::cli {
namespace {

constexpr const char* kHelp =
    "Say why the GPU was starved of work: the cause, the time it cost, and\n"
    "what to change. Reads the newest store that 'ingero merge' made, or the\n"
    "one given with --db.\n";

constexpr const char* kExamples =
    "Examples:\n"
    "  ingero explain\n"
    "  ingero explain --since 60s              the last minute of the "
    "recording\n"
    "  ingero explain --from 12.5s --to 30s    from the recording's start\n"
    "  ingero explain --from 22:01 --to 22:05  by the clock on the wall\n"
    "  ingero explain --per-process            who ran, waited and allocated\n"
    "  ingero explain --db run1.store --json   for scripts\n"
    "\n"
    "Times: durations 60s, 5m, 1h30m, 250ms; days as 2026-11-29T22:01:30.";

struct Options {
  std::string db;
  WindowOptions window;
  std::string pid;
  std::string color = "auto";
  bool per_process = false, json = false, all = false, strict = false;
};

// Of the pid given, which is the host's or the one inside a container: the
// host's. An error lists the programs that there are.
Result<uint32_t> ResolvePid(uint32_t pid, const analysis::TraceSource& trace) {
  for (const analysis::Process& p : trace.processes())
    if (p.pid == pid) return pid;
  for (const analysis::Process& p : trace.processes())
    if (p.ns_pid == pid) return p.pid;
  std::string known;
  size_t more = 0, shown = 0;
  for (const analysis::Process& p : trace.processes()) {
    if (!p.has_cuda) continue;
    if (shown == 5) {
      ++more;
      continue;
    }
    known += fmt::format("{}{} ({})", shown++ > 0 ? ", " : "", p.pid, p.name);
  }
  if (more > 0) known += fmt::format(" and {} more", more);
  if (known.empty()) known = "none";
  return Status::Error(
      fmt::format("process {} is not in this store; those with CUDA calls: {}",
                  pid, known));
}

// Where to look, and at which part of it.
Result<analysis::ReportOptions> Resolve(const WindowSpec& window,
                                        std::optional<uint32_t> pid,
                                        const analysis::ReportSource& source) {
  analysis::ReportOptions options;
  if (pid) {
    INGERO_ASSIGN_OR_RETURN(options.pid, ResolvePid(*pid, source.trace()));
  }
  if (!window.empty()) {
    const RecordingClock clock{source.trace().span(),
                               source.facts().wall_clock_at_span_begin_ns};
    INGERO_ASSIGN_OR_RETURN(options.window, ResolveWindow(window, clock));
  }
  return options;
}

// `text` as one word of a shell.
std::string ShellWord(const std::string& text) {
  static constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-+:@%,";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos)
    return text;
  std::string word = "'";
  for (char c : text) word += c == '\'' ? "'\\''" : std::string(1, c);
  return word + "'";
}

// A store that had to be named here has to be named in the commands that show
// the evidence, too.
void NameStoreInQueries(const std::string& db, analysis::Report* report) {
  for (analysis::Finding& finding : report->findings)
    for (analysis::Evidence& evidence : finding.evidence)
      if (evidence.query.starts_with("ingero explain") &&
          evidence.query.find("--db") == std::string::npos)
        evidence.query += " --db " + ShellWord(db);
}

// What --strict objects to; "" = nothing.
std::string Incomplete(const analysis::Report& report) {
  if (!report.complete) return "data were lost in this time";
  if (!report.facts.missing.empty()) return report.facts.missing[0];
  return "";
}

}  // namespace

int RunExplain(const Args& args, const Io& io) {
  Options o;
  CLI::App app(kHelp, "ingero explain");
  app.footer(kExamples);
  app.add_option("--db", o.db, "Store to read. Default: the newest")
      ->type_name("PATH");
  app.add_option("--since", o.window.since,
                 "Only the last part, counted back from the\n"
                 "last event")
      ->type_name("DURATION");
  app.add_option("--from", o.window.from, "Begin of the time to look at")
      ->type_name("TIME");
  app.add_option("--to", o.window.to, "End of the time to look at")
      ->type_name("TIME");
  app.add_option("--pid", o.pid, "Only this process and its workers")
      ->type_name("PID");
  app.add_flag("--per-process", o.per_process,
               "Show each process instead of the findings");
  app.add_flag("--json", o.json,
               "Print everything as JSON, for programs\n"
               "(docs/explain.schema.json)");
  app.add_flag("--all", o.all, "Show every row of every table");
  app.add_flag("--strict", o.strict,
               "Exit with 3 where the data are incomplete");
  app.add_option("--color", o.color,
                 "auto, always or never; auto: on a terminal,\n"
                 "unless NO_COLOR is set")
      ->type_name("WHEN");
  if (auto status = Parse(app, args, io)) return *status;

  // Everything that can be wrong without looking at a store.
  if (o.color != "auto" && o.color != "always" && o.color != "never")
    return UsageError(io, "explain",
                      fmt::format("--color: '{}' is not one of auto, always "
                                  "and never",
                                  o.color));
  std::optional<uint32_t> pid;
  if (!o.pid.empty()) {
    uint32_t value = 0;
    const char* end = o.pid.data() + o.pid.size();
    auto [at, error] = std::from_chars(o.pid.data(), end, value);
    if (error != std::errc() || at != end || value == 0)
      return UsageError(io, "explain",
                        fmt::format("--pid: '{}' is not a process id; give a "
                                    "number, for example --pid 4242",
                                    o.pid));
    pid = value;
  }
  Result<WindowSpec> window = ParseWindow(o.window);
  if (!window.ok()) return UsageError(io, "explain", window.status().message());

  const auto fail = [&](const Status& status) {
    PrintError(io, "explain", status.message());
    return kFailed;
  };
  const bool named = !o.db.empty();
  if (!named) {
    Result<merge::FoundStore> newest = merge::FindNewestStore(DefaultTraceDirs());
    if (!newest.ok()) return fail(newest.status());
    o.db = newest->path;
    if (!newest->note.empty())
      PrintError(io, "explain", "note: " + newest->note);
  }
  auto source = merge::OpenStore(o.db);
  if (!source.ok()) return fail(source.status());
  auto options = Resolve(*window, pid, **source);
  if (!options.ok()) return fail(options.status());

  analysis::Report report = analysis::BuildReport(**source, *options);
  if (named) NameStoreInQueries(o.db, &report);
  if (o.json) {
    Write(io.out, RenderJson(report));
  } else {
    TextOptions text;
    text.columns = io.columns;
    text.color = o.color == "always" ||
                 (o.color == "auto" && io.out_is_terminal && !io.no_color);
    text.per_process = o.per_process;
    text.all = o.all;
    text.pid = options->pid;
    Write(io.out, RenderText(report, text));
  }
  if (!FinishOutput(io, "explain")) return kFailed;
  if (std::string why = Incomplete(report); o.strict && !why.empty()) {
    PrintError(io, "explain", "the data are incomplete (--strict): " + why);
    return kIncomplete;
  }
  return kDone;
}

}  // namespace ingero::cli
