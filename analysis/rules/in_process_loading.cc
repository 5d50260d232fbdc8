// SPDX-License-Identifier: Apache-2.0
// Claim:       Host code of a submitting thread, ended by a host-to-device
//              copy of at least 64 KiB.
// Needs:       Kernel stream.
// Near-miss:   The same code ahead of a launch is host-bound; of a thread that
//              never submits, lock-held: whether it prepared the data or held a
//              lock is not known.
// See docs/rules.md.
#include "analysis/rules/registry.h"
#include "base/text.h"

namespace ingero::analysis {
namespace {

Ns Take(const Context& context, const PathCell& cell, Ns left) {
  return cell.state == ThreadState::kRunning && context.IsOwn(cell.thread) &&
                 cell.submits && cell.reason == Reason::kHostCode &&
                 context.Before(cell.ended_by, CallClass::kCopy,
                                CallClass::kCopyAsync)
             ? left
             : Ns(0);
}

void Describe(const Context& context, const Tally& tally, Finding* finding) {
  finding->claim =
      "The program prepared its data itself: " +
      context.Top(tally.threads, 1, tally.total()) + " ran host code for " +
      context.Lost(tally) +
      " before copies to the GPU, which had nothing to do meanwhile. It waited "
      "for nobody in that time.";
  Recommend(finding,
            "Fetch whole batches instead of single samples: index the tensor "
            "with the batch's indices (BatchSampler with __getitems__, or "
            "slice it directly); keep data that fits on the GPU and index "
            "there. Otherwise prepare batches in parallel (DataLoader "
            "num_workers > 0, pin_memory=True, persistent_workers=True).",
            tally.known);
}

}  // namespace

const Rule kInProcessLoadingRule = {"in-process-loading", true, Severity::kHigh,
                                    Take, Describe};

}  // namespace ingero::analysis
