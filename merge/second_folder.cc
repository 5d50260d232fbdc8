// SPDX-License-Identifier: Apache-2.0
#include "merge/second_folder.h"

#include <algorithm>
#include <array>
#include <bit>

#include "analysis/attribution.h"
#include "base/tables.h"

namespace ingero::merge {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;

// What rules see of a cell besides its columns.
uint64_t KindOf(std::span<const uint64_t> row) {
  using namespace path_table;
  const uint64_t short_stretches =
      row[kNs] <
      static_cast<uint64_t>(analysis::kShortStretch.value) * row[kStretches];
  // Time a page, by powers of two.
  const auto ns_a_page =
      row[kPages] == 0
          ? 0
          : static_cast<uint64_t>(std::bit_width(row[kNs] / row[kPages])) + 1;
  return short_stretches << 8 | ns_a_page;
}

int64_t SecondOf(uint64_t t) {
  const auto ns = static_cast<int64_t>(t);
  return ns >= 0 ? ns / kSecondNs : (ns - kSecondNs + 1) / kSecondNs;
}

// Both tables begin with these.
static_assert(size_t{path_table::kT} == size_t{feed_table::kT});
static_assert(size_t{path_table::kEndOffset} == size_t{feed_table::kLength});
static_assert(size_t{path_table::kNs} == size_t{feed_table::kNs});
static_assert(size_t{path_table::kStretches} == size_t{feed_table::kIntervals});
constexpr size_t kSummed[] = {path_table::kNs, path_table::kStretches,
                              path_table::kPages};
constexpr size_t kFirstKey = path_table::kStretches + 1;

}  // namespace

void SecondFolder::Fold(const Rows& rows, Rows* sums) {
  const bool path = rows.schema->id == path_table::kSchema.id;
  const size_t columns = rows.schema->columns.size();
  const size_t summed = path ? 3 : 2;
  const size_t first = sums->size();
  slots_.assign(std::bit_ceil(2 * rows.size() + 1), 0);
  keys_.clear();
  // Second and kind, and the columns that have to agree in their places.
  std::array<uint64_t, path_table::kCount> key{};
  for (size_t r = 0; r < rows.size(); ++r) {
    const auto row = rows.row(r);
    key[0] = static_cast<uint64_t>(SecondOf(row[path_table::kT]));
    key[1] = path ? KindOf(row) : 0;
    for (size_t c = kFirstKey; c < columns; ++c)
      key[c] = path && c == path_table::kPages ? 0 : row[c];
    uint64_t hash = 0;
    for (size_t c = 0; c < columns; ++c)
      hash = std::rotl((hash ^ key[c]) * 0x9E3779B97F4A7C15u, 29);
    size_t slot = hash & (slots_.size() - 1);
    while (slots_[slot] != 0 &&
           !std::equal(key.data(), key.data() + columns,
                       keys_.data() + (slots_[slot] - 1) * columns))
      slot = (slot + 1) & (slots_.size() - 1);
    if (slots_[slot] == 0) {
      keys_.insert(keys_.end(), key.data(), key.data() + columns);
      sums->Append(row);
      slots_[slot] = static_cast<uint32_t>(sums->size() - first);
      continue;
    }
    uint64_t* sum =
        sums->values.data() + (first + slots_[slot] - 1) * columns;
    const auto begin = static_cast<int64_t>(sum[path_table::kT]);
    const auto end = begin + static_cast<int64_t>(sum[path_table::kEndOffset]);
    const auto row_begin = static_cast<int64_t>(row[path_table::kT]);
    const auto row_end =
        row_begin + static_cast<int64_t>(row[path_table::kEndOffset]);
    sum[path_table::kT] = static_cast<uint64_t>(std::min(begin, row_begin));
    sum[path_table::kEndOffset] = static_cast<uint64_t>(
        std::max(end, row_end) - std::min(begin, row_begin));
    for (size_t c = 0; c < summed; ++c) sum[kSummed[c]] += row[kSummed[c]];
  }
}

}  // namespace ingero::merge
