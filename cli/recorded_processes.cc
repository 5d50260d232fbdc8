// SPDX-License-Identifier: Apache-2.0
#include "cli/recorded_processes.h"

#include <filesystem>
#include <map>
#include <set>

#include "base/task_stat.h"
#include "merge/recordings.h"
#include "merge/stream.h"

namespace ingero::cli {

std::vector<code_sampler::Watched> RecordedProcesses(const std::string& dir) {
  std::set<uint32_t> programs;
  std::error_code error;
  for (std::filesystem::directory_iterator it(dir, error), end;
       !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename();
    if (!name.starts_with("cuda-") || !name.ends_with(".ingero")) continue;
    const auto stream = merge::OpenStreamFile(it->path());
    if (stream.ok() && stream->header.exited == 0 &&
        merge::WriterRuns(stream->header))
      programs.insert(stream->header.pid);
  }
  std::vector<code_sampler::Watched> found;
  if (programs.empty()) return found;
  std::map<uint32_t, TaskStat> all;
  for (const uint64_t pid : NumberedEntries("/proc"))
    if (auto stat = ReadTaskStat(static_cast<uint32_t>(pid)))
      all.emplace(static_cast<uint32_t>(pid), std::move(*stat));
  constexpr int kDeepest = 64;
  for (const auto& [pid, stat] : all) {
    uint32_t above = pid;
    for (int depth = 0; depth < kDeepest; ++depth) {
      if (programs.contains(above)) {
        found.push_back({pid, stat.start_ticks, stat.comm});
        break;
      }
      const auto parent = all.find(above);
      if (parent == all.end()) break;
      above = parent->second.parent_pid;
    }
  }
  return found;
}

}  // namespace ingero::cli
