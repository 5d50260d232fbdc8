// SPDX-License-Identifier: Apache-2.0
// The processes that a command starts, and whether the shim is in them, as
// /proc tells. It needs no rights, and misses what lives shorter than the time
// between two looks. One whose parent has ended before it was seen (a daemon) is
// known by what all of them have in their environment.
//
// A process's maps are read when it is first seen, then whenever its age has
// doubled (it may exec, or load CUDA late), and at the end: 15 us for a small
// program, 6 ms for one with 5,000 mappings.
//
// Threads: one.
#ifndef INGERO_CLI_PROCESS_WATCH_H_
#define INGERO_CLI_PROCESS_WATCH_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/cuda_process.h"
#include "base/task_stat.h"
#include "base/units.h"

namespace ingero::cli {

struct WatchedProcess {
  uint32_t pid = 0;
  std::string comm;
  uint64_t start_ticks = 0;
  bool looked_at = false;  // its maps could be read; all below is from them
  bool hidden = false;     // they could not, though it ran: not for us to see
  CudaMaps maps;
  uint64_t bits = 0;  // of enum ingero_cuda_process
  // Whom the shim in it has to write as, and how large a file may be there.
  uint32_t effective_uid = 0;
  uint64_t most_file_bytes = UINT64_MAX;
  bool alive = true;
};

class ProcessWatch {
 public:
  // `root`: the command's process; `mark`: "NAME=value", in the environment of
  // all that it starts, and of nobody else's; `now`: CLOCK_MONOTONIC.
  ProcessWatch(pid_t root, std::string mark, Ns now);
  // Finds new ones, and looks at those that are due.
  void Look(Ns now);
  // Looks at all that live.
  void LookAtAll(Ns now);
  // By pid and start.
  std::vector<WatchedProcess> processes() const;
  // Those that lived at the last look, by pid.
  std::vector<WatchedProcess> living() const;

 private:
  struct Entry {
    WatchedProcess process;
    Ns born, due;
  };
  void Find(Ns now);
  void LookAt(Entry* entry);
  // Of one that is nobody's child that we know.
  bool Marked(uint32_t pid, const TaskStat& stat) const;

  uint32_t root_ = 0;
  uint64_t root_start_ticks_ = 0;
  std::string mark_;

  std::map<uint32_t, Entry> living_;
  std::unordered_set<uint32_t> others_;  // living pids that are not ours
  std::vector<WatchedProcess> ended_;
};

}  // namespace ingero::cli

#endif  // INGERO_CLI_PROCESS_WATCH_H_
