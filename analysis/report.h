// SPDX-License-Identifier: Apache-2.0
// The answer as data: what `ingero explain` prints as text and JSON, and what
// every other front end will print. Facts with units; words in `claim`,
// `text` and timeline lines are complete sentences, made once, here.
//
// The JSON form is docs/explain.schema.json; names there are these names.
#ifndef INGERO_ANALYSIS_REPORT_H_
#define INGERO_ANALYSIS_REPORT_H_

#include <map>

#include "analysis/attribution.h"
#include "analysis/trace.h"
#include "base/histogram.h"

namespace ingero::analysis {

// Share of the process' GPU span in the window that was lost for certain:
// HIGH >= 20 %, MEDIUM >= 5 %, LOW >= 1 %, INFO below, or nothing lost. Only
// possible loss is at most MEDIUM (docs/rules.md).
enum class Severity : uint8_t { kInfo, kLow, kMedium, kHigh };

// A program: a process, or all that have one name.
struct Culprit {
  uint32_t pid = 0;  // of the process with the most time
  Ns start;
  std::string name;  // "stress/2255", "2 stress processes (2255, 2257)"
  double share = 0;  // of the finding's lost time
  Ns time;
};

struct TimelineLine {
  enum class Layer : uint8_t { kSystem, kHost, kCuda } layer;
  Ns at;             // relative to the window's begin
  std::string text;  // one sentence
};

struct Evidence {
  std::string text;  // "main thread asleep 31.0 s of 38.2 s starved"
  std::string name;  // machine name: "asleep_ns"
  double value = 0;
  std::string unit;  // "ns", "count", "ratio", "bytes"
  Interval window;
  std::string query;  // command that shows the rows behind it
};

struct Recommendation {
  std::string text;
  Ns gain;  // at most, from the attribution; 0 = not known
};

enum class Confidence : uint8_t { kLow, kMedium, kHigh };

// Where the threads of a finding were in their code.
struct CodeAt {
  std::string file, function;
  uint32_t line = 0;  // 0 = not known
  uint64_t samples = 0;
  double share = 0;  // of the finding's samples
  // What it was in from there, for most of these: "queue.py:171 in get"; "" =
  // at that line itself.
  std::string within;
};

struct Finding {
  std::string id;     // "<cause>/<pid>": stable within a trace
  std::string cause;  // kebab-case, DESIGN "Cause ids"
  Severity severity = Severity::kInfo;
  std::string claim;  // one or two sentences with numbers
  uint32_t pid = 0;
  Ns lost;          // known starved time attributed to this cause
  Ns lost_at_most;  // plus what may have been starved
  Ns base;  // GPU span of the process, over its devices: what `lost` is of
  // Where most of it happened, by time; and what was lost outside of them.
  std::vector<Interval> windows;
  Ns outside_windows;
  std::vector<TimelineLine> timeline;
  std::vector<Culprit> culprits;
  std::vector<Evidence> evidence;
  std::vector<Recommendation> recommendations;
  std::vector<std::string> symptoms;  // slow operations that follow from it
  // Of threads whose time this is, while it was: most first, a few.
  std::vector<CodeAt> code;
  uint64_t code_samples = 0;  // in all
  // Functions of native code, likewise, of the samples on a CPU; line = 0.
  std::vector<CodeAt> native;
  uint64_t native_samples = 0;
  Confidence confidence = Confidence::kMedium;
  std::string coverage;  // "complete", or what is missing
  // A fact to know beside the causes: no time is attributed to it.
  bool context = false;
};

// Whose the starved time of one process was: the parts sum to `starved`.
struct Account {
  ProcessIndex process = kNone;
  Ns starved;       // for certain, over its devices
  Ns below;         // by causes too small for a finding
  Ns unexplained;   // by no cause
  std::vector<std::pair<std::string, Ns>> causes;  // with a finding, its order
  // Of all that was or may have been starved: what the threads did, or who held
  // the CPU they waited for, is not known: context switches were not seen.
  Ns unseen;
  // Waiting for a CPU that ingero's own processes held; blamed on nobody. By
  // whom it was held, the longest first; the parts sum to it.
  Ns waited_for_ingero;
  std::vector<std::pair<ProcessIndex, Ns>> held_by_ingero;
};

struct NotEvaluated {
  std::string cause;
  std::string why;
};

// Per process and device.
struct Feeding {
  ProcessIndex process = kNone;
  uint32_t device = 0;
  Ns span;
  Ns idle_at_least;  // kIdle + kHostCopy + kColdStart
  Ns idle_at_most;   // idle_at_least + kUnknown
  Ns known_busy;
  Ns cold_start;  // part of idle_at_least
  Ns host_copy;   // part of idle_at_least
};

struct Operation {
  FuncIndex func = kNone;
  ProcessIndex process = kNone;
  uint64_t count = 0;  // first uses excluded, as in all figures below
  Ns total, average, p50, p95, p99, max;
  uint64_t first_uses = 0;
  Ns first_use_time;
  uint64_t errors = 0;
  uint64_t bytes = 0;
  double wall_share = 0;  // outermost time over the window's length
};

// An operation with a long tail, and what the threads of its slow calls did
// meanwhile. The ratio is what one notices; it proves nothing.
struct Chain {
  ProcessIndex process = kNone;
  FuncIndex func = kNone;
  Severity severity = Severity::kInfo;  // of the process's first finding
  std::string cause;                    // likewise; "" = it has none
  Ns p50, p99;
  double ratio = 0;
  bool split_known = false;  // scheduling was recorded
  // Of calls as long as p99, or longer, that left the CPU; first uses are not
  // among them. The parts sum to `time`.
  uint64_t calls = 0;
  Ns time, running, runnable, sleeping, io, unknown;
  ThreadIndex holder = kNone;  // had the CPU for most of `runnable`
  ThreadIndex waker = kNone;   // ended most of `sleeping`
  std::string text;            // all of it, as one paragraph
};

struct ProcessActivity {
  ProcessIndex process = kNone;
  std::string role;  // "main", "worker", "other", "ingero"
  uint64_t calls = 0;
  uint64_t preempted = 0, slept = 0, yielded = 0;  // context switches by kind
  Ns running, runnable, sleeping, io;
  Ns kernel;  // part of running; sampled by the kernel's tick, 0 = not known
  Ns average_off_cpu, worst_off_cpu;
  uint64_t pages = 0;
  uint64_t min_faults = 0, maj_faults = 0;
};

// Summaries the store keeps per second, over the asked window.
struct Summaries {
  std::vector<Operation> operations;
  std::vector<ProcessActivity> activities;  // role empty
};

// How the calls of a process were seen, as a sentence.
struct CoverageFact {
  ProcessIndex process = kNone;  // kNone: about the recording as a whole
  std::string text;
  std::string name = {};  // the process, as `text` has it
};
// A sentence for those processes of which the same is to be said.
std::vector<std::string> FoldedCoverage(const std::vector<CoverageFact>& facts);

// Facts about the recording that the analysis only passes on.
struct TraceFacts {
  std::string host, boot_id, tool_version, store_path;
  int64_t wall_clock_at_span_begin_ns = 0;  // CLOCK_REALTIME, 0 = not known
  uint32_t cpus = 0;                        // online, 0 = not known
  Ns clock_error;                           // bound, worst stream
  Ns page_cost;                             // per page, 0 = not measured
  uint64_t events = 0;
  Ns tracing_cost;    // time that the shim took from the program
  Ns companion_cost;  // that the companion's probes took, of all CPUs together
  uint32_t code_hz = 0;  // looks a second at where code is; 0 = not sampled
  uint64_t code_samples = 0;
  Ns code_cost;  // CPU time of the sampler
  struct CodeProblem {
    ProcessIndex process = kNone;  // the first that has it
    std::string text;              // why its code was not looked at
  };
  std::vector<CodeProblem> code_problems;
  std::optional<Ns> code_cut;  // where the sampler's stream ends too early
  uint64_t switches = 0;
  std::vector<std::string> streams;  // one sentence each
  std::vector<CoverageFact> coverage;
  std::vector<std::string> missing;  // what was not recorded, and so ...
  std::string scope;  // whose scheduling was recorded; "" = everybody's
  std::vector<std::string> system;  // what samples of the system say
};

// A cgroup with a CPU quota, or below one.
struct CpuCgroup {
  uint64_t id = 0;
  uint64_t above = 0;  // id of the nearest one above with a quota; 0 = none
  std::string path;
  Ns quota, period;  // CPU time in each period; 0 = no quota of its own
  // Within the window and a sample's distance around it. A period counts as
  // throttled if the quota did not last; the time is summed over CPUs.
  uint64_t periods = 0, throttled_periods = 0, throttled_ns = 0;
};

// What NVML said of a GPU's clock in the window.
struct GpuClock {
  uint64_t samples = 0;
  uint64_t most_mhz = 0;
  // Where a limit of power or temperature held the clock back.
  uint64_t held = 0, held_mhz_sum = 0, reasons = 0;
};

// A process that NVML saw on a GPU.
struct GpuProcess {
  uint64_t bytes = 0;  // most; all ones = not told
  std::vector<Ns> seen;  // when it was sampled there, by time
  std::string gpu;
};

// What one part of the time took more (or less) than usual: a cause, "gpu-busy"
// or "not-known" (work was submitted and nobody asked since).
struct Extra {
  std::string part;
  Ns time;
};

struct SlowStep {
  uint64_t number = 0;  // from 1, in the window
  Interval range;
  std::vector<Extra> extra;  // most first
};

// A program with a period: its steps in the window, whole ones only.
struct StepSummary {
  ProcessIndex process = kNone;
  ThreadIndex thread = kNone;
  FuncIndex func = kNone;    // bounds a step,
  uint32_t every = 1;        // each so many times
  uint64_t submissions = 0;  // of a usual step
  uint64_t count = 0;
  Interval range;  // first to last mark
  Ns p50, p95, max;
  // Over all steps and devices; they sum to range times devices, but for what
  // lies before the first or after the last GPU work.
  Ns starved, not_known, busy;
  // Those that took longer than kSlowStep times the median, and what took
  // longer in them than in the others.
  uint64_t slow = 0;
  Ns slow_beyond;  // their time beyond the median
  std::vector<Extra> slow_extra;
  std::vector<SlowStep> slowest;  // by falling duration
  std::string text;               // all of it, as sentences
};
inline constexpr double kSlowStep = 1.5;

struct Report {
  Interval window;  // asked, clipped to the span
  Interval span;
  bool complete = true;  // no data-loss row touches the window
  TraceFacts facts;
  // Copies of the trace's tables, so that indices can be resolved.
  std::vector<Process> processes;
  std::vector<Thread> threads;
  std::vector<Function> functions;
  std::vector<Loss> losses;  // touching the window
  std::vector<Feeding> feeding;
  std::vector<Operation> operations;  // most total time first
  std::vector<ProcessActivity> activities;
  std::vector<Finding> findings;  // most lost time first
  std::vector<Account> accounts;  // one for each process of `feeding`
  std::vector<StepSummary> steps;  // of processes with a period
  std::vector<Chain> chains;       // if asked for; worst ratio first
  std::vector<NotEvaluated> not_evaluated;
  std::string verdict;  // one or two sentences: the answer
  // By process: what taking a page cost it. 0 = not known. See PageCosts().
  std::vector<Ns> page_costs;
  std::map<uint64_t, CpuCgroup> cpu_cgroups;  // by id
  std::map<uint64_t, GpuClock> gpu_clocks;
  std::map<uint64_t, GpuProcess> gpu_processes;  // by pid
  uint64_t gpu_process_samples = 0;
  // Each wait for a CPU says how much of it was due to a CPU quota.
  bool quota_told_apart = false;
  // Reclaim or compaction that a thread had to do itself is in the recording.
  bool memory_stalls_recorded = false;
};

// A line of code of the program, as it was sampled.
struct CodeLine {
  std::string file, function;
  uint32_t line = 0;  // 0 = not known
  bool user = false;  // not of Python itself nor of an installed package
};

// Where a thread was in its code at a moment.
struct CodeSample {
  // As the kernel said just then. kRunning: or waiting for a CPU.
  enum class State : uint8_t { kUnknown, kRunning, kAsleep, kBlocked };
  Ns t;
  ThreadIndex thread = kNone;
  uint32_t line = 0;       // of ReportSource::code_lines(): the user's own
  uint32_t innermost = 0;  // likewise: where it was
  FuncIndex func = kNone;  // outermost CUDA call that it was in
  State state = State::kUnknown;
  bool native = false;
};

// Which of the stored results to give.
struct Part {
  Part(Interval window) : window(window) {}  // NOLINT(google-explicit-*)
  Interval window;
  ProcessIndex process = kNone;  // kNone: of all
  // Whole seconds of the window as a row a second and kind, where the store
  // has such: the same sums in fewer rows.
  bool by_second = false;
};

// What BuildReport reads: the trace, plus what attribution stored. Rows that
// straddle the window's edge are clipped in proportion by the callee.
class ReportSource {
 public:
  virtual ~ReportSource() = default;
  virtual const TraceSource& trace() const = 0;
  virtual TraceFacts facts() const = 0;
  virtual std::unique_ptr<Cursor<FeedInterval>> Feeds(
      const Part& part) const = 0;
  virtual std::unique_ptr<Cursor<PathCell>> Paths(const Part& part) const = 0;
  virtual std::unique_ptr<Cursor<CallSplit>> Splits(const Part& part) const = 0;
  virtual std::unique_ptr<Cursor<StepMark>> Steps(ProcessIndex process,
                                                  Interval window) const = 0;
  virtual Summaries Summarize(Interval window) const = 0;
  // Where code was sampled; else none.
  virtual const std::vector<CodeLine>& code_lines() const {
    static const std::vector<CodeLine> kNoLines;
    return kNoLines;
  }
  // By time. REQUIRES: there are code_lines().
  virtual std::unique_ptr<Cursor<CodeSample>> CodeSamples(
      ProcessIndex /*process*/, Interval /*window*/) const {
    return nullptr;
  }
};

// Sees the window's time as it is judged, for statistics of its parts.
class TimeSink {
 public:
  virtual ~TimeSink() = default;
  virtual void OnFeed(const FeedInterval& feed) = 0;
  // `cause` takes `time` of the cell.
  virtual void OnCause(const PathCell& cell, const char* cause, Ns time) = 0;
};

struct ReportOptions {
  std::optional<Interval> window;  // default: the whole span
  std::optional<uint32_t> pid;     // only this process (and its workers)
  std::vector<uint32_t> pids;      // only these; empty: all
  TimeSink* sink = nullptr;
  bool chains = false;  // reads every split of the window
};

// "train.py:214 in train_step": the last part of the file's name alone, made
// harmless.
std::string CodeName(const std::string& file, uint32_t line,
                     const std::string& function);
// "at train.py:214 in train_step (62 % of 310 samples); ...": where threads
// were, no cause. "" = not sampled, or too seldom.
std::string CodeText(const Finding& finding);

Report BuildReport(const ReportSource& source, const ReportOptions& options);

}  // namespace ingero::analysis

#endif  // INGERO_ANALYSIS_REPORT_H_
