// SPDX-License-Identifier: Apache-2.0
// Rows of one table in time order, from blocks that may overlap (one owner's
// follow each other; different CPUs' cover the same time).
//
// Memory: the decoded blocks that overlap at one moment, so about one an owner.
#ifndef INGERO_MERGE_ROW_CURSOR_H_
#define INGERO_MERGE_ROW_CURSOR_H_

#include <functional>
#include <queue>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/block_codec.h"
#include "base/interval.h"
#include "merge/store.h"

namespace ingero::merge {

// Replaces *bytes by the block's.
using BlockReader = std::function<Status(const BlockRef&, std::string* bytes)>;

class RowCursor {
 public:
  // Rows with `window.begin <= t < window.end` of these blocks, by (t, order
  // of the blocks, order in the block).
  RowCursor(const TableSchema& schema, std::vector<BlockRef> blocks,
            Interval window, BlockReader read);
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
    Rows rows;
    std::vector<uint32_t> order;  // empty: sorted as it is
    size_t next = 0, end = 0;     // positions within the window
    uint32_t owner = 0;
    size_t rank = 0;  // of the block
    int64_t t = 0;    // of row `next`
    size_t RowAt(size_t i) const { return order.empty() ? i : order[i]; }
  };
  struct Later {
    bool operator()(const Active* a, const Active* b) const {
      return a->t != b->t ? a->t > b->t : a->rank > b->rank;
    }
  };
  void Load(const BlockRef& ref, size_t rank);

  const TableSchema& schema_;
  std::vector<BlockRef> blocks_;  // by first_ns
  Interval window_;
  BlockReader read_;
  size_t next_block_ = 0;
  std::vector<std::unique_ptr<Active>> pool_;
  std::vector<Active*> free_;
  std::priority_queue<Active*, std::vector<Active*>, Later> heap_;
  Active* current_ = nullptr;  // not in the heap; its row was returned
  std::span<const uint64_t> row_;
  std::string_view text_;
  uint32_t owner_ = 0;
  std::string bytes_;
  std::vector<BlockRef> damaged_;
};

}  // namespace ingero::merge

#endif  // INGERO_MERGE_ROW_CURSOR_H_
