// SPDX-License-Identifier: Apache-2.0
// Says:        Another process than the program's own was on the GPU (NVML).
// Not a cause: When its kernels ran is not known from the host.
// Near-miss:   The program's own processes; one that was there in less than a
//              tenth of the samples that show the program; one that was there
//              before or after it.
// See docs/rules.md.
#include <algorithm>
#include <set>
#include <vector>

#include "analysis/rules/registry.h"
#include "base/text.h"

namespace ingero::analysis {
namespace {

constexpr double kLeastShare = 0.1;
constexpr size_t kNamed = 3;
// Rows of one sample are this close; samples are a second apart.
constexpr Ns kOneSample{100'000'000};

std::string Lacks(const Report& report, bool) {
  return report.gpu_process_samples > 0
             ? ""
             : "processes on the GPU were not sampled (NVML)";
}

bool Look(const Context& context, Finding* finding) {
  const Report& r = context.report;
  struct Other {
    uint64_t pid;
    const GpuProcess* on_gpu;
    ProcessIndex process;
    size_t beside;  // samples that show the program too
  };
  std::vector<Other> others;
  std::set<Ns> own_seen;  // times of samples
  for (const auto& [pid, on_gpu] : r.gpu_processes) {
    ProcessIndex process = kNone;
    for (ProcessIndex p = 0; p < r.processes.size(); ++p)
      if (r.processes[p].pid == pid || r.processes[p].ns_pid == pid)
        process = p;
    const bool own =
        process != kNone && r.processes[process].main_thread != kNone &&
        context.InTree(r.processes[process].main_thread);
    if (own)
      own_seen.insert(on_gpu.seen.begin(), on_gpu.seen.end());
    else if (!(process != kNone && r.processes[process].is_ingero))
      others.push_back({pid, &on_gpu, process, 0});
  }
  // Of which GPU the program itself is on, only its own row tells; who was
  // there before or after it took nothing from it.
  for (Other& o : others)
    for (Ns t : o.on_gpu->seen) {
      const auto near = own_seen.lower_bound(t - kOneSample);
      o.beside += near != own_seen.end() && *near <= t + kOneSample;
    }
  others.erase(std::remove_if(others.begin(), others.end(),
                              [&](const Other& o) {
                                return o.beside == 0 ||
                                       static_cast<double>(o.beside) <
                                           kLeastShare *
                                               static_cast<double>(
                                                   own_seen.size());
                              }),
               others.end());
  if (others.empty()) return false;
  std::stable_sort(
      others.begin(), others.end(),
      [](const Other& a, const Other& b) { return a.beside > b.beside; });
  std::string list;
  for (size_t i = 0; i < others.size() && i < kNamed; ++i) {
    const Other& o = others[i];
    list += (i == 0 ? "" : ", ") +
            (o.process == kNone ? "process " + std::to_string(o.pid)
                                : context.ProcessName(o.process));
    if (o.on_gpu->bytes != UINT64_MAX && o.on_gpu->bytes > 0)
      list += " (" + FormatBytes(o.on_gpu->bytes) + " of GPU memory)";
  }
  if (others.size() > kNamed)
    list += " and " + FormatCount(others.size() - kNamed) + " more";
  finding->claim =
      (others.size() == 1 ? std::string("Another process was")
                          : FormatCount(others.size()) +
                                " other processes were") +
      " on a GPU of this machine at the same time: " + list +
      ". Where it is the same GPU, its kernels make " +
      context.ProcessName(context.facts.process) +
      "'s wait while the GPU looks busy; for how long is not known from the "
      "host.";
  AddEvidence(finding, "gpu_processes_of_others",
              static_cast<double>(others.size()), "count",
              FormatCount(others.size()) +
                  (others.size() == 1 ? " process that is"
                                      : " processes that are") +
                  " not the program's, by NVML.");
  Recommend(finding,
            "Give the program a GPU of its own, or end the other process "
            "(nvidia-smi lists them), and measure again.",
            Ns(0));
  return true;
}

}  // namespace

const ContextRule kGpuSharedRule = {"gpu-shared", Lacks, Look};

}  // namespace ingero::analysis
