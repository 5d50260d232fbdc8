// SPDX-License-Identifier: Apache-2.0
#include "cli/report/page_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "cli/export/events.h"
#include "cli/render/json.h"
#include "cli/render/report_words.h"
#include "cli/render/words.h"
#include "query/store_tables.h"

namespace ingero::cli {
namespace {

using analysis::kNone;
using analysis::ProcessIndex;
using analysis::ThreadIndex;
using analysis::ThreadState;

// Rows of the timeline are this fine at most, and at most so many: 3 MB of page
// at the worst.
constexpr size_t kFineBuckets = 8192, kCoarseBuckets = 4096;
constexpr size_t kMaxFeedRows = 8, kMaxThreadRows = 24, kMaxCallRows = 6,
                 kMaxCalls = 6, kMaxSeries = 16, kMaxPoints = 2000,
                 kMaxOperations = 200, kMaxProcesses = 100;
constexpr Ns kLeastBucket = kMicrosecond;

std::string Base64(const std::vector<uint8_t>& bytes) {
  static constexpr char kDigits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t word = 0;
    for (size_t k = 0; k < 3; ++k)
      word = word << 8 | (i + k < bytes.size() ? bytes[i + k] : 0u);
    for (size_t k = 0; k < 4; ++k)
      text += i + k > bytes.size() ? '='
                                   : kDigits[word >> (18 - 6 * k) & 63];
  }
  return text;
}

// Time by state in each of many equal parts of the window.
class Row {
 public:
  Row(Interval window, size_t buckets, size_t states)
      : window_(window), states_(states) {
    const int64_t most = std::max<int64_t>(
        1, window.length().value / kLeastBucket.value);
    buckets_ = static_cast<size_t>(
        std::min<int64_t>(static_cast<int64_t>(buckets), most));
    ns_.resize(buckets_ * states_);
  }
  // `time` of state within `range`, as if spread evenly.
  void Add(Interval range, Ns time, size_t state) {
    const double share = Ratio(time, range.length());
    range = range.Clip(window_);
    if (range.empty()) return;
    for (size_t b = BucketOf(range.begin); b <= BucketOf(range.end - Ns{1});
         ++b) {
      const Ns part = range.Clip({BeginOf(b), BeginOf(b + 1)}).length();
      ns_[b * states_ + state] +=
          static_cast<float>(static_cast<double>(part.value) * share);
    }
  }
  void Add(Interval range, size_t state) { Add(range, range.length(), state); }

  Json ToJson(const char* group, const std::string& name,
              const std::vector<std::string>& states) const {
    std::vector<uint8_t> shares(ns_.size());
    for (size_t b = 0; b < buckets_; ++b) {
      const double length =
          static_cast<double>((BeginOf(b + 1) - BeginOf(b)).value);
      // What was folded over several buckets is spread evenly, and so may add
      // up to more than there is.
      double sum = 0;
      for (size_t s = 0; s < states_; ++s)
        sum += static_cast<double>(ns_[b * states_ + s]);
      const double whole = std::max(sum, length);
      for (size_t s = 0; s < states_; ++s)
        shares[b * states_ + s] = static_cast<uint8_t>(
            static_cast<double>(ns_[b * states_ + s]) / whole * 255 + 0.5);
    }
    return {{"group", group},
            {"name", name},
            {"states", states},
            {"buckets", buckets_},
            {"shares", Base64(shares)}};
  }

 private:
  // A window of 292 years in ns, times 8192, is more than 64 bits hold.
  Ns BeginOf(size_t b) const {
    const auto length = static_cast<__int128>(window_.length().value);
    return window_.begin + Ns(static_cast<int64_t>(
                               length * static_cast<__int128>(b) /
                               static_cast<__int128>(buckets_)));
  }
  size_t BucketOf(Ns t) const {
    const auto offset = static_cast<__int128>((t - window_.begin).value);
    auto b = static_cast<size_t>(offset * static_cast<__int128>(buckets_) /
                                 window_.length().value);
    // Rounded down at both ends: of a bucket's last ns.
    while (b + 1 < buckets_ && BeginOf(b + 1) <= t) ++b;
    return std::min(b, buckets_ - 1);
  }

