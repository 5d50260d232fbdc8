// SPDX-License-Identifier: Apache-2.0
// Claim:       The path runs through a descendant process that is on a CPU.
// Needs:       Kernel stream.
// Near-miss:   Workers that compute while nobody waits for them are not on the
//              path.
// See docs/rules.md.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "analysis/rules/registry.h"
#include "base/text.h"

namespace ingero::analysis {
namespace {

Ns Take(const Context& context, const PathCell& cell, Ns left) {
  return cell.state == ThreadState::kRunning && context.IsWorker(cell.thread)
             ? left
             : Ns(0);
}

// The processes of the loader, on the path or not: those with a name that is on
// the path, but for numbers in it.
std::set<ProcessIndex> LoadersOf(const Context& context,
                                 const std::set<ProcessIndex>& on_path) {
  const std::vector<Process>& all = context.report.processes;
  std::set<std::string> names;
  for (const ProcessIndex p : on_path)
    names.insert(WithoutNumbers(all[p].name));
  std::set<ProcessIndex> loaders;
  for (ProcessIndex p = 0; p < all.size(); ++p)
    if (!all[p].has_cuda && names.count(WithoutNumbers(all[p].name)) != 0 &&
        context.Descends(p, context.facts.process))
      loaders.insert(p);
  return loaders;
}

// Who of the loader computed by far more than the others.
constexpr int64_t kFarMore = 2;
struct Slowest {
  ProcessIndex process = kNone;  // kNone: nobody
  Ns computed, others;           // "others": on average
};

Slowest SlowestOf(const Context& context,
                  const std::set<ProcessIndex>& loaders) {
  Slowest s;
  Ns all;
  for (const ProcessActivity& a : context.report.activities) {
    if (loaders.count(a.process) == 0) continue;
    all += a.running;
    if (s.process != kNone && a.running <= s.computed) continue;
    s.process = a.process;
    s.computed = a.running;
  }
  const auto others = static_cast<int64_t>(loaders.size()) - 1;
  if (others > 0) s.others = (all - s.computed) / others;
  if (others <= 0 || s.computed <= s.others * kFarMore) s.process = kNone;
  return s;
}

// The main thread leaves its CPU to others most of the time.
bool ProgramIsIdle(const Context& context) {
  for (const ProcessActivity& a : context.report.activities)
    if (a.process == context.facts.process)
      return a.running < context.report.window.length() / 2;
  return false;
}

// How many processes of the loader lived at a time. One without persistent
// workers makes new ones each epoch.
size_t MostAtOnce(const Context& context,
                  const std::set<ProcessIndex>& on_path) {
  // By time; who is alive at a moment was born by then and has not ended.
  std::vector<Ns> births, ends;
  for (const ProcessIndex p : LoadersOf(context, on_path)) {
    const Process& process = context.report.processes[p];
    births.push_back(process.first_seen);
    ends.push_back(std::max(process.first_seen, process.last_seen));
  }
  std::sort(births.begin(), births.end());
  std::sort(ends.begin(), ends.end());
  size_t most = 1, ended = 0;
  for (size_t born = 1; born <= births.size(); ++born) {
    // Of those born at once, the last one sees all.
    if (born < births.size() && births[born] == births[born - 1]) continue;
    while (ended < ends.size() && ends[ended] <= births[born - 1]) ++ended;
    most = std::max(most, born - ended);
  }
  return most;
}

void Describe(const Context& context, const Tally& tally, Finding* finding) {
  // A worker has threads of its own (queue feeder): count processes.
  std::set<ProcessIndex> processes;
  for (const auto& [thread, time] : tally.threads)
    processes.insert(context.ProcessOf(thread));
  const size_t workers = processes.size();
  // How many of them there were at a time, and how many CPUs they may use.
  const size_t at_once = MostAtOnce(context, processes);
  const uint32_t cpus = context.UsableCpus();
  finding->claim = "The GPU waited " + context.Lost(tally) +
                   " for loader processes that were computing all that time (" +
                   context.Top(tally.threads, 3, tally.total()) + ").";
  AddEvidence(
      finding, "workers_on_path", static_cast<double>(workers), "count",
      FormatCount(workers) +
          (workers == 1 ? " loader process was" : " loader processes were") +
          " on the critical path.");
  Recommend(finding,
            "Make a batch cheaper first: fetch it whole by index (BatchSampler "
            "with __getitems__, or slice the tensor directly), move transforms "
            "to the GPU, keep workers alive (persistent_workers=True).",
            tally.known);
  if (cpus == 0) return;
  AddEvidence(finding, "cpus_usable", static_cast<double>(cpus), "count",
              FormatCount(at_once) +
                  (at_once == 1 ? " loader process" : " loader processes") +
                  " at a time; " + context.UsableCpusText() + ".");
  const Slowest slowest = SlowestOf(context, LoadersOf(context, processes));
  // The main thread needs one too, where it computes.
  const bool room =
      at_once + 1 < cpus || (at_once + 1 == cpus && ProgramIsIdle(context));
  if (context.facts.throttled > tally.total() / 10)
    Recommend(finding,
              "More workers would not help as long as the CPU quota of the "
              "cgroup holds the program back: see cgroup-quota.",
              Ns(0));
  else if (at_once > 1 && slowest.process != kNone)
    Recommend(finding,
              "Spread the work over the " + FormatCount(at_once) +
                  " workers before there are more: " +
                  context.ProcessName(slowest.process) + " computed for " +
                  FormatDuration(slowest.computed) +
                  (at_once == 2 ? ", the other for " : ", the others for ") +
                  FormatDuration(slowest.others) +
                  (at_once == 2 ? ". " : " on average. ") +
                  "Taking batches in the order in which they are "
                  "done (in_order=False of a PyTorch DataLoader) does not wait "
                  "for the slowest.",
              Ns(0));
  else if (room)
    Recommend(finding,
              "More workers can help: " + FormatCount(at_once) +
                  " computed at a time, and the program may use " +
                  FormatCount(cpus) +
                  " CPUs. Raise num_workers step by step, as long as those "
                  "CPUs are not needed elsewhere.",
              Ns(0));
  else
    Recommend(finding,
              "More workers would not help: " + FormatCount(at_once) +
                  (at_once == 1 ? " worker" : " workers") +
                  " and the main thread already fill the " +
                  (cpus == 1 ? std::string("CPU")
                             : FormatCount(cpus) + " CPUs") +
                  " that the program may use.",
              Ns(0));
}

}  // namespace

const Rule kLoaderCpuBoundRule = {"loader-cpu-bound", true, Severity::kHigh,
                                  Take, Describe};

}  // namespace ingero::analysis
