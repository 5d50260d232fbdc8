// SPDX-License-Identifier: Apache-2.0
#include "kernel_probe/options.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/ring_size.h"

namespace ingero::kernel_probe {
namespace {

ParsedArgs Parse(std::vector<const char*> args) {
  args.insert(args.begin(), "ingero-kprobe");
  return ParseArgs(static_cast<int>(args.size()),
                   const_cast<char**>(args.data()));
}

TEST(OptionsTest, DurationsHaveUnits) {
  EXPECT_EQ(ParseDuration("60s")->value, 60'000'000'000);
  EXPECT_EQ(ParseDuration("60")->value, 60'000'000'000);
  EXPECT_EQ(ParseDuration("1.5s")->value, 1'500'000'000);
  EXPECT_EQ(ParseDuration("250ms")->value, 250'000'000);
  EXPECT_EQ(ParseDuration("5m")->value, 300'000'000'000);
  EXPECT_EQ(ParseDuration("2h")->value, 7'200'000'000'000);
  for (const char* bad : {"", "s", "0", "-1s", "5 parsecs", "1e300h", "nan"})
    EXPECT_FALSE(ParseDuration(bad).ok()) << bad;
}

TEST(OptionsTest, ReadyFileThatCannotBeMade) {
  const std::string folder = ::testing::TempDir();
  EXPECT_TRUE(CheckReadyFile(folder + "/ready").ok());
  EXPECT_TRUE(CheckReadyFile("ready").ok());
  for (const std::string& bad :
       {std::string("/does/not/exist/ready"), std::string("/dev/null/ready"),
        folder, folder + "/new/"}) {
    EXPECT_FALSE(CheckReadyFile(bad).ok()) << bad;
  }
}

TEST(OptionsTest, SizesArePowersOf1024) {
  EXPECT_EQ(*ParseBytes("4096"), 4096u);
  EXPECT_EQ(*ParseBytes("64K"), 65536u);
  EXPECT_EQ(*ParseBytes("4M"), 4u << 20);
  EXPECT_EQ(*ParseBytes("1GiB"), 1u << 30);
  for (const char* bad : {"", "0", "-4K", "4Q", "M", "1e40"})
    EXPECT_FALSE(ParseBytes(bad).ok()) << bad;
}

TEST(OptionsTest, RingsAreAPowerOfTwoAndAtLeastAPage) {
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  EXPECT_EQ(*RingBytes(1), page);
  EXPECT_EQ(*RingBytes(page), page);
  EXPECT_EQ(*RingBytes(page + 1), 2 * page);
  EXPECT_EQ(*RingBytes(kMaxRingBytes), kMaxRingBytes);
  EXPECT_FALSE(RingBytes(kMaxRingBytes + 1).ok());
}

TEST(OptionsTest, RoundingIsSaid) {
  const ParsedArgs rounded = Parse({"--buffer", "5M"});
  ASSERT_FALSE(rounded.exit_status.has_value());
  EXPECT_EQ(rounded.options.ring_bytes, 8u << 20);
  EXPECT_NE(rounded.options.note.find("8 MiB"), std::string::npos);
  EXPECT_EQ(Parse({"--buffer", "8M"}).options.note, "");
}

TEST(OptionsTest, ATreeIsAPidOrAName) {
  const ParsedArgs parsed =
      Parse({"--tree", "12", "--tree", "a_name_that_is_too_long"});
  ASSERT_FALSE(parsed.exit_status.has_value());
  ASSERT_EQ(parsed.options.tree.size(), 2u);
  EXPECT_EQ(parsed.options.tree[0].pid, 12u);
  EXPECT_EQ(parsed.options.tree[1].pid, 0u);
  EXPECT_EQ(parsed.options.tree[1].comm, "a_name_that_is_");  // as the kernel
}

TEST(OptionsTest, RootsOfTreesAreLookedUp) {
  std::vector<TreeRoot> tree;
  EXPECT_EQ(*FindRoots(&tree), "");
  tree = {{.comm = "a"}, {.comm = "b"}};
  EXPECT_EQ(*FindRoots(&tree),
            "the trees of processes named a and the trees of processes named "
            "b");
  tree = {{.pid = static_cast<uint32_t>(getpid())}};
  const auto own = FindRoots(&tree);
  EXPECT_EQ(own->rfind("the tree of PID " + std::to_string(getpid()), 0), 0u);
  EXPECT_EQ(tree[0].inner_pid, static_cast<uint32_t>(getpid()));
  struct stat st;
  ASSERT_EQ(stat("/proc/self/ns/pid", &st), 0);
  EXPECT_EQ(tree[0].pid_namespace, st.st_ino);
  tree = {{.pid = 0x7fffffff}};
  EXPECT_NE(FindRoots(&tree).status().message().find("there is no process"),
            std::string::npos);
}

TEST(OptionsTest, BadUsageIsOneLineAndStatus2) {
  const std::vector<std::vector<const char*>> bad = {
      {"--duration", "soon"}, {"--duration"}, {"--buffer", "2G"},
      {"--buffer", "x"},      {"--nonsense"}, {"stray"},
      {"--tree", "0"},        {"--tree", "99999999999"},
      {"--tree", "/bin/sh"},  {"--tree"},     {"--metrics", "9753"},
      {"--metrics"},          {"--otlp="}};
  for (const auto& args : bad) {
    testing::internal::CaptureStderr();
    const ParsedArgs parsed = Parse(args);
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_EQ(parsed.exit_status, 2) << args[0];
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
    EXPECT_EQ(said.rfind("ingero-kprobe: ", 0), 0u) << said;
  }
}

TEST(OptionsTest, HelpAndVersionEndWithStatus0) {
  for (const char* option : {"--help", "--version"}) {
    testing::internal::CaptureStdout();
    EXPECT_EQ(Parse({option}).exit_status, 0);
    const std::string said = testing::internal::GetCapturedStdout();
    EXPECT_NE(said.find(option[2] == 'h' ? "Examples:" : "ingero-kprobe"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace ingero::kernel_probe
