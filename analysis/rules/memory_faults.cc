// SPDX-License-Identifier: Apache-2.0
// Claim:       Host code on the path allocated so many pages that their cost
//              is at least half of its time: an estimate.
// Needs:       Kernel stream, and what a page costs: the process's time in the
//              kernel over its pages, else the companion's measurement.
// Near-miss:   Some pages in much host code: the host code is the cause.
// See docs/rules.md.
#include <optional>

#include "analysis/rules/registry.h"
#include "base/text.h"

namespace ingero::analysis {
namespace {

// Below half of the time, whatever else the thread did is the cause.
constexpr double kMinShare = 0.5;

Ns Take(const Context& context, const PathCell& cell, Ns left) {
  // An estimate. It is the cause only where it is most of the cell.
  const Ns page_cost = context.PageCost(context.ProcessOf(cell.thread));
  if (page_cost <= Ns(0) || cell.pages == 0 ||
      cell.state != ThreadState::kRunning || cell.reason != Reason::kHostCode ||
      context.IsIngero(cell.thread))
    return Ns(0);
  const Ns cost = std::min(
      left,
      Ns(static_cast<int64_t>(std::min<uint64_t>(cell.pages, 1'000'000'000)) *
         page_cost.value));
  return Ratio(cost, cell.time) >= kMinShare ? cost : Ns(0);
}

// Page faults of the process that took the pages, where they are so few that
// most pages came without one.
std::optional<uint64_t> FewFaults(const Context& context, const Tally& tally) {
  if (tally.threads.empty()) return std::nullopt;
  const ProcessIndex p = context.ProcessOf(Sorted(tally.threads)[0].first);
  for (const ProcessActivity& a : context.report.activities)
    if (a.process == p && a.min_faults != 0 && a.min_faults < a.pages / 2) return a.min_faults;
  return std::nullopt;
}

void Describe(const Context& context, const Tally& tally, Finding* finding) {
  const std::string who = tally.threads.empty()
                              ? std::string("the program")
                              : context.Name(Sorted(tally.threads)[0].first);
  const Ns cost =
      tally.threads.empty()
          ? Ns(0)
          : context.PageCost(
                context.ProcessOf(Sorted(tally.threads)[0].first));
  finding->claim = who + " spent about " + context.Lost(tally) +
                   " taking new pages from the kernel (" +
                   FormatCount(tally.pages) + " pages at " +
                   FormatDuration(cost) +
                   " each) while the GPU waited. The time is an estimate: "
                   "pages on the critical path times what a page cost.";
  AddEvidence(
      finding, "pages", static_cast<double>(tally.pages), "count",
      FormatCount(tally.pages) + " pages were allocated on the critical path.");
  const std::optional<uint64_t> faults = FewFaults(context, tally);
  if (faults) {
    AddEvidence(finding, "minor_faults", static_cast<double>(*faults), "count",
                "Its process had " + FormatCount(*faults) +
                    " page faults in all: most of the pages were not memory "
                    "that it touched, but the kernel's (cache of files, "
                    "buffers of pipes and sockets) or parts of huge pages.");
  }
  const std::string reuse =
      "use memory again instead of allocating it per batch: fill preallocated "
      "(pinned) buffers, keep workers alive (persistent_workers=True), or use "
      "an allocator that keeps freed memory (MALLOC_TRIM_THRESHOLD_, "
      "jemalloc).";
  Recommend(finding,
            faults ? "Where it reads or writes files then (checkpoints, "
                     "caches), do that in another thread or process, or with "
                     "direct I/O; where it fills fresh memory, " + reuse
                   : "U" + reuse.substr(1),
            tally.known);
}

}  // namespace

const Rule kMemoryFaultsRule = {"memory-faults", true, Severity::kHigh, Take,
                                Describe};

}  // namespace ingero::analysis
