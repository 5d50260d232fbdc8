// SPDX-License-Identifier: Apache-2.0
// Threads whose states are planted (CASES 29, 30): preempted, in a futex, in a
// direct read, asleep until a timer. At least 99 % of their switches must say
// so, with the right waker or none.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <ctime>
#include <utility>

#include "tests/kernel_probe/companion.h"

namespace ingero::test {
namespace {

using R = StreamRow;

class TaskStateTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = WhyNoCompanion(); !why.empty())
      GTEST_SKIP() << why;
    ASSERT_TRUE(companion_.Start()) << companion_.said();
  }
  void Finish() {
    ASSERT_EQ(companion_.End(SIGINT), 0) << companion_.said();
    auto stream = companion_.Stream();
    ASSERT_TRUE(stream.ok()) << stream.status().message();
    stream_ = std::move(*stream);
  }
  std::vector<const R*> Outs(pid_t tid) {
    std::vector<const R*> found;
    for (const R& r : stream_.rows(switch_table::kSchema))
      if (r[switch_table::kPrevTid] == static_cast<uint64_t>(tid))
        found.push_back(&r);
    return found;
  }
  // Switches to `tid`, each with the switch from it before.
  std::vector<std::pair<const R*, const R*>> OutsAndIns(pid_t tid) {
    std::vector<std::pair<const R*, const R*>> found;
    const R* out = nullptr;
    for (const R* r : ByTime(tid)) {
      if ((*r)[switch_table::kPrevTid] == static_cast<uint64_t>(tid)) {
        out = r;
      } else if (out != nullptr) {
        found.emplace_back(out, r);
        out = nullptr;
      }
    }
    return found;
  }
  std::vector<const R*> ByTime(pid_t tid) {
    std::vector<const R*> found = Outs(tid);
    const std::vector<const R*> ins = Ins(tid);
    found.insert(found.end(), ins.begin(), ins.end());
    std::sort(found.begin(), found.end(), [](const R* a, const R* b) {
      return (*a)[switch_table::kT] < (*b)[switch_table::kT];
    });
    return found;
  }
  std::vector<const R*> Ins(pid_t tid) {
    std::vector<const R*> found;
    for (const R& r : stream_.rows(switch_table::kSchema))
      if (r[switch_table::kNextTid] == static_cast<uint64_t>(tid))
        found.push_back(&r);
    return found;
  }
  Companion companion_;
  StreamFile stream_;
};

uint64_t Flags(const R* r) { return (*r)[switch_table::kFlags]; }

pid_t Spinner(int cpu, uint64_t ns) {
  return Fork([=] {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    PinToCpu(cpu);
    const uint64_t end = NowNs() + ns;
    while (NowNs() < end) continue;
    return 0;
  });
}

TEST_F(TaskStateTest, ASpinnerIsPreemptedByTheOther) {
  const pid_t a = Spinner(1, 1'500'000'000), b = Spinner(1, 1'500'000'000);
  Wait(a);
  Wait(b);
  Finish();
  size_t outs = 0, right = 0;
  for (pid_t pid : {a, b}) {
    for (const R* r : Outs(pid)) {
      if (Flags(r) & INGERO_PREV_DEAD) continue;
      ++outs;
      right += (Flags(r) & INGERO_PREV_PREEMPTED) != 0 &&
               (*r)[switch_table::kPrevState] == 0 &&
               (*r)[switch_table::kPrevSyscall] == 0;
    }
    // A preempted thread was not woken; one that slept was. (It may sleep
    // once, in sched_setaffinity, until it is on the other CPU.)
    for (const auto& [out, in] : OutsAndIns(pid))
      EXPECT_EQ((*in)[switch_table::kWakeT] == 0,
                (Flags(out) & INGERO_PREV_PREEMPTED) != 0);
  }
  EXPECT_GT(outs, 50u);
  // All but start and exit of the two.
  EXPECT_GE(static_cast<double>(right) + 4, 0.99 * static_cast<double>(outs));
}

