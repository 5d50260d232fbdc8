// SPDX-License-Identifier: Apache-2.0
#include "cli/export/events.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>

#include "analysis/names.h"
#include "analysis/syscalls.h"
#include "base/tables.h"
#include "wire/wire.h"

namespace ingero::cli {
namespace {

using analysis::kNone;
using analysis::ProcessIndex;
using analysis::ThreadIndex;

// Parts of the space of track ids.
constexpr TrackId kThreadTracks = 1, kProcessTracks = TrackId{1} << 32,
                  kOtherTracks = TrackId{2} << 32;

// Of NVTX ranges that begin and end on any thread, and so overlap.
constexpr size_t kMostLanes = 16;

// The open slices of one track. Rows that would stick out of the one around
// them (damaged streams, cells whose ranges overlap) are cut to it.
class Nester {
 public:
  void Begin(EventSink* sink, TrackId track, Interval range,
             std::string_view name, EventArgs args) {
    range.begin = std::max(range.begin, last_);
    range.end = std::max(range.end, range.begin);
    Close(sink, track, range.begin);
    if (!open_.empty() && range.end > open_.back()) {
      args.push_back({"cut_ns", (range.end - open_.back()).value});
      range.end = open_.back();
    }
    last_ = range.begin;
    sink->Begin(track, range.begin, name, args);
    open_.push_back(range.end);
  }
  // Of what ends until `t`.
  void Close(EventSink* sink, TrackId track, Ns t) {
    while (!open_.empty() && open_.back() <= t) {
      last_ = open_.back();
      sink->End(track, last_);
      open_.pop_back();
    }
  }
  void Finish(EventSink* sink, TrackId track) {
    Close(sink, track, Ns(INT64_MAX));
  }

 private:
  std::vector<Ns> open_;  // their ends, the innermost last
  Ns last_{INT64_MIN};
};

class Walk : public analysis::TimeSink {
 public:
  Walk(const merge::TraceReader& trace, const analysis::ReportOptions& options,
       Interval window, EventSink* sink)
      : trace_(trace), options_(options), window_(window), sink_(sink) {}

  void Run() {
    const Ns begin = trace_.span().begin;
    sink_->Start(begin, trace_.facts().wall_clock_at_span_begin_ns);
    Tracks();
    for (ProcessIndex p = 0; p < trace_.processes().size(); ++p)
      if (trace_.processes()[p].has_cuda && Wanted(p)) Calls(p);
    Ranges();
    GpuActivity();
    Feeds();
    Causes();
    Switches();
    Counters();
    sink_->Finish();
  }

  void OnFeed(const analysis::FeedInterval&) override {}
  void OnCause(const analysis::PathCell& cell, const char* cause,
               Ns time) override {
    const bool known = cell.certainty == analysis::Certainty::kKnown;
    EventArgs args = {{"ns", time.value},
                      {"stretches", static_cast<int64_t>(cell.stretches)},
                      {"state", analysis::NameOf(cell.state)},
                      {"reason", analysis::NameOf(cell.reason)},
                      {"known", int64_t{known}}};
    const std::string thread = Thread(cell.thread),
                      culprit = Thread(cell.culprit),
                      syscall = analysis::SyscallName(cell.syscall);
    if (!thread.empty()) args.push_back({"thread", thread});
    if (!culprit.empty()) args.push_back({"cpu_held_by", culprit});
    if (!syscall.empty()) args.push_back({"system_call", syscall});
    if (cell.func != kNone)
      args.push_back({"call", trace_.functions()[cell.func].name});
    Slice(Extra(cell.process, fmt::format("GPU {}, for: {}",
                                          known ? "starved" : "may be starved",
                                          cause)),
          cell.range, cause, std::move(args));
  }

 private:
  bool Wanted(ProcessIndex process) const {
    if (!options_.pid) return true;
    for (int depth = 0; depth < 64 && process < trace_.processes().size();
         ++depth) {
      if (trace_.processes()[process].pid == *options_.pid) return true;
      process = trace_.processes()[process].parent;
    }
    return false;
  }
  // "python3/4242"; "" where there is none.
  std::string Thread(ThreadIndex thread) const {
    if (thread == kNone) return "";
    const analysis::Thread& t = trace_.threads()[thread];
    return fmt::format("{}/{}", t.name, t.tid);
  }

  void Tracks() {
    const auto& processes = trace_.processes();
    for (ProcessIndex p = 0; p < processes.size(); ++p) {
      TrackInfo track;
      track.id = kProcessTracks + p;
      track.kind = TrackInfo::Kind::kProcess;
      track.pid = processes[p].pid;
      track.name = processes[p].name;
      track.command = processes[p].cmdline;
      sink_->AddTrack(track);
    }
    for (ThreadIndex t = 0; t < trace_.threads().size(); ++t) {
      const analysis::Thread& thread = trace_.threads()[t];
      if (thread.process == kNone) continue;
      TrackInfo track;
      track.id = kThreadTracks + t;
      track.kind = TrackInfo::Kind::kThread;
      track.pid = processes[thread.process].pid;
      track.tid = thread.tid;
      track.name = thread.name;
      sink_->AddTrack(track);
    }
  }

