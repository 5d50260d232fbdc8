// SPDX-License-Identifier: Apache-2.0
// What the flags and state of a switch row mean. One place, because merge's
// summaries and the store's readers must agree.
#ifndef INGERO_MERGE_SWITCH_ROW_H_
#define INGERO_MERGE_SWITCH_ROW_H_

#include "analysis/trace.h"
#include "wire/wire.h"

namespace ingero::merge {

// State of a thread after it left the CPU.
inline analysis::ThreadState StateAfter(uint64_t flags, uint64_t prev_state) {
  using enum analysis::ThreadState;
  if (flags & INGERO_PREV_DEAD) return kDead;
  if (flags & INGERO_PREV_OUTSIDE) return kUnknown;
  if (flags & (INGERO_PREV_PREEMPTED | INGERO_PREV_YIELDED)) return kRunnable;
  if (flags & INGERO_PREV_IOWAIT) return kDisk;
  if (prev_state == INGERO_TASK_RUNNING) return kRunnable;
  if (prev_state & (INGERO_TASK_STOPPED | INGERO_TASK_TRACED)) return kStopped;
  if (prev_state & INGERO_TASK_INTERRUPTIBLE) return kSleeping;
  if (prev_state & INGERO_TASK_UNINTERRUPTIBLE) return kBlocked;
  return kDead;  // zombie, dead, parked
}

}  // namespace ingero::merge

#endif  // INGERO_MERGE_SWITCH_ROW_H_
