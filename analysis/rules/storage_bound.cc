// SPDX-License-Identifier: Apache-2.0
// Claim:       A thread on the path waits for block I/O.
// Needs:       Kernel stream.
// Near-miss:   Disk waits of threads off the path cost nothing.
// See docs/rules.md.
#include "analysis/rules/registry.h"
#include "base/text.h"

namespace ingero::analysis {
namespace {

Ns Take(const Context& context, const PathCell& cell, Ns left) {
  (void)context;
  return cell.reason == Reason::kDiskWait ? left : Ns(0);
}

void Describe(const Context& context, const Tally& tally, Finding* finding) {
  finding->claim = "The GPU waited " + context.Lost(tally) + " while " +
                   context.Top(tally.threads, 3, tally.total()) +
                   " waited for the disk.";
  Recommend(finding,
            "Read ahead or from faster storage: more loader workers overlap "
            "reads, a local copy or a larger page cache avoids them, larger "
            "files read in order need fewer. More CPUs will not help.",
            tally.known);
}

}  // namespace

const Rule kStorageBoundRule = {"storage-bound", true, Severity::kHigh, Take,
                                Describe};

}  // namespace ingero::analysis
