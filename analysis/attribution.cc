// SPDX-License-Identifier: Apache-2.0
// Two passes. Forward: the feeding model runs over all calls and leaves a
// checkpoint at each window's begin. Backward: each window's switches become
// timelines, the feeding model runs again from the checkpoint, and every
// starved piece is walked. What is open at a window's border is carried to the
// next older window.
#include "analysis/attribution.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "analysis/critical_path.h"
#include "analysis/feeding.h"
#include "analysis/step_finder.h"
#include "analysis/timelines.h"
#include "base/status.h"

namespace ingero::analysis {
namespace {

// Where a window longer than asked may begin, to start at a keyframe.
constexpr int64_t kKeyframeStretch = 8;

constexpr int64_t kMaxWindows = 20'000;
constexpr Ns kLookback{100'000'000};

// Start-up lasts while a kernel is used for the first time within so many
// submissions of the last such use: a training step uses all of its kernels,
// most of them more than once.
constexpr int kStartUpSubmissions = 256;

Ns AlignUp(Ns t) {
  return Ns(PathFolder::CellOf(t + kCellLength - Ns(1)) * kCellLength.value);
}
Ns AlignDown(Ns t) { return Ns(PathFolder::CellOf(t) * kCellLength.value); }

// Borders of the windows, oldest first; the first is span.begin and the last
// span.end. All between are multiples of kCellLength.
std::vector<Ns> Borders(const TraceSource& trace,
                        const AttributeOptions& options) {
  const Interval span = trace.span();
  std::vector<Ns> borders{span.end};
  // A checkpoint is kept for each window: a span of years, as a damaged stream
  // may claim, must not mean millions of them.
  const Ns length =
      std::max({AlignDown(options.window), kCellLength,
                AlignUp(Ns(span.length().value / kMaxWindows))});
  Ns t = span.end;
  while (true) {
    Ns begin = AlignDown(t - length);
    if (begin >= t) begin = begin - kCellLength;
    if (begin <= span.begin) break;
    if (!options.exact_window) {
      // Begin at a keyframe if one is near: no replay is needed then.
      const auto [at, states] = trace.StatesAt(begin);
      const Ns aligned = AlignUp(at);
      if (!states.empty() && t - aligned <= length * kKeyframeStretch &&
          aligned > span.begin && aligned < t)
        begin = aligned;
    }
    borders.push_back(begin);
    t = begin;
  }
  borders.push_back(span.begin);
  std::reverse(borders.begin(), borders.end());
  return borders;
}

class FeedFolder {
 public:
  FeedFolder(AttributionSink* sink, ProcessIndex process, uint32_t device)
      : sink_(sink), process_(process), device_(device) {}
  // From the newest to the oldest. `whole`: the piece's own begin is here.
  void Add(Interval range, FeedState state, bool whole) {
    Interval rest = range;
    while (!rest.empty()) {
      const int64_t index = PathFolder::CellOf(rest.end - Ns(1));
      const Interval part =
          rest.Clip({Ns(index * kCellLength.value), rest.end});
      if (index != index_) {
        Flush();
        index_ = index;
      }
      FeedInterval& f = states_[static_cast<size_t>(state)];
      if (f.time == Ns(0)) {
        f.range = part;
        f.intervals = 0;
        f.process = process_;
        f.device = device_;
        f.state = state;
      }
      f.range.begin = std::min(f.range.begin, part.begin);
      f.range.end = std::max(f.range.end, part.end);
      f.time += part.length();
      if (whole && part.begin == range.begin) ++f.intervals;
      rest.end = part.begin;
    }
  }
  void Flush() {
    for (FeedInterval& f : states_) {
      if (f.time > Ns(0)) sink_->OnFeed(f);
      f.time = Ns(0);
    }
  }

