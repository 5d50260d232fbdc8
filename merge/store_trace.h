// SPDX-License-Identifier: Apache-2.0
// A store opened for reading: the analysis's view of it.
//
// Opens read-only, also on read-only media; never creates or changes a file
// there but the LMDB lock file where that is possible. A file that is not a
// store, is damaged, or is of another version gives one line, never a signal.
#ifndef INGERO_MERGE_STORE_TRACE_H_
#define INGERO_MERGE_STORE_TRACE_H_

#include <memory>
#include <string>
#include <vector>

#include "analysis/report.h"
#include "base/status.h"

namespace ingero::merge {

// `path` is the store's folder, or the data.mdb in it.
Result<std::unique_ptr<analysis::ReportSource>> OpenStore(
    const std::string& path);

struct FoundStore {
  std::string path;
  std::string note;  // "", or why it may not be the one that is meant
};
// The newest merged store of the first of the folders (for the CLI:
// DefaultTraceDirs()) that has one; an error that says which command makes one
// where there is none.
Result<FoundStore> FindNewestStore(const std::vector<std::string>& dirs);

}  // namespace ingero::merge

#endif  // INGERO_MERGE_STORE_TRACE_H_
