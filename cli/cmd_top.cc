// SPDX-License-Identifier: Apache-2.0
// The live view: what is being recorded, looked at once a second.
//
// Two sources. What must be fresh is read as it is: calls and losses from the
// live streams, CPU time from /proc. What needs both sides on one clock (how
// the GPU is fed, why not, which calls are slow) comes from merging into a
// store of our own again and again, as `ingero merge --follow` does, in a child
// that can be ended at any time; its age is shown.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <map>
#include <optional>

#include "base/text.h"
#include "base/trace_dir.h"
#include "cli/command.h"
#include "cli/cpu_use.h"
#include "cli/live_calls.h"
#include "cli/options.h"
#include "cli/program.h"
#include "cli/render/layout.h"
#include "cli/render/words.h"
#include "cli/screen.h"
#include "cli/signals.h"
#include "merge/merge.h"
#include "merge/trace_reader.h"

namespace ingero::cli {
namespace {

constexpr const char* kHelp =
    "Show live how the GPU is fed while ingero-kprobe and programs with the "
    "shim\n"
    "record: calls, losses, starved time and its causes, the operations that "
    "take\n"
    "most, and who holds the CPUs. Looks once a second; q or Ctrl-C ends it, "
    "and\n"
    "nothing of the recording. Where standard output is no terminal it prints "
    "one\n"
    "look as text.\n";

constexpr const char* kExamples =
    "Examples:\n"
    "  ingero top\n"
    "  ingero top --once | tee now.txt\n"
    "  sudo ingero top --dir /var/lib/ingero      of the service";

constexpr Ns kLook = kSecond;
constexpr Ns kWindow = kSecond * 10;  // that "now" means
// As in 'ingero merge --follow': at most a fifth of the time, after others.
constexpr Ns kLeastBetweenMerges = kSecond;
constexpr int kBetweenPerMerge = 4;
constexpr int kMergeNice = 10;
constexpr int kLookForMergeMs = 20;
constexpr char kCtrlD = 4;
constexpr size_t kOperations = 8, kUsers = 8, kCauses = 3, kDevices = 8;

Ns Now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return Ns(int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec);
}

// The newest recording that somebody is writing, if one is.
std::optional<merge::Recording> Live(const std::vector<std::string>& dirs,
                                     std::vector<std::string>* problems) {
  const auto recordings = merge::ListRecordings(dirs, problems);
  for (auto r = recordings.rbegin(); r != recordings.rend(); ++r)
    for (const merge::StreamInfo& s : r->streams)
      if (s.live) return *r;
  return std::nullopt;
}

std::string FolderOf(const merge::Recording& recording,
                     const std::vector<std::string>& dirs) {
  for (const merge::StreamInfo& s : recording.streams)
    if (s.cuda()) return s.path.substr(0, s.path.rfind('/'));
  return dirs[0];
}

// ---- what merging tells
// ---------------------------------------------------------

struct Judged {
  Ns until;  // what was recorded later is not in it
  analysis::Report all, now;
};

Result<Judged> Judge(const std::string& store) {
  INGERO_ASSIGN_OR_RETURN(auto trace, merge::OpenTrace(store));
  Judged judged;
  const Interval span = trace->span();
  judged.until = span.end;
  judged.all = analysis::BuildReport(*trace, {});
  analysis::ReportOptions now;
  now.window = Interval{std::max(span.begin, span.end - kWindow), span.end};
  judged.now = analysis::BuildReport(*trace, now);
  INGERO_RETURN_IF_ERROR(trace->AllRead());
  return judged;
}

// Merges a recording over and over into a folder of its own.
class Merger {
 public:
  Merger(std::vector<std::string> dirs, std::string folder, int nice,
         const sigset_t* signal_mask)
      : dirs_(std::move(dirs)),
        folder_(std::move(folder)),
        nice_(nice),
        signal_mask_(signal_mask) {}
  ~Merger() {
    if (child_ > 0) {
      kill(child_, SIGTERM);
      WaitForProgram(child_);
    }
  }
  Merger(const Merger&) = delete;
  Merger& operator=(const Merger&) = delete;