  Interval window_;
  size_t states_, buckets_ = 1;
  std::vector<float> ns_;
};

class Collector : public analysis::TimeSink {
 public:
  Collector(const merge::TraceReader& trace,
            const analysis::ReportOptions& options, Interval window)
      : trace_(trace), options_(options), window_(window) {}

  Json Build();

  void OnFeed(const analysis::FeedInterval&) override {}
  void OnCause(const analysis::PathCell& cell, const char* cause,
               Ns time) override {
    if (cell.thread != kNone) path_times_[cell.thread] += time;
    auto& causes = causes_[cell.process];
    const auto [it, added] = causes.try_emplace(
        cause, Row(window_, kFineBuckets, 2));
    it->second.Add(cell.range, time,
                   cell.certainty == analysis::Certainty::kKnown ? 0 : 1);
    cause_times_[cause] += time;
  }

 private:
  std::string Process(ProcessIndex p) const {
    const analysis::Process& process = trace_.processes()[p];
    return fmt::format("{}/{}", process.name, process.pid);
  }
  Json FeedRows(const analysis::Report& report) const;
  Json CauseRows(const analysis::Report& report) const;
  Json ThreadRows(const analysis::Report& report) const;
  Json CallRows(const analysis::Report& report) const;
  Json Series() const;

