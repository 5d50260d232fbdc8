// SPDX-License-Identifier: Apache-2.0
// Looking at stream files without reading them whole.
#ifndef INGERO_MERGE_RECORDINGS_H_
#define INGERO_MERGE_RECORDINGS_H_

#include <optional>
#include <string>
#include <vector>

#include "merge/merge.h"
#include "merge/stream.h"

namespace ingero::merge {

// Reads the header and where the stream ends. A file that is not a stream at
// all gives no info (nullopt); one that is but can't be read has a `problem`.
std::optional<StreamInfo> InspectStream(const std::string& path);

// Folders in `dir` that have a store's name (not opened).
std::vector<std::string> ListStores(const std::string& dir);

// Whether the process that wrote this header still runs (same pid namespace,
// same boot, same start time).
bool WriterRuns(const ingero_stream_header& header);

}  // namespace ingero::merge

#endif  // INGERO_MERGE_RECORDINGS_H_
