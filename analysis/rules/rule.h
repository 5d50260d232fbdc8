// SPDX-License-Identifier: Apache-2.0
// A rule takes starved time from the critical path and says what it means.
//
// To add one: a file in this folder, a line in registry.cc, a section in
// docs/rules.md, two folders in tests/analysis/golden (firing, near-miss).
//
// Rules are asked in the order of registry.cc. Each takes nanoseconds of a
// cell that no rule before it took, so every nanosecond has one cause. A rule
// must not look at counts or at how often something happened: only at whose
// time it was.
#ifndef INGERO_ANALYSIS_RULES_RULE_H_
#define INGERO_ANALYSIS_RULES_RULE_H_

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "analysis/report.h"

namespace ingero::analysis {

// A call in which `waiter` slept until another thread woke it that loaded code
// for the GPU meanwhile.
struct Stall {
  Interval range;
  ThreadIndex waiter = kNone;
  FuncIndex func = kNone;
};

// Intervals, which may overlap.
class Ranges {
 public:
  void Add(Interval range) { ranges_.push_back(range); }
  // After the last one.
  void Sort();
  // How long they last within `window`, all together: in a time that those
  // before and after it do not add to.
  Ns Within(Interval window) const;

 private:
  std::vector<Interval> ranges_;  // by begin
  std::vector<Ns> reach_;         // latest end so far
};

// All loader processes of a name ended, and new ones were started.
struct Replacements {
  size_t count = 0;
  std::string name;
  std::set<ProcessIndex> workers;
  Ranges ranges;  // from one's end or birth to the next's
};

// One starved process, before the rules are asked.
struct ProcessFacts {
  ProcessIndex process = kNone;
  Ns span;      // feeding spans of its devices in the window, summed
  Ns busy;      // known, of the same
  Ns known;     // starved for certain: path cells of certainty kKnown
  Ns possible;  // path cells of certainty kPossible
  std::set<ProcessIndex> on_path;  // processes that the path runs through
  std::vector<ProcessIndex> above;  // that use CUDA, and it descends from
  // Nearest first: its parents without CUDA as long as they run the same file.
  // They hand work to it (a server's front end, a launcher of ranks).
  std::vector<ProcessIndex> launchers;
  // By process: whether it descends from this one. Empty: asked each time.
  std::vector<bool> below;
  double gpu_utilization = -1;     // measured mean, 0..1; below 0: not measured
  bool has_kernel = false;         // scheduling was recorded
  // Descendants that lived for less than kShortLife, where there were at least
  // kManyShortLives.
  std::set<ProcessIndex> short_lived;
  // By who loaded; disjoint, by time.
  std::map<ThreadIndex, std::vector<Stall>> stalled_by;
  Replacements replacements;
  Interval used;  // first GPU work to last
  Ns throttled;  // starved meanwhile, waiting for CPU quota
  Ns unseen;     // of known and possible: Tally.unseen of all rules
  // Of the feeding span, while scheduling was not recorded although it was at
  // another time: the companion started late or ended early.
  Ns unscheduled;
};

inline constexpr Ns kShortLife{100'000'000};
inline constexpr size_t kManyShortLives = 20;
inline constexpr size_t kManyReplacements = 2;

// What one rule took of one process.
struct Tally {
  Ns known, possible;
  uint64_t stretches = 0;
  uint64_t pages = 0;
  std::map<ThreadIndex, Ns> threads;   // whose time it was
  std::map<ThreadIndex, Ns> culprits;  // who held the CPU
  std::map<FuncIndex, Ns> functions;
  std::map<int16_t, Ns> syscalls;
  std::map<int64_t, Ns> buckets;  // by a unit of time, kBucket or longer
  // Part of possible: the GPU starved for certain, but a CPU quota may be why,
  // and the recording does not tell the two apart.
  Ns maybe_quota;
  // What the thread did, or who held the CPU that it waited for, is not known
  // although scheduling was recorded: switches were not seen.
  Ns unseen;
  // Of copies of pageable memory: no submission ended the wait, they were from
  // the GPU.
  Ns from_gpu;
  Ns total() const { return known + possible; }
};
inline constexpr Ns kBucket{100'000'000};

// Threads that count as one; see Context::Programs().
struct Program {
  std::string name;  // "stress/300", "4 stress processes"
  std::string part;  // the same, or which threads of one process
  std::string pids;  // of several processes, most first: "300, 302 and 2 more"
  ProcessIndex process = kNone;  // with the most time of them
  Ns time;
};

// "worker-12" -> "worker": processes of one kind.
std::string WithoutNumbers(std::string name);

// What rules may ask. All answers come from the trace.
class Context {
 public:
  Context(const Report& report, const ProcessFacts& facts)
      : report(report), facts(facts) {}

