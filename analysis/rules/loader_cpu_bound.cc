// SPDX-License-Identifier: Apache-2.0
// Claim:       The path runs through a descendant process that is on a CPU.
// Needs:       Kernel stream.
// Near-miss:   Workers that compute while nobody waits for them are not on the
//              path.
// See docs/rules.md.
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
  const size_t workers = tally.threads.size();
  const uint32_t cpus = context.report.facts.cpus;
  finding->claim = "The GPU waited " + context.Lost(tally) +
                   " for loader processes that were computing all that time (" +
                   context.Top(tally.threads, 3, tally.total()) + ").";
  AddEvidence(finding, "workers_on_path", static_cast<double>(workers), "count",
              FormatCount(workers) +
                  " loader threads were on the critical "
                  "path.");
  Recommend(finding,
            "Make a batch cheaper first: fetch it whole by index (BatchSampler "
            "with __getitems__, or slice the tensor directly), move transforms "
            "to the GPU, keep workers alive (persistent_workers=True).",
            tally.known);
  if (cpus > workers + 1)
    Recommend(finding,
              "More workers can help: " + FormatCount(cpus) +
                  " CPUs are online and " + FormatCount(workers) +
                  " loader threads were seen on the path. Raise num_workers "
                  "step by step.",
              Ns(0));
}

}  // namespace

const Rule kLoaderCpuBoundRule = {"loader-cpu-bound", true, Severity::kHigh,
                                  Take, Describe};

}  // namespace ingero::analysis
