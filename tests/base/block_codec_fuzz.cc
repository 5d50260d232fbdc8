// SPDX-License-Identifier: Apache-2.0
// Any bytes into DecodeBlock and Histogram::Parse. Run for a minute with
//
//   build/tests/base/block_codec_fuzz -max_total_time=60
//
// The CRC is put right first: else nothing behind it would be reached.
#include <cstring>
#include <string>

#include "base/block_codec.h"
#include "base/crc32c.h"
#include "base/histogram.h"
#include "base/tables.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ingero;
  std::string bytes(reinterpret_cast<const char*>(data), size);
  (void)Histogram::Parse(bytes);
  Rows rows;
  for (const TableSchema* table : {&switch_table::kSchema, &task_table::kSchema})
    (void)DecodeBlock(bytes, *table, &rows);
  BlockPreamble p;
  if (size < sizeof(p)) return 0;
  std::memcpy(&p, bytes.data(), sizeof(p));
  p.magic = kBlockMagic;
  p.table = p.table % 2 == 0 ? task_table::kSchema.id : switch_table::kSchema.id;
  p.payload_bytes = static_cast<uint32_t>(size - sizeof(p));
  if (p.encoding == 0) p.raw_bytes = p.payload_bytes;
  p.crc = 0;
  std::memcpy(bytes.data(), &p, sizeof(p));
  p.crc = Crc32c(bytes);
  std::memcpy(bytes.data(), &p, sizeof(p));
  const TableSchema& schema = *FindTable(p.table);
  if (!DecodeBlock(bytes, schema, &rows).ok()) return 0;
  // What was accepted is whole, and survives another round.
  INGERO_CHECK(rows.size() == p.rows);
  INGERO_CHECK(!schema.has_text || rows.texts.size() == p.rows);
  std::string again;
  EncodeBlock(rows, p.owner, &again);
  Rows back;
  INGERO_CHECK(DecodeBlock(again, schema, &back).ok());
  INGERO_CHECK(back.values == rows.values && back.texts == rows.texts);
  return 0;
}
