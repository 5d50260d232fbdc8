// SPDX-License-Identifier: Apache-2.0
#include "kernel_probe/cgroups.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace ingero::kernel_probe {
namespace {

TEST(CgroupsTest, ReadsBothFormsOfCpuStat) {
  const auto v1 = ParseCpuStat(
      "nr_periods 21\nnr_throttled 20\nthrottled_time 1652000000\n");
  ASSERT_TRUE(v1.has_value());
  EXPECT_EQ(v1->periods, 21u);
  EXPECT_EQ(v1->throttled, 20u);
  EXPECT_EQ(v1->throttled_ns, 1652000000u);
  const auto v2 = ParseCpuStat(
      "usage_usec 100\nuser_usec 60\nsystem_usec 40\nnr_periods 7\n"
      "nr_throttled 3\nthrottled_usec 250\nnr_bursts 0\nburst_usec 0\n");
  ASSERT_TRUE(v2.has_value());
  EXPECT_EQ(v2->periods, 7u);
  EXPECT_EQ(v2->throttled_ns, 250000u);
}

TEST(CgroupsTest, CpuStatWithoutTheControllerIsNoFigure) {
  EXPECT_FALSE(ParseCpuStat("usage_usec 1\nuser_usec 1\n").has_value());
  EXPECT_FALSE(ParseCpuStat("").has_value());
}

TEST(CgroupsTest, KnowsAQuotaFromNone) {
  const auto v2 = ParseCpuMax("20000 100000\n");
  ASSERT_TRUE(v2.has_value());
  EXPECT_EQ(v2->quota_ns, 20'000'000u);
  EXPECT_EQ(v2->period_ns, 100'000'000u);
  EXPECT_FALSE(ParseCpuMax("max 100000\n").has_value());
  const auto v1 = ParseCfsQuota("150000\n", "50000\n");
  ASSERT_TRUE(v1.has_value());
  EXPECT_EQ(v1->quota_ns, 150'000'000u);
  EXPECT_EQ(v1->period_ns, 50'000'000u);
  EXPECT_FALSE(ParseCfsQuota("-1\n", "100000\n").has_value());
}

TEST(CgroupsTest, WhatIsNoQuotaFileIsNoQuota) {
  for (const char* text : {"", "\n", " ", "20000", "20000 ", "20000 0", "0 1",
                           "20000 -1", "99999999999999999999 100000",
                           "20000 99999999999999999999", "x 100000"})
    EXPECT_FALSE(ParseCpuMax(text).has_value()) << text;
  EXPECT_FALSE(ParseCfsQuota("20000", "").has_value());
}

TEST(CgroupsTest, PrefersTheHierarchyThatHasTheCpuController) {
  constexpr const char* kHybrid =
      "24 23 0:22 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
      "25 24 0:23 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
      "26 24 0:24 / /sys/fs/cgroup/cpu rw shared:9 - cgroup cgroup "
      "rw,cpu,cpuacct\n"
      "27 24 0:25 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
  auto found = FindCpuController(kHybrid);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->path, "/sys/fs/cgroup/cpu");
  EXPECT_FALSE(found->v2);
  found = FindCpuController(
      "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n");
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->path, "/sys/fs/cgroup");
  EXPECT_TRUE(found->v2);
  EXPECT_FALSE(FindCpuController("").has_value());
}

TEST(CgroupsTest, InAContainerTheMountTellsWhereInTheHierarchyItIs) {
  // cgroup v1 without a cgroup namespace: the path is the host's.
  auto found = FindCpuController(
      "26 24 0:24 /docker/12ab /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n");
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->root, "/docker/12ab");
  // With one, seen from a process that was moved out of it.
  found = FindCpuController(
      "30 23 0:26 /../.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->root, "/../..");
  found = FindCpuController(
      "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->root, "");
}

// A hierarchy of plain files.
class HierarchyTest : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::remove_all(root_); }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void Group(const char* path, const char* file, const char* text) {
    std::filesystem::create_directories(root_ / path);
    std::ofstream(root_ / path / file) << text;
  }
  uint64_t Id(const char* path) const {
    struct stat st{};
    EXPECT_EQ(stat((root_ / path).c_str(), &st), 0);
    return st.st_ino;
  }
  static const QuotaGroup* Find(const std::vector<QuotaGroup>& groups,
                                const std::string& path) {
    for (const QuotaGroup& g : groups)
      if (g.path == path) return &g;
    return nullptr;
  }
  std::filesystem::path root_ =
      std::filesystem::path(testing::TempDir()) /
      ("ingero_cgroups." + std::to_string(getpid()));
};

