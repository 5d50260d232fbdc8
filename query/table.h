// SPDX-License-Identifier: Apache-2.0
// Tables of a store for SQL: columns with their units, and a scan that leaves
// out early what the question does not ask for.
//
// Threads: one. Texts that a row hands out live until its next Next().
#ifndef INGERO_QUERY_TABLE_H_
#define INGERO_QUERY_TABLE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/interval.h"

namespace ingero::query {

// monostate: NULL, "not known" or "does not apply".
using Value = std::variant<std::monostate, int64_t, double, std::string>;
enum class Type { kInteger, kReal, kText };

struct ColumnInfo {
  const char* name;
  Type type;
  const char* about;  // meaning and unit
};

// What of a question a scan may use. SQL checks every row again, so a scan may
// give more rows than these let through, never fewer.
struct Filter {
  Interval window;  // of the column `time`
  std::optional<int64_t> pid;
  std::optional<std::string> name;
  // Asked now and then by a scan that passes over many rows: true = give up.
  std::function<bool()> stop;
};

class RowSource {
 public:
  virtual ~RowSource() = default;
  virtual bool Next() = 0;
  virtual Value Get(size_t column) const = 0;
};

struct Table {
  const char* name;
  const char* about;
  std::vector<ColumnInfo> columns;
  // Columns that Filter is about; -1 = the table has none. `time` is in ns,
  // `at` the same in seconds from the recording's begin.
  int time = -1, at = -1, pid = -1, name_column = -1;
  double rows = 1000;  // estimate, for the planner
  std::function<std::unique_ptr<RowSource>(const Filter&)> scan;

  int Find(std::string_view column) const {
    for (size_t i = 0; i < columns.size(); ++i)
      if (columns[i].name == column) return static_cast<int>(i);
    return -1;
  }
};

// A view: SQL over tables, offered under a name.
struct View {
  const char* name;
  const char* about;
  const char* sql;
};

// A table of rows of one C++ type: a column is a name and how to get it.
template <typename Row>
struct Column {
  ColumnInfo info;
  std::function<Value(const Row&)> get;
};

template <typename Row>
class TypedSource : public RowSource {
 public:
  // next: false at the end.
  TypedSource(std::shared_ptr<const std::vector<Column<Row>>> columns,
              std::function<bool(Row*)> next)
      : columns_(std::move(columns)), next_(std::move(next)) {}
  bool Next() override { return next_(&row_); }
  Value Get(size_t column) const override {
    return (*columns_)[column].get(row_);
  }

 private:
  std::shared_ptr<const std::vector<Column<Row>>> columns_;
  std::function<bool(Row*)> next_;
  Row row_{};
};

// open: Filter -> function that gives the next row.
template <typename Row>
Table MakeTable(
    const char* name, const char* about, std::vector<Column<Row>> columns,
    std::function<std::function<bool(Row*)>(const Filter&)> open) {
  Table table{name, about, {}, -1, -1, -1, -1, 1000, nullptr};
  for (const Column<Row>& c : columns) table.columns.push_back(c.info);
  table.at = table.Find("at_s");
  for (const char* time : {"t_ns", "begin_ns"})
    if (table.time < 0) table.time = table.Find(time);
  table.pid = table.Find("pid");
  auto shared =
      std::make_shared<const std::vector<Column<Row>>>(std::move(columns));
  table.scan = [shared, open = std::move(open)](const Filter& filter) {
    return std::make_unique<TypedSource<Row>>(shared, open(filter));
  };
  return table;
}

}  // namespace ingero::query

#endif  // INGERO_QUERY_TABLE_H_
