// SPDX-License-Identifier: Apache-2.0
// Claim:       The path runs through a descendant process that is on a CPU.
// Needs:       Kernel stream.
// Near-miss:   Workers that compute while nobody waits for them are not on the
//              path.
// See docs/rules.md.
#include <cstdio>
#include <set>

#include "analysis/rules/registry.h"
#include "base/text.h"

namespace ingero::analysis {
namespace {

Ns Take(const Context& context, const PathCell& cell, Ns left) {
  return cell.state == ThreadState::kRunning && context.IsWorker(cell.thread)
             ? left
             : Ns(0);
}

void Describe(const Context& context, const Tally& tally, Finding* finding) {
  // A worker has threads of its own (queue feeder): count processes.
  std::set<ProcessIndex> processes;
  for (const auto& [thread, time] : tally.threads)
    processes.insert(context.ProcessOf(thread));
  const size_t workers = processes.size();
  const uint32_t cpus = context.report.facts.cpus;
  const Ns window = context.report.window.length();
  // CPUs that nobody used, on average, from the switches.
  Ns used;
  for (const ProcessActivity& a : context.report.activities) used += a.running;
  const double idle = static_cast<double>(cpus) - Ratio(used, window);
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
  if (used <= Ns(0) || cpus == 0) return;
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", std::max(0.0, idle));
  AddEvidence(finding, "idle_cpus", std::max(0.0, idle), "count",
              std::string(text) + " of " + FormatCount(cpus) +
                  " CPUs had nothing to run, on average.");
  if (idle >= 1)
    Recommend(finding,
              std::string("More workers can help: ") + text + " of " +
                  FormatCount(cpus) +
                  " CPUs were idle. Raise num_workers step by step.",
              Ns(0));
  else
    Recommend(finding,
              "More workers would not help: no CPU was idle. Spend less per "
              "sample, or train on fewer samples per call.",
              Ns(0));
}

}  // namespace

const Rule kLoaderCpuBoundRule = {"loader-cpu-bound", true, Severity::kHigh,
                                  Take, Describe};

}  // namespace ingero::analysis
