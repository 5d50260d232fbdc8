// SPDX-License-Identifier: Apache-2.0
// Says:        A worker of the program was killed by a signal (as the kernel
//              does when memory runs out), or one on the path failed, while
//              the program used the GPU.
// Not a cause: What was lost by it is not known: others may have done its work.
// Near-miss:   Workers that end with status 0, or after the last GPU work.
// See docs/rules.md.
#include <vector>

#include "analysis/recording_advice.h"
#include "analysis/rules/registry.h"
#include "base/text.h"

namespace ingero::analysis {
namespace {

constexpr size_t kNamed = 3;
constexpr int kKilled = 9, kTerminated = 15;

std::string Lacks(const Report& report, bool has_kernel) {
  return has_kernel ? "" : NoScheduling(report);
}

std::string HowItEnded(int64_t code) {
  const int64_t signal = code & 0x7f;
  if (signal == 0)
    return "ended with status " + std::to_string(code >> 8 & 0xff);
  std::string text = "was killed by signal " + std::to_string(signal);
  if (signal == kKilled)
    text += " (SIGKILL: by the kernel where memory runs out, or by somebody)";
  if (signal == kTerminated) text += " (SIGTERM)";
  return text;
}

bool Look(const Context& context, Finding* finding) {
  const std::vector<Process>& all = context.report.processes;
  std::vector<ProcessIndex> died;
  for (ProcessIndex p = 0; p < all.size(); ++p) {
    if (!all[p].exited || !all[p].exit_code || *all[p].exit_code == 0 ||
        !context.facts.used.Contains(*all[p].exited) ||
        !context.Descends(p, context.facts.process))
      continue;
    const bool by_signal = (*all[p].exit_code & 0x7f) != 0;
    if (by_signal || context.facts.on_path.count(p) != 0) died.push_back(p);
  }
  if (died.empty()) return false;
  std::stable_sort(died.begin(), died.end(),
                   [&](ProcessIndex a, ProcessIndex b) {
                     return *all[a].exited < *all[b].exited;
                   });
  std::string list;
  for (size_t i = 0; i < died.size() && i < kNamed; ++i) {
    const Process& p = all[died[i]];
    const Ns at = *p.exited - context.report.span.begin;
    const std::string how = context.ProcessName(died[i]) + " " +
                            HowItEnded(*p.exit_code);
    list += (i == 0 ? "" : "; ") + how + ", " + FormatDuration(at) +
            " from the recording's start";
    finding->timeline.push_back({TimelineLine::Layer::kSystem,
                                 *p.exited - context.report.window.begin,
                                 how + "."});
  }
  if (died.size() > kNamed)
    list += "; and " + FormatCount(died.size() - kNamed) + " more";
  finding->claim =
      (died.size() == 1 ? std::string("A worker")
                        : FormatCount(died.size()) + " workers") +
      " died while the program used the GPU: " + list + ".";
  AddEvidence(finding, "workers_died", static_cast<double>(died.size()),
              "count", FormatCount(died.size()) + " died.");
  Recommend(finding,
            "See why it died first (dmesg, the memory limit of its cgroup, the "
            "size of /dev/shm): what was slow afterwards may follow from it.",
            Ns(0));
  return true;
}

}  // namespace

const ContextRule kWorkerDiedRule = {"worker-died", Lacks, Look};

}  // namespace ingero::analysis
