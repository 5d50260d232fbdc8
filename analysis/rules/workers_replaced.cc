// SPDX-License-Identifier: Apache-2.0
// Claim:       The program ends all its loader processes and starts new ones,
//              again and again, and the GPU waits meanwhile: also for what they
//              still do before they end.
// Needs:       Kernel stream.
// Near-miss:   Workers that stay, or that are added one by one. What a new
//              worker does until its first batch cannot be told from the batch:
//              it is loader-cpu-bound. Workers that were killed: worker-died.
//              Processes that live for less than kShortLife: fork-storm.
// See docs/rules.md.
#include "analysis/rules/registry.h"
#include "base/text.h"

namespace ingero::analysis {
namespace {

Ns Take(const Context& context, const PathCell& cell, Ns left) {
  const Replacements& all = context.facts.replacements;
  if (all.count == 0) return Ns(0);
  const bool own = context.IsOwn(cell.thread);
  if (!own && all.workers.count(context.ProcessOf(cell.thread)) == 0)
    return Ns(0);
  // Forking, waiting for an end, ending; between its birth and its first time
  // on a CPU a process has no state.
  const bool about_it = cell.reason == Reason::kHostCode ||
                        cell.reason == Reason::kSleepOther ||
                        cell.reason == Reason::kBlocked ||
                        (!own && cell.state == ThreadState::kUnknown);
  if (!about_it) return Ns(0);
  const double share =
      Ratio(all.ranges.Within(cell.range), cell.range.length());
  return std::min(
      left,
      Ns(static_cast<int64_t>(static_cast<double>(cell.time.value) * share)));
}

void Describe(const Context& context, const Tally& tally, Finding* finding) {
  const Replacements& all = context.facts.replacements;
  finding->claim = "The GPU waited " + context.Lost(tally) +
                   " while the program ended its loader processes and started "
                   "new ones: " +
                   FormatCount(all.count) + " times in this time (" +
                   SanitizeForTerminal(all.name, 64) + ", " +
                   FormatCount(all.workers.size()) + " processes in all).";
  AddEvidence(finding, "replacements", static_cast<double>(all.count), "count",
              FormatCount(all.count) +
                  " times all of them had ended, with status 0, before the "
                  "next were started.");
  Recommend(finding,
            "Keep the processes from one round to the next: a DataLoader with "
            "persistent_workers=True, or one long epoch instead of many short "
            "ones; for programs started item by item, one that stays. What new "
            "ones need until their first result, which is not counted here, is "
            "saved too.",
            tally.known);
}

}  // namespace

const Rule kWorkersReplacedRule = {"workers-replaced", true, Severity::kHigh,
                                   Take, Describe};

}  // namespace ingero::analysis
