// SPDX-License-Identifier: Apache-2.0
#include "analysis/diff.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>

#include "analysis/rules/rule.h"
#include "base/text.h"

namespace ingero::analysis {
namespace {

constexpr const char* kBusy = "gpu-busy";
constexpr const char* kNotKnown = "not-known";
constexpr const char* kColdStart = "cold-start";
// Fewer segments with something in them say nothing of the noise.
constexpr size_t kLeastSegments = 10;
constexpr size_t kNamed = 4;

double Of(Ns t) { return static_cast<double>(t.value); }

// One value for each segment.
using Series = std::vector<double>;

// Time of some processes, by segment and part.
class Profile : public TimeSink {
 public:
  Profile(std::set<ProcessIndex> processes, std::vector<Ns> borders)
      : processes_(std::move(processes)), borders_(std::move(borders)) {}
  void OnFeed(const FeedInterval& feed) override {
    if (feed.state == FeedState::kBusy)
      Add(feed.process, feed.range, feed.time, kBusy);
    else if (feed.state == FeedState::kUnknown)
      Add(feed.process, feed.range, feed.time, kNotKnown);
  }
  void OnCause(const PathCell& cell, const char* cause, Ns time) override {
    if (cell.certainty == Certainty::kKnown)
      Add(cell.process, cell.range, time, cause);
  }
  std::map<std::string, Series> parts;

 private:
  void Add(ProcessIndex process, Interval range, Ns time, const char* part) {
    if (processes_.count(process) == 0) return;
    const Interval inside = range.Clip({borders_.front(), borders_.back()});
    if (inside.empty()) return;
    const double share = Of(time) / Of(range.length());
    Series& series =
        parts.try_emplace(part, borders_.size() - 1).first->second;
    auto next =
        std::upper_bound(borders_.begin(), borders_.end(), inside.begin);
    for (Ns t = inside.begin; t < inside.end; ++next) {
      const Ns end = std::min(*next, inside.end);
      series[static_cast<size_t>(next - borders_.begin()) - 1] +=
          Of(end - t) * share;
      t = end;
    }
  }

  std::set<ProcessIndex> processes_;
  std::vector<Ns> borders_;
};

// A ratio of sums over segments, and how far it is to be trusted.
struct Estimate {
  double mean = 0, variance = 0;
};
Estimate Estimated(const Series& values, const Series& units) {
  const size_t n = units.size();
  double sum = 0, all = 0;
  for (size_t i = 0; i < n; ++i) {
    sum += values.empty() ? 0 : values[i];
    all += units[i];
  }
  Estimate e;
  if (all <= 0 || n < 2) return e;
  e.mean = sum / all;
  double squares = 0, neighbours = 0, before = 0;
  for (size_t i = 0; i < n; ++i) {
    const double rest = (values.empty() ? 0 : values[i]) - e.mean * units[i];
    squares += rest * rest;
    if (i > 0) neighbours += rest * before;
    before = rest;
  }
  const double count = static_cast<double>(n);
  e.variance = squares * count / (count - 1) / (all * all);
  const double alike =
      squares > 0 ? std::clamp(neighbours / squares, 0.0, 0.8) : 0;
  e.variance *= (1 + alike) / (1 - alike);
  return e;
}

// One side, measured.
struct Measured {
  Report report;
  std::set<ProcessIndex> processes;
  ProcessIndex main = kNone;
  std::vector<Ns> borders;
  bool by_step = false;
  std::map<std::string, Series> parts;
  Series steps;  // times GPUs
  Series seconds;
  std::map<std::pair<std::string, Layer>, Series> operations;
};

std::string NameOf(const Report& report, ProcessIndex process) {
  return process < report.processes.size() ? report.processes[process].name
                                           : "";
}

// Programs with GPU work by name, with how long they used it.
std::map<std::string, Ns> Programs(const ReportSource& source) {
  std::map<std::string, Ns> use;
  const auto& processes = source.trace().processes();
  auto cursor = source.Feeds(source.trace().span());
  FeedInterval f;
  while (cursor->Next(&f))
    if (f.process < processes.size()) use[processes[f.process].name] += f.time;
  return use;
}

std::string Longest(const std::map<std::string, Ns>& programs) {
  const auto most = std::max_element(
      programs.begin(), programs.end(),
      [](const auto& x, const auto& y) { return x.second < y.second; });
  return most == programs.end() ? "" : most->first;
}

std::vector<Ns> Marks(const ReportSource& source, ProcessIndex process) {
  const Interval span = source.trace().span();
  auto cursor = source.Steps(process, {span.begin, span.end + Ns(1)});
  std::vector<Ns> marks;
  StepMark mark;
  // More are not needed to see a difference.
  constexpr size_t kMost = 4'000'000;
  while (marks.size() < kMost && cursor->Next(&mark))
    if (marks.empty() || mark.t > marks.back()) marks.push_back(mark.t);
  return marks;
}

class Side {
 public:
  Side(const ReportSource& source, const std::string& program)
      : source_(source) {
    const auto& processes = source.trace().processes();
    auto cursor = source.Feeds(source.trace().span());
    FeedInterval f;
    std::map<ProcessIndex, Ns> use;
    while (cursor->Next(&f)) {
      if (f.process >= processes.size() ||
          processes[f.process].name != program)
        continue;
      m_.processes.insert(f.process);
      use[f.process] += f.time;
      Interval& range = used_.try_emplace(f.process, f.range).first->second;
      range = {std::min(range.begin, f.range.begin),
               std::max(range.end, f.range.end)};
    }
    Ns most;
    for (const auto& [process, time] : use) {
      if (time <= most) continue;
      most = time;
      m_.main = process;
    }
    for (ProcessIndex p : m_.processes) marks_[p] = Marks(source, p);
  }

