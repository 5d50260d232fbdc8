// SPDX-License-Identifier: Apache-2.0
#include "merge/clock_map.h"

#include <algorithm>
#include <cmath>

namespace ingero::merge {
namespace {

// The error of extrapolating at a nominal rate: what a TSC's calibration is
// good for.
constexpr double kNominalRateError = 500e-6;

// Where ticks go on and CLOCK_MONOTONIC does not, the machine was suspended. No
// slew comes near.
constexpr double kStoppedRate = 0.5;

// A damaged sample is alone. More that go backwards are a counter that began
// anew: what was before and what after it cannot be told apart.
constexpr size_t kBackwardShare = 8;

// What ns since boot can be, so that no difference overflows whatever a damaged
// stream holds.
constexpr int64_t kMostNs = 4'000'000'000'000'000'000;

// Sorts; drops what repeats, goes backwards or cannot be, and samples much wider
// than the usual (preempted between the two reads of the TSC).
std::vector<Knot> Usable(std::vector<Knot> knots, bool* went_back) {
  std::erase_if(knots, [](const Knot& k) {
    return k.mono_ns > kMostNs || k.mono_ns < -kMostNs;
  });
  if (knots.empty()) return knots;
  std::sort(knots.begin(), knots.end(),
            [](const Knot& a, const Knot& b) { return a.ticks < b.ticks; });
  std::vector<uint64_t> windows;
  for (const Knot& k : knots) windows.push_back(k.window_ticks);
  std::nth_element(windows.begin(), windows.begin() + windows.size() / 2,
                   windows.end());
  const uint64_t limit = 8 * std::max<uint64_t>(windows[windows.size() / 2],
                                                100);
  std::vector<Knot> usable;
  size_t backward = 0;
  for (const Knot& k : knots) {
    if (k.window_ticks > limit) continue;
    if (!usable.empty()) {
      if (k.ticks == usable.back().ticks) continue;
      if (k.mono_ns <= usable.back().mono_ns) {
        ++backward;
        continue;
      }
    }
    usable.push_back(k);
  }
  *went_back |= backward > 1 && backward > knots.size() / kBackwardShare;
  return usable;
}

double SlopeOf(const Knot& a, const Knot& b) {
  return static_cast<double>(b.mono_ns - a.mono_ns) /
         static_cast<double>(b.ticks - a.ticks);
}

// Signed distance without overflow for any two tick values.
double TicksBetween(uint64_t from, uint64_t to) {
  return to >= from ? static_cast<double>(to - from)
                    : -static_cast<double>(from - to);
}

// Rounds and keeps within that.
int64_t Bounded(double ns) {
  constexpr auto kLimit = static_cast<double>(kMostNs);
  return static_cast<int64_t>(std::llround(std::clamp(ns, -kLimit, kLimit)));
}

}  // namespace

ClockMap ClockMap::Identity(int64_t offset_ns) {
  ClockMap map;
  map.identity_ = true;
  map.offset_ns_ = offset_ns;
  return map;
}

std::optional<ClockMap> ClockMap::Fit(std::vector<Knot> host,
                                      std::vector<Knot> own, uint64_t hz,
                                      std::string* why) {
  const auto refuse = [&](const char* reason) {
    if (why != nullptr) *why = reason;
    return std::nullopt;
  };
  bool went_back = false;
  host = Usable(std::move(host), &went_back);
  own = Usable(std::move(own), &went_back);
  ClockMap map;
  map.uses_host_ = !host.empty();
  if (!host.empty()) {
    const uint64_t first = host.front().ticks, last = host.back().ticks;
    std::erase_if(own, [&](const Knot& k) {
      return k.ticks >= first && k.ticks <= last;
    });
  }
  own.insert(own.end(), host.begin(), host.end());
  map.knots_ = Usable(std::move(own), &went_back);
  std::vector<Knot>& knots = map.knots_;
  if (went_back)
    return refuse(
        "the CPU's time stamp counter began anew meanwhile (a suspend, a "
        "virtual machine that was moved)");
  if (knots.empty()) return refuse("it holds no clock sample");
  map.stopped_.assign(knots.size(), false);
  if (knots.size() == 1) {
    if (hz == 0)
      return refuse("it holds one clock sample only, and not the clock's rate");
    map.overall_slope_ = 1e9 / static_cast<double>(hz);
  } else {
    std::vector<double> slopes;
    for (size_t i = 0; i + 1 < knots.size(); ++i)
      slopes.push_back(SlopeOf(knots[i], knots[i + 1]));
    std::vector<double> sorted = slopes;
    std::nth_element(sorted.begin(), sorted.begin() + sorted.size() / 2,
                     sorted.end());
    const double usual = sorted[sorted.size() / 2];
    double ns = 0, ticks = 0;
    for (size_t i = 0; i < slopes.size(); ++i) {
      map.stopped_[i] = slopes[i] < kStoppedRate * usual;
      if (map.stopped_[i]) continue;
      ns += static_cast<double>(knots[i + 1].mono_ns - knots[i].mono_ns);
      ticks += TicksBetween(knots[i].ticks, knots[i + 1].ticks);
    }
    map.overall_slope_ = ns / ticks;
  }
  if (!(map.overall_slope_ > 0) || map.overall_slope_ > 1e6)
    return refuse("its clock samples tell an impossible rate");

  uint64_t widest = 0;
  for (const Knot& k : knots) widest = std::max(widest, k.window_ticks);
  double miss = 0;
  for (size_t i = 1; i + 1 < knots.size(); ++i) {
    if (map.stopped_[i - 1] || map.stopped_[i]) continue;
    const double at =
        static_cast<double>(knots[i - 1].mono_ns) +
        SlopeOf(knots[i - 1], knots[i + 1]) *
            TicksBetween(knots[i - 1].ticks, knots[i].ticks);
    miss = std::max(miss,
                    std::abs(at - static_cast<double>(knots[i].mono_ns)));
  }
  double error =
      static_cast<double>(widest) / 2 * map.overall_slope_ + miss;
  if (knots.size() == 1) error += 1e9 * kNominalRateError;  // a second away
  map.error_ns_ = Bounded(std::ceil(error));
  return map;
}

int64_t ClockMap::ToNs(uint64_t ticks) const {
  if (identity_)
    return static_cast<int64_t>(ticks - static_cast<uint64_t>(offset_ns_));
  const auto on_line = [&](const Knot& from, double slope) {
    return Bounded(static_cast<double>(from.mono_ns) +
                   slope * TicksBetween(from.ticks, ticks));
  };
  // Far from the knot a double cannot hold ns; near it (hours) it can: the
  // product is small and only then added in integers.
  const auto near_line = [&](const Knot& from, double slope) {
    const double delta = slope * TicksBetween(from.ticks, ticks);
    if (std::abs(delta) > 4e17) return on_line(from, slope);
    return from.mono_ns + static_cast<int64_t>(std::llround(delta));
  };
  if (ticks <= knots_.front().ticks)
    return near_line(knots_.front(), overall_slope_);
  if (ticks >= knots_.back().ticks)
    return near_line(knots_.back(), overall_slope_);
  // Calls come nearly in order: the last segment or the next is usually right.
  size_t i = hint_;
  if (!(i + 1 < knots_.size() && knots_[i].ticks <= ticks &&
        ticks < knots_[i + 1].ticks)) {
    const auto after = std::upper_bound(
        knots_.begin(), knots_.end(), ticks,
        [](uint64_t t, const Knot& k) { return t < k.ticks; });
    i = static_cast<size_t>(after - knots_.begin()) - 1;
    hint_ = i;
  }
  const Knot& before = knots_[i];
  const Knot& after = knots_[i + 1];
  if (!stopped_[i]) return near_line(before, SlopeOf(before, after));
  const bool first =
      TicksBetween(before.ticks, ticks) < TicksBetween(ticks, after.ticks);
  return std::clamp(near_line(first ? before : after, overall_slope_),
                    before.mono_ns, after.mono_ns);
}

}  // namespace ingero::merge
