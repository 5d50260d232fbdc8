// SPDX-License-Identifier: Apache-2.0
// A store as the events that trace viewers draw: slices on tracks, scheduling,
// counters. One walk (events.h), a sink for each file format.
//
// Invariants of what a sink is given (CASES 70):
//  (1) the slices of one track nest strictly; Begin and End come in order of
//      time on each track, an outer slice before the inner one that begins with
//      it, and an End before a Begin of the same moment.
//  (2) all times are ns of the host's CLOCK_MONOTONIC, exactly as stored.
// Tracks, and the switches, come one after the other, not merged by time.
#ifndef INGERO_CLI_EXPORT_EVENT_SINK_H_
#define INGERO_CLI_EXPORT_EVENT_SINK_H_

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "analysis/trace.h"
#include "base/units.h"

namespace ingero::cli {

struct EventArg {
  const char* name;  // literal
  std::variant<int64_t, std::string_view> value;
};
using EventArgs = std::vector<EventArg>;

using TrackId = uint64_t;

struct TrackInfo {
  TrackId id = 0;
  enum class Kind { kProcess, kThread, kOther, kCounter } kind = Kind::kOther;
  uint32_t pid = 0, tid = 0;  // 0: of no process
  TrackId parent = 0;         // of kOther, kCounter; 0 = none
  std::string name;
  std::string command;        // of a process
};

class EventSink {
 public:
  virtual ~EventSink() = default;
  // Once, first. The wall clock's time at `begin`, 0 = not known.
  virtual void Start(Ns begin, int64_t wall_clock_ns) = 0;
  // Before the track's first event.
  virtual void AddTrack(const TrackInfo& track) = 0;
  virtual void Begin(TrackId track, Ns t, std::string_view name,
                     const EventArgs& args) = 0;
  virtual void End(TrackId track, Ns t) = 0;
  virtual void Count(TrackId track, Ns t, double value) = 0;

  struct SchedThread {
    uint32_t tid = 0;  // 0: the idle task
    bool known = true;
    std::string_view name;
  };
  // By time. `waker`: of s.wake, where that is set.
  virtual void Switch(const analysis::Switch& s, const SchedThread& prev,
                      const SchedThread& next, const SchedThread& waker) = 0;
  virtual void Finish() = 0;
};

}  // namespace ingero::cli

#endif  // INGERO_CLI_EXPORT_EVENT_SINK_H_
