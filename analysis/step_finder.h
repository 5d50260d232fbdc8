// SPDX-License-Identifier: Apache-2.0
// Finds the period of a program in its CUDA calls: a call that one thread makes
// again and again after the same number of submissions.
//
// Candidates are synchronisations and graph launches. Their spacing is counted
// in submissions, never in time, so that a step stays a step however slow it
// was. Of several candidates the one that comes most often is taken: a step is
// the shortest stretch that repeats, but for one that submits a single
// launch (a program that synchronises after each has no step there).
//
// Memory: kMostKinds candidates; further ones are not looked at.
#ifndef INGERO_ANALYSIS_STEP_FINDER_H_
#define INGERO_ANALYSIS_STEP_FINDER_H_

#include <array>
#include <optional>
#include <vector>

#include "analysis/feeding.h"
#include "analysis/trace.h"

namespace ingero::analysis {

struct StepKind {
  ThreadIndex thread = kNone;
  FuncIndex func = kNone;
  uint64_t object = 0;  // stream, or graph; 0 where it does not matter
  uint32_t every = 1;   // so many of these calls are one step
  uint64_t calls = 0;   // in all
  uint64_t submissions = 0;  // of a usual step
};

class StepFinder {
 public:
  // Of calls at depth 0, in order of their begin.
  void OnCall(const Call& call, const FuncTraits& traits);
  std::optional<StepKind> Find() const;

  // Whether the call can bound a step, and what tells it from others.
  static bool Bounds(const Call& call, const FuncTraits& traits,
                     StepKind* kind);

  static constexpr uint64_t kLeastSteps = 20;

 private:
  static constexpr size_t kMostKinds = 64, kLongest = 16;
  struct Candidate {
    StepKind kind;
    uint64_t first = 0, last = 0;  // submissions before it
    std::array<uint64_t, kLongest> spacing{};  // the newest, as a ring
    std::array<uint64_t, kLongest + 1> alike{};  // by distance
    uint64_t spacings = 0;
    bool graph = false;
  };

  std::vector<Candidate> candidates_;
  size_t last_ = 0;
  uint64_t submissions_ = 0;
};

}  // namespace ingero::analysis

#endif  // INGERO_ANALYSIS_STEP_FINDER_H_
