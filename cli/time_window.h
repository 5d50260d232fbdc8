// SPDX-License-Identifier: Apache-2.0
// --since, --from and --to: what people write, and what it means in a given
// recording.
//
//   durations   60s  1.5m  1h30m  250ms
//   offsets     12.5s  +12.5s         from the start of the recording
//   time of day 22:01  22:01:30.5     on the recording's day, local time zone
//   ISO 8601    2026-11-29T22:01:30[.5][Z|+01:00]  without a zone: local
//
// Parsing needs no recording, so that a typing error is told before one is
// opened. Pure but for the local time zone.
#ifndef INGERO_CLI_TIME_WINDOW_H_
#define INGERO_CLI_TIME_WINDOW_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/interval.h"
#include "base/status.h"
#include "base/units.h"

namespace ingero::cli {

Result<Ns> ParseDuration(std::string_view text);

// A point in time as written.
struct TimeSpec {
  enum class Kind { kOffset, kTimeOfDay, kRealtime } kind = Kind::kOffset;
  Ns value;  // since the recording's start / midnight / 1970 (CLOCK_REALTIME)
};
Result<TimeSpec> ParseTime(std::string_view text);

// The three options of one command, as given; "" = not given.
struct WindowOptions {
  std::string since{}, from{}, to{};
};
struct WindowSpec {
  std::optional<Ns> since;
  std::optional<TimeSpec> from, to;
  bool empty() const { return !since && !from && !to; }
};
// Errors name the option and what to write instead.
Result<WindowSpec> ParseWindow(const WindowOptions& options);

struct RecordingClock {
  Interval span;
  int64_t realtime_at_begin_ns = 0;  // 0 = not known
};
// The part of the span that was asked for. An error, which says what the
// recording covers, where that is empty.
Result<Interval> ResolveWindow(const WindowSpec& spec,
                               const RecordingClock& clock);

}  // namespace ingero::cli

#endif  // INGERO_CLI_TIME_WINDOW_H_
