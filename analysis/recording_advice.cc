// SPDX-License-Identifier: Apache-2.0
#include "analysis/recording_advice.h"

namespace ingero::analysis {

bool IsImported(const TraceFacts& facts) {
  return !facts.streams.empty() && facts.tracing_cost == Ns(0) &&
         facts.companion_cost == Ns(0);
}

std::string NoScheduling(const Report& report) {
  return IsImported(report.facts)
             ? "an imported trace says nothing of the scheduler: import it "
               "together with what perf recorded at the same time, or record "
               "the program with `ingero run`"
             : "no kernel stream: record with `sudo ingero-kprobe` beside the "
               "program";
}

std::string RecordScheduling(const Report& report) {
  return IsImported(report.facts)
             ? "Record the program with `ingero run`; or let perf record all "
               "CPUs beside the profiler, and import both files together."
             : "Record again with `sudo ingero-kprobe` running beside the "
               "program.";
}

}  // namespace ingero::analysis
