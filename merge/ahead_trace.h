// SPDX-License-Identifier: Apache-2.0
// A store as the attribution reads it: the rows that it said it will ask for
// are decoded ahead by another thread. What it gives is what the store gives.
//
// Memory: some batches of rows.
#ifndef INGERO_MERGE_AHEAD_TRACE_H_
#define INGERO_MERGE_AHEAD_TRACE_H_

#include <memory>
#include <utility>
#include <vector>

#include "analysis/attribution.h"
#include "analysis/trace.h"

namespace ingero::merge {

class AheadTrace : public analysis::TraceSource {
 public:
  // `trace` is read by both threads at once.
  explicit AheadTrace(const analysis::TraceSource& trace);
  ~AheadTrace() override;

  // For AttributeOptions::will_read.
  void WillRead(analysis::NextWanted next);

  Interval span() const override { return trace_.span(); }
  const std::vector<analysis::Process>& processes() const override {
    return trace_.processes();
  }
  const std::vector<analysis::Thread>& threads() const override {
    return trace_.threads();
  }
  const std::vector<analysis::Function>& functions() const override {
    return trace_.functions();
  }
  const std::vector<analysis::Loss>& losses() const override {
    return trace_.losses();
  }
  const std::vector<Interval>& kernel_spans() const override {
    return trace_.kernel_spans();
  }
  std::unique_ptr<analysis::Cursor<analysis::Call>> Calls(
      analysis::ProcessIndex process, Interval window) const override;
  std::unique_ptr<analysis::Cursor<analysis::Switch>> Switches(
      Interval window) const override;
  std::pair<Ns, std::vector<analysis::StateAt>> StatesAt(Ns t) const override {
    return trace_.StatesAt(t);
  }
  std::unique_ptr<analysis::Cursor<analysis::Sample>> Samples(
      Interval window) const override {
    return trace_.Samples(window);
  }
  std::vector<analysis::MemoryStall> MemoryStalls(
      Interval window) const override {
    return trace_.MemoryStalls(window);
  }

 private:
  class Reading;

  const analysis::TraceSource& trace_;
  std::unique_ptr<Reading> reading_;
};

}  // namespace ingero::merge

#endif  // INGERO_MERGE_AHEAD_TRACE_H_
