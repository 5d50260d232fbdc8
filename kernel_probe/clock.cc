// SPDX-License-Identifier: Apache-2.0
#include "kernel_probe/clock.h"

#include <x86intrin.h>

#include <ctime>

#include "base/stream_header.h"

namespace ingero::kernel_probe {
namespace {

constexpr int kReadings = 20;

uint64_t Read(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000 +
         static_cast<uint64_t>(t.tv_nsec);
}

}  // namespace

uint64_t NowNs() { return HostNowNs(); }

uint64_t RealNs() { return Read(CLOCK_REALTIME); }

KnotRow TakeKnot() {
  KnotRow best{};
  uint64_t narrowest = UINT64_MAX;
  for (int i = 0; i < kReadings; ++i) {
    unsigned aux;
    const uint64_t before = __rdtscp(&aux);
    const uint64_t mono = NowNs();
    const uint64_t after = __rdtscp(&aux);
    const uint64_t real = RealNs();
    if (after - before >= narrowest) continue;
    narrowest = after - before;
    best[knot_table::kT] = mono;
    best[knot_table::kTsc] = before + narrowest / 2;
    best[knot_table::kWindowTicks] = narrowest;
    best[knot_table::kRealNs] = real;
  }
  return best;
}

}  // namespace ingero::kernel_probe
