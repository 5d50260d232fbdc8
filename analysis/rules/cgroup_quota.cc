// SPDX-License-Identifier: Apache-2.0
// Claim:       A thread on the path was ready, and its cgroup had used up the
//              CPU quota of the period: nobody else is to blame, whoever ran.
// Needs:       Kernel stream, of a kernel that says how long each wait was
//              due to the quota; else only what may have been.
// Near-miss:   A throttled cgroup whose threads nobody waits for is not on the
//              path; after the quota ended, the wait is for whoever held the
//              CPU.
// See docs/rules.md.
#include <cstdio>
#include <string>

#include "analysis/rules/registry.h"
#include "base/text.h"

namespace ingero::analysis {
namespace {

Ns Take(const Context& context, const PathCell& cell, Ns left) {
  if (cell.reason == Reason::kThrottled) return left;
  // Not told apart, and nobody is known to have held the CPU.
  return (cell.reason == Reason::kWaitingForCpu ||
          cell.reason == Reason::kHolderUnseen) &&
                 cell.culprit == kNone &&
                 context.MaybeThrottled(context.ProcessOf(cell.thread))
             ? left
             : Ns(0);
}

void Describe(const Context& context, const Tally& tally, Finding* finding) {
  std::map<ProcessIndex, Ns> processes;
  for (const auto& [thread, time] : tally.threads)
    processes[context.ProcessOf(thread)] += time;
  const ProcessIndex process =
      processes.empty() ? kNone : Sorted(processes)[0].first;
  const CpuCgroup* cgroup = context.QuotaOf(process);

  std::string whose;
  if (cgroup != nullptr) {
    whose = context.QuotaText(*cgroup);
    if (cgroup->periods > 0)
      whose += ", used up in " + FormatCount(cgroup->throttled_periods) +
               " of " + FormatCount(cgroup->periods) + " periods";
  } else {
    whose = "its cgroup";
    if (process < context.report.processes.size())
      whose += " (id " +
               std::to_string(context.report.processes[process].cgroup_id) +
               ")";
    whose += " or one above, whose settings were not seen";
  }
  finding->claim = "The GPU waited " + context.Lost(tally) + " because " +
                   context.Top(tally.threads, 2, tally.total()) +
                   " had to wait for CPU quota: that of " + whose + ".";

  if (cgroup != nullptr) {
    AddEvidence(finding, "cgroup_quota_cpus",
                Ratio(cgroup->quota, cgroup->period), "ratio",
                "The quota is that of " + context.QuotaText(*cgroup) + ".");
    if (cgroup->periods > 0) {
      const Ns throttled(static_cast<int64_t>(cgroup->throttled_ns));
      AddEvidence(finding, "cgroup_throttled_periods",
                  static_cast<double>(cgroup->throttled_periods), "count",
                  "Throttled in " + FormatCount(cgroup->throttled_periods) +
                      " of " + FormatCount(cgroup->periods) +
                      " periods of the window (cpu.stat).");
      AddEvidence(finding, "cgroup_throttled_ns",
                  static_cast<double>(cgroup->throttled_ns), "ns",
                  "Its threads were throttled for " +
                      FormatDuration(throttled) +
                      " in all, summed over CPUs (cpu.stat).");
    }
  }
  Recommend(finding,
            "Raise the CPU quota or remove it: cpu.max of the cgroup "
            "(cpu.cfs_quota_us on cgroup v1), `docker run --cpus`, Kubernetes "
            "limits.cpu, systemd CPUQuota=.",
            tally.known);
  const double cpus = context.QuotaCpus(process);
  if (cpus > 0 && context.report.facts.cpus > 0) {
    char text[32];
    std::snprintf(text, sizeof text, "%.3g", cpus);
    Recommend(finding,
              std::string("Or need less CPU: size thread pools and loader "
                          "processes by the quota (") +
                  text + " CPUs), not by the " +
                  FormatCount(context.report.facts.cpus) +
                  " CPUs of the machine. All threads of the cgroup draw on the "
                  "same quota.",
              Ns(0));
  }
}

}  // namespace

const Rule kCgroupQuotaRule = {"cgroup-quota", true, Severity::kHigh, Take,
                               Describe};

}  // namespace ingero::analysis
