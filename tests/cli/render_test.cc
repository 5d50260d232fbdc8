// SPDX-License-Identifier: Apache-2.0
// Pins what people and programs read, one folder a story. To accept a change
// after looking at it: INGERO_UPDATE_GOLDEN=1 cli_render_test
#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "cli/render/report.h"
#include "cli/render/words.h"
#include "report_fixtures.h"

namespace ingero::cli {
namespace {

class RenderTest : public testing::TestWithParam<Story> {
 protected:
  void SetUp() override {
    setenv("TZ", "UTC", 1);
    tzset();
  }

  std::string Text(TextOptions options) {
    return RenderText(GetParam().report(), options);
  }

  static void ExpectGolden(const std::string& file, const std::string& text) {
    const std::filesystem::path path =
        std::filesystem::path(INGERO_GOLDEN_DIR) / GetParam().name / file;
    if (std::getenv("INGERO_UPDATE_GOLDEN") != nullptr) {
      std::filesystem::create_directories(path.parent_path());
      std::ofstream(path, std::ios::binary) << text;
      return;
    }
    std::ifstream in(path, std::ios::binary);
    ASSERT_TRUE(in) << path << " is missing: INGERO_UPDATE_GOLDEN=1 makes it";
    std::stringstream expected;
    expected << in.rdbuf();
    EXPECT_EQ(text, expected.str()) << path;
  }

  static void ExpectFits(const std::string& text, int columns) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);)
      EXPECT_LE(DisplayWidth(line), columns) << line;
  }
};

TEST_P(RenderTest, TextOfEightyColumns) {
  ExpectGolden("report.txt", Text({}));
}

TEST_P(RenderTest, TextOfSixtyColumns) {
  ExpectGolden("report_60.txt", Text({.columns = 60}));
}

TEST_P(RenderTest, ProcessesOfEightyColumns) {
  ExpectGolden("per_process.txt", Text({.per_process = true}));
}

TEST_P(RenderTest, ChainsOfEightyColumns) {
  ExpectGolden("chains.txt", Text({.chains = true}));
}

TEST_P(RenderTest, Json) {
  ExpectGolden("report.json", RenderJson(GetParam().report()));
}

TEST_P(RenderTest, NoLineIsWiderThanAsked) {
  for (int columns : {40, 50, 60, 80, 100, 200})
    for (bool per_process : {false, true})
      ExpectFits(
          Text({.columns = columns, .per_process = per_process, .all = true}),
          columns);
  for (int columns : {40, 80})
    ExpectFits(Text({.columns = columns, .chains = true}), columns);
}

TEST_P(RenderTest, WithoutColorThereAreNoControlCharacters) {
  for (const TextOptions& options :
       {TextOptions{}, TextOptions{.per_process = true},
        TextOptions{.chains = true}})
    for (unsigned char c : Text(options))
      ASSERT_TRUE(c == '\n' || (c >= 0x20 && c != 0x7f)) << int{c};
}

// Taking the colours away gives the plain text: they change no layout.
TEST_P(RenderTest, ColorsAddNothingButEscapes) {
  for (bool per_process : {false, true}) {
    const std::string colored =
        Text({.color = true, .per_process = per_process});
    std::string plain;
    for (size_t i = 0; i < colored.size(); ++i) {
      if (colored[i] != '\x1b') {
        plain += colored[i];
        continue;
      }
      ASSERT_EQ(colored[i + 1], '[');
      size_t end = colored.find('m', i);
      ASSERT_NE(end, std::string::npos);
      ASSERT_EQ(
          colored.substr(i + 2, end - i - 2).find_first_not_of("0123456789;"),
          std::string::npos);
      i = end;
    }
    EXPECT_EQ(plain, Text({.per_process = per_process}));
  }
}

TEST_P(RenderTest, JsonIsAsciiAndTheSameEachTime) {
  const std::string json = RenderJson(GetParam().report());
  EXPECT_EQ(json, RenderJson(GetParam().report()));
  for (unsigned char c : json)
    ASSERT_TRUE(c == '\n' || (c >= 0x20 && c < 0x7f));
}

INSTANTIATE_TEST_SUITE_P(Stories, RenderTest,
                         testing::ValuesIn(Stories().begin(), Stories().end()),
                         [](const auto& info) {
                           std::string name = info.param.name;
                           for (char& c : name)
                             if (c == '-') c = '_';
                           return name;
                         });

}  // namespace
}  // namespace ingero::cli
