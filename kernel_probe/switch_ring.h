// SPDX-License-Identifier: Apache-2.0
// The companion's end of one CPU's slots for switches (bpf/sched.bpf.c fills
// them).
//
// Threads:    one.
// Invariants: head - tail, both counted without end, is at most the slots; a
//             slot between them does not change until tail has passed it.
#ifndef INGERO_KERNEL_PROBE_SWITCH_RING_H_
#define INGERO_KERNEL_PROBE_SWITCH_RING_H_

#include <cstdint>

#include "bpf/probe_state.h"

namespace ingero::kernel_probe {

class SwitchRing {
 public:
  // slots: a power of two.
  SwitchRing(const ingero_ring_switch* first, uint32_t slots,
             ingero_cpu_state* state)
      : first_(first), slots_(slots), state_(state) {}

  // emit(const ingero_ring_switch&, const ingero_ring_switch_more&), oldest
  // first, of what is there; at most one round, so that one busy CPU does not
  // keep the others waiting. How many slots that were.
  template <typename Emit>
  uint32_t Take(Emit emit) {
    static constexpr ingero_ring_switch_more kNone{};
    const uint64_t begin = state_->tail;
    uint64_t at = begin;
    while (at - begin < slots_) {
      const uint64_t head = __atomic_load_n(&state_->head, __ATOMIC_ACQUIRE);
      if (at == head) break;
      while (at != head) {
        const ingero_ring_switch& e = Slot(at++);
        if (e.kind == INGERO_RING_SWITCH_MORE)
          emit(e,
               reinterpret_cast<const ingero_ring_switch_more&>(Slot(at++)));
        else
          emit(e, kNone);
      }
      __atomic_store_n(&state_->tail, at, __ATOMIC_RELEASE);
    }
    return static_cast<uint32_t>(at - begin);
  }

 private:
  const ingero_ring_switch& Slot(uint64_t at) const {
    return first_[at & (slots_ - 1)];
  }

  const ingero_ring_switch* first_;
  uint32_t slots_;
  ingero_cpu_state* state_;
};

}  // namespace ingero::kernel_probe

#endif  // INGERO_KERNEL_PROBE_SWITCH_RING_H_
