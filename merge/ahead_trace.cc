// SPDX-License-Identifier: Apache-2.0
#include "merge/ahead_trace.h"

#include <type_traits>

#include "merge/ahead.h"

namespace ingero::merge {

using analysis::Call;
using analysis::Cursor;
using analysis::NextWanted;
using analysis::RowsWanted;
using analysis::Switch;

namespace {

constexpr size_t kBatchRows = 1024;
constexpr size_t kBatches = 16;  // of about 100 KiB

struct Batch {
  RowsWanted wanted;
  bool first = false, last = false;  // of what was wanted
  std::vector<Switch> switches;
  std::vector<Call> calls;

  template <typename T>
  std::vector<T>& rows() {
    if constexpr (std::is_same_v<T, Switch>)
      return switches;
    else
      return calls;
  }
};

// *rows: the cursor's next ones. False at its end.
template <typename T>
bool Take(std::unique_ptr<Cursor<T>>* cursor, std::vector<T>* rows) {
  rows->resize(kBatchRows);
  size_t n = 0;
  while (n < kBatchRows && (*cursor)->Next(&(*rows)[n])) ++n;
  rows->resize(n);
  if (n == kBatchRows) return true;
  cursor->reset();
  return false;
}

}  // namespace

class AheadTrace::Reading {
 public:
  Reading(const analysis::TraceSource& trace, NextWanted next)
      : trace_(trace),
        next_(std::move(next)),
        batches_(1, kBatches,
                 [this](uint64_t, Batch* batch) { return Make(batch); }) {}

  // Whether what comes next is this; then NextBatch() has its rows.
  bool Begin(const RowsWanted& wanted) {
    if (in_use_) return false;
    while (batch_ == nullptr || !batch_->first) {
      batch_ = batches_.Next();
      if (batch_ == nullptr) return false;
    }
    in_use_ = batch_->wanted.range == wanted.range &&
              batch_->wanted.process == wanted.process;
    return in_use_;
  }
  Batch* batch() { return batch_; }
  // Of what was begun; nullptr after the last.
  Batch* NextBatch() {
    return batch_->last ? nullptr : batch_ = batches_.Next();
  }
  void End() {
    in_use_ = false;
    batch_ = nullptr;
  }

 private:
  bool Make(Batch* batch) {
    batch->first = calls_ == nullptr && switches_ == nullptr;
    if (batch->first) {
      if (!next_(&wanted_)) return false;
      if (wanted_.process == analysis::kNone)
        switches_ = trace_.Switches(wanted_.range);
      else
        calls_ = trace_.Calls(wanted_.process, wanted_.range);
    }
    batch->wanted = wanted_;
    batch->last = switches_ != nullptr ? !Take(&switches_, &batch->switches)
                                       : !Take(&calls_, &batch->calls);
    return true;
  }

  const analysis::TraceSource& trace_;
  // Of the thread that reads ahead:
  NextWanted next_;
  RowsWanted wanted_;
  std::unique_ptr<Cursor<Switch>> switches_;
  std::unique_ptr<Cursor<Call>> calls_;
  // Of who asks:
  Batch* batch_ = nullptr;
  bool in_use_ = false;
  Ahead<Batch> batches_;  // last: its thread uses the others
};

namespace {

template <typename T, typename Reading>
class AheadCursor : public Cursor<T> {
 public:
  explicit AheadCursor(Reading* reading)
      : reading_(reading), rows_(&reading->batch()->template rows<T>()) {}
  ~AheadCursor() override { reading_->End(); }
  bool Next(T* out) override {
    while (at_ == rows_->size()) {
      Batch* batch = reading_->NextBatch();
      if (batch == nullptr) return false;
      rows_ = &batch->rows<T>();
      at_ = 0;
    }
    *out = (*rows_)[at_++];
    return true;
  }

 private:
  Reading* reading_;
  std::vector<T>* rows_;
  size_t at_ = 0;
};

}  // namespace

AheadTrace::AheadTrace(const analysis::TraceSource& trace) : trace_(trace) {}
AheadTrace::~AheadTrace() = default;

void AheadTrace::WillRead(NextWanted next) {
  reading_.reset();
  if (next) reading_ = std::make_unique<Reading>(trace_, std::move(next));
}

std::unique_ptr<Cursor<Call>> AheadTrace::Calls(
    analysis::ProcessIndex process, Interval window) const {
  if (reading_ == nullptr || !reading_->Begin({window, process}))
    return trace_.Calls(process, window);
  return std::make_unique<AheadCursor<Call, Reading>>(reading_.get());
}

std::unique_ptr<Cursor<Switch>> AheadTrace::Switches(Interval window) const {
  if (reading_ == nullptr || !reading_->Begin({window, analysis::kNone}))
    return trace_.Switches(window);
  return std::make_unique<AheadCursor<Switch, Reading>>(reading_.get());
}

}  // namespace ingero::merge
