// SPDX-License-Identifier: Apache-2.0
// Seeded rows as a PyTorch program with a DataLoader makes them: one CPU's
// context switches and one process's calls. For benchmarks: the same seed
// gives the same rows.
#ifndef INGERO_BENCH_SYNTHETIC_ROWS_H_
#define INGERO_BENCH_SYNTHETIC_ROWS_H_

#include <cstdint>
#include <random>

#include "base/block_codec.h"

namespace ingero::bench {

// Switches of one CPU that about 40 threads share: half to idle, most sleeps
// in futex and epoll_wait, one switch in ten preempted.
class SwitchSource {
 public:
  explicit SwitchSource(uint32_t seed) : random_(seed) {}
  // Appends `count` rows of switch_table in time order.
  void Append(size_t count, Rows* rows);

 private:
  uint64_t Below(uint64_t n) { return random_() % n; }
  uint64_t Exponential(double mean);

  std::mt19937_64 random_;
  uint64_t t_ns_ = 5'000'000'000;
  uint32_t running_ = 0;  // index of the thread on the CPU; 0 = idle
};

// Calls of one training process: each runtime launch holds its driver launch,
// copies now and then, a sync per step.
class CallSource {
 public:
  explicit CallSource(uint32_t seed) : random_(seed) {}
  // Appends `count` rows of call_table in time order.
  void Append(size_t count, Rows* rows);

 private:
  uint64_t Below(uint64_t n) { return random_() % n; }

  std::mt19937_64 random_;
  uint64_t t_ns_ = 5'000'000'000;
  uint64_t step_ = 0;
};

}  // namespace ingero::bench

#endif  // INGERO_BENCH_SYNTHETIC_ROWS_H_
