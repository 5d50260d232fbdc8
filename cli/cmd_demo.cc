// SPDX-License-Identifier: Apache-2.0
// Records the simulator of tests/truth with one planted cause, as `ingero run`
// records any program, and prints what it measured of itself beside what was
// found.
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/shell_word.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/program.h"
#include "cli/recording.h"
#include "cli/render/layout.h"
#include "cli/render/words.h"
#include "merge/trace_reader.h"

namespace ingero::cli {
namespace {

using nlohmann::json;

constexpr const char* kHelp =
    "Show what ingero does where there is no GPU: runs a training program on\n"
    "simulated CUDA for a few seconds, with one cause of starvation planted,\n"
    "records it as 'ingero run' does, explains it, and prints what was "
    "planted\n"
    "beside what was found. The scheduler is recorded as root or through "
    "sudo.\n";

constexpr const char* kExamples =
    "Examples:\n"
    "  ingero demo\n"
    "  ingero demo cpu-other-process\n"
    "  ingero demo --list\n"
    "  ingero demo --cuda-only healthy                         without root\n"
    "  ingero demo --keep lock-held          then: ingero explain --db ...\n"
    "\n"
    "The recording goes to a new folder in $TMPDIR, else /tmp, and is removed "
    "at\n"
    "the end, but for --keep. The scenarios are told apart on a machine that "
    "is\n"
    "quiet.";

// A preset of the simulator, named after the cause it plants.
struct Scenario {
  const char* name;
  const char* planted;
};
constexpr Scenario kScenarios[] = {
    {"loader-cpu-bound", "one loader process, slower than the GPU"},
    {"in-process-loading", "a program that prepares its batches on one thread"},
    {"cpu-oversubscribed", "loaders and trainer that fight for one CPU"},
    {"cpu-other-process", "processes of somebody else on the trainer's CPU"},
    {"pageable-copy", "copies to the GPU from memory that is not pinned"},
    {"upstream-wait", "a loader that waits for a slow source of its data"},
    {"lock-held", "a thread that holds a lock which the trainer needs"},
    {"healthy", "no cause: a GPU that is fed, for comparison"},
};

// Where the planted cause took less of what was lost, something else did too.
constexpr double kPlantedShare = 0.4;
constexpr double kBusyOthers = 0.1;  // CPUs

struct Options {
  std::string scenario = kScenarios[0].name, dir;
  bool list = false, cuda_only = false, keep = false;
};

Result<json> ReadTruth(const std::string& path) {
  std::ifstream file(path);
  json truth = json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!truth.is_object() || !truth.contains("lost_ns"))
    return Status::Error(path + ": is not what the simulator writes");
  return truth;
}

// The first that matters, as whoever reads the report takes it.
const analysis::Finding* FirstFinding(const analysis::Report& report,
                                      uint32_t pid) {
  for (const analysis::Finding& f : report.findings)
    if ((f.pid == pid || f.pid == 0) &&
        (f.severity == analysis::Severity::kHigh ||
         f.severity == analysis::Severity::kMedium))
      return &f;
  return nullptr;
}

// Of what was planted, how much was found, and what else was.
std::string HowMuch(const analysis::Report& report,
                    const analysis::Finding& found, Ns planted) {
  std::string text = fmt::format(
      "{} of the {} planted were found ({})", FormatDuration(found.lost),
      FormatDuration(planted), FormatPercent(found.lost, planted));
  std::string others;
  for (const analysis::Finding& f : report.findings)
    if (&f != &found && f.lost > Ns(0) &&
        (f.pid == found.pid || f.pid == 0 || found.pid == 0))
      others += fmt::format("{}{} {}", others.empty() ? "" : ", ", f.cause,
                            FormatDuration(f.lost));
  return text + (others.empty() ? "" : "; beside it " + others);
}

bool Says(const json& truth, const std::string& cause) {
  if (truth["cause"] == cause) return true;
  const std::string accepted = " " + truth["accepted"].get<std::string>() + " ";
  return !cause.empty() &&
         accepted.find(" " + cause + " ") != std::string::npos;
}

// Planted beside found. REQUIRES: `truth` is what the simulator wrote.
std::string Compare(const Scenario& scenario, const json& truth,
                    const analysis::Report& report, const Io& io) {
  const auto ns = [&](const char* name) {
    return Ns(truth[name].get<int64_t>());
  };
  const Ns wall = ns("end_ns") - ns("begin_ns"), lost = ns("lost_ns");
  const bool control = truth["cause"] == "";
  Page page(io.columns, io.out_is_terminal && !io.no_color);
  page.Heading("Planted and found");

  std::string planted = scenario.planted;
  planted += fmt::format(
      ". By the simulator's own clocks the GPU was without "
      "work for {} of {}",
      FormatDuration(lost), FormatDuration(wall));
  if (!control)
    planted +=
        fmt::format(", {} of it for this", FormatDuration(ns("cause_lost_ns")));
  page.Labeled("planted", planted + ".", 2, 10);

  const analysis::Finding* first =
      FirstFinding(report, truth["pid"].get<uint32_t>());
  std::string found = "no cause that is worth a change";
  if (first != nullptr) {
    found =
        fmt::format("{}, {} lost", first->cause, FormatDuration(first->lost));
    if (!first->culprits.empty())
      found += ": " + SanitizeForTerminal(first->culprits[0].name);
  }
  page.Labeled("found", found + ".", 2, 10);

  const std::string cause = first == nullptr ? "" : first->cause;
  const double others =
      static_cast<double>(truth["other_cpu_ns"].get<int64_t>()) /
      static_cast<double>(std::max<int64_t>(wall.value, 1));
  std::string verdict;
  if (Says(truth, cause)) {
    verdict = control ? "the same: none." : "the same cause: ";
    if (!control) verdict += HowMuch(report, *first, ns("cause_lost_ns")) + ".";
  } else {
    verdict = "not the same.";
    if (!report.facts.missing.empty())
      verdict +=
          " Not everything was recorded: " + report.facts.missing[0] + ".";
    else if (others > kBusyOthers)
      verdict += fmt::format(
          " Other processes kept {:.1f} CPUs busy meanwhile; "
          "try it on a quiet machine.",
          others);
    else if (!control && Ratio(ns("cause_lost_ns"), lost) < kPlantedShare)
      verdict += " This machine's scheduler gave the cause little to take.";
  }
  page.Labeled("so", verdict, 2, 10);
  return page.text();
}

}  // namespace