  bool due(Ns now) const { return child_ < 0 && now >= due_; }
  Status Start(const std::string& recording, Ns now);
  // The outcome of a merge that has ended since the last call.
  std::optional<Status> Take();
  const std::optional<Judged>& judged() const { return judged_; }

 private:
  std::string store() const { return folder_ + "/top.store"; }

  const std::vector<std::string> dirs_;  // empty: the default
  const std::string folder_;
  const int nice_;
  const sigset_t* signal_mask_;
  pid_t child_ = -1;
  Ns began_, due_;
  std::optional<Judged> judged_;
};

Status Merger::Start(const std::string& recording, Ns now) {
  INGERO_ASSIGN_OR_RETURN(
      const Fd said,
      OpenFile(folder_ + "/said", O_WRONLY | O_CREAT | O_TRUNC, 0600));
  std::vector<std::string> argv = {OwnFolder() + "/ingero",
                                   "merge",
                                   "--recording",
                                   recording,
                                   "-o",
                                   store()};
  for (const std::string& dir : dirs_) argv.insert(argv.end(), {"--dir", dir});
  StartOptions start;
  start.out = start.err = said.get();
  start.own_group = true;  // its end is ours to say
  start.signal_mask = signal_mask_;
  INGERO_ASSIGN_OR_RETURN(child_, StartProgram(argv, start));
  (void)setpriority(PRIO_PROCESS, static_cast<id_t>(child_), nice_);
  began_ = now;
  return {};
}

std::optional<Status> Merger::Take() {
  int ended = 0;
  if (child_ < 0 || waitpid(child_, &ended, WNOHANG) != child_)
    return std::nullopt;
  child_ = -1;
  const Ns now = Now();
  due_ = now + std::max(kLeastBetweenMerges, (now - began_) * kBetweenPerMerge);
  if (ExitStatusOf(ended) != 0) {
    const auto said = ReadWholeFile(folder_ + "/said");
    std::string why = said.ok() ? std::string(TrimWhitespace(*said)) : "";
    why = why.substr(why.rfind('\n') + 1);
    return Status::Error(why.empty() ? "merging ended with status " +
                                           std::to_string(ExitStatusOf(ended))
                                     : why);
  }
  auto judged = Judge(store());
  if (!judged.ok()) return judged.status();
  judged_ = std::move(*judged);
  return Status();
}

// ---- the view
// -------------------------------------------------------------------

class View {
 public:
  View(merge::Recording recording, const std::vector<std::string>& dirs)
      : recording_(std::move(recording)),
        calls_(FolderOf(recording_, dirs)),
        folder_(FolderOf(recording_, dirs)) {}

  void Follow(merge::Recording recording) { recording_ = std::move(recording); }
  const std::string& id() const { return recording_.id; }
  // Takes the figures of the time since the last look.
  void Look(Ns now);
  std::string Text(const Merger& merger, const std::string& problem, Ns now,
                   int columns, bool color) const;

 private:
  void AddLive(Page* page) const;
  void AddLosses(const Judged* judged, Page* page) const;
  void AddFeeding(const Judged& judged, Page* page) const;
  void AddCauses(const Judged& judged, Page* page) const;
  void AddOperations(const Judged& judged, Page* page) const;
  void AddUsers(Page* page) const;
  std::string WhatIs(const CpuUser& user) const;  // ", recorded"; "" = nothing

