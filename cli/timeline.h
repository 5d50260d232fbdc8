// SPDX-License-Identifier: Apache-2.0
// What one thread did, in order of time: its states, and its CUDA calls with
// what they were spent on. `ingero timeline` prints it, and get_timeline of
// `ingero mcp` hands out its JSON.
#ifndef INGERO_CLI_TIMELINE_H_
#define INGERO_CLI_TIMELINE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "analysis/timelines.h"
#include "base/status.h"
#include "cli/render/json.h"
#include "merge/trace_reader.h"

namespace ingero::cli {

// A stretch in one state, cut to the window.
struct Stretch {
  analysis::Segment segment;
  // Runnable: who held the CPU that it ran on at last, most time first; kNone:
  // nobody (it was idle, or is not known).
  std::vector<std::pair<analysis::ThreadIndex, Ns>> holders;
};

struct TimelineCall {
  analysis::Call call;
  std::optional<analysis::CallSplit> split;
};

struct Timeline {
  analysis::ThreadIndex thread = analysis::kNone;
  Interval window;
  bool scheduling_known = false;  // any of it
  std::vector<Stretch> stretches;  // by time, without gaps where known
  std::vector<TimelineCall> calls;  // by begin; those that begin in the window
};

// More than so many stretches or calls are an error that says to ask of less.
inline constexpr size_t kMaxTimelineEntries = 500'000;

// The thread that is meant by a tid and a pid (0: not given; pid alone: the main
// thread), of those that were seen in the window.
Result<analysis::ThreadIndex> FindThread(const merge::TraceReader& trace,
                                         uint32_t tid, uint32_t pid,
                                         Interval window);

// go_on: now and then, with the share that is done; false: give up.
// Memory: the switches of one second, and the entries.
Result<Timeline> BuildTimeline(const merge::TraceReader& trace,
                               analysis::ThreadIndex thread, Interval window,
                               const std::function<bool(double)>& go_on);

// Time in each state.
Json TimelineSums(const Timeline& timeline);
// Stretches and calls by time; a call comes after the stretch that it begins in.
Json TimelineEvents(const merge::TraceReader& trace, const Timeline& timeline);
Json TimelineThread(const merge::TraceReader& trace, const Timeline& timeline);

// Indices into stretches and calls, merged by time.
struct TimelineEntry {
  bool is_call = false;
  size_t index = 0;
};
std::vector<TimelineEntry> InOrder(const Timeline& timeline);

}  // namespace ingero::cli

#endif  // INGERO_CLI_TIMELINE_H_
