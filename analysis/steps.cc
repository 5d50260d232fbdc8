// SPDX-License-Identifier: Apache-2.0
#include "analysis/steps.h"

#include <algorithm>
#include <cstdio>

#include "base/text.h"

namespace ingero::analysis {
namespace {

constexpr size_t kSlowest = 5;
// Slow steps that stand for all, of all processes together and of one at least.
constexpr size_t kLookedAt = 128, kLeastLookedAt = 8;
constexpr size_t kLeastSteps = 3;  // fewer in the window tell nothing
// Of what a slow step took more, parts below this share are not named.
constexpr double kWorthNaming = 0.1;
constexpr size_t kNamed = 3;
// Where the parts named are more than what they explain by so much, it is said.
constexpr double kLessWorthNaming = 0.02;

Ns ToNs(double value) { return Ns(static_cast<int64_t>(value + 0.5)); }

// What `parts` of `steps` steps hold beyond the usual, most first, where it is
// worth naming in `beyond`.
std::vector<Extra> ExtraOf(const std::map<std::string, double>& parts,
                           double steps,
                           const std::map<std::string, double>& usual,
                           double usual_steps, Ns beyond) {
  std::vector<Extra> out;
  for (const auto& [part, time] : parts) {
    const auto it = usual.find(part);
    const double expected =
        it == usual.end() || usual_steps <= 0 ? 0
                                              : it->second / usual_steps * steps;
    const double extra = time - expected;
    if (extra >= kWorthNaming * static_cast<double>(beyond.value))
      out.push_back({part, ToNs(extra)});
  }
  std::stable_sort(out.begin(), out.end(), [](const Extra& a, const Extra& b) {
    return a.time > b.time;
  });
  if (out.size() > kNamed) out.resize(kNamed);
  return out;
}

std::string Name(const std::string& part) {
  if (part == "gpu-busy") return "with work on the GPU";
  if (part == "not-known") return "in which nobody asked the GPU";
  return part;
}

// Where they are more than `beyond`, the rest took less.
std::string Join(const std::vector<Extra>& extra, Ns beyond) {
  std::string text;
  Ns sum;
  for (const Extra& e : extra) {
    if (!text.empty()) text += ", ";
    text += FormatDuration(e.time) + " " + Name(e.part);
    sum += e.time;
  }
  if (Ratio(sum - beyond, beyond) >= kLessWorthNaming)
    text += "; all else took " + FormatDuration(sum - beyond) + " less";
  return text;
}

}  // namespace

void StepStatistics::Add(const ReportSource& source, ProcessIndex process,
                         Interval window) {
  auto cursor = source.Steps(process, {window.begin, window.end + Ns(1)});
  OfProcess of;
  StepMark mark;
  while (cursor->Next(&mark)) {
    if (of.marks.empty()) {
      of.summary.process = process;
      of.summary.thread = mark.thread;
      of.summary.func = mark.func;
      of.summary.every = mark.every;
      of.summary.submissions = mark.submissions;
    }
    if (of.marks.size() == kMostSteps) {
      of.too_many = true;
      of.marks.clear();
      all_.push_back(std::move(of));
      return;
    }
    if (of.marks.empty() || mark.t > of.marks.back())
      of.marks.push_back(mark.t);
  }
  if (of.marks.size() <= kLeastSteps) return;
  StepSummary& s = of.summary;
  s.count = of.marks.size() - 1;
  s.range = {of.marks.front(), of.marks.back()};
  std::vector<std::pair<Ns, size_t>> durations(s.count);
  for (size_t i = 0; i < s.count; ++i) durations[i] = {of.DurationOf(i), i};
  const auto quantile = [&](double q) {
    const auto at = durations.begin() +
                    static_cast<std::ptrdiff_t>(
                        q * static_cast<double>(durations.size() - 1));
    std::nth_element(durations.begin(), at, durations.end());
    return at->first;
  };
  s.p50 = quantile(0.50);
  s.p95 = quantile(0.95);
  const size_t n = std::min(kSlowest, durations.size());
  std::partial_sort(durations.begin(),
                    durations.begin() + static_cast<std::ptrdiff_t>(n),
                    durations.end(), [](const auto& a, const auto& b) {
                      return std::pair(b.first, a.second) <
                             std::pair(a.first, b.second);
                    });
  s.max = durations[0].first;
  for (size_t i = 0; i < n; ++i)
    if (of.Slow(durations[i].second)) of.slowest[durations[i].second];
  for (size_t i = 0; i < s.count; ++i) {
    if (!of.Slow(i)) continue;
    ++s.slow;
    s.slow_beyond += of.DurationOf(i) - s.p50;
  }
  all_.push_back(std::move(of));
}

StepStatistics::OfProcess* StepStatistics::Find(ProcessIndex process) {
  for (OfProcess& of : all_)
    if (of.summary.process == process && !of.too_many) return &of;
  return nullptr;
}

double StepStatistics::Spread(OfProcess* of, Interval range, Ns time,
                              const std::string& part) {
  const Interval inside = range.Clip(of->summary.range);
  if (inside.empty()) return 0;
  const double share = static_cast<double>(time.value) /
                       static_cast<double>(range.length().value);
  const double all = static_cast<double>(inside.length().value) * share;
  if (by_second_ && !looking_) {
    of->usual[part] += all;
    return all;
  }
  auto next = std::upper_bound(of->marks.begin(), of->marks.end(),
                               inside.begin);
  for (Ns t = inside.begin; t < inside.end; ++next) {
    const Ns end = std::min(*next, inside.end);
    const auto step =
        static_cast<size_t>(next - of->marks.begin()) - 1;
    const double ns = static_cast<double>((end - t).value) * share;
    if (!looking_)
      (of->Slow(step) ? of->slow : of->usual)[part] += ns;
    else if (of->looked_at.count(step) != 0)
      of->slow[part] += ns;
    if (const auto it = of->slowest.find(step); it != of->slowest.end())
      it->second[part] += ns;
    t = end;
  }
  return looking_ ? 0 : all;
}

std::vector<std::pair<ProcessIndex, Interval>> StepStatistics::ToLookAt() {
  std::vector<std::pair<ProcessIndex, Interval>> ranges;
  if (!by_second_) return ranges;
  looking_ = true;
  const size_t most =
      std::max(kLeastLookedAt, kLookedAt / std::max<size_t>(1, all_.size()));
  for (OfProcess& of : all_) {
    if (of.too_many || of.summary.slow == 0) continue;
    // Evenly over all slow ones.
    const size_t slow = of.summary.slow, wanted = std::min(most, slow);
    size_t seen = 0;
    for (size_t i = 0; i < of.summary.count; ++i) {
      if (!of.Slow(i)) continue;
      if (seen++ * wanted / slow == of.looked_at.size()) of.looked_at.insert(i);
    }
    std::set<size_t> steps = of.looked_at;
    for (const auto& [step, parts] : of.slowest) steps.insert(step);
    for (const size_t step : steps)
      ranges.push_back(
          {of.summary.process, {of.marks[step], of.marks[step + 1]}});
  }
  return ranges;
}

void StepStatistics::OnFeed(const FeedInterval& feed) {
  OfProcess* of = Find(feed.process);
  if (of == nullptr) return;
  if (feed.state == FeedState::kBusy)
    of->busy += Spread(of, feed.range, feed.time, "gpu-busy");
  else if (feed.state == FeedState::kUnknown)
    of->not_known += Spread(of, feed.range, feed.time, "not-known");
}

void StepStatistics::OnCause(const PathCell& cell, const char* cause,
                             Ns time) {
  if (cell.certainty != Certainty::kKnown) return;  // "not-known" above
  OfProcess* of = Find(cell.process);
  if (of != nullptr) of->starved += Spread(of, cell.range, time, cause);
}

void StepStatistics::Finish(Report* report) const {
  for (const OfProcess& of : all_) {
    if (of.too_many) {
      report->not_evaluated.push_back(
          {"steps", "more than " + FormatCount(kMostSteps) +
                        " steps in this time; ask about less (--from, --to)"});
      continue;
    }
    StepSummary s = of.summary;
    s.starved = ToNs(of.starved);
    s.not_known = ToNs(of.not_known);
    s.busy = ToNs(of.busy);
    const double usual_steps = static_cast<double>(s.count - s.slow);
    Parts slow_parts = of.slow, usual = of.usual;
    for (auto& [part, time] : slow_parts) {
      if (!by_second_) break;  // `usual` has all of them
      time *= static_cast<double>(s.slow) /
              static_cast<double>(of.looked_at.size());
      usual[part] = std::max(0.0, usual[part] - time);
    }
    s.slow_extra = ExtraOf(slow_parts, static_cast<double>(s.slow), usual,
                           usual_steps, s.slow_beyond);
    for (const auto& [step, parts] : of.slowest) {
      SlowStep slow;
      slow.number = step + 1;
      slow.range = {of.marks[step], of.marks[step + 1]};
      slow.extra = ExtraOf(parts, 1, usual, usual_steps,
                           slow.range.length() - s.p50);
      s.slowest.push_back(std::move(slow));
    }
    std::stable_sort(s.slowest.begin(), s.slowest.end(),
                     [](const SlowStep& a, const SlowStep& b) {
                       return a.range.length() > b.range.length();
                     });

    const std::string name =
        s.func < report->functions.size() ? report->functions[s.func].name
                                          : "an unknown function";
    const Ns use = s.starved + s.not_known + s.busy;
    const std::string least = FormatPercent(s.starved, use);
    const std::string most = FormatPercent(s.starved + s.not_known, use);
    char times[32];
    std::snprintf(times, sizeof times, "%g times", kSlowStep);
    s.text = FormatCount(s.count) + " steps (" +
             (s.every == 1
                  ? "from one " + name + " to the next"
                  : FormatCount(s.every) + " times " + name) +
             ", " + FormatCount(s.submissions) +
             (s.submissions == 1 ? " submission" : " submissions") + "): p50 " +
             FormatDuration(s.p50) + ", p95 " + FormatDuration(s.p95) +
             ", max " + FormatDuration(s.max) + ". The GPU was starved for " +
             (least == most ? least : "at least " + least + " and at most " +
                                          most) +
             " of their time.";
    if (s.slow > 0) {
      s.text += ' ';
      s.text += FormatCount(s.slow) +
                (s.slow == 1 ? " step was" : " steps were") + " slower than " +
                times + " the median and took " +
                FormatDuration(s.slow_beyond) + " beyond it";
      s.text += s.slow_extra.empty()
                    ? "; no part of it stands out."
                    : "; more than in the others" +
                          (by_second_ && of.looked_at.size() < s.slow
                               ? ", by " + FormatCount(of.looked_at.size()) +
                                     " of them: "
                               : std::string(": ")) +
                          Join(s.slow_extra, s.slow_beyond) + ".";
    }
    report->steps.push_back(std::move(s));
  }
}

}  // namespace ingero::analysis
