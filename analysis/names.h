// SPDX-License-Identifier: Apache-2.0
// What values are called in SQL, exports and printed queries.
#ifndef INGERO_ANALYSIS_NAMES_H_
#define INGERO_ANALYSIS_NAMES_H_

#include "analysis/attribution.h"
#include "analysis/trace.h"

namespace ingero::analysis {

// "running", "runnable", ...; nullptr: no such value.
const char* NameOf(ThreadState state);
const char* NameOf(Reason reason);
const char* NameOf(FeedState state);

}  // namespace ingero::analysis

#endif  // INGERO_ANALYSIS_NAMES_H_