  // A track below a process (kNone: below none), made when it is first asked
  // for.
  TrackId Extra(ProcessIndex process, const std::string& name,
                TrackInfo::Kind kind = TrackInfo::Kind::kOther) {
    const auto [it, added] = extra_.try_emplace({process, name}, next_);
    if (!added) return it->second;
    TrackInfo track;
    track.id = next_++;
    track.kind = kind;
    track.name = name;
    if (process != kNone) {
      track.pid = trace_.processes()[process].pid;
      track.parent = kProcessTracks + process;
    }
    sink_->AddTrack(track);
    return track.id;
  }
  void Slice(TrackId track, Interval range, std::string_view name,
             EventArgs args) {
    nesters_[track].Begin(sink_, track, range, name, std::move(args));
  }
  void FinishSlices() {
    for (auto& [track, nester] : nesters_) nester.Finish(sink_, track);
    nesters_.clear();
  }

  void Calls(ProcessIndex process) {
    auto cursor = trace_.Calls(process, window_);
    analysis::Call call;
    while (cursor->Next(&call)) {
      if (call.thread == kNone || call.func == kNone) continue;
      const analysis::Function& f = trace_.functions()[call.func];
      EventArgs args;
      if (call.result != 0) args.push_back({"result", call.result});
      if (call.bytes != 0)
        args.push_back({"bytes", static_cast<int64_t>(call.bytes)});
      if (call.stream != 0)
        args.push_back({"stream", static_cast<int64_t>(call.stream)});
      if (call.first_use || call.first_call)
        args.push_back({"first_use", int64_t{1}});
      if (call.no_end) args.push_back({"in_flight", int64_t{1}});
      if (f.call_class == analysis::CallClass::kLaunch)
        if (const std::string& kernel =
                trace_.KernelName(process, call.object);
            !kernel.empty())
          args.push_back({"kernel", kernel});
      Slice(kThreadTracks + call.thread, {call.begin, call.end}, f.name,
            std::move(args));
    }
    FinishSlices();
  }

  // What the program marked: a thread's own nest, others may overlap.
  void Ranges() {
    using namespace nvtx_table;
    struct Range {
      TrackId track;
      Interval range;
      std::string name;
    };
    std::vector<Range> same_begin;
    const auto flush = [&] {
      std::stable_sort(same_begin.begin(), same_begin.end(),
                       [](const Range& a, const Range& b) {
                         return a.range.end > b.range.end;
                       });
      for (const Range& r : same_begin) Slice(r.track, r.range, r.name, {});
      same_begin.clear();
    };
    std::map<std::pair<ProcessIndex, std::string>, std::vector<Ns>> lanes;
    auto rows = trace_.Cursor(kSchema, trace_.file().Table(kSchema.id), window_);
    while (rows->Next()) {
      if (!Wanted(rows->owner())) continue;
      const auto row = rows->row();
      const Ns begin(rows->time());
      const Interval range{begin,
                           begin + Ns(static_cast<int64_t>(row[kDuration]))};
      const size_t nul = rows->text().find('\0');
      const std::string domain(rows->text().substr(0, nul));
      std::string track = domain.empty() ? "NVTX" : "NVTX " + domain;
      if (row[kKind] == INGERO_NVTX_PROCESS) {
        auto& ends = lanes[{rows->owner(), domain}];
        size_t lane = 0;
        while (lane < ends.size() && ends[lane] > begin) ++lane;
        if (lane == ends.size() && lane < kMostLanes) ends.emplace_back();
        lane = std::min(lane, ends.size() - 1);
        ends[lane] = range.end;
        track += fmt::format(", ranges {}", lane + 1);
      } else {
        track += fmt::format(", thread {}", row[kTid]);
      }
      if (!same_begin.empty() && same_begin[0].range.begin != begin) flush();
      same_begin.push_back({Extra(rows->owner(), track), range,
                            nul == std::string_view::npos
                                ? std::string()
                                : std::string(rows->text().substr(nul + 1))});
    }
    flush();
    FinishSlices();
  }

