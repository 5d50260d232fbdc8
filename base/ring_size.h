// SPDX-License-Identifier: Apache-2.0
// The size of the companion's buffers, as --buffer of its own command line and
// of `ingero run` takes it.
#ifndef INGERO_BASE_RING_SIZE_H_
#define INGERO_BASE_RING_SIZE_H_

#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace ingero {

inline constexpr uint64_t kMaxRingBytes = 1u << 30;

// "4096", "64K", "4M", "1G" (powers of 1024). Positive.
Result<uint64_t> ParseBytes(std::string_view text);
// The ring that is made for an asked size: a power of two, at least a page.
Result<uint64_t> RingBytes(uint64_t asked);

}  // namespace ingero

#endif  // INGERO_BASE_RING_SIZE_H_
