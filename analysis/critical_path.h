// SPDX-License-Identifier: Apache-2.0
// The backward walk over one starved piece, and the folding of what it finds.
//
// From the piece's end the walk follows the thread that ended it: running time
// is its own, runnable time belongs to whoever held the CPU or to the cgroup's
// CPU quota, sleep leads to the thread that ended the sleep, at that moment.
// Chains end at an interrupt, the idle task or a kernel thread: there the
// sleeper's system call says what it waited for. A thread of CPython that waits for the
// interpreter lock is woken by a timer: there the path goes to the thread that ran
// meanwhile.
//
// Invariants: (1) the stretches emitted for a piece tile it exactly.
//             (2) time only moves backward; hops without progress are bounded.
#ifndef INGERO_ANALYSIS_CRITICAL_PATH_H_
#define INGERO_ANALYSIS_CRITICAL_PATH_H_

#include <vector>

#include "analysis/attribution.h"
#include "analysis/feeding.h"
#include "analysis/timelines.h"

namespace ingero::analysis {

// Which CUDA call (or none) the threads of one process are in.
class CallMap {
 public:
  explicit CallMap(const std::vector<FuncTraits>* traits) : traits_(traits) {}
  // `calls`: those open at the window's begin, then those that begin in it,
  // by begin, outer before inner.
  void Load(const std::vector<Call>& calls, Ns window_end);

  struct Point {
    Ns t;                    // from here on
    FuncIndex func = kNone;  // outermost call; kNone: outside
    Reason reason = Reason::kHostCode;
  };
  // Calls f(Point, Interval) from the newest to the oldest part of `range`.
  template <typename F>
  void ForParts(ThreadIndex thread, Interval range, F f) {
    const std::vector<Point>* list = Find(thread);
    size_t i = list ? IndexBefore(*list, range.end) : SIZE_MAX;
    Ns t = range.end;
    while (t > range.begin) {
      if (i == SIZE_MAX) {
        f(Point(), Interval{range.begin, t});
        return;
      }
      const Point& p = (*list)[i];
      const Ns low = std::max(range.begin, p.t);
      if (low < t) f(p, Interval{low, t});
      t = low;
      --i;
    }
  }
  // What the thread is in just before t.
  Point At(ThreadIndex thread, Ns t) const;

 private:
  struct Open {
    Ns end;
    FuncIndex func;
    Reason reason;
  };
  struct PerThread {
    ThreadIndex thread = kNone;
    std::vector<Point> points;
    std::vector<Open> stack;
  };
  PerThread& Of(ThreadIndex thread);
  const std::vector<Point>* Find(ThreadIndex thread) const;
  static size_t IndexBefore(const std::vector<Point>& list, Ns t);
  static void Pop(PerThread* t, Ns until);
  static void Add(PerThread* t, Point p);

  const std::vector<FuncTraits>* traits_;
  std::vector<PerThread> threads_;
  size_t used_ = 0, last_ = 0;
};

// Folds stretches of one kind within a cell of kCellLength. Stretches must
// come from the newest to the oldest.
class PathFolder {
 public:
  explicit PathFolder(AttributionSink* sink) : sink_(sink) {}
  // `cell.range` is one stretch; time and stretches are set here. `pages` is
  // asked for each part: f(Interval) -> pages.
  template <typename F>
  void Add(PathCell cell, F pages) {
    Interval rest = cell.range;
    while (!rest.empty()) {
      const int64_t index = CellOf(rest.end - Ns(1));
      const Interval part =
          rest.Clip({Ns(index * kCellLength.value), rest.end});
      if (index != index_) {
        Flush();
        index_ = index;
      }
      cell.range = part;
      cell.time = part.length();
      cell.stretches = 1;
      cell.pages = pages(part);
      Merge(cell);
      rest.end = part.begin;
    }
  }
  void Flush();
  static int64_t CellOf(Ns t) {
    const int64_t n = kCellLength.value;
    return t.value >= 0 ? t.value / n : (t.value - n + 1) / n;
  }

 private:
  void Merge(const PathCell& cell);

  AttributionSink* sink_;
  int64_t index_ = INT64_MIN;
  std::vector<PathCell> cells_;
  uint32_t recent_[256] = {};  // by a hash of the kind: its likely index
};

struct StarvedPiece {
  Interval range;
  ThreadIndex thread = kNone;  // ended it
  CallClass ended_by = CallClass::kOther;
  Certainty certainty = Certainty::kKnown;
  // Before the process had used its kernels once: what its own code does in
  // these ns is start-up.
  bool start_up = false;
};

class PathWalker {
 public:
  PathWalker(const TraceSource& trace, Timelines* timelines)
      : trace_(trace), timelines_(*timelines) {}
  // Windows come from the newest to the oldest.
  void Load(Interval window);
  // Returns the thread that the path is on at the piece's begin.
  ThreadIndex Walk(ProcessIndex process, const StarvedPiece& piece,
                   CallMap* calls, const std::vector<uint8_t>& submits,
                   PathFolder* out);

 private:
  // The thread's last that begins before t; nullptr = none.
  const MemoryStall* StallBefore(ThreadIndex thread, Ns t) const;
  bool RunsPython(ProcessIndex p) const;

  const TraceSource& trace_;
  Timelines& timelines_;
  std::vector<MemoryStall> stalls_;  // by thread and end
  std::vector<Timelines::Runner> runners_;  // scratch
};

}  // namespace ingero::analysis

#endif  // INGERO_ANALYSIS_CRITICAL_PATH_H_