  // Of imported recordings.
  void GpuActivity() {
    using namespace gpu_activity_table;
    auto rows = trace_.Cursor(kSchema, trace_.file().Table(kSchema.id), window_);
    while (rows->Next()) {
      const auto row = rows->row();
      if (!Wanted(rows->owner())) continue;
      const Ns begin(rows->time());
      const std::string& kernel =
          trace_.KernelName(rows->owner(), row[kKernel]);
      EventArgs args;
      if (row[kBytes] != 0)
        args.push_back({"bytes", static_cast<int64_t>(row[kBytes])});
      if (row[kCall] != 0)
        args.push_back({"call_ns", static_cast<int64_t>(row[kCall])});
      Slice(Extra(rows->owner(), fmt::format("GPU {}, stream {}", row[kDevice],
                                             row[kStream])),
            {begin, begin + Ns(static_cast<int64_t>(row[kDuration]))},
            row[kKind] == INGERO_GPU_COPY     ? "copy"
            : row[kKind] == INGERO_GPU_MEMSET ? "memset"
            : kernel.empty()                  ? "kernel"
                                              : std::string_view(kernel),
            std::move(args));
    }
    FinishSlices();
  }

  void Feeds() {
    auto cursor = trace_.Feeds(window_);
    analysis::FeedInterval feed;
    while (cursor->Next(&feed)) {
      if (!Wanted(feed.process)) continue;
      const char* state = analysis::NameOf(feed.state);
      EventArgs args = {{"ns", feed.time.value}};
      if (feed.intervals > 1)
        args.push_back({"intervals", static_cast<int64_t>(feed.intervals)});
      Slice(Extra(feed.process, fmt::format("GPU {}: {}", feed.device, state)),
            feed.range, state, std::move(args));
    }
    FinishSlices();
  }

  // Whose the starved time was, cell by cell, and the findings that follow.
  void Causes() {
    analysis::ReportOptions options = options_;
    options.sink = this;
    const analysis::Report report = analysis::BuildReport(trace_, options);
    FinishSlices();
    for (const analysis::Finding& finding : report.findings) {
      ProcessIndex process = kNone;
      for (ProcessIndex p = 0; p < trace_.processes().size(); ++p)
        if (trace_.processes()[p].pid == finding.pid &&
            trace_.processes()[p].has_cuda)
          process = p;
      const TrackId track = Extra(process, "finding: " + finding.cause);
      static constexpr const char* kSeverities[] = {"info", "low", "medium",
                                                    "high"};
      EventArgs args = {
          {"claim", finding.claim},
          {"severity", kSeverities[static_cast<size_t>(finding.severity)]},
          {"lost_ns", finding.lost.value},
          {"lost_ns_at_most", finding.lost_at_most.value}};
      if (!finding.recommendations.empty())
        args.push_back({"do", finding.recommendations[0].text});
      std::vector<Interval> windows = finding.windows;
      std::sort(windows.begin(), windows.end(),
                [](const Interval& a, const Interval& b) {
                  return a.begin < b.begin;
                });
      for (const Interval& window : windows)
        Slice(track, window, finding.cause, args);
    }
    FinishSlices();
  }

  void Switches() {
    auto cursor = trace_.Switches(window_);
    analysis::Switch s;
    const auto thread = [&](ThreadIndex t, bool idle) {
      EventSink::SchedThread out;
      if (t == kNone) {
        out.known = idle;
        return out;
      }
      out.tid = trace_.threads()[t].tid;
      out.name = trace_.threads()[t].name;
      return out;
    };
    while (cursor->Next(&s))
      sink_->Switch(s, thread(s.prev, s.prev_idle),
                    thread(s.next, s.next_idle), thread(s.waker, false));
  }

  void Counters() {
    ForEachCounter(trace_, window_,
                   [&](const std::string& name, Ns at, double value) {
                     sink_->Count(Extra(kNone, name,
                                        TrackInfo::Kind::kCounter),
                                  at, value);
                   });
  }

  const merge::TraceReader& trace_;
  const analysis::ReportOptions& options_;
  Interval window_;
  EventSink* sink_;
  TrackId next_ = kOtherTracks;
  std::map<std::pair<ProcessIndex, std::string>, TrackId> extra_;
  std::unordered_map<TrackId, Nester> nesters_;
};

// ---- folded stacks -----------------------------------------------------------

class Folder : public analysis::TimeSink {
 public:
  explicit Folder(const merge::TraceReader& trace) : trace_(trace) {}
  void OnFeed(const analysis::FeedInterval&) override {}
  void OnCause(const analysis::PathCell& cell, const char* cause,
               Ns time) override {
    Add(cell, cause, time);
    Add(cell, "unexplained", Ns{0} - time);
  }
  void Add(const analysis::PathCell& cell, const char* cause, Ns time) {
    std::string& head = heads_[cell.process];
    if (head.empty()) {
      const analysis::Process& p = trace_.processes()[cell.process];
      head = Frame(fmt::format("{}/{}", p.name, p.pid)) + ";";
    }
    std::string stack =
        head +
        (cell.certainty == analysis::Certainty::kKnown ? "" : "maybe ") +
        cause;
    const auto thread = [&](ThreadIndex t, const char* before) {
      if (t == kNone) return;
      const analysis::Thread& thread = trace_.threads()[t];
      stack += ";" + Frame(fmt::format("{}{}/{}", before, thread.name,
                                       thread.tid));
    };
    thread(cell.thread, "");
    stack += fmt::format(";{}, {}", analysis::NameOf(cell.state),
                         analysis::NameOf(cell.reason));
    if (cell.func != kNone)
      stack += ";" + Frame(trace_.functions()[cell.func].name);
    if (const std::string name = analysis::SyscallName(cell.syscall);
        !name.empty())
      stack += ";" + Frame(name);
    thread(cell.culprit, "CPU held by ");
    times_[stack] += time;
  }
  std::string Text() const {
    std::string text;
    for (const auto& [stack, time] : times_)
      if (time > Ns{0}) text += fmt::format("{} {}\n", stack, time.value);
    return text;
  }