 private:
  AttributionSink* sink_;
  ProcessIndex process_;
  uint32_t device_;
  int64_t index_ = INT64_MIN;
  FeedInterval states_[8];
};

// The end of a wait for the GPU, looked at from its newest part on: the thread
// runs, after it was ready and waited for a CPU, after the GPU woke it or it
// lost the CPU on which it asked again and again.
struct SyncTail {
  // kOpen: not known before wait.end.
  enum Progress : uint8_t { kNo, kOpen, kKnown } progress = kNo;
  FeedState next = FeedState::kUnknown;  // after the wait
  ThreadIndex thread = kNone;
  Interval wait;
  Ns ran, waited;  // since wait.end; nobody knows: it may have run
  // Newest first; see TailOf(). May reach into older windows.
  std::vector<std::pair<Interval, FeedState>> parts;
};

// State of one device at the border, as the newer window left it.
struct DeviceCarry {
  bool valid = false;
  ThreadIndex thread = kNone;  // the path is on
  CallClass ended_by = CallClass::kOther;
  bool start_up = false;
  SyncTail tail;
};

struct DeviceWork {
  DeviceWork(AttributionSink* sink, ProcessIndex process, uint32_t device)
      : feed(sink, process, device), path(sink) {}
  FeedFolder feed;
  PathFolder path;
  DeviceCarry carry;
  // Class that ended the newest known-starved piece so far, for pieces that
  // only a return ended.
  CallClass starved_ended_by = CallClass::kOther;
  Ns starved_begin{INT64_MIN};
  Ns begin{INT64_MAX}, end{INT64_MIN}, total;  // invariant (1)
};

struct Checkpoint {
  FeedingModel model;
  std::vector<Call> open;  // calls under way, by begin
  size_t Bytes() const {
    return sizeof(*this) + model.Bytes() + open.size() * sizeof(Call);
  }
};

// A call that crosses a border, its newer parts summed.
struct PartialSplit {
  CallSplit split;
  std::vector<std::pair<ThreadIndex, Ns>> holders;
};

struct ProcessWork {
  ProcessIndex process = kNone;
  Ns start_up_end{INT64_MIN};
  std::vector<std::pair<size_t, Checkpoint>> checkpoints;  // by window
  Ns last_end;
  ThreadIndex last_thread = kNone;
  std::vector<DeviceWork> devices;
  std::optional<StepKind> step;
  uint64_t step_calls = 0;  // that bound steps, not yet reported
  // Damaged streams have calls that overlap at one depth, so all that tells
  // two apart is in the key.
  using PartialKey = std::tuple<ThreadIndex, Ns, Ns, FuncIndex, uint8_t>;
  std::map<PartialKey, PartialSplit> partial;
};

bool Starved(FeedState s) { return s != FeedState::kBusy; }
Certainty CertaintyOf(FeedState s) {
  return s == FeedState::kUnknown ? Certainty::kPossible : Certainty::kKnown;
}

class Attributor {
 public:
  Attributor(const TraceSource& trace, AttributionSink* sink,
             const Progress& progress, const AttributeOptions& options)
      : trace_(trace),
        sink_(sink),
        progress_(progress),
        will_read_(options.will_read),
        most_checkpoint_bytes_(options.most_checkpoint_bytes),
        traits_(MakeFuncTraits(trace.functions())),
        borders_(Borders(trace, options)),
        timelines_(trace),
        calls_(&traits_),
        walker_(trace, &timelines_),
        submits_(trace.threads().size(), 0) {}

  Impossible Run() {
    if (trace_.span().empty()) return impossible_;
    std::vector<ProcessWork> work;
    if (will_read_)
      will_read_([this, p = ProcessIndex{0}](RowsWanted* out) mutable {
        while (p < trace_.processes().size() && !Feeds(p)) ++p;
        *out = {Everything(), p};
        return p++ < trace_.processes().size();
      });
    for (ProcessIndex p = 0; p < trace_.processes().size(); ++p) {
      if (!Feeds(p)) continue;
      work.emplace_back().process = p;
      Forward(&work);
      if (work.back().checkpoints.empty()) work.pop_back();
    }
    if (progress_) progress_(0.2);
    if (will_read_) will_read_(SecondPass(work));
    const size_t windows = borders_.size() - 1;
    for (size_t i = windows; i-- > 0;) {
      const Interval window = WindowAt(i);
      bool loaded = false;
      for (ProcessWork& w : work) {
        if (w.checkpoints.empty() || w.checkpoints.back().first != i) continue;
        if (!loaded) {
          timelines_.Load(window);
          walker_.Load(window);
        }
        loaded = true;
        Backward(&w, window, &w.checkpoints.back().second);
        w.checkpoints.pop_back();
      }
      if (progress_)
        progress_(0.2 + 0.8 * static_cast<double>(windows - i) /
                            static_cast<double>(windows));
    }
    if (will_read_) will_read_(nullptr);
    for (ProcessWork& w : work)
      for (DeviceWork& d : w.devices) {
        d.feed.Flush();
        d.path.Flush();
        if (d.begin < d.end && d.total != Interval{d.begin, d.end}.length())
          ++impossible_.feeds;
      }
    impossible_.switches = timelines_.disordered();
    return impossible_;
  }

