// SPDX-License-Identifier: Apache-2.0
// CPU quotas of cgroups and how often they throttle, v1 and v2.
//
// Which cgroup a thread counts for is that of its cpu controller (bpf/
// emit.bpf.h, cpu_cgroup_id). A quota holds for all cgroups below it too, so
// those are listed, each with the nearest one above that has a quota.
//
// In a container only what its mount shows can be listed: a quota that is set
// further up still holds there, with an id that has no path.
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
struct CpuQuota {
  uint64_t quota_ns, period_ns;
};
// The limit that cpu.max sets (v2).
std::optional<CpuQuota> ParseCpuMax(std::string_view text);
// As cpu.cfs_quota_us and cpu.cfs_period_us set it (v1).
std::optional<CpuQuota> ParseCfsQuota(std::string_view quota_us,
                                      std::string_view period_us);

struct CpuController {
  std::string path;  // where its hierarchy is mounted
  bool v2 = false;
  // The cgroup that is mounted there: "" for the root, else as mountinfo has
  // it: "/docker/12ab", or "/../.." from within a cgroup namespace.
  std::string root = {};
};
// From the text of /proc/self/mountinfo: the hierarchy that has the cpu
// controller (v1 if it is mounted there, else v2).
std::optional<CpuController> FindCpuController(std::string_view mountinfo);

struct QuotaGroup {
  uint64_t id;       // inode of the directory
  std::string path;  // from the hierarchy's root as far as it shows, "/..."
  uint64_t above;    // id of the nearest cgroup above with a quota; 0 = none
  std::optional<CpuQuota> quota;  // its own
  std::string stat_file;
};
// All cgroups with a quota or below one; a bounded walk of the hierarchy.
// One that goes away meanwhile is left out.
std::vector<QuotaGroup> FindQuotaGroups(const CpuController& controller);

}  // namespace ingero::kernel_probe

#endif  // INGERO_KERNEL_PROBE_CGROUPS_H_
