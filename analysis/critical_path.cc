// SPDX-License-Identifier: Apache-2.0
#include "analysis/critical_path.h"

#include <algorithm>
#include <span>
#include <tuple>
#include <utility>

#include "analysis/syscalls.h"
#include "base/status.h"

namespace ingero::analysis {
namespace {

// A chain of wake-ups at one instant is never this long; a loop would be.
constexpr int kMaxHopsWithoutProgress = 64;

Reason ReasonOf(const Call& call, const FuncTraits& traits) {
  if (IsColdStart(call, traits)) return Reason::kColdStart;
  switch (traits.call_class) {
    case CallClass::kCopy:
    case CallClass::kCopyAsync:
      if (call.host_memory == HostMemory::kPageable)
        return Reason::kPageableCopy;
      return Reason::kSubmitting;
    case CallClass::kLaunch:
    case CallClass::kGraphLaunch:
    case CallClass::kMemset:
    case CallClass::kMemsetAsync:
    case CallClass::kPrefetch:
      return call.captured ? Reason::kCudaCall : Reason::kSubmitting;
    default:
      return Reason::kCudaCall;
  }
}

// CPython waits for its interpreter lock in a timed wait of the switch interval
// (sys.getswitchinterval(): 5 ms), and asks the holder to let go only when that
// has timed out (take_gil() in Python/ceval_gil.c). So most of that wait ends by
// a timer, not by whoever held the lock.
constexpr Ns kSwitchIntervalLeast{4'900'000}, kSwitchIntervalMost{5'500'000};
constexpr int16_t kFutex = 202;

bool TimedOutOnLock(const Segment& s) {
  const Ns length = s.end - s.begin;
  return s.state == ThreadState::kSleeping && s.syscall == kFutex &&
         s.woken_by_irq && length >= kSwitchIntervalLeast &&
         length <= kSwitchIntervalMost;
}

// What a program does anyway before it runs: code, loading, uploading. Waiting
// for a CPU, or for somebody else, keeps its own name.
bool IsStartUpWork(Reason reason) {
  return reason == Reason::kHostCode || reason == Reason::kCudaCall ||
         reason == Reason::kDiskWait || reason == Reason::kPageableCopy ||
         reason == Reason::kSubmitting;
}

bool SameKind(const PathCell& a, const PathCell& b) {
  return a.thread == b.thread && a.state == b.state && a.reason == b.reason &&
         a.culprit == b.culprit && a.func == b.func &&
         a.certainty == b.certainty && a.ended_by == b.ended_by &&
         a.syscall == b.syscall && a.process == b.process;
}

}  // namespace

CallMap::PerThread& CallMap::Of(ThreadIndex thread) {
  if (last_ < used_ && threads_[last_].thread == thread) return threads_[last_];
  for (size_t i = 0; i < used_; ++i)
    if (threads_[i].thread == thread) return threads_[last_ = i];
  if (used_ == threads_.size()) threads_.emplace_back();
  PerThread& t = threads_[last_ = used_++];
  t.thread = thread;
  t.points.clear();
  t.stack.clear();
  return t;
}

void CallMap::Add(PerThread* t, Point p) {
  if (!t->points.empty() && t->points.back().t >= p.t)
    t->points.back() = {t->points.back().t, p.func, p.reason};
  else
    t->points.push_back(p);
}

void CallMap::Pop(PerThread* t, Ns until) {
  while (!t->stack.empty() && t->stack.back().end <= until) {
    const Open ended = t->stack.back();
    t->stack.pop_back();
    Point p;
    p.t = ended.end;
    if (!t->stack.empty()) {
      p.func = t->stack.back().func;
      p.reason = t->stack.back().reason;
      if (p.func == ended.func && p.reason == ended.reason) continue;
    }
    Add(t, p);
  }
}

void CallMap::Load(const std::vector<Call>& calls, Ns window_end) {
  used_ = last_ = 0;
  for (const Call& call : calls) {
    PerThread& t = Of(call.thread);
    Pop(&t, call.begin);
    Reason reason = ReasonOf(call, (*traits_)[call.func]);
    if (t.stack.empty()) {
      t.stack.push_back({call.end, call.func, reason});
      Add(&t, {call.begin, call.func, reason});
    } else {
      const Open outer = t.stack.back();
      if (outer.reason == Reason::kColdStart ||
          outer.reason == Reason::kPageableCopy)
        reason = outer.reason;
      // Clocks of nested calls are the same clock, but be safe: never outlive.
      t.stack.push_back({std::min(call.end, outer.end), outer.func, reason});
      if (reason != outer.reason) Add(&t, {call.begin, outer.func, reason});
    }
  }
  for (size_t i = 0; i < used_; ++i) Pop(&threads_[i], window_end);
}

const std::vector<CallMap::Point>* CallMap::Find(ThreadIndex thread) const {
  for (size_t i = 0; i < used_; ++i)
    if (threads_[i].thread == thread) return &threads_[i].points;
  return nullptr;
}

size_t CallMap::IndexBefore(const std::vector<Point>& list, Ns t) {
  auto it = std::lower_bound(list.begin(), list.end(), t,
                             [](const Point& p, Ns at) { return p.t < at; });
  return static_cast<size_t>(it - list.begin()) - 1;
}

CallMap::Point CallMap::At(ThreadIndex thread, Ns t) const {
  const std::vector<Point>* list = Find(thread);
  if (list == nullptr) return Point();
  const size_t i = IndexBefore(*list, t);
  return i == SIZE_MAX ? Point() : (*list)[i];
}

void PathFolder::Flush() {
  for (const PathCell& c : cells_) sink_->OnPath(c);
  cells_.clear();
}

void PathFolder::Merge(const PathCell& cell) {
  const auto add = [&](PathCell& to) {
    to.range.begin = std::min(to.range.begin, cell.range.begin);
    to.range.end = std::max(to.range.end, cell.range.end);
    to.time += cell.time;
    ++to.stretches;
    to.pages += cell.pages;
  };
  uint32_t& recent =
      recent_[(cell.thread * 31 + cell.culprit * 17 +
               static_cast<uint32_t>(cell.reason)) &
              255];
  if (recent < cells_.size() && SameKind(cells_[recent], cell))
    return add(cells_[recent]);
  for (size_t i = 0; i < cells_.size(); ++i)
    if (SameKind(cells_[i], cell)) {
      recent = static_cast<uint32_t>(i);
      return add(cells_[i]);
    }
  recent = static_cast<uint32_t>(cells_.size());
  cells_.push_back(cell);
}

void PathWalker::Load(Interval window) {
  // Those of newer windows that reach back into this one stay.
  std::erase_if(stalls_, [&](const MemoryStall& s) {
    return s.range.begin >= window.end;
  });
  for (const MemoryStall& s : trace_.MemoryStalls(window))
    if (s.thread != kNone && !s.range.empty()) stalls_.push_back(s);
  std::stable_sort(stalls_.begin(), stalls_.end(),
                   [](const MemoryStall& a, const MemoryStall& b) {
                     return std::tie(a.thread, a.range.end) <
                            std::tie(b.thread, b.range.end);
                   });
}

const MemoryStall* PathWalker::StallBefore(ThreadIndex thread, Ns t) const {
  // The first that ends at or after t, if it began before; else the one ahead.
  auto at = std::lower_bound(stalls_.begin(), stalls_.end(),
                             std::make_pair(thread, t),
                             [](const MemoryStall& s, const auto& key) {
                               return std::tie(s.thread, s.range.end) <
                                      std::tie(key.first, key.second);
                             });
  if (at != stalls_.end() && at->thread == thread && at->range.begin < t)
    return &*at;
  if (at == stalls_.begin() || std::prev(at)->thread != thread) return nullptr;
  return &*std::prev(at);
}

// By its executable file; where that is not known, by its name.
bool PathWalker::RunsPython(ProcessIndex p) const {
  if (p >= trace_.processes().size()) return false;
  const Process& process = trace_.processes()[p];
  std::string_view name = process.exe.empty() ? process.name : process.exe;
  name.remove_prefix(name.rfind('/') + 1);
  return name.starts_with("python");
}

ThreadIndex PathWalker::Walk(ProcessIndex process, const StarvedPiece& piece,
                             CallMap* calls,
                             const std::vector<uint8_t>& submits,
                             PathFolder* out) {
  const std::vector<Thread>& threads = trace_.threads();
  const std::vector<Process>& processes = trace_.processes();
  const Ns begin = piece.range.begin;
  Ns t = piece.range.end;
  ThreadIndex current = piece.thread;
  int hops = 0;

  PathCell base;
  base.process = process;
  base.certainty = piece.certainty;
  base.ended_by = piece.ended_by;
  const auto no_pages = [](Interval) { return uint64_t{0}; };
  Ns total;
  const auto emit = [&](PathCell cell, Interval range, auto pages) {
    total += range.length();
    cell.range = range;
    cell.thread = current;
    const bool own =
        current < threads.size() && threads[current].process == process;
    cell.submits = own && current < submits.size() && submits[current] != 0;
    if (piece.start_up && own && IsStartUpWork(cell.reason))
      cell.reason = Reason::kColdStart;
    out->Add(cell, pages);
  };
  // By the calls that `current` was in. Outside of them a running thread runs
  // host code; another keeps the reason that it has.
  const auto emit_by_call = [&](const PathCell& cell, Interval range,
                                auto pages) {
    calls->ForParts(current, range,
                    [&](const CallMap::Point& p, Interval part) {
                      PathCell c = cell;
                      if (p.func != kNone ||
                          cell.state == ThreadState::kRunning) {
                        c.reason = p.reason;
                        c.func = p.func;
                      }
                      emit(c, part, pages);
                    });
  };
  // Without scheduling data only the calls are known.
  const auto emit_unknown = [&](Ns low) {
    emit_by_call(base, {low, t}, no_pages);
    t = low;
    hops = 0;
  };

  while (t > begin) {
    Ns floor = begin;
    const Interval unknown = timelines_.UnknownBefore(t);
    if (!unknown.empty()) {
      emit_unknown(std::max(begin, unknown.begin));
      continue;
    }
    floor = std::max(floor, unknown.end);
    const Segment* s =
        current == kNone ? nullptr : timelines_.Before(current, t);
    if (s == nullptr) {
      emit_unknown(floor);
      continue;
    }
    const Segment segment = *s;
    Ns low = std::max(floor, segment.begin);
    PathCell cell = base;
    cell.state = segment.state;
    // Making room in memory, on the CPU or asleep in it: nobody else's doing.
    if (const MemoryStall* stall = StallBefore(current, t)) {
      if (stall->range.end < t) {
        low = std::max(low, stall->range.end);
      } else if (segment.state == ThreadState::kRunning ||
                 segment.state == ThreadState::kDisk ||
                 segment.state == ThreadState::kSleeping ||
                 segment.state == ThreadState::kBlocked) {
        low = std::max(low, stall->range.begin);
        cell.reason =
            stall->compaction ? Reason::kCompaction : Reason::kReclaim;
        emit(cell, {low, t}, [&](Interval i) {
          return segment.state == ThreadState::kRunning
                     ? segment.PagesIn(i.begin, i.end)
                     : 0;
        });
        t = low;
        hops = 0;
        continue;
      } else {
        low = std::max(low, stall->range.begin);
      }
    }
    switch (segment.state) {
      case ThreadState::kRunning:
        emit_by_call(cell, {low, t}, [&](Interval i) {
          return segment.PagesIn(i.begin, i.end);
        });
        break;
      case ThreadState::kRunnable: {
        // Whoever ran meanwhile is not to blame for a quota.
        const Ns free = std::clamp(segment.ThrottledEnd(), low, t);
        cell.reason = Reason::kWaitingForCpu;
        timelines_.ForHolders(segment.cpu, {free, t},
                              [&](const CpuSegment& holder, Interval part) {
                                PathCell c = cell;
                                // Its own last instants as the CPU's owner
                                // are a matter of clock reading, no culprit.
                                if (holder.thread != current)
                                  c.culprit = holder.thread;
                                if (holder.thread == kNone && !holder.idle)
                                  c.reason = Reason::kHolderUnseen;
                                emit(c, part, no_pages);
                              });
        cell.reason = Reason::kThrottled;
        if (low < free) emit(cell, {low, free}, no_pages);
        break;
      }
      case ThreadState::kDisk:
        cell.reason = Reason::kDiskWait;
        cell.syscall = segment.syscall;
        emit(cell, {low, t}, no_pages);
        break;
      case ThreadState::kStopped:
        cell.reason = Reason::kStopped;
        emit(cell, {low, t}, no_pages);
        break;
      case ThreadState::kSleeping:
      case ThreadState::kBlocked: {
        const ThreadIndex waker = segment.waker;
        const bool culprit_known = waker != kNone && waker < threads.size() &&
                                   !segment.woken_by_irq && waker != current &&
                                   threads[waker].process != kNone &&
                                   !processes[threads[waker].process]
                                        .outside_scope &&
                                   !processes[threads[waker].process].is_kernel;
        if (culprit_known && ++hops <= kMaxHopsWithoutProgress) {
          current = waker;
          continue;
        }
        cell.syscall = segment.syscall;
        if (culprit_known) {
          cell.reason = Reason::kUnknown;  // a loop of wakers
        } else if (segment.state == ThreadState::kBlocked) {
          cell.reason = Reason::kBlocked;
        } else {
          cell.reason = ReasonOfSleep(segment.syscall);
        }
        runners_.clear();
        if (!culprit_known && TimedOutOnLock(segment) &&
            RunsPython(threads[current].process) &&
            calls->At(current, t).func == kNone) {
          // The path is the holder's for as long as nobody else of the process
          // ran.
          const ProcessIndex own = threads[current].process;
          timelines_.OnlyRunners(own, current, {low, t}, &runners_);
        }
        const auto emit_asleep = [&](Interval range) {
          if (range.empty()) return;
          // Asleep inside a CUDA call: the call is what it waited in.
          if (!culprit_known && cell.reason == Reason::kSleepOther)
            emit_by_call(cell, range, no_pages);
          else
            emit(cell, range, no_pages);
        };
        PathCell running = base;
        running.state = ThreadState::kRunning;
        const ThreadIndex sleeper = current;
        Ns awake = t;
        for (const Timelines::Runner& r : runners_) {
          emit_asleep({r.range.end, awake});
          current = r.thread;
          emit_by_call(running, r.range, no_pages);
          current = sleeper;
          awake = r.range.begin;
        }
        emit_asleep({low, awake});
        break;
      }
      case ThreadState::kUnknown:
      case ThreadState::kDead: {
        // Before a new process' main thread ran, its parent was about to make
        // it: the path goes on there.
        const ProcessIndex p = threads[current].process;
        if (segment.state == ThreadState::kUnknown && p != kNone &&
            processes[p].main_thread == current &&
            processes[p].parent != kNone && processes[p].first_seen >= low &&
            p != process &&
            processes[processes[p].parent].main_thread != kNone &&
            ++hops <= kMaxHopsWithoutProgress) {
          if (processes[p].first_seen < t) {
            PathCell c = base;
            c.state = ThreadState::kUnknown;
            emit(c, {processes[p].first_seen, t}, no_pages);
            t = processes[p].first_seen;
          }
          current = processes[processes[p].parent].main_thread;
          continue;
        }
        emit_unknown(low);
        continue;
      }
    }
    t = low;
    hops = 0;
  }
  // The path of a starved interval sums to its length.
  INGERO_CHECK(total == piece.range.length());
  return current;
}

}  // namespace ingero::analysis
