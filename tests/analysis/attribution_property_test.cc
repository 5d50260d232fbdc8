// SPDX-License-Identifier: Apache-2.0
// Random machines: CPUs, threads that run, wait and sleep, CUDA calls that
// nest and cross everything, keyframes, losses, gaps in the kernel stream. For
// each the invariants hold and the windows do not matter.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>

#include "tests/analysis/invariants.h"
#include "tests/support/trace_text.h"

namespace ingero::testing {
namespace {

using namespace analysis;  // NOLINT: builds values of these types

class Machine {
 public:
  // `hides`: some switches of one thread are seen by no recorder.
  explicit Machine(uint32_t seed, bool hides = false)
      : random_(seed), hides_(hides) {}

  MemoryTrace Make() {
    trace_.span_value = {Ns(5'000'000), Ns(400'000'000 + Random(99'999'999))};
    const uint32_t processes = 2 + Random(4);
    for (uint32_t p = 0; p < processes; ++p) {
      Process process;
      process.pid = 100 + p;
      process.name = "p" + std::to_string(p);
      process.has_cuda = p < 2;
      process.is_ingero = p == 5;
      process.is_kernel = p == 4;
      process.parent = p == 0 ? kNone : Random(p - 1);
      process.first_seen = Random(9) ? Ns(0) : Time();
      process.main_thread = static_cast<ThreadIndex>(trace_.thread_list.size());
      const uint32_t threads = 1 + Random(2);
      for (uint32_t t = 0; t < threads; ++t)
        trace_.thread_list.push_back({100 * (p + 1) + t, p, "t"});
      trace_.process_list.push_back(process);
    }
    Functions();
    Kernel();
    Schedule();
    for (ThreadIndex t = 0; t < trace_.thread_list.size(); ++t)
      if (trace_.process_list[trace_.thread_list[t].process].has_cuda)
        Calls(t, trace_.span_value, 0);
    trace_.Sort();
    return trace_;
  }

  // Rows that cannot be true, as a damaged stream may hold them.
  MemoryTrace MakeImpossible() {
    Make();
    for (uint32_t i = 0; i < 200 && !trace_.calls.empty(); ++i) {
      const auto n = static_cast<uint32_t>(trace_.calls.size() - 1);
      Call c = trace_.calls[Random(n)];
      switch (Random(4)) {
        case 0:  // two of one thread at one depth at one time
          c.begin = c.begin + Step();
          c.end = c.end + Step() * (1 + Random(30));
          break;
        case 1:
          c.end = c.begin - Step();
          break;
        case 2:
          c.func = Random(1) ? kNone : c.func;
          c.thread = Random(1) ? kNone : c.thread;
          break;
        case 3:
          c.depth = static_cast<uint8_t>(Random(255));
          break;
        case 4:
          break;  // the same twice
      }
      trace_.calls.push_back(c);
    }
    const auto threads = static_cast<uint32_t>(trace_.thread_list.size());
    for (uint32_t i = 0; i < 300 && !trace_.switches.empty(); ++i) {
      Switch& s = trace_.switches[Random(
          static_cast<uint32_t>(trace_.switches.size() - 1))];
      switch (Random(4)) {
        case 0:
          s.next = Random(threads + 2);  // runs on two CPUs, or is nobody
          break;
        case 1:
          s.prev = Random(threads + 2);
          break;
        case 2:
          s.wake = s.t + Step() * 4;
          break;
        case 3:
          s.wake = Ns(0);
          break;
        case 4:
          s.waker = threads + 7;
          break;
      }
    }
    trace_.Sort();
    for (uint32_t i = 0; i < 20 && !trace_.switches.empty(); ++i) {
      Switch& s = trace_.switches[Random(
          static_cast<uint32_t>(trace_.switches.size() - 1))];
      s.t = s.t - Step() * 8;  // time goes backward
    }
    for (uint32_t i = 0; i < 20 && !trace_.calls.empty(); ++i) {
      Call& c =
          trace_.calls[Random(static_cast<uint32_t>(trace_.calls.size() - 1))];
      c.begin = c.begin - Step() * 8;
    }
    return trace_;
  }

 private:
  uint32_t Random(uint32_t most) {
    return std::uniform_int_distribution<uint32_t>(0, most)(random_);
  }
  Ns Time() {
    const Interval s = trace_.span_value;
    return s.begin + Ns(static_cast<int64_t>(
                         Random(static_cast<uint32_t>(s.length().value - 1))));
  }
  // Short times are as likely as long ones.
  Ns Step() { return Ns(1 + Random(1u << (4 + Random(20)))); }

