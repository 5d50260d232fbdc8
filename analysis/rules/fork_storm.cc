// SPDX-License-Identifier: Apache-2.0
// Claim:       The path runs through descendant processes that lived for less
//              than kShortLife each, and there were many of them.
// Needs:       Kernel stream.
// Near-miss:   Few of them, or loader processes that stay: loader-cpu-bound.
//              Short-lived processes of other programs that take the CPU are
//              cpu-other-process.
// See docs/rules.md.
#include "analysis/rules/registry.h"
#include "base/text.h"

namespace ingero::analysis {
namespace {

Ns Take(const Context& context, const PathCell& cell, Ns left) {
  // Between its birth and its first time on a CPU a process has no state.
  return (cell.state == ThreadState::kRunning ||
          cell.state == ThreadState::kUnknown) &&
                 context.facts.short_lived.count(
                     context.ProcessOf(cell.thread)) != 0
             ? left
             : Ns(0);
}

void Describe(const Context& context, const Tally& tally, Finding* finding) {
  const size_t started = context.facts.short_lived.size();
  std::set<ProcessIndex> on_path;
  for (const auto& [thread, time] : tally.threads)
    on_path.insert(context.ProcessOf(thread));
  finding->claim = "The GPU waited " + context.Lost(tally) +
                   " for processes that the program started and that lived "
                   "for less than " +
                   FormatDuration(kShortLife) + " each: " +
                   context.Top(tally.threads, 2, tally.total()) + "; " +
                   FormatCount(started) + " were started in this time.";
  AddEvidence(finding, "short_lived_processes", static_cast<double>(started),
              "count",
              FormatCount(started) + " such processes, " +
                  FormatCount(on_path.size()) +
                  " of them on the critical path.");
  Recommend(finding,
            "Do not start a process for each item: keep one (or a pool) alive "
            "and hand it the work, or call the library in the process.",
            tally.known);
}

}  // namespace

const Rule kForkStormRule = {"fork-storm", true, Severity::kHigh, Take,
                             Describe};

}  // namespace ingero::analysis
