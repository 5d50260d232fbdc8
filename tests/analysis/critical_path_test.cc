// SPDX-License-Identifier: Apache-2.0
#include "analysis/critical_path.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/analysis/invariants.h"
#include "tests/support/trace_text.h"

namespace ingero::testing {
namespace {

using analysis::Reason;

constexpr char kHead[] =
    "span 0 100ms\n"
    "kernel 0 100ms\n"
    "process 9 other\n"            // thread 0
    "process 1 trainer cuda\n"     // 1
    "process 2 worker parent=1\n"  // 2
    "process 3 worker parent=1\n"  // 3
    "process 4 kworker kernel\n"   // 4
    "thread 5 1 helper\n"          // 5
    "func launch launch\n"
    "func sync sync-stream\n"
    "func malloc alloc\n"
    "switch 0 cpu=0 9>1 S\n"
    // Work at 1 ms, drained at 2 ms; the next launch is at 90 ms.
    "call 1ms 1.1ms 1 launch\n"
    "call 1.1ms 2ms 1 sync\n"
    "call 90ms 90.1ms 1 launch\n";

struct Path {
  // (thread, reason, culprit) -> ns of the known-starved interval.
  std::map<std::tuple<uint32_t, Reason, uint32_t>, Ns> cells;
  Ns Of(uint32_t thread, Reason reason, uint32_t culprit = analysis::kNone) {
    return cells[{thread, reason, culprit}];
  }
};

Path Walk(const std::string& body) {
  Result<MemoryTrace> trace = ParseTrace(kHead + body);
  EXPECT_TRUE(trace.ok()) << trace.status().message();
  Path out;
  if (!trace.ok()) return out;
  const Attributed a = RunAttribution(*trace, kMillisecond * 30, true);
  ExpectInvariants(*trace, a);
  for (const auto& c : a.paths)
    if (c.certainty == analysis::Certainty::kKnown)
      out.cells[{c.thread, c.reason, c.culprit}] += c.time;
  return out;
}

constexpr Ns kMs = kMillisecond;

TEST(CriticalPathTest, RunningIsHostCode) {
  Path p = Walk("switch 95ms cpu=0 1>9 S\n");
  EXPECT_EQ(p.Of(1, Reason::kHostCode), kMs * 88);
}

TEST(CriticalPathTest, TimeInACallIsThatCall) {
  Path p = Walk("call 10ms 40ms 1 malloc\nswitch 95ms cpu=0 1>9 S\n");
  EXPECT_EQ(p.Of(1, Reason::kCudaCall), kMs * 30);
  EXPECT_EQ(p.Of(1, Reason::kHostCode), kMs * 58);
}

TEST(CriticalPathTest, RunnableIsSplitByHolder) {
  Path p = Walk(
      "switch 10ms cpu=0 1>2 R+\n"
      "switch 30ms cpu=0 2>3 R+\n"
      "switch 35ms cpu=0 3>1 R+\n"
      "switch 95ms cpu=0 1>9 S\n");
  EXPECT_EQ(p.Of(1, Reason::kWaitingForCpu, 2), kMs * 20);
  EXPECT_EQ(p.Of(1, Reason::kWaitingForCpu, 3), kMs * 5);
  EXPECT_EQ(p.Of(1, Reason::kHostCode), kMs * 63);
}

TEST(CriticalPathTest, TheQuotasPartOfAWaitIsNobodysWhoRanMeanwhile) {
  Path p = Walk(
      "switch 10ms cpu=0 1>2 R+\n"
      "switch 30ms cpu=0 2>3 R+\n"
      "switch 35ms cpu=0 3>1 R+ throttled=22ms\n"
      "switch 95ms cpu=0 1>9 S\n");
  EXPECT_EQ(p.Of(1, Reason::kThrottled), kMs * 22);  // 10..32
  EXPECT_EQ(p.Of(1, Reason::kWaitingForCpu, 2), Ns(0));
  EXPECT_EQ(p.Of(1, Reason::kWaitingForCpu, 3), kMs * 3);
  EXPECT_EQ(p.Of(1, Reason::kHostCode), kMs * 63);
}

TEST(CriticalPathTest, AQuotaTakesNoMoreThanTheWait) {
  Path p = Walk(
      "switch 10ms cpu=0 1>2 R+\n"
      "switch 35ms cpu=1 9>1 S throttled=2s\n"
      "switch 95ms cpu=1 1>9 S\n");
  EXPECT_EQ(p.Of(1, Reason::kThrottled), kMs * 25);
}

TEST(CriticalPathTest, ThrottledAfterAWakeUp) {
  Path p = Walk(
      "switch 5ms cpu=0 1>idle S syscall=202\n"
      "switch 80ms cpu=0 idle>1 R wake=20ms irq throttled=50ms\n"
      "switch 95ms cpu=0 1>9 S\n");
  EXPECT_EQ(p.Of(1, Reason::kThrottled), kMs * 50);  // 20..70
  EXPECT_EQ(p.Of(1, Reason::kWaitingForCpu), kMs * 10);
}

TEST(CriticalPathTest, SleepLeadsToTheWakerAndItsOwnWait) {
  // The trainer sleeps from 5 to 80; worker 2 wakes it, which itself waited
  // for a CPU from 20 to 60 while 3 ran there.
  Path p = Walk(
      "switch 0 cpu=1 9>2 S\n"
      "switch 5ms cpu=0 1>idle S syscall=202\n"
      "switch 20ms cpu=1 2>3 R+\n"
      "switch 60ms cpu=1 3>2 R+\n"
      "switch 81ms cpu=0 idle>1 R wake=80ms waker=2\n"
      "switch 95ms cpu=0 1>9 S\n");
  EXPECT_EQ(p.Of(1, Reason::kHostCode), kMs * 9);   // 81..90
  EXPECT_EQ(p.Of(1, Reason::kWaitingForCpu), kMs);  // on an idle CPU
  EXPECT_EQ(p.Of(2, Reason::kHostCode), kMs * 38);  // 60..80 and 2..20
  EXPECT_EQ(p.Of(2, Reason::kWaitingForCpu, 3), kMs * 40);
}

TEST(CriticalPathTest, ChainsOfWakersAreFollowedBackToTheTrainer) {
  // trainer wakes 2 (30), 2 wakes 3 (50), 3 wakes the trainer (80).
  Path p = Walk(
      "switch 31ms cpu=1 idle>2 R wake=30ms waker=1\n"
      "switch 32ms cpu=0 1>idle S syscall=202\n"
      "switch 51ms cpu=2 idle>3 R wake=50ms waker=2\n"
      "switch 55ms cpu=1 2>idle S\n"
      "switch 80.5ms cpu=0 idle>1 R wake=80ms waker=3\n"
      "switch 95ms cpu=0 1>9 S\n");
  EXPECT_EQ(p.Of(1, Reason::kHostCode), kMs * 28 + Ns(9'500'000));
  EXPECT_EQ(p.Of(2, Reason::kHostCode), kMs * 19);  // 31..50
  EXPECT_EQ(p.Of(3, Reason::kHostCode), kMs * 29);  // 51..80
}

TEST(CriticalPathTest, InterruptEndsTheChainBySystemCall) {
  const std::string tail =
      "switch 80ms cpu=0 idle>1 R wake=80ms irq\nswitch 95ms cpu=0 1>9 S\n";
  EXPECT_EQ(Walk("switch 10ms cpu=0 1>idle S syscall=230\n" + tail)
                .Of(1, Reason::kSleepTimer),
            kMs * 70);
  EXPECT_EQ(Walk("switch 10ms cpu=0 1>idle S syscall=45\n" + tail)
                .Of(1, Reason::kSleepNetwork),
            kMs * 70);
  EXPECT_EQ(Walk("switch 10ms cpu=0 1>idle S syscall=202\n" + tail)
                .Of(1, Reason::kSleepOther),
            kMs * 70);
  EXPECT_EQ(Walk("switch 10ms cpu=0 1>idle D syscall=17\n" + tail)
                .Of(1, Reason::kDiskWait),
            kMs * 70);
}

TEST(CriticalPathTest, KernelThreadsAreNoCulprits) {
  Path p = Walk(
      "switch 0 cpu=1 9>4 S\n"
      "switch 10ms cpu=0 1>idle S syscall=45\n"
      "switch 80ms cpu=0 idle>1 R wake=80ms waker=4\n"
      "switch 95ms cpu=0 1>9 S\n");
  EXPECT_EQ(p.Of(1, Reason::kSleepNetwork), kMs * 70);
}

TEST(CriticalPathTest, LossIsUnknownAndThePathGoesOnBeforeIt) {
  Path p = Walk(
      "loss 40ms 50ms switch-ring-full 9 kernel\n"
      "switch 95ms cpu=0 1>9 S\n");
  EXPECT_EQ(p.Of(1, Reason::kUnknown), kMs * 10);
  EXPECT_EQ(p.Of(1, Reason::kHostCode), kMs * 78);
}

TEST(CriticalPathTest, WakersThatWakeEachOtherEndAsUnknown) {
  // Damaged data: both asleep, each said to have been woken by the other.
  Path p = Walk(
      "switch 10ms cpu=0 1>idle S syscall=202\n"
      "switch 11ms cpu=1 2>idle S syscall=202\n"
      "switch 80ms cpu=0 idle>1 R wake=80ms waker=2\n"
      "switch 81ms cpu=1 idle>2 R wake=80ms waker=1\n"
      "switch 95ms cpu=0 1>9 S\n");
  EXPECT_GT(p.Of(1, Reason::kUnknown) + p.Of(2, Reason::kUnknown), kMs * 60);
}

TEST(CriticalPathTest, SubmittersAreMarked) {
  Result<MemoryTrace> trace =
      ParseTrace(std::string(kHead) +
                 "switch 0 cpu=1 9>5 S\n"
                 "switch 10ms cpu=0 1>idle S syscall=202\n"
                 "switch 80ms cpu=0 idle>1 R wake=80ms waker=5\n"
                 "switch 95ms cpu=0 1>9 S\n");
  ASSERT_TRUE(trace.ok());
  for (const auto& c : RunAttribution(*trace, kMs * 30, true).paths)
    EXPECT_EQ(c.submits, c.thread == 1u);
}

TEST(CallSplitTest, PartsAndPartnersOfACallAcrossWindows) {
  Result<MemoryTrace> trace =
      ParseTrace(std::string(kHead) +
                 "call 91ms 99ms 1 sync\n"
                 "switch 92ms cpu=0 1>idle S syscall=202\n"
                 "switch 96ms cpu=0 2>1 R+ wake=94ms waker=3\n"
                 "switch 95ms cpu=0 idle>2 R wake=95ms\n"
                 "switch 99.5ms cpu=0 1>9 S\n");
  ASSERT_TRUE(trace.ok());
  const Attributed a = RunAttribution(*trace, kMs * 10, true);
  ASSERT_EQ(a.splits.size(), 1u);
  const auto& s = a.splits[0];
  EXPECT_EQ(s.running, kMs * 4);
  EXPECT_EQ(s.sleeping, kMs * 2);
  EXPECT_EQ(s.runnable, kMs * 2);
  EXPECT_EQ(s.holder, 2u);
  EXPECT_EQ(s.waker, 3u);
}

}  // namespace
}  // namespace ingero::testing