  void Functions() {
    const CallClass classes[] = {
        CallClass::kLaunch,      CallClass::kLaunch,
        CallClass::kCopyAsync,   CallClass::kCopy,
        CallClass::kSyncStream,  CallClass::kSyncDevice,
        CallClass::kSyncEvent,   CallClass::kEventRecord,
        CallClass::kFree,        CallClass::kAlloc,
        CallClass::kModule,      CallClass::kQueryStream,
        CallClass::kQueryEvent,  CallClass::kOther,
        CallClass::kGraphLaunch, CallClass::kDevice};
    for (CallClass c : classes)
      trace_.function_list.push_back(
          {c == CallClass::kDevice ? "cudaSetDevice" : "f", Layer::kRuntime,
           c});
  }

  void Kernel() {
    if (Random(9) == 0) return;
    const Interval s = trace_.span_value;
    if (Random(3) == 0) {
      const Ns a = Time(), b = Time();
      trace_.kernel_list = {{s.begin, std::min(a, b)}, {std::max(a, b), s.end}};
    } else {
      trace_.kernel_list = {{Random(1) ? s.begin : Time(), s.end}};
    }
    for (uint32_t i = Random(2); i > 0; --i) {
      Loss loss;
      loss.range.begin = Time();
      loss.range.end = loss.range.begin + Step() * 4;
      loss.side = Loss::Side::kKernel;
      loss.count = 1;
      trace_.loss_list.push_back(loss);
    }
  }

  bool Recorded(Ns t) const {
    for (Interval k : trace_.kernel_list)
      if (k.Contains(t)) {
        for (const Loss& l : trace_.loss_list)
          if (l.range.Contains(t)) return false;
        return true;
      }
    return false;
  }

  // A scheduler: at each step one CPU switches, or one sleeper is woken.
  void Schedule() {
    struct Task {
      ThreadState state = ThreadState::kSleeping;
      int cpu = -1;
      std::optional<Ns> wake;
      ThreadIndex waker = kNone;
      bool irq = false;
    };
    // What a reader of the switches knows, for keyframes.
    std::vector<Task> tasks(trace_.thread_list.size());
    std::vector<std::optional<StateAt>> known(tasks.size());
    const uint32_t cpus = 1 + Random(3);
    std::vector<ThreadIndex> running(cpus, kNone);
    Ns next_keyframe = Time();
    size_t span = 0;
    for (Ns t = trace_.span_value.begin; t < trace_.span_value.end;
         t += Step()) {
      while (span < trace_.kernel_list.size() &&
             t >= trace_.kernel_list[span].end) {
        ++span;
        std::fill(known.begin(), known.end(), std::nullopt);
      }
      if (t >= next_keyframe && Recorded(t)) {
        for (const auto& k : known)
          if (k) trace_.keyframes.push_back({t, *k});
        next_keyframe = t + Ns(20'000'000 + Random(90'000'000));
      }
      if (Random(2) != 0) {  // wake one
        const ThreadIndex i = Random(static_cast<uint32_t>(tasks.size() - 1));
        Task& task = tasks[i];
        if (task.state == ThreadState::kRunning ||
            task.state == ThreadState::kRunnable)
          continue;
        const ThreadIndex by = running[Random(cpus - 1)];
        task.state = ThreadState::kRunnable;
        task.wake = t;
        task.irq = Random(3) == 0;
        task.waker = task.irq ? kNone : by;
        continue;
      }
      const uint32_t cpu = Random(cpus - 1);
      std::vector<ThreadIndex> ready;
      for (ThreadIndex i = 0; i < tasks.size(); ++i)
        if (tasks[i].state == ThreadState::kRunnable) ready.push_back(i);
      const ThreadIndex prev = running[cpu];
      const ThreadIndex next =
          ready.empty() || Random(5) == 0
              ? kNone
              : ready[Random(static_cast<uint32_t>(ready.size() - 1))];
      if (prev == next) continue;
      Switch s;
      s.t = t;
      s.cpu = static_cast<uint16_t>(cpu);
      s.prev = prev;
      s.next = next;
      s.prev_idle = prev == kNone;
      s.next_idle = next == kNone;
      // Also more than the wait itself, which no sane stream holds.
      if (Random(2) == 0) s.next_throttled = Step() * Random(20);
      if (prev != kNone) {
        static const ThreadState kStates[] = {
            ThreadState::kRunnable, ThreadState::kRunnable,
            ThreadState::kSleeping, ThreadState::kSleeping,
            ThreadState::kDisk,     ThreadState::kBlocked};
        s.prev_state = kStates[Random(5)];
        s.preempted = s.prev_state == ThreadState::kRunnable;
        s.prev_syscall = static_cast<int16_t>(Random(1) ? 202 : Random(300));
        s.prev_pages = Random(5000);
        tasks[prev] = {s.prev_state, -1, {}, kNone, false};
      }
      if (next != kNone) {
        s.wake = tasks[next].wake;
        s.waker = tasks[next].waker;
        s.wake_from_irq = tasks[next].irq;
        tasks[next] = {
            ThreadState::kRunning, static_cast<int>(cpu), {}, kNone, false};
      }
      running[cpu] = next;
      if (!Recorded(t)) continue;
      if (hides_ && (prev == 1 || next == 1) && Random(1)) continue;
      trace_.switches.push_back(s);
      if (prev != kNone)
        known[prev] = StateAt{prev, s.prev_state, t, s.cpu, s.prev_syscall};
      if (next != kNone)
        known[next] = StateAt{next, ThreadState::kRunning, t, s.cpu, -1};
    }
  }

