// SPDX-License-Identifier: Apache-2.0
// Switches per second of the attribution alone, on a starved training run:
// four loader processes with helper threads and a main thread that sleeps for
// each batch. In memory; the same seed makes the same trace.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <random>

#include "analysis/attribution.h"
#include "tests/support/trace_text.h"

namespace ingero::bench {
namespace {

using namespace analysis;  // NOLINT: builds values of these types

constexpr uint32_t kWorkers = 4, kThreadsPerWorker = 8;

// CPU 0 has the main thread, each worker a CPU that its threads share.
testing::MemoryTrace MakeTrace(size_t switches) {
  testing::MemoryTrace trace;
  std::mt19937_64 random(1);
  for (uint32_t p = 0; p <= kWorkers; ++p) {
    Process process;
    process.pid = 1000 + 100 * p;
    process.name = p ? "pt_data_worker" : "python3";
    process.has_cuda = p == 0;
    process.parent = p ? 0 : kNone;
    process.main_thread = static_cast<ThreadIndex>(trace.thread_list.size());
    for (uint32_t t = 0; t < (p ? kThreadsPerWorker : 1); ++t)
      trace.thread_list.push_back({process.pid + t, p, process.name});
    trace.process_list.push_back(process);
  }
  trace.function_list = {
      {"cudaLaunchKernel", Layer::kRuntime, CallClass::kLaunch},
      {"cudaStreamSynchronize", Layer::kRuntime, CallClass::kSyncStream}};
  const auto thread = [](uint32_t worker, uint64_t t) {
    return static_cast<ThreadIndex>(1 + worker * kThreadsPerWorker + t);
  };
  Ns t{0}, batch{0}, keyframe{0};
  std::vector<StateAt> states(trace.thread_list.size());
  uint32_t running[kWorkers] = {};
  const auto add = [&](uint32_t cpu, ThreadIndex prev, ThreadIndex next,
                       ThreadState state, std::optional<Ns> wake,
                       ThreadIndex waker) {
    Switch s;
    s.t = t;
    s.cpu = static_cast<uint16_t>(cpu);
    s.prev = prev;
    s.next = next;
    s.prev_idle = prev == kNone;
    s.next_idle = next == kNone;
    s.prev_state = state;
    s.preempted = state == ThreadState::kRunnable;
    s.prev_syscall = 202;
    s.wake = wake;
    s.waker = waker;
    trace.switches.push_back(s);
    // As the store does it: every thread's state now and then.
    if (prev != kNone) states[prev] = {prev, state, t, s.cpu, 202};
    if (next != kNone) states[next] = {next, ThreadState::kRunning, t, s.cpu};
    if (t - keyframe < kSecond / 4) return;
    keyframe = t;
    for (const StateAt& at : states)
      if (at.thread != kNone) trace.keyframes.push_back({t + Ns(1), at});
  };
  while (trace.switches.size() < switches) {
    t = t + Ns(static_cast<int64_t>(500 + random() % 8000));
    const auto w = static_cast<uint32_t>(random() % kWorkers);
    const ThreadIndex prev = thread(w, running[w]);
    running[w] = (running[w] + 1 + random() % (kThreadsPerWorker - 1)) %
                 kThreadsPerWorker;
    // One in four is preempted, else it slept and a sibling woke the next.
    add(1 + w, prev, thread(w, running[w]),
        random() % 4 ? ThreadState::kSleeping : ThreadState::kRunnable,
        random() % 4 ? std::optional<Ns>(t - Ns(400)) : std::nullopt,
        random() % 4 ? prev : thread((w + 1) % kWorkers, 0));
    if (t - batch < Ns(5'000'000)) continue;
    // A batch: the main thread is woken, launches, waits for the GPU, sleeps.
    batch = t;
    add(0, kNone, 0, ThreadState::kUnknown, t - Ns(300), prev);
    Call call;
    call.thread = 0;
    call.func = 0;
    call.begin = t + Ns(1000);
    call.end = t + Ns(6000);
    trace.calls.push_back(call);
    call.func = 1;
    call.begin = t + Ns(7000);
    call.end = t + Ns(90'000);
    trace.calls.push_back(call);
    t = t + Ns(100'000);
    add(0, 0, kNone, ThreadState::kSleeping, std::nullopt, kNone);
  }
  trace.span_value = {Ns(0), t + Ns(1)};
  trace.kernel_list = {trace.span_value};
  trace.Sort();
  return trace;
}

struct Count : AttributionSink {
  void OnFeed(const FeedInterval&) override { ++rows; }
  void OnPath(const PathCell&) override { ++rows; }
  void OnSplit(const CallSplit&) override { ++rows; }
  void OnStep(const StepMark&) override { ++rows; }
  uint64_t rows = 0;
};

void BM_Attribute(benchmark::State& state) {
  const auto trace = MakeTrace(static_cast<size_t>(state.range(0)));
  uint64_t rows = 0;
  for (auto _ : state) {
    Count sink;
    benchmark::DoNotOptimize(Attribute(trace, &sink, nullptr).total());
    rows = sink.rows;
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
  state.counters["rows"] = static_cast<double>(rows);
}
BENCHMARK(BM_Attribute)->Arg(2'000'000)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace ingero::bench

BENCHMARK_MAIN();
