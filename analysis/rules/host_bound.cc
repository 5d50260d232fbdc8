// SPDX-License-Identifier: Apache-2.0
// Claim:       The feeding process runs its own code (or is inside calls that
//              do not wait) while the GPU has nothing.
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
                 context.IsOwn(cell.thread)
             ? left
             : Ns(0);
}

void Describe(const Context& context, const Tally& tally, Finding* finding) {
  finding->claim = "The program's own host code kept the GPU waiting: " +
                   context.Top(tally.threads, 1, tally.total()) +
                   " was running for " + context.Lost(tally) +
                   " between pieces of GPU work.";
  Recommend(finding,
            "Find the lines that take it (`ingero run --where`, py-spy, perf) "
            "and move that work off this thread or behind the launches of the "
            "next step.",
            tally.known);
}

}  // namespace

const Rule kHostBoundRule = {"host-bound", true, Severity::kHigh, Take,
                             Describe};

}  // namespace ingero::analysis