  // Calls of a thread in `range`, one after the other, some with parts.
  void Calls(ThreadIndex thread, Interval range, uint8_t depth) {
    Ns t = range.begin + (depth ? Step() / 8 : Step());
    while (t < range.end) {
      Call c;
      c.thread = thread;
      c.depth = depth;
      c.begin = t;
      c.end = std::min(t + (depth ? Step() / 8 : Step() * (1 + Random(3))),
                       range.end);
      c.func = Random(static_cast<uint32_t>(trace_.function_list.size() - 1));
      if (Random(3) == 0) c.func = Random(4);
      c.stream = Random(2) * 7;
      c.object = Random(2);
      c.bytes = Random(1u << 22);
      c.direction = static_cast<CopyDirection>(Random(3));
      c.host_memory = static_cast<HostMemory>(Random(2));
      c.result = Random(20) == 0 ? 700 : 0;
      c.first_use = Random(40) == 0;
      c.first_call = Random(40) == 0;
      c.captured = Random(30) == 0;
      trace_.calls.push_back(c);
      if (depth < 2 && Random(2) == 0)
        Calls(thread, {c.begin, c.end}, depth + 1);
      t = c.end + (Random(3) ? (depth ? Step() / 8 : Step()) : Ns(0));
    }
  }

  std::mt19937 random_;
  bool hides_;
  MemoryTrace trace_;
};

class AttributionPropertyTest : public ::testing::TestWithParam<uint32_t> {};

TEST_P(AttributionPropertyTest, SumsHoldAndWindowsDoNotMatter) {
  // INGERO_SEED=n runs one seed more, for hunting.
  const char* extra = std::getenv("INGERO_SEED");
  const uint32_t base = extra ? static_cast<uint32_t>(std::atoi(extra)) : 0;
  const MemoryTrace trace = Machine(base + GetParam()).Make();
  const Attributed whole = RunAttribution(trace, kSecond * 10, /*exact=*/true);
  ExpectInvariants(trace, whole);
  for (int64_t ms : {10, 20, 50, 110, 300}) {
    SCOPED_TRACE("window of " + std::to_string(ms) + " ms");
    const Attributed a = RunAttribution(trace, kMillisecond * ms, true);
    ExpectInvariants(trace, a);
    ExpectSame(whole, a);
    if (HasFailure()) return;
  }
  SCOPED_TRACE("windows at keyframes");
  ExpectSame(whole, RunAttribution(trace, kMillisecond * 30, false));
  // Windows are joined while there are too many states at their begins.
  for (size_t bytes : {1, 4000, 20'000}) {
    SCOPED_TRACE("states of " + std::to_string(bytes) + " bytes");
    ExpectSame(whole, RunAttribution(trace, kMillisecond * 10, true, bytes));
  }
}

TEST_P(AttributionPropertyTest, HiddenSwitches) {
  const MemoryTrace trace = Machine(GetParam(), /*hides=*/true).Make();
  const Attributed whole = RunAttribution(trace, kSecond * 10, /*exact=*/true);
  ExpectInvariants(trace, whole);
  if (!trace.keyframes.empty()) return;
  for (int64_t ms : {10, 50, 110}) {
    SCOPED_TRACE("window of " + std::to_string(ms) + " ms");
    ExpectSame(whole, RunAttribution(trace, kMillisecond * ms, true));
    if (HasFailure()) return;
  }
}

TEST_P(AttributionPropertyTest, ImpossibleInputIsCountedAndNeverStops) {
  const MemoryTrace trace = Machine(GetParam()).MakeImpossible();
  for (int64_t ms : {10, 50, 10'000}) {
    Attributed out;
    AttributeOptions options;
    options.window = kMillisecond * ms;
    options.exact_window = true;
    const Impossible found = Attribute(trace, &out, nullptr, options);
    EXPECT_GT(found.calls, 0u);
    Ns starved, path;
    for (const FeedInterval& f : out.feeds)
      if (f.state != FeedState::kBusy) starved += f.time;
    for (const PathCell& c : out.paths) path += c.time;
    EXPECT_EQ(starved, path);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, AttributionPropertyTest,
                         ::testing::Range(1u, 41u));

}  // namespace
}  // namespace ingero::testing
