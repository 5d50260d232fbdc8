// SPDX-License-Identifier: Apache-2.0
#include "tests/support/trace_text.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <tuple>

#include "base/histogram.h"
#include "base/tables.h"
#include "wire/wire.h"

namespace ingero::testing {

using namespace analysis;  // NOLINT: test support speaks only of these

namespace {

template <typename T>
class VectorCursor : public Cursor<T> {
 public:
  explicit VectorCursor(std::vector<T> rows) : rows_(std::move(rows)) {}
  bool Next(T* out) override {
    if (next_ == rows_.size()) return false;
    *out = rows_[next_++];
    return true;
  }

 private:
  std::vector<T> rows_;
  size_t next_ = 0;
};

// A view into a sorted vector: no copy, for long traces.
template <typename T>
class RangeCursor : public Cursor<T> {
 public:
  RangeCursor(const T* begin, const T* end) : next_(begin), end_(end) {}
  bool Next(T* out) override {
    if (next_ == end_) return false;
    *out = *next_++;
    return true;
  }

 private:
  const T* next_;
  const T* end_;
};

template <typename T, typename Time>
std::unique_ptr<Cursor<T>> RangeOf(const std::vector<T>& rows, Interval window,
                                   Time time) {
  const auto before = [&](const T& row, Ns t) { return time(row) < t; };
  auto begin = std::lower_bound(rows.begin(), rows.end(), window.begin, before);
  auto end = std::lower_bound(rows.begin(), rows.end(), window.end, before);
  if (end < begin) end = begin;
  return std::make_unique<RangeCursor<T>>(rows.data() + (begin - rows.begin()),
                                          rows.data() + (end - rows.begin()));
}

}  // namespace

void MemoryTrace::Sort() {
  std::stable_sort(calls.begin(), calls.end(),
                   [](const Call& a, const Call& b) {
                     if (a.begin != b.begin) return a.begin < b.begin;
                     return a.depth < b.depth;
                   });
  std::stable_sort(switches.begin(), switches.end(),
                   [](const Switch& a, const Switch& b) { return a.t < b.t; });
  std::stable_sort(samples.begin(), samples.end(),
                   [](const Sample& a, const Sample& b) { return a.t < b.t; });
  std::stable_sort(
      keyframes.begin(), keyframes.end(),
      [](const auto& a, const auto& b) { return a.first < b.first; });
}

std::unique_ptr<Cursor<Call>> MemoryTrace::Calls(ProcessIndex process,
                                                 Interval window) const {
  std::vector<Call> rows;
  auto it = std::lower_bound(calls.begin(), calls.end(), window.begin,
                             [](const Call& c, Ns t) { return c.begin < t; });
  for (; it != calls.end() && it->begin < window.end; ++it)
    if (it->thread >= thread_list.size() ||  // a damaged row may be anyone's
        thread_list[it->thread].process == process)
      rows.push_back(*it);
  return std::make_unique<VectorCursor<Call>>(std::move(rows));
}

std::unique_ptr<Cursor<Switch>> MemoryTrace::Switches(Interval window) const {
  return RangeOf<Switch>(switches, window, [](const Switch& s) { return s.t; });
}

std::unique_ptr<Cursor<Sample>> MemoryTrace::Samples(Interval window) const {
  return RangeOf<Sample>(samples, window, [](const Sample& s) { return s.t; });
}

std::vector<MemoryStall> MemoryTrace::MemoryStalls(Interval window) const {
  std::vector<MemoryStall> rows;
  for (const MemoryStall& s : stalls)
    if (window.Contains(s.range.end)) rows.push_back(s);
  return rows;
}

std::pair<Ns, std::vector<StateAt>> MemoryTrace::StatesAt(Ns t) const {
  auto end =
      std::upper_bound(keyframes.begin(), keyframes.end(), t,
                       [](Ns at, const auto& k) { return at < k.first; });
  if (end == keyframes.begin()) return {span_value.begin, {}};
  const Ns at = std::prev(end)->first;
  std::vector<StateAt> out;
  for (auto it = end; it != keyframes.begin() && std::prev(it)->first == at;
       --it)
    out.push_back(std::prev(it)->second);
  std::reverse(out.begin(), out.end());
  return {at, out};
}

namespace {

std::vector<std::string> Words(std::string_view line) {
  std::vector<std::string> out;
  size_t i = 0;
  while (i < line.size()) {
    while (i < line.size() && (line[i] == ' ' || line[i] == '\t')) ++i;
    size_t begin = i;
    while (i < line.size() && line[i] != ' ' && line[i] != '\t') ++i;
    if (i > begin) out.emplace_back(line.substr(begin, i - begin));
  }
  return out;
}

bool ParseTime(const std::string& word, Ns* out) {
  char* end = nullptr;
  const double number = std::strtod(word.c_str(), &end);
  if (end == word.c_str()) return false;
  const std::string unit = end;
  double scale = 0;
  if (unit.empty() || unit == "ns") scale = 1;
  if (unit == "us") scale = 1e3;
  if (unit == "ms") scale = 1e6;
  if (unit == "s") scale = 1e9;
  if (scale == 0) return false;
  *out = Ns(static_cast<int64_t>(number * scale + (number < 0 ? -0.5 : 0.5)));
  return true;
}

class Parser {
 public:
  Status Run(std::string_view text) {
    std::vector<std::string> lines;
    size_t at = 0;
    while (at < text.size()) {
      size_t end = text.find('\n', at);
      if (end == std::string_view::npos) end = text.size();
      std::string line(text.substr(at, end - at));
      line = line.substr(0, line.find('#'));
      lines.push_back(line);
      at = end + 1;
    }
    if (Status s = Lines(lines, 0, lines.size(), Ns(0)); !s.ok()) return s;
    // As of a companion of today.
    if (!trace.kernel_list.empty()) {
      Sample recorded{};
      recorded.t = trace.kernel_list.front().begin;
      recorded.metric = static_cast<uint16_t>(Metric::kMemoryStalls);
      recorded.value = 1u << INGERO_TASK_EVENT_RECLAIM |
                       1u << INGERO_TASK_EVENT_COMPACTION;
      trace.samples.push_back(recorded);
    }
    trace.Sort();
    for (Process& p : trace.process_list)
      if (p.last_seen == Ns(0)) p.last_seen = trace.span_value.end;
    return Status();
  }
  MemoryTrace trace;

