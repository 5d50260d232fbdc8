// SPDX-License-Identifier: Apache-2.0
// The tables and views of a store. To add one: a MakeTable() in
// store_tables.cc, or a row of kViews there.
#ifndef INGERO_QUERY_STORE_TABLES_H_
#define INGERO_QUERY_STORE_TABLES_H_

#include <span>
#include <vector>

#include "analysis/attribution.h"
#include "analysis/trace.h"
#include "query/table.h"

namespace ingero::merge {
class TraceReader;
}

namespace ingero::query {

// `reader` must outlive them.
std::vector<Table> StoreTables(const merge::TraceReader& reader);
std::span<const View> StoreViews();

// "running", "runnable", ...: as columns have them.
const char* StateName(analysis::ThreadState state);
const char* NameOf(analysis::Reason reason);
const char* NameOf(analysis::FeedState state);

}  // namespace ingero::query

#endif  // INGERO_QUERY_STORE_TABLES_H_
