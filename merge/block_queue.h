// SPDX-License-Identifier: Apache-2.0
// Rows to be coded and blocks to be kept, by a thread of the queue, in the order
// in which they came.
//
// Memory: kMaxItems of about 1 MiB at most; emptied rows go back to the caller.
//
// Threads: one caller. Errors: of the thread, returned by the next call.
#ifndef INGERO_MERGE_BLOCK_QUEUE_H_
#define INGERO_MERGE_BLOCK_QUEUE_H_

#include <functional>
#include <memory>
#include <string>

#include "base/block_codec.h"
#include "base/status.h"

namespace ingero::merge {

class BlockQueue {
 public:
  using Put = std::function<Status(std::string block)>;
  using Commit = std::function<Status()>;
  // What is done to rows before they are coded, on the thread.
  using Prepare = void (*)(Rows*);

  // Both are called by the thread.
  static Result<std::unique_ptr<BlockQueue>> Start(Put put, Commit commit);
  // What waits is not put.
  ~BlockQueue();
  BlockQueue(const BlockQueue&) = delete;
  BlockQueue& operator=(const BlockQueue&) = delete;

  Status PutBlock(std::string block);
  // No-op for no rows. *rows is empty afterwards.
  Status PutRows(Rows* rows, uint32_t owner, Prepare prepare = nullptr);
  // Puts and commits all that is queued, and waits for it.
  Status Flush();

  // Few: rows that are still in a cache are filled and coded faster.
  static constexpr ptrdiff_t kMaxItems = 8;

 private:
  struct Item;
  struct Shared;
  BlockQueue(Put put, Commit commit);
  Status Push(Item item);
  // Of the thread:
  void Run();
  Status Take(Item* item);

  Put put_;
  Commit commit_;
  std::unique_ptr<Shared> shared_;
};

// Makes `rows` ascend by column 0; equal ones stay in their order.
void SortByTime(Rows* rows);
// The same by column 0, then by `column`.
void SortByTimeAnd(Rows* rows, size_t column);

}  // namespace ingero::merge

#endif  // INGERO_MERGE_BLOCK_QUEUE_H_
