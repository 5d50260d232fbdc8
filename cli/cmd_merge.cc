// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/shell_word.h"
#include "base/text.h"
#include "base/trace_dir.h"
#include "cli/command.h"
#include "cli/merging.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/render/layout.h"
#include "cli/render/words.h"
#include "cli/stop.h"
#include "merge/merge.h"

namespace ingero::cli {
namespace {

constexpr const char* kHelp =
    "Join the streams of a recording (CUDA calls of each process, and the\n"
    "scheduler where ingero-kprobe ran) into a store for 'ingero explain'.\n"
    "Running it again adds what is new; with nothing new it changes nothing.\n"
    "With --follow it does so until the recording ends: each merge makes a new\n"
    "store file in the place of the old one, which who reads it keeps.\n";

constexpr const char* kExamples =
    "Examples:\n"
    "  ingero merge                         the newest recording\n"
    "  ingero merge --dir /data/traces      streams that lie elsewhere\n"
    "  ingero merge --recording ID          an older one ('ingero list')\n"
    "  ingero merge --follow                while it is recorded\n"
    "  ingero merge -o run1.store           then: ingero explain --db "
    "run1.store";

std::string Quoted(const std::vector<std::string>& dirs) {
  return fmt::format("{}", fmt::join(dirs, ", "));
}

// "" where there is something to merge; else what to do.
std::string NothingToMerge(const merge::MergeOptions& options,
                           const std::vector<merge::Recording>& recordings,
                           const std::vector<std::string>& problems) {
  if (recordings.empty() && !problems.empty())
    return fmt::format("nothing can be merged: {}", fmt::join(problems, "; "));
  if (recordings.empty())
    return fmt::format(
        "nothing to merge in {}; record a program first: "
        "LD_PRELOAD=libingero_cuda.so python3 train.py. One that makes no CUDA "
        "call, is setuid or static, or is started with LD_PRELOAD cleared "
        "(sudo, env -i) leaves nothing",
        Quoted(options.dirs));
  if (options.recording.empty()) return "";
  std::string known;
  for (const merge::Recording& r : recordings) {
    if (r.id == options.recording) return "";
    known = r.id;
  }
  return fmt::format(
      "there is no recording '{}' in {}; the newest is {}, 'ingero list' has "
      "all",
      options.recording, Quoted(options.dirs), known);
}

std::string Counted(const merge::MergeSummary& s) {
  return fmt::format(
      "{} and {}: {}, {}, {}, {}{}",
      FormatCounted(s.cuda_streams, "CUDA stream", "CUDA streams"),
      FormatCounted(s.kernel_streams, "kernel stream", "kernel streams"),
      FormatCounted(s.calls, "call", "calls"),
      FormatCounted(s.switches, "context switch", "context switches"),
      FormatCounted(s.tasks, "task event", "task events"),
      FormatCounted(s.samples, "system sample", "system samples"),
      s.code_samples == 0 ? ""
                          : ", " + FormatCounted(s.code_samples,
                                                 "sample of code",
                                                 "samples of code"));
}

void PrintSummary(const merge::MergeOptions& options,
                  const merge::MergeSummary& s, size_t unmerged,
                  const Io& io) {
  Page page(io.columns, io.err_is_terminal && !io.no_color);
  page.Labeled(s.written ? "merged" : "nothing new", Counted(s), 0, 12);
  page.Labeled("store",
               fmt::format("{} ({})", SanitizeForTerminal(s.store_path),
                           FormatBytes(s.store_bytes)),
               0, 12, 0, /*cut=*/false);
  for (const std::string& note : s.notes)
    page.Labeled(Toned(Tone::kYellow, "note"), SanitizeForTerminal(note), 0,
                 12, 0, /*cut=*/false);
  if (unmerged > 0)
    page.Labeled("also",
                 FormatCounted(unmerged, "earlier recording is",
                               "earlier recordings are") +
                     " not merged; 'ingero list' has them",
                 0, 12);
  page.Labeled("next",
               options.output.empty() && options.recording.empty() &&
                       options.dirs == DefaultTraceDirs()
                   ? "ingero explain"
                   : fmt::format("ingero explain --db {}",
                                 SanitizeForTerminal(ShellWord(s.store_path))),
               0, 12, 0, /*cut=*/false);
  Write(io.err, page.text());
}

}  // namespace

Result<merge::MergeSummary> MergeWithProgress(
    merge::MergeOptions options, const std::vector<merge::Recording>& recordings,
    const Io& io) {
  Progress progress(io);
  options.progress = [&](const std::string& stage, double fraction,
                         uint64_t events) {
    progress.Update(stage, fraction, events);
  };
  return merge::Merge(options, recordings);
}

namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point t) {
  return std::chrono::duration<double>(Clock::now() - t).count();
}

// A merge reads all of the recording, so the longer one took the longer the
// next one waits: it has at most a fifth of the time, at a low priority.
constexpr double kLeastWaitSeconds = 1;
constexpr double kWaitPerMergeSecond = 4;
constexpr int kFollowNiceness = 10;

