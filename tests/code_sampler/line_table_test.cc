// SPDX-License-Identifier: Apache-2.0
#include "code_sampler/line_table.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace ingero::code_sampler {
namespace {

std::string Bytes(std::initializer_list<int> bytes) {
  std::string text;
  for (const int b : bytes) text += static_cast<char>(b);
  return text;
}

TEST(LineTableTest, EachFormOfAnEntryIsRead) {
  LineTable table;
  ASSERT_TRUE(table.Parse(
      Bytes({
          128 | 13 << 3 | 0, 2,              // 1 unit, line +1, no columns
          128 | 0 << 3 | 1, 0x12,            // 2 units, the same line, short
          128 | 11 << 3 | 0, 4, 9,           // 1 unit, line +1
          128 | 14 << 3 | 2, 64 | 0, 2, 1, 2, 3,  // 3 units, line +64
          128 | 15 << 3 | 0,                 // 1 unit of no line
          128 | 14 << 3 | 0, 3, 0, 0, 0,     // 1 unit, line -1
      }),
      10, 9));
  EXPECT_EQ(table.LineOf(0), 11u);
  EXPECT_EQ(table.LineOf(1), 11u);
  EXPECT_EQ(table.LineOf(2), 11u);
  EXPECT_EQ(table.LineOf(3), 12u);
  EXPECT_EQ(table.LineOf(4), 76u);
  EXPECT_EQ(table.LineOf(6), 76u);
  EXPECT_EQ(table.LineOf(7), 0u);
  EXPECT_EQ(table.LineOf(8), 75u);
}

TEST(LineTableTest, WhatDoesNotCoverTheCodeExactlyIsRefused) {
  LineTable table;
  const std::string one = Bytes({128 | 13 << 3 | 0, 2});
  EXPECT_TRUE(table.Parse(one, 1, 1));
  EXPECT_FALSE(table.Parse(one, 1, 2));
  EXPECT_FALSE(table.Parse(one + one, 1, 1));
  EXPECT_FALSE(table.Parse("", 1, 1));
  EXPECT_FALSE(table.Parse(Bytes({13 << 3}), 1, 1)) << "no first byte";
  EXPECT_FALSE(table.Parse(Bytes({128 | 13 << 3}), 1, 1)) << "cut";
  EXPECT_FALSE(table.Parse(Bytes({128 | 11 << 3, 1}), 1, 1)) << "cut";
  EXPECT_FALSE(table.Parse(Bytes({128 | 13 << 3, 7}), 1, 1)) << "below 0";
}

TEST(LineTableTest, AnyBytesEnd) {
  std::mt19937 random(1);
  for (int i = 0; i < 100'000; ++i) {
    std::string bytes;
    for (size_t n = random() % 40; n > 0; --n)
      bytes += static_cast<char>(random() | (random() % 2 ? 128 : 0));
    LineTable table;
    const uint32_t units = random() % 60 + 1;
    if (table.Parse(bytes, random() % 1000, units))
      for (uint32_t u = 0; u < units; ++u) (void)table.LineOf(u);
  }
}

}  // namespace
}  // namespace ingero::code_sampler
