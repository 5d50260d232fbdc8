// SPDX-License-Identifier: Apache-2.0
// Claim:       The thread that submits sleeps in a timed sleep that a timer
//              ended.
// Needs:       Kernel stream.
// Near-miss:   A worker's timed sleep is upstream-wait; a sleep that another
//              thread ended is not by choice.
// See docs/rules.md.
#include "analysis/rules/registry.h"
#include "base/text.h"

namespace ingero::analysis {
namespace {

Ns Take(const Context& context, const PathCell& cell, Ns left) {
  return cell.reason == Reason::kSleepTimer && context.IsOwn(cell.thread) &&
                 cell.submits
             ? left
             : Ns(0);
}

void Describe(const Context& context, const Tally& tally, Finding* finding) {
  finding->claim = "The program slept by its own choice for " +
                   context.Lost(tally) + ": " +
                   context.Top(tally.threads, 1, tally.total()) +
                   ", which feeds the GPU, was in a timed sleep.";
  Recommend(finding,
            "If that sleep is not wanted, remove it from the loop. If it asks "
            "again and again whether something is ready, what is awaited is "
            "the cause; a wait that is ended when it is (a queue, an event) "
            "shows who makes it.",
            tally.known);
}

}  // namespace

const Rule kIdleByChoiceRule = {"idle-by-choice", true, Severity::kMedium, Take,
                                Describe};

}  // namespace ingero::analysis
