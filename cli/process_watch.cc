// SPDX-License-Identifier: Apache-2.0
#include "cli/process_watch.h"

#include <unistd.h>

#include <algorithm>

#include "base/file.h"
#include "base/task_stat.h"
#include "wire/wire.h"

namespace ingero::cli {
namespace {

// Between fork and exec a process still has its parent's maps.
constexpr Ns kSecondLook = kMillisecond * 300;
// Each costs memory until the end; who starts more sees how many were watched.
constexpr size_t kMaxWatched = 100'000;

// A process's rights to write, as /proc has them.
void ReadWriter(WatchedProcess* process) {
  const std::string proc = "/proc/" + std::to_string(process->pid);
  const auto status = ReadWholeFile(proc + "/status");
  const auto limits = ReadWholeFile(proc + "/limits");
  if (!status.ok() || !limits.ok()) return;
  // "Uid:\tREAL\tEFFECTIVE\t...".
  if (const size_t uid = status->find("\nUid:\t"); uid != std::string::npos)
    if (const size_t next = status->find('\t', uid + 6);
        next != std::string::npos)
      process->effective_uid = static_cast<uint32_t>(
          LeadingNumber(std::string_view(*status).substr(next + 1)).value_or(0));
  // "Max file size    SOFT    HARD    bytes"; SOFT may be "unlimited".
  constexpr std::string_view kName = "Max file size";
  if (const size_t at = limits->find(kName); at != std::string::npos) {
    const size_t soft = limits->find_first_not_of(' ', at + kName.size());
    if (soft != std::string::npos)
      process->most_file_bytes =
          LeadingNumber(std::string_view(*limits).substr(soft))
              .value_or(UINT64_MAX);
  }
}

}  // namespace

ProcessWatch::ProcessWatch(pid_t root, std::string mark, Ns now)
    : root_(static_cast<uint32_t>(root)), mark_(std::move(mark)) {
  const uint32_t pid = root_;
  if (const auto stat = ReadTaskStat(pid)) root_start_ticks_ = stat->start_ticks;
  Entry entry;
  entry.process.pid = pid;
  entry.born = now;
  entry.due = now;
  living_.emplace(pid, std::move(entry));
}

bool ProcessWatch::Marked(uint32_t pid, const TaskStat& stat) const {
  const auto self = static_cast<uint32_t>(getpid());
  // Where we run within a run, our own helpers have it, too.
  if (stat.start_ticks < root_start_ticks_ || pid == self ||
      (stat.parent_pid == self && pid != root_))
    return false;
  const auto environment =
      ReadWholeFile("/proc/" + std::to_string(pid) + "/environ");
  return environment.ok() && ('\0' + *environment + '\0').find(
                                 '\0' + mark_ + '\0') != std::string::npos;
}

void ProcessWatch::Find(Ns now) {
  std::vector<uint32_t> pids;
  for (const uint64_t pid : NumberedEntries("/proc"))
    pids.push_back(static_cast<uint32_t>(pid));
  std::sort(pids.begin(), pids.end());
  const auto lives = [&](uint32_t pid) {
    return std::binary_search(pids.begin(), pids.end(), pid);
  };
  // A parent is seen before its children, but for pids that have wrapped
  // around: those are found by the second round.
  for (int round = 0; round < 2; ++round) {
    for (const uint32_t pid : pids) {
      if (living_.contains(pid) || others_.contains(pid)) continue;
      const auto stat = ReadTaskStat(pid);
      if (!stat) continue;
      if (!living_.contains(stat->parent_pid) &&
          (round == 0 || !Marked(pid, *stat))) {
        if (round == 0) continue;
        others_.insert(pid);
        continue;
      }
      if (ended_.size() + living_.size() >= kMaxWatched) return;
      Entry entry;
      entry.process.pid = pid;
      entry.process.comm = stat->comm;
      entry.process.start_ticks = stat->start_ticks;
      entry.born = now;
      entry.due = now;
      living_.emplace(pid, std::move(entry));
    }
  }
  std::erase_if(others_, [&](uint32_t pid) { return !lives(pid); });
  for (auto it = living_.begin(); it != living_.end();) {
    if (lives(it->first)) {
      ++it;
      continue;
    }
    it->second.process.alive = false;
    ended_.push_back(std::move(it->second.process));
    it = living_.erase(it);
  }
}

void ProcessWatch::LookAt(Entry* entry) {
  WatchedProcess& process = entry->process;
  const auto stat = ReadTaskStat(process.pid);
  process.alive = stat && !IsDead(process.pid, *stat);
  if (!stat) return;
  process.comm = stat->comm;
  process.start_ticks = stat->start_ticks;
  if (stat->state == 'Z') return;  // what was seen of it while it ran holds
  const uint64_t program = EnvironmentAddress(process.pid);
  CudaMaps maps = ReadCudaMaps(process.pid);
  process.hidden = maps.denied && !process.looked_at;
  if (!maps.any) return;  // hidden, or it ended just now
  // What the loader of a program that has just been executed will do shows at
  // the next look.
  if (!maps.shim && maps.loader && !maps.libraries) return;
  const uint64_t bits = CudaProcessBits(process.pid, maps);
  if (!maps.shim &&
      (program == 0 || EnvironmentAddress(process.pid) != program))
    return;
  if (maps.shim) ReadWriter(&process);
  process.looked_at = true;
  process.bits = bits;
  process.maps = std::move(maps);
}

void ProcessWatch::Look(Ns now) {
  Find(now);
  for (auto& [pid, entry] : living_) {
    if (entry.due > now) continue;
    LookAt(&entry);
    entry.due = now + std::max(now - entry.born, kSecondLook);
  }
}

void ProcessWatch::LookAtAll(Ns now) {
  Find(now);
  for (auto& [pid, entry] : living_) LookAt(&entry);
}

std::vector<WatchedProcess> ProcessWatch::living() const {
  std::vector<WatchedProcess> living;
  for (const auto& [pid, entry] : living_) living.push_back(entry.process);
  return living;
}

std::vector<WatchedProcess> ProcessWatch::processes() const {
  std::vector<WatchedProcess> all = ended_;
  for (const auto& [pid, entry] : living_) all.push_back(entry.process);
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return a.pid != b.pid ? a.pid < b.pid : a.start_ticks < b.start_ticks;
  });
  return all;
}

}  // namespace ingero::cli
