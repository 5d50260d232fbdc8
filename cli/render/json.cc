// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <vector>

#include "cli/render/json.h"
#include "cli/render/report.h"

namespace ingero::cli {
namespace {

using analysis::Report;
Json Array() { return Json::array(); }

Json ToJson(Interval interval) {
  return {{"begin_ns", interval.begin.value}, {"end_ns", interval.end.value}};
}

// Who a process is, also where its pid was used again. null = not known.
Json Identity(const Report& report, analysis::ProcessIndex index) {
  if (index >= report.processes.size()) return nullptr;
  const analysis::Process& p = report.processes[index];
  return {{"pid", p.pid}, {"start_ns", p.start.value}};
}

template <typename T>
Json OrNull(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

const char* Name(analysis::Severity severity) {
  switch (severity) {
    case analysis::Severity::kHigh:
      return "high";
    case analysis::Severity::kMedium:
      return "medium";
    case analysis::Severity::kLow:
      return "low";
    case analysis::Severity::kInfo:
      break;
  }
  return "info";
}

const char* Name(analysis::Confidence confidence) {
  switch (confidence) {
    case analysis::Confidence::kHigh:
      return "high";
    case analysis::Confidence::kMedium:
      return "medium";
    case analysis::Confidence::kLow:
      break;
  }
  return "low";
}

const char* Name(analysis::TimelineLine::Layer layer) {
  switch (layer) {
    case analysis::TimelineLine::Layer::kSystem:
      return "SYSTEM";
    case analysis::TimelineLine::Layer::kHost:
      return "HOST";
    case analysis::TimelineLine::Layer::kCuda:
      break;
  }
  return "CUDA";
}

// Whole numbers without a point, so that ns and counts stay integers.
Json Number(double value) {
  if (!std::isfinite(value)) return nullptr;
  if (value == std::floor(value) && std::abs(value) < 9e15)
    return static_cast<int64_t>(value);
  return value;
}

Json Trace(const Report& report) {
  const analysis::TraceFacts& facts = report.facts;
  Json anchor = nullptr;
  if (facts.wall_clock_at_span_begin_ns != 0)
    anchor = {{"monotonic_ns", report.span.begin.value},
              {"realtime_ns", facts.wall_clock_at_span_begin_ns}};
  Json losses = Array();
  for (const analysis::Loss& loss : report.losses)
    losses.push_back({{"id", loss.id},
                      {"text", loss.text},
                      {"severity", loss.severity >= 2 ? "loss" : "notice"},
                      {"count", loss.count},
                      {"side", analysis::SideName(loss.side)},
                      {"process", Identity(report, loss.process)},
                      {"begin_ns", loss.range.begin.value},
                      {"end_ns", loss.range.end.value}});
  Json coverage = Array();
  for (const analysis::CoverageFact& c : facts.coverage)
    coverage.push_back(c.text);
  Json problems = Array();
  for (const auto& p : facts.code_problems)
    problems.push_back({{"process", Identity(report, p.process)},
                        {"text", p.text}});
  return {{"host", facts.host},
          {"boot_id", facts.boot_id},
          {"tool_version", facts.tool_version},
          {"store", facts.store_path},
          {"span", ToJson(report.span)},
          {"window", ToJson(report.window)},
          {"complete", report.complete},
          {"wall_clock_anchor", anchor},
          {"cpus", facts.cpus},
          {"events", facts.events},
          {"streams", facts.streams},
          {"coverage", coverage},
          {"missing", facts.missing},
          {"scope", facts.scope},
          {"system", facts.system},
          {"losses", losses},
          {"clock_error_ns", facts.clock_error.value},
          {"tracing_cost_ns", facts.tracing_cost.value},
          {"companion_cost_ns", facts.companion_cost.value},
          {"code_hz", facts.code_hz},
          {"code_samples", facts.code_samples},
          {"code_cost_ns", facts.code_cost.value},
          {"code_cut_ns",
           facts.code_cut ? Json(facts.code_cut->value) : Json(nullptr)},
          {"code_problems", problems},
          {"page_cost_ns", facts.page_cost.value}};
}

// Processes that did something in the window or that CUDA calls are known of.
Json Processes(const Report& report) {
  std::vector<analysis::ProcessActivity> activities = report.activities;
  std::vector<bool> seen(report.processes.size());
  for (const auto& a : activities)
    if (a.process < seen.size()) seen[a.process] = true;
  for (uint32_t i = 0; i < seen.size(); ++i) {
    if (seen[i] || !report.processes[i].has_cuda) continue;
    activities.emplace_back().process = i;
    activities.back().role = "other";
  }
  std::stable_sort(
      activities.begin(), activities.end(), [&](const auto& a, const auto& b) {
        auto key = [&](const analysis::ProcessActivity& x) {
          const bool known = x.process < report.processes.size();
          return known ? std::pair(report.processes[x.process].pid,
                                   report.processes[x.process].start)
                       : std::pair(UINT32_MAX, Ns(0));
        };
        return key(a) < key(b);
      });
  Json out = Array();
  for (const analysis::ProcessActivity& a : activities) {
    if (a.process >= report.processes.size()) continue;
    const analysis::Process& p = report.processes[a.process];
    Json exited = nullptr;
    if (p.exited) exited = p.exited->value;
    out.push_back({{"pid", p.pid},
                   {"start_ns", p.start.value},
                   {"ns_pid", p.ns_pid},
                   {"name", p.name},
                   {"cmdline", p.cmdline},
                   {"exe", p.exe},
                   {"parent", Identity(report, p.parent)},
                   {"role", a.role},
                   {"has_cuda", p.has_cuda},
                   {"outside_scope", p.outside_scope},
                   {"first_seen_ns", p.first_seen.value},
                   {"last_seen_ns", p.last_seen.value},
                   {"exited_ns", exited},
                   {"exit_code", OrNull(p.exit_code)},
                   {"calls", a.calls},
                   {"switches",
                    {{"preempted", a.preempted},
                     {"asleep", a.slept},
                     {"yielded", a.yielded}}},
                   {"running_ns", a.running.value},
                   {"kernel_ns", a.kernel.value},
                   {"runnable_ns", a.runnable.value},
                   {"sleeping_ns", a.sleeping.value},
                   {"io_ns", a.io.value},
                   {"average_off_cpu_ns", a.average_off_cpu.value},
                   {"worst_off_cpu_ns", a.worst_off_cpu.value},
                   {"pages", a.pages},
                   {"minor_faults", a.min_faults},
                   {"major_faults", a.maj_faults}});
  }
  return out;
}

Json FeedingOf(const Report& report) {
  Json out = Array();
  for (const analysis::Feeding& f : report.feeding)
    out.push_back({{"process", Identity(report, f.process)},
                   {"device", f.device},
                   {"span_ns", f.span.value},
                   {"idle_at_least_ns", f.idle_at_least.value},
                   {"idle_at_most_ns", f.idle_at_most.value},
                   {"known_busy_ns", f.known_busy.value},
                   {"cold_start_ns", f.cold_start.value},
                   {"host_copy_ns", f.host_copy.value}});
  return out;
}

Json Accounts(const Report& report) {
  Json out = Array();
  for (const analysis::Account& a : report.accounts) {
    Json causes = Array();
    for (const auto& [cause, lost] : a.causes)
      causes.push_back({{"cause", cause}, {"lost_ns", lost.value}});
    Json held = Array();
    for (const auto& [process, time] : a.held_by_ingero)
      held.push_back(
          {{"process", Identity(report, process)}, {"ns", time.value}});
    out.push_back({{"process", Identity(report, a.process)},
                   {"starved_ns", a.starved.value},
                   {"causes", causes},
                   {"below_ns", a.below.value},
                   {"unexplained_ns", a.unexplained.value},
                   {"unseen_ns", a.unseen.value},
                   {"waited_for_ingero_ns", a.waited_for_ingero.value},
                   {"held_by_ingero", held}});
  }
  return out;
}

Json ToJson(const std::vector<analysis::Extra>& list) {
  Json out = Array();
  for (const analysis::Extra& e : list)
    out.push_back({{"part", e.part}, {"time_ns", e.time.value}});
  return out;
}

Json Steps(const Report& report) {
  Json out = Array();
  for (const analysis::StepSummary& s : report.steps) {
    Json slowest = Array();
    for (const analysis::SlowStep& slow : s.slowest)
      slowest.push_back({{"number", slow.number},
                         {"begin_ns", slow.range.begin.value},
                         {"end_ns", slow.range.end.value},
                         {"extra", ToJson(slow.extra)}});
    out.push_back({{"process", Identity(report, s.process)},
                   {"text", s.text},
                   {"call", s.func < report.functions.size()
                                ? report.functions[s.func].name
                                : ""},
                   {"every", s.every},
                   {"submissions", s.submissions},
                   {"count", s.count},
                   {"begin_ns", s.range.begin.value},
                   {"end_ns", s.range.end.value},
                   {"p50_ns", s.p50.value},
                   {"p95_ns", s.p95.value},
                   {"max_ns", s.max.value},
                   {"starved_ns", s.starved.value},
                   {"not_known_ns", s.not_known.value},
                   {"busy_ns", s.busy.value},
                   {"slow", s.slow},
                   {"slow_beyond_ns", s.slow_beyond.value},
                   {"slow_extra", ToJson(s.slow_extra)},
                   {"slowest", slowest}});
  }
  return out;
}

Json Thread(const Report& report, analysis::ThreadIndex index) {
  if (index >= report.threads.size()) return nullptr;
  const analysis::Thread& t = report.threads[index];
  return {{"tid", t.tid},
          {"name", t.name},
          {"process", Identity(report, t.process)}};
}

Json Chains(const Report& report) {
  Json out = Array();
  for (const analysis::Chain& c : report.chains) {
    const analysis::Function& f = report.functions[c.func];
    Json split = nullptr;
    if (c.split_known)
      split = {{"calls", c.calls},
               {"time_ns", c.time.value},
               {"running_ns", c.running.value},
               {"runnable_ns", c.runnable.value},
               {"sleeping_ns", c.sleeping.value},
               {"io_ns", c.io.value},
               {"unknown_ns", c.unknown.value},
               {"holder", Thread(report, c.holder)},
               {"waker", Thread(report, c.waker)}};
    out.push_back({{"process", Identity(report, c.process)},
                   {"call", f.name},
                   {"layer", NameOf(f.layer)},
                   {"severity", Name(c.severity)},
                   {"cause", c.cause.empty() ? Json(nullptr) : Json(c.cause)},
                   {"p50_ns", c.p50.value},
                   {"p99_ns", c.p99.value},
                   {"ratio", Number(c.ratio)},
                   {"split", split},
                   {"text", c.text}});
  }
  return out;
}

Json Operations(const Report& report) {
  Json out = Array();
  for (const analysis::Operation& o : report.operations)
    if (o.func < report.functions.size())
      out.push_back(OperationJson(o, report.functions[o.func],
                                  Identity(report, o.process)));
  return out;
}

Json ToJson(const Report& report, const analysis::Finding& f) {
  Json windows = Array(), timeline = Array(), culprits = Array(),
       evidence = Array(), recommendations = Array();
  for (Interval w : f.windows) windows.push_back(ToJson(w));
  for (const analysis::TimelineLine& t : f.timeline)
    timeline.push_back({{"layer", Name(t.layer)},
                        {"at_ns", (report.window.begin + t.at).value},
                        {"text", t.text}});
  for (const analysis::Culprit& c : f.culprits)
    culprits.push_back({{"pid", c.pid},
                        {"start_ns", c.start.value},
                        {"name", c.name},
                        {"share", Number(c.share)},
                        {"time_ns", c.time.value}});
  for (const analysis::Evidence& e : f.evidence)
    evidence.push_back({{"text", e.text},
                        {"name", e.name},
                        {"value", Number(e.value)},
                        {"unit", e.unit},
                        {"window", ToJson(e.window)},
                        {"query", e.query}});
  Json code = Array();
  for (const analysis::CodeAt& at : f.code)
    code.push_back({{"file", at.file},
                    {"line", at.line == 0 ? Json(nullptr) : Json(at.line)},
                    {"function", at.function},
                    {"samples", at.samples},
                    {"share", Number(at.share)},
                    {"within", at.within}});
  Json native = Array();
  for (const analysis::CodeAt& at : f.native)
    native.push_back({{"file", at.file},
                      {"function", at.function},
                      {"samples", at.samples},
                      {"share", Number(at.share)}});
  for (const analysis::Recommendation& r : f.recommendations)
    recommendations.push_back({{"text", r.text}, {"gain_ns", r.gain.value}});
  return {{"id", f.id},
          {"cause", f.cause},
          {"severity", Name(f.severity)},
          {"claim", f.claim},
          {"pid", f.pid},
          {"lost_ns", f.lost.value},
          {"lost_at_most_ns", f.lost_at_most.value},
          {"windows", windows},
          {"outside_windows_ns", f.outside_windows.value},
          {"timeline", timeline},
          {"culprits", culprits},
          {"evidence", evidence},
          {"recommendations", recommendations},
          {"symptoms", f.symptoms},
          {"code", code},
          {"code_samples", f.code_samples},
          {"native", native},
          {"native_samples", f.native_samples},
          {"confidence", Name(f.confidence)},
          {"coverage", f.coverage}};
}

}  // namespace

const char* NameOf(analysis::Layer layer) {
  switch (layer) {
    case analysis::Layer::kRuntime:
      return "runtime";
    case analysis::Layer::kDriver:
      return "driver";
    case analysis::Layer::kLibrary:
      break;
  }
  return "library";
}

Json OperationJson(const analysis::Operation& o, const analysis::Function& f,
                   Json process) {
  return {{"name", f.name},
          {"layer", NameOf(f.layer)},
          {"process", std::move(process)},
          {"count", o.count},
          {"total_ns", o.total.value},
          {"avg_ns", o.average.value},
          {"p50_ns", o.p50.value},
          {"p95_ns", o.p95.value},
          {"p99_ns", o.p99.value},
          {"max_ns", o.max.value},
          {"first_uses", o.first_uses},
          {"first_use_ns", o.first_use_time.value},
          {"errors", o.errors},
          {"bytes", o.bytes},
          {"wall_share", Number(o.wall_share)}};
}

std::string RenderJson(const Report& report) {
  Json findings = Array(), not_evaluated = Array();
  for (const analysis::Finding& f : report.findings)
    findings.push_back(ToJson(report, f));
  for (const analysis::NotEvaluated& n : report.not_evaluated)
    not_evaluated.push_back({{"cause", n.cause}, {"why", n.why}});
  const Json root = {
      {"schema", {{"name", kSchemaName}, {"version", kSchemaVersion}}},
      {"verdict", report.verdict},
      {"trace", Trace(report)},
      {"processes", Processes(report)},
      {"feeding", FeedingOf(report)},
      {"operations", Operations(report)},
      {"findings", findings},
      {"accounts", Accounts(report)},
      {"steps", Steps(report)},
      {"chains", Chains(report)},
      {"not_evaluated", not_evaluated}};
  // Bytes that are not UTF-8 become U+FFFD.
  return root.dump(2, ' ', /*ensure_ascii=*/true,
                   Json::error_handler_t::replace) +
         "\n";
}

}  // namespace ingero::cli
