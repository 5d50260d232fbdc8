// SPDX-License-Identifier: Apache-2.0
// Operations with a long tail. Traces are made here: short synchronisations,
// now and then one that is long for the reason under test.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>

#include "analysis/report.h"
#include "tests/support/trace_text.h"

namespace ingero::testing {
namespace {

using namespace analysis;  // NOLINT: tests of it

std::string Us(int64_t t) { return std::to_string(t) + "us"; }

constexpr int kCalls = 400, kEvery = 40;
constexpr int64_t kShort = 20, kLong = 20'000;

// `slow(begin, end)`: the lines that tell what the thread did in a long call.
struct Program {
  std::function<std::string(int64_t, int64_t)> slow = [](int64_t, int64_t) {
    return std::string();
  };
  std::string of_slow;  // attributes of long calls
  bool kernel = true;
  bool driver = false;  // a driver call inside each
  int calls = kCalls;
  int64_t long_us = kLong;
};

MemoryTrace Made(const Program& run) {
  std::string text;
  int64_t t = 1000;
  for (int i = 0; i < run.calls; ++i) {
    const bool is_long = i % kEvery == kEvery / 2;
    text += "call " + Us(t) + " " + Us(t + 5) + " 100 cudaLaunchKernel\n";
    t += 50;
    const int64_t end = t + (is_long ? run.long_us : kShort);
    text += "call " + Us(t) + " " + Us(end) + " 100 cudaStreamSynchronize" +
            (is_long ? run.of_slow : "") + "\n";
    if (run.driver)
      text += "call " + Us(t + 1) + " " + Us(end - 1) +
              " 100 cuStreamSynchronize depth=1\n";
    if (is_long) text += run.slow(t, end);
    t = end + 50;
  }
  std::string head = "span 0 " + Us(t + 1000) + "\n";
  if (run.kernel) head += "kernel 0 " + Us(t + 1000) + "\n";
  head +=
      "facts cpus=2\nprocess 100 python3 cuda\nprocess 300 stress\n"
      "process 201 worker parent=100\n"
      "func cudaLaunchKernel launch\n"
      "func cudaStreamSynchronize sync-stream\n"
      "func cuStreamSynchronize sync-stream driver\n";
  if (run.kernel)
    head += "switch 0 cpu=0 300>100 S\nswitch 0 cpu=1 300>201 S\n";
  auto trace = ParseTrace(head + text);
  EXPECT_TRUE(trace.ok()) << trace.status().message();
  return std::move(*trace);
}

Report ReportOf(const Program& run) {
  const MemoryTrace trace = Made(run);
  const MemoryReportSource source(trace);
  ReportOptions options;
  options.chains = true;
  Report report = BuildReport(source, options);
  for (const Chain& c : report.chains)
    EXPECT_EQ(c.running + c.runnable + c.sleeping + c.io + c.unknown, c.time);
  // Nobody asked, nothing is read.
  EXPECT_TRUE(BuildReport(source, {}).chains.empty());
  return report;
}

// Without a CPU but for the first and last millisecond.
std::string Preempted(int64_t begin, int64_t end) {
  return "switch " + Us(begin + 1000) + " cpu=0 100>300 R+\n" + "switch " +
         Us(end - 1000) + " cpu=0 300>100 S\n";
}
std::string Asleep(int64_t begin, int64_t end) {
  return "switch " + Us(begin + 1000) + " cpu=0 100>idle S\n" + "switch " +
         Us(end - 1000) + " cpu=0 idle>100 X wake=" + Us(end - 1000) +
         " waker=201\n";
}

TEST(ChainsTest, WhoHeldTheCpuIsNamed) {
  Program run;
  run.slow = Preempted;
  const Report report = ReportOf(run);
  ASSERT_EQ(report.chains.size(), 1u);
  const Chain& c = report.chains[0];
  EXPECT_EQ(c.calls, static_cast<uint64_t>(kCalls / kEvery));
  EXPECT_EQ(c.runnable, kMillisecond * (18 * kCalls / kEvery));
  EXPECT_EQ(c.running, kMillisecond * (2 * kCalls / kEvery));
  ASSERT_NE(c.holder, kNone);
  EXPECT_EQ(report.threads[c.holder].tid, 300u);
  EXPECT_EQ(c.waker, kNone);
  ASSERT_FALSE(report.findings.empty());
  EXPECT_EQ(c.severity, report.findings[0].severity);
  EXPECT_EQ(c.cause, report.findings[0].cause);
  EXPECT_TRUE(c.text.starts_with("cudaStreamSynchronize p99=")) << c.text;
  EXPECT_NE(c.text.find("10 that slow are known to have left the CPU; their "
                        "time: 90 % ready without a CPU (most held by "
                        "stress/300), 10 % running"),
            std::string::npos)
      << c.text;
}

TEST(ChainsTest, WhoEndedTheSleepIsNamed) {
  Program run;
  run.slow = Asleep;
  const Report report = ReportOf(run);
  ASSERT_EQ(report.chains.size(), 1u);
  EXPECT_EQ(report.chains[0].sleeping, kMillisecond * (18 * kCalls / kEvery));
  EXPECT_NE(
      report.chains[0].text.find("90 % asleep (most woken by worker/201)"),
      std::string::npos)
      << report.chains[0].text;
}

TEST(ChainsTest, CallsThatRanThroughoutAreNoSplit) {
  const Report report = ReportOf({});
  ASSERT_EQ(report.chains.size(), 1u);
  EXPECT_TRUE(report.chains[0].split_known);
  EXPECT_EQ(report.chains[0].calls, 0u);
  EXPECT_NE(report.chains[0].text.find(
                "of 4 or more that slow, none is known to have left the CPU"),
            std::string::npos)
      << report.chains[0].text;
}

TEST(ChainsTest, WithoutSchedulingNothingIsSaidOfTheThread) {
  Program run;
  run.kernel = false;
  const Report report = ReportOf(run);
  ASSERT_EQ(report.chains.size(), 1u);
  EXPECT_FALSE(report.chains[0].split_known);
  EXPECT_NE(report.chains[0].text.find("is not known"), std::string::npos);
  EXPECT_EQ(report.chains[0].text.find("ran, or spun"), std::string::npos);
}

TEST(ChainsTest, FirstUsesAreNoTail) {
  Program run;
  run.slow = Preempted;
  run.of_slow = " first_use";
  EXPECT_TRUE(ReportOf(run).chains.empty());
}

// One first use, as long as the slow calls are: told by its call alone.
TEST(ChainsTest, FirstUseAmongSlowCallsIsLeftOut) {
  Program run;
  run.slow = Preempted;
  MemoryTrace trace = Made(run);
  for (Call& c : trace.calls)
    if (c.end - c.begin > kMillisecond) {
      c.first_use = true;
      break;
    }
  const MemoryReportSource source(trace);
  ReportOptions options;
  options.chains = true;
  const Report report = BuildReport(source, options);
  ASSERT_EQ(report.chains.size(), 1u);
  EXPECT_EQ(report.chains[0].calls, static_cast<uint64_t>(kCalls / kEvery - 1));
}

TEST(ChainsTest, CallInsideAnotherIsNotToldTwice) {
  Program run;
  run.slow = Preempted;
  run.driver = true;
  const Report report = ReportOf(run);
  ASSERT_EQ(report.chains.size(), 1u);
  EXPECT_EQ(report.functions[report.chains[0].func].name,
            "cudaStreamSynchronize");
}

TEST(ChainsTest, FewOrShortCallsAreNoTail) {
  Program few;
  few.slow = Preempted;
  few.calls = 90;
  EXPECT_TRUE(ReportOf(few).chains.empty());
  Program brief;
  brief.long_us = 900;
  EXPECT_TRUE(ReportOf(brief).chains.empty());
}

}  // namespace
}  // namespace ingero::testing
