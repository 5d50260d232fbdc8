// SPDX-License-Identifier: Apache-2.0
// Claim:       A loader process on the path has no CPU and the program's own
//              tree holds it, or a loader holds the CPU of the feeding
//              process.
// Needs:       Kernel stream.
// Near-miss:   Many workers alone prove nothing: only time lost runnable
//              counts.
// See docs/rules.md.
#include "analysis/rules/registry.h"
#include "base/text.h"

namespace ingero::analysis {
namespace {

Ns Take(const Context& context, const PathCell& cell, Ns left) {
  if (cell.reason != Reason::kWaitingForCpu || cell.culprit == kNone ||
      context.IsIngero(cell.culprit) || !context.InTree(cell.culprit))
    return Ns(0);
  const bool supplier_waits = context.IsLoader(cell.thread);
  const bool supplier_holds =
      context.IsOwn(cell.thread) && context.IsLoader(cell.culprit);
  return supplier_waits || supplier_holds ? left : Ns(0);
}

void Describe(const Context& context, const Tally& tally, Finding* finding) {
  const std::string cpus = context.UsableCpusText();
  finding->claim =
      "The GPU waited " + context.Lost(tally) + " because " +
      context.Top(tally.threads, 2, tally.total()) +
      " had to wait for a CPU: the program's own loader held it (" +
      context.Top(tally.culprits, 3, tally.total()) + ").";
  Ns of_loaders;  // the rest: the program itself waited for them
  for (const auto& [thread, time] : tally.threads)
    if (context.IsLoader(thread)) of_loaders += time;
  constexpr const char* kCheaper =
      "fetch it whole by index (BatchSampler with __getitems__), and give each "
      "worker one thread (torch.set_num_threads(1), OMP_NUM_THREADS=1)";
  if (of_loaders * 2 > tally.total())
    // They compute all that these CPUs give, however many they are.
    Recommend(finding,
              std::string("Make a batch cheaper, or give the loader more CPUs") +
                  (cpus.empty() ? std::string() : " (" + cpus + ")") +
                  ": " + kCheaper +
                  ". Fewer loader processes (DataLoader num_workers) would save "
                  "memory and switches, but compute as long.",
              tally.known);
  else
    Recommend(finding,
              "Use fewer loader processes (DataLoader num_workers)" +
                  (cpus.empty() ? std::string()
                                : ": " + cpus + ", and the main thread needs "
                                                "one") +
                  ". Make a batch cheaper: " + kCheaper + ".",
              tally.known);
}

}  // namespace

const Rule kLoaderOversubscribedRule = {"loader-oversubscribed", true,
                                        Severity::kHigh, Take, Describe};

}  // namespace ingero::analysis
