// SPDX-License-Identifier: Apache-2.0
#include "cli/render/words.h"

#include <gtest/gtest.h>

#include "cli/progress.h"
#include "cli/render/layout.h"

namespace ingero::cli {
namespace {

TEST(WordsTest, OffsetsHaveASignAndAUnit) {
  EXPECT_EQ(FormatOffset(Ns(0)), "+0.000 s");
  EXPECT_EQ(FormatOffset(Ns(12'345'678'901)), "+12.346 s");
  EXPECT_EQ(FormatOffset(Ns(-1'500'000'000)), "-1.500 s");
  EXPECT_EQ(FormatOffset(Ns(123'456'000'000)), "+123.5 s");
}

TEST(WordsTest, EllipsisKeepsBothEndsAndTheWidth) {
  EXPECT_EQ(Ellipsize("cudaMalloc", 10), "cudaMalloc");
  const std::string cut = Ellipsize("cudaMemcpy2DToArrayAsync_ptsz", 16);
  EXPECT_EQ(DisplayWidth(cut), 16);
  EXPECT_TRUE(cut.starts_with("cudaMemcpy"));
  EXPECT_TRUE(cut.ends_with("ptsz"));
  // Characters of two columns are never cut in half.
  std::string wide;
  for (int i = 0; i < 20; ++i) wide += "\xe8\xa8\x93";
  EXPECT_EQ(DisplayWidth(wide), 40);
  EXPECT_LE(DisplayWidth(Ellipsize(wide, 15)), 15);
  EXPECT_GE(DisplayWidth(Ellipsize(wide, 15)), 12);
}

TEST(LayoutTest, ANumberStaysWithItsUnit) {
  EXPECT_EQ(Wrap("starved for 38.2 s, mostly", 15),
            (std::vector<std::string>{"starved for", "38.2 s, mostly"}));
}

TEST(LayoutTest, AWordLongerThanALineIsCut) {
  for (const std::string& line : Wrap(std::string(100, 'x'), 12))
    EXPECT_LE(line.size(), 12u);
  EXPECT_EQ(Wrap("", 12).size(), 1u);
}

TEST(LayoutTest, AToneEndsWithItsLine) {
  Page page(20, true);
  page.Paragraph(Toned(Tone::kRed, "one two three four five six seven"));
  size_t begins = 0, ends = 0;
  for (size_t i = 0;
       (i = page.text().find("\x1b[1;31m", i)) != std::string::npos; ++i)
    ++begins;
  for (size_t i = 0;
       (i = page.text().find("\x1b[0m\n", i)) != std::string::npos; ++i)
    ++ends;
  EXPECT_EQ(begins, 2u);
  EXPECT_EQ(ends, 2u);
}

TEST(LayoutTest, ATableTooWideBecomesSentences) {
  Table table{{"Process", "Ran", "Waited for CPU"},
              {{"python3/2254", "9.8 s", "3.4 s"}}};
  Page wide(80, false), narrow(24, false);
  wide.Add(table, 2);
  EXPECT_EQ(wide.text(),
            "  Process         Ran  Waited for CPU\n"
            "  python3/2254  9.8 s           3.4 s\n");
  narrow.Add(table, 2);
  EXPECT_EQ(narrow.text(),
            "  Process\n"
            "  python3/2254: Ran\n"
            "      9.8 s, Waited for\n"
            "      CPU 3.4 s\n");
}

TEST(LayoutTest, ACommandCanBePastedFromAnyWidth) {
  Page page(30, false);
  const std::string path(60, 'p');
  page.Command("ingero explain --from 1s --db /" + path + " --to 2s", 4);
  EXPECT_EQ(page.text(),
            "    $ ingero explain --from \\\n"
            "      1s --db \\\n"
            "      /" +
                path +
                " \\\n"
                "      --to 2s\n");
}

TEST(ProgressTest, SaysStageRateAndTimeLeft) {
  EXPECT_EQ(ProgressLine("reading streams", 0.25, 2'400'000, kSecond * 2, 100),
            "reading streams  [======>                 ]   25 %  1.2 M "
            "events/s  6 s left");
  // Nothing to extrapolate from yet.
  EXPECT_EQ(ProgressLine("opening", 0, 0, Ns(0), 100),
            "opening  [>                       ]    0 %");
}

TEST(ProgressTest, FitsAnyTerminal) {
  for (int columns = 8; columns < 120; ++columns)
    EXPECT_LE(DisplayWidth(ProgressLine("attributing starved time", 0.5,
                                        123'456'789, kSecond * 9, columns)),
              columns);
}

}  // namespace
}  // namespace ingero::cli
