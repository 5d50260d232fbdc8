// SPDX-License-Identifier: Apache-2.0
#include "cli/cpu_use.h"

#include <unistd.h>

#include <algorithm>

#include "base/task_stat.h"

namespace ingero::cli {

std::vector<CpuUser> CpuUse::Look(Ns now) {
  std::unordered_map<uint32_t, Seen> seen;
  std::vector<CpuUser> users;
  const double ticks_passed = static_cast<double>((now - last_).value) / 1e9 *
                              static_cast<double>(sysconf(_SC_CLK_TCK));
  for (const uint64_t number : NumberedEntries("/proc")) {
    const auto pid = static_cast<uint32_t>(number);
    const auto stat = ReadTaskStat(pid);
    if (!stat) continue;  // gone
    seen[pid] = {stat->start_ticks, stat->cpu_ticks, stat->parent_pid};
    if (seen_.empty()) continue;
    const auto before = seen_.find(pid);
    // One that is new since then has all its time since then.
    const uint64_t used =
        before != seen_.end() && before->second.start_ticks == stat->start_ticks
            ? stat->cpu_ticks -
                  std::min(before->second.cpu_ticks, stat->cpu_ticks)
            : stat->cpu_ticks;
    if (used > 0 && ticks_passed > 0)
      users.push_back({pid, stat->parent_pid, stat->comm,
                       static_cast<double>(used) / ticks_passed});
  }
  seen_ = std::move(seen);
  last_ = now;
  std::sort(users.begin(), users.end(), [](const CpuUser& a, const CpuUser& b) {
    return a.cpus != b.cpus ? a.cpus > b.cpus : a.pid < b.pid;
  });
  return users;
}

uint32_t CpuUse::ParentOf(uint32_t pid) const {
  const auto it = seen_.find(pid);
  return it == seen_.end() ? 0 : it->second.parent_pid;
}

}  // namespace ingero::cli
