// SPDX-License-Identifier: Apache-2.0
// From attributed time to an answer. Reads stored cells only, so its cost
// depends on how long the recording is, not on how many events it holds.
#include "analysis/report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "analysis/chains.h"
#include "analysis/lost_time_query.h"
#include "analysis/recording_advice.h"
#include "analysis/rules/rule.h"
#include "analysis/steps.h"
#include "analysis/syscalls.h"
#include "base/shell_word.h"
#include "base/tables.h"
#include "base/text.h"

namespace ingero::analysis {
namespace {

// Shares of the time between a process' first and last GPU work.
constexpr double kHighShare = 0.20, kMediumShare = 0.05, kLowShare = 0.01;
// Only where something may have been lost, but nothing surely:
constexpr double kPossibleLow = 0.20, kPossibleMedium = 0.50;
// A GPU known to be busy this much was not starved.
constexpr double kBoundBusy = 0.80, kBoundIdle = 0.10;
// Known busy this much, the unknown rest is no finding: there was a backlog.
constexpr double kBacklogBusy = 0.50;
constexpr double kUnexplainedShare = 0.20;
// Windows of a finding: buckets with less than this share of a typical one
// are left out, and gaps of up to so many buckets are bridged if there would
// be too many windows.
constexpr size_t kMaxWindows = 5;
constexpr double kSparse = 0.25;
constexpr int64_t kMaxBridged = 10;
// Of the starved time, unknown without a word on the confidence.
constexpr double kUnseenShare = 0.01;
// A call that is stalled by a load may have begun so long before it; so far
// apart, loads are looked at together; so many calls are looked up at most. Up
// to a minute apart, it costs less to read on than to begin anew.
constexpr Ns kStallReach{1'000'000'000};
constexpr int kMostStalls = 2000;
constexpr Ns kReadOn{60'000'000'000};
// Processes that are born or end so close together do so in one go; between
// the end of the last and the birth of the next, the program may do other
// things.
constexpr Ns kOneAfterAnother{500'000'000}, kEndToBirth{20'000'000};
// How far back from an end is looked for what was awaited, and how often.
constexpr Ns kEndReach{5'000'000'000};
constexpr size_t kMostEndsLookedAt = 256;
// Of a longer time stored sums by second are looked at, not each cell of 10 ms.
constexpr Ns kByCell{300'000'000'000};
// Counters that are read once a second: so far around the window, there is one.
constexpr Ns kSampleReach{1'100'000'000};
// Interrupts on a CPU below this share of the window are not worth a line.
constexpr double kInterruptsMin = 0.05;
// Giving up the CPU so often, and this much on it all the same, is a spin loop.
constexpr double kYieldsPerSecond = 10'000, kYieldsMinRunning = 0.05;
// Lines of code of a finding: from so many samples on, so many, each with so
// much of them. Of a long time, so many pieces of this length are looked at.
constexpr uint64_t kLeastCodeSamples = 10;
constexpr size_t kMostCodeLines = 3;
constexpr double kLeastCodeShare = 0.1;
constexpr int64_t kCodePieces = 10;
constexpr Ns kCodePiece{30'000'000'000};
// NVML's reasons that lower a clock: power cap, slowdown, heat, power brake.
constexpr uint64_t kClockLimits = 0x04 | 0x08 | 0x20 | 0x40 | 0x80;

Severity SeverityOf(double share) {
  return share >= kHighShare     ? Severity::kHigh
         : share >= kMediumShare ? Severity::kMedium
         : share >= kLowShare    ? Severity::kLow
                                 : Severity::kInfo;
}

std::string Seconds(Ns t) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3fs", static_cast<double>(t.value) / 1e9);
  return text;
}

// Everything known about one process while its findings are made.
struct Work {
  ProcessFacts facts;
  std::vector<Tally> tallies;  // by rule
  // Runnable while ingero's own processes ran, by process.
  std::map<ProcessIndex, Ns> held_by_ingero;
  double gpu_percent = 0;      // measured utilisation, summed
  uint64_t gpu_samples = 0;
  LostTimeQuery query;
  explicit Work(const Report* report) : query(report) {}
  double UnseenShare() const {
    return Ratio(facts.unseen, facts.known + facts.possible);
  }
};

class Builder {
 public:
  Builder(const ReportSource& source, const ReportOptions& options)
      : source_(source), options_(options) {
    if (options.sink != nullptr) sinks_.push_back(options.sink);
  }

  Report Build() {
    Header();
    StepStatistics steps(by_second_);
    for (ProcessIndex p = 0; p < report_.processes.size(); ++p)
      if (Wanted(p) && report_.processes[p].has_cuda)
        steps.Add(source_, p, report_.window);
    sinks_.push_back(&steps);
    Feeds();
    Facts();
    Tallies();
    SlowSteps(&steps);
    Roles();
    for (Work& w : work_) Judge(w);
    WhereCodeWas();
    NotEvaluatedRules();
    SortFindings();
    for (const Work& w : work_) OfProcess(w);
    steps.Finish(&report_);
    Verdict();
    if (options_.chains) report_.chains = FindChains(source_, report_);
    return std::move(report_);
  }

 private:
  void Header() {
    const TraceSource& trace = source_.trace();
    report_.span = trace.span();
    report_.window =
        options_.window ? options_.window->Clip(trace.span()) : trace.span();
    // A sink wants to know when.
    by_second_ =
        report_.window.length() > kByCell && options_.sink == nullptr;
    bucket_ = by_second_ ? kSecond : kBucket;
    report_.facts = source_.facts();
    report_.processes = trace.processes();
    report_.threads = trace.threads();
    report_.functions = trace.functions();
    for (const Loss& loss : trace.losses()) {
      const Interval range{loss.range.begin,
                           std::max(loss.range.end, loss.range.begin + Ns(1))};
      // Of the whole recording, also those that have no place in its time.
      if (options_.window && !range.Overlaps(report_.window)) continue;
      report_.losses.push_back(loss);
      if (loss.severity >= 2) report_.complete = false;
    }
    Summaries summaries = source_.Summarize(report_.window);
    report_.operations = std::move(summaries.operations);
    report_.activities = std::move(summaries.activities);
    PageCosts();
    Yields();
    if (!WantsAll()) {
      std::erase_if(report_.facts.coverage, [&](const CoverageFact& c) {
        return c.process != kNone && !Wanted(c.process);
      });
      std::erase_if(report_.operations,
                    [&](const Operation& o) { return !Wanted(o.process); });
      std::erase_if(report_.activities, [&](const ProcessActivity& a) {
        return !WantedTree(a.process);
      });
    }
    std::stable_sort(report_.operations.begin(), report_.operations.end(),
                     [](const Operation& a, const Operation& b) {
                       return a.total > b.total;
                     });
  }

  // The companion measures what a lone first touch costs. The program's own
  // pages may cost less (many at once) or more (they are also freed and
  // zeroed; in a virtual machine the host may fault too), so where the kernel
  // counted the process's time in the kernel, that is divided among its pages.
  // Other system calls may be in it: hence the limit.
  void PageCosts() {
    constexpr int64_t kMost = 4;
    constexpr Ns kEnough{100'000'000};  // 25 ticks of 4 ms
    const Ns lone = report_.facts.page_cost;
    report_.page_costs.assign(report_.processes.size(), lone);
    bool counted = false;
    for (const ProcessActivity& a : report_.activities)
      counted = counted || a.kernel > Ns(0);
    if (!counted || lone <= Ns(0)) return;
    for (const ProcessActivity& a : report_.activities)
      if (a.process < report_.page_costs.size() && a.pages > 0 &&
          a.running >= kEnough)
        report_.page_costs[a.process] =
            std::min(Ns(static_cast<int64_t>(
                         static_cast<double>(a.kernel.value) /
                         static_cast<double>(a.pages))),
                     lone * kMost);
  }

  bool WantsAll() const { return !options_.pid && options_.pids.empty(); }
  bool Wanted(ProcessIndex p) const {
    if (WantsAll()) return true;
    if (p >= report_.processes.size()) return false;
    const uint32_t pid = report_.processes[p].pid;
    return options_.pid ? pid == *options_.pid
                        : std::find(options_.pids.begin(), options_.pids.end(),
                                    pid) != options_.pids.end();
  }
  bool WantedTree(ProcessIndex p) const {
    for (int depth = 0; p < report_.processes.size() && depth < 64; ++depth) {
      if (Wanted(p)) return true;
      p = report_.processes[p].parent;
    }
    return false;
  }

  Work* Of(ProcessIndex p) {
    for (Work& w : work_)
      if (w.facts.process == p) return &w;
    return nullptr;
  }

  Part Window() const {
    Part part(report_.window);
    part.by_second = by_second_;
    return part;
  }

  void Feeds() {
    auto cursor = source_.Feeds(Window());
    FeedInterval f;
    while (cursor->Next(&f)) {
      if (!Wanted(f.process)) continue;
      for (TimeSink* sink : sinks_) sink->OnFeed(f);
      Ns covered;
      for (Interval span : source_.trace().kernel_spans())
        covered += span.Clip(f.range).length();
      if (covered < f.range.length())
        unscheduled_[f.process] +=
            Ns(static_cast<int64_t>(static_cast<double>(f.time.value) *
                                    (1 - Ratio(covered, f.range.length()))));
      Feeding* feeding = nullptr;
      for (Feeding& x : report_.feeding)
        if (x.process == f.process && x.device == f.device) feeding = &x;
      if (feeding == nullptr) {
        feeding = &report_.feeding.emplace_back();
        feeding->process = f.process;
        feeding->device = f.device;
      }
      feeding->span += f.time;
      Interval& used = used_.try_emplace(f.process, f.range).first->second;
      used = {std::min(used.begin, f.range.begin),
              std::max(used.end, f.range.end)};
      switch (f.state) {
        case FeedState::kBusy:
          feeding->known_busy += f.time;
          break;
        case FeedState::kUnknown:
          feeding->idle_at_most += f.time;
          break;
        case FeedState::kHostCopy:
          feeding->host_copy += f.time;
          feeding->idle_at_least += f.time;
          break;
        case FeedState::kColdStart:
          feeding->cold_start += f.time;
          feeding->idle_at_least += f.time;
          break;
        case FeedState::kIdle:
          feeding->idle_at_least += f.time;
          break;
      }
    }
    for (Feeding& f : report_.feeding) f.idle_at_most += f.idle_at_least;
    std::stable_sort(
        report_.feeding.begin(), report_.feeding.end(),
        [](const Feeding& a, const Feeding& b) { return a.span > b.span; });
  }

  // First look at the paths: who is on them at all.
  void Facts() {
    for (const Feeding& f : report_.feeding) {
      Work* w = Of(f.process);
      if (w == nullptr) {
        w = &work_.emplace_back(&report_);
        w->facts.process = f.process;
        w->facts.used = used_[f.process];
        const Context context(report_, w->facts);
        std::vector<bool> below(report_.processes.size());
        for (ProcessIndex p = 0; p < report_.processes.size(); ++p) {
          below[p] = context.Descends(p, f.process);
          const Process& process = report_.processes[p];
          if (process.has_cuda && p != f.process &&
              context.Descends(f.process, p))
            w->facts.above.push_back(p);
        }
        w->facts.below = std::move(below);
        for (ProcessIndex p = report_.processes[f.process].parent;
             p < report_.processes.size() && w->facts.launchers.size() < 64 &&
             !report_.processes[p].is_ingero &&
             context.SameProgram(p, f.process);
             p = report_.processes[p].parent)
          if (!report_.processes[p].has_cuda) w->facts.launchers.push_back(p);
      }
      // Paths are of all devices, so their base is too.
      w->facts.span += f.span;
      w->facts.busy += f.known_busy;
    }
    bool kernel = false;
    for (Interval span : source_.trace().kernel_spans())
      kernel = kernel || span.Overlaps(report_.window);
    auto cursor = source_.Paths(Window());
    std::map<ProcessIndex, std::vector<Interval>> loads;
    std::vector<ThreadIndex> last_thread(report_.processes.size(), kNone);
    PathCell cell;
    while (cursor->Next(&cell)) {
      Work* w = Of(cell.process);
      if (w == nullptr) continue;
      if (cell.reason == Reason::kColdStart && cell.func != kNone)
        loads[cell.process].push_back(cell.range);
      (cell.certainty == Certainty::kKnown ? w->facts.known
                                           : w->facts.possible) += cell.time;
      if (cell.reason == Reason::kThrottled) w->facts.throttled += cell.time;
      if (cell.thread == last_thread[cell.process]) continue;
      last_thread[cell.process] = cell.thread;
      if (cell.thread < report_.threads.size() &&
          report_.threads[cell.thread].process != kNone)
        w->facts.on_path.insert(report_.threads[cell.thread].process);
    }
    Samples();
    for (Work& w : work_) {
      ShortLived(&w.facts);
      if (kernel) Stalls(loads[w.facts.process], &w.facts);
      Replaced(&w.facts);
      w.facts.has_kernel = kernel;
      if (kernel) Unscheduled(&w);
      if (w.gpu_samples > 0)
        w.facts.gpu_utilization =
            w.gpu_percent / static_cast<double>(w.gpu_samples) / 100.0;
    }
  }

  void ShortLived(ProcessFacts* facts) const {
    const Context context(report_, *facts);
    for (ProcessIndex p = 0; p < report_.processes.size(); ++p) {
      const Process& x = report_.processes[p];
      if (x.exited && report_.window.Contains(x.first_seen) &&
          x.first_seen > report_.span.begin &&
          *x.exited - x.first_seen < kShortLife &&
          context.Descends(p, facts->process))
        facts->short_lived.insert(p);
    }
    if (facts->short_lived.size() < kManyShortLives)
      facts->short_lived.clear();
  }

  // Calls in which other threads slept while code was loaded, until the thread
  // that loaded it woke them. Who starts up itself waits for its own sake.
  void Stalls(std::vector<Interval> loads, ProcessFacts* facts) const {
    std::sort(loads.begin(), loads.end(), [](Interval a, Interval b) {
      return a.begin < b.begin;
    });
    const Context context(report_, *facts);
    int looked_up = 0;
    for (size_t i = 0; i < loads.size() && looked_up < kMostStalls;) {
      std::vector<Interval> ranges;
      do {
        Interval range = loads[i];
        for (; i < loads.size() && loads[i].begin <= range.end + kStallReach;
             ++i)
          range.end = std::max(range.end, loads[i].end);
        ranges.push_back(range);
      } while (i < loads.size() &&
               loads[i].begin <= ranges.back().end + kReadOn);
      Part part({ranges.front().begin - kStallReach, ranges.back().end});
      part.process = facts->process;
      auto splits = source_.Splits(part);
      size_t at = 0;
      for (CallSplit s; looked_up < kMostStalls && splits->Next(&s);) {
        while (s.begin >= ranges[at].end) ++at;
        if (s.begin < ranges[at].begin - kStallReach || s.sleeping <= Ns(0) ||
            s.waker == kNone || s.waker == s.thread ||
            !context.IsOwn(s.waker))
          continue;
        Stall stall;
        stall.range = {s.begin, s.begin + s.running + s.runnable + s.sleeping +
                                    s.io + s.unknown};
        stall.range = stall.range.Clip(ranges[at]);
        stall.waiter = s.thread;
        stall.func = s.func;
        std::vector<Stall>& list = facts->stalled_by[s.waker];
        // What another one's sleep, or the call around this one, has counted.
        if (!list.empty())
          stall.range.begin =
              std::max(stall.range.begin, list.back().range.end);
        if (stall.range.empty()) continue;
        ++looked_up;
        if (!StartsUp(source_.trace(), s)) list.push_back(stall);
      }
    }
  }

  // Since when the path ran through these processes alone until the first of
  // them ended: no batch was taken meanwhile, their end was what was awaited.
  Ns WaitedForSince(const ProcessFacts& facts,
                    const std::set<ProcessIndex>& workers, Ns end) const {
    Part part({end - kEndReach, end});
    part.process = facts.process;
    auto cells = source_.Paths(part);
    Ns since = end, others;
    for (PathCell cell; cells->Next(&cell);) {
      if (cell.process != facts.process || cell.thread == kNone) continue;
      const ProcessIndex p = report_.threads[cell.thread].process;
      if (p == kNone || workers.count(p) == 0)
        others = std::max(others, cell.range.end);
      else
        since = std::min(since, cell.range.begin);
    }
    return std::min(std::max(since, others), end);
  }

  // Loader processes that all ended, each with status 0, before others of their
  // name (numbers left out) were born.
  void Replaced(ProcessFacts* facts) const {
    struct Life {
      Ns begin, end;
      ProcessIndex process;
    };
    const Context context(report_, *facts);
    std::map<std::string, std::vector<Life>> by_name;
    for (ProcessIndex p = 0; p < report_.processes.size(); ++p) {
      const Process& x = report_.processes[p];
      const Ns end = x.exited.value_or(Ns(INT64_MAX));
      if (!x.has_cuda && x.first_seen > report_.span.begin &&
          report_.window.Contains(x.first_seen) &&
          end - x.first_seen >= kShortLife &&
          context.Descends(p, facts->process))
        by_name[WithoutNumbers(x.name)].push_back({x.first_seen, end, p});
    }
    for (auto& [name, lives] : by_name) {
      std::stable_sort(lives.begin(), lives.end(),
                       [](const Life& a, const Life& b) {
                         return a.begin < b.begin;
                       });
      Replacements r;
      r.name = name;
      const auto add = [&r](Ns begin, Ns end, Ns most) {
        if (begin < end && end - begin <= most) r.ranges.Add({begin, end});
      };
      std::vector<Ns> ends;  // of those before
      std::set<ProcessIndex> ended;
      bool well = true;
      for (size_t i = 0; i < lives.size();) {
        Ns last_end = lives[i].end;
        size_t next = i;
        for (; next < lives.size() && (next == i || lives[next].begin < last_end);
             ++next)
          last_end = std::max(last_end, lives[next].end);
        if (!ends.empty() && well) {
          ++r.count;
          for (size_t e = 1; e < ends.size(); ++e)
            add(ends[e - 1], ends[e], kOneAfterAnother);
          add(ends.back(), lives[i].begin, kEndToBirth);
          if (r.count <= kMostEndsLookedAt)
            add(WaitedForSince(*facts, ended, ends[0]), ends[0], kEndReach);
          for (size_t b = i + 1; b < next; ++b)
            add(lives[b - 1].begin, lives[b].begin, kOneAfterAnother);
        }
        ends.clear();
        ended.clear();
        well = true;
        for (; i < next; ++i) {
          r.workers.insert(lives[i].process);
          ends.push_back(lives[i].end);
          ended.insert(lives[i].process);
          const Process& x = report_.processes[lives[i].process];
          well = well && x.exited && x.exit_code && *x.exit_code == 0;
        }
        std::sort(ends.begin(), ends.end());
      }
      r.ranges.Sort();
      if (r.count >= kManyReplacements && r.count > facts->replacements.count)
        facts->replacements = std::move(r);
    }
  }

  // CPU quotas, GPUs.
  void Samples() {
    std::map<uint64_t, std::map<uint16_t, uint64_t>> interrupts;  // by CPU
    // Counters as first seen.
    std::map<std::pair<uint16_t, uint64_t>, uint64_t> first;
    std::map<uint64_t, uint64_t> clock;  // MHz, by GPU
    auto cursor = source_.trace().Samples(
        {report_.window.begin - kSampleReach, report_.window.end + kSampleReach});
    Sample s;
    while (cursor->Next(&s)) {
      const auto cgroup = [&]() -> CpuCgroup& {
        CpuCgroup& c = report_.cpu_cgroups[s.instance];
        c.id = s.instance;
        if (!s.text.empty()) c.path = s.text;
        return c;
      };
      const auto grown = [&] {
        const auto begin =
            first.try_emplace({s.metric, s.instance}, s.value).first->second;
        return s.value - std::min(s.value, begin);
      };
      switch (static_cast<Metric>(s.metric)) {
        case Metric::kGpuUtilization:
          if (!report_.window.Contains(s.t)) break;
          for (Work& w : work_) {
            if (!w.facts.used.Contains(s.t)) continue;
            w.gpu_percent += static_cast<double>(s.value);
            ++w.gpu_samples;
          }
          break;
        case Metric::kGpuSmClockMhz:
          clock[s.instance] = s.value;
          if (report_.window.Contains(s.t)) {
            GpuClock& c = report_.gpu_clocks[s.instance];
            ++c.samples;
            c.most_mhz = std::max(c.most_mhz, s.value);
          }
          break;
        case Metric::kGpuThrottleReasons:
          if (report_.window.Contains(s.t) && (s.value & kClockLimits) != 0 &&
              clock.count(s.instance) != 0) {
            GpuClock& c = report_.gpu_clocks[s.instance];
            ++c.held;
            c.held_mhz_sum += clock[s.instance];
            c.reasons |= s.value & kClockLimits;
          }
          break;
        case Metric::kGpuProcesses:
          if (report_.window.Contains(s.t)) ++report_.gpu_process_samples;
          break;
        case Metric::kGpuProcessBytes:
          if (report_.window.Contains(s.t)) {
            GpuProcess& p = report_.gpu_processes[s.instance];
            p.bytes = p.seen.empty() ? s.value : std::max(p.bytes, s.value);
            p.seen.push_back(s.t);
            p.gpu = s.text;
          }
          break;
        case Metric::kThrottleClock:
          if (s.value != 0) report_.quota_told_apart = true;
          break;
        case Metric::kMemoryStalls:
          if (s.value != 0) report_.memory_stalls_recorded = true;
          break;
        case Metric::kProbeSkipped:
          if (skipped_probes_.insert(s.text).second)
            report_.facts.missing.push_back("not recorded by " + recorder_ +
                                            ": " + s.text);
          break;
        case Metric::kRecorder:
          recorder_ = SanitizeForTerminal(s.text, 64);
          break;
        case Metric::kCpuIrqNs:
        case Metric::kCpuSoftirqNs:
          interrupts[s.instance][s.metric] = grown();
          break;
        case Metric::kGpuXid:
          if (report_.window.Contains(s.t))
            report_.facts.system.push_back(
                "the NVIDIA driver logged an error at " +
                FormatDuration(s.t - report_.window.begin) +
                ": " + s.text);
          break;
        case Metric::kCgroupQuotaAbove:
          cgroup().above = s.value;
          break;
        case Metric::kCgroupQuotaNs:
          cgroup().quota = Ns(static_cast<int64_t>(s.value));
          break;
        case Metric::kCgroupPeriodNs:
          cgroup().period = Ns(static_cast<int64_t>(s.value));
          break;
        case Metric::kCgroupPeriods:
          cgroup().periods = grown();
          break;
        case Metric::kCgroupThrottled:
          cgroup().throttled_periods = grown();
          break;
        case Metric::kCgroupThrottledNs:
          cgroup().throttled_ns = grown();
          break;
        default:
          break;
      }
    }
    Interrupts(interrupts);
  }

  // Programs that wait by calling sched_yield over and over: waste, and a cause
  // only where the path waited for their CPU, which the rules say.
  void Yields() {
    const double seconds =
        static_cast<double>(report_.window.length().value) / 1e9;
    for (const ProcessActivity& a : report_.activities) {
      if (a.process == kNone ||
          static_cast<double>(a.yielded) < kYieldsPerSecond * seconds ||
          Ratio(a.running, report_.window.length()) < kYieldsMinRunning)
        continue;
      const Process& p = report_.processes[a.process];
      report_.facts.system.push_back(
          SanitizeForTerminal(p.name) + "/" + std::to_string(p.pid) +
          " waits by spinning: " + FormatCount(a.yielded) +
          " calls of sched_yield gave up its CPU, and it ran for " +
          FormatDuration(a.running) +
          "; where that made the GPU wait, a finding says so");
    }
  }

  // Time that interrupts took from whoever ran, where it is worth a line. The
  // kernel counts it by CPU, so it cannot be taken from a thread's account.
  void Interrupts(
      const std::map<uint64_t, std::map<uint16_t, uint64_t>>& by_cpu) {
    uint64_t cpu = 0, most = 0;
    for (const auto& [n, kinds] : by_cpu) {
      uint64_t sum = 0;
      for (const auto& [metric, ns] : kinds) sum += ns;
      if (sum > most) {
        most = sum;
        cpu = n;
      }
    }
    const Ns time(static_cast<int64_t>(most));
    // Samples are a second apart: of less time they say nothing.
    const double share = std::min(1.0, Ratio(time, report_.window.length()));
    if (report_.window.length() < kSecond || share < kInterruptsMin) return;
    report_.facts.system.push_back(
        "interrupts took about " + FormatDuration(time) + " of CPU " +
        std::to_string(cpu) + " (" +
        FormatPercent(share) +
        "), more than of any other: by the kernel's counters a CPU, not told "
        "apart from the threads that ran there");
  }

  void Unscheduled(Work* w) {
    w->facts.unscheduled = unscheduled_[w->facts.process];
    if (w->facts.unscheduled < w->facts.span / 100) {
      w->facts.unscheduled = Ns(0);
      return;
    }
    const Process& p = report_.processes[w->facts.process];
    report_.facts.missing.push_back(
        "scheduling was not recorded for " +
        FormatDuration(w->facts.unscheduled) + " of " + p.name + "/" +
        std::to_string(p.pid) +
        "'s GPU use (" + recorder_ + " started late or ended early): what it "
        "waited for then cannot be judged");
  }

  bool Scheduled(Ns t) const {
    for (Interval span : source_.trace().kernel_spans())
      if (span.Contains(t)) return true;
    return false;
  }

  // Calls f(rule, time) for each rule that takes a part of the cell.
  template <typename F>
  static void ForTaken(const Context& context, const PathCell& cell, F f) {
    const auto rules = Rules();
    Ns left = cell.time;
    for (size_t r = 0; r < rules.size() && left > Ns(0); ++r) {
      if (rules[r]->needs_kernel && !context.facts.has_kernel) continue;
      const Ns taken = rules[r]->take(context, cell, left);
      if (taken <= Ns(0)) continue;
      left -= taken;
      f(r, taken);
    }
  }

  // Cells come by time, so mostly it is the last bucket's.
  static void AddToLast(int64_t bucket, Ns time,
                        std::map<int64_t, Ns>* buckets) {
    if (!buckets->empty() && buckets->rbegin()->first == bucket)
      buckets->rbegin()->second += time;
    else
      (*buckets)[bucket] += time;
  }

  // Second look: every nanosecond to one rule.
  void Tallies() {
    const auto rules = Rules();
    for (Work& w : work_) w.tallies.resize(rules.size());
    std::vector<Ns> by_rule(rules.size());
    auto cursor = source_.Paths(Window());
    PathCell cell;
    while (cursor->Next(&cell)) {
      Work* w = Of(cell.process);
      if (w == nullptr || cell.time <= Ns(0)) continue;
      const Context context(report_, w->facts);
      if (cell.culprit != kNone && context.IsIngero(cell.culprit))
        w->held_by_ingero[context.ProcessOf(cell.culprit)] += cell.time;
      const bool unseen = cell.reason == Reason::kHolderUnseen ||
                          (cell.state == ThreadState::kUnknown &&
                           Scheduled(cell.range.begin));
      if (unseen) w->facts.unseen += cell.time;
      std::fill(by_rule.begin(), by_rule.end(), Ns(0));
      ForTaken(context, cell, [&](size_t r, Ns taken) {
        by_rule[r] = taken;
        for (TimeSink* sink : sinks_)
          sink->OnCause(cell, rules[r]->cause, taken);
        Tally& t = w->tallies[r];
        if (unseen) t.unseen += taken;
        (cell.certainty == Certainty::kKnown ? t.known : t.possible) += taken;
        t.stretches += cell.stretches;
        t.pages += cell.pages;
        if ((cell.reason == Reason::kWaitingForCpu ||
             cell.reason == Reason::kHolderUnseen) &&
            cell.certainty == Certainty::kKnown &&
            context.MaybeThrottled(context.ProcessOf(cell.thread)))
          t.maybe_quota += taken;
        if (cell.reason == Reason::kPageableCopy &&
            !context.Before(cell.ended_by, CallClass::kCopy,
                            CallClass::kCopyAsync))
          t.from_gpu += taken;
        if (cell.thread != kNone) t.threads[cell.thread] += taken;
        if (cell.culprit != kNone) t.culprits[cell.culprit] += taken;
        if (cell.func != kNone) t.functions[cell.func] += taken;
        if (cell.syscall >= 0) t.syscalls[cell.syscall] += taken;
        AddToLast(cell.range.begin.value / bucket_.value, taken, &t.buckets);
      });
      w->query.Add(cell, by_rule);
    }
    for (Work& w : work_)
      for (Tally& t : w.tallies)
        if (t.maybe_quota > Ns(0)) LimitByQuota(&w, &t);
  }

  // Sums by second do not tell what a step was made of: so what slow ones are
  // made of comes from the cells of some of them.
  void SlowSteps(StepStatistics* steps) {
    const auto rules = Rules();
    for (const auto& [process, range] : steps->ToLookAt()) {
      const Work* w = Of(process);
      if (w == nullptr) continue;
      Part part(range);
      part.process = process;
      auto feeds = source_.Feeds(part);
      for (FeedInterval f; feeds->Next(&f);) steps->OnFeed(f);
      auto paths = source_.Paths(part);
      const Context context(report_, w->facts);
      for (PathCell cell; paths->Next(&cell);)
        ForTaken(context, cell, [&](size_t r, Ns taken) {
          steps->OnCause(cell, rules[r]->cause, taken);
        });
    }
  }

  // The program was throttled and waited for CPUs, and which wait was due to
  // what is not told: of either, only what the other cannot be is known.
  void LimitByQuota(Work* w, Tally* t) const {
    const Context context(report_, w->facts);
    std::set<const CpuCgroup*> cgroups;
    for (const auto& [thread, time] : t->threads)
      cgroups.insert(context.QuotaOf(context.ProcessOf(thread)));
    Ns throttled;
    for (const CpuCgroup* c : cgroups)
      if (c != nullptr) throttled += Ns(static_cast<int64_t>(c->throttled_ns));
    const Ns all = t->maybe_quota;
    t->maybe_quota = std::min(all, throttled);
    t->known -= t->maybe_quota;
    t->possible += t->maybe_quota;
    if (t != &w->tallies[QuotaRule()]) return;
    // More waits than the quota can account for: nobody's.
    t->known -= all - t->maybe_quota;
    w->tallies.back().known += all - t->maybe_quota;
  }
  static size_t QuotaRule() {
    const auto rules = Rules();
    size_t r = 0;
    while (std::string_view(rules[r]->cause) != "cgroup-quota") ++r;
    return r;
  }

  void Roles() {
    for (ProcessActivity& a : report_.activities) {
      if (a.process >= report_.processes.size()) {
        a.role = "other";
        continue;
      }
      a.role = "other";
      if (report_.processes[a.process].is_ingero) {
        a.role = "ingero";
        continue;
      }
      for (const Work& w : work_) {
        const Context context(report_, w.facts);
        if (a.process == w.facts.process) {
          a.role = "main";
          break;
        }
        if (context.Descends(a.process, w.facts.process) &&
            !report_.processes[a.process].has_cuda)
          a.role = "worker";
      }
    }
  }

  struct Windows {
    std::vector<Interval> list;  // by time
    Interval main;               // the one with the most
    Ns outside;
  };

  Windows WindowsOf(const Tally& tally) const {
    struct Range {
      int64_t begin, end;  // buckets
      Ns lost;
    };
    // What a nanosecond's bucket holds on average.
    double squares = 0, sum = 0;
    for (const auto& [bucket, time] : tally.buckets) {
      const double t = static_cast<double>(time.value);
      squares += t * t;
      sum += t;
    }
    const double least = sum > 0 ? kSparse * squares / sum : 0;
    std::vector<Range> ranges;
    for (const auto& [bucket, time] : tally.buckets) {
      if (static_cast<double>(time.value) < least) continue;
      if (!ranges.empty() && ranges.back().end == bucket) {
        ++ranges.back().end;
        ranges.back().lost += time;
      } else {
        ranges.push_back({bucket, bucket + 1, time});
      }
    }
    // The smallest gaps first; of equal ones the first.
    for (int64_t gap = 1; gap <= kMaxBridged && ranges.size() > kMaxWindows;
         ++gap) {
      size_t most = ranges.size() - kMaxWindows;
      std::vector<Range> bridged;
      for (const Range& right : ranges) {
        if (most == 0 || bridged.empty() ||
            right.begin - bridged.back().end != gap) {
          bridged.push_back(right);
          continue;
        }
        Range& left = bridged.back();
        for (auto it = tally.buckets.lower_bound(left.end);
             it != tally.buckets.end() && it->first < right.begin; ++it)
          left.lost += it->second;
        left.end = right.end;
        left.lost += right.lost;
        --most;
      }
      ranges = std::move(bridged);
    }
    const auto most_lost = [](const Range& a, const Range& b) {
      return a.lost > b.lost;
    };
    std::stable_sort(ranges.begin(), ranges.end(), most_lost);
    if (ranges.size() > kMaxWindows) ranges.resize(kMaxWindows);
    const auto clipped = [this](const Range& r) {
      return Interval{Ns(r.begin * bucket_.value), Ns(r.end * bucket_.value)}
          .Clip(report_.window);
    };
    Windows out;
    out.main = ranges.empty() ? report_.window : clipped(ranges[0]);
    out.outside = tally.total();
    for (const Range& r : ranges) out.outside -= r.lost;
    std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) {
      return a.begin < b.begin;
    });
    for (const Range& r : ranges)
      if (const Interval i = clipped(r); !i.empty()) out.list.push_back(i);
    return out;
  }

  // Begins where the finding says that it was, so that what is told of that
  // second is not of before it.
  Interval WorstSecond(const Tally& tally,
                       const std::vector<Interval>& windows) const {
    const int64_t second = kSecond.value / bucket_.value;
    Ns most;
    int64_t best = 0;
    const auto listed = [&](int64_t bucket) {
      const Ns begin =
          std::max(Ns(bucket * bucket_.value), report_.window.begin);
      return windows.empty() ||
             std::any_of(windows.begin(), windows.end(), [&](Interval w) {
               return w.begin <= begin && begin < w.end;
             });
    };
    for (auto it = tally.buckets.begin(); it != tally.buckets.end(); ++it) {
      if (!listed(it->first)) continue;
      Ns sum;
      for (auto j = it;
           j != tally.buckets.end() && j->first < it->first + second; ++j)
        sum += j->second;
      if (sum > most) {
        most = sum;
        best = it->first;
      }
    }
    return Interval{Ns(best * bucket_.value),
                    Ns((best + second) * bucket_.value)}
        .Clip(report_.window);
  }

  std::string ExplainQuery(Interval window, uint32_t pid) const {
    return "ingero explain --from " +
           Seconds(window.begin - report_.span.begin) + " --to " +
           Seconds(window.end - report_.span.begin) + " --pid " +
           std::to_string(pid);
  }

  void Culprits(const Context& context, const Tally& tally, Finding* f) const {
    // Who held the CPU where the rule is about that, else whose time it was
    // if that is somebody else's.
    const bool holders = !tally.culprits.empty();
    for (const Program& program :
         context.Programs(holders ? tally.culprits : tally.threads)) {
      if (program.process == kNone ||
          report_.processes[program.process].is_ingero)
        continue;
      if (f->culprits.size() == 8) break;
      Culprit c;
      c.pid = report_.processes[program.process].pid;
      c.start = report_.processes[program.process].start;
      c.name = program.name;
      if (!program.pids.empty()) c.name += " (" + program.pids + ")";
      c.share = Ratio(program.time, tally.total());
      c.time = program.time;
      f->culprits.push_back(std::move(c));
    }
  }

  // Of the worst second, and of what this rule took only.
  void Timeline(const Context& context, size_t rule, const Tally& tally,
                Finding* f) const {
    const Interval worst = WorstSecond(tally, f->windows);
    if (worst.empty()) return;
    const Ns at = worst.begin - report_.window.begin;
    Ns starved, all;
    std::map<ThreadIndex, Ns> running, waiting, sleeping, stopped, holders,
        throttled;
    std::map<FuncIndex, Ns> calls;
    CallClass ended_by = CallClass::kOther;
    bool holder_unseen = false;
    Part part(worst);
    part.process = context.facts.process;
    auto cursor = source_.Paths(part);
    PathCell cell;
    while (cursor->Next(&cell)) {
      if (cell.certainty != Certainty::kKnown && tally.known > Ns(0)) continue;
      all += cell.time;
      Ns time;
      ForTaken(context, cell, [&](size_t r, Ns taken) {
        if (r == rule) time = taken;
      });
      if (time <= Ns(0)) continue;
      starved += time;
      if (cell.ended_by != CallClass::kOther) ended_by = cell.ended_by;
      if (cell.func != kNone) calls[cell.func] += time;
      if (cell.thread == kNone) continue;
      switch (cell.state) {
        case ThreadState::kRunning:
          running[cell.thread] += time;
          break;
        case ThreadState::kRunnable:
          if (cell.reason == Reason::kThrottled) {
            throttled[cell.thread] += time;
            break;
          }
          waiting[cell.thread] += time;
          if (cell.reason == Reason::kHolderUnseen) holder_unseen = true;
          if (cell.culprit != kNone) holders[cell.culprit] += time;
          break;
        case ThreadState::kSleeping:
        case ThreadState::kDisk:
        case ThreadState::kBlocked:
          sleeping[cell.thread] += time;
          break;
        case ThreadState::kStopped:
          stopped[cell.thread] += time;
          break;
        default:
          break;
      }
    }
    const auto sum = [](const std::map<ThreadIndex, Ns>& m) {
      Ns total;
      for (const auto& [key, time] : m) total += time;
      return total;
    };
    const std::string second =
        "the " + FormatDuration(worst.length()) + " from here";
    if (!waiting.empty())
      f->timeline.push_back(
          {TimelineLine::Layer::kSystem, at,
           "Ready but without a CPU for " + FormatDuration(sum(waiting)) +
               ": " + context.Top(waiting, 2, sum(waiting)) +
               (holders.empty()
                    ? std::string(holder_unseen ? "; who held it is not known."
                                                : "; its CPU was idle.")
                    : "; held by " + context.Top(holders, 3, sum(waiting)) +
                          ".")});
    if (!throttled.empty())
      f->timeline.push_back({TimelineLine::Layer::kSystem, at,
                             "Ready but out of CPU quota for " +
                                 FormatDuration(sum(throttled)) + ": " +
                                 context.Top(throttled, 2, sum(throttled)) +
                                 "."});
    if (!sleeping.empty())
      f->timeline.push_back({TimelineLine::Layer::kSystem, at,
                             "Asleep for " + FormatDuration(sum(sleeping)) +
                                 ", with no other thread to wake it: " +
                                 context.Top(sleeping, 2, sum(sleeping)) +
                                 "."});
    if (!stopped.empty())
      f->timeline.push_back({TimelineLine::Layer::kSystem, at,
                             "Stopped for " + FormatDuration(sum(stopped)) +
                                 ": " + context.Top(stopped, 2, sum(stopped)) +
                                 "."});
    if (!running.empty())
      f->timeline.push_back({TimelineLine::Layer::kHost, at,
                             "Work on the way to the next GPU submission: " +
                                 context.Top(running, 3, sum(running)) +
                                 " ran for " + FormatDuration(sum(running)) +
                                 "."});
    const bool known = tally.known > Ns(0);
    std::string cuda = std::string("The GPU ") +
                       (known ? "had no" : "perhaps had no") +
                       " work from this program for " +
                       FormatDuration(starved) + " of " + second;
    if (FormatDuration(all) != FormatDuration(starved))
      cuda += " for this cause (" + FormatDuration(all) + " for all causes)";
    if (!calls.empty())
      cuda += ", " + FormatDuration(Sorted(calls)[0].second) +
              " of it inside " + context.FunctionName(Sorted(calls)[0].first);
    if (ended_by == CallClass::kCopy || ended_by == CallClass::kCopyAsync)
      cuda += "; a copy to the GPU ended the wait";
    else if (ended_by == CallClass::kLaunch ||
             ended_by == CallClass::kGraphLaunch)
      cuda += "; a kernel launch ended the wait";
    f->timeline.push_back({TimelineLine::Layer::kCuda, at, cuda + "."});
  }

  void Judge(Work& w) {
    const Context context(report_, w.facts);
    const auto rules = Rules();
    const uint32_t pid = report_.processes[w.facts.process].pid;
    const double busy = Ratio(w.facts.busy, w.facts.span);
    // Whether the GPU bounds the program is asked without its start-up.
    Ns start_up;
    for (size_t r = 0; r < rules.size(); ++r)
      if (std::string_view(rules[r]->cause) == "cold-start")
        start_up = w.tallies[r].known;
    const Ns steady = w.facts.span - start_up;
    if (Ratio(w.facts.busy, steady) >= kBoundBusy &&
        Ratio(w.facts.known - start_up, steady) <= kBoundIdle)
      GpuBound(context, w);
    for (size_t r = 0; r < rules.size(); ++r) {
      const Tally& t = w.tallies[r];
      const double known = Ratio(t.known, w.facts.span);
      const double all = Ratio(t.total(), w.facts.span);
      Severity severity = Severity::kInfo;
      if (known >= kLowShare) {
        severity = SeverityOf(known);
        // Much more may have been lost: that is worth a look, not an alarm.
        if (all >= kPossibleLow && busy < kBacklogBusy &&
            w.facts.gpu_utilization < kBacklogBusy)
          severity = std::max(severity, Severity::kMedium);
      } else if (all >= kPossibleLow && busy < kBacklogBusy) {
        // Nothing is proved: never more than MEDIUM, and that only where the
        // GPU was hardly ever known to be busy.
        severity = all >= kPossibleMedium && busy < kBoundIdle &&
                           w.facts.gpu_utilization < kBacklogBusy
                       ? Severity::kMedium
                       : Severity::kLow;
      } else {
        continue;
      }
      const bool unexplained =
          std::string_view(rules[r]->cause) == "unexplained";
      if (unexplained &&
          t.known.value <
              static_cast<double>(w.facts.known.value) * kUnexplainedShare)
        continue;
      Finding f;
      f.cause = rules[r]->cause;
      f.id = f.cause + "/" + std::to_string(pid);
      f.severity = std::min(severity, rules[r]->worst);
      f.pid = pid;
      f.lost = t.known;
      f.lost_at_most = t.total();
      f.base = w.facts.span;
      const Windows windows = WindowsOf(t);
      f.windows = windows.list;
      f.outside_windows = windows.outside;
      f.confidence = known < kLowShare ? Confidence::kLow
                     : unexplained || !report_.complete ||
                             w.UnseenShare() > kUnseenShare
                         ? Confidence::kMedium
                         : Confidence::kHigh;
      if (f.cause == "memory-faults") f.confidence = Confidence::kMedium;
      f.coverage = Coverage(w, t);
      if (!unexplained) Culprits(context, t, &f);
      Timeline(context, r, t, &f);
      rules[r]->describe(context, t, &f);
      if (t.maybe_quota > Ns(0) && r != QuotaRule())
        f.claim += " For up to " + FormatDuration(t.maybe_quota) +
                   " of it the program's CPU quota may be the reason instead: "
                   "this recording does not tell the two apart.";
      if (t.known > Ns(0)) LostTime(w, r, &f);
      CommonEvidence(t, windows.main, &f);
      report_.findings.push_back(std::move(f));
    }
    Symptoms(w);
    for (const ContextRule* rule : ContextRules()) {
      Finding f;
      f.cause = rule->cause;
      f.id = f.cause + "/" + std::to_string(pid);
      f.pid = pid;
      f.base = w.facts.span;
      f.context = true;
      f.confidence = Confidence::kHigh;
      f.coverage = Coverage(w, Tally());
      f.windows.push_back(w.facts.used);
      if (!rule->lacks(report_, w.facts.has_kernel).empty() ||
          !rule->look(context, &f))
        continue;
      CommonEvidence(Tally(), w.facts.used, &f);
      report_.findings.push_back(std::move(f));
    }
  }

  // Known loss, with the rows that it is the sum of where they are all asked
  // about and a short condition names them.
  void LostTime(const Work& w, size_t rule, Finding* f) const {
    const Tally& t = w.tallies[rule];
    AddEvidence(f, "lost_ns", static_cast<double>(t.known.value), "ns",
                FormatDuration(t.known) +
                    " of known starvation is on the critical path with this "
                    "cause.");
    const uint32_t pid = report_.processes[w.facts.process].pid;
    size_t of_this_pid = 0;
    for (const Work& other : work_)
      of_this_pid += report_.processes[other.facts.process].pid == pid;
    if (report_.window.begin > report_.span.begin ||
        report_.window.end < report_.span.end || of_this_pid != 1)
      return;
    const LostTimeQuery::Answer answer = w.query.Sql(rule, pid, t.known);
    if (answer.sql.empty()) return;
    // Texts in SQL have single quotes, so double ones around it read better.
    const bool plain =
        answer.sql.find_first_of("\"$`\\!") == std::string::npos;
    const std::string query =
        "ingero query " +
        (plain ? "\"" + answer.sql + "\"" : ShellWord(answer.sql));
    f->evidence.back().query = query;
    if (answer.others == Ns(0)) return;
    AddEvidence(f, "others_ns", static_cast<double>(answer.others.value), "ns",
                "The query above adds up " + FormatDuration(answer.others) +
                    " more, of the same kind, that other causes account for.");
    f->evidence.back().query = query;
  }

  // ---- where the code was -----------------------------------------------------

  // A cell of the path, and the rule that took most of it.
  struct RuledCell {
    Ns begin, end;
    FuncIndex func;
    CodeSample::State state;
    size_t rule;
  };
  struct CodeTally {
    uint64_t samples = 0;
    std::map<uint32_t, std::map<uint32_t, uint64_t>> lines;  // innermost of it
  };

  static CodeSample::State StateOf(ThreadState state) {
    switch (state) {
      case ThreadState::kRunning:
      case ThreadState::kRunnable:
        return CodeSample::State::kRunning;
      case ThreadState::kSleeping:
        return CodeSample::State::kAsleep;
      case ThreadState::kDisk:
      case ThreadState::kBlocked:
        return CodeSample::State::kBlocked;
      default:
        return CodeSample::State::kUnknown;
    }
  }

  // The window, or pieces of a long one, evenly over it.
  std::vector<Interval> CodeWindows() const {
    const Interval all = report_.window;
    if (all.length() <= kCodePiece * kCodePieces) return {all};
    std::vector<Interval> pieces;
    const Ns step = (all.length() - kCodePiece) / (kCodePieces - 1);
    for (int64_t i = 0; i < kCodePieces; ++i)
      pieces.push_back({all.begin + step * i, all.begin + step * i + kCodePiece});
    return pieces;
  }

  // For each finding with time of threads: the lines that these were at during
  // that time. A sample counts for a cell of its thread that it lies in if it
  // was in the same CUDA call, or in none as well, and in the same state: cells
  // of other kinds may lie within the same 10 ms.
  void WhereCodeWas() {
    if (source_.code_lines().empty()) {
      AskForLines();
      return;
    }
    for (const Work& w : work_) {
      // By rule: of Python, then of native code.
      std::vector<CodeTally> tallies(2 * Rules().size());
      for (const Interval& window : CodeWindows())
        CountCode(w, window, &tallies);
      const uint32_t pid = report_.processes[w.facts.process].pid;
      for (Finding& f : report_.findings) {
        if (f.pid != pid || f.context) continue;
        for (size_t r = 0; r < Rules().size(); ++r) {
          if (f.cause != Rules()[r]->cause) continue;
          const CodeTally& native = tallies[Rules().size() + r];
          f.code_samples = tallies[r].samples;
          f.code = NameLines(tallies[r]);
          f.native_samples = native.samples;
          f.native = NameFiles(native);
        }
      }
    }
    AskForLines();
  }

  // Nobody is told to look for what is shown, or in a way that has just failed.
  void AskForLines() {
    for (Finding& f : report_.findings) {
      if (f.cause != "host-bound" || report_.facts.code_hz == 0) continue;
      const std::vector<TraceFacts::CodeProblem>& unread =
          report_.facts.code_problems;
      f.recommendations.front().text =
          !f.code.empty()
              ? "Move the work at these lines off its thread or behind the "
                "launches of the next step."
          : std::any_of(unread.begin(), unread.end(),
                        [&](const TraceFacts::CodeProblem& p) {
                          return p.process != kNone &&
                                 report_.processes[p.process].pid == f.pid;
                        })
              ? "Find the lines that take it (py-spy, perf; `--where` could "
                "not) and move that work off its thread or behind the "
                "launches of the next step."
              : "Find the lines that take it (few samples were of it: record "
                "for longer, or with more of them, as in --where=200) and move "
                "that work off its thread or behind the launches of the next "
                "step.";
    }
  }

  void CountCode(const Work& w, Interval window,
                 std::vector<CodeTally>* tallies) const {
    const Context context(report_, w.facts);
    std::map<ThreadIndex, std::vector<RuledCell>> by_thread;
    Part part(window);
    part.process = w.facts.process;
    auto cells = source_.Paths(part);
    for (PathCell cell; cells->Next(&cell);) {
      if (cell.thread >= report_.threads.size() || cell.time <= Ns(0)) continue;
      size_t rule = 0;
      Ns most;
      ForTaken(context, cell, [&](size_t r, Ns taken) {
        if (taken <= most) return;
        most = taken;
        rule = r;
      });
      if (most <= Ns(0)) continue;
      by_thread[cell.thread].push_back({cell.range.begin, cell.range.end,
                                        cell.func, StateOf(cell.state), rule});
    }
    std::set<ProcessIndex> processes;
    for (auto& [thread, list] : by_thread) {
      processes.insert(report_.threads[thread].process);
      std::stable_sort(list.begin(), list.end(),
                       [](const RuledCell& a, const RuledCell& b) {
                         return a.begin < b.begin;
                       });
    }
    for (const ProcessIndex process : processes) {
      if (process >= report_.processes.size()) continue;
      auto samples = source_.CodeSamples(process, window);
      for (CodeSample s; samples->Next(&s);) {
        const auto of_thread = by_thread.find(s.thread);
        if (of_thread == by_thread.end()) continue;
        const std::vector<RuledCell>& list = of_thread->second;
        auto after = std::upper_bound(
            list.begin(), list.end(), s.t,
            [](Ns t, const RuledCell& cell) { return t < cell.begin; });
        // No cell is longer than kCellLength, but for clipping.
        std::set<size_t> rules;
        for (; after != list.begin() &&
               std::prev(after)->begin + kCellLength > s.t;
             --after) {
          const RuledCell& cell = *std::prev(after);
          if (s.t < cell.end && s.func == cell.func &&
              (s.state == cell.state ||
               s.state == CodeSample::State::kUnknown ||
               cell.state == CodeSample::State::kUnknown))
            rules.insert(cell.rule);
        }
        for (const size_t r : rules) {
          CodeTally& tally =
              (*tallies)[r + (s.native ? Rules().size() : 0)];
          ++tally.samples;
          ++tally.lines[s.line][s.innermost];
        }
      }
    }
  }

  // Of native code: files, and in which function of each most of it was.
  std::vector<CodeAt> NameFiles(const CodeTally& tally) const {
    std::vector<CodeAt> named;
    if (tally.samples < kLeastCodeSamples) return named;
    const std::vector<CodeLine>& lines = source_.code_lines();
    std::map<std::string, CodeAt> files;
    std::map<std::string, uint64_t> most;
    for (const auto& [line, innermost] : tally.lines) {
      uint64_t count = 0;
      for (const auto& [inner, samples] : innermost) count += samples;
      CodeAt& at = files[lines[line].file];
      at.file = lines[line].file;
      at.samples += count;
      if (count <= most[at.file]) continue;
      most[at.file] = count;
      at.function = lines[line].function;
    }
    for (auto& [file, at] : files) {
      at.share = static_cast<double>(at.samples) /
                 static_cast<double>(tally.samples);
      if (most[file] * 2 < at.samples) at.function.clear();
      if (at.share >= kLeastCodeShare) named.push_back(std::move(at));
    }
    return MostFirst(std::move(named));
  }

  std::vector<CodeAt> NameLines(const CodeTally& tally) const {
    std::vector<CodeAt> named;
    if (tally.samples < kLeastCodeSamples) return named;
    const std::vector<CodeLine>& lines = source_.code_lines();
    for (const auto& [line, innermost] : tally.lines) {
      CodeAt at;
      at.file = lines[line].file;
      at.function = lines[line].function;
      at.line = lines[line].line;
      uint64_t most = 0;
      uint32_t within = line;
      for (const auto& [inner, count] : innermost) {
        at.samples += count;
        if (count <= most) continue;
        most = count;
        within = inner;
      }
      at.share = static_cast<double>(at.samples) /
                 static_cast<double>(tally.samples);
      if (within != line && most * 2 > at.samples)
        at.within = CodeName(lines[within].file, lines[within].line,
                             lines[within].function);
      if (at.share >= kLeastCodeShare) named.push_back(std::move(at));
    }
    return MostFirst(std::move(named));
  }

  static std::vector<CodeAt> MostFirst(std::vector<CodeAt> named) {
    std::stable_sort(named.begin(), named.end(),
                     [](const CodeAt& a, const CodeAt& b) {
                       return a.samples > b.samples;
                     });
    if (named.size() > kMostCodeLines) named.resize(kMostCodeLines);
    return named;
  }

  void CommonEvidence(const Tally& t, Interval window, Finding* f) const {
    const Ns possible = t.possible - t.maybe_quota;
    if (possible > Ns(0))
      AddEvidence(f, "possible_ns", static_cast<double>(possible.value), "ns",
                  FormatDuration(possible) +
                      (t.known > Ns(0) ? " more" : "") +
                      ", during which it is not known whether the GPU still "
                      "had work.");
    if (!t.syscalls.empty()) {
      const auto top = Sorted(t.syscalls)[0];
      AddEvidence(f, "asleep_ns", static_cast<double>(top.second.value), "ns",
                  FormatDuration(top.second) + " asleep in " +
                      SyscallName(top.first) + ".");
    }
    const std::string dump =
        "ingero dump " +
        (report_.facts.store_path.empty()
             ? "DB"
             : ShellWord(report_.facts.store_path)) +
        " --table path --from " + Seconds(window.begin - report_.span.begin) +
        " --to " + Seconds(window.end - report_.span.begin);
    bool first = true;
    for (Evidence& e : f->evidence) {
      if (e.window.empty()) e.window = window;
      if (!e.query.empty()) continue;
      e.query = first ? ExplainQuery(window, f->pid) : dump;
      first = false;
    }
  }

  // Said once for a process, however many findings it has.
  void OfProcess(const Work& w) {
    const uint32_t pid = report_.processes[w.facts.process].pid;
    Account a;
    a.process = w.facts.process;
    a.starved = w.facts.known;
    a.unseen = w.facts.unseen;
    a.held_by_ingero.assign(w.held_by_ingero.begin(), w.held_by_ingero.end());
    std::stable_sort(
        a.held_by_ingero.begin(), a.held_by_ingero.end(),
        [](const auto& x, const auto& y) { return x.second > y.second; });
    for (const auto& [process, time] : a.held_by_ingero)
      a.waited_for_ingero += time;
    const auto rules = Rules();
    for (size_t r = 0; r + 1 < rules.size(); ++r) a.below += w.tallies[r].known;
    a.unexplained = a.starved - a.below;
    Finding* top = nullptr;
    for (Finding& f : report_.findings) {
      if (f.pid != pid) continue;
      if (top == nullptr) top = &f;
      if (f.lost <= Ns(0) || f.cause == rules.back()->cause) continue;
      a.causes.push_back({f.cause, f.lost});
      a.below -= f.lost;
    }
    report_.accounts.push_back(std::move(a));
    if (top == nullptr || w.facts.gpu_utilization < 0) return;
    AddEvidence(top, "gpu_utilization", w.facts.gpu_utilization, "ratio",
                "The driver measured a GPU utilisation of " +
                    FormatPercent(w.facts.gpu_utilization) +
                    " on average while the program used it.");
    Evidence& added = top->evidence.back();
    added.window = w.facts.used;
    added.query = ExplainQuery(w.facts.used, pid);
  }

  std::string Coverage(const Work& w, const Tally& t) const {
    std::string out;
    const auto add = [&out](const std::string& text) {
      if (!out.empty()) out += "; ";
      out += text;
    };
    if (!w.facts.has_kernel) add("no scheduling data (no kernel stream)");
    if (w.facts.unscheduled > Ns(0))
      add("no scheduling data for " + FormatDuration(w.facts.unscheduled) +
          " of it");
    if (w.facts.unseen > Ns(0))
      add("unknown for " + FormatDuration(w.facts.unseen) +
          " of the starved time, " +
          (t.unseen > Ns(0) ? FormatDuration(t.unseen) : "none") +
          " of it in this finding");
    if (!report_.complete) {
      uint64_t lost = 0;
      for (const Loss& loss : report_.losses)
        if (loss.severity >= 2) lost += loss.count;
      add("incomplete: " + FormatCount(lost) +
          (lost == 1 ? " event was" : " events were") +
          " lost in this window");
    }
    return out.empty() ? "complete" : out;
  }

  void GpuBound(const Context& context, const Work& w) {
    Finding f;
    f.cause = "gpu-bound";
    f.pid = report_.processes[w.facts.process].pid;
    f.id = f.cause + "/" + std::to_string(f.pid);
    f.base = w.facts.span;
    f.severity = Severity::kInfo;
    const std::string peer_kernel = PeerKernel(w.facts.process);
    f.claim =
        std::string(peer_kernel.empty() ? "GPU-bound, not starved: "
                                        : "GPU busy, not starved by its host: ") +
        context.ProcessName(w.facts.process) +
        " had work on the GPU for at least " + context.Share(w.facts.busy) +
        ". Slow synchronisations and launches are the host waiting for it.";
    if (!peer_kernel.empty())
      f.claim += " Some of that work waits for other GPUs (" + peer_kernel +
                 "): whether the GPU computed or waited for a late peer is not "
                 "known.";
    f.confidence = report_.complete && peer_kernel.empty()
                       ? Confidence::kHigh
                       : Confidence::kMedium;
    f.coverage = Coverage(w, Tally());
    f.windows.push_back(w.facts.used);
    f.timeline.push_back(
        {TimelineLine::Layer::kCuda, w.facts.used.begin - report_.window.begin,
         "The host waited in a synchronisation, or for a place in the full "
         "launch queue, for " +
             FormatDuration(w.facts.busy) + "."});
    AddEvidence(&f, "known_busy_ns", static_cast<double>(w.facts.busy.value),
                "ns",
                FormatDuration(w.facts.busy) +
                    " in which a call waited for work that was on the GPU.");
    if (!peer_kernel.empty())
      Recommend(&f,
                "Look at the other ranks first (`ingero explain "
                "--per-process`; on other hosts, record there too): one whose "
                "GPU is starved makes all others wait.",
                Ns(0));
    Recommend(&f,
              "Speed up the GPU work itself: profile kernels (Nsight), use "
              "lower precision, fuse. The host is fast enough.",
              Ns(0));
    CommonEvidence(Tally(), w.facts.used, &f);
    report_.findings.push_back(std::move(f));
  }

  // Without its arguments, also where a long name was shortened in them.
  std::string PeerKernel(ProcessIndex p) const {
    const std::string& name = report_.processes[p].peer_kernel;
    return name.substr(0, std::min(name.find('('), name.find("..")));
  }

  // Slow operations are what the user noticed; they hang on the top finding.
  void Symptoms(const Work& w) {
    Finding* top = nullptr;
    const uint32_t pid = report_.processes[w.facts.process].pid;
    for (Finding& f : report_.findings)
      if (f.pid == pid &&
          (top == nullptr || (top->cause != "gpu-bound" && f.lost > top->lost)))
        top = &f;
    if (top == nullptr) return;
    for (const Operation& o : report_.operations) {
      if (o.process != w.facts.process || !HasLongTail(report_, o)) continue;
      top->symptoms.push_back(TailText(report_, o));
      if (top->symptoms.size() == 5) break;
    }
  }

  // What needs what was not recorded, unless it was found all the same.
  void NotEvaluatedWithout(std::string_view skipped, const std::string& why,
                           std::initializer_list<const char*> causes) {
    if (std::none_of(skipped_probes_.begin(), skipped_probes_.end(),
                     [&](const std::string& probe) {
                       return probe.starts_with(skipped);
                     }))
      return;
    const auto has = [](const auto& list, const char* cause) {
      return std::any_of(list.begin(), list.end(),
                         [&](const auto& x) { return x.cause == cause; });
    };
    for (const char* cause : causes)
      if (!has(report_.findings, cause) && !has(report_.not_evaluated, cause))
        report_.not_evaluated.push_back({cause, why});
  }

  void NotEvaluatedRules() {
    bool kernel = false;
    for (Interval span : source_.trace().kernel_spans())
      kernel = kernel || span.Overlaps(report_.window);
    for (const Rule* rule : Rules()) {
      if (std::string_view(rule->cause) == "memory-faults" && kernel &&
          report_.facts.page_cost <= Ns(0)) {
        report_.not_evaluated.push_back(
            {rule->cause, "the cost of a page was not measured"});
        continue;
      }
      if (rule->needs_kernel && !kernel)
        report_.not_evaluated.push_back({rule->cause, NoScheduling(report_)});
    }
    if (work_.empty())
      report_.not_evaluated.push_back(
          {"gpu-bound", "no GPU work was recorded in this window"});
    bool quota_found = false;
    for (const Finding& f : report_.findings)
      quota_found = quota_found || f.cause == "cgroup-quota";
    const bool ours = recorder_ == "ingero-kprobe";
    if (kernel && !report_.quota_told_apart && !quota_found)
      report_.not_evaluated.push_back(
          {"cgroup-quota",
           std::string("the recording does not say how long each wait for a "
                       "CPU was due to a quota (this needs ") +
               (ours ? "a newer kernel, or a newer ingero-kprobe)"
                     : "ingero-kprobe)")});
    if (kernel && !report_.memory_stalls_recorded)
      report_.not_evaluated.push_back(
          {"reclaim-swap",
           std::string("the recording does not say when threads had to make "
                       "room in memory (this needs ") +
               (ours ? "a newer ingero-kprobe, or its probes were skipped)"
                     : "ingero-kprobe)")});
    // Without it no thread is seen to wait for a CPU after a sleep, and nobody
    // to have woken it.
    NotEvaluatedWithout("sched_waking:", "who woke whom was not recorded",
                        {"cpu-other-process", "cpu-oversubscribed",
                         "lazy-load-stall", "loader-oversubscribed",
                         "lock-held", "slow-wakeup", "upstream-wait"});
    // Of another recorder: when threads were woken, but not by whom.
    NotEvaluatedWithout("call chains:",
                        "who woke whom, and in what threads slept, was not "
                        "recorded",
                        {"idle-by-choice", "lazy-load-stall",
                         "loader-cpu-bound", "loader-oversubscribed",
                         "lock-held", "storage-bound", "upstream-wait"});
    for (const ContextRule* rule : ContextRules())
      if (std::string why = rule->lacks(report_, kernel); !why.empty())
        report_.not_evaluated.push_back({rule->cause, std::move(why)});
  }

  void SortFindings() {
    // "Not starved" goes before what else there is to say of its process, but
    // not before a worse fate of another one.
    std::map<uint32_t, Severity> worst;
    for (const Finding& f : report_.findings) {
      const auto [it, added] = worst.emplace(f.pid, f.severity);
      if (!added) it->second = std::max(it->second, f.severity);
    }
    const auto key = [&worst](const Finding& f) {
      const bool bound = f.cause == "gpu-bound";
      // Severity is a share of lost time; capped where the time is paid once
      // or only possible.
      return std::make_tuple(bound ? worst[f.pid] : f.severity, bound, f.lost,
                             f.lost_at_most);
    };
    std::stable_sort(report_.findings.begin(), report_.findings.end(),
                     [&key](const Finding& a, const Finding& b) {
                       return key(a) > key(b);
                     });
    LeadFeeding();
  }

  // The process that the first finding is about comes first; without one, that
  // which used the GPU for longest (they are sorted so).
  void LeadFeeding() {
    if (report_.findings.empty() || report_.findings[0].context) return;
    std::stable_partition(report_.feeding.begin(), report_.feeding.end(),
                          [this](const Feeding& x) {
                            return report_.processes[x.process].pid ==
                                   report_.findings[0].pid;
                          });
  }

  void Verdict() {
    if (report_.feeding.empty()) {
      report_.verdict =
          options_.pid
              ? "No GPU work of process " + std::to_string(*options_.pid) +
                    " in this window."
              : "No GPU work was recorded in this window, so there is nothing "
                "to judge.";
      if (!report_.complete)
        report_.verdict += " Data were lost: whether there was any is not known.";
      return;
    }
    Feeding f = report_.feeding.front();
    for (size_t i = 1; i < report_.feeding.size(); ++i) {
      const Feeding& other = report_.feeding[i];
      if (other.process != f.process) continue;
      f.span += other.span;
      f.idle_at_least += other.idle_at_least;
      f.idle_at_most += other.idle_at_most;
      f.known_busy += other.known_busy;
    }
    ProcessFacts facts;
    facts.process = f.process;
    const Context context(report_, facts);
    const uint32_t pid = report_.processes[f.process].pid;
    const Finding* top = nullptr;
    for (const Finding& x : report_.findings)
      if (x.pid == pid && !x.context) {
        top = &x;
        break;
      }
    if (top && top->cause == "gpu-bound") {
      report_.verdict = top->claim;
      return;
    }
    std::string text = "GPU starved " + FormatDuration(f.idle_at_least) +
                       " of " + FormatDuration(f.span);
    if (FormatDuration(f.idle_at_most) != FormatDuration(f.idle_at_least))
      text = "GPU starved at least " + FormatDuration(f.idle_at_least) +
             " and at most " + FormatDuration(f.idle_at_most) + " of " +
             FormatDuration(f.span);
    report_.verdict = text + ". ";
    if (top)
      report_.verdict += top->claim;
    else if (Ratio(f.idle_at_most, f.span) >= kPossibleLow &&
             Ratio(f.known_busy, f.span) < kBacklogBusy)
      report_.verdict +=
          "No cause is known to have cost 1 % or more of the time, but for much "
          "of it nobody asked whether the GPU had work.";
    else if (Ratio(f.idle_at_least, f.span) < kMediumShare)
      report_.verdict += "Healthy: no cause cost 1 % or more of the time.";
    else
      report_.verdict += "No single cause cost 1 % or more of the time.";
  }

  const ReportSource& source_;
  const ReportOptions& options_;
  Report report_;
  std::set<std::string> skipped_probes_;
  std::string recorder_ = "ingero-kprobe";  // of the scheduler
  std::vector<Work> work_;
  bool by_second_ = false;
  Ns bucket_ = kBucket;  // of Tally::buckets
  std::map<ProcessIndex, Interval> used_;
  std::map<ProcessIndex, Ns> unscheduled_;
  std::vector<TimeSink*> sinks_;
};

}  // namespace

std::string CodeName(const std::string& file, uint32_t line,
                     const std::string& function) {
  std::string name = SanitizeForTerminal(
      file.substr(file.find_last_of('/') + 1), 128);
  if (line != 0) name += ":" + std::to_string(line);
  if (!function.empty() && function != "<module>")
    name += " in " + SanitizeForTerminal(function, 128);
  return name;
}

std::string CodeText(const Finding& finding) {
  std::string text;
  for (const CodeAt& at : finding.code) {
    const bool first = text.empty();
    text += (first ? "at " : "; ") +
            CodeName(at.file, at.line, at.function) + " (" +
            FormatPercent(at.share);
    if (first) text += " of " + FormatCount(finding.code_samples) + " samples";
    if (!at.within.empty()) text += ", mostly within " + at.within;
    text += ")";
  }
  bool first = true;
  for (const CodeAt& at : finding.native) {
    text += (!first ? "; " : text.empty() ? "native code: " : "; native code: ") +
            CodeName(at.file, 0, at.function) + " (" + FormatPercent(at.share);
    if (first)
      text += " of " + FormatCount(finding.native_samples) +
              " samples on a CPU";
    text += ")";
    first = false;
  }
  return text;
}

std::vector<std::string> FoldedCoverage(
    const std::vector<CoverageFact>& facts) {
  constexpr size_t kNamed = 4;
  struct Group {
    std::string before, after;  // what is said around the name
    std::vector<std::string> names;
  };
  std::vector<Group> groups;
  for (const CoverageFact& fact : facts) {
    const size_t at =
        fact.name.empty() ? fact.text.npos : fact.text.find(fact.name);
    Group said{fact.text, "", {}};
    if (at != fact.text.npos)
      said = {fact.text.substr(0, at),
              fact.text.substr(at + fact.name.size()),
              {fact.name}};
    const auto same =
        std::find_if(groups.begin(), groups.end(), [&](const Group& g) {
          return g.names.empty() == said.names.empty() &&
                 g.before == said.before && g.after == said.after;
        });
    if (same == groups.end())
      groups.push_back(std::move(said));
    else if (!said.names.empty())
      same->names.push_back(fact.name);
  }
  std::vector<std::string> texts;
  for (const Group& g : groups) {
    std::string names;
    const size_t shown = g.names.size() > kNamed + 1 ? kNamed : g.names.size();
    for (size_t i = 0; i < shown; ++i)
      names += (i == 0                    ? ""
                : i + 1 == g.names.size() ? " and "
                                          : ", ") +
               g.names[i];
    if (shown < g.names.size())
      names += " and " + std::to_string(g.names.size() - shown) + " more";
    texts.push_back(g.before + names + g.after);
  }
  return texts;
}

Report BuildReport(const ReportSource& source, const ReportOptions& options) {
  return Builder(source, options).Build();
}

}  // namespace ingero::analysis
