// SPDX-License-Identifier: Apache-2.0
// The folder that a new store is written to.
#ifndef INGERO_MERGE_STORE_OUTPUT_H_
#define INGERO_MERGE_STORE_OUTPUT_H_

#include <string>

#include "base/leftover.h"
#include "base/status.h"

namespace ingero::merge {

// Whether the file is LMDB's, or empty: a store, if only a damaged one.
bool IsLmdb(const std::string& path);

// Whether a store can be written to the folder `store`, which is not made yet:
// so that it shows before a program runs for hours. What is there and is no
// store is left alone; beside the streams (`own`) it is one of ours, broken.
Status CheckStoreOutput(const std::string& store, bool own = false);

// The same of a store that must be a new one.
Status CheckNewStore(const std::string& store);

// CheckStoreOutput(), and makes the folder where there is none. It is removed
// with what is returned, unless that is told to keep it: `own` ones, which
// others may wait to write to, stay.
Result<Leftover> MakeStoreFolder(const std::string& store, bool own = false);

}  // namespace ingero::merge

#endif  // INGERO_MERGE_STORE_OUTPUT_H_