  merge::Recording recording_;
  LiveCalls calls_;
  const std::string folder_;
  CpuUse cpu_use_;
  std::vector<CpuUser> users_;
  Ns looked_;
  uint64_t calls_before_ = 0;
  std::optional<double> calls_per_second_;
};

void View::Look(Ns now) {
  calls_.Look();
  if (looked_ > Ns{0})
    calls_per_second_ = static_cast<double>(calls_.calls() - calls_before_) *
                        1e9 / static_cast<double>((now - looked_).value);
  calls_before_ = calls_.calls();
  users_ = cpu_use_.Look(now);
  looked_ = now;
}

void View::AddLive(Page* page) const {
  bool kernel = false;
  size_t programs = 0;
  Ns begin(INT64_MAX);
  for (const merge::StreamInfo& s : recording_.streams) {
    begin = std::min(begin, s.span.begin);
    kernel |= s.kernel && s.live;
    programs += s.cuda() && s.live;
  }
  page->Labeled(
      "recording",
      fmt::format("{} in {}, for {}: {}; scheduler {}", recording_.id,
                  SanitizeForTerminal(folder_), FormatDuration(looked_ - begin),
                  programs == 0
                      ? "no program with CUDA calls yet "
                        "(LD_PRELOAD=libingero_cuda.so python3 train.py)"
                      : FormatCounted(programs, "process with CUDA calls",
                                      "processes with CUDA calls"),
                  kernel ? "too"
                         : "not recorded, so causes are not known (sudo "
                           "ingero-kprobe)"),
      0, 11, 0, false);
  if (calls_per_second_)
    page->Labeled(
        "calls",
        FormatCount(static_cast<uint64_t>(*calls_per_second_)) + " a second", 0,
        11);
}

void View::AddLosses(const Judged* judged, Page* page) const {
  std::map<std::string, uint64_t> lost;
  if (judged != nullptr)
    for (const analysis::Loss& loss : judged->all.losses)
      if (loss.severity == 2) lost[loss.id] += loss.count;
  std::string text;
  for (const auto& [kind, count] : lost)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", FormatCount(count),
                        kind);
  // Those that have come since the last merge.
  if (lost.empty() && calls_.lost() > 0)
    text = FormatCounted(calls_.lost(), "call", "calls");
  page->Labeled("lost", text.empty() ? "nothing" : Toned(Tone::kRed, text), 0,
                11);
}

std::string ProcessName(const analysis::Report& report,
                        analysis::ProcessIndex process) {
  const analysis::Process& p = report.processes[process];
  return fmt::format("{}/{}", SanitizeForTerminal(p.name), p.pid);
}

// Without cold start, as explain has it: "61 % to 64 %".
std::string Starved(const analysis::Feeding& f) {
  const Ns span = f.span - f.cold_start;
  if (span <= Ns{0}) return "-";
  const std::string least = FormatPercent(f.idle_at_least - f.cold_start, span),
                    most = FormatPercent(f.idle_at_most - f.cold_start, span);
  return least == most ? least : least + " to " + most;
}

void View::AddFeeding(const Judged& judged, Page* page) const {
  page->Heading("GPU starved");
  Table table;
  table.header = {"Process, GPU", "last " + FormatDuration(kWindow), "so far"};
  size_t left_out = 0;
  for (const analysis::Feeding& f : judged.all.feeding) {
    if (f.process == analysis::kNone) continue;
    if (table.rows.size() == kDevices) {
      ++left_out;
      continue;
    }
    std::string now = "-";
    for (const analysis::Feeding& n : judged.now.feeding)
      if (n.process == f.process && n.device == f.device) now = Starved(n);
    table.rows.push_back(
        {fmt::format("{}, {}", ProcessName(judged.all, f.process), f.device),
         now, Starved(f)});
  }
  if (table.rows.empty())
    page->Paragraph("no process has used a GPU yet", 2);
  else
    page->Add(table, 2);
  if (left_out > 0)
    page->Paragraph(fmt::format("and {} more", FormatCount(left_out)), 2);
}

void View::AddCauses(const Judged& judged, Page* page) const {
  page->Heading("Why, in the last " + FormatDuration(kWindow));
  size_t shown = 0;
  for (const analysis::Finding& f : judged.now.findings) {
    if (f.context || f.lost_at_most <= Ns{0} || shown == kCauses) continue;
    ++shown;
    page->Paragraph(SanitizeForTerminal(f.claim), 2, 2);
  }
  if (shown == 0) page->Paragraph("no cause is known", 2);
}

