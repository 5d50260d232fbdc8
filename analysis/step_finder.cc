// SPDX-License-Identifier: Apache-2.0
#include "analysis/step_finder.h"

#include <algorithm>

namespace ingero::analysis {
namespace {

// Of the spacings, so many must come again.
constexpr double kRegular = 0.8;
// Of the program's submissions, so many must lie between the first and the
// last: else it is a phase, not the program.
constexpr double kCovered = 0.8;

// Now and then a step does a little more (logging, a check).
bool Alike(uint64_t a, uint64_t b) {
  return std::max(a, b) - std::min(a, b) <= std::max(a, b) / 10;
}

}  // namespace

bool StepFinder::Bounds(const Call& call, const FuncTraits& traits,
                        StepKind* kind) {
  if (call.depth != 0 || call.result != 0 || call.captured || call.no_end)
    return false;
  kind->thread = call.thread;
  kind->func = call.func;
  kind->object = 0;
  switch (traits.call_class) {
    case CallClass::kSyncStream:
      kind->object = call.stream;
      return true;
    case CallClass::kGraphLaunch:
      kind->object = call.object;
      return true;
    case CallClass::kSyncDevice:
    case CallClass::kSyncEvent:  // events are often new ones each time
      return true;
    case CallClass::kCopy:
      return call.direction == CopyDirection::kDeviceToHost;
    default:
      return false;
  }
}

void StepFinder::OnCall(const Call& call, const FuncTraits& traits) {
  if (call.depth != 0 || call.captured) return;
  StepKind kind;
  if (Bounds(call, traits, &kind)) {
    const auto same = [&](const Candidate& c) {
      return c.kind.thread == kind.thread && c.kind.func == kind.func &&
             c.kind.object == kind.object;
    };
    if (last_ >= candidates_.size() || !same(candidates_[last_])) {
      last_ = static_cast<size_t>(
          std::find_if(candidates_.begin(), candidates_.end(), same) -
          candidates_.begin());
      if (last_ == candidates_.size() && last_ < kMostKinds) {
        candidates_.emplace_back().kind = kind;
        candidates_.back().graph =
            traits.call_class == CallClass::kGraphLaunch;
      }
    }
    if (last_ < candidates_.size()) {
      Candidate& c = candidates_[last_];
      if (c.kind.calls++ == 0) {
        c.first = submissions_;
      } else {
        const uint64_t spacing = submissions_ - c.last;
        for (size_t k = 1; k <= kLongest && k <= c.spacings; ++k)
          c.alike[k] += Alike(spacing, c.spacing[(c.spacings - k) % kLongest]);
        c.spacing[c.spacings++ % kLongest] = spacing;
      }
      c.last = submissions_;
    }
  }
  if (IsSubmission(traits.call_class)) ++submissions_;
}

std::optional<StepKind> StepFinder::Find() const {
  std::optional<StepKind> best;
  uint64_t best_steps = 0;
  for (const Candidate& c : candidates_) {
    if (static_cast<double>(c.last - c.first) <
        kCovered * static_cast<double>(submissions_))
      continue;
    for (size_t k = 1; k <= kLongest && k < c.spacings; ++k) {
      if (static_cast<double>(c.alike[k]) <
          kRegular * static_cast<double>(c.spacings - k))
        continue;
      const uint64_t steps = c.spacings / k;
      StepKind kind = c.kind;
      kind.every = static_cast<uint32_t>(k);
      kind.submissions = (c.last - c.first + steps / 2) / std::max<uint64_t>(
                             steps, 1);
      // Nothing but one launch is no step, unless it launches a whole graph.
      const bool enough = kind.submissions >= (c.graph ? 1u : 2u);
      if (enough && steps >= kLeastSteps && steps > best_steps) {
        best = kind;
        best_steps = steps;
      }
      break;
    }
  }
  return best;
}

}  // namespace ingero::analysis