 private:
  bool Feeds(ProcessIndex p) const {
    return trace_.processes()[p].has_cuda && !trace_.processes()[p].is_ingero;
  }
  Interval Everything() const {
    return {trace_.span().begin, trace_.span().end + Ns(1)};
  }
  // The last window also takes what happens at the span's very end.
  Interval WindowAt(size_t i) const {
    Interval w{borders_[i], borders_[i + 1]};
    if (i + 2 == borders_.size()) w.end += Ns(1);
    return w;
  }

  // In the order of the loops in Run() and Backward().
  NextWanted SecondPass(const std::vector<ProcessWork>& work) const {
    struct Windows {
      ProcessIndex process;
      size_t first, last;
      bool Have(size_t i) const { return first <= i && i <= last; }
    };
    std::vector<Windows> of;
    for (const ProcessWork& w : work)
      of.push_back({w.process, w.checkpoints.front().first,
                    w.checkpoints.back().first});
    // Of a window: 0 is the switches, 1 on the processes' calls.
    return [this, of, i = borders_.size() - 1,
            item = of.size() + 1](RowsWanted* out) mutable {
      while (true) {
        if (item > of.size()) {
          if (i == 0) return false;
          --i;
          const bool any =
              std::any_of(of.begin(), of.end(),
                          [&](const Windows& w) { return w.Have(i); });
          item = any ? 0 : of.size() + 1;
          continue;
        }
        const size_t at = item++;
        if (at == 0) {
          *out = {timelines_.Reads(WindowAt(i)), kNone};
          if (!out->range.empty()) return true;
        } else if (of[at - 1].Have(i)) {
          *out = {WindowAt(i), of[at - 1].process};
          return true;
        }
      }
    };
  }

  bool IsLibrary(const Call& call) const {
    return call.func < traits_.size() && traits_[call.func].library;
  }

  // False: the call is left out.
  bool Sane(Ns* newest, Call* call) const {
    if (call->begin < *newest || call->func >= traits_.size() ||
        call->thread >= submits_.size())
      return false;
    *newest = call->begin;
    call->end = std::max(call->end, call->begin);
    return true;
  }

