// SPDX-License-Identifier: Apache-2.0
#include "cli/process_watch.h"

#include <unistd.h>

#include <algorithm>

#include "base/task_stat.h"
#include "wire/wire.h"

namespace ingero::cli {
namespace {

// Between fork and exec a process still has its parent's maps.
constexpr Ns kSecondLook = kMillisecond * 300;
// Each costs memory until the end; who starts more sees how many were watched.
constexpr size_t kMaxWatched = 100'000;

}  // namespace

ProcessWatch::ProcessWatch(pid_t root, Ns now) {
  const auto pid = static_cast<uint32_t>(root);
  Entry entry;
  entry.process.pid = pid;
  entry.born = now;
  entry.due = now;
  living_.emplace(pid, std::move(entry));
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
      if (!living_.contains(stat->parent_pid)) {
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
  uint64_t bits = 0;
  if (!maps.shim) {
    // What the loader of a program that has just been executed will do shows at
    // the next look.
    if (maps.loader && !maps.libraries) return;
    bits = CudaProcessBits(process.pid, maps);
    if (program == 0 || EnvironmentAddress(process.pid) != program) return;
  }
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
