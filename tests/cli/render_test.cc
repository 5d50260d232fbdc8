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

void Losses(analysis::Report* report, const std::string& id) {
  analysis::Loss loss;
  loss.id = loss.text = id;
  report->losses.push_back(loss);
}

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

TEST_P(RenderTest, Markdown) {
  ExpectGolden("report.md", RenderMarkdown(GetParam().report(), {}));
}

// Whatever a program names itself: no control characters, no table row or
// heading of its making, nobody is mentioned and nothing is linked.
TEST(MarkdownTest, NamesAreText) {
  const Story* hostile = nullptr;
  for (const Story& s : Stories())
    if (std::string_view(s.name) == "hostile-names") hostile = &s;
  ASSERT_NE(hostile, nullptr);
  analysis::Report report = hostile->report();
  const std::string name =
      "a|b\n# c\n- d `e` *f* _g_ <script> [h](http://i.j) @octocat "
      "#12 &amp; $x$ ~~k~~ www.l.m ``` \\n";
  report.verdict = report.facts.host = report.facts.scope = name;
  report.facts.tool_version = name;
  report.facts.missing = report.facts.system = {name, "1. x", "- y", "> z", "---"};
  report.processes[0].name = report.processes[0].cmdline = name;
  report.not_evaluated = {{name, name}};
  Losses(&report, name);
  for (analysis::Finding& f : report.findings) {
    f.cause = f.claim = f.coverage = name;
    f.culprits[0].name = name;
    f.timeline[0].text = name;
    f.recommendations[0].text = name;
    f.evidence[0].text = f.evidence[0].query = name;
    break;
  }
  report.chains[0].text = name;
  const std::string text = RenderMarkdown(report, {});
  // What the renderer writes itself goes first.
  std::string rest = text;
  for (const std::string& own :
       {std::string("**Verdict:**"), std::string("**Do next:**"),
        std::string("`ingero explain --format markdown`"),
        std::string("<!-- -->"), std::string("\n|---|---|---|")})
    for (size_t at; (at = rest.find(own)) != std::string::npos;)
      rest.replace(at, own.size(), "\x01");
  bool code = false;
  std::istringstream lines(rest);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("````")) {
      code = !code;
      continue;
    }
    for (unsigned char c : line) ASSERT_TRUE(c == 1 || c >= 0x20) << line;
    if (code) continue;
    const bool row = line.starts_with("| ");
    int cells = 0;
    line.erase(0, std::min(line.find_first_not_of('#'), line.size()));
    for (size_t i = 0; i < line.size(); ++i) {
      if (line[i] == '\\') {
        ++i;
        continue;
      }
      cells += line[i] == '|';
      EXPECT_EQ(std::string_view("`*_[]<~&$#").find(line[i]),
                std::string_view::npos)
          << line << " at " << i;
    }
    EXPECT_EQ(cells, row ? 4 : 0) << line;
    for (const char* bad : {"@octocat", "#12", "://", "www"})
      EXPECT_EQ(line.find(bad), std::string::npos) << line;
  }
  EXPECT_FALSE(code);
  EXPECT_NE(text.find("\n  - 1\\. x\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\n  - \\- y\n"), std::string::npos);
  EXPECT_NE(text.find("\n  - \\> z\n"), std::string::npos);
  EXPECT_NE(text.find("\n  - \\---\n"), std::string::npos);
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