  // Of the last of them.
  void Forward(std::vector<ProcessWork>* work) {
    ProcessWork* const w = &work->back();
    FeedingModel model(&traits_);
    StepFinder steps;
    std::vector<Call> open;
    size_t window = 0;
    Ns last_end{INT64_MIN};
    const auto keep = [&] {
      model.Trim();
      w->checkpoints.push_back({window, Checkpoint{model, open}});
      checkpoint_bytes_ += w->checkpoints.back().second.Bytes();
    };
    // To the window where `t` lies, or the last one before `t` ends.
    const auto enter = [&](Ns t, bool ends) {
      const auto later = [&] {
        return window + 2 < borders_.size() &&
               (ends ? t > borders_[window + 1] : t >= borders_[window + 1]);
      };
      // Windows between two calls matter too: starvation goes on in them.
      while (later()) {
        ++window;
        const Ns border = borders_[window];
        std::erase_if(open, [&](const Call& c) { return c.end <= border; });
        if (!w->checkpoints.empty()) keep();
        if (checkpoint_bytes_ > most_checkpoint_bytes_ && borders_.size() > 3) {
          JoinWindows(work);
          window /= 2;
        }
      }
    };
    auto cursor = trace_.Calls(w->process, Everything());
    Call call;
    Ns newest{INT64_MIN};
    int since_first_use = 0;
    bool used_a_kernel = false;
    while (cursor->Next(&call)) {
      if (IsLibrary(call)) continue;
      if (!Sane(&newest, &call)) {
        ++impossible_.calls;
        continue;
      }
      if (call.first_use && since_first_use <= kStartUpSubmissions) {
        used_a_kernel = true;
        since_first_use = 0;
        w->start_up_end = std::max(w->start_up_end, call.end);
      } else if (used_a_kernel && call.depth == 0 &&
                 IsSubmission(traits_[call.func].call_class)) {
        ++since_first_use;
      }
      enter(call.begin, false);
      if (w->checkpoints.empty()) keep();
      model.OnCall(call, nullptr);
      steps.OnCall(call, traits_[call.func]);
      if (window + 2 < borders_.size() && call.end > borders_[window + 1])
        open.push_back(call);
      if (call.end > last_end) {
        last_end = call.end;
        w->last_thread = call.thread;
      }
    }
    if (w->checkpoints.empty()) return;  // no calls
    w->step = steps.Find();
    if (w->step) w->step_calls = w->step->calls;
    enter(last_end, true);
    // A source whose calls outlast its span is cut, never trusted.
    w->last_end = std::min(last_end, trace_.span().end + Ns(1));
    for (ThreadIndex t : model.submitters())
      if (t < submits_.size()) submits_[t] = 1;
  }

  // Each window with the next newer one: every second checkpoint goes.
  void JoinWindows(std::vector<ProcessWork>* work) {
    std::vector<Ns> borders;
    for (size_t i = 0; i + 1 < borders_.size(); i += 2)
      borders.push_back(borders_[i]);
    borders.push_back(borders_.back());
    borders_ = std::move(borders);
    checkpoint_bytes_ = 0;
    for (ProcessWork& w : *work) {
      std::vector<std::pair<size_t, Checkpoint>> kept;
      for (auto& [window, checkpoint] : w.checkpoints) {
        // The first one is of a model that has seen nothing, wherever it begins.
        if (window % 2 != 0 && !kept.empty()) continue;
        kept.emplace_back(window / 2, std::move(checkpoint));
        checkpoint_bytes_ += kept.back().second.Bytes();
      }
      w.checkpoints = std::move(kept);
    }
  }

