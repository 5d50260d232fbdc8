// SPDX-License-Identifier: Apache-2.0
// The whole of merge: stream files in, what the analysis sees out.
#include "merge/merge.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <random>
#include <set>
#include <tuple>

#include "merge/dump.h"
#include "merge/store_trace.h"
#include "merge/trace_reader.h"
#include "tests/support/stream_builder.h"

namespace ingero::merge {
namespace {

using analysis::Call;
using analysis::kNone;
using analysis::ReportSource;
using analysis::Switch;
using testing::CudaStreamBuilder;
using testing::KernelStreamBuilder;
using testing::ReadFile;
using testing::TempDir;

constexpr int64_t kT0 = 100'000'000'000;  // 100 s after boot
constexpr int64_t kMs = 1'000'000;

constexpr Interval kAlways{Ns(0), Ns(INT64_MAX)};

enum Func : uint16_t {
  kLaunch = 1, kDriverLaunch, kMemcpy, kSync, kMalloc, kHostAlloc, kFreeHost,
  kModuleLoad, kQuery
};

void AddNames(CudaStreamBuilder* s) {
  s->Name(kLaunch, "cudaLaunchKernel", INGERO_LAYER_RUNTIME,
          INGERO_CLASS_LAUNCH, {INGERO_WORD_KERNEL, INGERO_WORD_STREAM});
  s->Name(kDriverLaunch, "cuLaunchKernel", INGERO_LAYER_DRIVER,
          INGERO_CLASS_LAUNCH, {INGERO_WORD_KERNEL, INGERO_WORD_STREAM});
  s->Name(kMemcpy, "cudaMemcpy", INGERO_LAYER_RUNTIME, INGERO_CLASS_COPY,
          {INGERO_WORD_DST, INGERO_WORD_SRC, INGERO_WORD_BYTES});
  s->Name(kSync, "cudaStreamSynchronize", INGERO_LAYER_RUNTIME,
          INGERO_CLASS_SYNC_STREAM, {INGERO_WORD_STREAM});
  s->Name(kMalloc, "cudaMalloc", INGERO_LAYER_RUNTIME, INGERO_CLASS_ALLOC,
          {INGERO_WORD_ADDRESS, INGERO_WORD_BYTES});
  s->Name(kHostAlloc, "cudaHostAlloc", INGERO_LAYER_RUNTIME,
          INGERO_CLASS_ALLOC_HOST, {INGERO_WORD_ADDRESS, INGERO_WORD_BYTES});
  s->Name(kFreeHost, "cudaFreeHost", INGERO_LAYER_RUNTIME,
          INGERO_CLASS_FREE_HOST, {INGERO_WORD_ADDRESS});
  s->Name(kModuleLoad, "cuModuleLoadData", INGERO_LAYER_DRIVER,
          INGERO_CLASS_MODULE, {});
  s->Name(kQuery, "cudaStreamQuery", INGERO_LAYER_RUNTIME,
          INGERO_CLASS_QUERY_STREAM, {INGERO_WORD_STREAM});
}

Result<MergeSummary> MergeDir(const TempDir& dir,
                              const std::string& output = "") {
  MergeOptions options;
  options.dirs = {dir.path()};
  options.output = output;
  return Merge(options);
}

std::unique_ptr<ReportSource> MergeAndOpen(const TempDir& dir) {
  auto summary = MergeDir(dir);
  EXPECT_TRUE(summary.ok()) << summary.status().message();
  if (!summary.ok()) return nullptr;
  auto store = OpenStore(summary->store_path);
  EXPECT_TRUE(store.ok()) << store.status().message();
  return store.ok() ? std::move(*store) : nullptr;
}

std::vector<Call> AllCalls(const ReportSource& store, uint32_t process,
                           Interval window = kAlways) {
  std::vector<Call> calls;
  auto cursor = store.trace().Calls(process, window);
  Call call;
  while (cursor->Next(&call)) calls.push_back(call);
  return calls;
}

std::vector<Switch> AllSwitches(const ReportSource& store,
                                Interval window = kAlways) {
  std::vector<Switch> all;
  auto cursor = store.trace().Switches(window);
  Switch s;
  while (cursor->Next(&s)) all.push_back(s);
  return all;
}

const std::string& NameOf(const ReportSource& store, const Call& call) {
  return store.trace().functions()[call.func].name;
}

TEST(Merge, CallsMadeAreCallsStored) {
  TempDir dir;
  CudaStreamBuilder s(2254, kT0);
  AddNames(&s);
  constexpr int kCalls = 20000;  // many blocks of stream and store
  for (int i = 0; i < kCalls; ++i) {
    const uint64_t begin = kT0 + i * kMs;
    // As recorded: the nested call ends, and is written, first.
    CudaStreamBuilder::CallSpec inner;
    inner.start = begin + 1000;
    inner.duration = 5000;
    inner.depth = 1;
    inner.words = {0x1000, 7};
    s.Call(2254, kDriverLaunch, inner);
    CudaStreamBuilder::CallSpec outer;
    outer.start = begin;
    outer.duration = 8000;
    outer.words = {0x1000, 7};
    s.Call(2254, kLaunch, outer);
  }
  s.Write(dir / "cuda-2254-1.ingero");
  auto store = MergeAndOpen(dir);
  ASSERT_NE(store, nullptr);
  ASSERT_EQ(store->trace().processes().size(), 1u);
  EXPECT_EQ(store->trace().processes()[0].pid, 2254u);
  EXPECT_EQ(store->trace().processes()[0].name, "python3");
  EXPECT_TRUE(store->trace().processes()[0].has_cuda);
  const auto calls = AllCalls(*store, 0);
  ASSERT_EQ(calls.size(), 2u * kCalls);
  for (int i = 0; i < kCalls; ++i) {
    const Call& outer = calls[2 * i];
    const Call& inner = calls[2 * i + 1];
    ASSERT_EQ(outer.begin, Ns(kT0 + i * kMs));
    ASSERT_EQ(outer.end, Ns(kT0 + i * kMs + 8000));
    ASSERT_EQ(outer.depth, 0);
    ASSERT_EQ(NameOf(*store, outer), "cudaLaunchKernel");
    ASSERT_EQ(inner.begin, Ns(kT0 + i * kMs + 1000));
    ASSERT_EQ(inner.depth, 1);
    ASSERT_EQ(inner.object, 0x1000u);
    ASSERT_EQ(inner.stream, 7u);
    ASSERT_EQ(outer.first_call, i == 0);
  }
  // A window from its first to its last call, both of the store's blocks.
  const auto some =
      AllCalls(*store, 0, {Ns(kT0 + 5 * kMs), Ns(kT0 + 9000 * kMs)});
  EXPECT_EQ(some.size(), 2u * 8995);
}

TEST(Merge, LiveTwinOfWrittenBlockIsDropped) {
  TempDir dir;
  CudaStreamBuilder s(10, kT0);
  AddNames(&s);
  for (int i = 0; i < 100; ++i) s.Call(10, kSync, kT0 + i * kMs, 500);
  s.WriteOut(10);
  for (int i = 100; i < 150; ++i) s.Call(10, kSync, kT0 + i * kMs, 500);
  // Killed between the write and the reset of its slot.
  s.WriteOut(10, /*keep_live=*/true);
  s.Write(dir / "cuda-10-1.ingero");
  auto store = MergeAndOpen(dir);
  ASSERT_NE(store, nullptr);
  const auto calls = AllCalls(*store, 0);
  ASSERT_EQ(calls.size(), 150u);
  for (size_t i = 1; i < calls.size(); ++i)
    EXPECT_LT(calls[i - 1].begin, calls[i].begin);
  EXPECT_TRUE(store->trace().losses().empty());
}

TEST(Merge, ThreadsThatShareASlotKeepTheirCalls) {
  TempDir dir;
  CudaStreamBuilder s(10, kT0);
  AddNames(&s);
  s.Call(10, kSync, kT0, 500);
  for (uint32_t tid = 100; tid < 120; ++tid) {
    const uint64_t at = kT0 + tid * kMs;
    if (tid == 100)
      s.Thread(tid, "worker");
    else
      s.Reuse(tid - 1, tid, "worker");
    s.Call(tid, kSync, at, 500);
    s.Call(tid, kSync, at + 1000, 500);
    if (tid % 3 == 0) s.WriteOut(tid);
  }
  s.Write(dir / "cuda-10-1.ingero");
  auto store = MergeAndOpen(dir);
  ASSERT_NE(store, nullptr);
  std::map<uint32_t, int> by_tid;
  for (const Call& c : AllCalls(*store, 0))
    ++by_tid[store->trace().threads()[c.thread].tid];
  EXPECT_EQ(by_tid[10], 1);
  for (uint32_t tid = 100; tid < 120; ++tid) EXPECT_EQ(by_tid[tid], 2) << tid;
}

TEST(Merge, CallsInFlightEndWithTheirProcess) {
  TempDir dir;
  CudaStreamBuilder s(10, kT0, kT0 - kMs * 500);
  s.header.exited = 0;  // killed
  AddNames(&s);
  s.Call(10, kSync, kT0, 500);
  CudaStreamBuilder::CallSpec nested;
  nested.start = kT0 + 12 * kMs;
  nested.duration = 1000;
  nested.depth = 1;
  s.Call(10, kDriverLaunch, nested);
  s.InFlight(10, 0, kLaunch, kT0 + 11 * kMs);
  s.Write(dir / "cuda-10-1.ingero");
  KernelStreamBuilder k(kT0 - 10 * kMs);
  k.Task({.t = kT0 - 10 * kMs, .tid = 10, .tgid = 10,
          .start_ns = static_cast<uint64_t>(kT0 - kMs * 500),
          .text = "python3"});
  k.Task({.t = kT0 + 80 * kMs, .event = INGERO_TASK_EVENT_EXIT, .tid = 10,
          .tgid = 10, .code = 9});
  k.Write(dir / "kernel-1-1.ingero");
  auto store = MergeAndOpen(dir);
  ASSERT_NE(store, nullptr);
  const auto calls = AllCalls(*store, 0);
  ASSERT_EQ(calls.size(), 3u);
  EXPECT_FALSE(calls[0].no_end);
  EXPECT_TRUE(calls[1].no_end);
  EXPECT_EQ(NameOf(*store, calls[1]), "cudaLaunchKernel");
  EXPECT_EQ(calls[1].begin, Ns(kT0 + 11 * kMs));
  EXPECT_EQ(calls[1].end, Ns(kT0 + 80 * kMs));
  EXPECT_EQ(calls[2].depth, 1);
  const auto& p = store->trace().processes()[0];
  ASSERT_TRUE(p.exited);
  EXPECT_EQ(*p.exited, Ns(kT0 + 80 * kMs));
  EXPECT_EQ(p.exit_code, 9);
}

TEST(Merge, ReusedPidIsAnotherProcess) {
  TempDir dir;
  for (int life = 0; life < 2; ++life) {
    const int64_t begin = kT0 + life * 5000 * kMs;
    CudaStreamBuilder s(77, begin, begin - 100 * kMs);
    AddNames(&s);
    s.Call(77, kSync, begin, 500);
    s.Call(77, kSync, begin + (life == 0 ? 6000 : 100) * kMs, 500);
    s.Write(dir / ("cuda-77-" + std::to_string(life) + ".ingero"));
  }
  KernelStreamBuilder k(kT0 - 200 * kMs);
  k.Task({.t = kT0 - 200 * kMs, .tid = 1, .tgid = 1, .start_ns = 1,
          .text = "init"});
  for (int life = 0; life < 2; ++life) {
    const auto start =
        static_cast<uint64_t>(kT0 + life * 5000 * kMs - 100 * kMs);
    k.Task({.t = start, .event = INGERO_TASK_EVENT_FORK, .tid = 77, .tgid = 77,
            .parent_tgid = 1, .start_ns = start + 3'000'000,
            .text = life == 0 ? "first" : "second"});
    k.Task({.t = start + 4000 * kMs, .event = INGERO_TASK_EVENT_EXIT,
            .tid = 77, .tgid = 77, .code = life});
  }
  k.Write(dir / "kernel-1-1.ingero");
  auto store = MergeAndOpen(dir);
  ASSERT_NE(store, nullptr);
  const auto& processes = store->trace().processes();
  ASSERT_EQ(processes.size(), 3u);
  std::set<std::string> names;
  for (uint32_t p = 1; p < 3; ++p) {
    EXPECT_TRUE(processes[p].has_cuda);
    EXPECT_EQ(processes[p].parent, 0u);
    names.insert(processes[p].name);
    EXPECT_EQ(AllCalls(*store, p).size(), 2u);
    for (const Call& c : AllCalls(*store, p))
      EXPECT_EQ(store->trace().threads()[c.thread].process, p);
  }
  EXPECT_EQ(names, (std::set<std::string>{"first", "second"}));
}

TEST(Merge, ContainerPidsAreJoinedByNamespace) {
  TempDir dir;
  KernelStreamBuilder k(kT0 - 10 * kMs);
  // Two containers whose process and thread numbers are the same inside.
  for (int box = 0; box < 2; ++box) {
    const uint32_t host = 5000 + 1000 * box;
    const uint64_t ns = 900 + box;
    const auto start = static_cast<uint64_t>(kT0 - 500 * kMs);
    k.Task({.t = kT0 - 10 * kMs, .tid = host, .tgid = host, .start_ns = start,
            .ns_tid = 1, .ns_tgid = 1, .pid_namespace = ns,
            .text = "box" + std::to_string(box)});
    k.Task({.t = kT0 - 10 * kMs, .tid = host + 2, .tgid = host,
            .start_ns = start, .ns_tid = 3, .ns_tgid = 1, .pid_namespace = ns,
            .text = "helper"});
    CudaStreamBuilder s(1, kT0, start);
    s.header.pid_namespace = ns;
    AddNames(&s);
    s.Call(1, kSync, kT0 + box, 500);
    s.Call(3, kSync, kT0 + 1000 + box, 500);
    s.Write(dir / ("cuda-1-" + std::to_string(box) + ".ingero"));
  }
  k.Switch(0, {.t = kT0 + kMs});
  k.Write(dir / "kernel-1-1.ingero");
  auto store = MergeAndOpen(dir);
  ASSERT_NE(store, nullptr);
  const auto& trace = store->trace();
  ASSERT_EQ(trace.processes().size(), 2u);
  for (uint32_t p = 0; p < 2; ++p) {
    EXPECT_EQ(trace.processes()[p].pid, 5000 + 1000 * p);
    EXPECT_EQ(trace.processes()[p].ns_pid, 1u);
    const auto calls = AllCalls(*store, p);
    ASSERT_EQ(calls.size(), 2u);
    EXPECT_EQ(trace.threads()[calls[0].thread].tid, 5000 + 1000 * p);
    EXPECT_EQ(trace.threads()[calls[1].thread].tid, 5002 + 1000 * p);
    EXPECT_EQ(trace.threads()[calls[1].thread].name, "helper");
    EXPECT_EQ(calls[0].begin, Ns(kT0 + p));
  }
}

TEST(Merge, LivesOfTasks) {
  TempDir dir;
  KernelStreamBuilder k(kT0);
  k.Task({.t = kT0, .tid = 2, .tgid = 2, .start_ns = 1, .text = "kthreadd"});
  k.Task({.t = kT0, .tid = 9, .tgid = 9, .parent_tgid = 2, .start_ns = 2,
          .text = "ksoftirqd/0"});
  k.Task({.t = kT0, .tid = 100, .tgid = 100, .start_ns = 50,
          .text = std::string("python3\0/usr/bin/python3\0python3\x1ft.py", 37)});
  k.Task({.t = kT0 + kMs, .event = INGERO_TASK_EVENT_FORK, .tid = 101,
          .tgid = 101, .parent_tgid = 100,
          .start_ns = static_cast<uint64_t>(kT0 + kMs), .text = "python3"});
  k.Task({.t = kT0 + 2 * kMs, .event = INGERO_TASK_EVENT_RENAME, .tid = 101,
          .tgid = 101, .text = "pt_data_worker"});
  k.Task({.t = kT0 + 3 * kMs, .event = INGERO_TASK_EVENT_FORK, .tid = 102,
          .tgid = 101, .parent_tgid = 101,
          .start_ns = static_cast<uint64_t>(kT0 + kMs), .text = "helper"});
  k.Task({.t = kT0 + 4 * kMs, .event = INGERO_TASK_EVENT_FORK, .tid = 103,
          .tgid = 103, .parent_tgid = 100,
          .start_ns = static_cast<uint64_t>(kT0 + 4 * kMs),
          .text = "python3"});
  k.Task({.t = kT0 + 5 * kMs, .event = INGERO_TASK_EVENT_EXEC, .tid = 103,
          .tgid = 103, .text = std::string("gcc\0/usr/bin/gcc\0gcc\x1f-v", 23)});
  k.Task({.t = kT0 + 6 * kMs, .event = INGERO_TASK_EVENT_EXIT, .tid = 103,
          .tgid = 103, .code = 256});
  k.Task({.t = kT0, .tid = 300, .tgid = 300, .start_ns = 7,
          .text = "ingero-kprobe"});
  k.Write(dir / "kernel-1-1.ingero");
  auto store = MergeAndOpen(dir);
  ASSERT_NE(store, nullptr);
  const auto& trace = store->trace();
  std::map<uint32_t, analysis::Process> by_pid;
  std::map<uint32_t, uint32_t> index;
  for (uint32_t i = 0; i < trace.processes().size(); ++i) {
    by_pid[trace.processes()[i].pid] = trace.processes()[i];
    index[trace.processes()[i].pid] = i;
  }
  ASSERT_EQ(by_pid.size(), 6u);
  EXPECT_TRUE(by_pid[2].is_kernel);
  EXPECT_TRUE(by_pid[9].is_kernel);
  EXPECT_FALSE(by_pid[100].is_kernel);
  EXPECT_EQ(by_pid[100].exe, "/usr/bin/python3");
  EXPECT_EQ(by_pid[100].cmdline, "python3\x1ft.py");
  EXPECT_EQ(by_pid[101].name, "pt_data_worker");
  EXPECT_EQ(by_pid[101].parent, index[100]);
  EXPECT_EQ(by_pid[103].name, "gcc");
  EXPECT_EQ(by_pid[103].exe, "/usr/bin/gcc");
  EXPECT_EQ(by_pid[103].exit_code, 256);
  EXPECT_FALSE(by_pid[101].exited);
  EXPECT_TRUE(by_pid[300].is_ingero);
  EXPECT_EQ(trace.threads()[by_pid[101].main_thread].tid, 101u);
  const auto facts = store->facts();
  EXPECT_FALSE(facts.missing.empty());  // no CUDA stream, no switches
}

// Whoever happened to run when the waking came is no waker, whether the kernel
// says that it was an interrupt or does not say.
TEST(Merge, WakesWithoutAWaker) {
  TempDir dir;
  KernelStreamBuilder k(kT0);
  const uint64_t flags[] = {0, INGERO_WAKE_IRQ, INGERO_WAKE_UNKNOWN};
  uint64_t t = static_cast<uint64_t>(kT0);
  for (const uint64_t flag : flags) {
    k.Switch(0, {.t = t, .next_tid = 100, .next_tgid = 100});
    k.Switch(0, {.t = t + 1000, .prev_tid = 100, .prev_tgid = 100,
                 .next_tid = 200, .next_tgid = 200,
                 .prev_state = INGERO_TASK_INTERRUPTIBLE});
    k.Switch(0, {.t = t + 3000, .prev_tid = 200, .prev_tgid = 200,
                 .next_tid = 100, .next_tgid = 100,
                 .flags = INGERO_PREV_PREEMPTED | flag, .wake = t + 2000,
                 .waker_tid = 200, .waker_tgid = 200});
    k.Switch(0, {.t = t + 4000, .prev_tid = 100, .prev_tgid = 100,
                 .prev_state = INGERO_TASK_INTERRUPTIBLE});
    t += 10000;
  }
  k.Write(dir / "kernel-1-1.ingero");
  auto store = MergeAndOpen(dir);
  ASSERT_NE(store, nullptr);
  const auto switches = AllSwitches(*store);
  ASSERT_EQ(switches.size(), 12u);
  for (size_t i = 0; i < std::size(flags); i++) {
    const auto& s = switches[4 * i + 2];
    EXPECT_TRUE(s.wake);
    EXPECT_EQ(s.wake_from_irq, flags[i] != 0);
    EXPECT_EQ(s.waker == kNone, flags[i] != 0);
  }
}

TEST(Merge, SwitchesStatesAndSummaries) {
  TempDir dir;
  KernelStreamBuilder k(kT0);
  for (uint32_t tid : {100u, 200u})
    k.Task({.t = kT0, .tid = tid, .tgid = tid, .start_ns = 50,
            .text = "t" + std::to_string(tid)});
  // 100 runs 2.5 s, is preempted by 200 for 1 s; then sleeps 3 s (futex, 202),
  // woken by 200, which keeps the CPU for another 0.5 s.
  constexpr int64_t kS = 1'000'000'000;
  const auto at = [](double s) {
    return static_cast<uint64_t>(kT0) +
           static_cast<uint64_t>(s * static_cast<double>(kS));
  };
  k.Switch(0, {.t = at(0), .next_tid = 100, .next_tgid = 100});
  k.Switch(0, {.t = at(2.5), .prev_tid = 100, .prev_tgid = 100,
               .next_tid = 200, .next_tgid = 200,
               .flags = INGERO_PREV_PREEMPTED, .pages = 5});
  k.Switch(0, {.t = at(3.5), .prev_tid = 200, .prev_tgid = 200,
               .next_tid = 100, .next_tgid = 100,
               .flags = INGERO_PREV_YIELDED});
  k.Switch(0, {.t = at(4), .prev_tid = 100, .prev_tgid = 100,
               .next_tid = 200, .next_tgid = 200,
               .prev_state = INGERO_TASK_INTERRUPTIBLE, .prev_syscall = 202});
  k.Switch(0, {.t = at(7.5), .prev_tid = 200, .prev_tgid = 200,
               .next_tid = 100, .next_tgid = 100,
               .prev_state = INGERO_TASK_UNINTERRUPTIBLE,
               .wake = at(7), .waker_tid = 200, .waker_tgid = 200});
  k.Switch(0, {.t = at(8), .prev_tid = 100, .prev_tgid = 100,
               .flags = INGERO_PREV_DEAD});
  k.Write(dir / "kernel-1-1.ingero");
  auto store = MergeAndOpen(dir);
  ASSERT_NE(store, nullptr);
  const auto switches = AllSwitches(*store);
  ASSERT_EQ(switches.size(), 6u);
  const auto& trace = store->trace();
  EXPECT_TRUE(switches[0].prev_idle);
  EXPECT_TRUE(switches[1].preempted);
  EXPECT_EQ(switches[1].prev_pages, 5u);
  EXPECT_TRUE(switches[2].yielded);
  EXPECT_EQ(switches[3].prev_state, analysis::ThreadState::kSleeping);
  EXPECT_EQ(switches[3].prev_syscall, 202);
  EXPECT_EQ(switches[4].prev_state, analysis::ThreadState::kBlocked);
  ASSERT_TRUE(switches[4].wake);
  EXPECT_EQ(*switches[4].wake, Ns(static_cast<int64_t>(at(7))));
  ASSERT_NE(switches[4].waker, kNone);
  EXPECT_EQ(trace.threads()[switches[4].waker].tid, 200u);
  EXPECT_EQ(switches[5].prev_state, analysis::ThreadState::kDead);
  EXPECT_TRUE(switches[5].next_idle);
  EXPECT_FALSE(switches[4].wake_from_irq);
  ASSERT_EQ(trace.kernel_spans().size(), 1u);
  EXPECT_EQ(trace.kernel_spans()[0].begin, Ns(kT0));

  // So few switches are replayed from their begin.
  EXPECT_LE(trace.StatesAt(Ns(static_cast<int64_t>(at(6)))).first,
            Ns(static_cast<int64_t>(at(0))));

  const auto summary = store->Summarize(trace.span());
  ASSERT_EQ(summary.activities.size(), 2u);
  const auto& a = summary.activities[0];
  EXPECT_EQ(a.running, Ns(kS * 7 / 2));
  EXPECT_EQ(a.runnable, Ns(kS * 3 / 2));
  EXPECT_EQ(a.sleeping, Ns(3 * kS));
  EXPECT_EQ(a.preempted, 1u);
  EXPECT_EQ(a.slept, 1u);
  EXPECT_EQ(a.pages, 5u);
  EXPECT_EQ(a.worst_off_cpu, Ns(kS * 7 / 2));
  EXPECT_EQ(summary.activities[1].yielded, 1u);
  // A window of whole seconds inside the sleep.
  const auto inside = store->Summarize(
      {Ns(static_cast<int64_t>(at(5))), Ns(static_cast<int64_t>(at(7)))});
  ASSERT_EQ(inside.activities.size(), 2u);
  EXPECT_EQ(inside.activities[0].sleeping, Ns(2 * kS));
  EXPECT_EQ(inside.activities[0].running, Ns(0));
  EXPECT_EQ(inside.activities[1].running, Ns(2 * kS));
}

TEST(Merge, PagesToldBeforeTheSwitchCountOnce) {
  TempDir dir;
  KernelStreamBuilder k(kT0);
  const auto at = [](int64_t ms) {
    return static_cast<uint64_t>(kT0 + ms * kMs);
  };
  k.Task({.t = kT0, .tid = 100, .tgid = 100, .start_ns = 50, .text = "a"});
  k.Switch(0, {.t = at(1), .next_tid = 100, .next_tgid = 100});
  k.Task({.t = at(10), .event = INGERO_TASK_EVENT_PAGES, .tid = 100,
          .tgid = 100, .start_ns = 50, .code = 4096});
  k.Switch(0, {.t = at(20), .prev_tid = 100, .prev_tgid = 100, .pages = 5000,
               .kernel_us = 4000});
  k.Switch(0, {.t = at(30), .next_tid = 100, .next_tgid = 100});
  k.Switch(0, {.t = at(40), .prev_tid = 100, .prev_tgid = 100, .pages = 7});
  k.Write(dir / "kernel-1-1.ingero");
  auto store = MergeAndOpen(dir);
  ASSERT_NE(store, nullptr);
  const auto switches = AllSwitches(*store);
  ASSERT_EQ(switches.size(), 4u);
  EXPECT_EQ(switches[1].prev_pages, 5000u);
  EXPECT_EQ(switches[1].prev_kernel, Ns(4 * kMs));
  const auto summary = store->Summarize(store->trace().span());
  ASSERT_EQ(summary.activities.size(), 1u);
  EXPECT_EQ(summary.activities[0].pages, 5007u);
  EXPECT_EQ(summary.activities[0].kernel, Ns(4 * kMs));
}

TEST(Merge, MemoryStallsReachTheAnalysis) {
  TempDir dir;
  KernelStreamBuilder k(kT0);
  const auto at = [](int64_t ms) {
    return static_cast<uint64_t>(kT0 + ms * kMs);
  };
  k.Task({.t = kT0, .tid = 100, .tgid = 100, .start_ns = 50, .text = "a"});
  k.Switch(0, {.t = at(1), .next_tid = 100, .next_tgid = 100});
  k.Task({.t = at(10), .event = INGERO_TASK_EVENT_RECLAIM, .tid = 100,
          .tgid = 100, .start_ns = 50, .code = 4 * kMs});
  k.Task({.t = at(30), .event = INGERO_TASK_EVENT_COMPACTION, .tid = 100,
          .tgid = 100, .start_ns = 50, .code = kMs});
  k.Switch(0, {.t = at(40), .prev_tid = 100, .prev_tgid = 100});
  k.Write(dir / "kernel-1-1.ingero");
  auto store = MergeAndOpen(dir);
  ASSERT_NE(store, nullptr);
  const auto& trace = store->trace();
  const auto stalls = trace.MemoryStalls(trace.span());
  ASSERT_EQ(stalls.size(), 2u);
  EXPECT_EQ(stalls[0].range,
            (Interval{Ns(kT0 + 6 * kMs), Ns(kT0 + 10 * kMs)}));
  EXPECT_FALSE(stalls[0].compaction);
  EXPECT_EQ(stalls[1].range.length(), Ns(kMs));
  EXPECT_TRUE(stalls[1].compaction);
  EXPECT_EQ(trace.threads()[stalls[1].thread].tid, 100u);
  // By their end.
  EXPECT_EQ(trace.MemoryStalls({Ns(kT0 + 7 * kMs), Ns(kT0 + 10 * kMs)}).size(),
            0u);
}

TEST(Merge, ThrottledWaitsAndCgroupsReachTheAnalysis) {
  TempDir dir;
  KernelStreamBuilder k(kT0);
  const auto at = [](int64_t ms) {
    return static_cast<uint64_t>(kT0 + ms * kMs);
  };
  k.Task({.t = kT0, .tid = 100, .tgid = 100, .start_ns = 50, .text = "a",
          .cgroup_id = 7});
  k.Switch(0, {.t = at(1), .next_tid = 100, .next_tgid = 100});
  k.Switch(0, {.t = at(20), .prev_tid = 100, .prev_tgid = 100,
               .flags = INGERO_PREV_PREEMPTED});
  k.Switch(0, {.t = at(90), .next_tid = 100, .next_tgid = 100,
               .throttled_ns = 60 * kMs});
  // A thread in a cgroup of its own, then the whole process moves.
  k.Task({.t = at(91), .event = INGERO_TASK_EVENT_FORK, .tid = 101,
          .tgid = 100, .start_ns = 50, .text = "b", .cgroup_id = 8});
  k.Task({.t = at(92), .event = INGERO_TASK_EVENT_CGROUP, .tid = 101,
          .tgid = 100, .start_ns = 50, .text = "b", .cgroup_id = 9});
  k.Switch(0, {.t = at(95), .prev_tid = 100, .prev_tgid = 100});
  const uint64_t wide = uint64_t{5} << 32 | 7;
  k.Sample(at(95), Metric::kCgroupQuotaNs, wide, 20'000'000);
  k.Write(dir / "kernel-1-1.ingero");
  {
    auto store = MergeAndOpen(dir);
    ASSERT_NE(store, nullptr);
    const auto switches = AllSwitches(*store);
    ASSERT_EQ(switches.size(), 4u);
    EXPECT_EQ(switches[2].next_throttled, Ns(60 * kMs));
    EXPECT_EQ(store->trace().processes()[0].cgroup_id, 7u);
    const Interval span = store->trace().span();
    auto samples = store->trace().Samples({span.begin, span.end + Ns(1)});
    analysis::Sample s;
    ASSERT_TRUE(samples->Next(&s));
    EXPECT_EQ(s.instance, wide);
  }
  TempDir moved;
  k.Task({.t = at(96), .event = INGERO_TASK_EVENT_CGROUP, .tid = 100,
          .tgid = 100, .start_ns = 50, .code = 1, .text = "a",
          .cgroup_id = 10});
  k.Write(moved / "kernel-1-1.ingero");
  auto store = MergeAndOpen(moved);
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(store->trace().processes()[0].cgroup_id, 10u);
}

TEST(Merge, KeyframesAllowToStartAnywhere) {
  TempDir dir;
  KernelStreamBuilder k(kT0);
  for (uint32_t tid : {100u, 200u})
    k.Task({.t = kT0, .tid = tid, .tgid = tid, .start_ns = 50, .text = "t"});
  // Two threads take turns every 0.4 ms for 5 s on CPU 1.
  for (int i = 0; i < 12'500; ++i) {
    const uint32_t in = i % 2 ? 100 : 200, out = i % 2 ? 200 : 100;
    k.Switch(1, {.t = static_cast<uint64_t>(kT0 + i * 4 * (kMs / 10)),
                 .prev_tid = i == 0 ? 0 : out, .prev_tgid = i == 0 ? 0 : out,
                 .next_tid = in, .next_tgid = in,
                 .prev_state = INGERO_TASK_INTERRUPTIBLE, .prev_syscall = 7});
  }
  k.Write(dir / "kernel-1-1.ingero");
  auto store = MergeAndOpen(dir);
  ASSERT_NE(store, nullptr);
  const auto [when, states] =
      store->trace().StatesAt(Ns(kT0 + 3555 * kMs));
  EXPECT_GT(when, Ns(kT0 + 2500 * kMs));
  EXPECT_LE(when, Ns(kT0 + 3555 * kMs));
  ASSERT_EQ(states.size(), 2u);
  int running = 0, sleeping = 0;
  for (const auto& s : states) {
    running += s.state == analysis::ThreadState::kRunning;
    sleeping += s.state == analysis::ThreadState::kSleeping;
    EXPECT_LE(s.since, when);
    EXPECT_EQ(s.cpu, 1);
    if (s.state == analysis::ThreadState::kSleeping) {
      EXPECT_EQ(s.syscall, 7);
    }
  }
  EXPECT_EQ(running, 1);
  EXPECT_EQ(sleeping, 1);
  // Before the first keyframe there is none.
  EXPECT_TRUE(store->trace().StatesAt(Ns(kT0)).second.empty());
}

TEST(Merge, SecondMergeChangesNothingAndNewDataIsAdded) {
  TempDir dir;
  CudaStreamBuilder s(10, kT0);
  AddNames(&s);
  for (int i = 0; i < 1000; ++i) s.Call(10, kSync, kT0 + i * kMs, 500);
  s.Write(dir / "cuda-10-1.ingero");
  KernelStreamBuilder k(kT0);
  k.Task({.t = kT0, .tid = 10, .tgid = 10, .start_ns = 0, .text = "python3"});
  k.Switch(0, {.t = kT0 + kMs, .next_tid = 10, .next_tgid = 10});
  k.Flush();
  k.Write(dir / "kernel-1-1.ingero");
  auto first = MergeDir(dir);
  ASSERT_TRUE(first.ok()) << first.status().message();
  EXPECT_EQ(first->calls, 1000u);
  EXPECT_EQ(first->switches, 1u);
  EXPECT_EQ(first->added_events, 1002u);
  const std::string data = first->store_path + "/data.mdb";
  const std::string before = ReadFile(data);

  auto second = MergeDir(dir);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(second->added_events, 0u);
  EXPECT_EQ(second->calls, 1000u);
  EXPECT_EQ(ReadFile(data), before);

  // A reader of the old state keeps it while new data is merged.
  auto old_store = OpenStore(first->store_path);
  ASSERT_TRUE(old_store.ok());
  k.Switch(0, {.t = kT0 + 2 * kMs, .prev_tid = 10, .prev_tgid = 10});
  k.Write(dir / "kernel-1-1.ingero");
  CudaStreamBuilder other(11, kT0 + kMs);
  AddNames(&other);
  other.Call(11, kSync, kT0 + kMs, 500);
  other.Write(dir / "cuda-11-1.ingero");
  auto third = MergeDir(dir);
  ASSERT_TRUE(third.ok());
  EXPECT_EQ(third->store_path, first->store_path);
  EXPECT_EQ(third->added_events, 2u);
  EXPECT_EQ(third->calls, 1001u);
  EXPECT_EQ(third->switches, 2u);
  EXPECT_EQ(AllSwitches(**old_store).size(), 1u);
  auto new_store = OpenStore(third->store_path);
  ASSERT_TRUE(new_store.ok());
  EXPECT_EQ(AllSwitches(**new_store).size(), 2u);

  // A stream that was merged and is gone: nothing is dropped silently.
  std::filesystem::remove(dir / "cuda-11-1.ingero");
  auto unchanged = MergeDir(dir);
  ASSERT_TRUE(unchanged.ok()) << unchanged.status().message();
  EXPECT_EQ(unchanged->calls, 1001u);
  EXPECT_EQ(unchanged->added_events, 0u);
  ASSERT_EQ(unchanged->notes.size(), third->notes.size() + 1);
  EXPECT_NE(unchanged->notes.back().find("a stream that is no longer in the "
                                         "trace folder, cuda-11-1.ingero"),
            std::string::npos)
      << unchanged->notes.back();
  s.Call(10, kSync, kT0 + 1000 * kMs, 500);
  s.Write(dir / "cuda-10-1.ingero");
  auto refused = MergeDir(dir);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("cuda-11-1.ingero"),
            std::string::npos);
  auto elsewhere = MergeDir(dir, dir / "other");
  ASSERT_TRUE(elsewhere.ok()) << elsewhere.status().message();
  EXPECT_EQ(elsewhere->calls, 1001u);
}

TEST(Merge, OneWriterAtATime) {
  TempDir dir;
  CudaStreamBuilder s(10, kT0);
  AddNames(&s);
  s.Call(10, kSync, kT0, 500);
  s.Write(dir / "cuda-10-1.ingero");
  ASSERT_EQ(mkdir((dir / "out").c_str(), 0755), 0);
  const int fd = open((dir / "out/merge.lock").c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_EQ(flock(fd, LOCK_EX), 0);
  auto told = MergeDir(dir, dir / "out");
  ASSERT_FALSE(told.ok());
  EXPECT_NE(told.status().message().find("another merge"), std::string::npos);
  close(fd);
  EXPECT_TRUE(MergeDir(dir, dir / "out").ok());
}

TEST(Merge, FullDiskLeavesTheOldStore) {
  TempDir dir;
  CudaStreamBuilder s(10, kT0);
  AddNames(&s);
  for (int i = 0; i < 100; ++i) s.Call(10, kSync, kT0 + i * kMs, 500);
  s.Write(dir / "cuda-10-1.ingero");
  auto first = MergeDir(dir);
  ASSERT_TRUE(first.ok());
  const std::string before = ReadFile(first->store_path + "/data.mdb");
  for (int i = 100; i < 30000; ++i)
    s.Call(10, kSync, kT0 + i * kMs, 500 + i * 7919 % 100000);
  s.Write(dir / "cuda-10-1.ingero");
  // A limit of file size fails the writes as a full disk does.
  signal(SIGXFSZ, SIG_IGN);
  rlimit old_limit;
  getrlimit(RLIMIT_FSIZE, &old_limit);
  const rlimit limit{64 << 10, old_limit.rlim_max};
  setrlimit(RLIMIT_FSIZE, &limit);
  auto full = MergeDir(dir);
  setrlimit(RLIMIT_FSIZE, &old_limit);
  ASSERT_FALSE(full.ok());
  EXPECT_EQ(full.status().message().find('\n'), std::string::npos);
  EXPECT_EQ(ReadFile(first->store_path + "/data.mdb"), before);
  std::set<std::string> files;
  for (const auto& f : std::filesystem::directory_iterator(first->store_path))
    files.insert(f.path().filename());
  EXPECT_EQ(files, (std::set<std::string>{"data.mdb", "merge.lock"}));
  auto again = MergeDir(dir);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->calls, 30000u);
}

TEST(Merge, SaysWhatIsMissing) {
  TempDir cuda_only;
  CudaStreamBuilder s(10, kT0);
  AddNames(&s);
  s.Call(10, kSync, kT0, 500);
  s.Coverage(INGERO_WAY_DLSYM, "", 5);
  s.Coverage(INGERO_WAY_PROC_ADDRESS, "", 5);
  s.Coverage(INGERO_WAY_MAPPED, "/opt/lib/libcudart.so.13", 1);
  s.header.calls_skipped = 12;
  s.Write(cuda_only / "cuda-10-1.ingero");
  auto store = MergeAndOpen(cuda_only);
  ASSERT_NE(store, nullptr);
  auto facts = store->facts();
  ASSERT_EQ(facts.missing.size(), 1u);
  EXPECT_NE(facts.missing[0].find("no kernel stream"), std::string::npos);
  ASSERT_EQ(facts.coverage.size(), 1u);
  EXPECT_EQ(facts.coverage[0].text,
            "runtime calls of python3/10 seen through dlsym and "
            "cuGetProcAddress; runtime: libcudart.so.13 (shared)");
  ASSERT_EQ(facts.streams.size(), 1u);
  EXPECT_NE(facts.streams[0].find("12 calls left out by default"),
            std::string::npos);
  EXPECT_EQ(facts.host, "testhost");
  EXPECT_EQ(facts.wall_clock_at_span_begin_ns,
            1'796'000'000'000'000'000 + kT0);

  TempDir kernel_only;
  KernelStreamBuilder k(kT0);
  k.Switch(0, {.t = kT0, .next_tid = 10, .next_tgid = 10});
  k.Switch(0, {.t = kT0 + kMs, .prev_tid = 10, .prev_tgid = 10});
  k.Sample(kT0, Metric::kCpuOnline, 0, 4);
  k.Sample(kT0, Metric::kPageCostNs, 0, 250);
  k.Write(kernel_only / "kernel-1-1.ingero");
  store = MergeAndOpen(kernel_only);
  ASSERT_NE(store, nullptr);
  facts = store->facts();
  ASSERT_EQ(facts.missing.size(), 1u);
  EXPECT_NE(facts.missing[0].find("no CUDA stream"), std::string::npos);
  EXPECT_EQ(facts.cpus, 4u);
  EXPECT_EQ(facts.page_cost, Ns(250));
}

TEST(Merge, CopiesKnowTheirHostMemory) {
  TempDir dir;
  CudaStreamBuilder s(10, kT0);
  AddNames(&s);
  uint64_t t = kT0;
  const auto call = [&](uint16_t func, std::vector<uint64_t> words,
                        int direction = 0) {
    CudaStreamBuilder::CallSpec c;
    c.start = t += kMs;
    c.duration = 1000;
    c.words = std::move(words);
    c.flags = static_cast<uint8_t>(direction << INGERO_CALL_DIRECTION_SHIFT);
    s.Call(10, func, c);
  };
  call(kMalloc, {0xd000000, 4096});
  call(kHostAlloc, {0x1000000, 8192});
  call(kMemcpy, {0xd000000, 0x1000100, 64}, INGERO_COPY_H2D);      // pinned
  call(kMemcpy, {0xd000000, 0x2000000, 64}, INGERO_COPY_H2D);      // pageable
  call(kMemcpy, {0x1001fff, 0xd000000, 64}, INGERO_COPY_D2H);      // pinned
  call(kMemcpy, {0xd000000, 0x2000000, 64}, INGERO_COPY_DEFAULT);  // pageable
  call(kMemcpy, {0x1000000, 0xd000010, 64}, INGERO_COPY_DEFAULT);  // pinned
  call(kFreeHost, {0x1000000});
  call(kMemcpy, {0xd000000, 0x1000100, 64}, INGERO_COPY_H2D);      // pageable
  call(kMemcpy, {0xd000000, 0xd000100, 64}, INGERO_COPY_D2D);
  s.Write(dir / "cuda-10-1.ingero");
  auto store = MergeAndOpen(dir);
  ASSERT_NE(store, nullptr);
  using analysis::CopyDirection;
  using analysis::HostMemory;
  std::vector<std::pair<CopyDirection, HostMemory>> got;
  for (const Call& c : AllCalls(*store, 0))
    if (NameOf(*store, c) == "cudaMemcpy") {
      got.emplace_back(c.direction, c.host_memory);
      EXPECT_EQ(c.bytes, 64u);
    }
  const std::vector<std::pair<CopyDirection, HostMemory>> want = {
      {CopyDirection::kHostToDevice, HostMemory::kPinned},
      {CopyDirection::kHostToDevice, HostMemory::kPageable},
      {CopyDirection::kDeviceToHost, HostMemory::kPinned},
      {CopyDirection::kHostToDevice, HostMemory::kPageable},
      {CopyDirection::kDeviceToHost, HostMemory::kPinned},
      {CopyDirection::kHostToDevice, HostMemory::kPageable},
      {CopyDirection::kDeviceToDevice, HostMemory::kUnknown}};
  EXPECT_EQ(got, want);
}

TEST(Merge, FirstUseInsideAFirstUseIsTimedOnce) {
  TempDir dir;
  CudaStreamBuilder s(10, kT0);
  AddNames(&s);
  CudaStreamBuilder::CallSpec inner, outer;
  inner.start = kT0 + kMs;
  inner.duration = 5 * kMs;
  inner.depth = 1;
  outer.start = kT0;
  outer.duration = 10 * kMs;
  s.Call(10, kModuleLoad, inner);
  s.Call(10, kSync, outer);
  s.Call(10, kModuleLoad, kT0 + 20 * kMs, 3 * kMs);
  s.Call(10, kSync, kT0 + 2000 * kMs, 1000);
  s.Write(dir / "cuda-10-1.ingero");
  auto store = MergeAndOpen(dir);
  ASSERT_NE(store, nullptr);
  for (const int64_t ms : {1000, 1500}) {  // whole seconds, and a broken one
    Ns total;
    uint64_t uses = 0;
    for (const auto& op :
         store->Summarize({Ns(kT0), Ns(kT0 + ms * kMs)}).operations) {
      total = total + op.first_use_time;
      uses += op.first_uses;
    }
    EXPECT_EQ(total, Ns(13 * kMs)) << ms;
    EXPECT_EQ(uses, 3u) << ms;
  }
}

TEST(Merge, FirstUsesStayOutOfThePercentiles) {
  TempDir dir;
  CudaStreamBuilder s(10, kT0);
  AddNames(&s);
  s.Call(10, kModuleLoad, kT0, 300 * kMs);
  s.Call(10, kModuleLoad, kT0 + 300 * kMs, 300 * kMs);
  constexpr int kSteady = 3000;
  for (int i = 0; i <= kSteady; ++i)
    s.Call(10, kSync, kT0 + (1000 + i) * kMs, i == 0 ? 200 * kMs / 1000 : 5000);
  CudaStreamBuilder::CallSpec busy;
  busy.start = kT0 + 5000 * kMs;
  busy.duration = 1000;
  busy.result = 600;
  s.Call(10, kQuery, busy);
  busy.start += 1000;
  busy.result = 700;
  s.Call(10, kQuery, busy);
  s.Write(dir / "cuda-10-1.ingero");
  auto store = MergeAndOpen(dir);
  ASSERT_NE(store, nullptr);
  const auto find = [&](const analysis::Summaries& summary,
                        const std::string& name) {
    for (const auto& op : summary.operations)
      if (store->trace().functions()[op.func].name == name) return op;
    return analysis::Operation();
  };
  const auto all = store->Summarize(store->trace().span());
  const auto sync = find(all, "cudaStreamSynchronize");
  EXPECT_EQ(sync.count, static_cast<uint64_t>(kSteady));
  EXPECT_EQ(sync.first_uses, 1u);
  EXPECT_EQ(sync.first_use_time, Ns(200'000));
  EXPECT_EQ(sync.max, Ns(5000));
  EXPECT_EQ(sync.average, Ns(5000));
  EXPECT_NEAR(static_cast<double>(sync.p99.value), 5000, 5000 / 64.0 + 1);
  const auto module = find(all, "cuModuleLoadData");
  EXPECT_EQ(module.count, 0u);
  EXPECT_EQ(module.first_uses, 2u);
  EXPECT_EQ(find(all, "cudaStreamQuery").errors, 1u);
  // Windows that begin and end within seconds count exactly.
  for (const auto& [from, to] : std::vector<std::pair<int, int>>{
           {1500, 1700}, {1500, 3700}, {2000, 3000}, {1999, 3001}}) {
    const auto part =
        store->Summarize({Ns(kT0 + from * kMs), Ns(kT0 + to * kMs)});
    EXPECT_EQ(find(part, "cudaStreamSynchronize").count,
              static_cast<uint64_t>(to - from))
        << from << " " << to;
  }
}

TEST(Merge, LossesAreCountedAndPlaced) {
  TempDir dir;
  CudaStreamBuilder s(10, kT0);
  AddNames(&s);
  s.Call(10, kSync, kT0, 500);
  s.Loss(10, INGERO_LOSS_WRITE_FAILED, 40, kT0 + kMs, kT0 + 2 * kMs);
  s.header.lost[INGERO_LOSS_WRITE_FAILED] = 50;  // 10 more, somewhere
  std::string unknown(16, '\0');
  unknown[0] = 99;
  unknown[2] = 2;
  s.Raw(10, unknown);
  std::string reserved = unknown;
  reserved[0] = INGERO_RECORD_STACK;
  s.Raw(10, reserved);
  s.Call(10, kSync, kT0 + 3 * kMs, 500);
  s.Write(dir / "cuda-10-1.ingero");
  KernelStreamBuilder k(kT0);
  k.Switch(0, {.t = kT0, .next_tid = 10, .next_tgid = 10});
  k.Loss(0, kT0 + kMs, kT0 + 2 * kMs, INGERO_LOSS_SWITCH_RING_FULL, 123);
  k.header.lost[INGERO_LOSS_WRITER_BEHIND] = 7;  // beyond the rows
  k.Write(dir / "kernel-1-1.ingero");
  auto store = MergeAndOpen(dir);
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(AllCalls(*store, 0).size(), 2u);
  std::map<std::string, uint64_t> counts;
  for (const auto& loss : store->trace().losses()) {
    counts[loss.id] += loss.count;
    if (loss.id == "writer-behind") {
      EXPECT_EQ(loss.side, analysis::Loss::Side::kKernel);
    } else if (loss.id == "switch-ring-full") {
      EXPECT_EQ(loss.side, analysis::Loss::Side::kKernel);
      EXPECT_EQ(loss.range, (Interval{Ns(kT0 + kMs), Ns(kT0 + 2 * kMs)}));
    } else {
      EXPECT_EQ(loss.side, analysis::Loss::Side::kCuda);
      EXPECT_EQ(store->trace().processes()[loss.process].pid, 10u);
    }
  }
  EXPECT_EQ(counts["write-failed"], 50u);
  EXPECT_EQ(counts["unknown-kind"], 1u);
  EXPECT_EQ(counts["switch-ring-full"], 123u);
  EXPECT_EQ(counts["writer-behind"], 7u);
}

TEST(Merge, TwoCompanionsAtOnceCountOnce) {
  TempDir dir;
  for (int companion = 0; companion < 2; ++companion) {
    KernelStreamBuilder k(kT0 + companion * 500 * kMs);
    for (int i = companion * 500; i < 1000 + companion * 500; ++i) {
      const bool in = i % 2 == 0;
      k.Switch(0, {.t = static_cast<uint64_t>(kT0 + i * kMs),
                   .prev_tid = in ? 0u : 10u, .prev_tgid = in ? 0u : 10u,
                   .next_tid = in ? 10u : 0u, .next_tgid = in ? 10u : 0u,
                   .prev_state = INGERO_TASK_INTERRUPTIBLE});
    }
    k.Write(dir / ("kernel-" + std::to_string(companion) + "-1.ingero"));
  }
  auto store = MergeAndOpen(dir);
  ASSERT_NE(store, nullptr);
  const auto switches = AllSwitches(*store);
  ASSERT_EQ(switches.size(), 1500u);
  for (size_t i = 1; i < switches.size(); ++i)
    EXPECT_LT(switches[i - 1].t, switches[i].t);
}

TEST(Merge, AttributionIsStored) {
  TempDir dir;
  CudaStreamBuilder s(10, kT0);
  AddNames(&s);
  for (int i = 0; i < 50; ++i) {
    CudaStreamBuilder::CallSpec launch;
    launch.start = kT0 + i * 20 * kMs;
    launch.duration = 10'000;
    launch.words = {0x1000, 0};
    s.Call(10, kLaunch, launch);
    s.Call(10, kSync, kT0 + i * 20 * kMs + 20'000, 5 * kMs);
  }
  s.Write(dir / "cuda-10-1.ingero");
  auto store = MergeAndOpen(dir);
  ASSERT_NE(store, nullptr);
  Ns idle, all;
  auto feeds = store->Feeds(store->trace().span());
  analysis::FeedInterval feed;
  while (feeds->Next(&feed)) {
    EXPECT_EQ(feed.process, 0u);
    all += feed.time;
    if (feed.state == analysis::FeedState::kIdle) idle += feed.time;
  }
  // 49 gaps of 15 ms between a sync's end and the next launch.
  EXPECT_GT(idle, Ns(49 * 14 * kMs));
  EXPECT_LE(idle, Ns(50 * 16 * kMs));
  Ns path;
  auto paths = store->Paths(store->trace().span());
  analysis::PathCell cell;
  while (paths->Next(&cell)) path += cell.time;
  EXPECT_GE(path, idle);
  // Half of the window, about half of the idle time.
  Ns half;
  const Interval span = store->trace().span();
  feeds = store->Feeds(
      Interval{span.begin, span.begin + span.length() / 2});
  while (feeds->Next(&feed))
    if (feed.state == analysis::FeedState::kIdle) half += feed.time;
  EXPECT_NEAR(static_cast<double>(half.value),
              static_cast<double>(idle.value) / 2, 20.0 * kMs);
}

// Steps of a second each, every 7th of them slow: the host computes for longer.
void AddSteps(CudaStreamBuilder* s, int steps) {
  uint64_t t = kT0;
  for (int i = 0; i < steps; ++i) {
    for (int k = 0; k < 3; ++k) {
      CudaStreamBuilder::CallSpec launch;
      launch.start = t + static_cast<uint64_t>(k) * 20'000;
      launch.duration = 10'000;
      launch.words = {0x1000, 0};
      s->Call(10, kLaunch, launch);
    }
    s->Call(10, kSync, t + 100'000, 300 * kMs);
    t += static_cast<uint64_t>(i % 7 == 6 ? 2600 : 1000) * kMs;
  }
}

TEST(Merge, SumsBySecondAreThoseOfTheCells) {
  TempDir dir;
  CudaStreamBuilder s(10, kT0);
  AddNames(&s);
  AddSteps(&s, 300);
  s.Write(dir / "cuda-10-1.ingero");
  auto store = MergeAndOpen(dir);
  ASSERT_NE(store, nullptr);
  const Interval span = store->trace().span();
  // Whole, from within a second, and less than one second.
  for (const Interval window :
       {span, Interval{span.begin + Ns(1'234'567'891), span.end - Ns(777)},
        Interval{span.begin + Ns(300 * kMs), span.begin + Ns(800 * kMs)}}) {
    using Kind = std::tuple<uint32_t, int, int, int, uint32_t>;
    std::map<Kind, std::pair<int64_t, uint64_t>> cells, seconds;
    std::map<std::pair<uint32_t, int>, int64_t> feeds, feed_seconds;
    size_t rows = 0, fewer = 0;
    for (const bool by_second : {false, true}) {
      analysis::Part part(window);
      part.by_second = by_second;
      auto paths = store->Paths(part);
      for (analysis::PathCell c; paths->Next(&c);) {
        auto& sum = (by_second ? seconds : cells)[Kind(
            c.thread, static_cast<int>(c.state), static_cast<int>(c.reason),
            static_cast<int>(c.certainty), c.func)];
        sum.first += c.time.value;
        sum.second += c.stretches;
        EXPECT_EQ(c.range.Clip(window), c.range);
        ++(by_second ? fewer : rows);
      }
      auto fed = store->Feeds(part);
      for (analysis::FeedInterval f; fed->Next(&f);)
        (by_second ? feed_seconds : feeds)[{
            f.device, static_cast<int>(f.state)}] += f.time.value;
    }
    EXPECT_EQ(cells, seconds);
    EXPECT_EQ(feeds, feed_seconds);
    EXPECT_FALSE(cells.empty());
    if (window == span) {
      EXPECT_LT(fewer * 10, rows);
    }
  }
}

class NoSink : public analysis::TimeSink {
 public:
  void OnFeed(const analysis::FeedInterval&) override {}
  void OnCause(const analysis::PathCell&, const char*, Ns) override {}
};

TEST(Merge, ALongTimeIsExplainedFromSumsAsFromCells) {
  TempDir dir;
  CudaStreamBuilder s(10, kT0);
  AddNames(&s);
  AddSteps(&s, 300);
  s.Write(dir / "cuda-10-1.ingero");
  auto store = MergeAndOpen(dir);
  ASSERT_NE(store, nullptr);
  NoSink sink;  // who wants to know when sees cells
  analysis::ReportOptions options;
  const analysis::Report sums = analysis::BuildReport(*store, options);
  options.sink = &sink;
  const analysis::Report cells = analysis::BuildReport(*store, options);
  EXPECT_EQ(sums.verdict, cells.verdict);
  ASSERT_EQ(sums.findings.size(), cells.findings.size());
  ASSERT_FALSE(sums.findings.empty());
  for (size_t i = 0; i < sums.findings.size(); ++i) {
    EXPECT_EQ(sums.findings[i].id, cells.findings[i].id);
    EXPECT_EQ(sums.findings[i].lost, cells.findings[i].lost);
    EXPECT_EQ(sums.findings[i].claim, cells.findings[i].claim);
  }
  ASSERT_EQ(sums.steps.size(), 1u);
  ASSERT_EQ(cells.steps.size(), 1u);
  const analysis::StepSummary &a = sums.steps[0], &b = cells.steps[0];
  EXPECT_EQ(a.slow, 42u);
  EXPECT_EQ(a.text, b.text);
  EXPECT_NEAR(static_cast<double>(a.starved.value),
              static_cast<double>(b.starved.value), 1e3);
  ASSERT_EQ(a.slow_extra.size(), b.slow_extra.size());
  ASSERT_FALSE(a.slow_extra.empty());
  for (size_t i = 0; i < a.slow_extra.size(); ++i) {
    EXPECT_EQ(a.slow_extra[i].part, b.slow_extra[i].part);
    EXPECT_NEAR(static_cast<double>(a.slow_extra[i].time.value),
                static_cast<double>(b.slow_extra[i].time.value),
                0.01 * static_cast<double>(b.slow_beyond.value));
  }
  EXPECT_EQ(a.slowest.size(), b.slowest.size());
}

// A counter that differs between CPUs: the thread was moved within a call.
TEST(Merge, CallsThatDoNotLieWithinEachOtherAreCounted) {
  for (const bool wrong : {false, true}) {
    TempDir dir;
    CudaStreamBuilder s(10, kT0);
    AddNames(&s);
    for (int i = 0; i < 10; ++i) {
      const uint64_t t = kT0 + static_cast<uint64_t>(i) * kMs;
      CudaStreamBuilder::CallSpec inner;
      inner.start = t + 1000;
      inner.duration = wrong && i == 3 ? 9000 : 5000;
      inner.depth = 1;
      inner.words = {0x1000, 0};
      s.Call(10, kDriverLaunch, inner);
      CudaStreamBuilder::CallSpec outer;
      // One that begins after what lies in it; above one that ends before.
      outer.start = t + (wrong && i == 5 ? 2000 : 0);
      outer.duration = 7000;
      outer.words = {0x1000, 0};
      s.Call(10, kLaunch, outer);
      s.Call(11, kSync, t + 500, 9000);  // another thread's
    }
    s.Write(dir / "cuda-10-1.ingero");
    auto summary = MergeDir(dir);
    ASSERT_TRUE(summary.ok()) << summary.status().message();
    auto store = OpenTrace(summary->store_path);
    ASSERT_TRUE(store.ok()) << store.status().message();
    ASSERT_EQ((*store)->streams().size(), 1u);
    EXPECT_EQ((*store)->streams()[0].nesting_violations, wrong ? 2u : 0u);
    const std::string said = "2 calls do not lie within the one around them";
    const auto says = [&](const std::string& line) {
      return line.find(said) != std::string::npos;
    };
    EXPECT_EQ(std::any_of(summary->notes.begin(), summary->notes.end(), says),
              wrong);
    EXPECT_EQ(says((*store)->facts().streams[0]), wrong);
  }
}

// Threads of two processes that run, wait and sleep for times of a millisecond
// to minutes, over more than six minutes; one switch in fifty is not seen.
void AddLongSleeps(KernelStreamBuilder* k) {
  for (const uint32_t tid : {100u, 101u, 200u})
    k->Task({.t = kT0, .tid = tid, .tgid = tid / 100 * 100, .start_ns = 50,
             .text = "t" + std::to_string(tid)});
  std::mt19937_64 random(7);
  const std::array<int64_t, 4> waits = {kMs, 300 * kMs, 7'000 * kMs,
                                        95'000 * kMs};
  int64_t t = kT0 + 123 * kMs;
  for (int i = 0; t < kT0 + 400'000 * kMs; ++i) {
    const uint32_t tid = std::array{100u, 101u, 200u}[random() % 3];
    const uint32_t tgid = tid / 100 * 100;
    const int64_t run = static_cast<int64_t>(random() % (900 * kMs));
    k->Switch(0, {.t = static_cast<uint64_t>(t), .next_tid = tid,
                  .next_tgid = tgid,
                  .wake = static_cast<uint64_t>(t - kMs / 2),
                  .waker_tid = 0});
    t += run;
    if (i % 50 == 49) {
      k->Switch(0, {.t = static_cast<uint64_t>(t), .prev_tid = 300,
                    .prev_tgid = 300, .prev_state = INGERO_TASK_INTERRUPTIBLE});
    } else {
      k->Switch(0, {.t = static_cast<uint64_t>(t), .prev_tid = tid,
                    .prev_tgid = tgid,
                    .prev_state = INGERO_TASK_INTERRUPTIBLE, .pages = 3});
    }
    t += 1 + static_cast<int64_t>(
                 random() % static_cast<uint64_t>(waits[random() % 4]));
  }
}

TEST(Merge, SchedulingByMinuteIsThatOfTheSeconds) {
  TempDir dir;
  KernelStreamBuilder k(kT0);
  AddLongSleeps(&k);
  k.Write(dir / "kernel-1-1.ingero");
  auto merged = MergeDir(dir);
  ASSERT_TRUE(merged.ok()) << merged.status().message();
  auto opened = OpenTrace(merged->store_path);
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  const TraceReader& trace = **opened;
  ASSERT_GT(trace.file().Table(sched_minutes_table::kSchema.id).size(), 0u);

  constexpr int64_t kS = 1'000'000'000, kMinute = 60 * kS;
  struct Sums {
    std::vector<uint64_t> values;  // from kPreempted to kMajFaults
    bool operator==(const Sums&) const = default;
  };
  const auto add = [](std::map<uint32_t, Sums>* by, uint32_t pid,
                      std::span<const uint64_t> row, size_t first) {
    constexpr size_t kValues =
        sched_minutes_table::kMajFaults - sched_minutes_table::kPreempted + 1;
    Sums& s = (*by)[pid];
    s.values.resize(kValues);
    for (size_t i = 0; i < kValues; ++i) {
      const bool most = i + sched_minutes_table::kPreempted ==
                        sched_minutes_table::kWorstOffCpuNs;
      s.values[i] = most ? std::max(s.values[i], row[first + i])
                         : s.values[i] + row[first + i];
    }
  };
  // By (minute, pid); the reader's windows; the whole.
  std::map<int64_t, std::map<uint32_t, Sums>> minutes, seconds;
  auto rows = trace.Cursor(sched_minutes_table::kSchema,
                           trace.file().Table(sched_minutes_table::kSchema.id),
                           kAlways);
  while (rows->Next())
    add(&minutes[rows->time() / kMinute],
        trace.processes()[rows->row()[sched_minutes_table::kProcess]].pid,
        rows->row(), sched_minutes_table::kPreempted);
  rows = trace.Cursor(sched_summary_table::kSchema,
                      trace.file().Table(sched_summary_table::kSchema.id),
                      kAlways);
  bool long_row = false;
  while (rows->Next()) {
    using namespace sched_summary_table;
    const auto row = rows->row();
    const auto last = static_cast<int64_t>(
        std::max<uint64_t>(row[kSeconds], 1) - 1);
    EXPECT_EQ(rows->time() / kMinute, (rows->time() + last * kS) / kMinute);
    long_row = long_row || last >= 59;
    add(&seconds[rows->time() / kMinute], static_cast<uint32_t>(row[kTgid]),
        row, kPreempted);
  }
  EXPECT_TRUE(long_row);
  EXPECT_EQ(minutes, seconds);

  // Windows that follow each other, cut anywhere, hold what the whole holds:
  // those of less than a minute are read from seconds.
  const auto of = [&](Interval window) {
    std::map<uint32_t, std::array<Ns, 4>> by;
    for (const auto& a : trace.Summarize(window).activities)
      by[trace.processes()[a.process].pid] = {a.running, a.runnable, a.sleeping,
                                              a.io};
    return by;
  };
  const auto whole = of(trace.span());
  ASSERT_EQ(whole.count(100), 1u);
  for (const int64_t step : {40 * kS + 1, 90 * kS, 170 * kS + 77}) {
    std::map<uint32_t, std::array<Ns, 4>> parts;
    int windows = 0;
    for (Ns at = trace.span().begin; at <= trace.span().end; at += Ns(step)) {
      ++windows;
      for (const auto& [pid, times] :
           of({at, std::min(at + Ns(step), trace.span().end + Ns(1))}))
        for (size_t i = 0; i < times.size(); ++i) parts[pid][i] += times[i];
    }
    // A second that is cut is divided in proportion.
    for (const auto& [pid, times] : whole)
      for (size_t i = 0; i < times.size(); ++i)
        EXPECT_NEAR(static_cast<double>(parts[pid][i].value),
                    static_cast<double>(times[i].value), windows * 10.0);
  }
}

TEST(Merge, SplitsTellWhetherTheirCallStartsUp) {
  TempDir dir;
  KernelStreamBuilder k(kT0);
  k.Task({.t = kT0, .tid = 10, .tgid = 10, .start_ns = 50, .text = "a"});
  CudaStreamBuilder s(10, kT0);
  AddNames(&s);
  const auto at = [](int64_t ms) {
    return static_cast<uint64_t>(kT0 + ms * kMs);
  };
  k.Switch(0, {.t = at(0), .next_tid = 10, .next_tgid = 10});
  for (int64_t i = 0; i < 6; ++i) {
    s.Call(10, i % 3 == 0 ? kMalloc : kSync, at(10 + i * 20), 10 * kMs);
    k.Switch(0, {.t = at(12 + i * 20), .prev_tid = 10, .prev_tgid = 10,
                 .prev_state = INGERO_TASK_INTERRUPTIBLE,
                 .prev_syscall = 202});
    k.Switch(0, {.t = at(15 + i * 20), .next_tid = 10, .next_tgid = 10,
                 .wake = at(15 + i * 20)});
  }
  k.Switch(0, {.t = at(200), .prev_tid = 10, .prev_tgid = 10,
               .prev_state = INGERO_TASK_INTERRUPTIBLE});
  s.Write(dir / "cuda-10-1.ingero");
  k.Write(dir / "kernel-1-1.ingero");
  auto store = MergeAndOpen(dir);
  ASSERT_NE(store, nullptr);
  std::vector<bool> told;
  auto splits = store->Splits(kAlways);
  for (analysis::CallSplit split; splits->Next(&split);) {
    ASSERT_TRUE(split.starts_up);
    told.push_back(*split.starts_up);
    // An older store does not tell: then the call does.
    split.starts_up.reset();
    EXPECT_EQ(analysis::StartsUp(store->trace(), split), told.back());
  }
  EXPECT_EQ(told, (std::vector<bool>{true, true, false, false, false, false}));
  analysis::Part of_nobody(kAlways);
  of_nobody.process = 77;
  analysis::CallSplit split;
  EXPECT_FALSE(store->Splits(of_nobody)->Next(&split));
}

TEST(Merge, KernelNamesAreDemangled) {
  TempDir dir;
  CudaStreamBuilder s(10, kT0);
  AddNames(&s);
  s.Kernel(0x1000, "_Z6vecAddPKfS0_Pfi");
  CudaStreamBuilder::CallSpec launch;
  launch.start = kT0;
  launch.duration = 1000;
  launch.words = {0x1000, 0};
  s.Call(10, kLaunch, launch);
  s.Write(dir / "cuda-10-1.ingero");
  auto summary = MergeDir(dir);
  ASSERT_TRUE(summary.ok());
  for (const std::string& path :
       {summary->store_path, dir / "cuda-10-1.ingero"}) {
    for (const DumpFormat format :
         {DumpFormat::kText, DumpFormat::kJsonLines}) {
      std::string text;
      Status dumped = Dump(path, format,
                           [&](std::string_view line) { text += line; });
      EXPECT_TRUE(dumped.ok()) << dumped.message();
      EXPECT_NE(text.find("cudaLaunchKernel"), std::string::npos) << text;
      EXPECT_NE(text.find(path == summary->store_path
                              ? "vecAdd(float const*, float const*, float*, "
                                "int)"
                              : "_Z6vecAddPKfS0_Pfi"),
                std::string::npos)
          << text;
    }
  }
  DumpFilter filter;
  filter.table = "nonsense";
  const Status unknown =
      Dump(summary->store_path, DumpFormat::kText, filter,
           [](std::string_view) {});
  ASSERT_FALSE(unknown.ok());
  EXPECT_NE(unknown.message().find("switches"), std::string::npos);
}

TEST(Merge, RecordingsAreStreamsThatOverlap) {
  TempDir dir;
  CudaStreamBuilder a(10, kT0);
  AddNames(&a);
  a.Call(10, kSync, kT0, 1000 * kMs);
  a.Write(dir / "cuda-10-1.ingero");
  CudaStreamBuilder b(11, kT0 + 500 * kMs);
  AddNames(&b);
  b.Call(11, kSync, kT0 + 500 * kMs, 1000 * kMs);
  b.Write(dir / "cuda-11-1.ingero");
  CudaStreamBuilder later(12, kT0 + 60000 * kMs);
  AddNames(&later);
  later.Call(12, kSync, kT0 + 60000 * kMs, 1000 * kMs);
  later.Write(dir / "cuda-12-1.ingero");
  CudaStreamBuilder other_boot(13, kT0);
  other_boot.header.boot_id[0] = 1;
  AddNames(&other_boot);
  other_boot.Call(13, kSync, kT0, 1000 * kMs);
  other_boot.Write(dir / "cuda-13-1.ingero");
  testing::WriteFile(dir / "notes.ingero", "not a stream");
  testing::WriteFile(dir / "empty.ingero", "");
  const auto recordings = ListRecordings({dir.path(), dir / "none"});
  ASSERT_EQ(recordings.size(), 3u);
  std::multiset<size_t> sizes;
  for (const Recording& r : recordings) sizes.insert(r.streams.size());
  // What is no stream is said with the newest.
  EXPECT_EQ(sizes, (std::multiset<size_t>{1, 2, 3}));
  EXPECT_EQ(recordings.back().streams[0].pid, 12u);
  for (const StreamInfo& s : recordings.back().streams)
    EXPECT_EQ(s.problem.empty(), s.pid == 12u) << s.path << ": " << s.problem;
  EXPECT_FALSE(recordings.back().merged);
  ASSERT_TRUE(MergeDir(dir).ok());
  EXPECT_TRUE(ListRecordings({dir.path()}).back().merged);
}

TEST(Merge, BlocksThatWereCutOffAreALoss) {
  TempDir dir;
  CudaStreamBuilder s(10, kT0);
  AddNames(&s);
  for (int i = 0; i < 6000; ++i) s.Call(10, kSync, kT0 + i * kMs, 1000);
  const std::string path = dir / "cuda-10-1.ingero";
  s.Write(path);
  const auto whole = MergeAndOpen(dir);
  ASSERT_NE(whole, nullptr);
  EXPECT_TRUE(whole->trace().losses().empty());
  constexpr uintmax_t kBlock = INGERO_BLOCK_BYTES;
  ASSERT_GT(std::filesystem::file_size(path), 2 * kBlock);
  std::filesystem::resize_file(path, 2 * kBlock);
  TempDir other;
  std::filesystem::copy_file(path, other / "cuda-10-1.ingero");
  const auto cut = MergeAndOpen(other);
  ASSERT_NE(cut, nullptr);
  ASSERT_EQ(cut->trace().losses().size(), 1u);
  EXPECT_EQ(cut->trace().losses()[0].id, "damaged-block");
  EXPECT_EQ(cut->trace().losses()[0].severity, 2);
}

// CUDA calls of one process from `t`, 1 s long.
void WriteCuda(const std::string& path, uint32_t pid, int64_t t) {
  CudaStreamBuilder s(pid, t);
  AddNames(&s);
  s.Call(pid, kSync, t, 1000 * kMs);
  s.Write(path);
}

// Which store explain opens where none was named.
TEST(Merge, TheNewestStoreIsOfTheFirstFolderAndAnOlderOneIsSaid) {
  TempDir mine, home;
  const std::string usual = home.path();
  const std::vector<std::string> dirs = {mine.path(), usual};
  auto found = FindNewestStore(dirs);
  ASSERT_FALSE(found.ok());
  EXPECT_NE(found.status().message().find("ingero merge"), std::string::npos);

  WriteCuda(usual + "/cuda-11-1.ingero", 11, kT0);
  MergeOptions options;
  options.dirs = {usual};
  ASSERT_TRUE(Merge(options).ok());
  found = FindNewestStore(dirs);
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_TRUE(found->path.starts_with(usual)) << found->path;
  EXPECT_NE(found->note.find("no merged recording"), std::string::npos);

  WriteCuda(mine / "cuda-10-1.ingero", 10, kT0 + 9'000 * kMs);
  found = FindNewestStore(dirs);
  ASSERT_TRUE(found.ok());
  EXPECT_TRUE(found->path.starts_with(usual));
  EXPECT_NE(found->note.find("is not merged"), std::string::npos);

  options.dirs = {mine.path()};
  ASSERT_TRUE(Merge(options).ok());
  found = FindNewestStore(dirs);
  ASSERT_TRUE(found.ok());
  EXPECT_TRUE(found->path.starts_with(mine.path()));
  EXPECT_EQ(found->note, "");
}

TEST(Merge, WhatIsNoRecordingIsSaid) {
  TempDir dir;
  std::vector<std::string> problems;
  EXPECT_TRUE(ListRecordings({dir / "none"}, &problems).empty());
  EXPECT_TRUE(problems.empty());
  testing::WriteFile(dir / "a.ingero", "not a stream");
  testing::WriteFile(dir / "b.ingero", "");
  testing::WriteFile(dir / "file", "");
  EXPECT_TRUE(ListRecordings({dir.path(), dir / "file"}, &problems).empty());
  ASSERT_EQ(problems.size(), 3u);
  EXPECT_NE(problems[0].find("file: it, or a part of this path, is a file"),
            std::string::npos)
      << problems[0];
  for (const char* name : {"a.ingero", "b.ingero"})
    EXPECT_TRUE(std::any_of(problems.begin() + 1, problems.end(),
                            [&](const std::string& p) {
                              return p.find(name) != std::string::npos;
                            }))
        << name;
}

TEST(Merge, ClockOfTheProgramIsMappedByTheCompanionsSamples) {
  TempDir dir;
  // 2.5 ticks a ns; the program took no sample of its own.
  const auto tsc = [](int64_t ns) {
    return static_cast<uint64_t>(ns - kT0) * 5 / 2 + 7'000'000;
  };
  CudaStreamBuilder s(10, kT0);
  s.header.clock = INGERO_CLOCK_TSC;
  AddNames(&s);
  for (int i = 0; i < 100; ++i)
    s.Call(10, kSync, tsc(kT0 + i * 10 * kMs), 2'500'000);
  s.Write(dir / "cuda-10-1.ingero");
  KernelStreamBuilder k(kT0);
  for (int i = 0; i <= 10; ++i) {
    const int64_t at = kT0 + i * 100 * kMs;
    k.Knot(static_cast<uint64_t>(at), tsc(at), 50);
  }
  k.Write(dir / "kernel-1-1.ingero");
  auto store = MergeAndOpen(dir);
  ASSERT_NE(store, nullptr);
  const auto calls = AllCalls(*store, 0);
  ASSERT_EQ(calls.size(), 100u);
  for (int i = 0; i < 100; ++i) {
    EXPECT_NEAR(static_cast<double>(calls[i].begin.value),
                static_cast<double>(kT0 + i * 10 * kMs), 2);
    EXPECT_NEAR(static_cast<double>((calls[i].end - calls[i].begin).value),
                1e6, 2);
  }
  EXPECT_LE(store->facts().clock_error, Ns(100));
  EXPECT_GT(store->facts().clock_error, Ns(0));
}

TEST(Merge, StreamWithoutClockSamplesIsALoss) {
  TempDir dir;
  CudaStreamBuilder s(10, kT0);
  s.header.clock = INGERO_CLOCK_TSC;
  AddNames(&s);
  s.Call(10, kSync, 123456, 500);
  s.Write(dir / "cuda-10-1.ingero");
  auto store = MergeAndOpen(dir);
  ASSERT_NE(store, nullptr);
  EXPECT_TRUE(AllCalls(*store, 0).empty());
  ASSERT_EQ(store->trace().losses().size(), 1u);
  EXPECT_EQ(store->trace().losses()[0].id, "no-clock");
  const auto missing = store->facts().missing;
  EXPECT_NE(std::find(missing.begin(), missing.end(),
                      "cuda-10-1.ingero: its calls have no place in time: it "
                      "holds no clock sample"),
            missing.end());
  // Known already: nothing is merged again.
  auto again = MergeDir(dir);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->added_events, 0u);
}

TEST(Merge, ATimeNamespaceIsTakenOff) {
  TempDir dir;
  constexpr int64_t kAhead = 777 * kMs;  // the process's clock, of the host's
  KernelStreamBuilder k(kT0);
  k.Switch(0, {.t = kT0 + kMs});
  k.Write(dir / "kernel-1-1.ingero");
  // Stamps of CLOCK_MONOTONIC, and of the TSC with samples of it.
  const auto tsc = [](int64_t ns) { return static_cast<uint64_t>(ns) * 3; };
  for (const uint32_t pid : {10u, 11u}) {
    CudaStreamBuilder s(pid, kT0 + kAhead);
    s.header.monotonic_offset_ns = kAhead;
    s.header.clock = pid == 10 ? INGERO_CLOCK_MONOTONIC : INGERO_CLOCK_TSC;
    AddNames(&s);
    for (int64_t t = kT0; t <= kT0 + 1000 * kMs; t += 100 * kMs) {
      if (pid == 11)
        s.Knot(pid, tsc(t), static_cast<uint64_t>(t + kAhead), 50);
      s.Call(pid, kSync,
             pid == 10 ? static_cast<uint64_t>(t + kAhead) : tsc(t), 600);
    }
    s.Write(dir / ("cuda-" + std::to_string(pid) + "-1.ingero"));
  }
  auto store = MergeAndOpen(dir);
  ASSERT_NE(store, nullptr);
  ASSERT_EQ(store->trace().processes().size(), 2u);
  for (uint32_t p = 0; p < 2; ++p) {
    const auto calls = AllCalls(*store, p);
    ASSERT_EQ(calls.size(), 11u);
    for (int i = 0; i < 11; ++i)
      EXPECT_NEAR(static_cast<double>(calls[i].begin.value),
                  static_cast<double>(kT0 + i * 100 * kMs), 2);
  }
}

TEST(Merge, ACompanionsFolderJoinsButLeadsNot) {
  TempDir mine, home;
  WriteCuda(mine / "cuda-10-1.ingero", 10, kT0);
  std::filesystem::create_directories(home / "ingero");
  KernelStreamBuilder beside(kT0 + 100 * kMs), later(kT0 + 90'000 * kMs);
  beside.Switch(0, {.t = kT0 + 100 * kMs, .next_tid = 10, .next_tgid = 10});
  beside.Write(home / "ingero/kernel-1-1.ingero");
  later.Switch(0, {.t = kT0 + 90'000 * kMs, .next_tid = 1, .next_tgid = 1});
  later.Write(home / "ingero/kernel-1-2.ingero");
  WriteCuda(home / "ingero/cuda-11-1.ingero", 11, kT0);
  const std::vector<std::string> both = {mine.path(), home / "ingero"};
  auto recordings = ListRecordings(both, /*first_leads=*/true);
  ASSERT_EQ(recordings.size(), 1u);
  ASSERT_EQ(recordings[0].streams.size(), 2u);
  EXPECT_EQ(recordings[0].streams[0].pid, 10u);
  EXPECT_TRUE(recordings[0].streams[1].kernel);
  // Folders that were asked for by name are equals.
  EXPECT_EQ(ListRecordings(both, false).size(), 2u);
  // With nothing in the first, the second is all there is.
  std::filesystem::remove(mine / "cuda-10-1.ingero");
  EXPECT_EQ(ListRecordings(both, true).size(), 2u);
}

TEST(Merge, WhatCannotBeReadIsSaidAndTheRestMerged) {
  TempDir dir;
  WriteCuda(dir / "cuda-10-1.ingero", 10, kT0);
  WriteCuda(dir / "real", 12, kT0);
  ASSERT_EQ(mkfifo((dir / "cuda-11-1.ingero").c_str(), 0600), 0);
  std::filesystem::create_symlink(dir / "none", dir / "cuda-13-1.ingero");
  std::filesystem::create_directory(dir / "cuda-14-1.ingero");
  size_t expected = 3;
  if (geteuid() != 0) {
    WriteCuda(dir / "cuda-15-1.ingero", 15, kT0);
    ASSERT_EQ(chmod((dir / "cuda-15-1.ingero").c_str(), 0), 0);
    ++expected;
  }
  auto summary = MergeDir(dir);
  ASSERT_TRUE(summary.ok()) << summary.status().message();
  EXPECT_EQ(summary->calls, 1u);
  size_t said = 0;
  for (const std::string& note : summary->notes) {
    said += note.starts_with("left out: ");
    EXPECT_EQ(note.find('\n'), std::string::npos);
  }
  EXPECT_EQ(said, expected);
}

TEST(Merge, ASwitchThatTheKernelHidIsALoss) {
  TempDir dir;
  KernelStreamBuilder k(kT0);
  const auto at = [](int ms) { return static_cast<uint64_t>(kT0 + ms * kMs); };
  const auto from_to = [&](int ms, uint32_t prev, uint32_t next) {
    k.Switch(0, {.t = at(ms), .prev_tid = prev, .prev_tgid = prev,
                 .next_tid = next, .next_tgid = next,
                 .prev_state = INGERO_TASK_INTERRUPTIBLE});
  };
  from_to(0, 0, 20);
  from_to(10, 20, 1);   // 1 is hidden: no row when it leaves
  from_to(400, 20, 0);  // 20 slept since 10, and ran before 400
  from_to(500, 0, 1);
  from_to(600, 30, 0);
  // A break that a loss explains is told once.
  from_to(700, 0, 40);
  from_to(900, 50, 0);
  k.Loss(0, kT0 + 750 * kMs, kT0 + 760 * kMs, INGERO_LOSS_SWITCH_RING_FULL, 2);
  k.Write(dir / "kernel-1-1.ingero");
  auto store = MergeAndOpen(dir);
  ASSERT_NE(store, nullptr);
  std::map<std::string, analysis::Loss> losses;
  for (const auto& loss : store->trace().losses()) {
    EXPECT_EQ(losses.count(loss.id), 0u);
    losses[loss.id] = loss;
  }
  ASSERT_EQ(losses.count("switch-unseen"), 1u);
  const analysis::Loss& unseen = losses["switch-unseen"];
  EXPECT_EQ(unseen.count, 2u);
  EXPECT_EQ(unseen.severity, 1);
  EXPECT_EQ(unseen.side, analysis::Loss::Side::kKernel);
  EXPECT_EQ(unseen.range, (Interval{Ns(kT0 + 10 * kMs), Ns(kT0 + 600 * kMs)}));
  EXPECT_EQ(losses["switch-ring-full"].count, 2u);
  for (const auto& a : store->Summarize(store->trace().span()).activities) {
    const uint32_t tid = store->trace().processes()[a.process].pid;
    if (tid == 20) {
      EXPECT_EQ(a.running, Ns(10 * kMs));
      // Since 400, to the last row.
      EXPECT_NEAR(static_cast<double>(a.sleeping.value), 500.0 * kMs, 1);
    }
    if (tid == 1) {
      EXPECT_EQ(a.running, Ns(0));
    }
  }
}

// ingero-kprobe --tree 20: its CPU's other threads are 1 and 30.
TEST(Merge, WhatAScopeLeftOutIsNeitherALossNorSilence) {
  TempDir dir;
  KernelStreamBuilder k(kT0);
  const auto at = [](int ms) { return static_cast<uint64_t>(kT0 + ms * kMs); };
  const auto from_to = [&](int ms, uint32_t prev, uint32_t next,
                           uint64_t flags, int wake_ms = 0) {
    k.Switch(0, {.t = at(ms), .prev_tid = prev, .prev_tgid = prev,
                 .next_tid = next, .next_tgid = next, .flags = flags,
                 .prev_state = INGERO_TASK_INTERRUPTIBLE,
                 .wake = wake_ms == 0 ? 0 : at(wake_ms)});
  };
  for (uint32_t pid : {1u, 20u, 21u, 30u, 40u})
    k.Task({.t = at(0), .tid = pid, .tgid = pid,
            .parent_tgid = pid == 21 ? 20u : 0u, .start_ns = pid,
            .ns_tid = pid, .ns_tgid = pid,
            .code = pid == 20 || pid == 21 ? 1 : 0, .text = "p"});
  k.Knot(at(0), at(0), 1);
  from_to(0, 0, 20, INGERO_PREV_OUTSIDE);
  from_to(10, 20, 1, INGERO_NEXT_OUTSIDE);
  from_to(400, 0, 30,
          INGERO_PREV_OUTSIDE | INGERO_NEXT_OUTSIDE | INGERO_PREV_LEFT_OUT);
  from_to(500, 30, 20, INGERO_PREV_OUTSIDE, 450);
  from_to(600, 20, 30, INGERO_NEXT_OUTSIDE, 550);
  k.Sample(at(1), Metric::kScope, 0, 1, "the tree of PID 20 (p)");
  for (uint64_t cpu : {0, 1}) {
    k.Sample(at(2), Metric::kSwitchesLeftOut, cpu, 3);
    k.Sample(at(900), Metric::kSwitchesLeftOut, cpu, 500 + cpu);
  }
  k.Knot(at(1000), at(1000), 1);
  k.Knot(at(1100), at(1100), 1);
  k.Write(dir / "kernel-1-1.ingero");
  auto store = MergeAndOpen(dir);
  ASSERT_NE(store, nullptr);
  EXPECT_TRUE(store->trace().losses().empty());
  // 20 slept to the end, although no switch tells.
  ASSERT_EQ(store->trace().kernel_spans().size(), 1u);
  EXPECT_EQ(store->trace().kernel_spans()[0].end, Ns(kT0 + 1000 * kMs));
  const std::string scope = store->facts().scope;
  EXPECT_NE(scope.find("the tree of PID 20 (p)"), std::string::npos) << scope;
  EXPECT_NE(scope.find("1,001 switches of others"), std::string::npos) << scope;
  std::map<uint32_t, bool> outside;
  for (const auto& p : store->trace().processes())
    outside[p.pid] = p.outside_scope;
  const std::map<uint32_t, bool> expected = {
      {1, true}, {20, false}, {21, false}, {30, true}, {40, true}};
  EXPECT_EQ(outside, expected);
  std::map<uint32_t, analysis::ProcessActivity> of;
  for (const auto& a : store->Summarize(store->trace().span()).activities)
    of[store->trace().processes()[a.process].pid] = a;
  EXPECT_EQ(of[20].running, Ns(110 * kMs));
  EXPECT_EQ(of[20].runnable, Ns(50 * kMs));
  EXPECT_EQ(of[1].running, Ns(0));
  EXPECT_EQ(of[30].running, Ns(100 * kMs));
  for (const uint32_t pid : {1u, 30u}) {
    EXPECT_EQ(of[pid].sleeping + of[pid].runnable + of[pid].io, Ns(0)) << pid;
    EXPECT_EQ(of[pid].slept + of[pid].preempted, 0u) << pid;
  }
}

TEST(Merge, NothingToMergeSaysWhatToDo) {
  TempDir dir;
  auto summary = MergeDir(dir);
  ASSERT_FALSE(summary.ok());
  EXPECT_NE(summary.status().message().find("LD_PRELOAD"), std::string::npos);
}

}  // namespace
}  // namespace ingero::merge
