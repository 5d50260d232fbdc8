// SPDX-License-Identifier: Apache-2.0
// What every thread and CPU did in one window, from a keyframe and the
// context switches.
//
// Windows are loaded from the newest to the oldest. Some facts about a window
// are known only from a later switch: when a thread that slept across the
// window's end was woken, on which CPU a waiting thread ran at last, how many
// pages a running thread had taken when it stopped. They are carried over from
// the window loaded before ("carry"), so that the answer is the same for any
// choice of windows.
//
// Some switches are hidden from every recorder (a virtual machine hides its own
// agent's): the row of a CPU then begins with another thread than the row
// before ended with. What the two threads did from when they were last seen is
// unknown, as is who held the CPU; nothing else is. So it is where recording
// was limited to a tree and switches of others were left out, which is told.
//
// Units:      times are Ns, intervals half-open.
// Memory:     one window's switches; arenas are reused.
// Invariants: (1) segments of a thread are sorted and do not overlap.
//             (2) the last segment of a thread reaches the window's end.
// Budget:     no allocation and no hashing per switch in steady state.
#ifndef INGERO_ANALYSIS_TIMELINES_H_
#define INGERO_ANALYSIS_TIMELINES_H_

#include <algorithm>
#include <span>
#include <vector>

#include "analysis/trace.h"

namespace ingero::analysis {

// One stretch in one state. `begin` may lie before the window.
struct Segment {
  Ns begin;
  Ns end;
  ThreadIndex waker = kNone;  // asleep: who ended the sleep
  uint64_t pages = 0;         // running: allocated over [begin, end)
  int16_t syscall = -1;       // asleep in
  uint16_t cpu = 0;  // running on; runnable: the CPU that it ran on at last
  ThreadState state = ThreadState::kUnknown;
  bool woken_by_irq = false;
  bool yielded = false;  // running: until it called sched_yield
  // Runnable: for so long of it the cgroup was out of CPU quota. Taken to be
  // its first part: a quota that ends ends the wait for it, not for the CPU.
  Ns throttled;

  Ns ThrottledEnd() const {
    return throttled <= Ns(0) ? begin : begin + std::min(throttled, end - begin);
  }

  // Pages of [from, to), in proportion; sums are exact over any partition.
  uint64_t PagesIn(Ns from, Ns to) const;
};

// Who ran on a CPU from `begin` on.
struct CpuSegment {
  Ns begin;
  ThreadIndex thread = kNone;  // kNone: idle or not known
  bool idle = false;
  bool unseen = false;  // before the first switch of a known stretch
};

class Timelines {
 public:
  explicit Timelines(const TraceSource& trace);

  // REQUIRES: window.end <= begin of the window loaded before.
  void Load(Interval window);
  Interval window() const { return window_; }
  // The switches that Load(window) asks the trace for. Any thread.
  Interval Reads(Interval window) const {
    return window.empty() ? Interval() : BeginOf(window).reads;
  }

  // Newest first query is as cheap as any: the thread's segments, sorted.
  std::span<const Segment> Of(ThreadIndex thread);
  // The segment that covers the instant just before t, or nullptr.
  const Segment* Before(ThreadIndex thread, Ns t);

  // Calls f(CpuSegment, Interval) from the newest to the oldest part of
  // `range`, which it covers without gaps.
  template <typename F>
  void ForHolders(uint16_t cpu, Interval range, F f) {
    range = range.Clip(window_);
    const std::vector<CpuSegment>* list =
        cpu < cpus_.size() ? &cpus_[cpu].segments : nullptr;
    size_t i = list ? CpuIndexBefore(cpu, range.end) : 0;
    Ns t = range.end;
    while (t > range.begin) {
      CpuSegment s;
      Ns low = range.begin;
      if (list && i != SIZE_MAX) {
        s = (*list)[i];
        low = std::max(low, s.begin);
      } else {
        s.unseen = true;
      }
      if (s.unseen) s = CpuPrehistory(cpu);
      if (low < t) f(s, Interval{low, t});
      t = low;
      if (i != SIZE_MAX) --i;  // wraps to SIZE_MAX: before the first
    }
  }

  // Parts of `range`, newest first, in which of the threads of `process`, but
  // for one, exactly one was on a CPU.
  struct Runner {
    Interval range;
    ThreadIndex thread = kNone;
  };
  void OnlyRunners(ProcessIndex process, ThreadIndex but, Interval range,
                   std::vector<Runner>* out);

