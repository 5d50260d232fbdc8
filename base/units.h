// SPDX-License-Identifier: Apache-2.0
// Units that do not mix: a value in ns cannot be added to one in ticks.
#ifndef INGERO_BASE_UNITS_H_
#define INGERO_BASE_UNITS_H_

#include <compare>
#include <cstdint>

namespace ingero {

// A signed quantity of one unit. Differences are quantities too: points in
// time and durations share a type because both occur as "ns since boot".
template <typename Tag>
struct Quantity {
  int64_t value = 0;

  constexpr Quantity() = default;
  constexpr explicit Quantity(int64_t v) : value(v) {}
  constexpr auto operator<=>(const Quantity&) const = default;
  constexpr Quantity operator+(Quantity o) const {
    return Quantity(value + o.value);
  }
  constexpr Quantity operator-(Quantity o) const {
    return Quantity(value - o.value);
  }
  constexpr Quantity operator-() const { return Quantity(-value); }
  constexpr Quantity& operator+=(Quantity o) {
    value += o.value;
    return *this;
  }
  constexpr Quantity& operator-=(Quantity o) {
    value -= o.value;
    return *this;
  }
  constexpr Quantity operator*(int64_t k) const { return Quantity(value * k); }
  constexpr Quantity operator/(int64_t k) const { return Quantity(value / k); }
};

// Nanoseconds; as a point in time: the host's CLOCK_MONOTONIC.
using Ns = Quantity<struct NsTag>;
// Time stamp counter, or CLOCK_MONOTONIC ns in streams that say so.
using Ticks = Quantity<struct TicksTag>;

inline constexpr Ns kMicrosecond{1'000};
inline constexpr Ns kMillisecond{1'000'000};
inline constexpr Ns kSecond{1'000'000'000};

// Fraction of two quantities, 0 where the whole is 0.
template <typename Tag>
constexpr double Ratio(Quantity<Tag> part, Quantity<Tag> whole) {
  return whole.value == 0 ? 0.0
                          : static_cast<double>(part.value) /
                                static_cast<double>(whole.value);
}

}  // namespace ingero

#endif  // INGERO_BASE_UNITS_H_
