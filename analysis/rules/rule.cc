// SPDX-License-Identifier: Apache-2.0
#include "analysis/rules/rule.h"

#include <cmath>
#include <cstdio>

#include "base/text.h"

namespace ingero::analysis {

void Ranges::Sort() {
  std::sort(ranges_.begin(), ranges_.end(), [](Interval a, Interval b) {
    return a.begin < b.begin;
  });
  reach_.clear();
  for (const Interval& r : ranges_)
    reach_.push_back(reach_.empty() ? r.end : std::max(reach_.back(), r.end));
}

Ns Ranges::Within(Interval window) const {
  Ns sum;
  auto at = static_cast<size_t>(
      std::upper_bound(reach_.begin(), reach_.end(), window.begin) -
      reach_.begin());
  for (; at < ranges_.size() && ranges_[at].begin < window.end; ++at)
    sum += ranges_[at].Clip(window).length();
  return sum;
}

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
  return p != kNone && p != facts.process && IsBelow(p);
}

bool Context::InTree(ThreadIndex thread) const {
  const ProcessIndex p = ProcessOf(thread);
  if (p == kNone) return false;
  if (p == facts.process || IsBelow(p)) return true;
  // Ranks of one job: all below one process that uses CUDA itself.
  for (const ProcessIndex a : facts.above)
    if (p == a || Descends(p, a)) return true;
  return std::find(facts.launchers.begin(), facts.launchers.end(), p) !=
         facts.launchers.end();
}

bool Context::OfJob(ThreadIndex thread) const {
  if (InTree(thread)) return true;
  const ProcessIndex p = ProcessOf(thread);
  return p != kNone && report.processes[p].has_cuda &&
         !facts.launchers.empty() && Descends(p, facts.launchers.back()) &&
         SameProgram(p, facts.process);
}

bool Context::HandsWork(ThreadIndex thread) const {
  return InTree(thread) ? !IsWorker(thread) : OfJob(thread);
}

namespace {

// "/usr/bin/python3.12" -> "python": an interpreter is started by several names.
std::string_view ProgramOf(const std::vector<Process>& all, ProcessIndex p) {
  for (int depth = 0; p < all.size() && depth < 64; ++depth) {
    if (std::string_view exe = all[p].exe; !exe.empty()) {
      exe.remove_prefix(exe.rfind('/') + 1);
      const size_t end = exe.find_last_not_of("0123456789.");
      return end == exe.npos ? exe : exe.substr(0, end + 1);
    }
    p = all[p].parent;
  }
  return {};
}

}  // namespace

bool Context::SameProgram(ProcessIndex a, ProcessIndex b) const {
  const std::string_view of_a = ProgramOf(report.processes, a);
  return !of_a.empty() && of_a == ProgramOf(report.processes, b);
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
  if (report.processes[p].main_thread == thread) return ProcessName(p);
  return ProcessName(p) + " (thread " + ThreadName(thread) + ")";
}

std::string Context::ThreadName(ThreadIndex thread) const {
  const ProcessIndex p = ProcessOf(thread);
  std::string name = std::to_string(report.threads[thread].tid);
  const std::string own = SanitizeForTerminal(report.threads[thread].name, 32);
  if (!own.empty() && own != report.processes[p].name) name += " " + own;
  return name;
}

std::string Context::FunctionName(FuncIndex func) const {
  return func < report.functions.size() ? report.functions[func].name
                                        : "an unknown function";
}

namespace {

// Calls f(cgroup) for the process's cgroup and those above that have a quota.
template <typename F>
void ForQuotas(const Report& report, ProcessIndex process, F f) {
  if (process >= report.processes.size()) return;
  uint64_t id = report.processes[process].cgroup_id;
  // Links of a damaged trace could loop: no hierarchy is deeper than this.
  for (int depth = 0; id != 0 && depth < 64; ++depth) {
    const auto it = report.cpu_cgroups.find(id);
    if (it == report.cpu_cgroups.end()) return;
    // Older recordings hold the figures without the quota.
    if (it->second.quota > Ns(0) || it->second.periods > 0) f(it->second);
    id = it->second.above;
  }
}

}  // namespace

const CpuCgroup* Context::QuotaOf(ProcessIndex process) const {
  const CpuCgroup* found = nullptr;
  ForQuotas(report, process, [&](const CpuCgroup& c) {
    if (found == nullptr || c.throttled_periods > found->throttled_periods)
      found = &c;
  });
  return found;
}

double Context::QuotaCpus(ProcessIndex process) const {
  double least = 0;
  ForQuotas(report, process, [&](const CpuCgroup& c) {
    const double cpus = Ratio(c.quota, c.period);
    if (cpus <= 0) return;
    if (least == 0 || cpus < least) least = cpus;
  });
  return least;
}