TEST_F(TaskStateTest, YieldIsNotPreemption) {
  // Both begin when both are there: alone on its CPU neither would leave it.
  auto* there = static_cast<std::atomic<int>*>(
      mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
           -1, 0));
  const auto yielder = [there] {
    PinToCpu(1);
    ++*there;
    while (*there < 2) sched_yield();
    for (int i = 0; i < 20000; ++i) sched_yield();
    return 0;
  };
  const pid_t a = Fork(yielder), b = Fork(yielder);
  Wait(a);
  Wait(b);
  munmap(there, 4096);
  Finish();
  size_t outs = 0, yields = 0;
  for (const R* r : Outs(a)) {
    ++outs;
    yields += (Flags(r) & INGERO_PREV_YIELDED) != 0;
    EXPECT_NE(Flags(r) & (INGERO_PREV_YIELDED | INGERO_PREV_PREEMPTED),
              static_cast<uint64_t>(INGERO_PREV_YIELDED |
                                    INGERO_PREV_PREEMPTED));
  }
  EXPECT_GT(outs, 1000u);
  EXPECT_GT(static_cast<double>(yields), 0.95 * static_cast<double>(outs));
}

TEST_F(TaskStateTest, AFutexSleepNamesTheFutexAndTheWaker) {
  constexpr uint32_t kRounds = 2000;
  struct Shared {
    std::atomic<uint32_t> turn;
  };
  auto* shared = static_cast<Shared*>(
      mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
           -1, 0));
  const auto player = [shared](uint32_t me) {
    PinToCpu(static_cast<int>(me));  // on two CPUs: wakes race with sleeps
    for (uint32_t i = me; i < 2 * kRounds; i += 2) {
      for (uint32_t t; (t = shared->turn.load()) != i;)
        syscall(SYS_futex, &shared->turn, FUTEX_WAIT, t, nullptr, nullptr, 0);
      // Long enough for the other to fall asleep; else the two may never do,
      // each handing the turn back before the other waits for it.
      if (i % 4 < 2)
        for (const uint64_t begin = NowNs(); NowNs() < begin + 20'000;) continue;
      shared->turn = i + 1;
      syscall(SYS_futex, &shared->turn, FUTEX_WAKE, 1, nullptr, nullptr, 0);
    }
    return 0;
  };
  const pid_t a = Fork([&] { return player(0); });
  const pid_t b = Fork([&] { return player(1); });
  EXPECT_EQ(Wait(a), 0);
  EXPECT_EQ(Wait(b), 0);
  Finish();
  size_t sleeps = 0, right = 0, wakes = 0, named = 0;
  for (const R* r : Outs(a)) {
    if ((*r)[switch_table::kPrevState] == 0 || (Flags(r) & INGERO_PREV_DEAD))
      continue;
    ++sleeps;
    right += (*r)[switch_table::kPrevState] == INGERO_TASK_INTERRUPTIBLE &&
             (*r)[switch_table::kPrevSyscall] == SYS_futex + 1 &&
             (*r)[switch_table::kPrevArg0] ==
                 reinterpret_cast<uint64_t>(&shared->turn) &&
             (Flags(r) & INGERO_PREV_PREEMPTED) == 0;
  }
  // Every sleep ends with a wake that is told, where its end is seen: this VM
  // hides switches from some tasks.
  size_t ends = 0;
  for (const auto& [out, in] : OutsAndIns(a)) {
    if ((*out)[switch_table::kPrevState] == 0) continue;
    ++ends;
    if ((*in)[switch_table::kWakeT] == 0) continue;
    ++wakes;
    EXPECT_LE((*in)[switch_table::kWakeT], (*in)[switch_table::kT]);
    named += (*in)[switch_table::kWakerTid] == static_cast<uint64_t>(b) &&
             (*in)[switch_table::kWakerTgid] == static_cast<uint64_t>(b);
  }
  EXPECT_GT(sleeps, kRounds / 20);
  EXPECT_GT(ends, kRounds / 20);
  EXPECT_GE(static_cast<double>(right), 0.99 * static_cast<double>(sleeps));
  EXPECT_GE(static_cast<double>(wakes), 0.99 * static_cast<double>(ends));
  EXPECT_GE(static_cast<double>(named), 0.99 * static_cast<double>(wakes));
  munmap(shared, 4096);
}

