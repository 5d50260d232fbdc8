// SPDX-License-Identifier: Apache-2.0
// Claim:       Time inside synchronisations and queries that had nothing to
//              wait for.
// Needs:       CUDA calls.
// Near-miss:   Synchronisations with work pending are the GPU being busy.
// See docs/rules.md.
#include "analysis/rules/registry.h"
#include "base/text.h"

namespace ingero::analysis {
namespace {

Ns Take(const Context& context, const PathCell& cell, Ns left) {
  if (cell.reason != Reason::kCudaCall || !context.IsOwn(cell.thread))
    return Ns(0);
  switch (context.ClassOf(cell.func)) {
    case CallClass::kSyncDevice:
    case CallClass::kSyncStream:
    case CallClass::kSyncEvent:
    case CallClass::kQueryStream:
    case CallClass::kQueryEvent:
      return left;
    default:
      return Ns(0);
  }
}

void Describe(const Context& context, const Tally& tally, Finding* finding) {
  finding->claim = "Synchronisation calls with nothing to wait for took " +
                   context.Lost(tally) + " (" +
                   context.FunctionName(Sorted(tally.functions)[0].first) +
                   " most).";
  Recommend(finding,
            "Synchronise less often: no .item(), .cpu() or print of a GPU "
            "value per step; collect on the GPU and read every N steps.",
            tally.known);
}

}  // namespace

const Rule kSyncStormRule = {"sync-storm", false, Severity::kHigh, Take,
                             Describe};

}  // namespace ingero::analysis
