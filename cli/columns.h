// SPDX-License-Identifier: Apache-2.0
// An answer as columns that Arrow takes as they are, for programs that take
// many rows (python/ingero/arrow.py). All little endian:
//
//   stream := "INGCOL01" u32 length, JSON {"version", "columns": [{"name",
//             "type"}]} batch* u32 0
//   batch  := u32 rows (up to 65,536), columns
//   column := integer, real: buffer(validity) buffer(8 bytes a value)
//             text:          buffer(validity) buffer(i32 offsets, rows + 1)
//                            buffer(bytes)
//             null:          nothing (no value was seen)
//   buffer := u64 length, bytes
//
// validity: a bit a row, from the lowest on; 1 = there is a value. What ends
// without the last u32 is not whole.
#ifndef INGERO_CLI_COLUMNS_H_
#define INGERO_CLI_COLUMNS_H_

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "query/table.h"

namespace ingero::cli {

// With its line break; RFC 4180, but that lines end as they do here.
std::string CsvLine(const std::vector<query::Value>& row);

class ColumnWriter {
 public:
  explicit ColumnWriter(std::FILE* out) : out_(out) {}
  // types: as the tables declare them; nullopt (of an expression): as its first
  // values are.
  void Begin(const std::vector<std::string>& names,
             const std::vector<std::optional<query::Type>>& types);
  // An error where a value does not fit its column's type.
  Status Add(const std::vector<query::Value>& row);
  void Finish();

  static constexpr size_t kBatchRows = 65536;
  static constexpr size_t kBatchTextBytes = 64u << 20;

 private:
  struct Column {
    std::string name;
    std::optional<query::Type> type;
    bool fixed = false;  // `type` was written
    std::vector<query::Value> values;
  };
  void Flush();

  std::FILE* out_;
  std::vector<Column> columns_;
  size_t rows_ = 0, text_bytes_ = 0;
  bool begun_ = false;
};

}  // namespace ingero::cli

#endif  // INGERO_CLI_COLUMNS_H_