 private:
  Status Error(size_t line, const std::string& what) {
    return Status::Error("line " + std::to_string(line + 1) + ": " + what);
  }

  Status Lines(const std::vector<std::string>& lines, size_t begin, size_t end,
               Ns offset) {
    for (size_t i = begin; i < end; ++i) {
      const std::vector<std::string> words = Words(lines[i]);
      if (words.empty()) continue;
      if (words[0] == "repeat") {
        size_t depth = 1, last = i + 1;
        for (; last < end; ++last) {
          const std::vector<std::string> w = Words(lines[last]);
          if (!w.empty() && w[0] == "repeat") ++depth;
          if (!w.empty() && w[0] == "end" && --depth == 0) break;
        }
        Ns step;
        if (last == end || words.size() != 3 || !ParseTime(words[2], &step))
          return Error(i, "repeat COUNT STEP ... end");
        for (int n = 0; n < std::atoi(words[1].c_str()); ++n)
          if (Status s = Lines(lines, i + 1, last, offset + step * n); !s.ok())
            return s;
        i = last;
        continue;
      }
      if (Status s = Line(i, words, offset); !s.ok()) return s;
    }
    return Status();
  }

  // Options of a line: key=value, or a bare word.
  struct Options {
    std::map<std::string, std::string> values;
    bool Has(const char* name) const { return values.count(name) != 0; }
    std::string Get(const char* name, const std::string& other = "") const {
      auto it = values.find(name);
      return it == values.end() ? other : it->second;
    }
    uint64_t Number(const char* name, uint64_t other = 0) const {
      auto it = values.find(name);
      return it == values.end() ? other
                                : std::strtoull(it->second.c_str(), nullptr, 0);
    }
  };
  static Options OptionsFrom(const std::vector<std::string>& words, size_t at) {
    Options out;
    for (size_t i = at; i < words.size(); ++i) {
      const size_t eq = words[i].find('=');
      out.values[words[i].substr(0, eq)] =
          eq == std::string::npos ? "" : words[i].substr(eq + 1);
    }
    return out;
  }

