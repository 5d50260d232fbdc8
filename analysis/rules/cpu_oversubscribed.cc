// SPDX-License-Identifier: Apache-2.0
// Claim:       A thread on the path was ready and had no CPU; the program's
//              own threads or children held it.
// Needs:       Kernel stream.
// Near-miss:   Children that supply the path are loaders: loader-
//              oversubscribed.
// See docs/rules.md.
#include "analysis/rules/registry.h"
#include "base/text.h"

namespace ingero::analysis {
namespace {

Ns Take(const Context& context, const PathCell& cell, Ns left) {
  if (cell.reason != Reason::kWaitingForCpu || cell.culprit == kNone ||
      context.IsIngero(cell.culprit) || !context.OfJob(cell.culprit))
    return Ns(0);
  return left;
}

void Describe(const Context& context, const Tally& tally, Finding* finding) {
  finding->claim =
      "The GPU waited " + context.Lost(tally) + " because " +
      context.Top(tally.threads, 2, tally.total()) +
      " had to wait for a CPU that the program's own threads or processes "
      "held (" +
      context.Top(tally.culprits, 3, tally.total()) + ").";
  const std::string cpus = context.UsableCpusText();
  Recommend(finding,
            "Start fewer threads: cap thread pools (OMP_NUM_THREADS, "
            "torch.set_num_threads) and helper processes so that all of them "
            "together fit the CPUs, or give the program more CPUs" +
                (cpus.empty() ? std::string() : " (" + cpus + ")") + ".",
            tally.known);
}

}  // namespace

const Rule kCpuOversubscribedRule = {"cpu-oversubscribed", true,
                                     Severity::kHigh, Take, Describe};

}  // namespace ingero::analysis
