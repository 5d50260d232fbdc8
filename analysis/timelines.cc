// SPDX-License-Identifier: Apache-2.0
#include "analysis/timelines.h"

#include <algorithm>
#include <tuple>

#include "analysis/syscalls.h"

namespace ingero::analysis {
namespace {

// Sorted, disjoint.
std::vector<Interval> Union(std::vector<Interval> list) {
  std::sort(list.begin(), list.end(),
            [](Interval a, Interval b) { return a.begin < b.begin; });
  std::vector<Interval> out;
  for (Interval i : list) {
    if (i.empty()) continue;
    if (!out.empty() && i.begin <= out.back().end)
      out.back().end = std::max(out.back().end, i.end);
    else
      out.push_back(i);
  }
  return out;
}

constexpr Ns kForever{INT64_MAX};

}  // namespace

uint64_t Segment::PagesIn(Ns from, Ns to) const {
  if (pages == 0 || end <= begin || end == kForever) return 0;
  const auto up_to = [this](Ns t) {
    t = std::clamp(t, begin, end);
    return static_cast<uint64_t>(static_cast<unsigned __int128>(pages) *
                                 static_cast<uint64_t>((t - begin).value) /
                                 static_cast<uint64_t>((end - begin).value));
  };
  return up_to(to) - up_to(from);
}

Timelines::Timelines(const TraceSource& trace) : trace_(trace) {
  const size_t threads = trace.threads().size();
  now_.resize(threads);
  head_.assign(threads, kNone);
  carry_.resize(threads);
  tail_.resize(threads);
  flat_of_.assign(threads, kNone);
  switched_in_.assign(threads, 0);

  std::vector<Interval> unknown;
  Ns t{INT64_MIN};
  for (Interval span : Union(trace.kernel_spans())) {
    unknown.push_back({t, span.begin});
    t = span.end;
  }
  unknown.push_back({t, kForever});
  for (const Loss& loss : trace.losses())
    if (loss.side == Loss::Side::kKernel && loss.severity >= 2) {
      // A loss without length still hides what happened at that instant.
      unknown.push_back({loss.range.begin,
                         std::max(loss.range.end, loss.range.begin + Ns(1))});
    }
  unknown_ = Union(std::move(unknown));
  for (size_t i = 0; i + 1 < unknown_.size(); ++i)
    known_.push_back({unknown_[i].end, unknown_[i + 1].begin});
}

Interval Timelines::UnknownBefore(Ns t) const {
  // First stretch that begins at or after t; the one before it may cover t-1.
  auto it = std::lower_bound(unknown_.begin(), unknown_.end(), t,
                             [](Interval i, Ns at) { return i.begin < at; });
  if (it == unknown_.begin()) return {Ns(INT64_MIN), Ns(INT64_MIN)};
  --it;
  if (it->end >= t) return {it->begin, t};
  return {it->end, it->end};
}

Timelines::CpuState& Timelines::Cpu(uint16_t cpu) {
  if (cpu >= cpus_.size()) cpus_.resize(cpu + 1u);
  return cpus_[cpu];
}

void Timelines::Load(Interval window) {
  window_ = window;
  ++window_number_;
  for (ThreadIndex t : touched_) head_[t] = kNone;
  touched_.clear();
  nodes_.clear();
  for (size_t i = 0; i < flats_used_; ++i) flat_of_[flat_threads_[i]] = kNone;
  flat_threads_.clear();
  flats_used_ = 0;
  std::fill(now_.begin(), now_.end(), Now());
  for (CpuState& c : cpus_) {
    c.known = c.seen_in_window = false;
    c.now = CpuSegment();
    c.tail = c.first;
    c.segments.clear();
    c.hint = 0;
  }
  if (!has_kernel() || window.empty()) return;

  const Beginning begin = BeginOf(window);
  stretch_ = begin.stretch;
  if (stretch_ == kNone) {
    known_begin_ = Ns(INT64_MAX);
    return;
  }
  known_begin_ = known_[stretch_].begin;
  const Ns at = begin.reads.begin;
  for (const StateAt& s : begin.states) {
    // Older states are from before a loss: perhaps no longer true.
    if (s.thread >= now_.size() || s.since < known_begin_) continue;
    const Ns since = std::min(s.since, at);
    now_[s.thread] = {since, s.state, s.cpu, s.syscall};
    if (s.state != ThreadState::kRunning) continue;
    // Any other CPU is idle, or runs a thread that never switched.
    CpuState& c = Cpu(s.cpu);
    if (c.known) {  // two threads on it: the older was left unseen
      const ThreadIndex older = c.now.begin <= since ? c.now.thread : s.thread;
      now_[older].state = ThreadState::kUnknown;
      if (older == s.thread) continue;
    }
    c.now = {since, s.thread, false, false};
    c.known = true;
  }
  // The replay up to the window leaves only states; from there on segments.
  auto cursor = trace_.Switches(begin.reads);
  Switch s;
  bool emit = false;
  const auto begin_emit = [&] {
    emit = true;
    for (CpuState& c : cpus_)
      if (c.known) c.segments.push_back(c.now);
  };
  const auto advance = [&](Ns t) {
    while (stretch_ + 1 < known_.size() && t >= known_[stretch_ + 1].begin)
      EnterStretch(stretch_ + 1, emit);
  };
  Ns last_t{INT64_MIN};
  while (cursor->Next(&s)) {
    ++switches_read_;
    if (s.t < last_t) {
      s.t = last_t;
      ++disordered_;
    }
    last_t = s.t;
    if (!emit && s.t >= window.begin) begin_emit();
    advance(s.t);
    if (known_[stretch_].Contains(s.t)) Apply(s, emit);
  }
  if (!emit) begin_emit();
  advance(window.end - Ns(1));
  BreakChainsIntoNewer();
}

Timelines::Beginning Timelines::BeginOf(Interval window) const {
  Beginning begin;
  // The known stretch that the window begins in, or the first one in it.
  const auto stretch =
      std::find_if(known_.begin(), known_.end(),
                   [&](Interval k) { return k.end > window.begin; });
  if (stretch == known_.end() || stretch->begin >= window.end) return begin;
  begin.stretch = static_cast<uint32_t>(stretch - known_.begin());
  begin.reads = {stretch->begin, window.end};
  if (stretch->begin >= window.begin) return begin;
  auto [at, states] = trace_.StatesAt(window.begin);
  if (!states.empty() && at >= stretch->begin && at <= window.begin) {
    begin.reads.begin = at;
    begin.states = std::move(states);
  }
  return begin;
}

void Timelines::Forget(ThreadIndex thread) {
  now_[thread].state = ThreadState::kUnknown;
  if (head_[thread] != kNone)
    nodes_[head_[thread]].segment.state = ThreadState::kUnknown;
}

void Timelines::BreakChain(CpuState* cpu, bool emit) {
  const ThreadIndex held = cpu->now.thread;
  if (held < now_.size() && now_[held].state == ThreadState::kRunning &&
      &Cpu(now_[held].cpu) == cpu)
    Forget(held);
  cpu->now.thread = kNone;
  cpu->now.idle = false;
  if (emit && !cpu->segments.empty()) cpu->segments.back() = cpu->now;
}

// The first row of a CPU in the newer windows may not follow its last one here.
void Timelines::BreakChainsIntoNewer() {
  for (CpuState& c : cpus_) {
    const CpuState::First& next = c.seen_in_window ? c.tail : c.first;
    if (!c.known || next.stretch != stretch_ ||
        (next.thread == c.now.thread && !next.left_out))
      continue;
    BreakChain(&c, true);
    if (next.thread >= now_.size()) continue;
    Carry& carry = switched_in_[next.thread] == window_number_
                       ? tail_[next.thread]
                       : carry_[next.thread];
    if (carry.kind == Carry::kStops && &Cpu(carry.cpu) == &c)
      carry.unseen_start = true;
  }
}

void Timelines::EnterStretch(uint32_t stretch, bool emit) {
  stretch_ = stretch;
  known_begin_ = known_[stretch].begin;
  for (ThreadIndex t = 0; t < now_.size(); ++t)
    if (now_[t].state != ThreadState::kUnknown || head_[t] != kNone)
      Change(t, ThreadState::kUnknown, known_begin_, 0, -1, emit);
  for (CpuState& c : cpus_) {
    c.known = false;
    c.now = {known_begin_, kNone, false, true};
    if (emit) c.segments.push_back(c.now);
  }
}

Timelines::Node& Timelines::Head(ThreadIndex thread) {
  if (head_[thread] == kNone) {
    const Now& now = now_[thread];
    Node node;
    node.segment.begin = now.since;
    node.segment.end = kForever;
    node.segment.state = now.state;
    node.segment.cpu = now.cpu;
    node.segment.syscall = now.syscall;
    head_[thread] = static_cast<uint32_t>(nodes_.size());
    nodes_.push_back(node);
    touched_.push_back(thread);
  }
  return nodes_[head_[thread]];
}

void Timelines::Change(ThreadIndex thread, ThreadState state, Ns t,
                       uint16_t cpu, int16_t syscall, bool emit) {
  t = std::max(t, now_[thread].since);  // segments stay sorted
  if (emit) {
    Node& head = Head(thread);
    head.segment.end = t;
    Node node;
    node.segment.begin = t;
    node.segment.end = kForever;
    node.segment.state = state;
    node.segment.cpu = cpu;
    node.segment.syscall = syscall;
    node.previous = head_[thread];
    head_[thread] = static_cast<uint32_t>(nodes_.size());
    nodes_.push_back(node);
  }
  now_[thread] = {t, state, cpu, syscall};
}

// At a thread's first switch in the window: what the older windows need.
void Timelines::Touch(ThreadIndex thread, const Carry& carry) {
  if (switched_in_[thread] == window_number_) return;
  switched_in_[thread] = window_number_;
  tail_[thread] = carry_[thread];
  carry_[thread] = carry;
}

void Timelines::Infer(ThreadIndex thread, ThreadState state, uint16_t cpu) {
  now_[thread] = {known_begin_, state, cpu, -1};
  if (head_[thread] == kNone) return;
  Segment& head = nodes_[head_[thread]].segment;
  head.begin = known_begin_;
  head.state = state;
  head.cpu = cpu;
}

void Timelines::Apply(const Switch& s, bool emit) {
  CpuState& cpu = Cpu(s.cpu);
  const ThreadIndex prev =
      s.prev_idle || s.prev >= now_.size() ? kNone : s.prev;
  const bool broken = cpu.known && (s.left_out || cpu.now.thread != prev);
  if (broken) BreakChain(&cpu, emit);
  if (emit && !cpu.known) {
    CpuSegment before{known_begin_, prev, s.prev_idle, false};
    // It was seen to stop elsewhere, so when it came here is not known.
    if (prev != kNone && !NeverSeen(now_[prev]) &&
        now_[prev].state != ThreadState::kRunning)
      before.thread = kNone;
    if (!cpu.segments.empty() && cpu.segments.back().unseen)
      cpu.segments.back() = before;
    else if (cpu.segments.empty())
      cpu.segments.push_back(before);
  }
  if (emit && !cpu.seen_in_window) cpu.first = {prev, stretch_, s.left_out};
  if (emit) cpu.seen_in_window = true;

  if (prev != kNone) {
    if (emit) {
      Carry c;
      c.kind = Carry::kStops;
      c.stretch = stretch_;
      c.t = s.t;
      c.pages = s.prev_pages;
      c.cpu = s.cpu;
      c.unseen_start = broken;
      Touch(prev, c);
    }
    Now& now = now_[prev];
    if (NeverSeen(now) && !broken)
      // It was not seen to start since recording began: it ran all along.
      Infer(prev, ThreadState::kRunning, s.cpu);
    if (broken || now.state != ThreadState::kRunning || now.cpu != s.cpu) {
      // It stopped running here, and was not seen to start: asleep, waiting
      // or running since it was last seen, nobody knows for how long each.
      Forget(prev);
    } else if (emit) {
      Head(prev).segment.pages = s.prev_pages;
      Head(prev).segment.yielded = s.yielded;
    }
    Change(prev, s.prev_state, s.t, s.cpu,
           SleepSyscall(s.prev_syscall, s.prev_arg0), emit);
  }

  if (s.next != kNone && !s.next_idle && s.next < now_.size()) {
    if (emit) {
      Carry c;
      c.kind = Carry::kStarts;
      c.stretch = stretch_;
      c.t = s.t;
      c.cpu = s.cpu;
      c.has_wake = s.wake.has_value();
      if (s.wake) c.wake = *s.wake;
      c.waker = s.waker;
      c.irq = s.wake_from_irq;
      c.throttled = s.next_throttled;
      Touch(s.next, c);
    }
    Now& now = now_[s.next];
    if (now.state == ThreadState::kRunning) Forget(s.next);  // unseen stop
    if (NeverSeen(now) && s.wake)
      // Not seen since recording began, then woken: it slept all along.
      Infer(s.next, ThreadState::kSleeping, s.cpu);
    if (s.wake && now.state != ThreadState::kRunnable) {
      const Ns wake = std::clamp(*s.wake, std::min(now.since, s.t), s.t);
      if (emit) {
        Segment& asleep = Head(s.next).segment;
        asleep.waker = s.waker;
        asleep.woken_by_irq = s.wake_from_irq;
      }
      Change(s.next, ThreadState::kRunnable, wake, s.cpu, -1, emit);
    } else if (emit && now.state == ThreadState::kRunnable) {
      Head(s.next).segment.cpu = s.cpu;
    }
    if (emit && now.state == ThreadState::kRunnable)
      Head(s.next).segment.throttled = s.next_throttled;
    Change(s.next, ThreadState::kRunning, s.t, s.cpu, -1, emit);
  }

  cpu.known = true;
  cpu.now = {s.t, s.next_idle || s.next >= now_.size() ? kNone : s.next,
             s.next_idle, false};
  if (emit) cpu.segments.push_back(cpu.now);
}

// The stretch open at the window's end, with what newer windows know of it.
void Timelines::AppendTail(const Now& now, const Carry& carry,
                           std::vector<Segment>* out) {
  Segment& last = out->back();
  if (carry.stretch != stretch_) return;  // a loss lies between
  if (carry.kind == Carry::kStops) {
    if (NeverSeen(now) && !carry.unseen_start) {
      last.state = ThreadState::kRunning;
      last.begin = known_begin_;
      last.cpu = carry.cpu;
    }
    if (last.state == ThreadState::kRunning && !carry.unseen_start &&
        last.cpu == carry.cpu) {
      last.end = carry.t;
      last.pages = carry.pages;
    } else {
      last.state = ThreadState::kUnknown;
    }
  } else if (carry.kind == Carry::kStarts) {
    if (last.state == ThreadState::kRunning) last.state = ThreadState::kUnknown;
    if (NeverSeen(now) && carry.has_wake) {
      last.state = ThreadState::kSleeping;
      last.begin = known_begin_;
    }
    if (last.state == ThreadState::kRunnable) {
      last.cpu = carry.cpu;
      last.throttled = carry.throttled;
    } else if (carry.has_wake) {
      last.waker = carry.waker;
      last.woken_by_irq = carry.irq;
      last.end = std::max(carry.wake, last.begin);
      if (last.end < window_.end) {
        Segment runnable;
        runnable.begin = last.end;
        runnable.end = carry.t;
        runnable.state = ThreadState::kRunnable;
        runnable.cpu = carry.cpu;
        runnable.throttled = carry.throttled;
        out->push_back(runnable);
      }
    }
  }
}

void Timelines::Flatten(ThreadIndex thread) {
  if (flats_used_ == flats_.size()) flats_.emplace_back();
  Flat& flat = flats_[flats_used_];
  flat.segments.clear();
  const bool had_switch = switched_in_[thread] == window_number_;
  Head(thread);
  for (uint32_t n = head_[thread]; n != kNone; n = nodes_[n].previous)
    flat.segments.push_back(nodes_[n].segment);
  std::reverse(flat.segments.begin(), flat.segments.end());
  AppendTail(now_[thread], had_switch ? tail_[thread] : carry_[thread],
             &flat.segments);
  // Its end may have been left out.
  Segment& last = flat.segments.back();
  const ProcessIndex process = trace_.threads()[thread].process;
  if (last.end == kForever && last.state == ThreadState::kRunning &&
      process != kNone && trace_.processes()[process].outside_scope)
    last.state = ThreadState::kUnknown;
  flat.hint = flat.segments.size() - 1;
  flat_of_[thread] = static_cast<uint32_t>(flats_used_++);
  flat_threads_.push_back(thread);
}

std::span<const Segment> Timelines::Of(ThreadIndex thread) {
  if (thread >= flat_of_.size()) return {};
  if (flat_of_[thread] == kNone) Flatten(thread);
  return flats_[flat_of_[thread]].segments;
}

const Segment* Timelines::Before(ThreadIndex thread, Ns t) {
  const std::span<const Segment> list = Of(thread);
  if (list.empty()) return nullptr;
  size_t& hint = flats_[flat_of_[thread]].hint;
  // Walks go back in time: the hint or its neighbour is right nearly always.
  size_t i = hint;
  if (list[i].begin >= t && i > 0 && list[i - 1].begin < t) {
    --i;
  } else if (list[i].begin >= t ||
             (i + 1 < list.size() && list[i + 1].begin < t)) {
    auto it =
        std::lower_bound(list.begin(), list.end(), t,
                         [](const Segment& s, Ns at) { return s.begin < at; });
    if (it == list.begin()) return nullptr;
    i = static_cast<size_t>(it - list.begin()) - 1;
  }
  hint = i;
  return &list[i];
}

size_t Timelines::CpuIndexBefore(uint16_t cpu, Ns t) {
  CpuState& c = cpus_[cpu];
  const std::vector<CpuSegment>& list = c.segments;
  if (list.empty()) return SIZE_MAX;
  auto it =
      std::lower_bound(list.begin(), list.end(), t,
                       [](const CpuSegment& s, Ns at) { return s.begin < at; });
  return static_cast<size_t>(it - list.begin()) - 1;  // SIZE_MAX: before all
}

void Timelines::OnlyRunners(ProcessIndex process, ThreadIndex but,
                            Interval range, std::vector<Runner>* out) {
  out->clear();
  edges_.clear();
  const std::vector<Thread>& threads = trace_.threads();
  for (size_t cpu = 0; cpu < cpus_.size(); ++cpu)
    ForHolders(static_cast<uint16_t>(cpu), range,
               [&](const CpuSegment& s, Interval part) {
                 if (s.thread == kNone || s.thread == but || part.empty() ||
                     threads[s.thread].process != process)
                   return;
                 edges_.push_back({part.begin, s.thread, true});
                 edges_.push_back({part.end, s.thread, false});
               });
  std::sort(edges_.begin(), edges_.end(), [](const Edge& a, const Edge& b) {
    return std::tie(a.t, a.begins, a.thread) < std::tie(b.t, b.begins, b.thread);
  });
  // Of one that runs, the sum of all is its number.
  size_t running = 0;
  uint64_t sum = 0;
  Ns since = range.begin;
  for (const Edge& e : edges_) {
    if (running == 1 && since < e.t) {
      const auto thread = static_cast<ThreadIndex>(sum);
      if (!out->empty() && out->back().thread == thread &&
          out->back().range.end == since)
        out->back().range.end = e.t;
      else
        out->push_back({{since, e.t}, thread});
    }
    since = e.t;
    if (e.begins) {
      ++running;
      sum += e.thread;
    } else {
      --running;
      sum -= e.thread;
    }
  }
  std::reverse(out->begin(), out->end());
}

CpuSegment Timelines::CpuPrehistory(uint16_t cpu) const {
  CpuSegment s;
  s.begin = known_begin_;
  if (cpu >= cpus_.size()) return s;  // nothing newer was seen of it either
  const CpuState& c = cpus_[cpu];
  if (c.tail.stretch == stretch_) {
    s.thread = c.tail.thread;
    s.idle = c.tail.thread == kNone && !c.tail.left_out;
  }
  return s;
}

}  // namespace ingero::analysis
