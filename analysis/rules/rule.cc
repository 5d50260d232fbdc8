// SPDX-License-Identifier: Apache-2.0
#include "analysis/rules/rule.h"

#include "base/text.h"

namespace ingero::analysis {

ProcessIndex Context::ProcessOf(ThreadIndex thread) const {
  return thread < report.threads.size() ? report.threads[thread].process
                                        : kNone;
}

bool Context::IsOwn(ThreadIndex thread) const {
  return ProcessOf(thread) == facts.process;
}

bool Context::Descends(ProcessIndex child, ProcessIndex ancestor) const {
  // Parent links of a damaged trace could loop: no chain is longer than this.
  for (int depth = 0; child < report.processes.size() && depth < 64; ++depth) {
    child = report.processes[child].parent;
    if (child == ancestor) return true;
  }
  return false;
}

bool Context::IsWorker(ThreadIndex thread) const {
  const ProcessIndex p = ProcessOf(thread);
  return p != kNone && p != facts.process && Descends(p, facts.process);
}

bool Context::InTree(ThreadIndex thread) const {
  const ProcessIndex p = ProcessOf(thread);
  if (p == kNone) return false;
  if (p == facts.process || Descends(p, facts.process)) return true;
  // Ranks of one job: all below one process that uses CUDA itself.
  for (ProcessIndex a = 0; a < report.processes.size(); ++a)
    if (report.processes[a].has_cuda && a != facts.process &&
        Descends(facts.process, a) && (p == a || Descends(p, a)))
      return true;
  return false;
}

bool Context::IsLoader(ThreadIndex thread) const {
  return IsWorker(thread) && facts.on_path.count(ProcessOf(thread)) != 0;
}

bool Context::IsIngero(ThreadIndex thread) const {
  const ProcessIndex p = ProcessOf(thread);
  return p != kNone && report.processes[p].is_ingero;
}

CallClass Context::ClassOf(FuncIndex func) const {
  return func < report.functions.size() ? report.functions[func].call_class
                                        : CallClass::kOther;
}

std::string Context::ProcessName(ProcessIndex process) const {
  if (process >= report.processes.size()) return "an unknown process";
  const Process& p = report.processes[process];
  return SanitizeForTerminal(p.name.empty() ? "process" : p.name, 64) + "/" +
         std::to_string(p.pid);
}

std::string Context::Name(ThreadIndex thread) const {
  const ProcessIndex p = ProcessOf(thread);
  if (p == kNone) {
    if (thread >= report.threads.size()) return "an unknown thread";
    return "thread " + std::to_string(report.threads[thread].tid);
  }
  std::string name = ProcessName(p);
  if (report.processes[p].main_thread != thread) {
    name += " (thread " + std::to_string(report.threads[thread].tid);
    const std::string own =
        SanitizeForTerminal(report.threads[thread].name, 32);
    if (!own.empty() && own != report.processes[p].name) name += " " + own;
    name += ")";
  }
  return name;
}

std::string Context::FunctionName(FuncIndex func) const {
  return func < report.functions.size() ? report.functions[func].name
                                        : "an unknown function";
}

uint32_t Context::UsableCpus() const {
  const uint32_t online = report.facts.cpus;
  const uint32_t allowed = report.processes[facts.process].cpus_allowed;
  if (allowed == 0 || online == 0) return std::max(allowed, online);
  return std::min(allowed, online);
}

std::string Context::UsableCpusText() const {
  const uint32_t usable = UsableCpus(), online = report.facts.cpus;
  if (usable == 0) return "";
  if (usable == online)
    return "this machine has " + FormatCount(online) + " CPUs online";
  return "the program may use " + FormatCount(usable) + " of " +
         FormatCount(online) + " CPUs (taskset or cpuset)";
}

std::string Context::Share(Ns time) const {
  return FormatDuration(time) + " (" + FormatPercent(time, facts.span) +
         " of the " + FormatDuration(facts.span) + " of GPU use)";
}

std::string Context::Lost(const Tally& tally) const {
  if (tally.known <= Ns(0)) return "at most " + Share(tally.possible);
  // A small possible part would only make the sentence longer.
  if (tally.possible.value < tally.known.value / 20) return Share(tally.known);
  const std::string least = FormatPercent(tally.known, facts.span);
  const std::string most = FormatPercent(tally.total(), facts.span);
  return "at least " + FormatDuration(tally.known) + " and at most " +
         FormatDuration(tally.total()) + " (" +
         (least == most ? least : least + " to " + most) + " of the " +
         FormatDuration(facts.span) + " of GPU use)";
}

std::string Context::Top(const std::map<ThreadIndex, Ns>& by, size_t count,
                         Ns whole) const {
  std::string out;
  const auto sorted = Sorted(by);
  for (size_t i = 0; i < sorted.size() && i < count; ++i) {
    if (i) out += ", ";
    out += Name(sorted[i].first);
    if (sorted.size() > 1) out += " " + FormatPercent(sorted[i].second, whole);
  }
  if (sorted.size() > count)
    out += " and " + FormatCount(sorted.size() - count) + " more";
  return out.empty() ? "an unknown thread" : out;
}

void AddEvidence(Finding* finding, std::string name, double value,
                 std::string unit, std::string text) {
  Evidence e;
  e.name = std::move(name);
  e.value = value;
  e.unit = std::move(unit);
  e.text = std::move(text);
  finding->evidence.push_back(std::move(e));
}

void Recommend(Finding* finding, std::string text, Ns gain) {
  finding->recommendations.push_back({std::move(text), gain});
}

}  // namespace ingero::analysis
