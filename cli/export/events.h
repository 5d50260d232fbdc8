// SPDX-License-Identifier: Apache-2.0
// Walks a store and gives its events to a sink (event_sink.h).
//
// Memory: a stack for each thread and track, a value for each counter.
#ifndef INGERO_CLI_EXPORT_EVENTS_H_
#define INGERO_CLI_EXPORT_EVENTS_H_

#include <cstdio>
#include <functional>
#include <memory>
#include <string>

#include "analysis/report.h"
#include "base/status.h"
#include "cli/export/event_sink.h"
#include "merge/trace_reader.h"

namespace ingero::cli {

void ExportEvents(const merge::TraceReader& trace,
                  const analysis::ReportOptions& options, Interval window,
                  EventSink* sink);

// What was sampled of the system, by time. Totals become what they grew by, as a
// share of the time or a rate, from the sample before to this one; the rest is
// as it was sampled. Names say the unit.
void ForEachCounter(
    const merge::TraceReader& trace, Interval window,
    const std::function<void(const std::string& name, Ns t, double value)>&
        count);

// https://perfetto.dev; opens in ui.perfetto.dev.
std::unique_ptr<EventSink> MakePerfettoSink(std::FILE* out);
// The JSON of chrome://tracing and Perfetto's "Trace Event Format".
std::unique_ptr<EventSink> MakeChromeSink(std::FILE* out);

// The starved time as folded stacks, "a;b;c NS" a line, for flamegraph.pl,
// speedscope and kin: whose GPU; cause; thread; its state and why; who had the
// CPU. Sums to what `ingero query` has in `path`.
std::string ExportFolded(const merge::TraceReader& trace,
                         const analysis::ReportOptions& options,
                         Interval window);

}  // namespace ingero::cli

#endif  // INGERO_CLI_EXPORT_EVENTS_H_