  // The stretch without scheduling data that covers the instant just before
  // t, else an empty interval whose end is where the newest such stretch
  // before t ends (so [end, t) is known).
  Interval UnknownBefore(Ns t) const;
  bool has_kernel() const { return !known_.empty(); }

  uint64_t switches_read() const { return switches_read_; }
  // Rows out of order, which no recorder writes: taken at the time before.
  uint64_t disordered() const { return disordered_; }

 private:
  struct Now {
    Ns since{INT64_MIN};
    ThreadState state = ThreadState::kUnknown;
    uint16_t cpu = 0;
    int16_t syscall = -1;
  };
  // What the newer windows know about a thread at this window's end.
  struct Carry {
    enum Kind : uint8_t { kNothing, kStops, kStarts } kind = kNothing;
    uint32_t stretch = 0;  // index into known_
    bool has_wake = false, irq = false;
    bool unseen_start = false;  // kStops: its CPU's row before tells another
    uint16_t cpu = 0;
    ThreadIndex waker = kNone;
    Ns t;  // of the switch
    Ns wake;
    Ns throttled;
    uint64_t pages = 0;
  };
  struct Node {
    Segment segment;
    uint32_t previous = kNone;  // node of the same thread
  };
  struct CpuState {
    bool known = false;  // a switch or a keyframe told who runs
    bool seen_in_window = false;
    CpuSegment now;
    // Carry: who ran before the first switch, in that known stretch.
    // For older windows, and (tail) as the newer ones left it for this one.
    struct First {
      ThreadIndex thread = kNone;
      uint32_t stretch = kNone;
      bool left_out = false;  // not known: neither a thread nor idle
    } first, tail;
    std::vector<CpuSegment> segments;
    size_t hint = 0;
  };

  // Where the replay of a window begins.
  struct Beginning {
    uint32_t stretch = kNone;  // kNone: nothing is known of the window
    Interval reads;
    std::vector<StateAt> states;  // at reads.begin
  };
  Beginning BeginOf(Interval window) const;
  void Apply(const Switch& s, bool emit);
  void EnterStretch(uint32_t stretch, bool emit);
  // Closes the thread's current stretch at t and opens the next one.
  void Change(ThreadIndex thread, ThreadState state, Ns t, uint16_t cpu,
              int16_t syscall, bool emit);
  Node& Head(ThreadIndex thread);
  void Touch(ThreadIndex thread, const Carry& carry);
  // No data about the thread since the known stretch began.
  bool NeverSeen(const Now& now) const {
    return now.state == ThreadState::kUnknown && now.since <= known_begin_;
  }
  // What it does since it was last seen is not known after all.
  void Forget(ThreadIndex thread);
  // Switches between the CPU's last row and the next one were not seen.
  void BreakChain(CpuState* cpu, bool emit);
  void BreakChainsIntoNewer();
  void Infer(ThreadIndex thread, ThreadState state, uint16_t cpu);
  void Flatten(ThreadIndex thread);
  void AppendTail(const Now& now, const Carry& carry,
                  std::vector<Segment>* out);
  CpuState& Cpu(uint16_t cpu);
  size_t CpuIndexBefore(uint16_t cpu, Ns t);
  CpuSegment CpuPrehistory(uint16_t cpu) const;

  const TraceSource& trace_;
  std::vector<Interval> unknown_;  // sorted, disjoint
  std::vector<Interval> known_;    // the stretches between them
  Interval window_;
  // The known stretch that the replay is in. Nothing is remembered from one
  // to the next: what happened between them is not known.
  uint32_t stretch_ = 0;
  Ns known_begin_;
  std::vector<Now> now_;
  std::vector<uint32_t> head_;         // newest node of a thread, kNone
  std::vector<ThreadIndex> touched_;   // threads with nodes
  std::vector<uint32_t> switched_in_;  // number of the last window with one
  uint32_t window_number_ = 0;
  std::vector<Carry> carry_, tail_;  // for older windows; for this one
  std::vector<Node> nodes_;
  std::vector<CpuState> cpus_;
  // Flattened on demand.
  struct Flat {
    std::vector<Segment> segments;
    size_t hint = 0;
  };
  std::vector<uint32_t> flat_of_;  // index into flats_, kNone
  std::vector<ThreadIndex> flat_threads_;
  std::vector<Flat> flats_;
  size_t flats_used_ = 0;
  struct Edge {
    Ns t;
    ThreadIndex thread;
    bool begins;
  };
  std::vector<Edge> edges_;  // scratch of OnlyRunners
  uint64_t switches_read_ = 0, disordered_ = 0;
};

}  // namespace ingero::analysis

#endif  // INGERO_ANALYSIS_TIMELINES_H_
