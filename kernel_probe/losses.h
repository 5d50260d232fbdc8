// SPDX-License-Identifier: Apache-2.0
// Turns counters of losses into rows: (first, last, which, how many) per CPU.
//
// Invariants: the counts of all rows of a loss sum to its counter, and every
//             lost event lies within the range of the row that counts it.
// Threads:    one.
#ifndef INGERO_KERNEL_PROBE_LOSSES_H_
#define INGERO_KERNEL_PROBE_LOSSES_H_

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "bpf/probe_state.h"

namespace ingero::kernel_probe {

struct Loss {
  uint32_t cpu;
  ingero_loss loss;
  uint64_t first_ns, last_ns, count;
};

class LossReader {
 public:
  // `cpus`: the counters that the BPF programs write.
  explicit LossReader(std::span<ingero_cpu_state> cpus);
  // What was lost since the last call. `now_ns` bounds the ranges.
  void Poll(uint64_t now_ns, const std::function<void(const Loss&)>& emit);

 private:
  struct Seen {
    uint64_t count = 0, last_ns = 0;
  };
  std::span<ingero_cpu_state> cpus_;
  std::vector<Seen> seen_;
};

}  // namespace ingero::kernel_probe

#endif  // INGERO_KERNEL_PROBE_LOSSES_H_
