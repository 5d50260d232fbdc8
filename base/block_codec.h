// SPDX-License-Identifier: Apache-2.0
// Coded blocks: a few thousand rows of fixed columns, sorted by time, made
// small. The companion's stream files and the LMDB store hold the same blocks,
// so merge copies a kernel block without decoding it into rows.
//
// A block on disk:
//
//   BlockPreamble (48 bytes, little endian)
//   payload: zstd frame (or plain, by `encoding`) of
//     for each column: its values as LEB128 varints, transformed by the
//     column's Transform; then for each text column: lengths, then bytes.
//
// The CRC covers preamble (crc field as 0) and payload. A reader refuses a
// block whose magic, sizes, CRC, table or column count do not fit, and never
// reads outside the given bytes whatever they hold.
//
// Threads: encoder and decoder objects are for one thread; free functions are
// pure. Errors: Status; never a crash on any input (fuzzed).
#ifndef INGERO_BASE_BLOCK_CODEC_H_
#define INGERO_BASE_BLOCK_CODEC_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/interval.h"
#include "base/status.h"

namespace ingero {

// How a column's values are made small before varint and zstd. On disk.
enum class Transform : uint8_t {
  kPlain = 0,      // unsigned value
  kZigzag = 1,     // signed value
  kDelta = 2,      // signed difference to the previous row, zigzag
  kMinusTime = 3,  // 0 stays 0; else z = zigzag(column 0 (time) - value), plus
                   // 1 where z is below what 0 would get: for times near the
                   // row's own time; any value survives
};

struct Column {
  const char* name;  // for dump and SQL
  Transform transform;
};

// Describes a table; ids and column order are on disk: append columns only
// (a reader fills missing trailing columns with 0 and ignores extra ones).
struct TableSchema {
  uint16_t id;
  const char* name;
  std::span<const Column> columns;  // column 0 is the time in ns
  bool has_text;                    // one byte string per row
};

// Rows of one table. Row-major: row r, column c at values[r * columns + c].
struct Rows {
  const TableSchema* schema = nullptr;
  std::vector<uint64_t> values;
  std::vector<std::string> texts;  // one per row where schema->has_text

  size_t columns() const { return schema->columns.size(); }
  size_t size() const {
    return schema == nullptr ? 0 : values.size() / columns();
  }
  uint64_t at(size_t row, size_t column) const {
    return values[row * columns() + column];
  }
  std::span<const uint64_t> row(size_t r) const {
    return {values.data() + r * columns(), columns()};
  }
  // REQUIRES: row.size() == columns()
  void Append(std::span<const uint64_t> row, std::string_view text = {});
  void Clear();
};

inline constexpr uint32_t kBlockMagic = 0x31424b42;  // "BKB1"

struct BlockPreamble {
  uint32_t magic = kBlockMagic;
  uint32_t crc = 0;  // crc32c
  uint16_t table = 0;
  uint8_t columns = 0;
  uint8_t encoding = 0;  // 0 plain, 1 zstd
  uint32_t rows = 0;
  uint32_t owner = 0;  // cpu, process index, ...: by table
  uint32_t raw_bytes = 0;
  uint32_t payload_bytes = 0;
  uint32_t reserved = 0;
  int64_t first_ns = 0;  // smallest time
  int64_t last_ns = 0;   // largest time
};
static_assert(sizeof(BlockPreamble) == 48);

inline constexpr size_t kMaxBlockRows = 1 << 16;
inline constexpr size_t kMaxBlockRawBytes = 16u << 20;
// Of all rows together; more ends in a failed CHECK, so writers begin a new
// block before.
inline constexpr size_t kMaxBlockTextBytes = 4u << 20;

// zstd's level. While recording, CPU time is the program's; what is kept is
// written once and read often: 5 % smaller, for 4 times the time to compress
// and none to read.
enum class Effort : int { kRecord = 1, kKeep = 6 };

// Appends one encoded block to *out. `rows` need not be sorted, but first_ns
// and last_ns are its true extremes.
// REQUIRES: 0 < rows.size() <= kMaxBlockRows, texts <= kMaxBlockTextBytes
void EncodeBlock(const Rows& rows, uint32_t owner, std::string* out,
                 Effort effort = Effort::kRecord);

// Checks and reads the preamble of the block that `bytes` begins with. The
// payload need not be there yet and the CRC is not checked: see CheckBlock.
Result<BlockPreamble> ReadPreamble(std::string_view bytes);

// Checks preamble, length and CRC of the block that `bytes` begins with, for
// those who copy a block without decoding it.
Status CheckBlock(std::string_view bytes);

// Total size of the block that a preamble describes.
inline size_t BlockBytes(const BlockPreamble& p) {
  return sizeof(BlockPreamble) + p.payload_bytes;
}

// Decodes the block that `bytes` begins with into *rows (cleared first).
// `schema` must be the block's table.
Status DecodeBlock(std::string_view bytes, const TableSchema& schema,
                   Rows* rows);

}  // namespace ingero

#endif  // INGERO_BASE_BLOCK_CODEC_H_
