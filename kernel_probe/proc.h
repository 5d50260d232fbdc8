// SPDX-License-Identifier: Apache-2.0
// Readers of /proc files: pure parsers of their text, and small functions that
// read one file each.
#ifndef INGERO_KERNEL_PROBE_PROC_H_
#define INGERO_KERNEL_PROBE_PROC_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "wire/wire.h"

namespace ingero::kernel_probe {

// /proc/stat. Times in ns since boot, guest time within busy.
struct CpuTimes {
  uint32_t cpu;
  uint64_t busy_ns, idle_ns, steal_ns;
  // Of busy: interrupts, which steal from whoever runs.
  uint64_t irq_ns, softirq_ns;
};
struct SystemStat {
  std::vector<CpuTimes> cpus;  // online ones
  std::optional<uint64_t> context_switches;
};
SystemStat ParseStat(std::string_view text, uint64_t ticks_per_s = 100);

// /proc/loadavg: one-minute load in 1/1000.
std::optional<uint64_t> ParseLoad1(std::string_view text);

// /proc/pressure/X: total stall time in us.
struct Pressure {
  std::optional<uint64_t> some_us, full_us;
};
Pressure ParsePressure(std::string_view text);

// /proc/meminfo.
struct Memory {
  std::optional<uint64_t> total_bytes, available_bytes, swap_used_bytes;
};
Memory ParseMemory(std::string_view text);

// NSpid and NStgid of /proc/PID/status: the innermost, i.e. last, number.
struct NamespacePids {
  uint32_t tid = 0, tgid = 0;
};
NamespacePids ParseNamespacePids(std::string_view status);

// Adds the tasks of /proc that `tasks` lacks: all of them where the iterator
// could not be loaded, else the few that it does not show. Their start times
// are in steps of a clock tick (10 ms), their cgroup is not known.
void AddTasksOfProc(std::vector<ingero_ring_task>* tasks);

// exe NUL cmdline, arguments separated by 0x1f; as much as can be read.
// Nothing where `pid` is no longer the process that started at `start_ns`
// (boot time clock), or is a kernel thread.
std::string ExeAndCommand(uint32_t pid, uint64_t start_ns);
// NUL-separated, as in /proc/PID/cmdline, to 0x1f-separated; at most
// kMaxCommandBytes.
inline constexpr size_t kMaxCommandBytes = 4096;
std::string CommandText(std::string_view cmdline);

}  // namespace ingero::kernel_probe

#endif  // INGERO_KERNEL_PROBE_PROC_H_
