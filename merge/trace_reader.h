// SPDX-License-Identifier: Apache-2.0
// The store as the analysis and the reports see it. merge/store_trace.h is the
// public door; merge itself opens the file it is writing through this one.
//
// Threads: one opens, any read. Memory: description tables, and per cursor the decoded blocks
// that overlap at one moment.
#ifndef INGERO_MERGE_TRACE_READER_H_
#define INGERO_MERGE_TRACE_READER_H_

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "analysis/report.h"
#include "merge/lives.h"
#include "merge/row_cursor.h"
#include "merge/store.h"

namespace ingero::merge {

struct StoredFunction {
  uint8_t words[4];  // enum ingero_word
};

struct StoredStream {
  std::string file, comm, tool_version;
  Interval span;
  bool kernel = false;  // of the companion
  bool code = false;    // of the sampler of code
  bool cuda() const { return !kernel && !code; }
  uint64_t stream_id = 0, pid = 0, fingerprint = 0, bytes = 0, events = 0,
           skipped_calls = 0, clock_error_ns = 0, clock_knots = 0, self_ns = 0,
           flags = 0, nesting_violations = 0;
  analysis::ProcessIndex process = analysis::kNone;
};

// "3 calls do not lie within ...", of a stream that has such.
std::string NestingSentence(const StoredStream& stream);

class TraceReader : public analysis::ReportSource,
                    public analysis::TraceSource {
 public:
  // verify: check every block first. Else blocks are checked as they are read,
  // and one that can't be is left out of the answer and counted.
  static Result<std::unique_ptr<TraceReader>> Open(const std::string& data_path,
                                                   bool verify);
  // To be asked: checks what has to be known for damage not to pass unseen
  // afterwards (see AllRead()); a store without an index, whole.
  static Result<std::unique_ptr<TraceReader>> OpenToAsk(
      const std::string& data_path);

  // TraceSource
  Interval span() const override { return span_; }
  const std::vector<analysis::Process>& processes() const override {
    return processes_;
  }
  const std::vector<analysis::Thread>& threads() const override {
    return threads_;
  }
  const std::vector<analysis::Function>& functions() const override {
    return functions_;
  }
  const std::vector<analysis::Loss>& losses() const override {
    return losses_;
  }
  const std::vector<Interval>& kernel_spans() const override {
    return kernel_spans_;
  }
  std::unique_ptr<analysis::Cursor<analysis::Call>> Calls(
      analysis::ProcessIndex process, Interval window) const override;
  std::unique_ptr<analysis::Cursor<analysis::Switch>> Switches(
      Interval window) const override;
  std::pair<Ns, std::vector<analysis::StateAt>> StatesAt(Ns t) const override;
  std::unique_ptr<analysis::Cursor<analysis::Sample>> Samples(
      Interval window) const override;

  std::vector<analysis::MemoryStall> MemoryStalls(
      Interval window) const override;

  // ReportSource
  const analysis::TraceSource& trace() const override { return *this; }
  analysis::TraceFacts facts() const override;
  std::unique_ptr<analysis::Cursor<analysis::FeedInterval>> Feeds(
      const analysis::Part& part) const override;
  std::unique_ptr<analysis::Cursor<analysis::PathCell>> Paths(
      const analysis::Part& part) const override;
  std::unique_ptr<analysis::Cursor<analysis::CallSplit>> Splits(
      const analysis::Part& part) const override;
  std::unique_ptr<analysis::Cursor<analysis::StepMark>> Steps(
      analysis::ProcessIndex process, Interval window) const override;
  const std::vector<analysis::CodeLine>& code_lines() const override {
    return code_lines_;
  }
  std::unique_ptr<analysis::Cursor<analysis::CodeSample>> CodeSamples(
      analysis::ProcessIndex process, Interval window) const override;
  // Calls: exact; whole seconds from op_summary, the window's first and last
  // part of a second from the calls themselves. Scheduling: whole seconds
  // exact, the two edges in proportion.
  analysis::Summaries Summarize(Interval window) const override;
  // The first half of it alone.
  std::vector<analysis::Operation> Operations(Interval window) const;

  const std::vector<StoredStream>& streams() const { return streams_; }
  // A fact by name; 0 or "" where there is none.
  int64_t Fact(const std::string& name) const;
  const std::string& FactText(const std::string& name) const;
  const std::map<std::string, std::pair<int64_t, std::string>>& facts_by_name()
      const {
    return facts_;
  }
  // A description table as file().ReadAll() has it; damage is counted.
  Status ReadAll(const TableSchema& schema, Rows* rows) const;
  // What the merge left out or found damaged, a line each.
  std::vector<std::string> StoredMissing() const { return Lines("missing"); }
  // The texts of the facts name.0, name.1, ...
  std::vector<std::string> Lines(const std::string& name) const;
  const StoreFile& file() const { return *file_; }
  // (process, kernel word) -> demangled name; "" = not known.
  const std::string& KernelName(analysis::ProcessIndex process,
                                uint64_t kernel) const;

  // For the cursors.
  analysis::ThreadIndex ThreadOfCall(analysis::ProcessIndex process,
                                     uint32_t tid, int64_t t) const;
  // By host tid; kNone for the idle task and for threads never seen.
  analysis::ThreadIndex ThreadOfSwitch(uint32_t tid, uint32_t tgid,
                                       int64_t t) const;
  const StoredFunction& WordsOf(uint64_t func) const;
  // Counts, when it goes, the blocks that it could not read.
  std::unique_ptr<RowCursor> Cursor(const TableSchema& schema,
                                    std::span<const BlockRef> blocks,
                                    Interval window) const;
  // Keeps decoded blocks of calls and switches that windows share.
  void KeepBlocks() { cache_ = std::make_unique<BlockCache>(); }
  uint64_t unreadable_blocks() const { return unreadable_.load(); }  // so far
  // An error where what was asked so far needed blocks that are damaged: then
  // the answer is not whole, and not to be believed.
  Status AllRead() const;
 private:
  enum class Verify { kNothing, kKeys, kAll };
  TraceReader() = default;
  static Result<std::unique_ptr<TraceReader>> Open(const std::string& data_path,
                                                   Verify verify);
  Status Load();
  Status LoadLosses();
  Interval Widened(Interval window, const TableSchema& schema) const;
  // The whole seconds of the window; at an end of the span everything there is
  // lies in the window, so its broken second counts as whole. Empty: none.
  Interval WholeSeconds(Interval window) const;
  // The whole minutes of that. A pruned store's first minute may be broken.
  Interval WholeMinutes(Interval window) const;
  // Feeds() or Paths(): `rows` of one table, and those by second.
  template <typename T, typename Decode>
  std::unique_ptr<analysis::Cursor<T>> Results(const TableSchema& rows,
                                               const TableSchema& by_second,
                                               const analysis::Part& part,
                                               Decode decode) const;

  std::unique_ptr<StoreFile> file_;
  Interval span_;
  std::vector<analysis::Process> processes_;
  std::vector<analysis::Thread> threads_;
  std::vector<Ns> thread_begin_;
  std::vector<analysis::Function> functions_;
  std::vector<StoredFunction> words_;
  std::vector<analysis::Loss> losses_;
  std::vector<Interval> kernel_spans_;
  std::vector<StoredStream> streams_;
  std::map<std::pair<uint32_t, uint64_t>, std::string> kernel_names_;
  std::vector<analysis::CodeLine> code_lines_;
  std::map<std::string, std::pair<int64_t, std::string>> facts_;
  IdTable by_host_tid_;
  std::unordered_map<uint64_t, std::vector<uint32_t>> by_process_tid_;
  mutable std::atomic<uint64_t> unreadable_{0};
  std::unique_ptr<BlockCache> cache_;
  size_t decoders_ = 0;  // of a cursor over many blocks
};

// As OpenStore() of store_trace.h, for who needs more than the analysis sees.
Result<std::unique_ptr<TraceReader>> OpenTrace(const std::string& path);

}  // namespace ingero::merge

#endif  // INGERO_MERGE_TRACE_READER_H_