  void Backward(ProcessWork* w, Interval window, Checkpoint* start) {
    // Calls: those under way at the begin, then those that begin here.
    calls_here_.assign(start->open.begin(), start->open.end());
    const size_t open = calls_here_.size();
    auto cursor = trace_.Calls(w->process, window);
    Call call;
    pieces_.clear();
    FeedingModel& model = start->model;
    Ns newest{INT64_MIN};
    while (cursor->Next(&call)) {
      if (IsLibrary(call) || !Sane(&newest, &call)) continue;
      calls_here_.push_back(call);
      model.OnCall(call, &pieces_);
    }
    const Ns end = std::min(window.end, w->last_end);
    model.AdvanceTo(end, &pieces_);
    const size_t closed = pieces_.size();
    model.OpenPieces(end, &pieces_);
    calls_.Load(calls_here_, window.end);
    Splits(w, window, open);
    Steps(w, open);

    for (size_t i = pieces_.size(); i-- > 0;) {
      FeedPiece piece = pieces_[i];
      const Ns whole_begin = piece.range.begin;
      const Ns whole_end = piece.range.end;
      piece.range = piece.range.Clip({window.begin, end});
      // Ended by a submission right at the border: the older window needs to
      // know by whom.
      const bool at_border = piece.range.empty() && whole_end == window.begin;
      if (piece.range.empty() && !at_border) continue;
      while (w->devices.size() <= piece.device)
        w->devices.emplace_back(sink_, w->process,
                                static_cast<uint32_t>(w->devices.size()));
      DeviceWork& d = w->devices[piece.device];
      bool start_up = whole_end <= w->start_up_end;
      if (i >= closed) {  // open at the end: newer windows know how it ended
        if (d.carry.valid) start_up = d.carry.start_up;
        piece.thread = d.carry.valid ? d.carry.thread : w->last_thread;
        if (d.carry.valid) piece.ended_by = d.carry.ended_by;
      } else if (piece.ended_by == CallClass::kOther &&
                 piece.state != FeedState::kUnknown &&
                 d.starved_begin == whole_end) {
        // Starvation went on: what ended all of it counts.
        piece.ended_by = d.starved_ended_by;
      }
      // After the last work nothing is fed any more: shutting down is no
      // starvation. Nothing newer than this has been reported.
      if (d.total == Ns(0) && (piece.state == FeedState::kIdle ||
                               piece.state == FeedState::kColdStart))
        continue;
      SyncTail tail;
      if (piece.sync_ended)
        tail = {SyncTail::kOpen,
                piece.next,
                piece.thread,
                {std::max(piece.sync_begin, whole_begin), whole_end},
                Ns(0),
                Ns(0),
                {}};
      else if (i >= closed && piece.state == FeedState::kBusy)
        tail = d.carry.tail;
      if (at_border) {
        d.carry = {true, piece.thread, piece.ended_by, start_up, tail};
        continue;
      }
      ThreadIndex at = piece.thread;
      const Ns begin = piece.range.begin;
      if (tail.progress != SyncTail::kNo) {
        if (tail.progress == SyncTail::kOpen && tail.wait.end > window.begin)
          TailOf(&tail);
        piece.thread = tail.thread;
        for (const auto& [range, state] : tail.parts) {
          FeedPiece part = piece;
          part.range = range.Clip(piece.range);
          part.state = state;
          if (part.range.empty()) continue;
          Account(w, &d, part, start_up, part.range.begin == range.begin);
          piece.range.end = part.range.begin;
        }
        // The older window finds out what it has of the last part.
        if (tail.wait.end == window.begin) tail.parts.clear();
      }
      if (!piece.range.empty())
        at = Account(w, &d, piece, start_up, whole_begin == begin);
      // For the next older window, should the piece reach into it.
      d.carry = {true, at, piece.ended_by, start_up, tail};
    }
  }

  // Those that calls of this window bound: from the `open`-th on.
  void Steps(ProcessWork* w, size_t open) {
    if (!w->step) return;
    const auto bounds = [&](const Call& call) {
      StepKind kind;
      return StepFinder::Bounds(call, traits_[call.func], &kind) &&
             kind.thread == w->step->thread && kind.func == w->step->func &&
             kind.object == w->step->object;
    };
    for (size_t i = calls_here_.size(); i-- > open;) {
      const Call& call = calls_here_[i];
      if (!bounds(call) || --w->step_calls % w->step->every != 0) continue;
      const bool graph =
          traits_[call.func].call_class == CallClass::kGraphLaunch;
      sink_->OnStep({graph ? call.begin : call.end, w->process, call.thread,
                     call.func, w->step->every, w->step->submissions});
    }
  }

  // What the thread did just before t, also where that is before the window;
  // nullptr: not known.
  const Segment* Before(ThreadIndex thread, Ns t) {
    const Segment* s = timelines_.Before(thread, t);
    if (s != nullptr || t > timelines_.window().begin) return s;
    // With the row at t, and what was before it.
    const Interval rows{t - Ns(1), t + Ns(1)};
    if (!lookback_ || lookback_->window().Clip(rows) != rows) {
      lookback_.emplace(trace_);
      lookback_->Load({t - kLookback, rows.end});
    }
    return lookback_->Before(thread, t);
  }