int RunDemo(const Args& args, const Io& io) {
  Options o;
  CLI::App app(kHelp, "ingero demo");
  app.footer(kExamples);
  app.add_option("SCENARIO", o.scenario,
                 "What to plant, see --list. Default:\n" +
                     std::string(kScenarios[0].name))
      ->type_name("");
  app.add_flag("--list", o.list, "Print the scenarios, one a line");
  app.add_flag("--cuda-only", o.cuda_only,
               "Do not record the scheduler, nor ask sudo");
  app.add_flag("--keep", o.keep, "Keep the recording, and say where it is");
  app.add_option("--dir", o.dir,
                 "Folder to record into, which is kept. Default:\n"
                 "a new one")
      ->type_name("DIR");
  if (auto status = Parse(app, args, io)) return *status;
  if (o.list) {
    for (const Scenario& s : kScenarios)
      Write(io.out, fmt::format("{:<20}{}\n", s.name, s.planted));
    return FinishOutput(io, "demo") ? kDone : kFailed;
  }
  const Scenario* scenario = nullptr;
  std::vector<std::string> names;
  for (const Scenario& s : kScenarios) {
    names.push_back(s.name);
    if (o.scenario == s.name) scenario = &s;
  }
  if (scenario == nullptr) {
    const std::string near = Nearest(o.scenario, names);
    return UsageError(
        io, "demo",
        fmt::format("there is no scenario '{}'; {}", o.scenario,
                    near.empty() ? "'ingero demo --list' lists them"
                                 : "did you mean '" + near + "'?"));
  }
  const DemoProgram program = FindDemoProgram();
  if (program.path.empty()) {
    PrintError(io, "demo",
               "its program is not beside ingero: install it again, whole");
    return kFailed;
  }
  cpu_set_t cpus;
  if (sched_getaffinity(0, sizeof(cpus), &cpus) == 0 && CPU_COUNT(&cpus) < 2) {
    PrintError(io, "demo",
               "who takes CPUs from whom shows on 2 CPUs or more, and this "
               "process may use 1; run it where there are more");
    return kFailed;
  }
  Leftover scratch;
  if (o.dir.empty()) {
    auto dir = NewFolder("ingero-demo");
    if (!dir.ok()) {
      PrintError(io, "demo", dir.status().message());
      return kFailed;
    }
    o.dir = dir->path();
    if (o.keep)
      dir->Keep();
    else
      scratch = std::move(*dir);
  } else {
    o.keep = true;
  }

  RecordingOptions recording;
  recording.command = "demo";
  recording.dir = o.dir;
  recording.quiet = true;
  recording.live_line = true;
  recording.kept = o.keep;
  recording.cuda_only = o.cuda_only;
  const std::string truth_path = o.dir + "/planted.json";
  recording.program = {program.path, "--preset", scenario->name, "--truth",
                       truth_path};
  // A real CUDA that somebody put there must not come first.
  recording.environment = {"LD_LIBRARY_PATH=" + program.libraries};
  PrintError(io, "demo",
             fmt::format("recording a few seconds of simulated training with "
                         "'{}' planted",
                         scenario->name));
  const Recorded recorded = RecordProgram(recording, io);
  if (!recorded.started) return kFailed;
  if (recorded.exit_status > 128) {
    PrintError(
        io, "demo",
        fmt::format("stopped; {}", o.keep ? "what was recorded is in " + o.dir
                                          : "nothing is left behind"));
    return recorded.exit_status;
  }
  if (recorded.exit_status != 0) {
    PrintError(io, "demo",
               fmt::format("the simulated program ended with exit status {}",
                           recorded.exit_status));
    return kFailed;
  }
  if (recorded.store.empty()) return kFailed;

  if (const int status = RunExplain({"--db", recorded.store}, io);
      status != kDone)
    return status;
  auto truth = ReadTruth(truth_path);
  if (!truth.ok()) {
    PrintError(io, "demo", truth.status().message());
    return kFailed;
  }
  auto trace = merge::OpenTrace(recorded.store);
  if (!trace.ok()) {
    PrintError(io, "demo", trace.status().message());
    return kFailed;
  }
  const analysis::Report report = analysis::BuildReport(**trace, {});
  if (Status read = (*trace)->AllRead(); !read.ok()) {
    PrintError(io, "demo", read.message());
    return kFailed;
  }
  Write(io.out, "\n" + Compare(*scenario, *truth, report, io) + "\n");
  Page next(io.columns, io.out_is_terminal && !io.no_color);
  next.Paragraph(o.keep ? "A picture of it:"
                        : "The recording is removed; to look at one:");
  next.Command(
      o.keep ? "ingero report -o demo.html --db " + ShellWord(recorded.store)
             : "ingero demo --keep " + std::string(scenario->name),
      2);
  next.Paragraph("A program of yours:");
  next.Command("ingero run python3 train.py", 2);
  Write(io.out, next.text());
  return FinishOutput(io, "demo") ? kDone : kFailed;
}

}  // namespace ingero::cli
