// SPDX-License-Identifier: Apache-2.0
// A trace in memory, and its text form, for tests of the analysis.
//
// One item a line; times as "12", "3us", "1.5ms", "2s" from the trace's
// begin (which is 0); '#' starts a comment. Threads and processes are named
// by tid and pid; thread lines and process lines come before their use.
//
//   span 0 1s
//   kernel 0 1s                       scheduling recorded here
//   facts cpus=4 page_cost=500
//   process 100 python3 [parent=1] [cuda] [ingero] [kernel] [first=5ms]
//        [exited=9ms] [code=9] [cgroup=7] [outside] [peer_kernel=ncclDevKernel]
//                                     also makes its main thread 100
//   thread 101 100 [name]
//   func cudaLaunchKernel launch [driver|library]
//   call 10us 15us 100 cudaLaunchKernel [stream=] [object=] [bytes=] [depth=]
//        [result=] [h2d|d2h|d2d|h2h|peer|default] [pageable|pinned]
//        [first_use] [first_call] [captured] [no_end]
//   switch 1ms cpu=0 100>200 S [wake=0.9ms] [waker=101] [irq] [syscall=202]
//        [arg0=0] [pages=3] [faults=3] [kernel=2ms] [throttled=9ms]   prev>next; 'idle' for the idle task;
//                                     state R+ preempted, R yielded, S, D, B,
//                                     T, X, ? outside the scope; '-' for prev:
//                                     others were left out
//   state 0.5s 100 S since=0.1s cpu=0 [syscall=]   part of the keyframe at
//                                                  0.5s
//   loss 0.1s 0.2s switch-ring-full 5 [kernel] [pid=100] [notice]
//   reclaim 10ms 15ms 100             or 'compaction'
//   sample 1s 18 0 97 [text]          metric instance value
//   repeat 10 100ms                   the lines up to 'end' ten times, each
//   end                               time 100 ms later; may nest
#ifndef INGERO_TESTS_SUPPORT_TRACE_TEXT_H_
#define INGERO_TESTS_SUPPORT_TRACE_TEXT_H_

#include <string>
#include <string_view>
#include <vector>

#include "analysis/attribution.h"
#include "analysis/report.h"
#include "base/status.h"

namespace ingero::testing {

// All of a trace in vectors. Fill, then Sort().
class MemoryTrace : public analysis::TraceSource {
 public:
  Interval span_value;
  std::vector<analysis::Process> process_list;
  std::vector<analysis::Thread> thread_list;
  std::vector<analysis::Function> function_list;
  std::vector<analysis::Loss> loss_list;
  std::vector<Interval> kernel_list;
  std::vector<analysis::Call> calls;
  std::vector<analysis::Switch> switches;
  std::vector<analysis::Sample> samples;
  std::vector<analysis::MemoryStall> stalls;
  std::vector<std::pair<Ns, analysis::StateAt>> keyframes;  // sorted by time
  analysis::TraceFacts facts;

  void Sort();

  Interval span() const override { return span_value; }
  const std::vector<analysis::Process>& processes() const override {
    return process_list;
  }
  const std::vector<analysis::Thread>& threads() const override {
    return thread_list;
  }
  const std::vector<analysis::Function>& functions() const override {
    return function_list;
  }
  const std::vector<analysis::Loss>& losses() const override {
    return loss_list;
  }
  const std::vector<Interval>& kernel_spans() const override {
    return kernel_list;
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
};

// The error names the line.
Result<MemoryTrace> ParseTrace(std::string_view text);

// What Attribute() reported, kept in vectors.
struct Attributed : analysis::AttributionSink {
  std::vector<analysis::FeedInterval> feeds;
  std::vector<analysis::PathCell> paths;
  std::vector<analysis::CallSplit> splits;
  std::vector<analysis::StepMark> steps;
  void OnFeed(const analysis::FeedInterval& f) override { feeds.push_back(f); }
  void OnPath(const analysis::PathCell& c) override { paths.push_back(c); }
  void OnSplit(const analysis::CallSplit& s) override { splits.push_back(s); }
  void OnStep(const analysis::StepMark& m) override { steps.push_back(m); }
  void Sort();
};

// A store in memory: the trace, its attribution and its summaries.
class MemoryReportSource : public analysis::ReportSource {
 public:
  // `trace` must outlive this.
  explicit MemoryReportSource(const MemoryTrace& trace);
  const analysis::TraceSource& trace() const override { return trace_; }
  analysis::TraceFacts facts() const override { return trace_.facts; }
  std::unique_ptr<analysis::Cursor<analysis::FeedInterval>> Feeds(
      const analysis::Part& part) const override;
  std::unique_ptr<analysis::Cursor<analysis::PathCell>> Paths(
      const analysis::Part& part) const override;
  std::unique_ptr<analysis::Cursor<analysis::CallSplit>> Splits(
      const analysis::Part& part) const override;
  std::unique_ptr<analysis::Cursor<analysis::StepMark>> Steps(
      analysis::ProcessIndex process, Interval window) const override;
  analysis::Summaries Summarize(Interval window) const override;
  const Attributed& attributed() const { return attributed_; }

 private:
  const MemoryTrace& trace_;
  Attributed attributed_;
};

}  // namespace ingero::testing

#endif  // INGERO_TESTS_SUPPORT_TRACE_TEXT_H_