  ProcessIndex ProcessOf(ThreadIndex thread) const;
  bool IsOwn(ThreadIndex thread) const;     // of the starved process
  bool IsWorker(ThreadIndex thread) const;  // of a descendant of it
  // Own, a descendant, a CUDA ancestor or a descendant of one, or a launcher.
  bool InTree(ThreadIndex thread) const;
  // Of the program, but no descendant: also other CUDA processes of a launcher.
  bool HandsWork(ThreadIndex thread) const;
  // In the tree, or a rank of the same job: below the same launcher, of the same
  // file, and with CUDA. Without, it may be anything that an interpreter runs.
  bool OfJob(ThreadIndex thread) const;
  // Whether they run the same file; one that has executed nothing, its parent's.
  bool SameProgram(ProcessIndex a, ProcessIndex b) const;
  // A descendant that the path runs through: it supplies the program.
  bool IsLoader(ThreadIndex thread) const;
  bool IsIngero(ThreadIndex thread) const;
  bool Descends(ProcessIndex child, ProcessIndex ancestor) const;
  // From the starved process.
  bool IsBelow(ProcessIndex process) const {
    return facts.below.empty() ? Descends(process, facts.process)
                               : facts.below[process];
  }
  CallClass ClassOf(FuncIndex func) const;
  // What taking a page costs a process; 0 = not known.
  Ns PageCost(ProcessIndex process) const {
    return process < report.page_costs.size() ? report.page_costs[process]
                                              : report.facts.page_cost;
  }
  bool Before(CallClass ended_by, CallClass a, CallClass b) const {
    return ended_by == a || ended_by == b;
  }

  // "pt_data_worker/2255"; a thread other than the main one of a process:
  // "python3/2254 (thread 2260 pin_memory)".
  std::string Name(ThreadIndex thread) const;
  // "2260 pin_memory". REQUIRES: its process is known.
  std::string ThreadName(ThreadIndex thread) const;
  std::string ProcessName(ProcessIndex process) const;
  std::string FunctionName(FuncIndex func) const;
  // "31 s (72 % of the 43 s that the program used the GPU)".
  std::string Share(Ns time) const;
  // Whose the time was, most first: the one ranking, in claims, root causes
  // and timelines. Threads of one process count together, and so do processes
  // of one name (but never the starved process with others).
  std::vector<Program> Programs(const std::map<ThreadIndex, Ns>& by) const;
  // The largest few of these: "4 stress processes 61 %, redis/7 20 %".
  std::string Top(const std::map<ThreadIndex, Ns>& by, size_t count,
                  Ns whole) const;
  // "31 s (...)", "at most 31 s (...)" where nothing is known for certain, "at
  // least 31 s and at most 35 s (...)" where both are.
  std::string Lost(const Tally& tally) const;

  // CPUs that the starved program may use: online, or fewer by its affinity or
  // CPU quota. 0 = not known.
  uint32_t UsableCpus() const;
  // "the program may use 4 of 16 CPUs"; "" = not known.
  std::string UsableCpusText() const;

  // The cgroup whose CPU quota holds the process back: of its own and those
  // above, the one that was throttled most often. nullptr = no quota seen.
  const CpuCgroup* QuotaOf(ProcessIndex process) const;
  // Least quota over period of the process's cgroup and those above; 0 = none.
  double QuotaCpus(ProcessIndex process) const;
  // The process's threads were held back by a quota, for how long each is not
  // known.
  bool MaybeThrottled(ProcessIndex process) const {
    const CpuCgroup* c = report.quota_told_apart ? nullptr : QuotaOf(process);
    return c != nullptr && c->throttled_ns > 0;
  }
  // "cgroup /docker/12ab (20 ms of CPU time per 100 ms: 0.2 CPUs)".
  std::string QuotaText(const CpuCgroup& cgroup) const;

  const Report& report;
  const ProcessFacts& facts;
};

// Keys by falling time.
template <typename K>
std::vector<std::pair<K, Ns>> Sorted(const std::map<K, Ns>& by) {
  std::vector<std::pair<K, Ns>> out(by.begin(), by.end());
  std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) {
    return a.second > b.second;
  });
  return out;
}

struct Rule {
  const char* cause;
  bool needs_kernel;  // can say nothing without scheduling data
  // At most this severity, whatever the share (see docs/rules.md).
  Severity worst;
  // How much of `cell` (of which `left` ns no rule has taken) this is.
  Ns (*take)(const Context& context, const PathCell& cell, Ns left);
  // Fills claim, recommendations, rule-specific evidence. Common parts
  // (lost time, windows, culprits, timeline, queries) are filled before.
  void (*describe)(const Context& context, const Tally& tally,
                   Finding* finding);
};

// In the order in which they are asked.
std::span<const Rule* const> Rules();

// Says what a user should know beside the causes, where its time cannot be
// measured: never a cause, never above INFO.
struct ContextRule {
  const char* cause;
  // Why it cannot be judged from this recording; "" = it can.
  std::string (*lacks)(const Report& report, bool has_kernel);
  // True: it is there. Fills claim, evidence and recommendations.
  bool (*look)(const Context& context, Finding* finding);
};
std::span<const ContextRule* const> ContextRules();

// Evidence without a query of its own gets the finding's.
void AddEvidence(Finding* finding, std::string name, double value,
                 std::string unit, std::string text);
void Recommend(Finding* finding, std::string text, Ns gain);

}  // namespace ingero::analysis

#endif  // INGERO_ANALYSIS_RULES_RULE_H_