TEST_F(TaskStateTest, ADirectReadIsIoWait) {
  const std::string path = companion_.dir() + "/data";
  constexpr size_t kBytes = 16 << 20;
  {
    const int fd = open(path.c_str(), O_WRONLY | O_CREAT, 0600);
    const std::string block(1 << 20, 'x');
    for (size_t i = 0; i < kBytes; i += block.size())
      ASSERT_EQ(write(fd, block.data(), block.size()),
                static_cast<ssize_t>(block.size()));
    fsync(fd);
    close(fd);
  }
  const pid_t reader = Fork([&] {
    const int fd = open(path.c_str(), O_RDONLY | O_DIRECT);
    if (fd < 0) return 77;
    void* buffer = aligned_alloc(4096, 4096);
    for (size_t at = 0; at < kBytes; at += 16 * 4096)
      if (pread(fd, buffer, 4096, static_cast<off_t>(at)) != 4096) return 1;
    return 0;
  });
  const int status = Wait(reader);
  Finish();
  if (status == 77) GTEST_SKIP() << "no O_DIRECT on the file system of /tmp";
  ASSERT_EQ(status, 0);
  size_t sleeps = 0, right = 0, ins = 0, unnamed = 0;
  for (const R* r : Outs(reader)) {
    if ((*r)[switch_table::kPrevState] == 0 || (Flags(r) & INGERO_PREV_DEAD))
      continue;
    ++sleeps;
    right += (*r)[switch_table::kPrevState] == INGERO_TASK_UNINTERRUPTIBLE &&
             (Flags(r) & INGERO_PREV_IOWAIT) != 0 &&
             (*r)[switch_table::kPrevSyscall] == SYS_pread64 + 1;
  }
  if (sleeps < 50)
    GTEST_SKIP() << "direct reads do not sleep on this device (" << sleeps
                 << " times)";
  EXPECT_GE(static_cast<double>(right) + 3, 0.99 * static_cast<double>(sleeps));
  // The disk woke it, not whoever ran then.
  for (const R* r : Ins(reader)) {
    if ((*r)[switch_table::kWakeT] == 0 || (Flags(r) & INGERO_WAKE_NEW))
      continue;
    ++ins;
    unnamed += (Flags(r) & (INGERO_WAKE_IRQ | INGERO_WAKE_UNKNOWN)) != 0;
  }
  EXPECT_GE(static_cast<double>(unnamed), 0.95 * static_cast<double>(ins));
}

TEST_F(TaskStateTest, ATimerNamesNoCulprit) {
  // Its CPU is kept busy, so that timer interrupts hit an innocent program.
  const pid_t innocent = Spinner(1, 3'000'000'000);
  const pid_t sleeper = Fork([] {
    PinToCpu(1);
    for (int i = 0; i < 500; ++i) usleep(1000);
    return 0;
  });
  EXPECT_EQ(Wait(sleeper), 0);
  kill(innocent, SIGKILL);
  Wait(innocent);
  Finish();
  size_t wakes = 0;
  for (const auto& [out, r] : OutsAndIns(sleeper)) {
    // Nothing but its timer wakes it from this.
    if ((*out)[switch_table::kPrevSyscall] != SYS_clock_nanosleep + 1 ||
        (*r)[switch_table::kWakeT] == 0)
      continue;
    ++wakes;
    EXPECT_NE((*r)[switch_table::kWakerTid], static_cast<uint64_t>(innocent));
    EXPECT_NE(Flags(r) & (INGERO_WAKE_IRQ | INGERO_WAKE_UNKNOWN), 0u);
    EXPECT_EQ((*r)[switch_table::kWakerTid], 0u);
  }
  EXPECT_GT(wakes, 400u);
}

TEST_F(TaskStateTest, ANewThreadIsWokenByItsCreator) {
  const pid_t child = Fork([] { return 0; });
  Wait(child);
  Finish();
  const auto ins = Ins(child);
  ASSERT_FALSE(ins.empty());
  EXPECT_NE(Flags(ins[0]) & INGERO_WAKE_NEW, 0u);
  EXPECT_EQ((*ins[0])[switch_table::kWakerTid],
            static_cast<uint64_t>(getpid()));
  const auto outs = Outs(child);
  ASSERT_FALSE(outs.empty());
  EXPECT_NE(Flags(outs.back()) & INGERO_PREV_DEAD, 0u);
}

TEST_F(TaskStateTest, IdleIsNeverAWaker) {
  usleep(500'000);
  Finish();
  size_t unnamed = 0;
  for (const R& r : stream_.rows(switch_table::kSchema)) {
    if (r[switch_table::kWakeT] == 0) continue;
    const bool told = (Flags(&r) & (INGERO_WAKE_IRQ | INGERO_WAKE_UNKNOWN)) ==
                      0;
    EXPECT_EQ(told, r[switch_table::kWakerTid] != 0);
    unnamed += !told;
  }
  EXPECT_GT(unnamed, 0u);
}

}  // namespace
}  // namespace ingero::test
