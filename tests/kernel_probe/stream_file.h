// SPDX-License-Identifier: Apache-2.0
// Reads a whole kernel stream for assertions: header, then every block of
// every table, rows in file order with the block's owner.
#ifndef INGERO_TESTS_KERNEL_PROBE_STREAM_FILE_H_
#define INGERO_TESTS_KERNEL_PROBE_STREAM_FILE_H_

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/block_codec.h"
#include "base/file.h"
#include "base/tables.h"
#include "wire/wire.h"

namespace ingero::test {

struct StreamRow {
  uint32_t owner;
  std::vector<uint64_t> values;
  std::string text;
  uint64_t operator[](size_t column) const { return values[column]; }
};

struct StreamFile {
  ingero_stream_header header{};
  std::map<uint16_t, std::vector<StreamRow>> tables;
  size_t blocks = 0;
  size_t torn_bytes = 0;  // after the last whole block
  size_t file_bytes = 0;

  const std::vector<StreamRow>& rows(const TableSchema& schema) {
    return tables[schema.id];
  }
};

inline Result<StreamFile> ReadStream(const std::string& path) {
  auto bytes = ReadWholeFile(path, size_t{4} << 30);
  if (!bytes.ok()) return bytes.status();
  StreamFile file;
  file.file_bytes = bytes->size();
  if (bytes->size() < INGERO_HEADER_BYTES)
    return Status::Error("shorter than a header");
  std::memcpy(&file.header, bytes->data(), sizeof(file.header));
  std::string_view rest(*bytes);
  rest.remove_prefix(file.header.header_bytes);
  while (!rest.empty()) {
    const auto preamble = ReadPreamble(rest);
    if (!preamble.ok() || BlockBytes(*preamble) > rest.size()) {
      file.torn_bytes = rest.size();
      break;
    }
    const TableSchema* schema = FindTable(preamble->table);
    if (schema == nullptr) return Status::Error("unknown table");
    Rows rows;
    INGERO_RETURN_IF_ERROR(DecodeBlock(rest, *schema, &rows));
    for (size_t r = 0; r < rows.size(); ++r) {
      const auto row = rows.row(r);
      file.tables[schema->id].push_back(
          {preamble->owner, {row.begin(), row.end()},
           schema->has_text ? rows.texts[r] : std::string()});
    }
    ++file.blocks;
    rest.remove_prefix(BlockBytes(*preamble));
  }
  return file;
}

}  // namespace ingero::test

#endif  // INGERO_TESTS_KERNEL_PROBE_STREAM_FILE_H_
