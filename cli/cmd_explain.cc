// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "analysis/report.h"
#include "base/shell_word.h"
#include "base/text.h"
#include "base/trace_dir.h"
#include "cli/asked.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/render/report.h"
#include "merge/trace_reader.h"

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
    "  ingero explain --chains                 slow calls, and what they waited "
    "for\n"
    "  ingero explain --db run1.store --json   for scripts\n"
    "  ingero explain --format markdown        to paste into an issue\n"
    "\n"
    "Times: durations 60s, 5m, 1h30m, 250ms; days as 2026-11-29T22:01:30.";

struct Options {
  AskedOptions asked;
  std::string color = "auto", format = "text";
  bool per_process = false, chains = false, json = false, all = false,
       strict = false;
  std::vector<uint32_t> pids;
};

// A store that had to be named here has to be named in the commands that show
// the evidence, too.
void NameStoreInQueries(const std::string& db, analysis::Report* report) {
  for (analysis::Finding& finding : report->findings)
    for (analysis::Evidence& evidence : finding.evidence)
      if ((evidence.query.starts_with("ingero explain") ||
           evidence.query.starts_with("ingero query")) &&
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
  o.asked.AddTo(&app);
  app.add_flag("--per-process", o.per_process,
               "Show each process instead of the findings");
  app.add_flag("--chains", o.chains,
               "Show operations whose slowest calls are far slower\n"
               "than most, and what their threads did meanwhile,\n"
               "instead of the findings")
      ->excludes("--per-process");
  app.add_option("--format", o.format,
                 "text; json: everything, for programs\n"
                 "(docs/explain.schema.json); markdown: to paste\n"
                 "into an issue or a pull request")
      ->type_name("FORMAT");
  app.add_flag("--json", o.json, "As --format json")->excludes("--format");
  app.add_flag("--all", o.all, "Show every row of every table");
  app.add_flag("--strict", o.strict,
               "Exit with 3 where data were lost in this time or\n"
               "a side was not recorded; notices do not count");
  app.add_option("--color", o.color,
                 "auto, always or never; auto: on a terminal,\n"
                 "unless NO_COLOR is set")
      ->type_name("WHEN");
  // `ingero run` asks about its own program where others were recorded, too.
  app.add_option("--pids", o.pids)->delimiter(',')->group("");
  if (auto status = Parse(app, args, io)) return *status;

  // Everything that can be wrong without looking at a store.
  if (o.color != "auto" && o.color != "always" && o.color != "never")
    return UsageError(io, "explain",
                      fmt::format("--color: '{}' is not one of auto, always "
                                  "and never",
                                  o.color));
  if (o.json) o.format = "json";
  if (o.format != "text" && o.format != "json" && o.format != "markdown")
    return UsageError(io, "explain",
                      fmt::format("--format: '{}' is not one of text, json and "
                                  "markdown",
                                  o.format));
  if (o.format == "markdown" && o.per_process)
    return UsageError(io, "explain",
                      "--per-process has no markdown; use --format text or "
                      "json");
  if (auto status = o.asked.Check("explain", io)) return *status;
  auto opened = o.asked.Open("explain", io);
  if (!opened.ok()) {
    PrintError(io, "explain", opened.status().message());
    return kFailed;
  }

  opened->options.pids = o.pids;
  opened->options.chains = o.chains || o.format == "json";
  analysis::Report report =
      analysis::BuildReport(*opened->trace, opened->options);
  if (Status read = opened->trace->AllRead(); !read.ok()) {
    PrintError(io, "explain", read.message());
    return kFailed;
  }
  if (o.asked.names_store()) NameStoreInQueries(o.asked.db(), &report);
  if (o.format == "json") {
    Write(io.out, RenderJson(report));
  } else if (o.format == "markdown") {
    Write(io.out, RenderMarkdown(report, {o.all, opened->options.pid}));
  } else {
    TextOptions text;
    text.columns = io.columns;
    text.color = o.color == "always" ||
                 (o.color == "auto" && io.out_is_terminal && !io.no_color);
    text.per_process = o.per_process;
    text.chains = o.chains;
    text.all = o.all;
    text.pid = opened->options.pid;
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
