// SPDX-License-Identifier: Apache-2.0
#include "kernel_probe/losses.h"

#include <algorithm>

namespace ingero::kernel_probe {
namespace {

// By enum ingero_cpu_loss.
constexpr ingero_loss kLossOfSlot[INGERO_CPU_LOST_MAX] = {
    INGERO_LOSS_SWITCH_RING_FULL,
    INGERO_LOSS_TASK_RING_FULL,
    INGERO_LOSS_TASK_STORAGE,
    INGERO_LOSS_PAGE_RING_FULL,
};

uint64_t Load(const __u64* value) {
  return __atomic_load_n(value, __ATOMIC_ACQUIRE);
}

}  // namespace

LossReader::LossReader(std::span<ingero_cpu_state> cpus)
    : cpus_(cpus), seen_(cpus.size() * INGERO_CPU_LOST_MAX) {}

void LossReader::Poll(uint64_t now_ns,
                      const std::function<void(const Loss&)>& emit) {
  for (uint32_t cpu = 0; cpu < cpus_.size(); ++cpu) {
    for (int slot = 0; slot < INGERO_CPU_LOST_MAX; ++slot) {
      ingero_loss_counter& counter = cpus_[cpu].lost[slot];
      Seen& seen = seen_[cpu * INGERO_CPU_LOST_MAX + slot];
      const uint64_t count = Load(&counter.count);
      if (count == seen.count) continue;
      // first_ns may be older than this range (the program raced with our
      // store to `reported`), last_ns newer or not yet stored: never narrower
      // than the truth.
      const uint64_t first = std::max(Load(&counter.first_ns), seen.last_ns);
      const uint64_t last = std::max(Load(&counter.last_ns), first);
      emit({cpu, kLossOfSlot[slot], std::min(first, now_ns),
            std::max(last, std::min(first, now_ns)), count - seen.count});
      __atomic_store_n(&counter.reported, count, __ATOMIC_RELEASE);
      seen = {count, last};
    }
  }
}

}  // namespace ingero::kernel_probe
