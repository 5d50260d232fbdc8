// SPDX-License-Identifier: Apache-2.0
// The clocks that all parts of the companion share. Kernel records carry the
// host's CLOCK_MONOTONIC; so does everything here, also in a time namespace.
#ifndef INGERO_KERNEL_PROBE_CLOCK_H_
#define INGERO_KERNEL_PROBE_CLOCK_H_

#include <array>
#include <cstdint>

#include "base/tables.h"

namespace ingero::kernel_probe {

// Host CLOCK_MONOTONIC.
uint64_t NowNs();
uint64_t RealNs();

// The narrowest of 20 paired readings (about 37 ns wide, 1.5 us in all).
using KnotRow = std::array<uint64_t, knot_table::kCount>;
KnotRow TakeKnot();

}  // namespace ingero::kernel_probe

#endif  // INGERO_KERNEL_PROBE_CLOCK_H_
