// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/shell_word.h"
#include "base/text.h"
#include "base/trace_dir.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/render/layout.h"
#include "cli/render/words.h"
#include "merge/merge.h"

namespace ingero::cli {
namespace {

constexpr const char* kHelp =
    "List the recordings, oldest first: streams that overlap in time on one\n"
    "boot of the machine are one recording.\n";

constexpr const char* kExamples =
    "Examples:\n"
    "  ingero list\n"
    "  ingero list --dir /data/traces";

// Bytes of the files in a store's folder.
uint64_t StoreBytes(const std::string& path) {
  uint64_t bytes = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator it(path, error), end;
       !error && it != end; it.increment(error)) {
    const uint64_t size = it->file_size(error);
    if (!error) bytes += size;
  }
  return bytes;
}

// "python3/2254, python3/2301".
std::string Programs(const merge::Recording& recording) {
  std::set<std::pair<uint32_t, std::string>> programs;
  for (const merge::StreamInfo& s : recording.streams)
    if (s.cuda() && s.problem.empty()) programs.emplace(s.pid, s.comm);
  std::vector<std::string> names;
  for (const auto& [pid, comm] : programs)
    names.push_back(
        fmt::format("{}/{}", Ellipsize(SanitizeForTerminal(comm), 24), pid));
  if (names.empty()) return "none with CUDA calls";
  return fmt::format("{}", fmt::join(names, ", "));
}

// "" = it is not merged. `alone`: what each folder has for itself, where it may
// have another id.
std::string StoreOf(const merge::Recording& recording,
                    const std::vector<merge::Recording>& alone) {
  if (recording.merged) return recording.store_path;
  for (const merge::Recording& r : alone)
    for (const merge::StreamInfo& s : r.streams)
      if (r.merged && s.problem.empty() &&
          std::any_of(recording.streams.begin(), recording.streams.end(),
                      [&](const merge::StreamInfo& own) {
                        return own.problem.empty() &&
                               own.stream_id == s.stream_id;
                      }))
        return r.store_path;
  return "";
}

// `named`: that the user named the folders.
void Show(const merge::Recording& recording,
          const std::vector<merge::Recording>& alone,
          const std::vector<std::string>& dirs, bool named, Page* page) {
  uint64_t bytes = 0, cuda = 0, kernel = 0, unreadable = 0;
  bool live = false;
  int64_t created = 0;
  Interval span;
  for (const merge::StreamInfo& s : recording.streams) {
    bytes += s.bytes;
    if (!s.problem.empty()) {
      ++unreadable;
      continue;
    }
    kernel += s.kernel;
    cuda += s.cuda();
    live |= s.live;
    // The wall clock when the recording began: that of its oldest stream.
    if (s.created_real_ns != 0 && (created == 0 || s.created_real_ns < created))
      created = s.created_real_ns;
    if (s.span.empty()) continue;
    span = span.empty() ? s.span
                        : Interval{std::min(span.begin, s.span.begin),
                                   std::max(span.end, s.span.end)};
  }
  page->Blank();
  page->Paragraph(Toned(Tone::kBold, SanitizeForTerminal(recording.id)) +
                  (live ? ", still being recorded" : ""));
  if (created != 0)
    page->Labeled(
        "when",
        fmt::format("{} {}, {}", FormatDateTime(created),
                    FormatTimeZone(created), FormatDuration(span.length())),
        2, 10);
  page->Labeled(
      "streams",
      fmt::format("{} CUDA, {} kernel, {}{}", cuda, kernel,
                  unreadable == 0
                      ? ""
                      : FormatCount(unreadable) + " that cannot be read, ",
                  FormatBytes(bytes)),
      2, 10);
  page->Labeled("programs", Programs(recording), 2, 10);
  const std::string store = StoreOf(recording, alone);
  std::string merge = "not merged; ingero merge";
  if (named)
    for (const std::string& dir : dirs) merge += " --dir " + ShellWord(dir);
  merge += " --recording " + recording.id;
  page->Labeled("store",
                store.empty()
                    ? SanitizeForTerminal(merge)
                    : fmt::format("{} ({})", SanitizeForTerminal(store),
                                  FormatBytes(StoreBytes(store))),
                2, 10, 0, /*cut=*/false);
  for (const merge::StreamInfo& s : recording.streams)
    if (!s.problem.empty())
      page->Labeled(Toned(Tone::kYellow, "problem"),
                    SanitizeForTerminal(s.problem), 2, 10, 0, /*cut=*/false);
}

}  // namespace

int RunList(const Args& args, const Io& io) {
  std::vector<std::string> dirs;
  CLI::App app(kHelp, "ingero list");
  app.footer(kExamples);
  app.add_option("--dir", dirs,
                 "Folder with streams; may be given more than once.\n"
                 "Default: where the recorders write ($INGERO_DIR)")
      ->type_name("DIR")
      ->allow_extra_args(false);
  if (auto status = Parse(app, args, io)) return *status;

  if (auto status = RequireFolders(dirs, "list", io)) return *status;
  const bool named = !dirs.empty();
  if (!named) dirs = DefaultTraceDirs();
  std::vector<std::string> problems;
  const std::vector<merge::Recording> recordings =
      merge::ListRecordings(dirs, &problems);
  for (const std::string& problem : problems)
    PrintError(io, "list", problem);
  if (recordings.empty() && !problems.empty()) return kFailed;
  if (recordings.empty()) {
    PrintError(io, "list",
               fmt::format("no recordings in {}; record a program first: "
                           "LD_PRELOAD=libingero_cuda.so python3 train.py",
                           fmt::join(dirs, ", ")));
    return kFailed;
  }
  std::vector<merge::Recording> alone;
  if (dirs.size() > 1)
    for (const std::string& dir : dirs)
      for (merge::Recording& r : merge::ListRecordings({dir}))
        alone.push_back(std::move(r));
  // Under sudo, or with INGERO_DIR, another folder is looked at, too.
  const auto in_first = [&](const merge::Recording& r) {
    return std::any_of(r.streams.begin(), r.streams.end(),
                       [&](const merge::StreamInfo& s) {
                         return s.path.starts_with(dirs.front() + "/");
                       });
  };
  if (!named && std::none_of(recordings.begin(), recordings.end(), in_first))
    PrintError(io, "list",
               fmt::format("note: {} {}; these are in {}", dirs.front(),
                           access(dirs.front().c_str(), F_OK) == 0
                               ? "has no recording"
                               : "is not there",
                           fmt::join(dirs.begin() + 1, dirs.end(), ", ")));
  Page page(io.columns, io.out_is_terminal && !io.no_color);
  for (const merge::Recording& recording : recordings)
    Show(recording, alone, dirs, named, &page);
  Write(io.out, page.text());
  return FinishOutput(io, "list") ? kDone : kFailed;
}

}  // namespace ingero::cli
