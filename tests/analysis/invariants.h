// SPDX-License-Identifier: Apache-2.0
// The invariants of analysis/attribution.h, and independence of the windows,
// asserted for any trace.
#ifndef INGERO_TESTS_ANALYSIS_INVARIANTS_H_
#define INGERO_TESTS_ANALYSIS_INVARIANTS_H_

#include <gtest/gtest.h>

#include <map>

#include "tests/support/trace_text.h"

namespace ingero::testing {

inline Attributed RunAttribution(const MemoryTrace& trace, Ns window,
                                 bool exact,
                                 size_t checkpoint_bytes = SIZE_MAX) {
  Attributed out;
  analysis::AttributeOptions options;
  options.most_checkpoint_bytes = checkpoint_bytes;
  options.window = window;
  options.exact_window = exact;
  analysis::Attribute(trace, &out, nullptr, options);
  out.Sort();
  return out;
}

inline void ExpectInvariants(const MemoryTrace& trace, const Attributed& a) {
  using analysis::Certainty;
  using analysis::FeedState;
  // (1) Feed intervals partition the feeding span of each process and device.
  struct Sum {
    Ns begin{INT64_MAX}, end{INT64_MIN}, time;
  };
  std::map<std::pair<uint32_t, uint32_t>, Sum> feed;
  std::map<uint32_t, Ns> known, possible;
  for (const auto& f : a.feeds) {
    Sum& s = feed[{f.process, f.device}];
    s.begin = std::min(s.begin, f.range.begin);
    s.end = std::max(s.end, f.range.end);
    s.time += f.time;
    EXPECT_LE(f.time, f.range.length());
    if (f.state == FeedState::kUnknown)
      possible[f.process] += f.time;
    else if (f.state != FeedState::kBusy)
      known[f.process] += f.time;
  }
  std::map<uint32_t, Ns> last;
  for (const auto& c : trace.calls) {
    Ns& t = last[trace.thread_list[c.thread].process];
    t = std::max(t, c.end);
  }
  for (const auto& [key, s] : feed) {
    EXPECT_EQ(s.time, s.end - s.begin);
    // The tail in which nothing was left to do is no one's.
    EXPECT_LE(s.end, last[key.first]);
  }
  // (2) Every starved nanosecond is on the path once, with its certainty.
  for (const auto& c : a.paths) {
    (c.certainty == Certainty::kKnown ? known : possible)[c.process] -= c.time;
    EXPECT_LE(c.time, c.range.length());
    EXPECT_LE(c.range.length(), analysis::kCellLength);
    EXPECT_GT(c.stretches, 0u);
  }
  for (const auto& [p, rest] : known) EXPECT_EQ(rest, Ns(0)) << "process " << p;
  for (const auto& [p, rest] : possible)
    EXPECT_EQ(rest, Ns(0)) << "process " << p;
  // (3) The parts of a split sum to the call's duration.
  std::multimap<std::pair<int64_t, uint32_t>, Ns> durations;
  for (const auto& c : trace.calls)
    durations.insert({{c.begin.value, c.thread}, c.end - c.begin});
  for (const auto& s : a.splits) {
    const Ns sum = s.running + s.runnable + s.sleeping + s.io + s.unknown;
    bool found = false;
    auto [begin, end] = durations.equal_range({s.begin.value, s.thread});
    for (auto it = begin; it != end; ++it) found = found || it->second == sum;
    EXPECT_TRUE(found) << "split at " << s.begin.value << " sums to "
                       << sum.value;
  }
}

inline void ExpectSame(const Attributed& a, const Attributed& b) {
  EXPECT_EQ(a.feeds.size(), b.feeds.size());
  for (size_t i = 0; i < std::min(a.feeds.size(), b.feeds.size()); ++i) {
    const auto& x = a.feeds[i];
    const auto& y = b.feeds[i];
    const bool same = x.range == y.range && x.time == y.time &&
                      x.intervals == y.intervals && x.state == y.state;
    EXPECT_TRUE(same) << "feed row " << i << " [" << x.range.begin.value << ", "
                      << x.range.end.value << ") / [" << y.range.begin.value
                      << ", " << y.range.end.value << ") state "
                      << int(x.state) << "/" << int(y.state) << " time "
                      << x.time.value << "/" << y.time.value << " intervals "
                      << x.intervals << "/" << y.intervals;
    if (!same) return;
  }
  ASSERT_EQ(a.steps.size(), b.steps.size());
  for (size_t i = 0; i < a.steps.size(); ++i) {
    EXPECT_EQ(a.steps[i].t, b.steps[i].t);
    EXPECT_EQ(a.steps[i].every, b.steps[i].every);
  }
  EXPECT_EQ(a.paths.size(), b.paths.size());
  for (size_t i = 0; i < std::min(a.paths.size(), b.paths.size()); ++i) {
    const auto& x = a.paths[i];
    const auto& y = b.paths[i];
    const bool same =
        x.range == y.range && x.time == y.time && x.stretches == y.stretches &&
        x.thread == y.thread && x.state == y.state && x.reason == y.reason &&
        x.culprit == y.culprit && x.func == y.func && x.pages == y.pages &&
        x.certainty == y.certainty && x.ended_by == y.ended_by &&
        x.syscall == y.syscall && x.submits == y.submits;
    EXPECT_TRUE(same) << "path row " << i << ": thread " << x.thread << "/"
                      << y.thread << " [" << x.range.begin.value << ", "
                      << x.range.end.value << ") / [" << y.range.begin.value
                      << ", " << y.range.end.value << ") reason "
                      << int(x.reason) << "/" << int(y.reason) << " time "
                      << x.time.value << "/" << y.time.value << " culprit "
                      << int(x.culprit) << "/" << int(y.culprit) << " pages "
                      << x.pages << "/" << y.pages << " stretches "
                      << x.stretches << "/" << y.stretches << " ended_by "
                      << int(x.ended_by) << "/" << int(y.ended_by);
    if (!same) return;
  }
  ASSERT_EQ(a.splits.size(), b.splits.size());
  for (size_t i = 0; i < a.splits.size(); ++i) {
    const auto& x = a.splits[i];
    const auto& y = b.splits[i];
    EXPECT_TRUE(x.begin == y.begin && x.running == y.running &&
                x.runnable == y.runnable && x.sleeping == y.sleeping &&
                x.io == y.io && x.unknown == y.unknown &&
                x.holder == y.holder && x.waker == y.waker)
        << "split row " << i << " at " << x.begin.value << " running "
        << x.running.value << "/" << y.running.value << " holder " << x.holder
        << "/" << y.holder << " waker " << x.waker << "/" << y.waker;
  }
}

}  // namespace ingero::testing

#endif  // INGERO_TESTS_ANALYSIS_INVARIANTS_H_
