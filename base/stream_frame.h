// SPDX-License-Identifier: Apache-2.0
// Records and blocks of a CUDA stream (wire/wire.h) as whoever writes one
// without the shim frames them: the importer, and tests. Pure functions.
#ifndef INGERO_BASE_STREAM_FRAME_H_
#define INGERO_BASE_STREAM_FRAME_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "base/stream_check.h"
#include "wire/wire.h"

namespace ingero {

// Zeroed, so that padding is.
template <typename T>
T Zeroed() {
  T value;
  std::memset(&value, 0, sizeof(value));
  return value;
}

template <typename T>
std::string BytesOf(const T& value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

// Cut where it does not fit; the rest of `to` is zeroed.
template <size_t kSize>
void CopyText(char (&to)[kSize], std::string_view text) {
  std::memset(to, 0, kSize);
  std::memcpy(to, text.data(), std::min(text.size(), kSize - 1));
}

// A record: `value`, which begins with its ingero_record (filled in here), and
// what follows it.
template <typename T>
std::string FrameRecord(uint8_t kind, uint8_t flags, const T& value,
                        std::string_view more = {}) {
  std::string bytes = BytesOf(value);
  bytes += more;
  bytes.resize((bytes.size() + 7) / 8 * 8);
  ingero_record r;
  r.kind = kind;
  r.flags = flags;
  r.size8 = static_cast<uint16_t>(bytes.size() / 8);
  std::memcpy(bytes.data(), &r, sizeof(r));
  return bytes;
}

inline constexpr size_t kMostRecordBytesOfBlock =
    INGERO_BLOCK_BYTES - sizeof(ingero_block_header);

// A full slot as its thread writes it out. `checked`: false as version 1.0.
inline std::string FrameDataBlock(uint32_t slot, uint32_t sequence,
                                  uint32_t tid, std::string_view records,
                                  bool checked = true) {
  auto b = Zeroed<ingero_block_header>();
  b.magic = INGERO_MAGIC_BLOCK;
  b.type = INGERO_BLOCK_DATA;
  b.slot = slot;
  b.tid = tid;
  b.cursor = uint64_t{sequence} << 32 | records.size();
  if (checked) SealBlockHeader(&b, records);
  std::string block = BytesOf(b);
  block += records;
  block.resize(INGERO_BLOCK_BYTES);
  return block;
}

}  // namespace ingero

#endif  // INGERO_BASE_STREAM_FRAME_H_