  // The parts of a wait for the GPU, newest first, in which the GPU was not
  // known to be busy any more. A thread that is woken looks at the GPU at once:
  // where it then needed no time to speak of on a CPU, the GPU had finished
  // when it was woken, and it waited for a CPU alone, perhaps more than once
  // (out of quota, preempted on its way). When a thread that had lost its CPU
  // while it looked came back the GPU had finished at some time, and so it had
  // where nobody knows what the thread did.
  void TailOf(SyncTail* tail) {
    std::vector<size_t> waits;  // of the parts: for a CPU
    const Interval window = timelines_.window();
    const Interval wait = tail->wait;
    tail->progress = SyncTail::kKnown;
    if (!timelines_.has_kernel()) return;  // nothing tells: as it returned
    Ns t = wait.end;
    const auto unknown_from = [&](Ns begin) {
      begin = std::max(begin, wait.begin);
      tail->parts.push_back({{begin, t}, FeedState::kUnknown});
      t = begin;
    };
    while (t > wait.begin) {
      const Interval gap = timelines_.UnknownBefore(t);
      const Segment* const found =
          gap.empty() ? Before(tail->thread, t) : nullptr;
      const Ns begin = !gap.empty()       ? gap.begin
                       : found == nullptr ? gap.end
                                          : std::max(found->begin, gap.end);
      if (found == nullptr || found->state == ThreadState::kUnknown) {
        waits.clear();
        if (t <= window.begin) {
          tail->progress = SyncTail::kOpen;
          tail->wait.end = t;
          return;
        }
        tail->ran += t - std::max({begin, wait.begin, window.begin});
        unknown_from(begin);
        t = std::max(t, window.begin);
        continue;
      }
      const bool running = found->state == ThreadState::kRunning;
      if (!running && found->state != ThreadState::kRunnable) return;
      if (running) tail->ran += t - begin;
      if (tail->ran > kSyncTailMax || (running && begin <= wait.begin)) return;
      // Invalidates `found`.
      const Segment* const older =
          begin > gap.end ? Before(tail->thread, begin) : nullptr;
      const ThreadState before =
          older == nullptr ? ThreadState::kUnknown : older->state;
      if (running) {
        if (before == ThreadState::kRunnable)
          tail->waited += begin - older->begin;
        if (tail->ran > std::max(kSyncTail, tail->waited / kSyncTailShare))
          return;
        unknown_from(begin);
        continue;
      }
      waits.push_back(tail->parts.size());
      unknown_from(begin);
      if (before == ThreadState::kUnknown ||
          (before == ThreadState::kRunning && !older->yielded))
        continue;
      // Another thread of the program says nothing about the GPU.
      if (before == ThreadState::kSleeping &&
          (older->woken_by_irq || IsKernel(older->waker)))
        for (const size_t i : waits) tail->parts[i].second = tail->next;
      return;
    }
  }

  bool IsKernel(ThreadIndex thread) const {
    if (thread >= trace_.threads().size()) return false;
    const ProcessIndex p = trace_.threads()[thread].process;
    return p != kNone && trace_.processes()[p].is_kernel;
  }

  // Returns the thread that the path is on at the piece's begin.
  ThreadIndex Account(ProcessWork* w, DeviceWork* d, const FeedPiece& piece,
                      bool start_up, bool whole) {
    d->feed.Add(piece.range, piece.state, whole);
    d->total += piece.range.length();
    d->begin = std::min(d->begin, piece.range.begin);
    d->end = std::max(d->end, piece.range.end);
    if (piece.state != FeedState::kBusy && piece.state != FeedState::kUnknown) {
      d->starved_begin = piece.range.begin;
      d->starved_ended_by = piece.ended_by;
    }
    if (!Starved(piece.state)) return piece.thread;
    StarvedPiece starved;
    starved.range = piece.range;
    starved.thread = piece.thread;
    starved.ended_by = piece.ended_by;
    starved.certainty = CertaintyOf(piece.state);
    starved.start_up = start_up;
    return walker_.Walk(w->process, starved, &calls_, submits_, &d->path);
  }

