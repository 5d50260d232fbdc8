// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <random>

#include "analysis/rules/rule.h"

namespace ingero::analysis {
namespace {

TEST(Ranges, WithinIsTheSumOfWhatOverlaps) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 200; ++round) {
    Ranges ranges;
    std::vector<Interval> all;
    for (uint64_t n = random() % 30; n > 0; --n) {
      const Ns begin(static_cast<int64_t>(random() % 1000));
      all.push_back(
          {begin, begin + Ns(1 + static_cast<int64_t>(random() % 200))});
      ranges.Add(all.back());
    }
    ranges.Sort();
    for (int i = 0; i < 50; ++i) {
      const Ns begin(static_cast<int64_t>(random() % 1200) - 100);
      const Interval window{begin,
                            begin + Ns(static_cast<int64_t>(random() % 300))};
      Ns sum;
      for (const Interval& r : all) sum += r.Clip(window).length();
      EXPECT_EQ(ranges.Within(window), sum);
    }
  }
}

}  // namespace
}  // namespace ingero::analysis
