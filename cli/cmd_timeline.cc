// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <csignal>

#include "analysis/syscalls.h"
#include "base/text.h"
#include "cli/asked.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/render/json.h"
#include "cli/render/layout.h"
#include "cli/render/words.h"
#include "cli/timeline.h"
#include "query/store_tables.h"

namespace ingero::cli {
namespace {

using analysis::kNone;
using analysis::ThreadState;

constexpr const char* kHelp =
    "Print what one thread did, in order of time: running, waiting for a CPU and\n"
    "who had it, asleep in which system call and who woke it, and its CUDA calls\n"
    "with what their time was spent on.\n";

constexpr const char* kExamples =
    "Examples:\n"
    "  ingero timeline --pid 4242 --from 12.5s --to 12.6s    its main thread\n"
    "  ingero timeline --tid 4250 --since 100ms\n"
    "  ingero timeline --pid 4242 --from 22:01:30 --json     for scripts\n"
    "\n"
    "Times: offsets from the recording's start, or by the clock on the wall.";

constexpr size_t kLines = 100;  // shown without --all
// What is narrower has the time of day in lines of its own.
constexpr int kBothTimesColumns = 72;

std::atomic<bool> g_interrupted{false};
void OnInterrupt(int) { g_interrupted = true; }

class Writer {
 public:
  Writer(const merge::TraceReader& trace, const Timeline& timeline, int columns)
      : trace_(trace),
        timeline_(timeline),
        columns_(columns),
        origin_(trace.span().begin),
        real_(trace.facts().wall_clock_at_span_begin_ns) {}

  std::string Text(bool all) {
    const std::vector<TimelineEntry> order = InOrder(timeline_);
    const size_t shown = all ? order.size() : std::min(order.size(), kLines);
    for (size_t i = 0; i < shown; ++i)
      order[i].is_call ? Add(timeline_.calls[order[i].index])
                       : Add(timeline_.stretches[order[i].index]);
    if (shown < order.size())
      Paragraph(fmt::format(
          "and {} more up to {}; --all shows them, --from and --to ask for less",
          FormatCount(order.size() - shown), Offset(timeline_.window.end)));
    return std::move(text_);
  }

 private:
  std::string Offset(Ns t) const {
    return fmt::format("+{:.6f} s",
                       static_cast<double>((t - origin_).value) / 1e9);
  }
  std::string TimeOfDay(Ns t, bool fraction) const {
    if (real_ == 0) return "";
    const int64_t real = real_ + (t - origin_).value;
    std::string text = FormatTimeOfDay(real);
    if (fraction) text += fmt::format(".{:03}", real / 1'000'000 % 1000);
    return text;
  }
  std::string Who(analysis::ThreadIndex thread) const {
    if (thread >= trace_.threads().size()) return "";
    const analysis::Thread& t = trace_.threads()[thread];
    const std::string name = SanitizeForTerminal(t.name, 64);
    const uint32_t pid = trace_.processes()[t.process].pid;
    return t.tid == pid ? fmt::format("{}/{}", name, pid)
                        : fmt::format("{}/{}/{}", name, pid, t.tid);
  }
  void Paragraph(const std::string& text) {
    for (const std::string& line : Wrap(text, columns_)) text_ += line + "\n";
  }
  void Line(Ns t, Ns duration, const std::string& what, int depth) {
    const bool both = columns_ >= kBothTimesColumns;
    std::string head = fmt::format("{:>15}", Offset(t));
    if (real_ != 0 && both) head += "  " + TimeOfDay(t, true);
    if (real_ != 0 && !both && TimeOfDay(t, false) != second_) {
      second_ = TimeOfDay(t, false);
      text_ += second_ + "\n";
    }
    head += fmt::format("  {:>8}  ", FormatDuration(duration));
    head += std::string(static_cast<size_t>(2 * std::min(depth, 4)), ' ');
    const auto left = static_cast<int>(head.size());
    // What does not fit beside the times goes below them.
    const int room = columns_ - left;
    if (room < 24) {
      text_ += head.substr(0, head.find_last_not_of(' ') + 1) + "\n";
      for (const std::string& line : Wrap(what, columns_ - 4))
        text_ += "    " + line + "\n";
      return;
    }
    bool first = true;
    for (const std::string& line : Wrap(what, room)) {
      text_ += (first ? head : std::string(static_cast<size_t>(left), ' ')) +
               line + "\n";
      first = false;
    }
  }

