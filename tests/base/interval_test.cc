// SPDX-License-Identifier: Apache-2.0
#include "base/interval.h"

#include <gtest/gtest.h>

#include "base/units.h"

namespace ingero {
namespace {

constexpr Interval I(int64_t begin, int64_t end) {
  return {Ns(begin), Ns(end)};
}

TEST(IntervalTest, IsHalfOpen) {
  EXPECT_TRUE(I(1, 3).Contains(Ns(1)));
  EXPECT_FALSE(I(1, 3).Contains(Ns(3)));
  EXPECT_FALSE(I(1, 3).Overlaps(I(3, 5)));
  EXPECT_TRUE(I(1, 4).Overlaps(I(3, 5)));
}

TEST(IntervalTest, EmptyHasNoLengthAndOverlapsNothing) {
  for (Interval empty : {I(5, 5), I(5, 2)}) {
    EXPECT_TRUE(empty.empty());
    EXPECT_EQ(empty.length(), Ns(0));
    EXPECT_FALSE(empty.Overlaps(I(0, 10)));
    EXPECT_FALSE(I(0, 10).Overlaps(empty));
    EXPECT_FALSE(empty.Contains(Ns(5)));
  }
}

// Against counting: every pair of intervals in a small range.
TEST(IntervalTest, ClipKeepsExactlyTheCommonPoints) {
  for (int a = -3; a <= 3; ++a)
    for (int b = -3; b <= 3; ++b)
      for (int c = -3; c <= 3; ++c)
        for (int d = -3; d <= 3; ++d) {
          int common = 0;
          for (int t = -4; t <= 4; ++t)
            if (I(a, b).Contains(Ns(t)) && I(c, d).Contains(Ns(t))) ++common;
          const Interval clipped = I(a, b).Clip(I(c, d));
          ASSERT_EQ(clipped.length(), Ns(common));
          ASSERT_EQ(I(a, b).Overlaps(I(c, d)), common > 0);
        }
}

TEST(UnitsTest, RatioOfNothingIsZero) {
  EXPECT_EQ(Ratio(Ns(5), Ns(0)), 0.0);
  EXPECT_EQ(Ratio(Ns(1), Ns(4)), 0.25);
}

template <typename A, typename B>
concept Addable = requires(A a, B b) { a + b; };
static_assert(Addable<Ns, Ns>);
static_assert(!Addable<Ns, Ticks>, "units must not mix");
static_assert(!Addable<Ns, int>, "a bare number has no unit");

}  // namespace
}  // namespace ingero
