// SPDX-License-Identifier: Apache-2.0
// Claim:       What no other rule took; reported where it is over 20 % of the
//              known starvation.
// Needs:       Nothing.
// See docs/rules.md.
#include "analysis/recording_advice.h"
#include "analysis/rules/registry.h"
#include "base/text.h"

namespace ingero::analysis {
namespace {

Ns Take(const Context& context, const PathCell& cell, Ns left) {
  (void)context;
  (void)cell;
  return left;
}

void Describe(const Context& context, const Tally& tally, Finding* finding) {
  std::string checked =
      context.facts.has_kernel
          ? "Checked: host code, waits for a CPU and who held it, disk, timed "
            "and network sleeps, loader processes, other threads, pageable "
            "copies, allocation, start-up"
          : "Checked: CUDA calls only, since no scheduling was recorded";
  finding->claim = "For " + context.Lost(tally) +
                   " the host data do not say why the GPU had no work. " +
                   (context.facts.unscheduled > Ns(0)
                        ? "Scheduling was not recorded for " +
                              FormatDuration(context.facts.unscheduled) +
                              " of the GPU use. "
                        : std::string()) +
                   checked + ".";
  if (!context.facts.has_kernel || context.facts.unscheduled > Ns(0))
    Recommend(finding, RecordScheduling(context.report), Ns(0));
}

}  // namespace

const Rule kUnexplainedRule = {"unexplained", false, Severity::kHigh, Take,
                               Describe};

}  // namespace ingero::analysis