 private:
  // What separates frames and lines may not be in one.
  static std::string Frame(std::string text) {
    for (char& c : text)
      if (c == ';' || static_cast<unsigned char>(c) < ' ') c = '_';
    return text;
  }

  const merge::TraceReader& trace_;
  std::map<ProcessIndex, std::string> heads_;
  std::map<std::string, Ns> times_;
};

}  // namespace

void ExportEvents(const merge::TraceReader& trace,
                  const analysis::ReportOptions& options, Interval window,
                  EventSink* sink) {
  Walk(trace, options, window, sink).Run();
}

void ForEachCounter(
    const merge::TraceReader& trace, Interval window,
    const std::function<void(const std::string& name, Ns t, double value)>&
        count) {
  struct Last {
    Ns t;
    uint64_t value;
  };
  std::map<std::pair<uint16_t, uint64_t>, Last> last;
  auto cursor = trace.Samples({window.begin, window.end + Ns{1}});
  analysis::Sample sample;
  while (cursor->Next(&sample)) {
    std::string name, unit;
    switch (sample.metric) {
#define X(id, number, text, text_unit, instance) \
case number:                                   \
  name = text;                                 \
  unit = text_unit;                            \
  break;
      INGERO_METRICS(X)
#undef X
      default: continue;
    }
    if (name.starts_with("ingero.") || name == "page.cost" ||
        name == "cuda.process" || name == "gpu.process_memory" ||
        unit.find("enum") != unit.npos || unit.find("mask") != unit.npos ||
        name == "gpu.xid" || name == "cgroup.quota_above")
      continue;
    const bool of_many = name.starts_with("cgroup.") ||
                         name.starts_with("gpu.") ||
                         (name.starts_with("cpu.") &&
                          sample.metric !=
                              static_cast<uint16_t>(Metric::kCpuOnline) &&
                          sample.metric != static_cast<uint16_t>(
                                               Metric::kContextSwitches));
    if (of_many) name += fmt::format(" {}", sample.instance);
    const bool time = (unit == "ns" || unit == "us") &&
                      !name.starts_with("cgroup.period");
    const bool total = time || unit == "count";
    if (!total || name.starts_with("gpu.")) {
      const double scale = unit == "1/1000" ? 1e-3 : 1;
      count(unit == "1/1000" ? name : name + " (" + unit + ")", sample.t,
            static_cast<double>(sample.value) * scale);
      continue;
    }
    Last& before = last[{sample.metric, sample.instance}];
    if (before.t > Ns{0} && sample.t > before.t &&
        sample.value >= before.value) {
      const double grown = static_cast<double>(sample.value - before.value);
      const double ns = static_cast<double>((sample.t - before.t).value);
      const double value = unit == "ns"   ? 100 * grown / ns
                           : unit == "us" ? 100 * 1e3 * grown / ns
                                          : 1e9 * grown / ns;
      // Kernel and companion do not read their clocks at the same instant, and
      // a CPU has no more time than there is. A cgroup's is of several.
      count(name + (time ? " (%)" : " (per s)"), before.t,
            time && !name.starts_with("cgroup.") ? std::min(value, 100.0)
                                                 : value);
    }
    before = {sample.t, sample.value};
  }
}

std::string ExportFolded(const merge::TraceReader& trace,
                         const analysis::ReportOptions& options,
                         Interval window) {
  Folder folder(trace);
  analysis::ReportOptions asked = options;
  asked.sink = &folder;
  const analysis::Report report = analysis::BuildReport(trace, asked);
  // What no cause has taken.
  auto cursor = trace.Paths(window);
  analysis::PathCell cell;
  while (cursor->Next(&cell)) {
    const bool judged = std::any_of(
        report.accounts.begin(), report.accounts.end(),
        [&](const analysis::Account& a) { return a.process == cell.process; });
    if (judged) folder.Add(cell, "unexplained", cell.time);
  }
  return folder.Text();
}

}  // namespace ingero::cli
