// SPDX-License-Identifier: Apache-2.0
// Ticks of one recorder to ns on the host's CLOCK_MONOTONIC: straight lines
// between paired samples ("knots"). Pure; docs/clocks.md argues the bound.
#ifndef INGERO_MERGE_CLOCK_MAP_H_
#define INGERO_MERGE_CLOCK_MAP_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/interval.h"

namespace ingero::merge {

struct Knot {
  uint64_t ticks = 0;
  int64_t mono_ns = 0;       // host's CLOCK_MONOTONIC
  uint64_t window_ticks = 0;  // the reading lies somewhere in it
};

class ClockMap {
 public:
  // Ticks are ns already, `offset_ns` ahead of the host's clock.
  static ClockMap Identity(int64_t offset_ns);
  // Host-wide knots rule where they cover; outside, the stream's own do.
  // hz: nominal, only used where there is a single knot. nullopt, and *why: no
  // usable knot (or one and no hz), or ticks that went back.
  static std::optional<ClockMap> Fit(std::vector<Knot> host,
                                     std::vector<Knot> own, uint64_t hz,
                                     std::string* why = nullptr);

  // Outside of the knots: on with the slope of the whole range. Between two
  // knots that a suspend lies between, on from the nearer of them.
  int64_t ToNs(uint64_t ticks) const;
  // Bound of |ToNs - truth| between the knots: half the widest sample window,
  // plus what a knot misses the line through its neighbours by. A suspend
  // counts for nothing.
  int64_t error_ns() const { return error_ns_; }
  size_t knots() const { return knots_.size(); }
  bool uses_host_knots() const { return uses_host_; }

 private:
  bool identity_ = false;
  int64_t offset_ns_ = 0;
  double overall_slope_ = 1;  // ns a tick
  std::vector<Knot> knots_;
  std::vector<bool> stopped_;  // between knots i and i + 1
  bool uses_host_ = false;
  int64_t error_ns_ = 0;
  mutable size_t hint_ = 0;
};

}  // namespace ingero::merge

#endif  // INGERO_MERGE_CLOCK_MAP_H_
