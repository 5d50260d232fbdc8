// SPDX-License-Identifier: Apache-2.0
// Claim:       Time inside allocation and free calls while the GPU is known to
//              be (or may be) without work.
// Needs:       CUDA calls; without a kernel stream waits for a CPU inside the
//              call count too.
// Near-miss:   A free that waits for pending work is a synchronisation: the
//              GPU is busy, nothing is lost.
// See docs/rules.md.
#include "analysis/rules/registry.h"
#include "base/text.h"

namespace ingero::analysis {
namespace {

Ns Take(const Context& context, const PathCell& cell, Ns left) {
  if (cell.reason != Reason::kCudaCall || !context.IsOwn(cell.thread))
    return Ns(0);
  switch (context.ClassOf(cell.func)) {
    case CallClass::kAlloc:
    case CallClass::kAllocAsync:
    case CallClass::kAllocHost:
    case CallClass::kAllocManaged:
    case CallClass::kFree:
    case CallClass::kFreeAsync:
    case CallClass::kFreeHost:
      return left;
    default:
      return Ns(0);
  }
}

void Describe(const Context& context, const Tally& tally, Finding* finding) {
  finding->claim = "Allocating and freeing GPU or pinned memory took " +
                   context.Lost(tally) + " (" +
                   context.FunctionName(Sorted(tally.functions)[0].first) +
                   " most).";
  Recommend(finding,
            "Keep memory: no torch.cuda.empty_cache() in the loop, allocate "
            "buffers (pinned ones above all) once, or use cudaMallocAsync.",
            tally.known);
}

}  // namespace

const Rule kAllocChurnRule = {"alloc-churn", false, Severity::kHigh, Take,
                              Describe};

}  // namespace ingero::analysis
