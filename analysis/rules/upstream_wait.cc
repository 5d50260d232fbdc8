// SPDX-License-Identifier: Apache-2.0
// Claim:       A thread on the path sleeps in a socket, poll or timed sleep
//              that no thread ended, or the path leaves the program's
//              processes.
// Needs:       Kernel stream.
// Near-miss:   The submitting thread's own timed sleep is idle-by-choice; a
//              process above it that runs the same program is host-bound.
// See docs/rules.md.
#include "analysis/rules/registry.h"
#include "analysis/syscalls.h"
#include "base/text.h"

namespace ingero::analysis {
namespace {

Ns Take(const Context& context, const PathCell& cell, Ns left) {
  const bool sleeps = cell.reason == Reason::kSleepTimer ||
                      cell.reason == Reason::kSleepNetwork;
  // The path left the program's processes: someone else's answer was awaited.
  const bool elsewhere = cell.state == ThreadState::kRunning &&
                         cell.reason == Reason::kHostCode &&
                         cell.thread != kNone && !context.IsWorker(cell.thread) &&
                         !context.HandsWork(cell.thread) &&
                         !context.IsIngero(cell.thread);
  return sleeps || elsewhere ? left : Ns(0);
}

void Describe(const Context& context, const Tally& tally, Finding* finding) {
  Ns asleep, most;
  int16_t in = -1;
  for (const auto& [syscall, time] : tally.syscalls) {
    asleep += time;
    if (time > most) {
      most = time;
      in = syscall;
    }
  }
  // Whoever sleeps may hold what another thread of the process needs.
  // The submitting thread's own timed sleep is another cause.
  Ns siblings;
  for (const auto& [thread, time] : tally.threads)
    if (context.IsOwn(thread)) siblings += time;
  if (siblings * 2 > tally.total() &&
      ReasonOfSleep(in) == Reason::kSleepTimer) {
    finding->claim = "The GPU waited " + context.Lost(tally) +
                     " for another thread of the same process, which slept in " +
                     SyscallName(in) + " meanwhile: " +
                     context.Top(tally.threads, 3, tally.total()) +
                     ". It held a lock, or was to bring what was awaited.";
    Recommend(finding,
              "Let that thread not sleep while others wait for it: release the "
              "lock before, or wait for the data outside of it.",
              tally.known);
    return;
  }
  finding->claim = "The GPU waited " + context.Lost(tally) +
                   " for data from elsewhere: " +
                   context.Top(tally.threads, 3, tally.total()) +
                   (asleep * 2 < tally.total()
                        ? " ran, or took that long to answer."
                        : " slept in " + SyscallName(in) +
                              (most * 2 < asleep ? " and others" : "") +
                              ", or answered late.");
  Recommend(finding,
            "Look at what it waits for (service, network, rate limit). More "
            "requests in flight hide latency: more loader workers or a larger "
            "prefetch_factor; this program's CPUs are not the limit.",
            tally.known);
}

}  // namespace

const Rule kUpstreamWaitRule = {"upstream-wait", true, Severity::kHigh, Take,
                                Describe};

}  // namespace ingero::analysis
