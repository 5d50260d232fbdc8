// SPDX-License-Identifier: Apache-2.0
// Which processes had the CPUs between two looks at /proc: to 10 ms, and
// without those that lived in between only. A look takes some 20 us a process.
//
// Threads: one.
#ifndef INGERO_CLI_CPU_USE_H_
#define INGERO_CLI_CPU_USE_H_

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/units.h"

namespace ingero::cli {

struct CpuUser {
  uint32_t pid = 0, parent_pid = 0;
  std::string comm;
  double cpus = 0;  // how many it had, on average
};

class CpuUse {
 public:
  // Those that had some since the last look, most first; of the first look,
  // none. `now`: CLOCK_MONOTONIC.
  std::vector<CpuUser> Look(Ns now);
  // Of any process at the last look; 0 = none.
  uint32_t ParentOf(uint32_t pid) const;

 private:
  struct Seen {
    uint64_t start_ticks = 0, cpu_ticks = 0;
    uint32_t parent_pid = 0;
  };
  std::unordered_map<uint32_t, Seen> seen_;
  Ns last_;
};

}  // namespace ingero::cli

#endif  // INGERO_CLI_CPU_USE_H_
