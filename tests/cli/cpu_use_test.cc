// SPDX-License-Identifier: Apache-2.0
#include "cli/cpu_use.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

namespace ingero::cli {
namespace {

constexpr int64_t kBurnNs = 200'000'000;

int64_t Clock(clockid_t id) {
  timespec t;
  clock_gettime(id, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

TEST(CpuUseTest, NamesWhoHadTheCpusSinceTheLastLook) {
  CpuUse use;
  EXPECT_TRUE(use.Look(Ns(Clock(CLOCK_MONOTONIC))).empty());
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    while (Clock(CLOCK_PROCESS_CPUTIME_ID) < kBurnNs) continue;
    (void)!write(ready[1], "x", 1);
    for (;;) pause();
  }
  char c;
  ASSERT_EQ(read(ready[0], &c, 1), 1);
  const auto of_child = [&](const std::vector<CpuUser>& users) {
    return std::find_if(users.begin(), users.end(), [&](const CpuUser& u) {
      return u.pid == static_cast<uint32_t>(child);
    });
  };
  const Ns first(Clock(CLOCK_MONOTONIC));
  CpuUse again;
  again.Look(first);
  const std::vector<CpuUser> users = use.Look(Ns(Clock(CLOCK_MONOTONIC)));
  const auto found = of_child(users);
  ASSERT_NE(found, users.end());
  EXPECT_GT(found->cpus, 0);
  EXPECT_EQ(found->parent_pid, static_cast<uint32_t>(getpid()));
  EXPECT_EQ(use.ParentOf(static_cast<uint32_t>(child)),
            static_cast<uint32_t>(getpid()));
  EXPECT_TRUE(std::is_sorted(
      users.begin(), users.end(),
      [](const CpuUser& a, const CpuUser& b) { return a.cpus > b.cpus; }));
  // It sleeps now, and has had nothing since.
  const std::vector<CpuUser> later = again.Look(first + kSecond);
  EXPECT_EQ(of_child(later), later.end());
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  use.Look(Ns(Clock(CLOCK_MONOTONIC)));
  EXPECT_EQ(use.ParentOf(static_cast<uint32_t>(child)), 0u);
  close(ready[0]);
  close(ready[1]);
}

}  // namespace
}  // namespace ingero::cli