void View::AddOperations(const Judged& judged, Page* page) const {
  Table table;
  table.header = {"Call", "of the time", "calls", "average", "p99", "longest"};
  for (const analysis::Operation& o : judged.now.operations) {
    // Not those within another call, which has their time.
    if (o.count == 0 || o.wall_share <= 0) continue;
    if (table.rows.size() == kOperations) break;
    table.rows.push_back(
        {SanitizeForTerminal(judged.now.functions[o.func].name),
         FormatPercent(o.wall_share), FormatCount(o.count),
         FormatDuration(o.average), Percentile(o.p99, o.count, kLeastForP99),
         FormatDuration(o.max)});
  }
  if (table.rows.empty()) return;
  page->Heading("Operations that took most, in the last " +
                FormatDuration(kWindow));
  page->Add(table, 2);
}

std::string View::WhatIs(const CpuUser& user) const {
  const auto recorded = [&](uint32_t pid) {
    return std::any_of(recording_.streams.begin(), recording_.streams.end(),
                       [&](const merge::StreamInfo& s) {
                         return s.cuda() && s.live && s.pid == pid;
                       });
  };
  if (recorded(user.pid)) return ", recorded";
  if (user.comm.starts_with("ingero")) return ", ingero's own";
  uint32_t above = user.parent_pid;
  for (int depth = 0; depth < 64 && above > 1; ++depth) {
    if (recorded(above)) return fmt::format(", child of {}", above);
    above = cpu_use_.ParentOf(above);
  }
  return "";
}

void View::AddUsers(Page* page) const {
  if (!calls_per_second_) return;
  page->Heading("Who has the CPUs");
  Table table;
  table.header = {"Process", "CPUs"};
  for (const CpuUser& user : users_) {
    if (table.rows.size() == kUsers) break;
    table.rows.push_back({fmt::format("{}/{}{}", SanitizeForTerminal(user.comm),
                                      user.pid, WhatIs(user)),
                          fmt::format("{:.2f}", user.cpus)});
  }
  if (table.rows.empty())
    page->Paragraph("nobody", 2);
  else
    page->Add(table, 2);
}

std::string View::Text(const Merger& merger, const std::string& problem, Ns now,
                       int columns, bool color) const {
  Page page(columns, color);
  const Judged* judged = merger.judged() ? &*merger.judged() : nullptr;
  AddLive(&page);
  AddLosses(judged, &page);
  if (!problem.empty())
    page.Labeled(Toned(Tone::kYellow, "problem"), SanitizeForTerminal(problem),
                 0, 11);
  page.Labeled(
      "judged",
      judged == nullptr
          ? "not yet: merging"
          : fmt::format("what was recorded until {} ago",
                        FormatDuration(std::max(now - judged->until, Ns{0}))),
      0, 11);
  if (judged != nullptr) {
    page.Blank();
    AddFeeding(*judged, &page);
    page.Blank();
    AddCauses(*judged, &page);
    page.Blank();
    AddOperations(*judged, &page);
  }
  page.Blank();
  AddUsers(&page);
  return page.text();
}

// ---- the command
// ----------------------------------------------------------------

// How it ended: by a signal, if its number is not 0; else with this status.
struct Ended {
  int signal = 0;
  ExitStatus status = kDone;
  bool recording_over = false;
};

// One look, at what one second and one merge tell.
Ended Once(View* view, Merger* merger, const Signals& signals, const Io& io) {
  const Ns begin = Now();
  view->Look(begin);
  std::optional<Status> merged;
  if (Status started = merger->Start(view->id(), begin); !started.ok())
    merged = started;
  while (!merged || (merged->ok() && Now() - begin < kLook)) {
    pollfd fd{signals.fd(), POLLIN, 0};
    (void)poll(&fd, 1, kLookForMergeMs);
    if (const auto info = signals.Next())
      return {static_cast<int>(info->ssi_signo), kFailed};
    if (!merged) merged = merger->Take();
  }
  if (!merged->ok()) {
    PrintError(io, "top", merged->message());
    return {0, kFailed};
  }
  view->Look(Now());
  Write(io.out, view->Text(*merger, "", Now(), io.columns,
                           io.out_is_terminal && !io.no_color));
  return {0, FinishOutput(io, "top") ? kDone : kFailed};
}

struct Options {
  std::vector<std::string> dirs;
  bool once = false;
};