  ThreadIndex FindThread(const std::string& tid) const {
    auto it = threads_.find(tid);
    return it == threads_.end() ? kNone : it->second;
  }

  Status Line(size_t i, const std::vector<std::string>& w, Ns offset) {
    const auto time = [&](const std::string& word, Ns* out) {
      if (!ParseTime(word, out)) return false;
      *out += offset;
      return true;
    };
    const std::string& kind = w[0];
    if (kind == "span" || kind == "kernel") {
      Interval range;
      if (w.size() < 3 || !time(w[1], &range.begin) || !time(w[2], &range.end))
        return Error(i, kind + " BEGIN END");
      if (kind == "span")
        trace.span_value = range;
      else
        trace.kernel_list.push_back(range);
    } else if (kind == "facts") {
      const Options o = OptionsFrom(w, 1);
      trace.facts.cpus = static_cast<uint32_t>(o.Number("cpus"));
      trace.facts.page_cost = Ns(static_cast<int64_t>(o.Number("page_cost")));
    } else if (kind == "process") {
      if (w.size() < 3) return Error(i, "process PID NAME ...");
      const Options o = OptionsFrom(w, 3);
      Process p;
      p.pid = p.ns_pid = static_cast<uint32_t>(std::atoi(w[1].c_str()));
      p.name = w[2];
      p.exe = o.Get("exe");
      p.start = Ns(p.pid);
      p.has_cuda = o.Has("cuda");
      p.is_ingero = o.Has("ingero");
      p.is_kernel = o.Has("kernel");
      p.outside_scope = o.Has("outside");
      p.cgroup_id = o.Number("cgroup");
      p.peer_kernel = o.Get("peer_kernel");
      if (o.Has("first") && !time(o.Get("first"), &p.first_seen))
        return Error(i, "first=TIME");
      if (o.Has("exited")) {
        Ns exited;
        if (!time(o.Get("exited"), &exited)) return Error(i, "exited=TIME");
        p.exited = p.last_seen = exited;
        p.exit_code = static_cast<int64_t>(o.Number("code"));
      }
      if (o.Has("parent")) {
        auto it = processes_.find(o.Get("parent"));
        if (it == processes_.end()) return Error(i, "no such parent");
        p.parent = it->second;
      }
      p.main_thread = static_cast<ThreadIndex>(trace.thread_list.size());
      processes_[w[1]] = static_cast<ProcessIndex>(trace.process_list.size());
      threads_[w[1]] = p.main_thread;
      trace.thread_list.push_back(
          {p.pid, static_cast<ProcessIndex>(trace.process_list.size()),
           p.name});
      trace.process_list.push_back(p);
    } else if (kind == "thread") {
      if (w.size() < 3 || !processes_.count(w[2]))
        return Error(i, "thread TID PID [NAME]");
      threads_[w[1]] = static_cast<ThreadIndex>(trace.thread_list.size());
      trace.thread_list.push_back(
          {static_cast<uint32_t>(std::atoi(w[1].c_str())), processes_[w[2]],
           w.size() > 3 ? w[3] : ""});
    } else if (kind == "func") {
      static const std::map<std::string, int> kClasses = {
#define X(id, value, name) {name, value},
          INGERO_CLASSES(X)
#undef X
      };
      if (w.size() < 3 || !kClasses.count(w[2]))
        return Error(i, "func NAME CLASS [driver|library]");
      const Options o = OptionsFrom(w, 3);
      Function f;
      f.name = w[1];
      f.call_class = static_cast<CallClass>(kClasses.at(w[2]));
      f.layer = o.Has("driver")    ? Layer::kDriver
                : o.Has("library") ? Layer::kLibrary
                                   : Layer::kRuntime;
      functions_[w[1]] = static_cast<FuncIndex>(trace.function_list.size());
      trace.function_list.push_back(f);
    } else if (kind == "call") {
      Call c;
      if (w.size() < 5 || !time(w[1], &c.begin) || !time(w[2], &c.end) ||
          (c.thread = FindThread(w[3])) == kNone || !functions_.count(w[4]))
        return Error(i, "call BEGIN END TID FUNCTION ...");
      const Options o = OptionsFrom(w, 5);
      c.func = functions_[w[4]];
      c.stream = o.Number("stream");
      c.object = o.Number("object");
      c.bytes = o.Number("bytes");
      c.depth = static_cast<uint8_t>(o.Number("depth"));
      c.result = static_cast<uint32_t>(o.Number("result"));
      c.first_use = o.Has("first_use");
      c.first_call = o.Has("first_call");
      c.captured = o.Has("captured");
      c.no_end = o.Has("no_end");
      static const char* const kDirections[] = {"",    "h2d",  "d2h",    "d2d",
                                                "h2h", "peer", "default"};
      for (int d = 1; d < 7; ++d)
        if (o.Has(kDirections[d])) c.direction = static_cast<CopyDirection>(d);
      if (o.Has("pinned")) c.host_memory = HostMemory::kPinned;
      if (o.Has("pageable")) c.host_memory = HostMemory::kPageable;
      trace.calls.push_back(c);
    } else if (kind == "switch") {
      Switch s;
      const size_t arrow = w.size() < 5 ? std::string::npos : w[3].find('>');
      if (arrow == std::string::npos || !time(w[1], &s.t))
        return Error(i, "switch TIME cpu=N PREV>NEXT STATE ...");
      const Options o = OptionsFrom(w, 5);
      s.cpu = static_cast<uint16_t>(std::atoi(w[2].c_str() + 4));
      const std::string prev = w[3].substr(0, arrow);
      const std::string next = w[3].substr(arrow + 1);
      s.prev_idle = prev == "idle";
      s.left_out = prev == "-";
      s.next_idle = next == "idle";
      s.prev = FindThread(prev);
      s.next = FindThread(next);
      if ((s.prev == kNone && !s.prev_idle && !s.left_out && prev != "?") ||
          (s.next == kNone && !s.next_idle && next != "?"))
        return Error(i, "no such thread in " + w[3]);
      if (!ParseState(w[4], &s.prev_state)) return Error(i, "state " + w[4]);
      s.preempted = w[4] == "R+";
      s.yielded = w[4] == "R";
      s.prev_syscall =
          o.Has("syscall") ? static_cast<int16_t>(o.Number("syscall")) : -1;
      s.prev_arg0 = o.Number("arg0");
      s.prev_pages = o.Number("pages");
      s.prev_min_faults = o.Number("faults");
      if (o.Has("kernel") && !ParseTime(o.Get("kernel"), &s.prev_kernel))
        return Error(i, "kernel=TIME");
      if (o.Has("throttled") &&
          !ParseTime(o.Get("throttled"), &s.next_throttled))
        return Error(i, "throttled=TIME");
      s.wake_from_irq = o.Has("irq");
      if (o.Has("waker")) s.waker = FindThread(o.Get("waker"));
      if (o.Has("wake")) {
        Ns wake;
        if (!time(o.Get("wake"), &wake)) return Error(i, "wake=TIME");
        s.wake = wake;
      }
      trace.switches.push_back(s);
    } else if (kind == "state") {
      Ns at;
      StateAt s;
      if (w.size() < 4 || !time(w[1], &at) ||
          (s.thread = FindThread(w[2])) == kNone || !ParseState(w[3], &s.state))
        return Error(i, "state TIME TID STATE since=TIME cpu=N");
      const Options o = OptionsFrom(w, 4);
      if (w[3] == "run") s.state = ThreadState::kRunning;
      if (!time(o.Get("since", "0"), &s.since)) return Error(i, "since=TIME");
      s.cpu = static_cast<uint16_t>(o.Number("cpu"));
      s.syscall =
          o.Has("syscall") ? static_cast<int16_t>(o.Number("syscall")) : -1;
      trace.keyframes.push_back({at, s});
    } else if (kind == "loss") {
      Loss l;
      if (w.size() < 5 || !time(w[1], &l.range.begin) ||
          !time(w[2], &l.range.end))
        return Error(i, "loss BEGIN END ID COUNT ...");
      const Options o = OptionsFrom(w, 5);
      l.id = l.text = w[3];
      l.count = std::strtoull(w[4].c_str(), nullptr, 0);
      l.side = o.Has("kernel") ? analysis::Loss::Side::kKernel
                             : analysis::Loss::Side::kCuda;
      l.severity = o.Has("notice") ? 1 : 2;
      if (o.Has("pid")) l.process = processes_[o.Get("pid")];
      trace.loss_list.push_back(l);
    } else if (kind == "reclaim" || kind == "compaction") {
      MemoryStall s;
      if (w.size() != 4 || !time(w[1], &s.range.begin) ||
          !time(w[2], &s.range.end) || (s.thread = FindThread(w[3])) == kNone)
        return Error(i, kind + " BEGIN END TID");
      s.compaction = kind == "compaction";
      trace.stalls.push_back(s);
    } else if (kind == "sample") {
      Sample s{};
      if (w.size() < 5 || !time(w[1], &s.t))
        return Error(i, "sample TIME METRIC INSTANCE VALUE");
      s.metric = static_cast<uint16_t>(std::atoi(w[2].c_str()));
      s.instance = std::strtoull(w[3].c_str(), nullptr, 0);
      s.value = std::strtoull(w[4].c_str(), nullptr, 0);
      if (w.size() > 5) s.text = w[5];
      trace.samples.push_back(s);
    } else {
      return Error(i, "unknown item '" + kind + "'");
    }
    return Status();
  }

