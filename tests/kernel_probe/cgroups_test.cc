// SPDX-License-Identifier: Apache-2.0
#include "kernel_probe/cgroups.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

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
  EXPECT_TRUE(IsQuota("20000 100000\n"));
  EXPECT_FALSE(IsQuota("max 100000\n"));
  EXPECT_TRUE(IsQuota("20000\n"));
  EXPECT_FALSE(IsQuota("-1\n"));
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

TEST(CgroupsTest, ListsGroupsUnderAQuotaWithTheQuotasOwner) {
  const std::filesystem::path root =
      std::filesystem::path(testing::TempDir()) / "ingero_cgroups";
  std::filesystem::remove_all(root);
  const auto group = [&](const char* path, const char* limit) {
    std::filesystem::create_directories(root / path);
    std::ofstream(root / path / "cpu.max") << limit;
  };
  group("free", "max 100000\n");
  group("pod", "50000 100000\n");
  group("pod/inner", "max 100000\n");
  group("pod/tight", "10000 100000\n");
  const auto groups = FindQuotaGroups({root.string(), true});
  ASSERT_EQ(groups.size(), 3u);
  for (const QuotaGroup& g : groups) {
    struct stat st;
    std::string expected;
    for (const char* path : {"pod", "pod/inner", "pod/tight"}) {
      ASSERT_EQ(stat((root / path).c_str(), &st), 0);
      if (st.st_ino == g.id)
        expected = std::string(path) == "pod/tight" ? "/pod/tight" : "/pod";
    }
    EXPECT_EQ(g.path, expected);
    EXPECT_EQ(g.stat_file, root.string() + expected + "/cpu.stat");
  }
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace ingero::kernel_probe