  void Add(const Stretch& s) {
    const analysis::Segment& g = s.segment;
    const std::string call =
        g.syscall < 0 ? "" : " in " + analysis::SyscallName(g.syscall);
    std::string what;
    switch (g.state) {
      case ThreadState::kRunning:
        what = fmt::format("runs on CPU {}", g.cpu);
        if (g.pages > 0)
          what += ", " + FormatCounted(g.pages, "new page", "new pages");
        break;
      case ThreadState::kRunnable: {
        what = fmt::format("waits for CPU {}", g.cpu);
        std::string held;
        size_t named = 0;
        for (const auto& [who, time] : s.holders)
          if (who != kNone && named++ < 2)
            held += fmt::format("{}{} for {}", held.empty() ? "" : ", ",
                                Who(who), FormatDuration(time));
        if (!held.empty()) what += ", held by " + held;
        if (g.throttled > Ns(0))
          what += fmt::format(", of it {} without CPU quota",
                              FormatDuration(g.throttled));
        break;
      }
      case ThreadState::kSleeping:
        what = "sleeps" + call;
        break;
      case ThreadState::kDisk:
        what = "waits for a disk" + call;
        break;
      case ThreadState::kBlocked:
        what = "blocked" + call;
        break;
      case ThreadState::kStopped:
        what = "stopped";
        break;
      case ThreadState::kDead:
        what = "ended";
        break;
      case ThreadState::kUnknown:
        what = "not recorded";
        break;
    }
    if (g.state == ThreadState::kSleeping || g.state == ThreadState::kDisk ||
        g.state == ThreadState::kBlocked) {
      if (g.waker != kNone)
        what += "; woken by " + Who(g.waker);
      else if (g.woken_by_irq)
        what += "; woken by an interrupt";
    }
    Line(g.begin, g.end - g.begin, what, 0);
  }

  void Add(const TimelineCall& c) {
    const analysis::Function& f = trace_.functions()[c.call.func];
    std::string what = SanitizeForTerminal(f.name, 128);
    if (f.call_class == analysis::CallClass::kLaunch)
      if (const std::string& kernel = trace_.KernelName(
              trace_.threads()[timeline_.thread].process, c.call.object);
          !kernel.empty())
        what += " " + Ellipsize(SanitizeForTerminal(kernel), 40);
    if (c.call.bytes > 0) what += ", " + FormatBytes(c.call.bytes);
    if (c.call.result != 0) what += fmt::format(", status {}", c.call.result);
    if (c.call.no_end) what += ", had not returned";
    if (c.split) {
      std::string parts;
      const auto part = [&](Ns time, const char* how) {
        if (time <= Ns(0)) return;
        parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", how,
                             FormatDuration(time));
      };
      part(c.split->running, "ran");
      part(c.split->runnable, "waited for a CPU");
      part(c.split->sleeping, "slept");
      part(c.split->io, "waited for a disk");
      part(c.split->unknown, "not recorded");
      if (!parts.empty()) what += ": " + parts;
    }
    Line(c.call.begin, c.call.end - c.call.begin, what, c.call.depth + 1);
  }

