// SPDX-License-Identifier: Apache-2.0
// What commands that merge share. Defined in cmd_merge.cc.
#ifndef INGERO_CLI_MERGING_H_
#define INGERO_CLI_MERGING_H_

#include <vector>

#include "cli/io.h"
#include "merge/merge.h"

namespace ingero::cli {

// With a line of progress on a terminal.
Result<merge::MergeSummary> MergeWithProgress(
    merge::MergeOptions options,
    const std::vector<merge::Recording>& recordings, const Io& io);

}  // namespace ingero::cli

#endif  // INGERO_CLI_MERGING_H_
