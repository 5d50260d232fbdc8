// SPDX-License-Identifier: Apache-2.0
#include "kernel_probe/proc.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <climits>
#include <unordered_set>

#include "base/file.h"
#include "base/task_stat.h"
#include "kernel_probe/clock.h"

namespace ingero::kernel_probe {
namespace {

constexpr uint64_t kNsPerS = 1'000'000'000;

// Cuts the first line, or word, off *text.
std::string_view Cut(std::string_view* text, char separator) {
  const size_t at = text->find(separator);
  std::string_view first = text->substr(0, at);
  text->remove_prefix(at == std::string_view::npos ? text->size() : at + 1);
  return first;
}

}  // namespace

SystemStat ParseStat(std::string_view text, uint64_t ticks_per_s) {
  SystemStat stat;
  const uint64_t ns_per_tick = kNsPerS / ticks_per_s;
  while (!text.empty()) {
    std::string_view line = Cut(&text, '\n');
    const std::string_view key = Cut(&line, ' ');
    if (key == "ctxt") stat.context_switches = LeadingNumber(line);
    if (key.size() < 4 || !key.starts_with("cpu")) continue;
    const auto cpu = LeadingNumber(key.substr(3));
    if (!cpu) continue;
    // user nice system idle iowait irq softirq steal guest guest_nice
    uint64_t ticks[8] = {};
    for (uint64_t& t : ticks) t = LeadingNumber(Cut(&line, ' ')).value_or(0);
    stat.cpus.push_back(
        {static_cast<uint32_t>(*cpu),
         (ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6]) * ns_per_tick,
         (ticks[3] + ticks[4]) * ns_per_tick, ticks[7] * ns_per_tick,
         ticks[5] * ns_per_tick, ticks[6] * ns_per_tick});
  }
  return stat;
}

std::optional<uint64_t> ParseLoad1(std::string_view text) {
  double load;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), load);
  if (error != std::errc() || load < 0) return std::nullopt;
  return static_cast<uint64_t>(load * 1000 + 0.5);
}

Pressure ParsePressure(std::string_view text) {
  Pressure p;
  while (!text.empty()) {
    const std::string_view line = Cut(&text, '\n');
    const size_t at = line.find("total=");
    if (at == std::string_view::npos) continue;
    const auto total = LeadingNumber(line.substr(at + 6));
    if (line.starts_with("some")) p.some_us = total;
    if (line.starts_with("full")) p.full_us = total;
  }
  return p;
}

Memory ParseMemory(std::string_view text) {
  Memory m;
  std::optional<uint64_t> swap_total, swap_free;
  while (!text.empty()) {
    std::string_view line = Cut(&text, '\n');
    const std::string_view key = Cut(&line, ':');
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    auto bytes = LeadingNumber(line);
    if (!bytes) continue;
    *bytes *= 1024;
    if (key == "MemTotal") m.total_bytes = bytes;
    if (key == "MemAvailable") m.available_bytes = bytes;
    if (key == "SwapTotal") swap_total = bytes;
    if (key == "SwapFree") swap_free = bytes;
  }
  if (swap_total && swap_free && *swap_total >= *swap_free)
    m.swap_used_bytes = *swap_total - *swap_free;
  return m;
}

NamespacePids ParseNamespacePids(std::string_view status) {
  NamespacePids pids;
  while (!status.empty()) {
    std::string_view line = Cut(&status, '\n');
    const std::string_view key = Cut(&line, ':');
    if (key != "NSpid" && key != "NStgid") continue;
    line.remove_prefix(std::min(line.find_last_of("\t ") + 1, line.size()));
    const auto number = static_cast<uint32_t>(LeadingNumber(line).value_or(0));
    (key == "NSpid" ? pids.tid : pids.tgid) = number;
  }
  return pids;
}

void AddTasksOfProc(std::vector<ingero_ring_task>* tasks) {
  std::unordered_set<uint32_t> known;
  for (const ingero_ring_task& t : *tasks) known.insert(t.tid);
  const uint64_t ns_per_tick =
      kNsPerS / static_cast<uint64_t>(sysconf(_SC_CLK_TCK));
  for (const uint64_t tgid : NumberedEntries("/proc")) {
    const std::string folder = "/proc/" + std::to_string(tgid);
    std::optional<TaskStat> leader;
    struct stat ns {};
    for (const uint64_t tid : NumberedEntries(folder + "/task")) {
      if (known.contains(static_cast<uint32_t>(tid))) continue;
      if (!leader) {
        leader = ReadTaskStat(static_cast<uint32_t>(tgid));
        if (!leader) break;
        if (stat((folder + "/ns/pid").c_str(), &ns) != 0) ns.st_ino = 0;
      }
      const auto task = ReadTaskStat(static_cast<uint32_t>(tgid),
                                     static_cast<uint32_t>(tid));
      if (!task) continue;
      auto status = ReadWholeFile(folder + "/task/" + std::to_string(tid) +
                                  "/status");
      const NamespacePids inner =
          ParseNamespacePids(status.ok() ? std::string_view(*status) : "");
      ingero_ring_task e{};
      e.kind = INGERO_RING_TASK;
      e.event = INGERO_TASK_EVENT_EXISTING;
      e.t_ns = NowNs();
      e.tid = static_cast<uint32_t>(tid);
      e.tgid = static_cast<uint32_t>(tgid);
      e.parent_tid = e.parent_tgid = tid == tgid ? task->parent_pid : e.tgid;
      e.start_ns = leader->start_ticks * ns_per_tick;
      e.ns_tid = inner.tid;
      e.ns_tgid = inner.tgid;
      e.pid_namespace = ns.st_ino;
      task->comm.copy(e.comm, sizeof(e.comm) - 1);
      tasks->push_back(e);
    }
  }
}

std::string CommandText(std::string_view cmdline) {
  std::string text(cmdline.substr(0, kMaxCommandBytes));
  while (!text.empty() && text.back() == '\0') text.pop_back();
  std::replace(text.begin(), text.end(), '\0', '\x1f');
  return text;
}

std::string ExeAndCommand(uint32_t pid, uint64_t start_ns) {
  const std::string base = "/proc/" + std::to_string(pid);
  char exe[PATH_MAX];
  const ssize_t exe_size = readlink((base + "/exe").c_str(), exe, sizeof(exe));
  // /proc/PID/cmdline may be as long as ARG_MAX; its begin is enough.
  std::string cmdline;
  if (auto fd = OpenFile(base + "/cmdline", O_RDONLY); fd.ok()) {
    char buffer[kMaxCommandBytes];
    const ssize_t n = read(fd->get(), buffer, sizeof(buffer));
    if (n > 0) cmdline = CommandText({buffer, static_cast<size_t>(n)});
  }
  if (exe_size <= 0 && cmdline.empty()) return {};
  // Checked after reading: a pid reused meanwhile fails this.
  const auto stat = ReadTaskStat(pid);
  const auto ticks_per_s = static_cast<uint64_t>(sysconf(_SC_CLK_TCK));
  if (!stat || stat->start_ticks != start_ns / (kNsPerS / ticks_per_s))
    return {};
  std::string text;
  if (exe_size > 0) text.assign(exe, static_cast<size_t>(exe_size));
  text += '\0';
  text += cmdline;
  return text;
}

}  // namespace ingero::kernel_probe
