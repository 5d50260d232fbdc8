// SPDX-License-Identifier: Apache-2.0
// Claim:       Steps of under 50 us between and inside launches while nobody
//              asked whether the queue was empty: at most.
// Needs:       Kernel stream.
// Near-miss:   Where a later synchronisation waits long there was a backlog:
//              the report drops it (kBacklogBusy).
// See docs/rules.md.
#include "analysis/rules/registry.h"
#include "base/text.h"

namespace ingero::analysis {
namespace {

Ns Take(const Context& context, const PathCell& cell, Ns left) {
  // Many tiny gaps between launches: the host cannot submit fast enough.
  const bool launching =
      context.Before(cell.ended_by, CallClass::kLaunch,
                     CallClass::kGraphLaunch) &&
      (cell.reason == Reason::kHostCode || cell.reason == Reason::kSubmitting);
  return launching && cell.certainty == Certainty::kPossible &&
                 cell.state == ThreadState::kRunning &&
                 context.IsOwn(cell.thread) &&
                 cell.time.value <
                     kShortStretch.value * static_cast<int64_t>(cell.stretches)
             ? left
             : Ns(0);
}

void Describe(const Context& context, const Tally& tally, Finding* finding) {
  const double per_second =
      context.facts.span > Ns(0)
          ? static_cast<double>(tally.stretches) * 1e9 /
                static_cast<double>(context.facts.span.value)
          : 0;
  finding->claim =
      "The host spent " + context.Lost(tally) +
      " getting from one kernel launch to the next in steps of under " +
      FormatDuration(kShortStretch) +
      "; if the kernels are as short, the GPU waits for launches.";
  AddEvidence(finding, "launch_steps_per_s", per_second, "1/s",
              FormatCount(static_cast<uint64_t>(per_second)) +
                  " steps between or inside launches per second.");
  Recommend(finding,
            "Launch fewer, larger kernels: larger batches, fused operations "
            "(torch.compile), or CUDA graphs (mode=\"reduce-overhead\").",
            Ns(0));
}

}  // namespace

const Rule kLaunchBoundRule = {"launch-bound", true, Severity::kHigh, Take,
                               Describe};

}  // namespace ingero::analysis
