// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "base/text.h"
#include "base/trace_dir.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/render/layout.h"
#include "cli/render/words.h"
#include "merge/merge.h"

namespace ingero::cli {
namespace {

constexpr const char* kHelp =
    "Join the streams of a recording (CUDA calls of each process, and the\n"
    "scheduler where ingero-kprobe ran) into a store for 'ingero explain'.\n"
    "Running it again adds what is new; with nothing new it changes nothing.\n";

constexpr const char* kExamples =
    "Examples:\n"
    "  ingero merge                         the newest recording\n"
    "  ingero merge --dir /data/traces      streams that lie elsewhere\n"
    "  ingero merge --recording ID          an older one ('ingero list')\n"
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
      "{} and {}: {}, {}, {}, {}",
      FormatCounted(s.cuda_streams, "CUDA stream", "CUDA streams"),
      FormatCounted(s.kernel_streams, "kernel stream", "kernel streams"),
      FormatCounted(s.calls, "call", "calls"),
      FormatCounted(s.switches, "context switch", "context switches"),
      FormatCounted(s.tasks, "task event", "task events"),
      FormatCounted(s.samples, "system sample", "system samples"));
}

void PrintSummary(const merge::MergeOptions& options,
                  const merge::MergeSummary& s, size_t unmerged,
                  const Io& io) {
  Page page(io.columns, io.err_is_terminal && !io.no_color);
  page.Labeled(s.added_events > 0 ? "merged" : "nothing new", Counted(s), 0,
               12);
  page.Labeled("store",
               fmt::format("{} ({})", SanitizeForTerminal(s.store_path),
                           FormatBytes(s.store_bytes)),
               0, 12);
  for (const std::string& note : s.notes)
    page.Labeled(Toned(Tone::kYellow, "note"), SanitizeForTerminal(note), 0,
                 12);
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
                                 SanitizeForTerminal(s.store_path)),
               0, 12);
  Write(io.err, page.text());
}

}  // namespace

int RunMerge(const Args& args, const Io& io) {
  merge::MergeOptions options;
  bool strict = false;
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
      !why.empty()) {
    PrintError(io, "merge", why);
    return kFailed;
  }
  size_t unmerged = 0;  // of the earlier ones
  for (size_t i = 0; i + 1 < recordings.size(); ++i)
    unmerged += !recordings[i].merged;
  Progress progress(io);
  options.progress = [&](const std::string& stage, double fraction,
                         uint64_t events) {
    progress.Update(stage, fraction, events);
  };
  Result<merge::MergeSummary> summary = merge::Merge(options, recordings);
  progress.Finish();
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
