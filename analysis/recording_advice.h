// SPDX-License-Identifier: Apache-2.0
// What to record the next time, where the scheduler's side is missing: beside a
// trace of another profiler ingero-kprobe is of no use, since what it records is
// not joined with one.
#ifndef INGERO_ANALYSIS_RECORDING_ADVICE_H_
#define INGERO_ANALYSIS_RECORDING_ADVICE_H_

#include <string>

#include "analysis/report.h"

namespace ingero::analysis {

// Nothing of it was recorded by ingero, as what that cost is not known.
bool IsImported(const TraceFacts& facts);
// Why rules that need the scheduler were not evaluated, and what to do.
std::string NoScheduling(const Report& report);
// The same as a recommendation.
std::string RecordScheduling(const Report& report);

}  // namespace ingero::analysis

#endif  // INGERO_ANALYSIS_RECORDING_ADVICE_H_
