// SPDX-License-Identifier: Apache-2.0
#include "base/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace ingero {
namespace {

constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();

// Of every magnitude with the same chance, as durations are.
uint64_t AnyMagnitude(std::mt19937_64& random) {
  return random() >> (random() % 64);
}

uint64_t Distance(uint64_t a, uint64_t b) { return a > b ? a - b : b - a; }

TEST(HistogramTest, BucketMidpointIsWithinOne64th) {
  std::mt19937_64 random(1);
  std::vector<uint64_t> values = {0, 1, 63, 64, 65, 127, 128, kMax - 1, kMax};
  for (int bit = 0; bit < 64; ++bit)
    for (int64_t d : {-1, 0, 1})
      values.push_back((uint64_t{1} << bit) + static_cast<uint64_t>(d));
  for (int i = 0; i < 200'000; ++i) values.push_back(AnyMagnitude(random));
  for (uint64_t v : values) {
    const uint64_t shown = Histogram::ValueOf(Histogram::BucketOf(v));
    ASSERT_LE(Distance(shown, v), v / 64) << v;
    if (v < 64) {
      ASSERT_EQ(shown, v);
    }
  }
}

TEST(HistogramTest, BucketsAreOrderedAndWithoutGaps) {
  const size_t last = Histogram::BucketOf(kMax);
  for (size_t b = 0; b < last; ++b) {
    ASSERT_LT(Histogram::ValueOf(b), Histogram::ValueOf(b + 1)) << b;
    ASSERT_EQ(Histogram::BucketOf(Histogram::ValueOf(b)), b);
  }
}

TEST(HistogramTest, QuantilesAreWithinOne64thOfTheExactOnes) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 50; ++round) {
    std::vector<uint64_t> values(1 + random() % 3000);
    Histogram h;
    for (uint64_t& v : values) h.Add(v = AnyMagnitude(random));
    std::sort(values.begin(), values.end());
    for (double q : {0.0, 0.01, 0.5, 0.9, 0.95, 0.99, 0.999, 1.0}) {
      const size_t rank = std::max<size_t>(
          1, static_cast<size_t>(
                 std::ceil(q * static_cast<double>(values.size()))));
      const uint64_t exact = values[rank - 1];
      ASSERT_LE(Distance(h.Quantile(q), exact), exact / 64) << q;
    }
  }
}

TEST(HistogramTest, QuantileIsNotAboveTheLargestValue) {
  Histogram h;
  h.Add(1025);  // of a bucket of 32 values
  EXPECT_GT(h.Quantile(1), 1025u);
  h.Add(1025);
  EXPECT_EQ(h.Quantile(1, 1025), 1025u);
}

TEST(HistogramTest, QuantileOfOneValueIsThatValue) {
  Histogram h;
  h.Add(1055);
  EXPECT_LT(h.Quantile(0.5), 1055u);
  EXPECT_EQ(h.Quantile(0.5, 1055), 1055u);
}

TEST(HistogramTest, EmptyIsZero) {
  Histogram h;
  EXPECT_EQ(h.Quantile(0.5), 0u);
  EXPECT_EQ(h.Serialize(), "");
  h.Add(5, 0);
  EXPECT_EQ(h.count(), 0u);
}

TEST(HistogramTest, MergeEqualsAddingAll) {
  std::mt19937_64 random(3);
  Histogram a, b, all;
  for (int i = 0; i < 1000; ++i) {
    const uint64_t v = AnyMagnitude(random);
    (i % 3 == 0 ? a : b).Add(v, i);
    all.Add(v, i);
  }
  a.Merge(b);
  EXPECT_EQ(a.count(), all.count());
  EXPECT_EQ(a.Serialize(), all.Serialize());
}

TEST(HistogramTest, SerializedFormSurvives) {
  std::mt19937_64 random(4);
  Histogram h;
  for (int i = 0; i < 1000; ++i) h.Add(AnyMagnitude(random), 1 + random() % 9);
  h.Add(kMax);
  h.Add(0);
  const std::string bytes = h.Serialize();
  Result<Histogram> back = Histogram::Parse(bytes);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->count(), h.count());
  EXPECT_EQ(back->Serialize(), bytes);
}

TEST(HistogramTest, ParseRefusesWhatSerializeNeverWrites) {
  EXPECT_TRUE(Histogram::Parse("").ok());
  EXPECT_FALSE(Histogram::Parse("\x05").ok()) << "a gap and no count";
  EXPECT_FALSE(Histogram::Parse(std::string("\x05\x00", 2)).ok()) << "count 0";
  EXPECT_FALSE(Histogram::Parse("\xff\xff\xff\x7f\x01").ok())
      << "beyond the last bucket";
  EXPECT_FALSE(
      Histogram::Parse("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x01").ok())
      << "a gap that overflows";
  const std::string most = "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01";
  EXPECT_TRUE(Histogram::Parse(std::string(1, '\0') + most).ok());
  EXPECT_FALSE(
      Histogram::Parse(std::string(1, '\0') + most + std::string("\0\x01", 2))
          .ok())
      << "a count that overflows";
}

TEST(HistogramTest, ParseOfAnyBytesNeverCrashes) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes(random() % 24, '\0');
    for (char& c : bytes) c = static_cast<char>(random() >> (random() % 8));
    Result<Histogram> h = Histogram::Parse(bytes);
    if (h.ok()) h->Quantile(0.5);
  }
}

}  // namespace
}  // namespace ingero
