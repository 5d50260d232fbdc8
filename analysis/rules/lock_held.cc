// SPDX-License-Identifier: Apache-2.0
// Claim:       The path runs through a thread of the feeding process that
//              never submits: the submitter slept until it woke it, or in
//              timed waits of Python's switch interval, in which only it ran.
// Needs:       Kernel stream.
// Near-miss:   A thread that only passes on what a worker made is hardly on
//              the path itself; threads that submit (autograd) never count.
// See docs/rules.md.
#include "analysis/rules/registry.h"
#include "base/text.h"

namespace ingero::analysis {
namespace {

Ns Take(const Context& context, const PathCell& cell, Ns left) {
  return cell.state == ThreadState::kRunning && context.IsOwn(cell.thread) &&
                 !cell.submits && cell.reason == Reason::kHostCode
             ? left
             : Ns(0);
}

void Describe(const Context& context, const Tally& tally, Finding* finding) {
  finding->claim =
      "The thread that feeds the GPU slept " + context.Lost(tally) +
      " while it waited for another thread of the same process: " +
      context.Top(tally.threads, 2, tally.total()) +
      " ran all that time, holding a lock (or Python's interpreter lock) or "
      "preparing what was awaited.";
  Recommend(finding,
            "Shorten what that thread does while others wait: release the lock "
            "earlier, move its work to another process, or use code that "
            "releases the interpreter lock.",
            tally.known);
}

}  // namespace

const Rule kLockHeldRule = {"lock-held", true, Severity::kHigh, Take, Describe};

}  // namespace ingero::analysis
