// SPDX-License-Identifier: Apache-2.0
// LEB128 varints and zigzag, as the block codec and the histograms store them.
#ifndef INGERO_BASE_VARINT_H_
#define INGERO_BASE_VARINT_H_

#include <cstddef>
#include <cstdint>

namespace ingero {

inline constexpr size_t kMaxVarintBytes = 10;

// Small magnitudes of either sign become small unsigned values.
constexpr uint64_t ZigzagEncode(uint64_t v) {
  return (v << 1) ^ (0 - (v >> 63));
}
constexpr uint64_t ZigzagDecode(uint64_t v) {
  return (v >> 1) ^ (0 - (v & 1));
}

// Writes 1 to kMaxVarintBytes bytes, returns the end.
inline uint8_t* PutVarint(uint8_t* p, uint64_t v) {
  if (v < 0x80) [[likely]] {
    *p = static_cast<uint8_t>(v);
    return p + 1;
  }
  if (v < 0x4000) {
    p[0] = static_cast<uint8_t>(v | 0x80);
    p[1] = static_cast<uint8_t>(v >> 7);
    return p + 2;
  }
  while (v >= 0x80) {
    *p++ = static_cast<uint8_t>(v | 0x80);
    v >>= 7;
  }
  *p++ = static_cast<uint8_t>(v);
  return p;
}

// The rest of GetVarint for values that do not fit one byte.
inline const uint8_t* GetLongVarint(const uint8_t* p, const uint8_t* end,
                                    uint64_t* v) {
  uint64_t value = 0;
  for (unsigned shift = 0; shift < 64 && p < end; shift += 7) {
    const uint64_t byte = *p++;
    value |= (byte & 0x7f) << shift;
    if (byte < 0x80) {
      // The tenth byte holds one bit; more would be cut off silently.
      if (shift == 63 && byte > 1) return nullptr;
      *v = value;
      return p;
    }
  }
  return nullptr;
}

// Reads one value, returns what follows it, or nullptr where [p, end) does not
// begin with a whole varint of at most 64 bits.
inline const uint8_t* GetVarint(const uint8_t* p, const uint8_t* end,
                                uint64_t* v) {
  if (p < end && *p < 0x80) [[likely]] {
    *v = *p;
    return p + 1;
  }
  return GetLongVarint(p, end, v);
}

}  // namespace ingero

#endif  // INGERO_BASE_VARINT_H_
