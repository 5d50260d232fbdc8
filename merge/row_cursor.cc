// SPDX-License-Identifier: Apache-2.0
#include "merge/row_cursor.h"

#include <algorithm>
#include <numeric>

namespace ingero::merge {

RowCursor::RowCursor(const TableSchema& schema, std::vector<BlockRef> blocks,
                     Interval window, BlockReader read)
    : schema_(schema),
      blocks_(std::move(blocks)),
      window_(window),
      read_(std::move(read)) {
  std::erase_if(blocks_, [&](const BlockRef& b) {
    return b.last_ns < window.begin.value || b.first_ns >= window.end.value;
  });
  std::stable_sort(blocks_.begin(), blocks_.end(),
                   [](const BlockRef& a, const BlockRef& b) {
                     return a.first_ns < b.first_ns;
                   });
}

void RowCursor::Load(const BlockRef& ref, size_t rank) {
  Active* a;
  if (free_.empty()) {
    pool_.push_back(std::make_unique<Active>());
    a = pool_.back().get();
  } else {
    a = free_.back();
    free_.pop_back();
  }
  Status s = read_(ref, &bytes_);
  if (s.ok()) s = DecodeBlock(bytes_, schema_, &a->rows);
  if (!s.ok()) {
    damaged_.push_back(ref);
    free_.push_back(a);
    return;
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
  a->rank = rank;
  if (a->next >= a->end) {
    free_.push_back(a);
    return;
  }
  a->t = t(a->RowAt(a->next));
  heap_.push(a);
}

bool RowCursor::Next() {
  if (current_ != nullptr) {
    Active* a = current_;
    if (++a->next < a->end) {
      a->t = static_cast<int64_t>(a->rows.at(a->RowAt(a->next), 0));
    } else {
      free_.push_back(a);
      current_ = nullptr;
    }
  }
  while (true) {
    // Load every block that may hold an earlier row than what is at hand.
    int64_t earliest = INT64_MAX;
    if (current_ != nullptr) earliest = current_->t;
    if (!heap_.empty()) earliest = std::min(earliest, heap_.top()->t);
    if (next_block_ < blocks_.size() &&
        blocks_[next_block_].first_ns <= earliest) {
      const size_t rank = next_block_++;
      Load(blocks_[rank], rank);
      continue;
    }
    break;
  }
  if (current_ == nullptr) {
    if (heap_.empty()) return false;
    current_ = heap_.top();
    heap_.pop();
  } else if (!heap_.empty() && Later()(current_, heap_.top())) {
    Active* a = current_;
    current_ = heap_.top();
    heap_.pop();
    heap_.push(a);
  }
  const size_t r = current_->RowAt(current_->next);
  row_ = current_->rows.row(r);
  text_ = schema_.has_text ? std::string_view(current_->rows.texts[r])
                           : std::string_view();
  owner_ = current_->owner;
  return true;
}

}  // namespace ingero::merge