  // Enough steps to cut the run at.
  bool HasSteps() const {
    const auto it = marks_.find(m_.main);
    return it != marks_.end() && it->second.size() > kSegments;
  }

  Measured Measure(bool by_step) {
    m_.by_step = by_step;
    if (by_step) {
      const std::vector<Ns>& marks = marks_[m_.main];
      for (size_t i = 0; i <= kSegments; ++i)
        m_.borders.push_back(marks[i * (marks.size() - 1) / kSegments]);
      // Those without steps of their own cannot be counted.
      std::erase_if(m_.processes,
                    [&](ProcessIndex p) { return marks_[p].empty(); });
    } else {
      const Interval range = used_[m_.main];
      for (size_t i = 0; i <= kSegments; ++i)
        m_.borders.push_back(
            range.begin +
            Ns(range.length().value * static_cast<int64_t>(i) /
               static_cast<int64_t>(kSegments)));
    }
    Profile profile(m_.processes, m_.borders);
    ReportOptions options;
    options.sink = &profile;
    m_.report = BuildReport(source_, options);
    m_.parts = std::move(profile.parts);
    Units();
    Operations();
    return std::move(m_);
  }

 private:
  void Units() {
    m_.steps.resize(kSegments);
    m_.seconds.resize(kSegments);
    for (const auto& [part, series] : m_.parts)
      if (part != kColdStart)
        for (size_t i = 0; i < kSegments; ++i)
          m_.seconds[i] += series[i] / 1e9;
    for (const ProcessIndex p : m_.processes) {
      double gpus = 0;
      for (const Feeding& f : m_.report.feeding) gpus += f.process == p;
      const std::vector<Ns>& marks = marks_[p];
      for (size_t i = 0; i < kSegments; ++i)
        m_.steps[i] +=
            gpus *
            static_cast<double>(
                std::lower_bound(marks.begin(), marks.end(),
                                 m_.borders[i + 1]) -
                std::lower_bound(marks.begin(), marks.end(), m_.borders[i]));
    }
  }

