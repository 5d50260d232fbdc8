// SPDX-License-Identifier: Apache-2.0
// Text twin of every binary format: prints a stream or a store, one event a
// line, times in ns on CLOCK_MONOTONIC.
#ifndef INGERO_MERGE_DUMP_H_
#define INGERO_MERGE_DUMP_H_

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/interval.h"
#include "base/status.h"

namespace ingero::merge {

enum class DumpFormat { kText, kJsonLines };

// `path`: a stream file, a store folder. `write` gets whole lines. Damage is
// reported in Status after everything readable has been written.
Status Dump(const std::string& path, DumpFormat format,
            const std::function<void(std::string_view)>& write);

// The same, but only what the filter lets through.
struct DumpFilter {
  // Name of a table (base/tables.h) or of a kind of record; "": all. An
  // unknown one is an error that lists those there are.
  std::string table;
  std::optional<Interval> window;  // rows whose time lies in it; absolute
};
Status Dump(const std::string& path, DumpFormat format,
            const DumpFilter& filter,
            const std::function<void(std::string_view)>& write);

// Whether a store or a stream has a table, or a kind of record, of this name.
bool IsDumpTable(const std::string& name);

}  // namespace ingero::merge

#endif  // INGERO_MERGE_DUMP_H_
