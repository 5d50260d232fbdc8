// SPDX-License-Identifier: Apache-2.0
// The ranges that programs marked with NVTX, counted and timed by name.
#ifndef INGERO_MERGE_NVTX_H_
#define INGERO_MERGE_NVTX_H_

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/trace.h"
#include "base/interval.h"

namespace ingero::merge {

class TraceReader;

struct NvtxSummary {
  analysis::ProcessIndex process = analysis::kNone;
  std::string domain, name;
  bool mark = false;  // a moment, not a range
  bool open = false;  // without an end: as long as they are known to have lasted
  uint64_t count = 0;
  Ns total, average, p50, p95, p99, max;
};

// Of what begins in `window`, longest total first. Reads the ranges
// themselves. Memory: a histogram for each name.
std::vector<NvtxSummary> SummarizeNvtx(const TraceReader& reader,
                                       Interval window);

}  // namespace ingero::merge

#endif  // INGERO_MERGE_NVTX_H_