  void Operations() {
    for (size_t i = 0; i < kSegments; ++i) {
      const Interval segment{m_.borders[i], m_.borders[i + 1]};
      if (segment.empty()) continue;
      for (const Operation& o : source_.Summarize(segment).operations) {
        if (m_.processes.count(o.process) == 0 ||
            o.func >= m_.report.functions.size())
          continue;
        const Function& f = m_.report.functions[o.func];
        m_.operations.try_emplace({f.name, f.layer}, kSegments)
            .first->second[i] += Of(o.total);
      }
    }
  }

  const ReportSource& source_;
  Measured m_;
  std::map<ProcessIndex, Interval> used_;
  std::map<ProcessIndex, std::vector<Ns>> marks_;
};

const Series& SeriesOf(const std::map<std::string, Series>& parts,
                       const std::string& part) {
  static const Series kNone;
  const auto it = parts.find(part);
  return it == parts.end() ? kNone : it->second;
}

Series Sum(const std::map<std::string, Series>& parts, bool starved_only) {
  Series sum(kSegments);
  for (const auto& [part, series] : parts) {
    if (part == kColdStart ||
        (starved_only && (part == kBusy || part == kNotKnown)))
      continue;
    for (size_t i = 0; i < kSegments; ++i) sum[i] += series[i];
  }
  return sum;
}

double Total(const Series& series) {
  double sum = 0;
  for (double x : series) sum += x;
  return sum;
}

Change Compared(const Series& a, const Series& units_a, const Series& b,
                const Series& units_b, double least) {
  const Estimate x = Estimated(a, units_a), y = Estimated(b, units_b);
  Change c;
  c.a = x.mean;
  c.b = y.mean;
  c.band = std::max(kSigmas * std::sqrt(x.variance + y.variance), least);
  c.significant = std::abs(c.change()) > c.band;
  return c;
}

DiffSide Describe(const Measured& m) {
  const Report& r = m.report;
  DiffSide side;
  side.store = r.facts.store_path;
  side.host = r.facts.host;
  side.cpus = r.facts.cpus;
  side.verdict = r.verdict;
  side.complete = r.complete;
  side.program = NameOf(r, m.main);
  if (m.main < r.processes.size()) {
    side.cmdline = r.processes[m.main].cmdline;
    for (char& c : side.cmdline)
      if (c == '\0' || c == '\x1f') c = ' ';
  }
  side.processes = m.processes.size();
  for (const Feeding& f : r.feeding) side.gpus += m.processes.count(f.process);
  for (const StepSummary& s : r.steps)
    if (s.process == m.main) {
      side.step = s.text;
      side.steps = s.count;
    }
  side.use = Ns(static_cast<int64_t>(Total(m.seconds) * 1e9));
  side.cold_start =
      Ns(static_cast<int64_t>(Total(SeriesOf(m.parts, kColdStart))));
  return side;
}

// Part of the recording's time in which scheduling was recorded.
double Scheduled(const ReportSource& source) {
  const Interval span = source.trace().span();
  Ns recorded;
  for (const Interval& known : source.trace().kernel_spans())
    recorded += known.Clip(span).length();
  return span.empty() ? 0 : Ratio(recorded, span.length());
}

bool IsCause(const std::string& part) {
  return part != kBusy && part != kNotKnown;
}

// "", or on which side too little of the scheduling is known.
std::string NotScheduled(const Diff& diff) {
  for (const auto& [side, name] :
       {std::pair(&diff.a, "A"), std::pair(&diff.b, "B")}) {
    if (side->scheduled == 0)
      return std::string("scheduling was not recorded in ") + name;
    if (side->scheduled < kScheduledEnough)
      return "scheduling was recorded for " + FormatPercent(side->scheduled) +
             " of " + name + " only";
  }
  return "";
}

std::string Words(double ns) {
  return FormatDuration(Ns(static_cast<int64_t>(std::llround(ns))));
}
std::string Signed(double ns) {
  return (ns < 0 ? "-" : "+") + Words(std::abs(ns));
}
std::string SignedPercent(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%+.2g %%", share * 100);
  return text;
}

std::string PartName(const std::string& part) {
  if (part == kBusy) return "work on the GPU";
  if (part == kNotKnown) return "time in which nobody asked the GPU";
  return part;
}

void Notes(Diff* diff) {
  const DiffSide &a = diff->a, &b = diff->b;
  const auto note = [&](std::string text) {
    diff->notes.push_back(std::move(text));
  };
  const auto both = [](const auto& x, const auto& y) {
    return std::string(x) + " (A) and " + std::string(y) + " (B)";
  };
  if (a.host != b.host)
    note("different hosts: " + both(a.host.empty() ? "not known" : a.host,
                                    b.host.empty() ? "not known" : b.host));
  if (a.cpus != b.cpus)
    note("different numbers of CPUs: " +
         both(std::to_string(a.cpus), std::to_string(b.cpus)));
  if (a.program != b.program)
    note("different programs: " + both(a.program, b.program));
  else if (a.cmdline != b.cmdline)
    note("different command lines: " + both(a.cmdline, b.cmdline));
  if (a.processes != b.processes || a.gpus != b.gpus)
    note("different layouts: " + FormatCount(a.processes) +
         " processes on " + FormatCount(a.gpus) + " GPUs (A), " +
         FormatCount(b.processes) + " on " + FormatCount(b.gpus) +
         " (B); figures are for each GPU");
  for (const auto& [side, name] : {std::pair(&a, "A"), std::pair(&b, "B")}) {
    if (!side->complete)
      note(std::string("data were lost in ") + name +
           ": what is missing there looks like a difference");
    if (!diff->by_step && side->step.empty())
      note(std::string("no steps are known of ") + name +
           " (no period in its calls, or it was merged by an older ingero): "
           "compared by second of GPU use");
  }
  if (const std::string text = NotScheduled(*diff); !text.empty())
    note(text + ": causes are not compared");
  if (diff->by_step && a.steps != b.steps)
    note("different numbers of steps: " +
         both(FormatCount(a.steps), FormatCount(b.steps)));
}

// "loader-cpu-bound +5.6 ms (0.1 ms to 5.7 ms)"; of those that change as
// `sign` does.
std::string List(const Diff& diff, double sign) {
  std::string text;
  size_t named = 0;
  for (const PartChange& p : diff.parts) {
    if (!p.time.significant || p.time.change() * sign <= 0 || named == kNamed)
      continue;
    if (named++ > 0) text += ", ";
    text += PartName(p.part) + " " + Signed(p.time.change()) + " (" +
            Words(p.time.a) + " to " + Words(p.time.b) + ")";
  }
  return text;
}

void Verdict(Diff* diff) {
  if (!diff->not_judged.empty()) {
    diff->verdict = "Not judged: " + diff->not_judged + ".";
    return;
  }
  const Change& main = diff->by_step ? diff->whole : diff->starved;
  const std::string unit =
      diff->by_step ? "a step" : "each second of GPU use";
  bool any = false;
  for (const PartChange& p : diff->parts) any = any || p.time.significant;
  const double sign = main.change() < 0 ? -1 : 1;
  const std::string with = List(*diff, sign), against = List(*diff, -sign);
  std::string& text = diff->verdict;
  if (main.significant && diff->by_step) {
    text = "B is " + std::string(sign > 0 ? "slower" : "faster") + ": " +
           Words(main.b) + " a step instead of " + Words(main.a) + " (" +
           SignedPercent(main.change() / main.a) +
           "); the runs by themselves vary by " + Words(main.band) + ".";
  } else if (main.significant) {
    text = "B starves the GPU " + std::string(sign > 0 ? "more" : "less") +
           ": " + FormatPercent(main.b / diff->whole.b) + " of its use instead of " +
           FormatPercent(main.a / diff->whole.a) + ".";
  } else if (!any) {
    text = "No significant difference: " +
           (diff->by_step ? Words(main.a) + " and " + Words(main.b) +
                                " a step, and the runs by themselves vary by "
                          : "the GPU was starved for " + Words(main.a) +
                                " and " + Words(main.b) + " of " + unit +
                                ", and the runs by themselves vary by ") +
           Words(main.band) + ".";
    return;
  } else {
    text = (diff->by_step ? "No significant difference in the time of a step ("
                          : "No significant difference in starvation (") +
           Words(main.a) + " and " + Words(main.b) +
           "), but its parts differ.";
  }
  if (!with.empty())
    text += " Of " + unit + ": " + with +
            (against.empty() ? "." : "; against that: " + against + ".");
  else if (!against.empty())
    text += " Of " + unit + ": " + against + ".";
  else
    text += " No single part of it changed by more than the noise.";
}

OperationSide OperationOf(const Measured& m,
                          const std::pair<std::string, Layer>& key) {
  OperationSide side;
  uint64_t most = 0;
  for (const Operation& o : m.report.operations) {
    if (m.processes.count(o.process) == 0 ||
        o.func >= m.report.functions.size() ||
        m.report.functions[o.func].name != key.first ||
        m.report.functions[o.func].layer != key.second)
      continue;
    side.count += o.count;
    side.total += o.total;
    // Quantiles cannot be added: those of the process that called most.
    if (o.count > most) {
      most = o.count;
      side.p50 = o.p50;
      side.p99 = o.p99;
    }
  }
  if (side.count > 0) side.average = side.total / static_cast<int64_t>(side.count);
  return side;
}

template <typename T>
void SortByChange(std::vector<T>* list) {
  std::stable_sort(list->begin(), list->end(), [](const T& x, const T& y) {
    return std::abs(x.time.change()) > std::abs(y.time.change());
  });
}

}  // namespace

Diff CompareReports(const ReportSource& source_a,
                    const ReportSource& source_b) {
  Diff diff;
  const std::map<std::string, Ns> programs_a = Programs(source_a),
                                  programs_b = Programs(source_b);
  std::string program_a = Longest(programs_a);
  const std::string program_b =
      programs_b.count(program_a) != 0 ? program_a : Longest(programs_b);
  if (programs_b.count(program_a) == 0 && programs_a.count(program_b) != 0)
    program_a = program_b;
  if (programs_a.empty() || programs_b.empty()) {
    for (const auto& [side, source] :
         {std::pair(&diff.a, &source_a), std::pair(&diff.b, &source_b)}) {
      const Report r = BuildReport(*source, {});
      side->store = r.facts.store_path;
      side->host = r.facts.host;
      side->cpus = r.facts.cpus;
      side->verdict = r.verdict;
      side->complete = r.complete;
      side->scheduled = Scheduled(*source);
    }
    diff.not_judged = std::string("no GPU work was recorded in ") +
                      (programs_a.empty()
                           ? programs_b.empty() ? "either" : "A"
                           : "B");
    Verdict(&diff);
    return diff;
  }
  Side a(source_a, program_a), b(source_b, program_b);
  diff.by_step = a.HasSteps() && b.HasSteps();
  const Measured ma = a.Measure(diff.by_step), mb = b.Measure(diff.by_step);
  diff.a = Describe(ma);
  diff.b = Describe(mb);
  diff.a.scheduled = Scheduled(source_a);
  diff.b.scheduled = Scheduled(source_b);

  const Series& units_a = diff.by_step ? ma.steps : ma.seconds;
  const Series& units_b = diff.by_step ? mb.steps : mb.seconds;
  const auto filled = [](const Series& units) {
    return static_cast<size_t>(
        std::count_if(units.begin(), units.end(),
                      [](double u) { return u > 0; }));
  };
  if (std::min(filled(units_a), filled(units_b)) < kLeastSegments)
    diff.not_judged = "the recordings are too short to know how much they vary";
  const double least =
      kLeastChange * Estimated(Sum(ma.parts, false), units_a).mean;
  const auto compared = [&](const Series& x, const Series& y) {
    Change c = Compared(x, units_a, y, units_b, least);
    if (!diff.not_judged.empty()) c.significant = false;
    return c;
  };
  diff.whole = compared(Sum(ma.parts, false), Sum(mb.parts, false));
  diff.starved = compared(Sum(ma.parts, true), Sum(mb.parts, true));
  std::set<std::string> parts;
  for (const Measured* m : {&ma, &mb})
    for (const auto& [part, series] : m->parts)
      if (part != kColdStart) parts.insert(part);
  for (const std::string& part : parts)
    diff.parts.push_back(
        {part, compared(SeriesOf(ma.parts, part), SeriesOf(mb.parts, part))});
  SortByChange(&diff.parts);
  if (!NotScheduled(diff).empty())
    for (PartChange& p : diff.parts)
      if (IsCause(p.part)) p.time.significant = false;

  std::set<std::pair<std::string, Layer>> operations;
  for (const Measured* m : {&ma, &mb})
    for (const auto& [key, series] : m->operations) operations.insert(key);
  for (const auto& key : operations) {
    const auto series = [&key](const Measured& m) {
      const auto it = m.operations.find(key);
      return it == m.operations.end() ? Series() : it->second;
    };
    OperationChange o;
    o.name = key.first;
    o.layer = key.second;
    o.a = OperationOf(ma, key);
    o.b = OperationOf(mb, key);
    o.time = compared(series(ma), series(mb));
    diff.operations.push_back(std::move(o));
  }
  SortByChange(&diff.operations);
  Notes(&diff);
  Verdict(&diff);
  return diff;
}

std::vector<std::string> FailConditionNames() {
  std::vector<std::string> names = {"slower", "starved", kBusy, kNotKnown};
  for (const Rule* rule : Rules())
    if (std::string(rule->cause) != kColdStart) names.push_back(rule->cause);
  return names;
}

std::optional<FailCondition> ParseFailCondition(const std::string& text) {
  FailCondition c;
  const size_t colon = text.find(':');
  c.what = text.substr(0, colon);
  const std::vector<std::string> names = FailConditionNames();
  if (std::find(names.begin(), names.end(), c.what) == names.end())
    return std::nullopt;
  if (colon == std::string::npos) return c;
  std::string number = text.substr(colon + 1);
  if (number.ends_with('%')) number.pop_back();
  const auto [end, error] = std::from_chars(
      number.data(), number.data() + number.size(), c.percent);
  if (error != std::errc() || end != number.data() + number.size() ||
      !std::isfinite(c.percent) || c.percent < 0)
    return std::nullopt;
  return c;
}

FailAnswer Judge(const Diff& diff, const FailCondition& condition) {
  FailAnswer answer;
  if (!diff.not_judged.empty()) {
    answer.judged = false;
    answer.text = diff.not_judged;
    return answer;
  }
  if (const std::string text = NotScheduled(diff);
      !text.empty() && condition.what != "slower" &&
      condition.what != "starved" && IsCause(condition.what)) {
    answer.judged = false;
    answer.text = "'" + condition.what + "' cannot be told: " + text;
    return answer;
  }
  char limit[32];
  std::snprintf(limit, sizeof limit, "%g", condition.percent);
  if (condition.what == "slower") {
    if (!diff.by_step) {
      answer.judged = false;
      answer.text = "'slower' needs steps in both recordings";
      return answer;
    }
    const double rise = diff.whole.change() / diff.whole.a;
    answer.failed =
        diff.whole.significant && rise * 100 >= condition.percent;
    answer.text = "a step takes " + SignedPercent(rise) +
                  " (allowed: less than " + limit + " %)";
    return answer;
  }
  Change change;
  if (condition.what == "starved") {
    change = diff.starved;
  } else {
    for (const PartChange& p : diff.parts)
      if (p.part == condition.what) change = p.time;
  }
  const double share_a = change.a / diff.whole.a;
  const double share_b = change.b / diff.whole.b;
  answer.failed = change.significant && change.change() > 0 &&
                  (share_b - share_a) * 100 >= condition.percent;
  answer.text = condition.what + " has " + FormatPercent(share_b) +
                " of the time instead of " + FormatPercent(share_a) +
                " (allowed: less than " + limit + " points more)";
  return answer;
}

}  // namespace ingero::analysis