  const merge::TraceReader& trace_;
  const analysis::ReportOptions& options_;
  Interval window_;
  std::map<ProcessIndex, std::map<std::string, Row>> causes_;
  std::map<std::string, Ns> cause_times_;
  std::map<ThreadIndex, Ns> path_times_;
};

Json Collector::FeedRows(const analysis::Report& report) const {
  // enum FeedState, in this order.
  const std::vector<std::string> states = {"idle", "host-copy", "cold-start",
                                           "unknown", "busy"};
  const auto at = [](analysis::FeedState state) -> size_t {
    switch (state) {
      case analysis::FeedState::kIdle: return 0;
      case analysis::FeedState::kHostCopy: return 1;
      case analysis::FeedState::kColdStart: return 2;
      case analysis::FeedState::kUnknown: return 3;
      case analysis::FeedState::kBusy: return 4;
    }
    return 3;
  };
  std::map<std::pair<ProcessIndex, uint32_t>, Row> rows;
  for (const analysis::Feeding& f : report.feeding)
    if (rows.size() < kMaxFeedRows)
      rows.try_emplace({f.process, f.device},
                       Row(window_, kFineBuckets, states.size()));
  auto cursor = trace_.Feeds(window_);
  analysis::FeedInterval feed;
  while (cursor->Next(&feed))
    if (const auto it = rows.find({feed.process, feed.device});
        it != rows.end())
      it->second.Add(feed.range, feed.time, at(feed.state));
  Json out = Json::array();
  for (const auto& [key, row] : rows)
    out.push_back(row.ToJson(
        "feeding", fmt::format("GPU {} of {}", key.second, Process(key.first)),
        states));
  return out;
}

Json Collector::CauseRows(const analysis::Report& report) const {
  Json out = Json::array();
  for (const auto& [process, causes] : causes_) {
    const bool shown = std::any_of(
        report.feeding.begin(), report.feeding.end(),
        [&, process = process](const analysis::Feeding& f) {
          return f.process == process;
        });
    if (!shown) continue;
    for (const auto& [cause, row] : causes)
      out.push_back(row.ToJson("cause", Process(process),
                               {cause, "maybe " + cause}));
  }
  return out;
}

Json Collector::ThreadRows(const analysis::Report& report) const {
  const std::vector<std::string> states = {"running", "runnable", "sleeping",
                                           "disk", "blocked", "unknown"};
  const auto at = [](ThreadState state) -> std::optional<size_t> {
    switch (state) {
      case ThreadState::kRunning: return 0;
      case ThreadState::kRunnable: return 1;
      case ThreadState::kSleeping: return 2;
      case ThreadState::kDisk: return 3;
      case ThreadState::kBlocked:
      case ThreadState::kStopped: return 4;
      case ThreadState::kUnknown: return 5;
      case ThreadState::kDead: return std::nullopt;
    }
    return 5;
  };
  // The main threads of those that feed a GPU, then whose time the GPU's
  // starvation was most.
  std::vector<ThreadIndex> chosen;
  const auto choose = [&](ThreadIndex t) {
    if (t != kNone && chosen.size() < kMaxThreadRows &&
        std::find(chosen.begin(), chosen.end(), t) == chosen.end())
      chosen.push_back(t);
  };
  for (const analysis::Feeding& f : report.feeding)
    choose(trace_.processes()[f.process].main_thread);
  std::vector<std::pair<Ns, ThreadIndex>> by_time;
  for (const auto& [thread, time] : path_times_) by_time.push_back({time, thread});
  std::sort(by_time.rbegin(), by_time.rend());
  for (const auto& [time, thread] : by_time) choose(thread);

  struct State {
    Row row;
    ThreadState state = ThreadState::kUnknown;
    Ns since;
    bool seen = false;
  };
  std::map<ThreadIndex, State> threads;
  for (const ThreadIndex t : chosen)
    threads.try_emplace(t, State{Row(window_, kCoarseBuckets, states.size()),
                                 ThreadState::kUnknown, window_.begin});
  const auto until = [&](State* s, Ns t, ThreadState next) {
    if (const auto state = at(s->state); state && s->seen)
      s->row.Add({s->since, t}, *state);
    s->state = next;
    s->since = t;
    s->seen = true;
  };
  auto cursor = trace_.Switches(window_);
  analysis::Switch s;
  while (!threads.empty() && cursor->Next(&s)) {
    if (const auto it = threads.find(s.prev); it != threads.end())
      until(&it->second, s.t, s.prev_state);
    if (const auto it = threads.find(s.next); it != threads.end()) {
      if (s.wake && *s.wake > it->second.since && *s.wake < s.t)
        until(&it->second, *s.wake, ThreadState::kRunnable);
      until(&it->second, s.t, ThreadState::kRunning);
    }
  }
  Json out = Json::array();
  for (const ThreadIndex t : chosen) {
    State& state = threads.at(t);
    if (!state.seen) continue;
    const analysis::Thread& thread = trace_.threads()[t];
    Ns end = window_.end;
    if (thread.process != kNone)
      if (const auto exited = trace_.processes()[thread.process].exited)
        end = std::clamp(*exited, std::min(state.since, window_.end),
                         window_.end);
    until(&state, end, ThreadState::kDead);
    out.push_back(state.row.ToJson(
        "thread", fmt::format("{}/{}", thread.name, thread.tid), states));
  }
  return out;
}

Json Collector::CallRows(const analysis::Report& report) const {
  Json out = Json::array();
  std::vector<ProcessIndex> done;
  for (const analysis::Feeding& f : report.feeding) {
    if (std::find(done.begin(), done.end(), f.process) != done.end() ||
        done.size() == kMaxCallRows)
      continue;
    done.push_back(f.process);
    std::vector<std::pair<double, analysis::FuncIndex>> most;
    for (const analysis::Operation& o : report.operations)
      if (o.process == f.process) most.push_back({o.wall_share, o.func});
    std::sort(most.rbegin(), most.rend());
    most.resize(std::min(most.size(), kMaxCalls));
    std::vector<std::string> names;
    std::map<analysis::FuncIndex, size_t> column;
    for (const auto& [share, func] : most) {
      column.emplace(func, names.size());
      names.push_back(trace_.functions()[func].name);
    }
    names.push_back("other calls");
    Row row(window_, kCoarseBuckets, names.size());
    // Of one thread at a time the outermost: the main thread's, or that of
    // whoever calls.
    auto cursor = trace_.Calls(f.process, window_);
    analysis::Call call;
    while (cursor->Next(&call)) {
      if (call.depth != 0 || call.func == kNone ||
          trace_.functions()[call.func].layer == analysis::Layer::kLibrary)
        continue;
      const auto it = column.find(call.func);
      row.Add({call.begin, call.end},
              it == column.end() ? names.size() - 1 : it->second);
    }
    out.push_back(row.ToJson("calls", "in calls: " + Process(f.process),
                             names));
  }
  return out;
}

Json Collector::Series() const {
  struct Points {
    std::vector<std::pair<Ns, double>> points;
    size_t step = 1, skipped = 0;  // one of so many is kept
  };
  std::map<std::string, Points> all;
  ForEachCounter(trace_, window_, [&](const std::string& name, Ns t, double v) {
    Points& p = all[name];
    if (++p.skipped < p.step) {
      // The highest of those that one stands for.
      if (!p.points.empty())
        p.points.back().second = std::max(p.points.back().second, v);
      return;
    }
    p.skipped = 0;
    p.points.push_back({t, v});
    if (p.points.size() < 2 * kMaxPoints) return;
    for (size_t i = 0; i + 1 < p.points.size(); i += 2)
      p.points[i / 2] = {p.points[i].first, std::max(p.points[i].second,
                                                     p.points[i + 1].second)};
    p.points.resize(kMaxPoints);
    p.step *= 2;
  });
  // What says most of a machine first.
  static constexpr std::string_view kFirst[] = {
      "gpu.utilization", "psi.cpu", "psi.io", "psi.memory", "load", "cpu.busy",
      "mem.available", "gpu.", "swap", "cgroup.throttled_time"};
  std::vector<std::pair<size_t, std::string>> order;
  for (const auto& [name, points] : all) {
    const auto* at = std::find_if(
        std::begin(kFirst), std::end(kFirst),
        [&, &name = name](std::string_view p) { return name.starts_with(p); });
    if (at != std::end(kFirst))
      order.push_back({static_cast<size_t>(at - kFirst), name});
  }
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return a.first != b.first
               ? a.first < b.first
               : strverscmp(a.second.c_str(), b.second.c_str()) < 0;
  });
  order.resize(std::min(order.size(), kMaxSeries));
  Json out = Json::array();
  for (const auto& [rank, name] : order) {
    Json t = Json::array(), v = Json::array();
    for (const auto& [at, value] : all[name].points) {
      t.push_back((at - window_.begin).value);
      v.push_back(value);
    }
    out.push_back({{"name", name}, {"t_ns", t}, {"values", v}});
  }
  return out;
}

