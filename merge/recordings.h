// SPDX-License-Identifier: Apache-2.0
// Looking at stream files without reading them whole.
#ifndef INGERO_MERGE_RECORDINGS_H_
#define INGERO_MERGE_RECORDINGS_H_

#include <string>
#include <vector>

#include "merge/merge.h"
#include "merge/stream.h"

namespace ingero::merge {

// Reads the header and where the stream ends. What can't be read, or is no
// stream, has a `problem`.
StreamInfo InspectStream(const std::string& path);

// Folders in `dir` that have a store's name (not opened).
std::vector<std::string> ListStores(const std::string& dir);

// Whether the process that wrote this header still runs (same pid namespace,
// same boot, same start time).
bool WriterRuns(const ingero_stream_header& header);

}  // namespace ingero::merge

#endif  // INGERO_MERGE_RECORDINGS_H_
