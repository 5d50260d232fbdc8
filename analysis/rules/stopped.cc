// SPDX-License-Identifier: Apache-2.0
// Claim:       A thread on the path was stopped by a signal or traced.
// Needs:       Kernel stream.
// Near-miss:   A thread that was asleep or ready meanwhile: it could have run.
// See docs/rules.md.
#include "analysis/rules/registry.h"
#include "base/text.h"

namespace ingero::analysis {
namespace {

Ns Take(const Context& context, const PathCell& cell, Ns left) {
  (void)context;
  return cell.reason == Reason::kStopped ? left : Ns(0);
}

void Describe(const Context& context, const Tally& tally, Finding* finding) {
  finding->claim = "The GPU waited " + context.Lost(tally) + " because " +
                   context.Top(tally.threads, 2, tally.total()) +
                   " had been stopped: by a signal (SIGSTOP, Ctrl-Z), or by a "
                   "debugger or profiler that was attached to it.";
  finding->culprits.clear();  // who stopped it is not recorded
  Recommend(finding,
            "Find who stops it: a batch scheduler or container runtime that "
            "suspends jobs, a shell's job control, a debugger, or a sampling "
            "profiler that pauses the program (py-spy without --nonblocking).",
            tally.known);
}

}  // namespace

const Rule kStoppedRule = {"stopped", true, Severity::kHigh, Take, Describe};

}  // namespace ingero::analysis