Json Collector::Build() {
  analysis::ReportOptions options = options_;
  options.sink = this;
  const analysis::Report report = analysis::BuildReport(trace_, options);
  const ReportWords words(report, options.pid);
  static constexpr const char* kSeverities[] = {"info", "low", "medium",
                                                "high"};
  static constexpr const char* kConfidences[] = {"low", "medium", "high"};
  const auto offset = [&](Ns t) { return (t - window_.begin).value; };

  Json feeding = Json::array(), findings = Json::array(),
       operations = Json::array(), processes = Json::array(),
       losses = Json::array(), skipped = Json::array();
  for (const analysis::Feeding& f : report.feeding)
    feeding.push_back({{"process", Process(f.process)},
                       {"device", f.device},
                       {"span_ns", f.span.value},
                       {"idle_at_least_ns", f.idle_at_least.value},
                       {"idle_at_most_ns", f.idle_at_most.value},
                       {"known_busy_ns", f.known_busy.value}});
  for (const analysis::Finding& f : report.findings) {
    Json windows = Json::array(), culprits = Json::array(),
         advice = Json::array();
    for (const Interval& w : f.windows)
      windows.push_back({offset(w.begin), offset(w.end)});
    for (const analysis::Culprit& c : f.culprits)
      culprits.push_back(
          {{"name", c.name}, {"ns", c.time.value}, {"share", c.share}});
    for (const analysis::Recommendation& r : f.recommendations)
      advice.push_back(words.Advice(r, f.base));
    findings.push_back(
        {{"cause", f.cause},
         {"severity", kSeverities[static_cast<size_t>(f.severity)]},
         {"claim", f.claim},
         {"context", f.context},
         {"lost_ns", f.lost.value},
         {"lost", f.context ? "" : words.Lost(f)},
         {"windows", windows},
         {"culprits", culprits},
         {"advice", advice},
         {"code", analysis::CodeText(f)},
         {"confidence", kConfidences[static_cast<size_t>(f.confidence)]},
         {"coverage", f.coverage}});
  }
  for (const analysis::Operation& o : report.operations) {
    if (operations.size() == kMaxOperations) break;
    operations.push_back(
        OperationJson(o, trace_.functions()[o.func], Process(o.process)));
  }
  for (const analysis::ProcessActivity& a : report.activities) {
    if (processes.size() == kMaxProcesses) break;
    const analysis::Process& p = trace_.processes()[a.process];
    processes.push_back({{"name", Process(a.process)},
                         {"role", a.role},
                         {"command", p.cmdline.substr(0, 1000)},
                         {"calls", a.calls},
                         {"running_ns", a.running.value},
                         {"runnable_ns", a.runnable.value},
                         {"sleeping_ns", a.sleeping.value},
                         {"io_ns", a.io.value},
                         {"preempted", a.preempted},
                         {"pages", a.pages}});
  }
  for (const analysis::Loss& l : report.losses)
    losses.push_back({{"id", l.id},
                      {"text", l.text},
                      {"count", l.count},
                      {"severity", l.severity == 2 ? "loss" : "notice"}});
  for (const analysis::NotEvaluated& n : report.not_evaluated)
    skipped.push_back({{"cause", n.cause}, {"why", n.why}});

  Json rows = FeedRows(report);
  for (Json part : {CauseRows(report), ThreadRows(report), CallRows(report)})
    for (Json& row : part) rows.push_back(std::move(row));
  Json causes = Json::array();
  std::vector<std::pair<Ns, std::string>> by_time;
  for (const auto& [cause, time] : cause_times_) by_time.push_back({time, cause});
  std::sort(by_time.rbegin(), by_time.rend());
  for (const auto& [time, cause] : by_time) causes.push_back(cause);

  Json steps = Json::array(), sums = Json::array(), facts = Json::array();
  for (const analysis::StepSummary& s : report.steps)
    steps.push_back((report.steps.size() > 1 ? words.Short(s.process) + ": "
                                             : std::string()) +
                    Sentence(s.text));
  for (const analysis::Account& a : report.accounts)
    if (std::string sum = words.Sum(a); !sum.empty())
      sums.push_back(std::move(sum));
  for (const LabeledFact& fact : words.Facts())
    if (fact.label == "Unknown" || fact.label == "Accuracy" ||
        fact.label == "Cost")
      facts.push_back(fact.label + ": " + fact.text);

  const int64_t begin_real =
      report.facts.wall_clock_at_span_begin_ns == 0
          ? 0
          : report.facts.wall_clock_at_span_begin_ns +
                (window_.begin - report.span.begin).value;
  const std::vector<std::string> coverage =
      analysis::FoldedCoverage(report.facts.coverage);
  return {{"version", INGERO_VERSION},
          {"verdict", report.verdict},
          {"complete", report.complete},
          {"host", report.facts.host},
          {"cpus", report.facts.cpus},
          {"when", begin_real == 0 ? ""
                                   : FormatDateTime(begin_real) + " " +
                                         FormatTimeZone(begin_real)},
          {"begin_ns", window_.begin.value},
          {"length_ns", window_.length().value},
          {"store", report.facts.store_path},
          {"scope", report.facts.scope},
          {"feeding", feeding},
          {"findings", findings},
          {"causes", causes},
          {"steps", steps},
          {"sums", sums},
          {"facts", facts},
          {"operations", operations},
          {"operations_left_out",
           report.operations.size() - operations.size()},
          {"processes", processes},
          {"processes_left_out",
           report.activities.size() - processes.size()},
          {"losses", losses},
          {"missing", report.facts.missing},
          {"coverage", coverage},
          {"system", report.facts.system},
          {"not_evaluated", skipped},
          {"rows", rows},
          {"series", Series()}};
}

}  // namespace

Json PageData(const merge::TraceReader& trace,
              const analysis::ReportOptions& options, Interval window) {
  return Collector(trace, options, window).Build();
}

}  // namespace ingero::cli
