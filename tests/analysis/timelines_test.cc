// SPDX-License-Identifier: Apache-2.0
#include "analysis/timelines.h"

#include <gtest/gtest.h>

#include "tests/support/trace_text.h"

namespace ingero::testing {
namespace {

using analysis::CpuSegment;
using analysis::kNone;
using analysis::Segment;
using analysis::ThreadState;
using analysis::Timelines;

constexpr char kHead[] =
    "span 0 100ms\n"
    "kernel 0 100ms\n"
    "process 1 a\n"   // thread 0
    "process 2 b\n"   // thread 1
    "process 3 c\n";  // thread 2

MemoryTrace Parse(const std::string& body) {
  Result<MemoryTrace> trace = ParseTrace(kHead + body);
  EXPECT_TRUE(trace.ok()) << trace.status().message();
  return *trace;
}

Ns Ms(double ms) { return Ns(static_cast<int64_t>(ms * 1e6)); }

TEST(TimelinesTest, StatesFollowSwitches) {
  const MemoryTrace trace = Parse(
      "switch 10ms cpu=0 1>2 S syscall=202\n"
      "switch 30ms cpu=0 2>1 R+ wake=20ms waker=2\n");
  Timelines t(trace);
  t.Load({Ns(0), Ms(100)});
  const auto a = t.Of(0);
  ASSERT_EQ(a.size(), 4u);
  EXPECT_EQ(a[0].state, ThreadState::kRunning);  // ran when recording began
  EXPECT_EQ(a[0].begin, Ns(0));
  EXPECT_EQ(a[1].state, ThreadState::kSleeping);
  EXPECT_EQ(a[1].begin, Ms(10));
  EXPECT_EQ(a[1].syscall, 202);
  EXPECT_EQ(a[1].waker, 1u);
  EXPECT_EQ(a[2].state, ThreadState::kRunnable);
  EXPECT_EQ(a[2].begin, Ms(20));
  EXPECT_EQ(a[3].state, ThreadState::kRunning);
  EXPECT_EQ(a[3].begin, Ms(30));
  const auto b = t.Of(1);
  EXPECT_EQ(b.back().state, ThreadState::kRunnable);
  EXPECT_EQ(b.back().begin, Ms(30));
}

TEST(TimelinesTest, ThreadThatNeverSwitchesIsUnknown) {
  const MemoryTrace trace = Parse("switch 10ms cpu=0 1>2 S\n");
  Timelines t(trace);
  t.Load({Ns(0), Ms(100)});
  ASSERT_EQ(t.Of(2).size(), 1u);
  EXPECT_EQ(t.Of(2)[0].state, ThreadState::kUnknown);
  EXPECT_TRUE(t.Of(999).empty());
}

TEST(TimelinesTest, WakeInAnOlderWindowIsKnownThere) {
  const MemoryTrace trace = Parse(
      "switch 10ms cpu=0 1>2 S syscall=202\n"
      "switch 80ms cpu=0 2>1 R+ wake=20ms waker=2\n");
  Timelines t(trace);
  t.Load({Ms(50), Ms(100)});
  EXPECT_EQ(t.Before(0, Ms(60))->state, ThreadState::kRunnable);
  t.Load({Ns(0), Ms(50)});
  EXPECT_EQ(t.Before(0, Ms(50))->state, ThreadState::kRunnable);
  EXPECT_EQ(t.Before(0, Ms(50))->cpu, 0);
  const Segment* sleep = t.Before(0, Ms(15));
  EXPECT_EQ(sleep->state, ThreadState::kSleeping);
  EXPECT_EQ(sleep->waker, 1u);
}

TEST(TimelinesTest, PagesOfARunAcrossTheBorderAreSplitExactly) {
  const MemoryTrace trace = Parse(
      "switch 10ms cpu=0 2>1 S wake=10ms\n"
      "switch 73ms cpu=0 1>2 S pages=1000\n");
  Timelines t(trace);
  t.Load({Ms(50), Ms(100)});
  const uint64_t newer = t.Before(0, Ms(60))->PagesIn(Ms(50), Ms(73));
  t.Load({Ns(0), Ms(50)});
  const uint64_t older = t.Before(0, Ms(50))->PagesIn(Ms(10), Ms(50));
  EXPECT_EQ(newer + older, 1000u);
  EXPECT_NEAR(static_cast<double>(older), 1000.0 * 40 / 63, 1.0);
}

TEST(TimelinesTest, HoldersCoverTheRangeFromNewToOld) {
  const MemoryTrace trace = Parse(
      "switch 10ms cpu=0 1>2 R+\n"
      "switch 20ms cpu=0 2>idle S\n"
      "switch 30ms cpu=0 idle>1 R\n");
  Timelines t(trace);
  t.Load({Ns(0), Ms(100)});
  std::vector<std::pair<uint32_t, Ns>> seen;
  t.ForHolders(0, {Ms(5), Ms(40)}, [&](const CpuSegment& s, Interval i) {
    seen.push_back({s.thread, i.length()});
  });
  const std::vector<std::pair<uint32_t, Ns>> expected = {
      {0, Ms(10)}, {kNone, Ms(10)}, {1, Ms(10)}, {0, Ms(5)}};
  EXPECT_EQ(seen, expected);
}

TEST(TimelinesTest, KeyframeOpensAWindowWithoutItsPast) {
  const MemoryTrace trace = Parse(
      "switch 10ms cpu=0 1>2 S syscall=35\n"
      "state 50ms 1 S since=10ms cpu=0 syscall=35\n"
      "state 50ms 2 run since=10ms cpu=0\n"
      "switch 60ms cpu=0 2>1 R+ wake=55ms irq\n");
  Timelines t(trace);
  t.Load({Ms(50), Ms(100)});
  EXPECT_EQ(t.switches_read(), 1u);
  const Segment* sleep = t.Before(0, Ms(52));
  EXPECT_EQ(sleep->state, ThreadState::kSleeping);
  EXPECT_EQ(sleep->begin, Ms(10));
  EXPECT_EQ(sleep->syscall, 35);
  EXPECT_TRUE(sleep->woken_by_irq);
}

TEST(TimelinesTest, LossesAndTimeWithoutAKernelStreamAreUnknown) {
  const MemoryTrace trace = Parse(
      "loss 20ms 30ms switch-ring-full 5 kernel\n"
      "loss 40ms 50ms switch-ring-full 5 kernel notice\n");
  Timelines t(trace);
  EXPECT_EQ(t.UnknownBefore(Ms(25)).begin, Ms(20));
  EXPECT_FALSE(t.UnknownBefore(Ms(30)).empty());
  EXPECT_TRUE(t.UnknownBefore(Ms(45)).empty());  // a notice hides nothing
  EXPECT_EQ(t.UnknownBefore(Ms(45)).end, Ms(30));
  EXPECT_FALSE(t.UnknownBefore(Ms(101)).empty());
}

TEST(TimelinesTest, UnseenSwitchesMakeTheirThreadsUnknownAndNothingElse) {
  // On CPU 0, 2 ran from 20 ms on; 1, asleep since 10 ms, is seen to stop at
  // 60 ms: who started it, and when, was hidden.
  const MemoryTrace trace = Parse(
      "switch 5ms cpu=1 idle>3 R wake=4ms irq\n"
      "switch 10ms cpu=0 1>idle S syscall=0\n"
      "switch 20ms cpu=0 idle>2 R wake=20ms irq\n"
      "switch 60ms cpu=0 1>idle S syscall=0\n"
      "switch 90ms cpu=0 idle>2 R wake=80ms irq\n");
  for (const bool split : {false, true}) {
    Timelines t(trace);
    if (split) t.Load({Ms(50), Ms(100)});
    t.Load({Ns(0), split ? Ms(50) : Ms(100)});
    EXPECT_EQ(t.Before(0, Ms(5))->state, ThreadState::kRunning);
    EXPECT_EQ(t.Before(0, Ms(40))->state, ThreadState::kUnknown);
    EXPECT_EQ(t.Before(1, Ms(40))->state, ThreadState::kUnknown);
    EXPECT_EQ(t.Before(2, Ms(40))->state, ThreadState::kRunning);
    t.ForHolders(0, {Ms(20), Ms(40)}, [](const CpuSegment& s, Interval) {
      EXPECT_EQ(s.thread, kNone);
    });
    if (split) continue;
    EXPECT_EQ(t.Before(0, Ms(70))->state, ThreadState::kSleeping);
    EXPECT_EQ(t.Before(1, Ms(70))->state, ThreadState::kUnknown);
    EXPECT_EQ(t.Before(1, Ms(85))->state, ThreadState::kRunnable);
    EXPECT_EQ(t.Before(1, Ms(95))->state, ThreadState::kRunning);
  }
}

TEST(TimelinesTest, WhereOthersWereLeftOutNothingIsClaimed) {
  // 1 is of the tree, 2 and 3 are not. After 1 went to sleep at 10 ms, others
  // had the CPU until 30 ms, 2 being the first; from then on 3, which 1 waits
  // for since 40 ms. On CPU 1 it is idle that came last.
  const MemoryTrace trace = Parse(
      "switch 5ms cpu=1 2>idle ?\n"
      "switch 10ms cpu=0 1>2 S syscall=0\n"
      "switch 30ms cpu=0 ->3 ?\n"
      "switch 60ms cpu=0 3>1 ? wake=40ms irq\n"
      "switch 70ms cpu=1 ->idle ?\n"
      "switch 90ms cpu=0 1>3 R+\n");
  for (const bool split : {false, true}) {
    Timelines t(trace);
    if (split) t.Load({Ms(55), Ms(100)});
    t.Load({Ns(0), split ? Ms(55) : Ms(100)});
    EXPECT_EQ(t.Before(0, Ms(35))->state, ThreadState::kSleeping);
    EXPECT_EQ(t.Before(0, Ms(45))->state, ThreadState::kRunnable);
    for (const int ms : {15, 29, 45})
      EXPECT_EQ(t.Before(1, Ms(ms))->state, ThreadState::kUnknown) << ms;
    EXPECT_EQ(t.Before(2, Ms(20))->state, ThreadState::kUnknown);
    EXPECT_EQ(t.Before(2, Ms(45))->state, ThreadState::kRunning);
    std::vector<std::pair<uint32_t, Ns>> seen;
    t.ForHolders(0, {Ms(15), Ms(50)}, [&](const CpuSegment& s, Interval i) {
      EXPECT_FALSE(s.idle);
      seen.push_back({s.thread, i.begin});
    });
    const std::vector<std::pair<uint32_t, Ns>> expected = {{2, Ms(30)},
                                                           {kNone, Ms(15)}};
    EXPECT_EQ(seen, expected);
    // Idle since 5 ms, as far as was seen, but others came and went.
    t.ForHolders(1, {Ms(10), Ms(50)}, [&](const CpuSegment& s, Interval) {
      EXPECT_FALSE(s.idle);
      EXPECT_EQ(s.thread, kNone);
    });
    if (!split) {
      EXPECT_EQ(t.Before(2, Ms(80))->state, ThreadState::kUnknown);
    }
  }
}

TEST(TimelinesTest, SecondKernelSpanStartsWithoutMemory) {
  MemoryTrace trace = Parse(
      "switch 10ms cpu=0 1>2 S\n"
      "switch 90ms cpu=0 3>1 S wake=85ms\n");
  trace.kernel_list = {{Ns(0), Ms(20)}, {Ms(80), Ms(100)}};
  Timelines t(trace);
  t.Load({Ns(0), Ms(100)});
  EXPECT_EQ(t.Before(0, Ms(15))->state, ThreadState::kSleeping);
  EXPECT_EQ(t.Before(0, Ms(50))->state, ThreadState::kSleeping);
  EXPECT_FALSE(t.UnknownBefore(Ms(50)).empty());  // and so not believed
  EXPECT_EQ(t.Before(0, Ms(83))->state, ThreadState::kSleeping);
  EXPECT_EQ(t.Before(0, Ms(83))->begin, Ms(80));
  EXPECT_EQ(t.Before(1, Ms(90))->state, ThreadState::kUnknown);
}

}  // namespace
}  // namespace ingero::testing
