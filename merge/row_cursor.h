// SPDX-License-Identifier: Apache-2.0
// Rows of one table in time order, from blocks that may overlap (one owner's
// follow each other; different CPUs' cover the same time).
//
// Memory: of the blocks that overlap at one moment, about one an owner, the rows
// in the window (the whole block where those are a quarter of it), and two
// blocks for each decoder.
#ifndef INGERO_MERGE_ROW_CURSOR_H_
#define INGERO_MERGE_ROW_CURSOR_H_

#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/block_codec.h"
#include "base/interval.h"
#include "merge/store.h"

namespace ingero::merge {

template <typename T>
class Ahead;

// Replaces *bytes by the block's. Decoders call it from their threads.
using BlockReader = std::function<Status(const BlockRef&, std::string* bytes)>;

// Rows of a block, by time.
struct SortedRows {
  Rows rows;
  std::vector<uint32_t> order;  // empty: sorted as they are
  size_t RowAt(size_t i) const { return order.empty() ? i : order[i]; }
  int64_t TimeAt(size_t i) const {
    return static_cast<int64_t>(rows.at(RowAt(i), 0));
  }
};

// Decoded blocks that reach back before the window that they were read for: who
// reads window after window, from the newest to the oldest, needs them again.
//
// Threads: any. Memory: kMostValues of 8 bytes, and texts.
class BlockCache {
 public:
  // Of the block at this offset of the file; it is not kept any more. nullptr
  // where it was not.
  std::shared_ptr<const SortedRows> Take(uint64_t offset);
  void Put(uint64_t offset, std::shared_ptr<const SortedRows> rows);

 private:
  static constexpr size_t kMostValues = 8u << 20;
  std::mutex mutex_;
  std::unordered_map<uint64_t, std::shared_ptr<const SortedRows>> blocks_;
  size_t values_ = 0;
};

class RowCursor {
 public:
  // Rows with `window.begin <= t < window.end` of these blocks, by (t, order
  // of the blocks, order in the block). decoders: threads that read and decode
  // blocks ahead; the rows are the same with any number of them.
  RowCursor(const TableSchema& schema, std::vector<BlockRef> blocks,
            Interval window, BlockReader read, size_t decoders = 0,
            BlockCache* cache = nullptr);
  virtual ~RowCursor();
  RowCursor(const RowCursor&) = delete;
  RowCursor& operator=(const RowCursor&) = delete;

  // False at the end. What the accessors return lives until the next call.
  bool Next();
  int64_t time() const { return static_cast<int64_t>(row_[0]); }
  uint32_t owner() const { return owner_; }
  std::span<const uint64_t> row() const { return row_; }
  std::string_view text() const { return text_; }

  // Blocks that could not be read or decoded, and were left out.
  const std::vector<BlockRef>& damaged() const { return damaged_; }

 private:
  struct Active {
    std::shared_ptr<const SortedRows> rows;
    bool damaged = false;
    size_t next = 0, end = 0;  // positions within the window
    uint32_t owner = 0;
    size_t rank = 0;  // of the block
    int64_t t = 0;    // of row `next`
  };
  static bool Later(const Active& a, const Active& b) {
    return a.t != b.t ? a.t > b.t : a.rank > b.rank;
  }
  void Decode(const BlockRef& ref, std::string* bytes, Active* a) const;
  void Load(size_t rank);
  void SiftDown();

  const TableSchema& schema_;
  std::vector<BlockRef> blocks_;  // by first_ns
  Interval window_;
  BlockReader read_;
  BlockCache* cache_;
  size_t next_block_ = 0;
  std::vector<std::unique_ptr<Active>> pool_;
  std::vector<Active*> free_;
  std::vector<Active*> heap_;  // the earliest row first
  bool returned_ = false;      // the first one's row
  std::span<const uint64_t> row_;
  std::string_view text_;
  uint32_t owner_ = 0;
  std::vector<BlockRef> damaged_;
  struct Read;
  std::unique_ptr<Ahead<Read>> ahead_;  // last: its threads use the others
};

}  // namespace ingero::merge

#endif  // INGERO_MERGE_ROW_CURSOR_H_
