// SPDX-License-Identifier: Apache-2.0
// Claim:       Context creation, module loads and first uses of kernels while
//              the queue is empty, and the program's own work before it had
//              used its kernels once.
// Needs:       CUDA calls.
// Near-miss:   A slow first synchronisation or copy is slow for its own sake;
//              a slow allocation that is no first call is alloc-churn.
// See docs/rules.md.
#include "analysis/rules/registry.h"
#include "base/text.h"

namespace ingero::analysis {
namespace {

Ns Take(const Context& context, const PathCell& cell, Ns left) {
  (void)context;
  return cell.reason == Reason::kColdStart ? left : Ns(0);
}

void Describe(const Context& context, const Tally& tally, Finding* finding) {
  finding->claim =
      "Starting up cost " + context.Lost(tally) +
      ": context creation, module loads, first uses of kernels and the "
      "program's own work before them" +
      (tally.functions.empty()
           ? std::string()
           : " (the CUDA call that took longest: " +
                 context.FunctionName(Sorted(tally.functions)[0].first) +
                 ")") +
      ". It is paid once and left out of all other figures.";
  Recommend(finding,
            "Nothing to do for a long run. For short ones keep the process "
            "alive between jobs, or run a small warm-up before the part that "
            "matters.",
            Ns(0));
}

}  // namespace

const Rule kColdStartRule = {"cold-start", false, Severity::kLow, Take,
                             Describe};

}  // namespace ingero::analysis