  const merge::TraceReader& trace_;
  const Timeline& timeline_;
  const int columns_;
  const Ns origin_;
  const int64_t real_;
  std::string text_, second_;
};

std::string Summary(const merge::TraceReader& trace, const Timeline& t) {
  const analysis::Thread& thread = trace.threads()[t.thread];
  const analysis::Process& process = trace.processes()[thread.process];
  std::string text = fmt::format(
      "{} (thread {} of {}/{}), {} from {} on: ",
      SanitizeForTerminal(thread.name, 64), thread.tid,
      SanitizeForTerminal(process.name, 64), process.pid,
      FormatDuration(t.window.length()),
      FormatOffset(t.window.begin - trace.span().begin));
  const Json sums = TimelineSums(t);
  std::string parts;
  for (const auto& [state, time] : sums.items())
    parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ",
                         state.substr(0, state.size() - 3),
                         FormatDuration(Ns(time.get<int64_t>())));
  text += parts.empty() ? "its states were not recorded" : parts;
  return text + "; " + FormatCounted(t.calls.size(), "call", "calls");
}

}  // namespace

int RunTimeline(const Args& args, const Io& io) {
  AskedOptions asked;
  std::string tid_text;
  bool json = false, all = false;
  CLI::App app(kHelp, "ingero timeline");
  app.footer(kExamples);
  asked.AddTo(&app, "Its main thread; with --tid: whose thread it is");
  app.add_option("--tid", tid_text, "This thread")->type_name("TID");
  app.add_flag("--json", json, "Print everything as JSON, for programs");
  app.add_flag("--all", all, "Show every line");
  if (auto status = Parse(app, args, io)) return *status;
  uint32_t tid = 0;
  if (!tid_text.empty()) {
    const char* end = tid_text.data() + tid_text.size();
    const auto [at, error] = std::from_chars(tid_text.data(), end, tid);
    if (error != std::errc() || at != end || tid == 0)
      return UsageError(io, "timeline",
                        fmt::format("--tid: '{}' is not a thread id; give a "
                                    "number, for example --tid 4250",
                                    tid_text));
  }
  if (auto status = asked.Check("timeline", io)) return *status;
  if (tid == 0 && !asked.names_pid())
    return UsageError(io, "timeline",
                      "say which thread: --tid, or --pid for its main thread");

  const auto fail = [&](const Status& status) {
    PrintError(io, "timeline", status.message());
    return kFailed;
  };
  auto opened = asked.Open("timeline", io);
  if (!opened.ok()) return fail(opened.status());
  const merge::TraceReader& trace = *opened->trace;
  auto thread = FindThread(trace, tid, opened->options.pid.value_or(0),
                           opened->window);
  if (!thread.ok()) return fail(thread.status());
  g_interrupted = false;
  struct sigaction action{}, before{};
  action.sa_handler = OnInterrupt;
  sigaction(SIGINT, &action, &before);
  Progress progress(io);
  auto timeline =
      BuildTimeline(trace, *thread, opened->window, [&](double done) {
        progress.Update("reading", done, 0);
        return !g_interrupted;
      });
  progress.Finish();
  sigaction(SIGINT, &before, nullptr);
  if (!timeline.ok()) {
    fail(timeline.status());
    return g_interrupted ? 128 + SIGINT : kFailed;
  }
  const std::vector<std::string> missing = trace.facts().missing;
  if (Status read = trace.AllRead(); !read.ok()) return fail(read);

  if (json) {
    Json out = {{"schema", {{"name", "ingero.timeline"}, {"version", 1}}},
                {"store", asked.db()},
                {"thread", TimelineThread(trace, *timeline)},
                {"window",
                 {{"begin_ns", timeline->window.begin.value},
                  {"end_ns", timeline->window.end.value}}},
                {"scheduling_known", timeline->scheduling_known},
                {"states", TimelineSums(*timeline)},
                {"missing", missing}};
    out["events"] = TimelineEvents(trace, *timeline);
    Write(io.out,
          out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  } else {
    for (const std::string& line :
         Wrap(Summary(trace, *timeline), io.columns))
      Write(io.out, line + "\n");
    Write(io.out, "\n" + Writer(trace, *timeline, io.columns).Text(all));
    if (!timeline->scheduling_known)
      for (const std::string& m : trace.facts().missing)
        for (const std::string& line :
             Wrap(SanitizeForTerminal(m), io.columns))
          Write(io.out, line + "\n");
  }
  return FinishOutput(io, "timeline") ? kDone : kFailed;
}

}  // namespace ingero::cli