std::string Context::QuotaText(const CpuCgroup& cgroup) const {
  const std::string name = "cgroup " + SanitizeForTerminal(cgroup.path, 256);
  if (cgroup.quota <= Ns(0) || cgroup.period <= Ns(0)) return name;
  char cpus[32];
  std::snprintf(cpus, sizeof cpus, "%.3g", Ratio(cgroup.quota, cgroup.period));
  return name + " (" +
         FormatDuration(cgroup.quota) + " of CPU time per " +
         FormatDuration(cgroup.period) + ": " + cpus +
         (std::string_view(cpus) == "1" ? " CPU)" : " CPUs)");
}

uint32_t Context::UsableCpus() const {
  uint32_t usable = report.facts.cpus;
  const double quota = std::ceil(QuotaCpus(facts.process));
  for (const uint32_t limit :
       {report.processes[facts.process].cpus_allowed,
        quota < 65536 ? static_cast<uint32_t>(quota) : uint32_t{0}})
    if (limit != 0 && (usable == 0 || limit < usable)) usable = limit;
  return usable;
}

std::string Context::UsableCpusText() const {
  const uint32_t usable = UsableCpus(), online = report.facts.cpus;
  if (usable == 0) return "";
  if (usable == online)
    return "this machine has " + FormatCount(online) + " CPUs online";
  return "the program may use " + FormatCount(usable) + " of " +
         FormatCount(online) + " CPUs (" +
         (usable == report.processes[facts.process].cpus_allowed
              ? "taskset or cpuset"
              : "CPU quota of its cgroup") +
         ")";
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

std::vector<Program> Context::Programs(
    const std::map<ThreadIndex, Ns>& by) const {
  struct Group {
    std::map<ProcessIndex, Ns> processes;
    std::map<ThreadIndex, Ns> threads;
    Ns time;
  };
  // With so much of it, one of several is named alone.
  const auto nearly_all = [](Ns part, Ns whole) {
    return Ratio(part, whole) >= 0.9;
  };
  // By name; what can't be joined with others has a number of its own.
  std::map<std::pair<std::string, int64_t>, Group> groups;
  for (const auto& [thread, time] : by) {
    const ProcessIndex p = ProcessOf(thread);
    const std::string name =
        p < report.processes.size() ? report.processes[p].name : "";
    int64_t alone = -1;
    if (p == kNone)
      alone = (int64_t{1} << 32) + thread;
    else if (p == facts.process || name.empty())
      alone = p;
    Group& g = groups[{name, alone}];
    g.processes[p] += time;
    g.threads[thread] += time;
    g.time += time;
  }
  std::vector<Program> out;
  for (const auto& [key, g] : groups) {
    const auto [process, of_process] = Sorted(g.processes)[0];
    const auto [thread, of_thread] = Sorted(g.threads)[0];
    Program program;
    program.process = process;
    program.time = g.time;
    if (g.processes.size() > 1 && !nearly_all(of_process, g.time)) {
      program.name = program.part = FormatCount(g.processes.size()) + " " +
                                    SanitizeForTerminal(key.first, 64) +
                                    " processes";
      constexpr size_t kMostPids = 4;
      const auto sorted = Sorted(g.processes);
      for (size_t i = 0; i < sorted.size() && i < kMostPids; ++i)
        program.pids += (i > 0 ? ", " : "") +
                        std::to_string(report.processes[sorted[i].first].pid);
      if (sorted.size() > kMostPids)
        program.pids +=
            " and " + FormatCount(sorted.size() - kMostPids) + " more";
    } else {
      program.name = process == kNone ? Name(thread) : ProcessName(process);
      program.part = Name(thread);
      if (!nearly_all(of_thread, g.time))
        program.part = program.name + " (" + FormatCount(g.threads.size()) +
                       " threads, most: " + ThreadName(thread) + ")";
    }
    out.push_back(std::move(program));
  }
  std::stable_sort(
      out.begin(), out.end(),
      [](const Program& a, const Program& b) { return a.time > b.time; });
  return out;
}

std::string Context::Top(const std::map<ThreadIndex, Ns>& by, size_t count,
                         Ns whole) const {
  std::string out;
  const std::vector<Program> programs = Programs(by);
  for (size_t i = 0; i < programs.size() && i < count; ++i) {
    if (i) out += ", ";
    out += programs[i].part;
    if (programs.size() > 1)
      out += " " + FormatPercent(programs[i].time, whole);
  }
  if (programs.size() > count) {
    out += " and ";
    out += FormatCount(programs.size() - count) + " more";
  }
  return out.empty() ? "an unknown thread" : out;
}

std::string WithoutNumbers(std::string name) {
  const std::string whole = name;
  std::erase_if(name, [](char c) { return c >= '0' && c <= '9'; });
  name.erase(name.find_last_not_of("_-:#/ ") + 1);
  return name.empty() ? whole : name;
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
