// SPDX-License-Identifier: Apache-2.0
// Claim:       Time inside copies of pageable memory, in which the CPU moves
//              the data.
// Needs:       CUDA calls with address ranges.
// Near-miss:   Pinned copies are GPU work.
// See docs/rules.md.
#include "analysis/rules/registry.h"
#include "base/text.h"

namespace ingero::analysis {
namespace {

Ns Take(const Context& context, const PathCell& cell, Ns left) {
  (void)context;
  return cell.reason == Reason::kPageableCopy ? left : Ns(0);
}

void Describe(const Context& context, const Tally& tally, Finding* finding) {
  finding->claim =
      "Copies of pageable host memory took " + context.Lost(tally) +
      ", in which the CPU moved the data itself and the GPU computed nothing.";
  Recommend(finding,
            tally.from_gpu * 2 > tally.total()
                ? "These copies are from the GPU: copy less or less often, or "
                  "into pinned memory (torch.empty(..., pin_memory=True) and "
                  "copy_(x, non_blocking=True)) while the GPU works on; a "
                  "checkpoint can be written by another thread from there. "
                  "Pinned copies were about 9 times faster when measured."
                : "Copy from pinned memory: DataLoader(pin_memory=True) with "
                  ".to(device, non_blocking=True), or cudaMallocHost / "
                  "cudaHostRegister for your own buffers. Pinned copies were "
                  "about 9 times faster when measured and leave the CPU free.",
            tally.known);
}

}  // namespace

const Rule kPageableCopyRule = {"pageable-copy", false, Severity::kHigh, Take,
                                Describe};

}  // namespace ingero::analysis