std::string TimeOfDay() {
  const time_t now = time(nullptr);
  tm local{};
  localtime_r(&now, &local);
  return fmt::format("{:02}:{:02}:{:02}", local.tm_hour, local.tm_min,
                     local.tm_sec);
}

// Merges again and again until no writer of the recording is left.
Result<merge::MergeSummary> Follow(merge::MergeOptions options, const Io& io) {
  // What is recorded meanwhile has the CPUs first.
  if (setpriority(PRIO_PROCESS, 0, kFollowNiceness) != 0) {
    // Then at its usual one.
  }
  options.wait = true;
  bool waiting = false;
  while (true) {
    const Clock::time_point begin = Clock::now();
    std::vector<std::string> problems;
    const std::vector<merge::Recording> recordings =
        merge::ListRecordings(options.dirs, &problems);
    if (recordings.empty()) {
      if (!problems.empty())
        return Status::Error(NothingToMerge(options, recordings, problems));
      if (!std::exchange(waiting, true))
        Write(io.err, fmt::format("{}  waiting for a recording in {}\n",
                                  TimeOfDay(),
                                  SanitizeForTerminal(Quoted(options.dirs))));
      std::this_thread::sleep_for(std::chrono::duration<double>(
          kLeastWaitSeconds));
      continue;
    }
    if (options.recording.empty()) options.recording = recordings.back().id;
    const auto followed = std::find_if(
        recordings.begin(), recordings.end(),
        [&](const merge::Recording& r) { return r.id == options.recording; });
    const bool live =
        followed != recordings.end() &&
        std::any_of(followed->streams.begin(), followed->streams.end(),
                    [](const merge::StreamInfo& s) { return s.live; });
    Result<merge::MergeSummary> summary =
        MergeWithProgress(options, recordings, io);
    // What was not live when it was listed is in this store to its end.
    if (!summary.ok() || !live) return summary;
    const double took = SecondsSince(begin);
    const double wait =
        std::max(kLeastWaitSeconds, kWaitPerMergeSecond * took);
    const uint64_t events = summary->calls + summary->switches +
                            summary->tasks + summary->samples;
    Write(io.err,
          fmt::format("{}  {} new, {} in all; holds what was recorded until "
                      "{:.1f} s ago; next merge in {:.0f} s\n",
                      TimeOfDay(),
                      FormatCounted(summary->added_events, "event", "events"),
                      FormatCount(events), took, wait));
    std::fflush(io.err);
    std::this_thread::sleep_for(std::chrono::duration<double>(wait));
  }
}

}  // namespace

int RunMerge(const Args& args, const Io& io) {
  merge::MergeOptions options;
  bool strict = false, follow = false;
  CLI::App app(kHelp, "ingero merge");
  app.footer(kExamples);
  app.add_option("--dir", options.dirs,
                 "Folder with streams; may be given more than once.\n"
                 "Default: where the recorders write ($INGERO_DIR)")
      ->type_name("DIR")
      ->allow_extra_args(false);
  app.add_option("-o,--output", options.output,
                 "Store to write. Default: beside the streams")
      ->type_name("PATH");
  app.add_option("--recording", options.recording,
                 "Which recording. Default: the newest")
      ->type_name("ID");
  app.add_flag("--follow", follow,
               "Merge again and again until all programs and\n"
               "ingero-kprobe have ended, or Ctrl-C; at most a\n"
               "fifth of the time is spent on it");
  app.add_flag("--strict", strict,
               "Exit with 3 where data were lost or a side was not\n"
               "recorded; notices do not count");
  if (auto status = Parse(app, args, io)) return *status;

  if (auto status = RequireFolders(options.dirs, "merge", io)) return *status;
  if (options.dirs.empty()) options.dirs = DefaultTraceDirs();
  std::vector<std::string> problems;
  const std::vector<merge::Recording> recordings =
      merge::ListRecordings(options.dirs, &problems);
  if (std::string why = NothingToMerge(options, recordings, problems);
      !why.empty() && !(follow && recordings.empty() && problems.empty())) {
    PrintError(io, "merge", why);
    return kFailed;
  }
  size_t unmerged = 0;  // of the earlier ones
  for (size_t i = 0; i + 1 < recordings.size(); ++i)
    unmerged += !recordings[i].merged;
  SayWhenStopped(
      "ingero merge: stopped; the store is as the last merge left it");
  const Result<merge::MergeSummary> summary =
      follow ? Follow(options, io)
             : MergeWithProgress(options, recordings, io);
  if (!summary.ok()) {
    PrintError(io, "merge", summary.status().message());
    return kFailed;
  }
  PrintSummary(options, *summary, options.recording.empty() ? unmerged : 0, io);
  if (strict && !summary->incomplete.empty()) {
    PrintError(io, "merge",
               "the data are incomplete (--strict): " + summary->incomplete);
    return kIncomplete;
  }
  return kDone;
}

}  // namespace ingero::cli
