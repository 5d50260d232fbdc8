// SPDX-License-Identifier: Apache-2.0
// /proc/PID/stat, and the numbers in a folder of /proc.
#ifndef INGERO_BASE_TASK_STAT_H_
#define INGERO_BASE_TASK_STAT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ingero {

// Whatever the name in the second field holds.
struct TaskStat {
  std::string comm;
  char state = '?';  // 'Z': it has ended, and nobody has asked how
  uint32_t parent_pid = 0;
  uint64_t cpu_ticks = 0;  // in user and kernel mode, of all its threads
  uint64_t start_ticks = 0;
};
std::optional<TaskStat> ParseTaskStat(std::string_view text);
// Of a process, or of one of its threads (pid, tid).
std::optional<TaskStat> ReadTaskStat(uint32_t pid);
std::optional<TaskStat> ReadTaskStat(uint32_t pid, uint32_t tid);

// Whether it has ended, all its threads with it, and waits to be asked how. A
// process whose first thread alone has ended runs on.
bool IsDead(uint32_t pid, const TaskStat& stat);

// What `text` begins with; nullopt where that is no number.
std::optional<uint64_t> LeadingNumber(std::string_view text);

// The entries of `path` whose names are numbers; empty where it can't be read.
std::vector<uint64_t> NumberedEntries(const std::string& path);

}  // namespace ingero

#endif  // INGERO_BASE_TASK_STAT_H_
