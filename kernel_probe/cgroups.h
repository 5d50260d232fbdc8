// SPDX-License-Identifier: Apache-2.0
// CPU quotas of cgroups and how often they throttle, v1 and v2.
//
// Which cgroup a thread counts for is that of its cpu controller (bpf/
// emit.bpf.h, cpu_cgroup_id); a cgroup without a quota of its own below one
// that has is listed with that one's figures.
#ifndef INGERO_KERNEL_PROBE_CGROUPS_H_
#define INGERO_KERNEL_PROBE_CGROUPS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ingero::kernel_probe {

struct CpuStat {
  uint64_t periods = 0, throttled = 0, throttled_ns = 0;
};
// cpu.stat of either version; nothing where it tells of no periods.
std::optional<CpuStat> ParseCpuStat(std::string_view text);
// cpu.max (v2) or cpu.cfs_quota_us (v1) sets a limit.
bool IsQuota(std::string_view text);

struct CpuController {
  std::string path;  // where its hierarchy is mounted
  bool v2 = false;
};
// From the text of /proc/self/mountinfo: the hierarchy that has the cpu
// controller (v1 if it is mounted there, else v2).
std::optional<CpuController> FindCpuController(std::string_view mountinfo);

struct QuotaGroup {
  uint64_t id;       // inode of the directory
  std::string path;  // of the cgroup whose quota it is, below the mount
  std::string stat_file;
};
// All cgroups under a quota; a bounded walk of the hierarchy.
std::vector<QuotaGroup> FindQuotaGroups(const CpuController& controller);

}  // namespace ingero::kernel_probe

#endif  // INGERO_KERNEL_PROBE_CGROUPS_H_