  // Calls whose thread was not on a CPU all the time.
  void Splits(ProcessWork* w, Interval window, size_t open) {
    if (!timelines_.has_kernel()) return;
    const auto newer = std::exchange(w->partial, {});
    for (size_t i = 0; i < calls_here_.size(); ++i) {
      const Call& call = calls_here_[i];
      const Interval range = Interval{call.begin, call.end}.Clip(window);
      const bool begins_here = i >= open;
      const bool ends_here = call.end <= window.end;
      const auto key = std::make_tuple(call.thread, call.begin, call.end,
                                       call.func, call.depth);
      PartialSplit part;
      if (!ends_here) {
        auto it = newer.find(key);
        if (it != newer.end()) part = it->second;
      }
      CallSplit& s = part.split;
      s.begin = call.begin;
      s.thread = call.thread;
      s.func = call.func;
      s.process = w->process;
      s.starts_up = call.first_use || call.first_call;
      SplitRange(call.thread, range, &part);
      if (!begins_here) {
        w->partial[key] = std::move(part);
        continue;
      }
      Ns longest;
      for (const auto& [holder, time] : part.holders)
        if (time > longest) {
          longest = time;
          s.holder = holder;
        }
      const Ns length = std::max(
          Ns(0), std::min(call.end, trace_.span().end + Ns(1)) - call.begin);
      if (s.running + s.runnable + s.sleeping + s.io + s.unknown != length) {
        ++impossible_.splits;
        s.running = s.runnable = s.sleeping = s.io = Ns(0);
        s.unknown = length;
      }
      const Interval gap = timelines_.UnknownBefore(call.end);
      const bool not_recorded = s.unknown == call.end - call.begin &&
                                !gap.empty() && gap.begin <= call.begin;
      if (s.running != call.end - call.begin && !not_recorded)
        sink_->OnSplit(s);
    }
  }

  void SplitRange(ThreadIndex thread, Interval range, PartialSplit* partial) {
    CallSplit* out = &partial->split;
    Ns t = range.end;
    bool first_wake = out->waker == kNone;
    while (t > range.begin) {
      const Interval unknown = timelines_.UnknownBefore(t);
      if (!unknown.empty()) {
        const Ns low = std::max(range.begin, unknown.begin);
        out->unknown += t - low;
        t = low;
        continue;
      }
      const Ns floor = std::max(range.begin, unknown.end);
      const Segment* s = timelines_.Before(thread, t);
      const Ns low = s ? std::max(floor, s->begin) : floor;
      const Ns part = t - low;
      switch (s ? s->state : ThreadState::kUnknown) {
        case ThreadState::kRunning:
          out->running += part;
          break;
        case ThreadState::kRunnable: {
          out->runnable += part;
          timelines_.ForHolders(
              s->cpu, {std::clamp(s->ThrottledEnd(), low, t), t}, [&](const CpuSegment& h, Interval i) {
                if (h.thread == kNone || h.thread == thread) return;
                for (auto& [holder, time] : partial->holders)
                  if (holder == h.thread) {
                    time += i.length();
                    return;
                  }
                partial->holders.push_back({h.thread, i.length()});
              });
          break;
        }
        case ThreadState::kDisk:
          out->io += part;
          break;
        case ThreadState::kSleeping:
        case ThreadState::kBlocked:
        case ThreadState::kStopped:
          out->sleeping += part;
          if (first_wake && s->waker != kNone) {
            out->waker = s->waker;
            first_wake = false;
          }
          break;
        case ThreadState::kUnknown:
        case ThreadState::kDead:
          out->unknown += part;
          break;
      }
      t = low;
    }
  }

  const TraceSource& trace_;
  AttributionSink* sink_;
  const Progress& progress_;
  const std::function<void(NextWanted)>& will_read_;
  const size_t most_checkpoint_bytes_;
  std::vector<FuncTraits> traits_;
  std::vector<Ns> borders_;
  Timelines timelines_;
  std::optional<Timelines> lookback_;  // before the window
  CallMap calls_;
  PathWalker walker_;
  std::vector<uint8_t> submits_;
  std::vector<Call> calls_here_;
  std::vector<FeedPiece> pieces_;
  size_t checkpoint_bytes_ = 0;
  Impossible impossible_;
};

}  // namespace

bool StartsUp(const TraceSource& trace, const CallSplit& split) {
  if (split.starts_up) return *split.starts_up;
  auto calls =
      trace.Calls(split.process, {split.begin, split.begin + Ns(1)});
  Call call;
  while (calls->Next(&call))
    if (call.thread == split.thread && call.func == split.func)
      return call.first_use || call.first_call;
  return false;
}

Impossible Attribute(const TraceSource& trace, AttributionSink* sink,
                     const Progress& progress,
                     const AttributeOptions& options) {
  return Attributor(trace, sink, progress, options).Run();
}

Impossible Attribute(const TraceSource& trace, AttributionSink* sink,
                     const Progress& progress) {
  return Attribute(trace, sink, progress, AttributeOptions());
}

}  // namespace ingero::analysis
