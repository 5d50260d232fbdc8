// SPDX-License-Identifier: Apache-2.0
#include "merge/row_cursor.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "merge/ahead.h"

namespace ingero::merge {

std::shared_ptr<const SortedRows> BlockCache::Take(uint64_t offset) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto it = blocks_.find(offset);
  if (it == blocks_.end()) return nullptr;
  const auto rows = std::move(it->second);
  values_ -= rows->rows.values.size();
  blocks_.erase(it);
  return rows;
}

void BlockCache::Put(uint64_t offset, std::shared_ptr<const SortedRows> rows) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const size_t values = rows->rows.values.size();
  // What is left of windows that nobody came back for.
  if (values_ + values > kMostValues) {
    blocks_.clear();
    values_ = 0;
  }
  if (values > kMostValues) return;
  if (blocks_.try_emplace(offset, std::move(rows)).second) values_ += values;
}

namespace {

Result<std::shared_ptr<const SortedRows>> Decoded(std::string_view bytes,
                                                  const TableSchema& schema) {
  auto out = std::make_shared<SortedRows>();
  INGERO_RETURN_IF_ERROR(DecodeBlock(bytes, schema, &out->rows));
  const Rows& rows = out->rows;
  const size_t count = rows.size();
  const auto t = [&](size_t r) { return static_cast<int64_t>(rows.at(r, 0)); };
  bool sorted = true;
  for (size_t r = 1; sorted && r < count; ++r) sorted = t(r - 1) <= t(r);
  if (!sorted) {
    out->order.resize(count);
    std::iota(out->order.begin(), out->order.end(), 0);
    std::stable_sort(out->order.begin(), out->order.end(),
                     [&](uint32_t x, uint32_t y) { return t(x) < t(y); });
  }
  return std::shared_ptr<const SortedRows>(std::move(out));
}

// Those at positions [begin, end).
std::shared_ptr<const SortedRows> Part(const SortedRows& all, size_t begin,
                                       size_t end) {
  auto out = std::make_shared<SortedRows>();
  const Rows& rows = all.rows;
  out->rows.schema = rows.schema;
  out->rows.values.reserve((end - begin) * rows.columns());
  for (size_t i = begin; i < end; ++i) {
    const size_t r = all.RowAt(i);
    out->rows.Append(rows.row(r), rows.schema->has_text
                                      ? std::string_view(rows.texts[r])
                                      : std::string_view());
  }
  return out;
}

}  // namespace

struct RowCursor::Read {
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
  ahead_ = std::make_unique<Ahead<Read>>(
      decoders, 2 * decoders, [this](uint64_t rank, Read* out) {
        if (rank >= blocks_.size()) return false;
        Decode(blocks_[rank], &out->bytes, &out->active);
        return true;
      });
}

RowCursor::~RowCursor() = default;

void RowCursor::Decode(const BlockRef& ref, std::string* bytes,
                       Active* a) const {
  a->rows = cache_ == nullptr ? nullptr : cache_->Take(ref.offset);
  a->damaged = false;
  a->next = a->end = 0;
  if (a->rows == nullptr) {
    Status s = read_(ref, bytes);
    if (s.ok()) {
      auto decoded = Decoded(*bytes, schema_);
      s = decoded.status();
      if (s.ok()) a->rows = std::move(*decoded);
    }
    a->damaged = !s.ok();
    if (a->damaged) return;
  }
  const SortedRows& rows = *a->rows;
  const size_t count = rows.rows.size();
  // First position with t >= bound.
  const auto position = [&](int64_t bound) {
    size_t low = 0, high = count;
    while (low < high) {
      const size_t mid = (low + high) / 2;
      if (rows.TimeAt(mid) < bound)
        low = mid + 1;
      else
        high = mid;
    }
    return low;
  };
  a->next = position(window_.begin.value);
  a->end = position(window_.end.value);
  a->owner = ref.owner;
  const auto whole = a->rows;
  const bool goes_back = a->next > 0;
  if (a->end - a->next < count / 4) {
    a->rows = Part(*whole, a->next, a->end);
    a->end -= std::exchange(a->next, 0);
  }
  if (cache_ != nullptr && goes_back) cache_->Put(ref.offset, whole);
  if (a->next < a->end) a->t = a->rows->TimeAt(a->next);
}

void RowCursor::Load(size_t rank) {
  Read* const read = ahead_->Next();
  if (read->active.damaged) {
    damaged_.push_back(blocks_[rank]);
    return;
  }
  if (read->active.next >= read->active.end) return;
  if (free_.empty()) {
    pool_.push_back(std::make_unique<Active>());
    free_.push_back(pool_.back().get());
  }
  Active* a = free_.back();
  free_.pop_back();
  std::swap(*a, read->active);
  a->rank = rank;
  heap_.push_back(a);
  std::push_heap(heap_.begin(), heap_.end(),
                 [](Active* x, Active* y) { return Later(*x, *y); });
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
      a->t = a->rows->TimeAt(a->next);
    } else {
      a->rows = nullptr;
      free_.push_back(a);
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
  const size_t r = first.rows->RowAt(first.next);
  row_ = first.rows->rows.row(r);
  text_ = schema_.has_text ? std::string_view(first.rows->rows.texts[r])
                           : std::string_view();
  owner_ = first.owner;
  return true;
}

}  // namespace ingero::merge
