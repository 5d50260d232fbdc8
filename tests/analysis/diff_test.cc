// SPDX-License-Identifier: Apache-2.0
// Steps, and two recordings compared. Traces are made here: a step waits for a
// worker, submits a copy and two launches, and synchronises.
#include "analysis/diff.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "analysis/step_finder.h"
#include "tests/support/trace_text.h"

namespace ingero::testing {
namespace {

using namespace analysis;  // NOLINT: tests of it

struct Loop {
  int steps = 60;
  // By step, us: the worker computes, the host computes, the GPU computes.
  std::function<int(int)> worker = [](int) { return 2000; };
  std::function<int(int)> host = [](int) { return 100; };
  std::function<int(int)> gpu = [](int) { return 5000; };
  int syncs_per_step = 1;
  int launches_of_step = 2;
  bool kernel = true;
  std::string name = "python3";
  std::string facts = "cpus=4";
};

std::string Us(int64_t t) { return std::to_string(t) + "us"; }

MemoryTrace Made(const Loop& run) {
  std::string text;
  int64_t t = 1000;
  for (int i = 0; i < run.steps; ++i) {
    const int64_t waits = t, ready = t + run.worker(i);
    text += "switch " + Us(waits) + " cpu=0 100>idle S syscall=202\n";
    text += "switch " + Us(ready) + " cpu=0 idle>100 X wake=" + Us(ready) +
            " waker=201\n";
    t = ready + run.host(i);
    text += "call " + Us(t) + " " + Us(t + 10) +
            " 100 cudaMemcpyAsync h2d pinned bytes=1048576\n";
    for (int s = 0; s < run.syncs_per_step; ++s) {
      for (int k = 0; k < run.launches_of_step + s; ++k) {
        t += 20;
        text += "call " + Us(t) + " " + Us(t + 5) + " 100 cudaLaunchKernel\n";
      }
      t += 20;
      const int64_t end = t + run.gpu(i) / run.syncs_per_step;
      text += "call " + Us(t) + " " + Us(end) + " 100 cudaStreamSynchronize\n";
      t = end + 1;
    }
  }
  std::string head = "span 0 " + Us(t + 1000) + "\n";
  if (run.kernel) head += "kernel 0 " + Us(t + 1000) + "\n";
  head += "facts " + run.facts +
          "\nprocess 900 bash\nprocess 100 " + run.name +
          " cuda\nprocess 201 worker parent=100\n"
          "func cudaLaunchKernel launch\nfunc cudaMemcpyAsync copy-async\n"
          "func cudaStreamSynchronize sync-stream\n"
          "func cudaDeviceSynchronize sync-device\n"
          "switch 0 cpu=0 900>100 S\nswitch 0 cpu=1 900>201 S\n";
  auto trace = ParseTrace(head + text);
  EXPECT_TRUE(trace.ok()) << trace.status().message();
  return std::move(*trace);
}

Diff Compare(const MemoryTrace& a, const MemoryTrace& b) {
  const MemoryReportSource before(a), after(b);
  Diff diff = CompareReports(before, after);
  double sum_a = 0, sum_b = 0;
  for (const PartChange& p : diff.parts) {
    sum_a += p.time.a;
    sum_b += p.time.b;
  }
  EXPECT_NEAR(sum_a, diff.whole.a, 1);
  EXPECT_NEAR(sum_b, diff.whole.b, 1);
  return diff;
}

const Change* Find(const Diff& diff, const std::string& part) {
  for (const PartChange& p : diff.parts)
    if (p.part == part) return &p.time;
  return nullptr;
}

// Small, seeded, the same in every run of the test.
int Jitter(int step, int seed, int most) {
  const auto x = static_cast<uint32_t>(step * 7919 + seed * 104729);
  return static_cast<int>((x * 2654435761u >> 16) % static_cast<uint32_t>(most));
}

TEST(StepsTest, AreCountedInSubmissionsAndNotInTime) {
  Loop run;
  run.worker = [](int i) { return i == 30 ? 400'000 : 2000; };
  const MemoryTrace trace = Made(run);
  const MemoryReportSource source(trace);
  EXPECT_EQ(source.attributed().steps.size(), 60u);
  const Report report = BuildReport(source, {});
  ASSERT_EQ(report.steps.size(), 1u);
  const StepSummary& s = report.steps[0];
  EXPECT_EQ(s.count, 59u);
  EXPECT_EQ(s.submissions, 3u);
  EXPECT_EQ(s.every, 1u);
  EXPECT_EQ(s.slow, 1u);
  ASSERT_EQ(s.slowest.size(), 1u);
  EXPECT_EQ(s.slowest[0].number, 30u);
  ASSERT_FALSE(s.slowest[0].extra.empty());
  EXPECT_EQ(s.slowest[0].extra[0].part, "loader-cpu-bound");
  EXPECT_NEAR(static_cast<double>(s.slowest[0].extra[0].time.value), 398e6,
              8e6);
  const Ns sum = s.starved + s.not_known + s.busy;
  EXPECT_NEAR(static_cast<double>(sum.value),
              static_cast<double>(s.range.length().value), 1e3);
}

TEST(StepsTest, SeveralSynchronisationsOfUnequalDistanceMakeOne) {
  Loop run;
  run.syncs_per_step = 3;
  const MemoryTrace trace = Made(run);
  const MemoryReportSource source(trace);
  ASSERT_EQ(source.attributed().steps.size(), 60u);
  EXPECT_EQ(source.attributed().steps[0].every, 3u);
}

TEST(StepsTest, ASynchronisationAfterEachLaunchIsNone) {
  std::string text =
      "span 0 1s\nprocess 100 python3 cuda\nfunc cudaLaunchKernel launch\n"
      "func cudaStreamSynchronize sync-stream\nrepeat 100 1ms\n"
      "call 10us 15us 100 cudaLaunchKernel\n"
      "call 20us 90us 100 cudaStreamSynchronize\nend\n";
  auto trace = ParseTrace(text);
  ASSERT_TRUE(trace.ok());
  EXPECT_TRUE(MemoryReportSource(*trace).attributed().steps.empty());
}

TEST(StepsTest, APhaseOfTheProgramIsNotItsPeriod) {
  // 30 steps, then 500 launches without a synchronisation.
  std::string text =
      "span 0 9s\nprocess 100 python3 cuda\nfunc cudaLaunchKernel launch\n"
      "func cudaStreamSynchronize sync-stream\nrepeat 30 10ms\n"
      "call 10us 15us 100 cudaLaunchKernel\n"
      "call 16us 18us 100 cudaLaunchKernel\n"
      "call 20us 90us 100 cudaStreamSynchronize\nend\n"
      "repeat 500 10ms\ncall 2s 2.000005s 100 cudaLaunchKernel\nend\n";
  auto trace = ParseTrace(text);
  ASSERT_TRUE(trace.ok());
  EXPECT_TRUE(MemoryReportSource(*trace).attributed().steps.empty());
}

TEST(StepsTest, AnEpochIsNoStepWhereStepsAreKnown) {
  std::string text =
      "span 0 9s\nprocess 100 python3 cuda\nfunc cudaLaunchKernel launch\n"
      "func cudaStreamSynchronize sync-stream\n"
      "func cudaDeviceSynchronize sync-device\nrepeat 25 200ms\n"
      "repeat 10 10ms\n"
      "call 10us 15us 100 cudaLaunchKernel\n"
      "call 16us 18us 100 cudaLaunchKernel\n"
      "call 20us 90us 100 cudaStreamSynchronize\nend\n"
      "call 150ms 151ms 100 cudaDeviceSynchronize\nend\n";
  auto trace = ParseTrace(text);
  ASSERT_TRUE(trace.ok());
  const MemoryReportSource source(*trace);
  EXPECT_EQ(source.attributed().steps.size(), 250u);
}

TEST(DiffTest, ARunAgainstItselfHasNoDifference) {
  Loop run;
  run.worker = [](int i) { return 2000 + Jitter(i, 1, 1000); };
  const MemoryTrace trace = Made(run);
  const Diff diff = Compare(trace, trace);
  EXPECT_TRUE(diff.by_step);
  EXPECT_TRUE(diff.not_judged.empty());
  EXPECT_EQ(diff.whole.change(), 0);
  EXPECT_NE(diff.verdict.find("No significant difference"), std::string::npos)
      << diff.verdict;
  EXPECT_TRUE(diff.notes.empty());
}

TEST(DiffTest, TwoNoisyRunsOfOneProgramHaveNoDifference) {
  for (int seed = 1; seed <= 20; ++seed) {
    Loop run;
    run.worker = [&](int i) { return 2000 + Jitter(i, seed, 3000); };
    const MemoryTrace a = Made(run);
    run.worker = [&](int i) { return 2000 + Jitter(i, seed + 100, 3000); };
    const MemoryTrace b = Made(run);
    const Diff diff = Compare(a, b);
    EXPECT_NE(diff.whole.change(), 0);
    EXPECT_NE(diff.verdict.find("No significant difference:"),
              std::string::npos)
        << seed << ": " << diff.verdict;
    for (const char* what : {"slower:0", "starved:0", "loader-cpu-bound:0"})
      EXPECT_FALSE(Judge(diff, *ParseFailCondition(what)).failed) << what;
  }
}

TEST(DiffTest, TheDifferenceGoesToItsCause) {
  Loop run;
  run.worker = [](int i) { return 2000 + Jitter(i, 1, 500); };
  const MemoryTrace a = Made(run);
  run.worker = [](int i) { return 8000 + Jitter(i, 2, 500); };
  run.steps = 90;
  const MemoryTrace b = Made(run);
  const Diff diff = Compare(a, b);
  EXPECT_TRUE(diff.whole.significant);
  EXPECT_NEAR(diff.whole.change(), 6e6, 2e5);
  ASSERT_NE(Find(diff, "loader-cpu-bound"), nullptr);
  EXPECT_NEAR(Find(diff, "loader-cpu-bound")->change(), 6e6, 2e5);
  EXPECT_TRUE(Find(diff, "loader-cpu-bound")->significant);
  EXPECT_FALSE(Find(diff, "gpu-busy")->significant);
  EXPECT_EQ(diff.parts[0].part, "loader-cpu-bound");
  EXPECT_NE(diff.verdict.find("B is slower"), std::string::npos);
  EXPECT_NE(diff.verdict.find("loader-cpu-bound +"), std::string::npos)
      << diff.verdict;
  EXPECT_NE(diff.notes.at(0).find("numbers of steps"), std::string::npos);
  EXPECT_TRUE(Judge(diff, *ParseFailCondition("slower")).failed);
  EXPECT_TRUE(Judge(diff, *ParseFailCondition("starved:20")).failed);
  EXPECT_TRUE(Judge(diff, *ParseFailCondition("loader-cpu-bound:20%")).failed);
  EXPECT_FALSE(Judge(diff, *ParseFailCondition("slower:200")).failed);
  EXPECT_FALSE(Judge(diff, *ParseFailCondition("gpu-busy")).failed);
  // The other way round it is faster.
  const Diff back = Compare(b, a);
  EXPECT_NE(back.verdict.find("B is faster"), std::string::npos);
  EXPECT_FALSE(Judge(back, *ParseFailCondition("slower:0")).failed);
}

TEST(DiffTest, ASlowerKernelIsWorkOnTheGpuAndNoCause) {
  Loop run;
  const MemoryTrace a = Made(run);
  run.gpu = [](int) { return 7000; };
  const Diff diff = Compare(a, Made(run));
  EXPECT_TRUE(diff.whole.significant);
  EXPECT_EQ(diff.parts[0].part, "gpu-busy");
  EXPECT_FALSE(diff.starved.significant);
  EXPECT_FALSE(Judge(diff, *ParseFailCondition("starved:0")).failed);
  EXPECT_EQ(diff.operations[0].name, "cudaStreamSynchronize");
  EXPECT_TRUE(diff.operations[0].time.significant);
  EXPECT_NEAR(diff.operations[0].time.change(), 2e6, 1e5);
}

TEST(DiffTest, WhatGoesFromOnePartToAnotherIsSaid) {
  Loop run;
  run.worker = [](int) { return 6000; };
  const MemoryTrace a = Made(run);
  run.worker = [](int) { return 2000; };
  run.host = [](int) { return 4100; };
  const Diff diff = Compare(a, Made(run));
  EXPECT_FALSE(diff.whole.significant);
  EXPECT_NE(diff.verdict.find("its parts differ"), std::string::npos)
      << diff.verdict;
  EXPECT_NE(diff.verdict.find("in-process-loading +"), std::string::npos)
      << diff.verdict;
  EXPECT_NE(diff.verdict.find("loader-cpu-bound -"), std::string::npos);
}

TEST(DiffTest, WithoutStepsASecondIsTheUnit) {
  Loop run;
  run.steps = 15;  // too few to be steps
  run.worker = [](int) { return 20'000; };
  const MemoryTrace a = Made(run);
  run.worker = [](int) { return 60'000; };
  const Diff diff = Compare(a, Made(run));
  EXPECT_FALSE(diff.by_step);
  EXPECT_NEAR(diff.whole.a, 1e9, 1);
  EXPECT_NE(diff.verdict.find("starves the GPU more"), std::string::npos)
      << diff.verdict;
  const FailAnswer slower = Judge(diff, *ParseFailCondition("slower"));
  EXPECT_FALSE(slower.judged);
  EXPECT_NE(slower.text.find("needs steps"), std::string::npos);
  EXPECT_TRUE(Judge(diff, *ParseFailCondition("starved")).failed);
}

TEST(DiffTest, UnlikeRecordingsAreNoted) {
  Loop run;
  const MemoryTrace a = Made(run);
  run.name = "other";
  run.facts = "cpus=16";
  run.kernel = false;
  MemoryTrace b = Made(run);
  b.facts.host = "elsewhere";
  const Diff diff = Compare(a, b);
  std::string notes;
  for (const std::string& note : diff.notes) notes += note + "\n";
  for (const char* words : {"different hosts", "numbers of CPUs: 4 (A) and 16",
                            "different programs: python3 (A) and other (B)",
                            "scheduling was not recorded in B"})
    EXPECT_NE(notes.find(words), std::string::npos) << words << "\n" << notes;
}

// Causes that one side cannot have are no difference, and no gate passes on it.
TEST(DiffTest, WithoutSchedulingCausesAreNotCompared) {
  Loop run;
  const MemoryTrace a = Made(run);
  run.kernel = false;
  const MemoryTrace b = Made(run);
  for (const Diff& diff : {Compare(a, b), Compare(b, a)}) {
    for (const PartChange& p : diff.parts)
      if (p.part != "gpu-busy" && p.part != "not-known") {
        EXPECT_FALSE(p.time.significant) << p.part;
      }
    const FailAnswer cause = Judge(diff, *ParseFailCondition("host-bound"));
    EXPECT_FALSE(cause.judged);
    EXPECT_NE(cause.text.find("scheduling was not recorded"),
              std::string::npos);
    EXPECT_TRUE(Judge(diff, *ParseFailCondition("starved")).judged);
  }
  EXPECT_TRUE(Judge(Compare(a, a), *ParseFailCondition("host-bound")).judged);
}

TEST(DiffTest, WithoutGpuWorkNothingIsJudged) {
  auto none = ParseTrace("span 0 1s\nprocess 100 python3\n");
  ASSERT_TRUE(none.ok());
  const MemoryTrace a = Made({});
  const Diff diff = Compare(a, *none);
  EXPECT_EQ(diff.not_judged, "no GPU work was recorded in B");
  EXPECT_FALSE(Judge(diff, *ParseFailCondition("starved")).judged);
}

TEST(DiffTest, ConditionsAreReadOrRefused) {
  EXPECT_EQ(ParseFailCondition("slower")->percent, 5);
  EXPECT_EQ(ParseFailCondition("host-bound:2.5%")->percent, 2.5);
  for (const char* bad : {"", "slow", "slower:", "slower:x", "slower:-1",
                          "slower:nan", "cold-start", "slower:5%%"})
    EXPECT_FALSE(ParseFailCondition(bad)) << bad;
}

}  // namespace
}  // namespace ingero::testing