// Until q, a signal, or nobody records.
Ended Watch(const std::vector<std::string>& dirs, View* view, Merger* merger,
            const Signals& signals, const Io& io) {
  Screen screen;
  std::string problem;
  Ns look_at = Now();
  while (true) {
    const Ns now = Now();
    if (now >= look_at) {
      if (const auto taken = merger->Take())
        problem = taken->ok() ? "" : taken->message();
      if (merger->due(now)) {
        const auto live = Live(dirs, nullptr);
        if (!live) return {0, kDone, true};
        view->Follow(*live);
        if (Status started = merger->Start(live->id, now); !started.ok())
          problem = started.message();
      }
      view->Look(now);
      const int columns = std::clamp(Screen::Columns(), 40, 200);
      screen.Draw(view->Text(*merger, problem, now, columns, !io.no_color));
      look_at = std::max(look_at + kLook, now);
    }
    pollfd fds[] = {{signals.fd(), POLLIN, 0},
                    {screen.has_keys() ? STDIN_FILENO : -1, POLLIN, 0}};
    const Ns wait = std::max(look_at - Now(), Ns{0});
    if (poll(fds, 2, static_cast<int>(wait.value / 1'000'000) + 1) <= 0)
      continue;
    while (const auto info = signals.Next()) {
      const int number = static_cast<int>(info->ssi_signo);
      if (number == SIGWINCH) {
        look_at = Now();
      } else if (number == SIGTSTP) {
        screen.Leave();
        raise(SIGSTOP);
        screen.Enter();
        look_at = Now();
      } else {
        return {number == SIGINT ? 0 : number};
      }
    }
    char key = 0;
    if (fds[1].revents != 0 && read(STDIN_FILENO, &key, 1) <= 0)
      return {SIGHUP};
    if (key == 'q' || key == 'Q' || key == kCtrlD) return {};
  }
}

}  // namespace

int RunTop(const Args& args, const Io& io) {
  Options o;
  CLI::App app(kHelp, "ingero top");
  app.footer(kExamples);
  app.add_option("--dir", o.dirs,
                 "Folder with streams; may be given more than once.\n"
                 "Default: where the recorders write ($INGERO_DIR)")
      ->type_name("DIR")
      ->allow_extra_args(false);
  app.add_flag("--once", o.once, "Print one look as text, and end");
  if (auto status = Parse(app, args, io)) return *status;
  if (auto status = RequireFolders(o.dirs, "top", io)) return *status;
  const std::vector<std::string> dirs =
      o.dirs.empty() ? DefaultTraceDirs() : o.dirs;
  std::vector<std::string> problems;
  auto live = Live(dirs, &problems);
  if (!live) {
    PrintError(
        io, "top",
        problems.empty()
            ? fmt::format(
                  "nobody records into {} now; start 'sudo ingero-kprobe' "
                  "and 'LD_PRELOAD=libingero_cuda.so python3 train.py', "
                  "or both at once: 'ingero run python3 train.py'",
                  fmt::join(dirs, ", "))
            : problems[0]);
    return kFailed;
  }
  auto folder = NewFolder("ingero-top");
  if (!folder.ok()) {
    PrintError(io, "top", folder.status().message());
    return kFailed;
  }
  // Where it is ignored, nobody would tell us of a merge's end.
  std::signal(SIGCHLD, SIG_DFL);
  View view(std::move(*live), dirs);
  Ended how;
  if (o.once || !io.out_is_terminal) {
    Signals signals({SIGINT, SIGTERM, SIGHUP, SIGQUIT});
    Merger merger(o.dirs, folder->path(), 0, &signals.before());
    how = Once(&view, &merger, signals, io);
  } else {
    Signals signals({SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGWINCH});
    Merger merger(o.dirs, folder->path(), kMergeNice, &signals.before());
    how = Watch(dirs, &view, &merger, signals, io);
  }
  if (how.recording_over)
    PrintError(io, "top",
               "nobody records any more; 'ingero merge && ingero explain' has "
               "the answer");
  if (how.signal != 0) {
    *folder = {};  // removed
    std::signal(how.signal, SIG_DFL);
    raise(how.signal);
  }
  return how.status;
}

}  // namespace ingero::cli
