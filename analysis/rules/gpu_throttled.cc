// SPDX-License-Identifier: Apache-2.0
// Says:        A limit of power or temperature held the GPU's clock back, and
//              the clock was measured to be lower.
// Not a cause: It makes GPU work slower; it does not starve the GPU.
// Near-miss:   A reason without a lower clock, or a lower clock because the
//              GPU was idle.
// See docs/rules.md.
#include "analysis/rules/registry.h"
#include "base/text.h"

namespace ingero::analysis {
namespace {

constexpr double kLeastShare = 0.1;   // of the samples
constexpr double kLowerClock = 0.95;  // of the highest seen

std::string Lacks(const Report& report, bool) {
  return report.gpu_clocks.empty() ? "no GPU clocks were sampled (NVML)" : "";
}

std::string Reasons(uint64_t mask) {
  static constexpr std::pair<uint64_t, const char*> kNames[] = {
      {0x04, "power cap"},
      {0x08, "hardware slowdown"},
      {0x20, "temperature (software)"},
      {0x40, "temperature (hardware)"},
      {0x80, "power brake"}};
  std::string text;
  for (const auto& [bit, name] : kNames)
    if (mask & bit) text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

bool Look(const Context& context, Finding* finding) {
  std::string list;
  double worst = 1;
  for (const auto& [gpu, c] : context.report.gpu_clocks) {
    if (c.held == 0 || c.most_mhz == 0 ||
        static_cast<double>(c.held) <
            kLeastShare * static_cast<double>(c.samples))
      continue;
    const double mean =
        static_cast<double>(c.held_mhz_sum) / static_cast<double>(c.held);
    const double share = mean / static_cast<double>(c.most_mhz);
    if (share > kLowerClock) continue;
    worst = std::min(worst, share);
    list += (list.empty() ? "GPU " : "; GPU ") + std::to_string(gpu) +
            " ran at " + FormatCount(static_cast<uint64_t>(mean + 0.5)) +
            " MHz on average where its clock was held back (" +
            Reasons(c.reasons) + "), in " +
            FormatPercent(static_cast<double>(c.held) /
                          static_cast<double>(c.samples)) +
            " of the samples, and at up to " + FormatCount(c.most_mhz) +
            " MHz";
  }
  if (list.empty()) return false;
  finding->claim = list + ". GPU work takes longer meanwhile; that is no "
                          "starvation.";
  AddEvidence(finding, "gpu_clock_share", worst, "ratio",
              "The lowest mean clock was " + FormatPercent(worst) +
                  " of the highest seen.");
  Recommend(finding,
            "See nvidia-smi -q -d PERFORMANCE: cooling, the power limit, other "
            "GPUs in the same chassis.",
            Ns(0));
  return true;
}

}  // namespace

const ContextRule kGpuThrottledRule = {"gpu-throttled", Lacks, Look};

}  // namespace ingero::analysis
