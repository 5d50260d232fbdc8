// SPDX-License-Identifier: Apache-2.0
// One writer per store.
#ifndef INGERO_MERGE_STORE_LOCK_H_
#define INGERO_MERGE_STORE_LOCK_H_

#include <string>

#include "base/file.h"
#include "base/status.h"

namespace ingero::merge {

// Held by whoever replaces a store's file; it dies with its holder.
class StoreLock {
 public:
  // `store`: its folder. Where another holds it: waits, or is an error.
  static Result<StoreLock> Take(const std::string& store, bool wait);

 private:
  explicit StoreLock(Fd fd) : fd_(std::move(fd)) {}
  Fd fd_;
};

}  // namespace ingero::merge

#endif  // INGERO_MERGE_STORE_LOCK_H_
