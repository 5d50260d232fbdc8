// SPDX-License-Identifier: Apache-2.0
#include "bench/synthetic_rows.h"

#include <cmath>

#include "base/tables.h"
#include "wire/wire.h"

namespace ingero::bench {
namespace {

constexpr uint64_t kThreads = 40;
constexpr uint64_t kFirstTid = 41'200;
// x86-64: read 0, poll 7, nanosleep 35, futex 202, epoll_wait 232; plus 1.
constexpr uint64_t kSyscalls[] = {203, 203, 203, 203, 233, 233, 8, 1, 36};

uint64_t Tid(uint64_t thread) {
  return thread == 0 ? 0 : kFirstTid + thread * 3;
}
// Threads come in processes of four.
uint64_t Tgid(uint64_t thread) {
  return thread == 0 ? 0 : Tid((thread - 1) / 4 * 4 + 1);
}

}  // namespace

uint64_t SwitchSource::Exponential(double mean) {
  const double u = (static_cast<double>(Below(1u << 30)) + 1) / (1u << 30);
  return static_cast<uint64_t>(-mean * std::log(u));
}

void SwitchSource::Append(size_t count, Rows* rows) {
  using namespace switch_table;
  for (size_t i = 0; i < count; ++i) {
    uint64_t row[kCount] = {};
    const uint64_t prev = running_;
    uint64_t next = prev == 0 || Below(2) == 0 ? 1 + Below(kThreads) : 0;
    if (next == prev) next = next % kThreads + 1;
    t_ns_ += 1'000 + Exponential(prev == 0 ? 60'000 : 40'000);
    row[kT] = t_ns_;
    row[kPrevTid] = Tid(prev);
    row[kPrevTgid] = Tgid(prev);
    row[kNextTid] = Tid(next);
    row[kNextTgid] = Tgid(next);
    if (prev != 0) {
      if (Below(10) == 0) {
        row[kFlags] = INGERO_PREV_PREEMPTED;
      } else {
        row[kPrevState] = INGERO_TASK_INTERRUPTIBLE;
        row[kPrevSyscall] = kSyscalls[Below(std::size(kSyscalls))];
        row[kPrevArg0] = row[kPrevSyscall] == 203
                             ? 0x7f31'c000'0000 + prev * 0x21'000 +
                                   Below(4) * 40  // a lock of the thread
                             : 3 + Below(12);     // a descriptor
        row[kPrevArg1] = row[kPrevSyscall] == 203 ? 128 + Below(2) * 9
                                                  : Below(3) * 64;
      }
      if (Below(8) == 0) row[kPrevPages] = 1 + Exponential(6);
      row[kPrevMinFaults] = row[kPrevPages];
    }
    if (next != 0 && Below(10) != 0) {
      row[kWakeT] = t_ns_ - 500 - Exponential(9'000);
      if (Below(3) == 0) {
        row[kFlags] |= INGERO_WAKE_IRQ;
      } else {
        const uint64_t waker = 1 + Below(kThreads);
        row[kWakerTid] = Tid(waker);
        row[kWakerTgid] = Tgid(waker);
      }
    }
    rows->Append(row);
    running_ = static_cast<uint32_t>(next);
  }
}

void CallSource::Append(size_t count, Rows* rows) {
  using namespace call_table;
  constexpr uint64_t kKernels = 120, kStream = 0x5571'8a20'4f30;
  constexpr uint64_t kRuntimeLaunch = 0, kDriverLaunch = 1, kCopy = 2,
                     kSync = 3;
  for (size_t i = 0; i < count; ++i, ++step_) {
    uint64_t row[kCount] = {};
    t_ns_ += 2'000 + Below(6'000);
    row[kT] = t_ns_;
    row[kDuration] = 2'500 + Below(3'000);
    row[kTid] = kFirstTid;
    const uint64_t phase = step_ % 200;
    if (phase == 199) {
      row[kFunc] = kSync;
      row[kDuration] = 800'000 + Below(400'000);
      row[kWord0] = kStream;
      t_ns_ += row[kDuration];
    } else if (phase % 50 == 48) {
      row[kFunc] = kCopy;
      row[kWord0] = 4096u << Below(8);
      row[kWord1] = kStream;
      row[kWord2] = 0x7f30'0000'0000 + Below(64) * 0x20'0000;
      row[kWord3] = 0x7f41'0000'0000 + Below(64) * 0x10'0000;
    } else {
      const bool driver = phase % 2 == 1;
      row[kFunc] = driver ? kDriverLaunch : kRuntimeLaunch;
      row[kDepth] = driver ? 1 : 0;
      row[kWord0] = kStream;
      // The same kernels in the same order each step.
      row[kWord1] = 0x5571'0000'0000 + (phase / 2) % kKernels * 0x340;
      row[kWord2] = 1u << Below(10);
    }
    rows->Append(row);
  }
}

}  // namespace ingero::bench
