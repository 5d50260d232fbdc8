// SPDX-License-Identifier: Apache-2.0
// The tables and views of a store. To add one: a MakeTable() in
// store_tables.cc, or a row of kViews there.
#ifndef INGERO_QUERY_STORE_TABLES_H_
#define INGERO_QUERY_STORE_TABLES_H_

#include <span>
#include <vector>

#include "query/table.h"

namespace ingero::merge {
class TraceReader;
}

namespace ingero::query {

// `reader` must outlive them.
std::vector<Table> StoreTables(const merge::TraceReader& reader);
std::span<const View> StoreViews();

}  // namespace ingero::query

#endif  // INGERO_QUERY_STORE_TABLES_H_
