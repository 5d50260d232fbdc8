// SPDX-License-Identifier: Apache-2.0
// Claim:       A thread on the path was ready, and the CPU that it then ran on
//              was idle: the wake-up itself was slow.
// Needs:       Kernel stream.
// Near-miss:   Somebody held that CPU: cpu-other-process or -oversubscribed;
//              the CPU's switches were not seen: unexplained.
// See docs/rules.md.
#include "analysis/rules/registry.h"
#include "base/text.h"

namespace ingero::analysis {
namespace {

Ns Take(const Context& context, const PathCell& cell, Ns left) {
  (void)context;
  return cell.reason == Reason::kWaitingForCpu && cell.culprit == kNone
             ? left
             : Ns(0);
}

void Describe(const Context& context, const Tally& tally, Finding* finding) {
  finding->claim =
      "The GPU waited " + context.Lost(tally) + " because " +
      context.Top(tally.threads, 2, tally.total()) +
      " had been woken and its CPU was idle, yet did not run it: the wake-up "
      "was slow (deep idle states of the CPU, or the host of a " +
      "virtual machine that did not run it).";
  finding->culprits.clear();  // whose time it was is not who is to blame
  Recommend(finding,
            "Keep CPUs from sleeping deeply (cpupower idle-set -D 50, the "
            "performance governor); in a virtual machine give it CPUs of its "
            "own. A thread that waits often can spin instead "
            "(cudaDeviceScheduleSpin).",
            tally.known);
}

}  // namespace

const Rule kSlowWakeupRule = {"slow-wakeup", true, Severity::kHigh, Take,
                              Describe};

}  // namespace ingero::analysis
