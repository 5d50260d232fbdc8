// SPDX-License-Identifier: Apache-2.0
#include "kernel_probe/clock.h"

#include <x86intrin.h>

#include <cstdio>
#include <ctime>
#include <sstream>
#include <string>

#include "base/file.h"

namespace ingero::kernel_probe {
namespace {

constexpr int kReadings = 20;

uint64_t Read(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000 +
         static_cast<uint64_t>(t.tv_nsec);
}

int64_t ReadMonotonicOffset() {
  auto text = ReadWholeFile("/proc/self/timens_offsets");
  if (!text.ok()) return 0;
  std::istringstream in(*text);
  std::string clock;
  int64_t s, ns;
  while (in >> clock >> s >> ns)
    if (clock == "monotonic") return s * 1'000'000'000 + ns;
  return 0;
}

}  // namespace

int64_t MonotonicOffsetNs() {
  static const int64_t offset = ReadMonotonicOffset();
  return offset;
}

uint64_t NowNs() {
  return Read(CLOCK_MONOTONIC) - static_cast<uint64_t>(MonotonicOffsetNs());
}

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
