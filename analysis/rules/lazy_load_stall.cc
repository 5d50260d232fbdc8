// SPDX-License-Identifier: Apache-2.0
// Claim:       A thread loads a module or uses a kernel for the first time, and
//              another thread of the process sleeps inside a CUDA call of its
//              own until that one wakes it.
// Needs:       Kernel stream.
// Near-miss:   The same load while no other thread's call waits for it, or
//              while that one starts up itself: cold-start. A thread that waits
//              outside of CUDA calls is lock-held.
// See docs/rules.md.
#include <map>

#include "analysis/rules/registry.h"
#include "base/text.h"

namespace ingero::analysis {
namespace {

Ns Take(const Context& context, const PathCell& cell, Ns left) {
  if (cell.reason != Reason::kColdStart || cell.func == kNone) return Ns(0);
  const auto it = context.facts.stalled_by.find(cell.thread);
  if (it == context.facts.stalled_by.end()) return Ns(0);
  Ns stalled;
  for (const Stall& s : it->second)
    stalled += s.range.Clip(cell.range).length();
  const double share = Ratio(stalled, cell.range.length());
  return std::min(
      left,
      Ns(static_cast<int64_t>(static_cast<double>(cell.time.value) * share)));
}

void Describe(const Context& context, const Tally& tally, Finding* finding) {
  std::map<ThreadIndex, Ns> waiters;
  std::map<FuncIndex, Ns> calls;
  size_t stalls = 0;
  for (const auto& [loader, list] : context.facts.stalled_by) {
    if (tally.threads.count(loader) == 0) continue;
    stalls += list.size();
    for (const Stall& s : list) {
      waiters[s.waiter] += s.range.length();
      calls[s.func] += s.range.length();
    }
  }
  finding->claim =
      "The GPU waited " + context.Lost(tally) + " while " +
      context.Top(tally.threads, 2, tally.total()) +
      " loaded code for the GPU that was used for the first time (" +
      context.FunctionName(Sorted(tally.functions)[0].first) +
      "), and calls of other threads slept inside CUDA until it was done: " +
      context.FunctionName(Sorted(calls)[0].first) + " of " +
      context.Name(Sorted(waiters)[0].first) + " above all.";
  AddEvidence(finding, "stalled_calls", static_cast<double>(stalls), "count",
              FormatCount(stalls) +
                  (stalls == 1 ? " time in which such a call slept"
                               : " times in which such calls slept") +
                  " until the loading thread woke it.");
  Recommend(
      finding,
      "Load before the threads start: run each kernel once in a warm-up, "
      "or set CUDA_MODULE_LOADING=EAGER (which makes the start longer and "
      "takes more memory).",
      tally.known);
}

}  // namespace

const Rule kLazyLoadStallRule = {"lazy-load-stall", true, Severity::kMedium,
                                 Take, Describe};

}  // namespace ingero::analysis
