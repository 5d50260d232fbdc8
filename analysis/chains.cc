// SPDX-License-Identifier: Apache-2.0
#include "analysis/chains.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>

#include "analysis/rules/rule.h"
#include "base/histogram.h"
#include "base/text.h"

namespace ingero::analysis {
namespace {

// Fewer calls have no p99; a shorter one is nobody's trouble.
constexpr uint64_t kLeastCalls = 100;
constexpr double kLeastRatio = 10;
constexpr size_t kMost = 10;
// Of one operation: each may be a look into the store.
constexpr int kMostLookedUp = 1000;

struct Found {
  const Operation* operation;
  Chain chain;
  std::map<ThreadIndex, Ns> holders, wakers;
  uint64_t first_uses = 0;  // seen among the slow ones
  int looked_up = 0;
};

void Add(const TraceSource& trace, const CallSplit& s, Found* f) {
  Chain& c = f->chain;
  const Ns time = s.running + s.runnable + s.sleeping + s.io + s.unknown;
  if (Histogram::BucketOf(
          static_cast<uint64_t>(std::max<int64_t>(time.value, 0))) <
      Histogram::BucketOf(static_cast<uint64_t>(c.p99.value)))
    return;
  if (time > f->operation->max) return;  // a first use: they are not in it
  if (f->first_uses < f->operation->first_uses &&
      f->looked_up < kMostLookedUp) {
    ++f->looked_up;
    if (StartsUp(trace, s)) {
      ++f->first_uses;
      return;
    }
  }
  ++c.calls;
  c.time += time;
  c.running += s.running;
  c.runnable += s.runnable;
  c.sleeping += s.sleeping;
  c.io += s.io;
  c.unknown += s.unknown;
  if (s.holder != kNone) f->holders[s.holder] += s.runnable;
  if (s.waker != kNone) f->wakers[s.waker] += s.sleeping;
}

std::string Split(const Context& context, const Found& f) {
  const Chain& c = f.chain;
  if (!c.split_known)
    return "what its thread did meanwhile is not known: no scheduling was "
           "recorded";
  // So many are as long as p99 or longer, at least.
  const uint64_t least = (f.operation->count + 99) / 100;
  std::string text;
  if (c.calls < least)
    text = "of " + FormatCount(least) + " or more that slow, " +
           (c.calls == 0 ? "none" : FormatCount(c.calls));
  else
    text = FormatCount(c.calls) + " that slow";
  text += c.calls > 1 ? " are known" : " is known";
  text += " to have left the CPU";
  if (c.calls == 0) return text + ": they ran, or spun while the GPU worked";
  text += c.calls > 1 ? "; their time: " : "; its time: ";
  bool first = true;
  const auto part = [&](Ns time, const char* name, const char* who,
                        ThreadIndex thread) {
    if (time <= Ns(0)) return;
    text += (first ? "" : ", ") + FormatPercent(time, c.time) + " " + name;
    if (thread != kNone)
      text += std::string(" (most ") + who + " " + context.Name(thread) + ")";
    first = false;
  };
  part(c.runnable, "ready without a CPU", "held by", c.holder);
  part(c.sleeping, "asleep", "woken by", c.waker);
  part(c.io, "waiting for a disk", "", kNone);
  part(c.running, "running", "", kNone);
  part(c.unknown, "not known", "", kNone);
  if (f.looked_up == kMostLookedUp)
    text += "; up to " + FormatCount(f.operation->first_uses - f.first_uses) +
            " of them may be first uses";
  return text;
}

std::string WhatItCost(const Finding* finding) {
  if (finding == nullptr)
    return "No cause is known to have cost the program 1 % of its GPU use.";
  if (finding->lost > Ns(0))
    return "What the program's GPU lost most by: " + finding->cause + ", " +
           FormatDuration(finding->lost) + ".";
  return "The verdict on the program: " + finding->cause + ".";
}

}  // namespace

bool HasLongTail(const Report& report, const Operation& o) {
  // Time within another call of the program's is that one's.
  return o.count >= kLeastCalls && o.p50 > Ns(0) && o.p99 >= kMillisecond &&
         o.wall_share > 0 && o.process < report.processes.size() &&
         o.func < report.functions.size() &&
         report.functions[o.func].layer != Layer::kLibrary &&
         Ratio(o.p99, o.p50) >= kLeastRatio;
}

std::string TailText(const Report& report, const Operation& o) {
  return report.functions[o.func].name + " p99=" + FormatDuration(o.p99) +
         " (" +
         FormatCount(static_cast<uint64_t>(std::llround(Ratio(o.p99, o.p50)))) +
         "x p50=" + FormatDuration(o.p50) + ")";
}

std::vector<Chain> FindChains(const ReportSource& source,
                              const Report& report) {
  const TraceSource& trace = source.trace();
  bool kernel = false;
  for (const Interval span : trace.kernel_spans())
    kernel = kernel || span.Overlaps(report.window);

  std::vector<Found> found;
  for (const Operation& o : report.operations) {
    if (!HasLongTail(report, o)) continue;
    Found& f = found.emplace_back();
    f.operation = &o;
    f.chain.process = o.process;
    f.chain.func = o.func;
    f.chain.p50 = o.p50;
    f.chain.p99 = o.p99;
    f.chain.ratio = Ratio(o.p99, o.p50);
    f.chain.split_known = kernel;
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Found& a, const Found& b) {
                     return a.chain.ratio > b.chain.ratio;
                   });
  if (found.size() > kMost) found.resize(kMost);

  if (kernel && !found.empty()) {
    auto splits = source.Splits(report.window);
    for (CallSplit s; splits->Next(&s);)
      for (Found& f : found)
        if (f.chain.func == s.func && f.chain.process == s.process)
          Add(trace, s, &f);
  }

  std::vector<Chain> chains;
  for (Found& f : found) {
    Chain& c = f.chain;
    if (!f.holders.empty()) c.holder = Sorted(f.holders)[0].first;
    if (!f.wakers.empty()) c.waker = Sorted(f.wakers)[0].first;
    ProcessFacts facts;
    facts.process = c.process;
    const Context context(report, facts);
    const Finding* finding = nullptr;
    for (const Finding& x : report.findings)
      if (finding == nullptr && !x.context &&
          x.pid == report.processes[c.process].pid)
        finding = &x;
    if (finding != nullptr) {
      c.severity = finding->severity;
      c.cause = finding->cause;
    }
    c.text = TailText(report, *f.operation) + " in " +
             context.ProcessName(c.process) + ": " + Split(context, f) + ". " +
             WhatItCost(finding);
    chains.push_back(std::move(c));
  }
  return chains;
}

}  // namespace ingero::analysis
