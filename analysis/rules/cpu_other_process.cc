// SPDX-License-Identifier: Apache-2.0
// Claim:       A thread on the path was ready and had no CPU; a process
//              outside the program's tree held it.
// Needs:       Kernel stream.
// Near-miss:   The same preemption while the GPU is busy costs nothing;
//              ingero's own processes are shown apart.
// See docs/rules.md.
#include "analysis/rules/registry.h"
#include "base/text.h"

namespace ingero::analysis {
namespace {

Ns Take(const Context& context, const PathCell& cell, Ns left) {
  if (cell.reason != Reason::kWaitingForCpu || cell.culprit == kNone ||
      context.IsIngero(cell.culprit) || context.InTree(cell.culprit))
    return Ns(0);
  return left;
}

void Describe(const Context& context, const Tally& tally, Finding* finding) {
  const bool one = context.Programs(tally.culprits).size() == 1;
  finding->claim = "The GPU waited " + context.Lost(tally) + " because " +
                   context.Top(tally.threads, 2, tally.total()) +
                   " had to wait for a CPU that " +
                   (one ? "another program" : "other programs") + " held (" +
                   context.Top(tally.culprits, 3, tally.total()) + ").";
  Recommend(finding,
            std::string("Move ") + (one ? "that program" : "those programs") +
                " to other CPUs or another time (taskset, cpuset, nice), or "
                "give this one CPUs of its own.",
            tally.known);
}

}  // namespace

const Rule kCpuOtherProcessRule = {"cpu-other-process", true, Severity::kHigh,
                                   Take, Describe};

}  // namespace ingero::analysis
