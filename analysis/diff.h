// SPDX-License-Identifier: Apache-2.0
// Two recordings of a program: what got slower, and to which cause the
// difference goes.
//
// Both are cut into kSegments parts. What a step (or, where the program has no
// steps, a second of GPU use) took in each part says how much a run varies by
// itself; a difference of the means below kSigmas standard errors, or below
// kLeastChange of the time, is none. Neighbouring parts that go up and down
// together count as fewer. Start-up is left out.
//
// The JSON form is docs/diff.schema.json; names there are these names.
#ifndef INGERO_ANALYSIS_DIFF_H_
#define INGERO_ANALYSIS_DIFF_H_

#include <optional>
#include <string>
#include <vector>

#include "analysis/report.h"

namespace ingero::analysis {

inline constexpr size_t kSegments = 20;
inline constexpr double kSigmas = 4;
inline constexpr double kLeastChange = 0.02;  // of the time of A

// ns for each unit: a step, or a second of GPU use.
struct Change {
  double a = 0, b = 0;
  double band = 0;  // a smaller change is none
  bool significant = false;
  double change() const { return b - a; }
};

struct PartChange {
  std::string part;  // a cause, "gpu-busy" or "not-known"
  Change time;
};

struct OperationSide {
  uint64_t count = 0;  // first uses excluded, as in all figures here
  Ns total, average, p50, p99;
};

struct OperationChange {
  std::string name;
  Layer layer = Layer::kRuntime;
  OperationSide a, b;
  Change time;
};

// With less of the time's scheduling recorded causes cannot be told, and so are
// not compared.
inline constexpr double kScheduledEnough = 0.95;

struct DiffSide {
  std::string store, host, program, cmdline, verdict, step;
  uint32_t cpus = 0;     // 0 = not known
  size_t processes = 0;  // of the program, with GPU work
  size_t gpus = 0;       // pairs of process and GPU
  uint64_t steps = 0;
  Ns use;         // GPU use compared, summed over `gpus`; without start-up
  Ns cold_start;  // left out
  bool complete = true;
  double scheduled = 0;  // part of the time with scheduling data, 0 to 1
};

struct Diff {
  DiffSide a, b;
  bool by_step = false;   // else by second of GPU use
  std::string not_judged;  // "", or why nothing can be said of differences
  Change whole;           // of a step; without steps a second both times
  Change starved;         // for certain: the sum of the causes
  std::vector<PartChange> parts;  // largest change first; they sum to `whole`
  std::vector<OperationChange> operations;  // largest change first
  std::vector<std::string> notes;  // what makes the two less alike
  std::string verdict;
};

Diff CompareReports(const ReportSource& a, const ReportSource& b);

// A condition for --fail-on: "slower", "starved" or a part, with a least
// change in percent.
struct FailCondition {
  std::string what;
  double percent = 5;
};
// nullopt: no such condition.
std::optional<FailCondition> ParseFailCondition(const std::string& text);
// All that may stand there, for messages.
std::vector<std::string> FailConditionNames();
struct FailAnswer {
  bool judged = true, failed = false;
  std::string text;
};
// slower: the time of a step rose by so many percent; the others: their share
// of the time rose by so many percentage points. Only significant changes
// count.
FailAnswer Judge(const Diff& diff, const FailCondition& condition);

}  // namespace ingero::analysis

#endif  // INGERO_ANALYSIS_DIFF_H_
