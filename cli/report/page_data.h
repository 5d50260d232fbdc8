// SPDX-License-Identifier: Apache-2.0
// What the page of `ingero report` draws, as JSON: the answer, tables, and a
// timeline in buckets, whose size does not depend on the recording's.
//
// Memory: the buckets, and a value for each thread.
#ifndef INGERO_CLI_REPORT_PAGE_DATA_H_
#define INGERO_CLI_REPORT_PAGE_DATA_H_

#include <nlohmann/json.hpp>

#include "analysis/report.h"
#include "merge/trace_reader.h"

namespace ingero::cli {

nlohmann::ordered_json PageData(const merge::TraceReader& trace,
                                const analysis::ReportOptions& options,
                                Interval window);

}  // namespace ingero::cli

#endif  // INGERO_CLI_REPORT_PAGE_DATA_H_
