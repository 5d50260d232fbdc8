// SPDX-License-Identifier: Apache-2.0
// A report's parts in words, which text and Markdown lay out: names made
// harmless, times as people read them.
#ifndef INGERO_CLI_RENDER_REPORT_WORDS_H_
#define INGERO_CLI_RENDER_REPORT_WORDS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/report.h"
#include "cli/render/layout.h"

namespace ingero::cli {

// A name longer than this helps nobody; --json has all of it.
inline constexpr int kNameColumns = 60;
std::string Name(std::string_view text, int columns = kNameColumns);
// Names inside a sentence may be endless; what it says must not drown in them.
std::string Sentence(std::string_view text);
std::string Join(const std::vector<std::string>& parts,
                 std::string_view separator = ", ");
// "HIGH".
const char* Word(analysis::Severity severity);

struct LabeledFact {
  std::string label;  // "" = as the one before
  std::string text;
  std::optional<Tone> tone = {};  // of the label
};

class ReportWords {
 public:
  // `pid`: the process that was asked about.
  ReportWords(const analysis::Report& report, std::optional<uint32_t> pid)
      : r_(report), pid_(pid) {}

  // nullptr = not known.
  const analysis::Process* Find(analysis::ProcessIndex index) const;
  // "python3/2254".
  std::string Short(analysis::ProcessIndex index, int columns = 28) const;
  // "python3 benchmark.py, pid 2254".
  std::string Program(analysis::ProcessIndex index) const;
  std::string FunctionName(analysis::FuncIndex index) const;
  // "+12.345 s (22:00:47)".
  std::string Moment(Ns t) const;
  std::string Between(Interval i) const;

  std::string Title() const;
  // What to do about the verdict; "" = nothing is known.
  std::string DoNext() const;
  // What was recorded, how well, and at what cost.
  std::vector<LabeledFact> Facts() const;

  // `base`: the time of which it was lost.
  std::string Advice(const analysis::Recommendation& advice, Ns base) const;
  // Of a finding; "" = there is nothing to say.
  std::string Lost(const analysis::Finding& finding) const;
  std::string When(const analysis::Finding& finding) const;
  std::string Culprits(const analysis::Finding& finding, size_t most) const;
  std::string Confidence(const analysis::Finding& finding) const;

  // Each nanosecond has one cause; "" = none was lost.
  std::string Sum(const analysis::Account& account) const;
  // Causes that share a reason share a line.
  std::vector<std::string> NotEvaluated() const;

 protected:
  const analysis::Report& r_;

 private:
  bool KnowsTimeOfDay() const {
    return r_.facts.wall_clock_at_span_begin_ns != 0;
  }
  int64_t Realtime(Ns t) const {
    return r_.facts.wall_clock_at_span_begin_ns + (t - r_.span.begin).value;
  }
  // The process that the report is about: the one asked for, else the one
  // that fed a GPU longest.
  analysis::ProcessIndex MainProcess() const;
  std::string Recorded() const;
  std::string Idle(const analysis::Feeding& feeding) const;
  std::string Cost() const;
  // What ingero's own processes took besides; "" = nothing.
  std::string OwnProcesses() const;
  std::string OwnName(analysis::ProcessIndex index) const;
  void AddLosses(std::vector<LabeledFact>* facts) const;
  void AddCode(std::vector<LabeledFact>* facts) const;

  const std::optional<uint32_t> pid_;
};

}  // namespace ingero::cli

#endif  // INGERO_CLI_RENDER_REPORT_WORDS_H_
