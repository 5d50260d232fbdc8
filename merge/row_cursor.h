// SPDX-License-Identifier: Apache-2.0
// Rows of one table in time order, from blocks that may overlap (one owner's
// follow each other; different CPUs' cover the same time).
//
// Memory: the decoded blocks that overlap at one moment, so about one an owner,
// and two for each decoder.
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

// Decoded blocks that reach back before the window that they were read for: who
// reads window after window, from the newest to the oldest, needs them again.
//
// Threads: any. Memory: kMostValues of 8 bytes, and texts.
class BlockCache {
 public:
  // Of the block at this offset of the file. False where it is not kept.
  bool Take(uint64_t offset, Rows* rows);
  void Put(uint64_t offset, Rows rows);

 private:
  static constexpr size_t kMostValues = 8u << 20;
  std::mutex mutex_;
  std::unordered_map<uint64_t, Rows> blocks_;
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
    Rows rows;
    bool damaged = false;
    std::vector<uint32_t> order;  // empty: sorted as it is
    size_t next = 0, end = 0;     // positions within the window
    uint32_t owner = 0;
    uint64_t offset = 0;
    bool goes_back = false;  // has rows before the window
    size_t rank = 0;         // of the block
    int64_t t = 0;    // of row `next`
    size_t RowAt(size_t i) const { return order.empty() ? i : order[i]; }
  };
  static bool Later(const Active& a, const Active& b) {
    return a.t != b.t ? a.t > b.t : a.rank > b.rank;
  }
  void Decode(const BlockRef& ref, std::string* bytes, Active* a) const;
  void Load(size_t rank);
  void Release(Active* a);
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
  struct Decoded;
  std::unique_ptr<Ahead<Decoded>> ahead_;  // last: its threads use the others
};

}  // namespace ingero::merge

#endif  // INGERO_MERGE_ROW_CURSOR_H_
