// SPDX-License-Identifier: Apache-2.0
// Claim:       A thread on the path was ready and had no CPU; a process
//              outside the program's tree held it.
// Needs:       Kernel stream.
// Near-miss:   The same preemption while the GPU is busy costs nothing;
//              ingero's own processes are shown apart.
// See docs/rules.md.
#include <map>

#include "analysis/rules/registry.h"
#include "base/text.h"

namespace ingero::analysis {
namespace {

// Of the lost time; a process that held less is no reason to change its threads.
constexpr double kPoolShare = 0.02;
// What such processes held together must be most of it to be worth advice.
constexpr double kPoolsShare = 0.5;
constexpr size_t kPool = 3;  // threads

Ns Take(const Context& context, const PathCell& cell, Ns left) {
  if (cell.reason != Reason::kWaitingForCpu || cell.culprit == kNone ||
      context.IsIngero(cell.culprit) || context.OfJob(cell.culprit))
    return Ns(0);
  return left;
}

void Describe(const Context& context, const Tally& tally, Finding* finding) {
  const bool one = context.Programs(tally.culprits).size() == 1;
  finding->claim = "The GPU waited " + context.Lost(tally) + " because " +
                   context.Top(tally.threads, 2, tally.total()) +
                   " had to wait for a CPU that " +
                   (one ? "another program" : "other programs") + " held (" +
                   context.Top(tally.culprits, 3, tally.total()) + ").";
  // Thread pools that are each made for the whole machine.
  struct Holder {
    Ns time;
    size_t threads = 0;
  };
  std::map<ProcessIndex, Holder> holders;
  for (const auto& [thread, time] : tally.culprits)
    if (const ProcessIndex p = context.ProcessOf(thread); p != kNone) {
      holders[p].time += time;
      ++holders[p].threads;
    }
  size_t pools = 0, in_pools = 0;
  Ns by_pools;
  for (const auto& [process, holder] : holders)
    if (holder.threads >= kPool &&
        Ratio(holder.time, tally.total()) >= kPoolShare) {
      ++pools;
      in_pools += holder.threads;
      by_pools += holder.time;
    }
  const uint32_t cpus = context.report.facts.cpus;
  const bool too_many = cpus > 0 && in_pools >= 2 * cpus &&
                        Ratio(by_pools, tally.total()) >= kPoolsShare;
  if (too_many)
    AddEvidence(finding, "holder_threads", static_cast<double>(in_pools),
                "count",
                FormatCount(in_pools) + " threads of " + FormatCount(pools) +
                    (pools == 1 ? " such process" : " such processes") +
                    " held those CPUs in turn; this machine has " +
                    FormatCount(cpus) + ".");
  Recommend(finding,
            std::string(too_many
                            ? "Cap their thread pools (OMP_NUM_THREADS, "
                              "MKL_NUM_THREADS, torch.set_num_threads), which "
                              "are as large as if each had the machine to "
                              "itself. Else move "
                            : "Move ") + (one ? "that program" : "those programs") +
                " to other CPUs or another time (taskset, cpuset, nice), or "
                "give this one CPUs of its own.",
            tally.known);
}

}  // namespace

const Rule kCpuOtherProcessRule = {"cpu-other-process", true, Severity::kHigh,
                                   Take, Describe};

}  // namespace ingero::analysis
