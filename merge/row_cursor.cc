// SPDX-License-Identifier: Apache-2.0
#include "merge/row_cursor.h"

#include <algorithm>
#include <numeric>

#include "merge/ahead.h"

namespace ingero::merge {

bool BlockCache::Take(uint64_t offset, Rows* rows) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto it = blocks_.find(offset);
  if (it == blocks_.end()) return false;
  std::swap(*rows, it->second);
  values_ -= rows->values.size();
  blocks_.erase(it);
  return true;
}

void BlockCache::Put(uint64_t offset, Rows rows) {
  const std::lock_guard<std::mutex> lock(mutex_);
  // What is left of windows that nobody came back for.
  if (values_ + rows.values.size() > kMostValues) {
    blocks_.clear();
    values_ = 0;
  }
  if (rows.values.size() > kMostValues) return;
  const auto [it, added] = blocks_.try_emplace(offset);
  if (!added) return;
  values_ += rows.values.size();
  it->second = std::move(rows);
}

struct RowCursor::Decoded {
  Active active;
  std::string bytes;
};

RowCursor::RowCursor(const TableSchema& schema, std::vector<BlockRef> blocks,
                     Interval window, BlockReader read, size_t decoders,
                     BlockCache* cache)
    : schema_(schema),
      blocks_(std::move(blocks)),
      window_(window),
      read_(std::move(read)),
      cache_(cache) {
  std::erase_if(blocks_, [&](const BlockRef& b) {
    return b.last_ns < window.begin.value || b.first_ns >= window.end.value;
  });
  std::stable_sort(blocks_.begin(), blocks_.end(),
                   [](const BlockRef& a, const BlockRef& b) {
                     return a.first_ns < b.first_ns;
                   });
  // A block or two are decoded sooner than threads begin.
  if (blocks_.size() <= 2) decoders = 0;
  ahead_ = std::make_unique<Ahead<Decoded>>(
      decoders, 2 * decoders, [this](uint64_t rank, Decoded* out) {
        if (rank >= blocks_.size()) return false;
        Decode(blocks_[rank], &out->bytes, &out->active);
        return true;
      });
}

RowCursor::~RowCursor() {
  for (Active* a : heap_) Release(a);
}

void RowCursor::Decode(const BlockRef& ref, std::string* bytes,
                       Active* a) const {
  a->damaged = false;
  if (cache_ == nullptr || !cache_->Take(ref.offset, &a->rows)) {
    Status s = read_(ref, bytes);
    if (s.ok()) s = DecodeBlock(*bytes, schema_, &a->rows);
    a->damaged = !s.ok();
    if (a->damaged) return;
  }
  const size_t count = a->rows.size();
  const auto t = [&](size_t r) {
    return static_cast<int64_t>(a->rows.at(r, 0));
  };
  a->order.clear();
  bool sorted = true;
  for (size_t r = 1; sorted && r < count; ++r) sorted = t(r - 1) <= t(r);
  if (!sorted) {
    a->order.resize(count);
    std::iota(a->order.begin(), a->order.end(), 0);
    std::stable_sort(a->order.begin(), a->order.end(),
                     [&](uint32_t x, uint32_t y) { return t(x) < t(y); });
  }
  // First position with t >= bound.
  const auto position = [&](int64_t bound) {
    size_t low = 0, high = count;
    while (low < high) {
      const size_t mid = (low + high) / 2;
      if (t(a->RowAt(mid)) < bound)
        low = mid + 1;
      else
        high = mid;
    }
    return low;
  };
  a->next = position(window_.begin.value);
  a->end = position(window_.end.value);
  a->owner = ref.owner;
  a->offset = ref.offset;
  a->goes_back = a->next > 0;
  if (a->next < a->end) a->t = t(a->RowAt(a->next));
}

void RowCursor::Load(size_t rank) {
  Decoded* decoded = ahead_->Next();
  if (decoded->active.damaged) {
    damaged_.push_back(blocks_[rank]);
    return;
  }
  if (decoded->active.next >= decoded->active.end) return;
  if (free_.empty()) {
    pool_.push_back(std::make_unique<Active>());
    free_.push_back(pool_.back().get());
  }
  Active* a = free_.back();
  free_.pop_back();
  std::swap(*a, decoded->active);
  a->rank = rank;
  heap_.push_back(a);
  std::push_heap(heap_.begin(), heap_.end(),
                 [](Active* x, Active* y) { return Later(*x, *y); });
}

void RowCursor::Release(Active* a) {
  if (cache_ != nullptr && a->goes_back)
    cache_->Put(a->offset, std::move(a->rows));
  free_.push_back(a);
}

// The first one's row is another now.
void RowCursor::SiftDown() {
  Active* const moved = heap_[0];
  size_t at = 0;
  while (true) {
    size_t child = 2 * at + 1;
    if (child >= heap_.size()) break;
    if (child + 1 < heap_.size() && Later(*heap_[child], *heap_[child + 1]))
      ++child;
    if (!Later(*moved, *heap_[child])) break;
    heap_[at] = heap_[child];
    at = child;
  }
  heap_[at] = moved;
}

bool RowCursor::Next() {
  if (returned_) {
    Active* a = heap_[0];
    if (++a->next < a->end) {
      a->t = static_cast<int64_t>(a->rows.at(a->RowAt(a->next), 0));
    } else {
      Release(a);
      heap_[0] = heap_.back();
      heap_.pop_back();
    }
    if (!heap_.empty()) SiftDown();
    returned_ = false;
  }
  // Load every block that may hold an earlier row than what is at hand.
  while (next_block_ < blocks_.size() &&
         (heap_.empty() || blocks_[next_block_].first_ns <= heap_[0]->t))
    Load(next_block_++);
  if (heap_.empty()) return false;
  returned_ = true;
  const Active& first = *heap_[0];
  const size_t r = first.RowAt(first.next);
  row_ = first.rows.row(r);
  text_ = schema_.has_text ? std::string_view(first.rows.texts[r])
                           : std::string_view();
  owner_ = first.owner;
  return true;
}

}  // namespace ingero::merge