  static bool ParseState(const std::string& word, ThreadState* out) {
    if (word == "R" || word == "R+")
      *out = ThreadState::kRunnable;
    else if (word == "run")
      *out = ThreadState::kRunning;
    else if (word == "S")
      *out = ThreadState::kSleeping;
    else if (word == "D")
      *out = ThreadState::kDisk;
    else if (word == "B")
      *out = ThreadState::kBlocked;
    else if (word == "T")
      *out = ThreadState::kStopped;
    else if (word == "X")
      *out = ThreadState::kDead;
    else if (word == "?")
      *out = ThreadState::kUnknown;
    else
      return false;
    return true;
  }

  std::map<std::string, ProcessIndex> processes_;
  std::map<std::string, ThreadIndex> threads_;
  std::map<std::string, FuncIndex> functions_;
};

}  // namespace

Result<MemoryTrace> ParseTrace(std::string_view text) {
  Parser parser;
  if (Status s = parser.Run(text); !s.ok()) return s;
  return std::move(parser.trace);
}

void Attributed::Sort() {
  const auto feed_key = [](const FeedInterval& f) {
    return std::make_tuple(f.process, f.device, f.range.begin, f.range.end,
                           f.state);
  };
  const auto path_key = [](const PathCell& c) {
    return std::make_tuple(c.range.begin, c.range.end, c.process, c.thread,
                           c.state, c.reason, c.culprit, c.func, c.certainty,
                           c.ended_by, c.syscall, c.time, c.stretches, c.pages);
  };
  const auto split_key = [](const CallSplit& s) {
    return std::make_tuple(s.begin, s.thread, s.func, s.running, s.runnable,
                           s.sleeping, s.io, s.unknown, s.holder, s.waker);
  };
  std::sort(feeds.begin(), feeds.end(), [&](const auto& a, const auto& b) {
    return feed_key(a) < feed_key(b);
  });
  std::sort(paths.begin(), paths.end(), [&](const auto& a, const auto& b) {
    return path_key(a) < path_key(b);
  });
  std::sort(splits.begin(), splits.end(), [&](const auto& a, const auto& b) {
    return split_key(a) < split_key(b);
  });
  std::sort(steps.begin(), steps.end(), [](const auto& a, const auto& b) {
    return std::make_tuple(a.t, a.process) < std::make_tuple(b.t, b.process);
  });
}

MemoryReportSource::MemoryReportSource(const MemoryTrace& trace)
    : trace_(trace) {
  Attribute(trace, &attributed_, nullptr);
  attributed_.Sort();
}

namespace {

template <typename T>
std::vector<T> Clipped(const std::vector<T>& rows, const Part& asked) {
  std::vector<T> out;
  for (T row : rows) {
    if (asked.process != kNone && row.process != asked.process) continue;
    const Interval part = row.range.Clip(asked.window);
    if (part.empty()) continue;
    const double share = Ratio(part.length(), row.range.length());
    if (share < 1) {
      row.time =
          Ns(static_cast<int64_t>(static_cast<double>(row.time.value) * share));
      row.range = part;
    }
    out.push_back(row);
  }
  return out;
}

}  // namespace

std::unique_ptr<Cursor<FeedInterval>> MemoryReportSource::Feeds(
    const Part& part) const {
  return std::make_unique<VectorCursor<FeedInterval>>(
      Clipped(attributed_.feeds, part));
}

std::unique_ptr<Cursor<PathCell>> MemoryReportSource::Paths(
    const Part& part) const {
  return std::make_unique<VectorCursor<PathCell>>(
      Clipped(attributed_.paths, part));
}

std::unique_ptr<Cursor<CallSplit>> MemoryReportSource::Splits(
    const Part& part) const {
  std::vector<CallSplit> rows;
  for (const CallSplit& s : attributed_.splits)
    if (part.window.Contains(s.begin) &&
        (part.process == kNone || part.process == s.process))
      rows.push_back(s);
  return std::make_unique<VectorCursor<CallSplit>>(std::move(rows));
}

std::unique_ptr<Cursor<StepMark>> MemoryReportSource::Steps(
    ProcessIndex process, Interval window) const {
  std::vector<StepMark> rows;
  for (const StepMark& m : attributed_.steps)
    if (m.process == process && window.Contains(m.t)) rows.push_back(m);
  return std::make_unique<VectorCursor<StepMark>>(std::move(rows));
}

Summaries MemoryReportSource::Summarize(Interval window) const {
  struct Sum {
    Operation operation;
    Histogram histogram;
    Ns outermost;
  };
  std::map<std::pair<ProcessIndex, FuncIndex>, Sum> sums;
  for (const Call& c : trace_.calls) {
    if (!window.Contains(c.begin)) continue;
    const ProcessIndex p = trace_.thread_list[c.thread].process;
    Sum& s = sums[{p, c.func}];
    s.operation.process = p;
    s.operation.func = c.func;
    if (c.result != 0) ++s.operation.errors;
    if (c.first_use || c.first_call) {
      ++s.operation.first_uses;
      s.operation.first_use_time += c.end - c.begin;
      continue;
    }
    ++s.operation.count;
    s.operation.total += c.end - c.begin;
    s.operation.max = std::max(s.operation.max, c.end - c.begin);
    s.operation.bytes += c.bytes;
    if (c.depth == 0) s.outermost += c.end - c.begin;
    s.histogram.Add(static_cast<uint64_t>((c.end - c.begin).value));
  }
  Summaries out;
  for (auto& [key, s] : sums) {
    Operation& o = s.operation;
    if (o.count) o.average = o.total / static_cast<int64_t>(o.count);
    o.p50 = Ns(static_cast<int64_t>(s.histogram.Quantile(0.5)));
    o.p95 = Ns(static_cast<int64_t>(s.histogram.Quantile(0.95)));
    o.p99 = Ns(static_cast<int64_t>(s.histogram.Quantile(0.99)));
    o.wall_share = Ratio(s.outermost, window.length());
    out.operations.push_back(o);
  }
  for (ProcessIndex p = 0; p < trace_.process_list.size(); ++p) {
    ProcessActivity a;
    a.process = p;
    for (const Call& c : trace_.calls)
      if (trace_.thread_list[c.thread].process == p && window.Contains(c.begin))
        ++a.calls;
    out.activities.push_back(a);
  }
  std::map<uint16_t, Ns> since;  // of a CPU's latest switch
  for (const Switch& s : trace_.switches) {
    const auto [last, first_switch] = since.emplace(s.cpu, s.t);
    if (s.prev < trace_.thread_list.size() && window.Contains(s.t)) {
      ProcessActivity& a =
          out.activities[trace_.thread_list[s.prev].process];
      a.pages += s.prev_pages;
      a.min_faults += s.prev_min_faults;
      a.kernel += s.prev_kernel;
      a.running += s.t - last->second;
      a.yielded += s.yielded;
    }
    last->second = s.t;
  }
  return out;
}

}  // namespace ingero::testing
