// SPDX-License-Identifier: Apache-2.0
// Statistics of a program's steps (analysis/step_finder.h finds them): how
// long, how well fed, and what was different in the slow ones.
//
// Stored times are exact to a cell of 10 ms; within one they are spread evenly
// over the steps there. Sums over many steps do not suffer from it, and a step
// that is slow by more than that does not either.
//
// Of a long time only sums by second are seen; then the cells of some slow steps
// stand for all of them.
//
// Memory: 8 bytes a step; more than kMostSteps are said and not looked at.
#ifndef INGERO_ANALYSIS_STEPS_H_
#define INGERO_ANALYSIS_STEPS_H_

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "analysis/report.h"

namespace ingero::analysis {

inline constexpr size_t kMostSteps = 4'000'000;

class StepStatistics : public TimeSink {
 public:
  explicit StepStatistics(bool by_second) : by_second_(by_second) {}
  // Looks for steps of `process`; before the time is seen.
  void Add(const ReportSource& source, ProcessIndex process, Interval window);
  void OnFeed(const FeedInterval& feed) override;
  void OnCause(const PathCell& cell, const char* cause, Ns time) override;
  // By second: what is to be seen cell by cell, after everything was seen. What
  // is seen afterwards counts for these alone.
  std::vector<std::pair<ProcessIndex, Interval>> ToLookAt();
  // Fills report->steps, and report->not_evaluated where there were too many.
  void Finish(Report* report) const;

 private:
  using Parts = std::map<std::string, double>;  // ns
  struct OfProcess {
    StepSummary summary;
    bool too_many = false;
    std::vector<Ns> marks;
    Parts usual, slow;                   // summed over such steps
    std::set<size_t> looked_at;          // by_second: of the slow ones
    std::map<size_t, Parts> slowest;     // by number
    double starved = 0, not_known = 0, busy = 0;
    Ns DurationOf(size_t step) const { return marks[step + 1] - marks[step]; }
    bool Slow(size_t step) const {
      return static_cast<double>(DurationOf(step).value) >
             kSlowStep * static_cast<double>(summary.p50.value);
    }
  };
  OfProcess* Find(ProcessIndex process);
  // Returns how much of `time` lies in steps.
  double Spread(OfProcess* of, Interval range, Ns time,
                const std::string& part);

  const bool by_second_;
  bool looking_ = false;
  std::vector<OfProcess> all_;
};

}  // namespace ingero::analysis

#endif  // INGERO_ANALYSIS_STEPS_H_
