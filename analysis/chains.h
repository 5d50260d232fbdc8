// SPDX-License-Identifier: Apache-2.0
// Operations with a long tail: what their slow calls' threads did meanwhile.
#ifndef INGERO_ANALYSIS_CHAINS_H_
#define INGERO_ANALYSIS_CHAINS_H_

#include <string>
#include <vector>

#include "analysis/report.h"

namespace ingero::analysis {

bool HasLongTail(const Report& report, const Operation& operation);
// "cudaStreamSynchronize p99=42 ms (1,638x p50=25 us)".
std::string TailText(const Report& report, const Operation& operation);

// REQUIRES: the report's findings are complete.
std::vector<Chain> FindChains(const ReportSource& source, const Report& report);

}  // namespace ingero::analysis

#endif  // INGERO_ANALYSIS_CHAINS_H_
