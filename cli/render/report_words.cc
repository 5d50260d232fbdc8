// SPDX-License-Identifier: Apache-2.0
#include "cli/render/report_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "analysis/recording_advice.h"
#include "base/text.h"
#include "cli/render/words.h"

namespace ingero::cli {
namespace {

using analysis::Finding;
using analysis::Process;
using analysis::ProcessActivity;
using analysis::ProcessIndex;
using analysis::Severity;

constexpr int kWordColumns = 120;  // paths in commands stay whole
constexpr size_t kSentenceBytes = 1000;

// "31.0 s", or "31.0 s to 33.1 s" where it is known only so far.
std::string FromTo(Ns least, Ns most) {
  std::string a = FormatDuration(least), b = FormatDuration(most);
  return most <= least || a == b ? a : fmt::format("{} to {}", a, b);
}
std::string FromTo(Ns least, Ns most, Ns of) {
  const std::string from = FormatPercent(least, of);
  const std::string to = FormatPercent(most, of);
  return most <= least || from == to ? from : from + " to " + to;
}

}  // namespace

std::string Name(std::string_view text, int columns) {
  return Ellipsize(SanitizeForTerminal(text, text.size() * 4), columns);
}

std::string Sentence(std::string_view text) {
  std::string out;
  const std::string clean = SanitizeForTerminal(text, text.size() * 4);
  for (size_t i = 0; i < clean.size();) {
    const size_t end = std::min(clean.find(' ', i), clean.size());
    if (i > 0) out += ' ';
    out += Ellipsize(std::string_view(clean).substr(i, end - i), kWordColumns);
    i = end + 1;
  }
  return SanitizeForTerminal(out, kSentenceBytes);
}

std::string Join(const std::vector<std::string>& parts,
                 std::string_view separator) {
  return fmt::format("{}", fmt::join(parts, separator));
}

const char* Word(Severity severity) {
  switch (severity) {
    case Severity::kHigh:
      return "HIGH";
    case Severity::kMedium:
      return "MEDIUM";
    case Severity::kLow:
      return "LOW";
    case Severity::kInfo:
      break;
  }
  return "INFO";
}

const Process* ReportWords::Find(ProcessIndex index) const {
  return index < r_.processes.size() ? &r_.processes[index] : nullptr;
}

std::string ReportWords::Short(ProcessIndex index, int columns) const {
  const Process* p = Find(index);
  if (p == nullptr) return "unknown process";
  const std::string pid = fmt::format("/{}", p->pid);
  return Name(p->name.empty() ? "?" : p->name,
              std::max(columns - static_cast<int>(pid.size()), 8)) +
         pid;
}

std::string ReportWords::Program(ProcessIndex index) const {
  const Process* p = Find(index);
  if (p == nullptr) return "unknown process";
  // Arguments as /proc and the companion separate them. The program's folder
  // says little, those of arguments only where there is room.
  const std::string& cmdline = p->cmdline.empty() ? p->name : p->cmdline;
  std::string command, brief;
  for (size_t begin = 0; begin <= cmdline.size();) {
    const size_t end = std::min(
        cmdline.find_first_of(std::string_view("\0\x1f ", 3), begin),
        cmdline.size());
    const std::string word = cmdline.substr(begin, end - begin);
    const size_t slash = word.find_last_of('/');
    const std::string last =
        slash == word.npos || slash + 1 == word.size() ? word
                                                       : word.substr(slash + 1);
    command += begin == 0 ? last : ' ' + word;
    brief += begin == 0 ? last : ' ' + last;
    begin = end + 1;
  }
  if (DisplayWidth(command) > kNameColumns) command = brief;
  std::string pid = fmt::format("pid {}", p->pid);
  if (p->ns_pid != 0 && p->ns_pid != p->pid)
    pid += fmt::format(" ({} in its container)", p->ns_pid);
  return fmt::format("{}, {}", Name(TrimWhitespace(command)), pid);
}

std::string ReportWords::FunctionName(analysis::FuncIndex index) const {
  return index < r_.functions.size() ? Name(r_.functions[index].name)
                                     : "unknown function";
}

std::string ReportWords::Moment(Ns t) const {
  std::string text = FormatOffset(t - r_.span.begin);
  if (KnowsTimeOfDay())
    text += fmt::format(" ({})", FormatTimeOfDay(Realtime(t)));
  return text;
}
std::string ReportWords::Between(Interval i) const {
  return fmt::format("{} to {}", Moment(i.begin), Moment(i.end));
}

ProcessIndex ReportWords::MainProcess() const {
  ProcessIndex best = analysis::kNone;
  if (pid_) {
    for (const ProcessActivity& a : r_.activities)
      if (const auto* p = Find(a.process); p != nullptr && p->pid == pid_)
        return a.process;
    for (ProcessIndex i = 0; i < r_.processes.size(); ++i)
      if (r_.processes[i].pid == pid_) best = i;
    return best;
  }
  if (!r_.feeding.empty()) return r_.feeding.front().process;
  for (const ProcessActivity& a : r_.activities)
    if (a.role == "main") return a.process;
  for (ProcessIndex i = 0; i < r_.processes.size(); ++i)
    if (r_.processes[i].has_cuda) return i;
  return analysis::kNone;
}

std::string ReportWords::Idle(const analysis::Feeding& f) const {
  return fmt::format(
      "in use for {}, of that idle at least {} ({}), at most {} ({})",
      FormatDuration(f.span), FormatDuration(f.idle_at_least),
      FormatPercent(f.idle_at_least, f.span), FormatDuration(f.idle_at_most),
      FormatPercent(f.idle_at_most, f.span));
}

std::string ReportWords::Title() const {
  const ProcessIndex main = MainProcess();
  std::string title = main == analysis::kNone
                          ? "No program with CUDA calls was recorded"
                          : Program(main);
  Interval life = r_.window;
  if (main != analysis::kNone)
    life = life.Clip(
        {r_.processes[main].first_seen, r_.processes[main].last_seen});
  if (life.empty()) life = r_.window;
  title += fmt::format(", {}", FormatDuration(life.length()));
  for (const analysis::Feeding& f : r_.feeding) {
    if (f.process != main) continue;
    std::string least = FormatPercent(f.idle_at_least, f.span);
    std::string most = FormatPercent(f.idle_at_most, f.span);
    title += fmt::format(": GPU {} idle {} of the {} of its use", f.device,
                         least == most ? least : least + " to " + most,
                         FormatDuration(f.span));
    break;
  }
  return title;
}

// The verdict is about the first; another one's advice would not answer it.
std::string ReportWords::DoNext() const {
  if (r_.findings.empty() || r_.findings[0].context ||
      r_.findings[0].recommendations.empty())
    return "";
  return Advice(r_.findings[0].recommendations[0], r_.findings[0].base);
}

std::string ReportWords::Recorded() const {
  const analysis::TraceFacts& facts = r_.facts;
  std::string recorded = FormatDuration(r_.span.length());
  if (KnowsTimeOfDay())
    recorded +=
        fmt::format(", {} to {} {}", FormatDateTime(Realtime(r_.span.begin)),
                    FormatTimeOfDay(Realtime(r_.span.end)),
                    FormatTimeZone(Realtime(r_.span.begin)));
  if (!facts.host.empty()) recorded += fmt::format(", on {}", Name(facts.host));
  if (facts.cpus > 0)
    recorded +=
        fmt::format(" with {}", FormatCounted(facts.cpus, "CPU", "CPUs"));
  return recorded;
}

std::vector<LabeledFact> ReportWords::Facts() const {
  const analysis::TraceFacts& facts = r_.facts;
  std::vector<LabeledFact> list;
  // One label for all of them.
  const auto add = [&list](const char* label,
                           const std::vector<std::string>& texts,
                           std::optional<Tone> tone = std::nullopt) {
    for (size_t i = 0; i < texts.size(); ++i)
      list.push_back({i == 0 ? label : "", Sentence(texts[i]), tone});
  };
  list.push_back({"Recorded", Recorded()});
  if (r_.window != r_.span)
    list.push_back(
        {"Looked at", Between(r_.window) + ", all figures but notices and cost are of this "
                             "time"});

  // With several programs or GPUs, a line for each.
  for (const analysis::Feeding& f : r_.feeding) {
    std::string text = Idle(f);
    if (f.known_busy > Ns(0))
      text += fmt::format(", known busy {}", FormatDuration(f.known_busy));
    if (r_.feeding.size() > 1)
      text = fmt::format("{}: {}", Short(f.process), text);
    list.push_back({fmt::format("GPU {}", f.device), text});
  }
  add("Coverage", analysis::FoldedCoverage(facts.coverage));
  if (!facts.scope.empty()) list.push_back({"Scope", Sentence(facts.scope)});
  add("Missing", facts.missing, Tone::kYellow);
  add("System", facts.system);
  AddLosses(&list);
  if (facts.clock_error > Ns(0))
    list.push_back({"Accuracy", "clocks joined within " +
                                    FormatDuration(facts.clock_error)});
  list.push_back({"Cost", Cost()});
  if (const std::string own = OwnProcesses(); !own.empty())
    list.push_back({"", Sentence(own)});
  AddCode(&list);
  return list;
}

void ReportWords::AddCode(std::vector<LabeledFact>* list) const {
  const analysis::TraceFacts& facts = r_.facts;
  // Its stream is there, and says so under "Missing".
  const bool unreadable =
      std::any_of(facts.missing.begin(), facts.missing.end(),
                  [](const std::string& line) {
                    return line.find("/code-") != std::string::npos;
                  });
  if (facts.code_hz > 0) {
    list->push_back(
        {"Code", fmt::format("where code was: {}, at most {} a second "
                             "and thread; taking them ran for {}",
                             FormatCounted(facts.code_samples, "sample",
                                           "samples"),
                             facts.code_hz, FormatDuration(facts.code_cost))});
    if (facts.code_cut)
      list->push_back({"",
                       fmt::format("the stream of them was cut, or its writer "
                                   "killed: none is later than {}",
                                   Moment(*facts.code_cut)),
                       Tone::kYellow});
    for (const auto& p : facts.code_problems)
      list->push_back({"",
                       p.process == analysis::kNone
                           ? Sentence(p.text)
                           : Short(p.process) + ": " + Sentence(p.text),
                       Tone::kYellow});
  } else if (!unreadable &&
             facts.tracing_cost + facts.companion_cost > Ns(0)) {
    list->push_back(
        {"Code", "not sampled: `ingero run --where` names its lines"});
  }
}

// Of the whole recording: the shim's time is the program's own, a probe takes
// its time on whatever CPU the switch is.
std::string ReportWords::Cost() const {
  const analysis::TraceFacts& facts = r_.facts;
  const Ns probes = facts.companion_cost / std::max<int64_t>(1, facts.cpus);
  const Ns cost = facts.tracing_cost + probes;
  if (analysis::IsImported(facts))
    return "what tracing cost is not known: it was not ingero that recorded";
  std::string text = fmt::format(
      "tracing cost about {} of {} ({}): the shim {}", FormatDuration(cost),
      FormatDuration(r_.span.length()), FormatPercent(cost, r_.span.length()),
      FormatDuration(facts.tracing_cost));
  if (facts.switches > 0)
    text += fmt::format(", the companion's probes {} on each CPU ({})",
                        FormatDuration(probes),
                        FormatCounted(facts.switches, "switch", "switches"));
  return text;
}

std::string ReportWords::OwnProcesses() const {
  constexpr size_t kShown = 3;
  using Times = std::map<ProcessIndex, Ns>;
  // "ingero merge/2301 310 ms, ingero-kprobe/2290 60 ms".
  const auto by_process = [this](const Times& times) {
    std::vector<std::pair<ProcessIndex, Ns>> list(times.begin(), times.end());
    std::stable_sort(
        list.begin(), list.end(),
        [](const auto& a, const auto& b) { return a.second > b.second; });
    std::vector<std::string> parts;
    for (const auto& [process, time] : list) {
      if (parts.size() == kShown) break;
      parts.push_back(fmt::format("{} {}", OwnName(process),
                                  FormatDuration(time)));
    }
    if (list.size() > kShown)
      parts.push_back(fmt::format("and {} more", list.size() - kShown));
    return Join(parts);
  };
  const auto sum = [](const Times& times) {
    Ns all;
    for (const auto& [process, time] : times) all += time;
    return all;
  };
  Times ran, held;
  for (const ProcessActivity& a : r_.activities)
    if (a.role == "ingero" && a.running > Ns(0)) ran[a.process] += a.running;
  for (const analysis::Account& a : r_.accounts)
    for (const auto& [process, time] : a.held_by_ingero) held[process] += time;
  std::string text;
  if (!ran.empty())
    text = fmt::format("not in that: {}ingero's own processes ran for {} ({})",
                       r_.window == r_.span ? "" : "in the time looked at ",
                       FormatDuration(sum(ran)), by_process(ran));
  if (!held.empty())
    text += fmt::format(
        "{}GPU work waited for {} for a CPU that {} held ({}), which no cause "
        "is blamed for",
        text.empty() ? "not in that: " : "; ", FormatDuration(sum(held)),
        text.empty() ? "ingero's own processes" : "they", by_process(held));
  return text;
}

// "ingero merge/2301": which command it was is in its first words.
std::string ReportWords::OwnName(ProcessIndex index) const {
  const Process* p = Find(index);
  if (p == nullptr) return Short(index);
  std::vector<std::string> words = {""};
  for (const char c : p->cmdline) {
    if (c != '\0' && c != '\x1f' && c != ' ')
      words.back() += c;
    else if (words.size() == 2)
      break;
    else
      words.emplace_back();
  }
  const bool command = p->name == "ingero" && words.size() == 2 &&
                       !words[1].empty() && words[1].front() != '-';
  return Name(p->name + (command ? " " + words[1] : "")) +
         fmt::format("/{}", p->pid);
}

// One line for each kind of loss, with how often and when; notices last.
void ReportWords::AddLosses(std::vector<LabeledFact>* facts) const {
  struct Kind {
    uint64_t count = 0;
    size_t ranges = 0;
    Interval range;
    std::string text;
  };
  struct Key {
    int urgency = 0;  // the severity, negative
    std::string id;
    bool code = false;
    auto operator<=>(const Key&) const = default;
  };
  std::map<Key, Kind> kinds;
  for (const analysis::Loss& loss : r_.losses) {
    // Of a kind that both other streams have.
    const bool code = loss.side == analysis::Loss::Side::kCode &&
                      !loss.id.starts_with("code-");
    Kind& k = kinds[{-loss.severity, loss.id, code}];
    k.range = k.ranges++ == 0
                  ? loss.range
                  : Interval{std::min(k.range.begin, loss.range.begin),
                             std::max(k.range.end, loss.range.end)};
    k.count += loss.count;
    k.text = loss.text;
  }
  if (kinds.empty() || kinds.begin()->first.urgency > -2)
    facts->push_back({"Losses", !r_.complete    ? "the data are incomplete"
                                : kinds.empty() ? "none"
                                                : "no event was lost; see the "
                                                  "notice"});
  for (const auto& [key, k] : kinds) {
    std::string text = fmt::format("{} ({}{})",
                                   FormatCounted(k.count, "event", "events"),
                                   Name(key.id), key.code ? ", where code was"
                                                          : "");
    if (k.ranges > 1) text += fmt::format(" in {} places", k.ranges);
    // It may begin before the first event that was kept.
    const Interval shown{std::max(k.range.begin, r_.span.begin),
                         std::max(k.range.end, r_.span.begin)};
    text += fmt::format(", {}: {}", Between(shown), Sentence(k.text));
    if (key.urgency <= -2)
      facts->push_back({"Lost", text, Tone::kRed});
    else
      facts->push_back({"Notice", text});
  }
  for (const analysis::Account& a : r_.accounts)
    if (a.unseen > Ns(0))
      facts->push_back(
          {"Unknown",
           fmt::format(
               "for {} in which {}'s GPU was or may have been "
               "starved, what held its work up: context switches "
               "were not seen{}",
               FormatDuration(a.unseen), Short(a.process),
               r_.facts.scope.empty() ? "" : ", or were outside the scope"),
           Tone::kYellow});
}

std::string ReportWords::Advice(const analysis::Recommendation& a,
                                Ns base) const {
  std::string text = Sentence(a.text);
  if (a.gain > Ns(0))
    text +=
        fmt::format(" Gain: up to {} of {}.", FormatDuration(a.gain),
                    FormatDuration(base > Ns(0) ? base : r_.window.length()));
  return text;
}

std::string ReportWords::Lost(const Finding& f) const {
  if (f.lost <= Ns(0) && f.lost_at_most <= Ns(0)) return "";
  if (f.lost <= Ns(0))
    return fmt::format("not proved; at most {} of {} of GPU use ({})",
                       FormatDuration(f.lost_at_most), FormatDuration(f.base),
                       FormatPercent(f.lost_at_most, f.base));
  return fmt::format("{} of {} of GPU use ({})", FromTo(f.lost, f.lost_at_most),
                     FormatDuration(f.base),
                     FromTo(f.lost, f.lost_at_most, f.base));
}

std::string ReportWords::When(const Finding& f) const {
  std::vector<std::string> parts;
  for (Interval w : f.windows) parts.push_back(Between(w));
  if (parts.empty()) return "";
  const double outside = Ratio(f.outside_windows, f.lost_at_most);
  if (outside >= 0.005)
    parts.push_back(fmt::format("{} of it elsewhere", FormatPercent(outside)));
  return Join(parts);
}

std::string ReportWords::Culprits(const Finding& f, size_t most) const {
  std::vector<std::string> parts;
  const size_t n = std::min(f.culprits.size(), most);
  for (size_t i = 0; i < n; ++i) {
    const analysis::Culprit& c = f.culprits[i];
    std::string text = Name(c.name);
    if (c.time > Ns(0))
      text +=
          fmt::format(" {} ({}{})", FormatDuration(c.time),
                      FormatPercent(c.share), i == 0 ? " of this finding" : "");
    parts.push_back(text);
  }
  if (n < f.culprits.size())
    parts.push_back(fmt::format("and {} more", f.culprits.size() - n));
  return Join(parts);
}

std::string ReportWords::Confidence(const Finding& f) const {
  static constexpr const char* kWords[] = {"low", "medium", "high"};
  std::string text =
      kWords[std::min<size_t>(static_cast<size_t>(f.confidence), 2)];
  if (!f.coverage.empty())
    text += fmt::format("; data: {}", Sentence(f.coverage));
  return text;
}

std::string ReportWords::Sum(const analysis::Account& a) const {
  if (a.starved <= Ns(0)) return "";
  std::vector<std::string> parts;
  for (const auto& [cause, lost] : a.causes)
    parts.push_back(FormatDuration(lost) + " " + Name(cause));
  if (a.below > Ns(0))
    parts.push_back(FormatDuration(a.below) + " in causes below 1 %");
  if (a.unexplained > Ns(0))
    parts.push_back(FormatDuration(a.unexplained) + " unexplained");
  return fmt::format(
      "Sum{}: {} = {} for which the GPU was starved for certain.",
      r_.accounts.size() > 1 ? " of " + Short(a.process) : std::string(),
      Join(parts, " + "), FormatDuration(a.starved));
}

std::vector<std::string> ReportWords::NotEvaluated() const {
  std::vector<std::pair<std::string, std::vector<std::string>>> reasons;
  for (const analysis::NotEvaluated& n : r_.not_evaluated) {
    auto it = std::find_if(reasons.begin(), reasons.end(),
                           [&](const auto& r) { return r.first == n.why; });
    if (it == reasons.end()) it = reasons.insert(it, {n.why, {}});
    it->second.push_back(Name(n.cause));
  }
  std::vector<std::string> lines;
  for (const auto& [why, causes] : reasons)
    lines.push_back(fmt::format("{}: {}", Join(causes), Sentence(why)));
  return lines;
}

}  // namespace ingero::cli