TEST_F(HierarchyTest, EachGroupKnowsTheNearestQuotaAboveIt) {
  Group("free", "cpu.max", "max 100000\n");
  Group("pod", "cpu.max", "50000 100000\n");
  Group("pod/inner", "cpu.max", "max 100000\n");
  Group("pod/inner/deep", "cpu.max", "max 100000\n");
  Group("pod/inner/tight", "cpu.max", "10000 100000\n");
  const auto groups = FindQuotaGroups({root_.string(), true});
  ASSERT_EQ(groups.size(), 4u);
  EXPECT_EQ(Find(groups, "/free"), nullptr);
  const QuotaGroup* pod = Find(groups, "/pod");
  ASSERT_NE(pod, nullptr);
  EXPECT_EQ(pod->id, Id("pod"));
  EXPECT_EQ(pod->above, 0u);
  ASSERT_TRUE(pod->quota.has_value());
  EXPECT_EQ(pod->quota->quota_ns, 50'000'000u);
  EXPECT_EQ(pod->stat_file, root_.string() + "/pod/cpu.stat");
  for (const char* path : {"/pod/inner", "/pod/inner/deep"}) {
    const QuotaGroup* g = Find(groups, path);
    ASSERT_NE(g, nullptr) << path;
    EXPECT_EQ(g->above, pod->id);
    EXPECT_FALSE(g->quota.has_value());
  }
  const QuotaGroup* tight = Find(groups, "/pod/inner/tight");
  ASSERT_NE(tight, nullptr);
  EXPECT_EQ(tight->above, pod->id);
  EXPECT_TRUE(tight->quota.has_value());
}

TEST_F(HierarchyTest, Version1HasItsQuotaInTwoFiles) {
  Group("free", "cpu.cfs_quota_us", "-1\n");
  Group("free", "cpu.cfs_period_us", "100000\n");
  Group("docker/12ab", "cpu.cfs_quota_us", "20000\n");
  Group("docker/12ab", "cpu.cfs_period_us", "50000\n");
  const auto groups = FindQuotaGroups({root_.string(), false});
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0].path, "/docker/12ab");
  EXPECT_EQ(groups[0].quota->quota_ns, 20'000'000u);
  EXPECT_EQ(groups[0].quota->period_ns, 50'000'000u);
}

TEST_F(HierarchyTest, AContainersOwnCgroupIsNamedAsTheMountNamesIt) {
  Group(".", "cpu.max", "50000 100000\n");
  Group("app", "cpu.max", "max 100000\n");
  auto groups = FindQuotaGroups({root_.string(), true, "/docker/12ab"});
  ASSERT_EQ(groups.size(), 2u);
  const QuotaGroup* own = Find(groups, "/docker/12ab");
  ASSERT_NE(own, nullptr);
  const QuotaGroup* app = Find(groups, "/docker/12ab/app");
  ASSERT_NE(app, nullptr);
  EXPECT_EQ(app->above, own->id);
  // In a cgroup namespace it is the root.
  groups = FindQuotaGroups({root_.string(), true, ""});
  EXPECT_NE(Find(groups, "/"), nullptr);
}

TEST_F(HierarchyTest, AHierarchyThatIsGoneHasNoGroups) {
  EXPECT_TRUE(FindQuotaGroups({root_.string() + "/none", true}).empty());
}

}  // namespace
}  // namespace ingero::kernel_probe
