// SPDX-License-Identifier: Apache-2.0
// Says:        Host functions were put on streams: while one runs, nothing
//              behind it on its stream does.
// Not a cause: Their run time is not recorded, and the GPU counts as having
//              work meanwhile.
// See docs/rules.md.
#include "analysis/rules/registry.h"
#include "base/text.h"

namespace ingero::analysis {
namespace {

std::string Lacks(const Report&, bool) { return ""; }

bool Look(const Context& context, Finding* finding) {
  uint64_t calls = 0;
  std::string name;
  for (const Operation& o : context.report.operations) {
    if (o.process != context.facts.process ||
        context.ClassOf(o.func) != CallClass::kHostFunc)
      continue;
    // A runtime call holds the driver's.
    if (o.count + o.first_uses <= calls) continue;
    calls = o.count + o.first_uses;
    name = context.FunctionName(o.func);
  }
  if (calls == 0) return false;
  finding->claim =
      context.ProcessName(context.facts.process) + " put " +
      FormatCount(calls) +
      (calls == 1 ? " host function" : " host functions") + " on streams (" +
      name +
      "): while one runs, nothing behind it on its stream does, and the GPU "
      "looks busy. How long they ran is not recorded.";
  AddEvidence(finding, "host_functions", static_cast<double>(calls), "count",
              FormatCount(calls) + " calls of " + name + ".");
  Recommend(finding,
            "Keep host functions short; where one only signals, record an "
            "event instead.",
            Ns(0));
  return true;
}

}  // namespace

const ContextRule kHostCallbackRule = {"host-callback", Lacks, Look};

}  // namespace ingero::analysis
