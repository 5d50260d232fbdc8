// SPDX-License-Identifier: Apache-2.0
// Claim:       The feeding process, or one that hands work to it (of its tree,
//              but above or beside it), runs its own code (or is inside calls
//              that do not wait) while the GPU has nothing.
// Needs:       Kernel stream.
// Near-miss:   Time on the CPU inside a synchronisation with work pending is
//              waiting for the GPU.
// See docs/rules.md.
#include "analysis/rules/registry.h"
#include "base/text.h"

namespace ingero::analysis {
namespace {

Ns Take(const Context& context, const PathCell& cell, Ns left) {
  const bool own_time = cell.reason == Reason::kHostCode ||
                        cell.reason == Reason::kCudaCall ||
                        cell.reason == Reason::kSubmitting;
  return own_time && cell.state == ThreadState::kRunning &&
                 context.HandsWork(cell.thread)
             ? left
             : Ns(0);
}

void Describe(const Context& context, const Tally& tally, Finding* finding) {
  const std::vector<Program> most = context.Programs(tally.threads);
  finding->claim = "The program's own host code kept the GPU waiting: " +
                   context.Top(tally.threads, 2, tally.total()) +
                   (most.size() > 1 ? " were" : " was") + " running for " +
                   context.Lost(tally) + " between pieces of GPU work.";
  const bool own =
      most.empty() || most.front().process == context.facts.process;
  Recommend(finding,
            "Find the lines that take it (`ingero run --where`, py-spy, perf) "
            "and move that work " +
                (own ? std::string("off this thread")
                     : "out of " + most.front().name +
                           ", which this process waits for,") +
                " or behind the launches of the next step.",
            tally.known);
}

}  // namespace

const Rule kHostBoundRule = {"host-bound", true, Severity::kHigh, Take,
                             Describe};

}  // namespace ingero::analysis
