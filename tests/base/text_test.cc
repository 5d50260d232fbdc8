// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace ingero {
namespace {

TEST(TextTest, DurationsHaveThreeDigits) {
  EXPECT_EQ(FormatDuration(Ns(0)), "0 ns");
  EXPECT_EQ(FormatDuration(Ns(812)), "812 ns");
  EXPECT_EQ(FormatDuration(Ns(999)), "999 ns");
  EXPECT_EQ(FormatDuration(Ns(1'000)), "1 us");
  EXPECT_EQ(FormatDuration(Ns(12'500)), "12.5 us");
  EXPECT_EQ(FormatDuration(Ns(1'234)), "1.23 us");
  EXPECT_EQ(FormatDuration(Ns(301'400'000)), "301 ms");
  EXPECT_EQ(FormatDuration(Ns(31'200'000'000)), "31.2 s");
  EXPECT_EQ(FormatDuration(Ns(31'000'000'000)), "31 s");
  EXPECT_EQ(FormatDuration(Ns(-2'500'000)), "-2.5 ms");
}

TEST(TextTest, DurationsRoundIntoTheNextUnit) {
  EXPECT_EQ(FormatDuration(Ns(999'499)), "999 us");
  EXPECT_EQ(FormatDuration(Ns(999'500)), "1 ms");
  EXPECT_EQ(FormatDuration(Ns(999'999'999)), "1 s");
  EXPECT_EQ(FormatDuration(Ns(9'996'000'000)), "10 s");
  EXPECT_EQ(FormatDuration(Ns(99'960'000'000)), "100 s");
}

TEST(TextTest, LongDurationsUseMinutesAndHours) {
  EXPECT_EQ(FormatDuration(Ns(599'000'000'000)), "599 s");
  EXPECT_EQ(FormatDuration(Ns(599'700'000'000)), "10 min 0 s");
  EXPECT_EQ(FormatDuration(Ns(725'000'000'000)), "12 min 5 s");
  EXPECT_EQ(FormatDuration(Ns(8'100'000'000'000)), "2 h 15 min");
  EXPECT_EQ(FormatDuration(Ns(std::numeric_limits<int64_t>::min())),
            "-2562047 h 47 min");
}

TEST(TextTest, Bytes) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1024), "1 KiB");
  EXPECT_EQ(FormatBytes(1536), "1.5 KiB");
  EXPECT_EQ(FormatBytes(1024 * 1024 - 1), "1 MiB");
  EXPECT_EQ(FormatBytes(256ull << 20), "256 MiB");
  EXPECT_EQ(FormatBytes(std::numeric_limits<uint64_t>::max()), "16 EiB");
}

TEST(TextTest, Counts) {
  EXPECT_EQ(FormatCount(0), "0");
  EXPECT_EQ(FormatCount(999), "999");
  EXPECT_EQ(FormatCount(1000), "1,000");
  EXPECT_EQ(FormatCount(1'234'567), "1,234,567");
  EXPECT_EQ(FormatCount(std::numeric_limits<uint64_t>::max()),
            "18,446,744,073,709,551,615");
}

TEST(TextTest, PercentNeverRoundsToNoneOrAll) {
  EXPECT_EQ(FormatPercent(0), "0 %");
  EXPECT_EQ(FormatPercent(0.0004), "<0.1 %");
  EXPECT_EQ(FormatPercent(0.0317), "3.2 %");
  EXPECT_EQ(FormatPercent(0.05), "5 %");
  EXPECT_EQ(FormatPercent(0.614), "61 %");
  EXPECT_EQ(FormatPercent(0.9961), "99.6 %");
  EXPECT_EQ(FormatPercent(0.99999), ">99.9 %");
  EXPECT_EQ(FormatPercent(1), "100 %");
  EXPECT_EQ(FormatPercent(Ns(1), Ns(4)), "25 %");
}

TEST(TextTest, EditDistanceCountsSwapsAsOne) {
  EXPECT_EQ(EditDistance("", ""), 0u);
  EXPECT_EQ(EditDistance("merge", ""), 5u);
  EXPECT_EQ(EditDistance("merge", "merge"), 0u);
  EXPECT_EQ(EditDistance("megre", "merge"), 1u);
  EXPECT_EQ(EditDistance("exlain", "explain"), 1u);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3u);
}

TEST(TextTest, ClosestMatchOffersOnlyTypingErrors) {
  constexpr std::string_view kCommands[] = {"merge", "explain", "dump", "list"};
  EXPECT_EQ(ClosestMatch("explian", kCommands), "explain");
  EXPECT_EQ(ClosestMatch("lst", kCommands), "list");
  EXPECT_EQ(ClosestMatch("frobnicate", kCommands), std::nullopt);
  EXPECT_EQ(ClosestMatch("", kCommands), std::nullopt);
}

TEST(TextTest, SanitizeKeepsWhatIsReadable) {
  EXPECT_EQ(SanitizeForTerminal("python3 train.py"), "python3 train.py");
  EXPECT_EQ(SanitizeForTerminal("Zürich 東京 🚀"), "Zürich 東京 🚀");
  EXPECT_EQ(SanitizeForTerminal("a\tb\nc"), "a b c");
}

TEST(TextTest, SanitizeRemovesWhatSteersATerminal) {
  EXPECT_EQ(SanitizeForTerminal("\x1b[2Jx\x07"), "[2Jx");
  EXPECT_EQ(SanitizeForTerminal("a\xc2\x9b" "31mb"), "a31mb") << "8-bit CSI";
  EXPECT_EQ(SanitizeForTerminal("a\u202egpj.exe"), "agpj.exe") << "override";
  EXPECT_EQ(SanitizeForTerminal("a\u2066b\u2069c\u200fd"), "abcd");
  EXPECT_EQ(SanitizeForTerminal("a\u200bb\ufeffc\u00add"), "abcd");
  EXPECT_EQ(SanitizeForTerminal("a\U000e0041b"), "ab") << "tag character";
  EXPECT_EQ(SanitizeForTerminal(std::string_view("a\0b", 3)), "ab");
}

TEST(TextTest, SanitizeShowsBytesThatAreNotUtf8) {
  EXPECT_EQ(SanitizeForTerminal("\xff"), "?");
  EXPECT_EQ(SanitizeForTerminal("a\xc3"), "a?") << "cut off";
  EXPECT_EQ(SanitizeForTerminal("\xc0\x9b"), "??") << "overlong ESC";
  EXPECT_EQ(SanitizeForTerminal("\xed\xa0\x80"), "???") << "surrogate";
  EXPECT_EQ(SanitizeForTerminal("\xf4\x90\x80\x80"), "????") << "too large";
  EXPECT_EQ(SanitizeForTerminal("\xc3z"), "?z");
}

TEST(TextTest, SanitizeCutsBetweenCharacters) {
  EXPECT_EQ(SanitizeForTerminal("abcdef", 6), "abcdef");
  EXPECT_EQ(SanitizeForTerminal("abcdefg", 6), "abc...");
  EXPECT_EQ(SanitizeForTerminal("ab東京", 7), "ab...");
  EXPECT_EQ(SanitizeForTerminal("abc", 2), "..");
  EXPECT_EQ(SanitizeForTerminal("abc", 0), "");
}

// Whatever comes in: valid UTF-8 without a control character, within the cap.
TEST(TextTest, SanitizeHoldsForAnyBytes) {
  std::mt19937 random(1);
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes(random() % 40, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    const size_t cap = random() % 40;
    const std::string out = SanitizeForTerminal(bytes, cap);
    ASSERT_LE(out.size(), cap);
    for (char c : out) ASSERT_GE(static_cast<uint8_t>(c), 0x20);
    ASSERT_EQ(SanitizeForTerminal(out), out) << "not stable";
  }
}

TEST(TextTest, Trim) {
  EXPECT_EQ(TrimWhitespace(" \ta b\n"), "a b");
  EXPECT_EQ(TrimWhitespace(" \n"), "");
  EXPECT_EQ(TrimWhitespace(""), "");
}

}  // namespace
}  // namespace ingero
