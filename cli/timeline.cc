// SPDX-License-Identifier: Apache-2.0
#include "cli/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "analysis/names.h"
#include "analysis/syscalls.h"
#include "base/text.h"

namespace ingero::cli {

using analysis::kNone;
using analysis::ThreadState;
using merge::TraceReader;

namespace {

constexpr Ns kPiece{1'000'000'000};

Json Who(const TraceReader& trace, analysis::ThreadIndex thread) {
  if (thread >= trace.threads().size()) return nullptr;
  const analysis::Thread& t = trace.threads()[thread];
  return {{"name", t.name},
          {"pid", trace.processes()[t.process].pid},
          {"tid", t.tid}};
}

bool SameStretch(const analysis::Segment& a, const analysis::Segment& b) {
  return a.end == b.begin && a.state == b.state && a.cpu == b.cpu &&
         a.syscall == b.syscall;
}

void AddHolder(analysis::ThreadIndex thread, Ns time,
               std::vector<std::pair<analysis::ThreadIndex, Ns>>* holders) {
  for (auto& [who, sum] : *holders)
    if (who == thread) {
      sum += time;
      return;
    }
  holders->emplace_back(thread, time);
}

Status TooMany() {
  return Status::Error(fmt::format(
      "more than {} entries; ask about less time, for example --from 12s --to "
      "13s",
      FormatCount(kMaxTimelineEntries)));
}

}  // namespace

Result<analysis::ThreadIndex> FindThread(const TraceReader& trace, uint32_t tid,
                                         uint32_t pid, Interval window) {
  std::vector<analysis::ThreadIndex> found, earlier;
  for (analysis::ThreadIndex i = 0; i < trace.threads().size(); ++i) {
    const analysis::Thread& t = trace.threads()[i];
    const analysis::Process& p = trace.processes()[t.process];
    if (pid != 0 && p.pid != pid) continue;
    if (tid != 0 ? t.tid != tid : p.main_thread != i && t.tid != p.pid) continue;
    const bool then = p.first_seen < window.end &&
                      window.begin <= p.exited.value_or(p.last_seen);
    (then ? found : earlier).push_back(i);
  }
  // Another life of the number, where none was seen in the window.
  if (found.empty()) found = earlier;
  if (found.size() == 1) return found[0];
  const std::string what = tid != 0 ? fmt::format("thread {}", tid)
                                    : fmt::format("process {}", pid);
  if (!found.empty()) {
    std::string who;
    for (size_t i = 0; i < found.size() && i < 5; ++i) {
      const auto& p = trace.processes()[trace.threads()[found[i]].process];
      who += fmt::format("{}{} ({})", i == 0 ? "" : ", ", p.pid, p.name);
    }
    return Status::Error(fmt::format(
        "{} was {} threads in this time, of processes {}; add --pid, or ask "
        "about less time",
        what, found.size(), who));
  }
  std::string known;
  size_t more = 0, shown = 0;
  for (const analysis::Thread& t : trace.threads()) {
    const analysis::Process& p = trace.processes()[t.process];
    if (pid != 0 ? p.pid != pid : !p.has_cuda) continue;
    if (shown == 8) {
      ++more;
      continue;
    }
    known += fmt::format("{}{} ({})", shown++ > 0 ? ", " : "", t.tid, t.name);
  }
  if (more > 0) known += fmt::format(" and {} more", more);
  return Status::Error(fmt::format(
      "{} is not in this store; {}: {}", what,
      pid != 0 ? fmt::format("threads of process {}", pid)
               : std::string("those of processes with CUDA calls"),
      known.empty() ? "none" : known));
}

Result<Timeline> BuildTimeline(const TraceReader& trace,
                               analysis::ThreadIndex thread, Interval window,
                               const std::function<bool(double)>& go_on) {
  Timeline out;
  out.thread = thread;
  out.window = window;
  const auto process = trace.threads()[thread].process;
  const auto gave_up = [] { return Status::Error("interrupted"); };

  // From the newest piece to the oldest, as Timelines wants it.
  analysis::Timelines lines(trace);
  if (lines.has_kernel()) {
    std::vector<Stretch> reversed;
    for (Ns end = window.end; end > window.begin;) {
      const Interval piece{std::max(window.begin, end - kPiece), end};
      if (go_on && !go_on(Ratio(window.end - end, window.length())))
        return gave_up();
      lines.Load(piece);
      const auto segments = lines.Of(thread);
      for (auto s = segments.rbegin(); s != segments.rend(); ++s) {
        Stretch stretch{*s, {}};
        analysis::Segment& cut = stretch.segment;
        cut.begin = std::max(cut.begin, piece.begin);
        cut.end = std::min(cut.end, piece.end);
        if (cut.begin >= cut.end) continue;
        // In proportion: a stretch may have begun before.
        cut.pages = s->PagesIn(cut.begin, cut.end);
        if (cut.state == ThreadState::kRunnable) {
          cut.throttled =
              std::max(Ns(0), std::min(s->ThrottledEnd(), cut.end) - cut.begin);
          lines.ForHolders(
              cut.cpu, {cut.begin, cut.end},
              [&](const analysis::CpuSegment& c, Interval range) {
                AddHolder(c.thread == thread ? kNone : c.thread, range.length(),
                          &stretch.holders);
              });
        }
        if (cut.state != ThreadState::kUnknown) out.scheduling_known = true;
        if (!reversed.empty() &&
            SameStretch(cut, reversed.back().segment)) {
          Stretch& newer = reversed.back();
          newer.segment.begin = cut.begin;
          newer.segment.pages += cut.pages;
          newer.segment.throttled += cut.throttled;
          for (const auto& [who, time] : stretch.holders)
            AddHolder(who, time, &newer.holders);
          continue;
        }
        reversed.push_back(std::move(stretch));
        if (reversed.size() > kMaxTimelineEntries) return TooMany();
      }
      end = piece.begin;
    }
    out.stretches.assign(std::make_move_iterator(reversed.rbegin()),
                         std::make_move_iterator(reversed.rend()));
    for (Stretch& s : out.stretches)
      std::stable_sort(s.holders.begin(), s.holders.end(),
                       [](const auto& a, const auto& b) {
                         return a.second > b.second;
                       });
  }

  // The last event lies on the span's end, which an interval leaves out.
  Interval calls = window;
  if (calls.end >= trace.span().end) calls.end = trace.span().end + Ns(1);
  std::map<std::pair<Ns, analysis::FuncIndex>, analysis::CallSplit> splits;
  analysis::CallSplit split;
  for (auto c = trace.Splits(calls); c->Next(&split);)
    if (split.process == process && split.thread == thread)
      splits[{split.begin, split.func}] = split;
  analysis::Call call;
  uint64_t read = 0;
  for (auto c = trace.Calls(process, calls); c->Next(&call);) {
    if (++read % 65536 == 0 && go_on && !go_on(1)) return gave_up();
    if (call.thread != thread) continue;
    if (out.calls.size() == kMaxTimelineEntries) return TooMany();
    out.calls.push_back({call, std::nullopt});
    if (const auto s = splits.find({call.begin, call.func}); s != splits.end())
      out.calls.back().split = s->second;
  }
  return out;
}

std::vector<TimelineEntry> InOrder(const Timeline& timeline) {
  std::vector<TimelineEntry> order;
  size_t s = 0, c = 0;
  while (s < timeline.stretches.size() || c < timeline.calls.size()) {
    const bool stretch =
        c == timeline.calls.size() ||
        (s < timeline.stretches.size() &&
         timeline.stretches[s].segment.begin <= timeline.calls[c].call.begin);
    order.push_back(stretch ? TimelineEntry{false, s++}
                            : TimelineEntry{true, c++});
  }
  return order;
}

Json TimelineThread(const TraceReader& trace, const Timeline& timeline) {
  const analysis::Thread& t = trace.threads()[timeline.thread];
  return {{"tid", t.tid},
          {"name", t.name},
          {"pid", trace.processes()[t.process].pid},
          {"process_name", trace.processes()[t.process].name}};
}

Json TimelineSums(const Timeline& timeline) {
  std::map<ThreadState, Ns> sums;
  for (const Stretch& s : timeline.stretches)
    sums[s.segment.state] += s.segment.end - s.segment.begin;
  Json out = Json::object();
  for (const auto& [state, time] : sums)
    out[std::string(analysis::NameOf(state)) + "_ns"] = time.value;
  return out;
}

Json TimelineEvents(const TraceReader& trace, const Timeline& timeline) {
  const Ns origin = trace.span().begin;
  const auto at = [&](Ns t) {
    return static_cast<double>((t - origin).value) / 1e9;
  };
  Json events = Json::array();
  for (const TimelineEntry& entry : InOrder(timeline)) {
    if (!entry.is_call) {
      const Stretch& s = timeline.stretches[entry.index];
      Json e = {{"what", "state"},
                {"begin_ns", s.segment.begin.value},
                {"at_s", at(s.segment.begin)},
                {"duration_ns", (s.segment.end - s.segment.begin).value},
                {"state", analysis::NameOf(s.segment.state)}};
      if (s.segment.state == ThreadState::kRunning) {
        e["cpu"] = s.segment.cpu;
        e["pages"] = s.segment.pages;
      } else if (s.segment.state == ThreadState::kRunnable) {
        e["cpu"] = s.segment.cpu;
        e["throttled_ns"] = s.segment.throttled.value;
        e["held_by"] = Json::array();
        for (const auto& [who, time] : s.holders) {
          if (who == kNone) continue;
          Json holder = Who(trace, who);
          holder["ns"] = time.value;
          e["held_by"].push_back(std::move(holder));
        }
      } else if (s.segment.state != ThreadState::kUnknown &&
                 s.segment.state != ThreadState::kDead) {
        const std::string call = analysis::SyscallName(s.segment.syscall);
        e["syscall"] = call.empty() ? Json(nullptr) : Json(call);
        e["woken_by"] = Who(trace, s.segment.waker);
        e["woken_by_interrupt"] = s.segment.woken_by_irq;
      }
      events.push_back(std::move(e));
      continue;
    }
    const TimelineCall& c = timeline.calls[entry.index];
    const analysis::Function& f = trace.functions()[c.call.func];
    Json e = {{"what", "call"},
              {"begin_ns", c.call.begin.value},
              {"at_s", at(c.call.begin)},
              {"duration_ns", (c.call.end - c.call.begin).value},
              {"name", f.name},
              {"layer", NameOf(f.layer)},
              {"depth", c.call.depth},
              {"result", c.call.result},
              {"bytes", c.call.bytes},
              {"in_flight", c.call.no_end}};
    if (f.call_class == analysis::CallClass::kLaunch) {
      const std::string& kernel = trace.KernelName(
          trace.threads()[timeline.thread].process, c.call.object);
      e["kernel"] = kernel.empty() ? Json(nullptr) : Json(kernel);
    }
    if (c.split) {
      e["running_ns"] = c.split->running.value;
      e["runnable_ns"] = c.split->runnable.value;
      e["sleeping_ns"] = c.split->sleeping.value;
      e["io_ns"] = c.split->io.value;
      e["unknown_ns"] = c.split->unknown.value;
      e["held_by"] = Who(trace, c.split->holder);
      e["woken_by"] = Who(trace, c.split->waker);
    }
    events.push_back(std::move(e));
  }
  return events;
}

}  // namespace ingero::cli
