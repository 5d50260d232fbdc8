// SPDX-License-Identifier: Apache-2.0
#include "base/block_codec.h"

#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>

#include "base/crc32c.h"
#include "base/varint.h"

namespace ingero {
namespace {

constexpr uint8_t kEncodingPlain = 0;
constexpr uint8_t kEncodingZstd = 1;

// Contexts and buffers are reused: making a zstd context costs more than
// coding a block.
struct Scratch {
  struct FreeC {
    void operator()(ZSTD_CCtx* c) const { ZSTD_freeCCtx(c); }
  };
  struct FreeD {
    void operator()(ZSTD_DCtx* d) const { ZSTD_freeDCtx(d); }
  };
  std::unique_ptr<ZSTD_CCtx, FreeC> compress;
  std::unique_ptr<ZSTD_DCtx, FreeD> decompress;
  std::unique_ptr<uint8_t[]> raw;
  size_t raw_capacity = 0;

  // At least `size` bytes, contents undefined.
  uint8_t* Raw(size_t size) {
    if (size > raw_capacity) {
      raw_capacity = std::max(size, 2 * raw_capacity);
      raw = std::make_unique_for_overwrite<uint8_t[]>(raw_capacity);
    }
    return raw.get();
  }
};

Scratch& ThreadScratch() {
  thread_local Scratch scratch;
  return scratch;
}

// A value's code, given the row's time and the previous row's value.
template <Transform kTransform>
uint64_t EncodeValue(uint64_t value, uint64_t previous, uint64_t time) {
  switch (kTransform) {
    case Transform::kPlain:
      return value;
    case Transform::kZigzag:
      return ZigzagEncode(value);
    case Transform::kDelta:
      return ZigzagEncode(value - previous);
    case Transform::kMinusTime: {
      if (value == 0) return 0;
      const uint64_t z = ZigzagEncode(time - value);
      return z + (z < ZigzagEncode(time) ? 1 : 0);
    }
  }
}

template <Transform kTransform>
uint64_t DecodeValue(uint64_t code, uint64_t previous, uint64_t time) {
  switch (kTransform) {
    case Transform::kPlain:
      return code;
    case Transform::kZigzag:
      return ZigzagDecode(code);
    case Transform::kDelta:
      return previous + ZigzagDecode(code);
    case Transform::kMinusTime:
      if (code == 0) return 0;
      return time -
             ZigzagDecode(code - (code <= ZigzagEncode(time) ? 1 : 0));
  }
}

template <Transform kTransform>
uint8_t* EncodeColumn(const uint64_t* values, size_t rows, size_t columns,
                      size_t column, uint8_t* p) {
  uint64_t previous = 0;
  for (size_t r = 0; r < rows; ++r) {
    const uint64_t* row = values + r * columns;
    const uint64_t value = row[column];
    p = PutVarint(p, EncodeValue<kTransform>(value, previous, row[0]));
    previous = value;
  }
  return p;
}

// Decodes into values, which are 0 before. nullptr where the bytes do not fit.
template <Transform kTransform>
const uint8_t* DecodeColumn(const uint8_t* p, const uint8_t* end, size_t rows,
                            size_t columns, size_t column, uint64_t* values) {
  uint64_t previous = 0;
  for (size_t r = 0; r < rows; ++r) {
    // Most columns are mostly 0 ("no waker", "no faults"): eight rows at once.
    if constexpr (kTransform != Transform::kDelta) {
      uint64_t eight;
      while (rows - r >= 8 && end - p >= 8 &&
             (std::memcpy(&eight, p, 8), eight == 0)) {
        r += 8;
        p += 8;
      }
      if (r == rows) break;
    }
    uint64_t code;
    p = GetVarint(p, end, &code);
    if (p == nullptr) return nullptr;
    uint64_t* row = values + r * columns;
    const uint64_t value = DecodeValue<kTransform>(code, previous, row[0]);
    row[column] = value;
    previous = value;
  }
  return p;
}

const uint8_t* SkipColumn(const uint8_t* p, const uint8_t* end, size_t rows) {
  uint64_t ignored;
  for (size_t r = 0; r < rows && p != nullptr; ++r)
    p = GetVarint(p, end, &ignored);
  return p;
}

// Calls f.template operator()<transform>().
template <typename F>
auto WithTransform(Transform transform, F f) {
  switch (transform) {
    case Transform::kZigzag:
      return f.template operator()<Transform::kZigzag>();
    case Transform::kDelta:
      return f.template operator()<Transform::kDelta>();
    case Transform::kMinusTime:
      return f.template operator()<Transform::kMinusTime>();
    case Transform::kPlain:
      break;
  }
  return f.template operator()<Transform::kPlain>();
}

uint32_t BlockCrc(BlockPreamble preamble, std::string_view payload) {
  preamble.crc = 0;
  const std::string_view head(reinterpret_cast<const char*>(&preamble),
                              sizeof(preamble));
  return Crc32c(payload, Crc32c(head));
}

}  // namespace

void Rows::Append(std::span<const uint64_t> row, std::string_view text) {
  values.insert(values.end(), row.begin(), row.end());
  if (schema->has_text) texts.emplace_back(text);
}

void Rows::Clear() {
  values.clear();
  texts.clear();
}

void EncodeBlock(const Rows& rows, uint32_t owner, std::string* out,
                 Effort effort) {
  const TableSchema& schema = *rows.schema;
  const size_t count = rows.size();
  const size_t columns = rows.columns();
  INGERO_CHECK(count > 0 && count <= kMaxBlockRows);
  INGERO_CHECK(!schema.has_text || rows.texts.size() == count);
  size_t text_bytes = 0;
  if (schema.has_text)
    for (const std::string& text : rows.texts) text_bytes += text.size();
  INGERO_CHECK(text_bytes <= kMaxBlockTextBytes);

  Scratch& scratch = ThreadScratch();
  const size_t varints = count * (columns + (schema.has_text ? 1 : 0));
  uint8_t* raw = scratch.Raw(varints * kMaxVarintBytes + text_bytes);
  uint8_t* p = raw;
  const uint64_t* values = rows.values.data();
  for (size_t c = 0; c < columns; ++c)
    p = WithTransform(schema.columns[c].transform, [&]<Transform kTransform>() {
      return EncodeColumn<kTransform>(values, count, columns, c, p);
    });
  if (schema.has_text) {
    for (const std::string& text : rows.texts) p = PutVarint(p, text.size());
    for (const std::string& text : rows.texts)
      p = std::copy(text.begin(), text.end(), p);
  }
  const size_t raw_bytes = static_cast<size_t>(p - raw);
  INGERO_CHECK(raw_bytes <= kMaxBlockRawBytes);

  BlockPreamble preamble;
  preamble.table = schema.id;
  preamble.columns = static_cast<uint8_t>(columns);
  preamble.rows = static_cast<uint32_t>(count);
  preamble.owner = owner;
  preamble.raw_bytes = static_cast<uint32_t>(raw_bytes);
  preamble.first_ns = preamble.last_ns = static_cast<int64_t>(values[0]);
  for (size_t r = 1; r < count; ++r) {
    const int64_t t = static_cast<int64_t>(values[r * columns]);
    preamble.first_ns = std::min(preamble.first_ns, t);
    preamble.last_ns = std::max(preamble.last_ns, t);
  }

  if (scratch.compress == nullptr) {
    scratch.compress.reset(ZSTD_createCCtx());
    if (scratch.compress == nullptr) throw std::bad_alloc();
  }
  const size_t begin = out->size();
  const size_t bound = ZSTD_compressBound(raw_bytes);
  out->resize(begin + sizeof(preamble) + bound);
  char* payload = out->data() + begin + sizeof(preamble);
  size_t payload_bytes =
      ZSTD_compressCCtx(scratch.compress.get(), payload, bound, raw, raw_bytes,
                        static_cast<int>(effort));
  if (ZSTD_isError(payload_bytes) || payload_bytes >= raw_bytes) {
    preamble.encoding = kEncodingPlain;
    payload_bytes = raw_bytes;
    std::memcpy(payload, raw, raw_bytes);
  } else {
    preamble.encoding = kEncodingZstd;
  }
  preamble.payload_bytes = static_cast<uint32_t>(payload_bytes);
  preamble.crc = BlockCrc(preamble, {payload, payload_bytes});
  std::memcpy(out->data() + begin, &preamble, sizeof(preamble));
  out->resize(begin + sizeof(preamble) + payload_bytes);
}

Result<BlockPreamble> ReadPreamble(std::string_view bytes) {
  BlockPreamble p;
  if (bytes.size() < sizeof(p)) return Status::Error("block: cut off");
  std::memcpy(&p, bytes.data(), sizeof(p));
  if (p.magic != kBlockMagic) return Status::Error("block: wrong magic");
  const bool sizes_fit =
      p.rows > 0 && p.rows <= kMaxBlockRows && p.columns > 0 &&
      p.raw_bytes <= kMaxBlockRawBytes && p.payload_bytes <= p.raw_bytes &&
      // Every value takes a byte at least.
      uint64_t{p.rows} * p.columns <= p.raw_bytes &&
      (p.encoding == kEncodingZstd ||
       (p.encoding == kEncodingPlain && p.payload_bytes == p.raw_bytes));
  if (!sizes_fit) return Status::Error("block: impossible size or encoding");
  return p;
}

Status CheckBlock(std::string_view bytes) {
  INGERO_ASSIGN_OR_RETURN(const BlockPreamble preamble, ReadPreamble(bytes));
  if (bytes.size() < BlockBytes(preamble))
    return Status::Error("block: cut off");
  const std::string_view payload =
      bytes.substr(sizeof(preamble), preamble.payload_bytes);
  if (BlockCrc(preamble, payload) != preamble.crc)
    return Status::Error("block: checksum does not match");
  return {};
}

Status DecodeBlock(std::string_view bytes, const TableSchema& schema,
                   Rows* rows) {
  rows->schema = &schema;
  rows->Clear();
  INGERO_RETURN_IF_ERROR(CheckBlock(bytes));
  INGERO_ASSIGN_OR_RETURN(const BlockPreamble preamble, ReadPreamble(bytes));
  if (preamble.table != schema.id)
    return Status::Error("block: of table " + std::to_string(preamble.table) +
                         ", not " + schema.name);

  const auto* p =
      reinterpret_cast<const uint8_t*>(bytes.data()) + sizeof(preamble);
  if (preamble.encoding == kEncodingZstd) {
    Scratch& scratch = ThreadScratch();
    if (scratch.decompress == nullptr) {
      scratch.decompress.reset(ZSTD_createDCtx());
      if (scratch.decompress == nullptr) throw std::bad_alloc();
    }
    uint8_t* raw = scratch.Raw(preamble.raw_bytes);
    const size_t size =
        ZSTD_decompressDCtx(scratch.decompress.get(), raw, preamble.raw_bytes,
                            p, preamble.payload_bytes);
    if (ZSTD_isError(size) || size != preamble.raw_bytes)
      return Status::Error("block: does not decompress");
    p = raw;
  }
  const uint8_t* end = p + preamble.raw_bytes;

  const size_t count = preamble.rows;
  const size_t columns = schema.columns.size();
  rows->values.assign(count * columns, 0);
  for (size_t c = 0; c < preamble.columns && p != nullptr; ++c) {
    if (c >= columns) {  // of a newer ingero
      p = SkipColumn(p, end, count);
      continue;
    }
    p = WithTransform(schema.columns[c].transform, [&]<Transform kTransform>() {
      return DecodeColumn<kTransform>(p, end, count, columns, c,
                                      rows->values.data());
    });
  }
  if (p != nullptr && schema.has_text) {
    const uint8_t* lengths = p;
    p = SkipColumn(p, end, count);
    rows->texts.reserve(p == nullptr ? 0 : count);
    for (size_t r = 0; r < count && p != nullptr; ++r) {
      uint64_t length = 0;
      lengths = GetVarint(lengths, end, &length);
      if (length > static_cast<uint64_t>(end - p)) {
        p = nullptr;
        break;
      }
      rows->texts.emplace_back(reinterpret_cast<const char*>(p), length);
      p += length;
    }
  }
  if (p != end) {
    rows->Clear();
    return Status::Error("block: rows do not fit the payload");
  }
  return {};
}

}  // namespace ingero
