// SPDX-License-Identifier: Apache-2.0
// Claim:       A thread on the path had to make room in memory (direct reclaim,
//              its cgroup's limit, compaction) before it got some.
// Needs:       Kernel stream, of a companion that records such stalls.
// Near-miss:   Stalls of threads off the path cost nothing; pages that were
//              free are memory-faults.
// See docs/rules.md.
#include "analysis/rules/registry.h"
#include "base/text.h"

namespace ingero::analysis {
namespace {

Ns Take(const Context& context, const PathCell& cell, Ns left) {
  (void)context;
  return cell.reason == Reason::kReclaim || cell.reason == Reason::kCompaction
             ? left
             : Ns(0);
}

void Describe(const Context& context, const Tally& tally, Finding* finding) {
  finding->claim = "The GPU waited " + context.Lost(tally) + " while " +
                   context.Top(tally.threads, 3, tally.total()) +
                   " had to make room in memory before going on: little was "
                   "free, in the system or within the cgroup's memory limit.";
  Recommend(finding,
            "Use less memory or allow more: raise the container's memory "
            "limit, start fewer workers or prefetch less, stop other programs, "
            "and read large files so that they do not fill the page cache "
            "(O_DIRECT, POSIX_FADV_DONTNEED).",
            tally.known);
}

}  // namespace

const Rule kReclaimSwapRule = {"reclaim-swap", true, Severity::kHigh, Take,
                               Describe};

}  // namespace ingero::analysis
