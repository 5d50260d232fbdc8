// SPDX-License-Identifier: Apache-2.0
#include "merge/clock_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

namespace ingero::merge {
namespace {

constexpr int64_t kBase = 500'000'000'000'000;  // 5.8 days of uptime

// A TSC of 3.1 GHz that began long ago.
uint64_t Tsc(int64_t ns) {
  return static_cast<uint64_t>(
      9'000'000'000'000 +
      std::llround(static_cast<double>(ns - kBase) * 3.1));
}

std::vector<Knot> Knots(int64_t from, int64_t to, int64_t step) {
  std::vector<Knot> knots;
  for (int64_t t = from; t <= to; t += step) knots.push_back({Tsc(t), t, 60});
  return knots;
}

TEST(ClockMap, IdentityTakesOffTheTimeNamespace) {
  const ClockMap map = ClockMap::Identity(100'000);
  EXPECT_EQ(map.ToNs(350'000), 250'000);
  EXPECT_EQ(map.error_ns(), 0);
}

TEST(ClockMap, InterpolatesWithinItsBound) {
  const auto map =
      ClockMap::Fit({}, Knots(kBase, kBase + 10'000'000'000, 100'000'000), 0);
  ASSERT_TRUE(map);
  EXPECT_LE(map->error_ns(), 15);
  for (int64_t t = kBase - 1'000'000'000; t < kBase + 11'000'000'000;
       t += 7'654'321)
    EXPECT_NEAR(static_cast<double>(map->ToNs(Tsc(t)) - t), 0,
                static_cast<double>(map->error_ns()) + 1);
}

TEST(ClockMap, HostSamplesGoFirstOwnOnesBeyond) {
  // Own samples are 2 us off: where the companion's cover they must not count.
  auto own = Knots(kBase - 1'000'000'000, kBase + 3'000'000'000, 250'000'000);
  for (Knot& k : own) k.mono_ns += 2000;
  const auto host = Knots(kBase, kBase + 2'000'000'000, 100'000'000);
  const auto map = ClockMap::Fit(host, own, 0);
  ASSERT_TRUE(map);
  EXPECT_TRUE(map->uses_host_knots());
  for (int64_t t = kBase; t < kBase + 2'000'000'000; t += 12'345'678)
    EXPECT_NEAR(static_cast<double>(map->ToNs(Tsc(t)) - t), 0, 2);
  EXPECT_NEAR(static_cast<double>(map->ToNs(Tsc(kBase - 500'000'000)) -
                                  (kBase - 500'000'000)),
              2000, 2);
}

TEST(ClockMap, BoundCoversASlew) {
  // 10 ppm faster in the second half; truth changes slope between two knots.
  const auto truth = [](int64_t t) {
    return t < kBase + 5'050'000'000
               ? t
               : t + (t - kBase - 5'050'000'000) / 100'000;
  };
  std::vector<Knot> knots;
  for (int64_t t = kBase; t <= kBase + 10'000'000'000; t += 100'000'000)
    knots.push_back({Tsc(t), truth(t), 60});
  const auto map = ClockMap::Fit({}, knots, 0);
  ASSERT_TRUE(map);
  EXPECT_LE(map->error_ns(), 600);
  for (int64_t t = kBase; t < kBase + 10'000'000'000; t += 3'456'789)
    EXPECT_LE(std::abs(map->ToNs(Tsc(t)) - truth(t)), map->error_ns() + 1);
}

TEST(ClockMap, WideAndBackwardSamplesAreDropped) {
  auto knots = Knots(kBase, kBase + 2'000'000'000, 100'000'000);
  knots[5].mono_ns += 3'000'000;  // preempted between the two reads
  knots[5].window_ticks = 9'000'000;
  knots[9].mono_ns = knots[3].mono_ns;
  const auto map = ClockMap::Fit({}, knots, 0);
  ASSERT_TRUE(map);
  EXPECT_LE(map->error_ns(), 15);
  const int64_t t = kBase + 510'000'000;
  EXPECT_NEAR(static_cast<double>(map->ToNs(Tsc(t)) - t), 0, 2);
}

TEST(ClockMap, OneSampleNeedsANominalRate) {
  EXPECT_FALSE(ClockMap::Fit({}, {}, 3'100'000'000));
  EXPECT_FALSE(ClockMap::Fit({}, {{Tsc(kBase), kBase, 60}}, 0));
  const auto map =
      ClockMap::Fit({}, {{Tsc(kBase), kBase, 60}}, 3'100'000'000);
  ASSERT_TRUE(map);
  EXPECT_GT(map->error_ns(), 1000);
  EXPECT_NEAR(static_cast<double>(map->ToNs(Tsc(kBase + 1'000'000'000)) -
                                  kBase - 1'000'000'000),
              0, static_cast<double>(map->error_ns()));
}

// CASES 35: the nominal rate, as a VM tells it, is 200 ppm off.
TEST(ClockMap, AWrongNominalRateDoesNotCountWhereThereAreSamples) {
  const uint64_t nominal = 3'100'620'000;
  const auto map = ClockMap::Fit(
      {}, Knots(kBase, kBase + 10'000'000'000, 100'000'000), nominal);
  ASSERT_TRUE(map);
  EXPECT_LE(map->error_ns(), 15);
  for (int64_t t = kBase; t < kBase + 10'000'000'000; t += 7'654'321)
    EXPECT_NEAR(static_cast<double>(map->ToNs(Tsc(t)) - t), 0, 2);
  // With one sample it is all there is, and the bound is for a second.
  const auto one =
      ClockMap::Fit({}, {{Tsc(kBase), kBase, 60}}, nominal);
  ASSERT_TRUE(one);
  const int64_t t = kBase + 1'000'000'000;
  const int64_t off = std::abs(one->ToNs(Tsc(t)) - t);
  EXPECT_GT(off, 190'000);
  EXPECT_LE(off, one->error_ns());
}

// A clocksource that is switched: the same counter, another rate of
// CLOCK_MONOTONIC from one moment on.
TEST(ClockMap, BoundCoversASwitchOfTheClocksource) {
  const int64_t at = kBase + 5'030'000'000;
  const auto truth = [&](int64_t t) {
    return t < at ? t : t + (t - at) / 5'000;  // 200 ppm
  };
  std::vector<Knot> knots;
  for (int64_t t = kBase; t <= kBase + 10'000'000'000; t += 100'000'000)
    knots.push_back({Tsc(t), truth(t), 60});
  const auto map = ClockMap::Fit({}, knots, 0);
  ASSERT_TRUE(map);
  EXPECT_GT(map->error_ns(), 1000);
  EXPECT_LE(map->error_ns(), 20'000);
  for (int64_t t = kBase; t < kBase + 10'000'000'000; t += 1'456'789)
    EXPECT_LE(std::abs(map->ToNs(Tsc(t)) - truth(t)), map->error_ns() + 1);
}

// A counter that follows the CPU's frequency: half the rate in between. Right
// within the bound, which says how far off it may be.
TEST(ClockMap, BoundCoversACounterThatIsNotInvariant) {
  const int64_t from = kBase + 3'020'000'000, to = kBase + 6'070'000'000;
  const auto ticks = [&](int64_t t) {
    const int64_t slow = std::clamp(t, from, to) - from;
    return Tsc(kBase + (t - kBase) - slow / 2);
  };
  std::vector<Knot> knots;
  for (int64_t t = kBase; t <= kBase + 10'000'000'000; t += 100'000'000)
    knots.push_back({ticks(t), t, 60});
  const auto map = ClockMap::Fit({}, knots, 0);
  ASSERT_TRUE(map);
  EXPECT_GT(map->error_ns(), 1'000'000);
  for (int64_t t = kBase; t < kBase + 10'000'000'000; t += 1'456'789)
    EXPECT_LE(std::abs(map->ToNs(ticks(t)) - t), map->error_ns() + 1);
}

// The counter runs on while CLOCK_MONOTONIC stands still.
TEST(ClockMap, ASuspendIsTakenOut) {
  const int64_t asleep = kBase + 5'040'000'000;
  constexpr int64_t kSlept = 3'600'000'000'000;
  const auto ticks = [&](int64_t t) {
    return Tsc(t < asleep ? t : t + kSlept);
  };
  std::vector<Knot> knots;
  for (int64_t t = kBase; t <= kBase + 10'000'000'000; t += 100'000'000)
    knots.push_back({ticks(t), t, 60});
  const auto map = ClockMap::Fit({}, knots, 0);
  ASSERT_TRUE(map);
  EXPECT_LE(map->error_ns(), 15);
  int64_t last = INT64_MIN;
  for (int64_t t = kBase - 1'000'000'000; t < kBase + 11'000'000'000;
       t += 1'234'567) {
    const int64_t mapped = map->ToNs(ticks(t));
    EXPECT_NEAR(static_cast<double>(mapped - t), 0, 20);
    EXPECT_GE(mapped, last);
    last = mapped;
  }
}

TEST(ClockMap, ACounterThatBeganAnewIsRefused) {
  std::vector<Knot> knots;
  for (int64_t t = kBase; t <= kBase + 10'000'000'000; t += 100'000'000)
    knots.push_back({t < kBase + 5'000'000'000
                         ? Tsc(t)
                         : static_cast<uint64_t>(t - kBase),
                     t, 60});
  std::string why;
  EXPECT_FALSE(ClockMap::Fit({}, knots, 3'100'000'000, &why));
  EXPECT_NE(why.find("began anew"), std::string::npos);
  EXPECT_FALSE(ClockMap::Fit(knots, {}, 3'100'000'000));
  EXPECT_FALSE(ClockMap::Fit({}, {}, 0, &why));
  EXPECT_EQ(why, "it holds no clock sample");
}

TEST(ClockMap, AbsurdTicksDoNotOverflow) {
  const auto map = ClockMap::Fit(
      {}, Knots(kBase, kBase + 1'000'000'000, 100'000'000), 0);
  ASSERT_TRUE(map);
  for (uint64_t ticks : {uint64_t{0}, uint64_t{1}, UINT64_MAX, UINT64_MAX / 2})
    (void)map->ToNs(ticks);
  EXPECT_LT(map->ToNs(0), map->ToNs(UINT64_MAX));
}

}  // namespace
}  // namespace ingero::merge
