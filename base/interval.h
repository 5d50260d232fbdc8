// SPDX-License-Identifier: Apache-2.0
// Half-open intervals of time, [begin, end).
#ifndef INGERO_BASE_INTERVAL_H_
#define INGERO_BASE_INTERVAL_H_

#include <algorithm>

#include "base/units.h"

namespace ingero {

struct Interval {
  Ns begin;
  Ns end;  // end <= begin: empty

  constexpr bool empty() const { return end <= begin; }
  constexpr Ns length() const { return empty() ? Ns(0) : end - begin; }
  constexpr bool Contains(Ns t) const { return begin <= t && t < end; }
  constexpr bool Overlaps(Interval o) const {
    return begin < o.end && o.begin < end && !empty() && !o.empty();
  }
  constexpr Interval Clip(Interval o) const {
    return {std::max(begin, o.begin), std::min(end, o.end)};
  }
  constexpr bool operator==(const Interval&) const = default;
};

}  // namespace ingero

#endif  // INGERO_BASE_INTERVAL_H_
