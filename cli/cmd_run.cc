// SPDX-License-Identifier: Apache-2.0
// Records with both recorders around a command (run) or a time (trace), merges
// and explains.
//
// The command gets its standard streams, process group, signal mask and
// environment as if it had been started without us, but for LD_PRELOAD and
// INGERO_*. Ours goes to stderr.
#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "base/file_error.h"
#include "base/ring_size.h"
#include "base/shell_word.h"
#include "base/stream_header.h"
#include "base/task_stat.h"
#include "base/text.h"
#include "base/trace_dir.h"
#include "cli/command.h"
#include "cli/companion.h"
#include "cli/group_witness.h"
#include "cli/live_calls.h"
#include "cli/merging.h"
#include "cli/options.h"
#include "cli/process_watch.h"
#include "cli/program.h"
#include "cli/recorded_processes.h"
#include "cli/recording.h"
#include "cli/render/layout.h"
#include "cli/render/words.h"
#include "cli/signals.h"
#include "cli/stop.h"
#include "cli/time_window.h"
#include "code_sampler/sampler.h"
#include "merge/coverage.h"
#include "merge/store_output.h"
#include "merge/trace_reader.h"
#include "wire/wire.h"

namespace ingero::cli {
namespace {

constexpr const char* kRunHelp =
    "Record a program from both sides (its CUDA calls, and the scheduler as root\n"
    "or through sudo), then merge and say why the GPU was starved. The program\n"
    "runs as without us; its children are recorded with it. All that ingero says\n"
    "goes to stderr.\n";

constexpr const char* kRunExamples =
    "Examples:\n"
    "  ingero run python3 train.py --epochs 1\n"
    "  ingero run torchrun --nproc-per-node 4 train.py\n"
    "  ingero run -o 1.store -- ./server     then: ingero explain --db 1.store\n"
    "  ingero run --cuda-only python3 train.py                 without root\n"
    "  ingero run --where python3 train.py    names lines: at train.py:214\n"
    "  ingero run --quiet make bench && ingero explain --json\n"
    "\n"
    "Ctrl-C and SIGTERM end the program, not the recording of it. Exit status:\n"
    "the program's (128 + signal where one ended it); 126 it cannot be run,\n"
    "127 it is not there, 2 wrong usage, 1 nothing can be recorded.";

constexpr const char* kTraceHelp =
    "Record the scheduler for a time or until Ctrl-C, then merge and explain.\n"
    "Programs that run with LD_PRELOAD=libingero_cuda.so write their calls to the\n"
    "same folder, and are in it. Needs root, or sudo.\n";

constexpr const char* kTraceExamples =
    "Examples:\n"
    "  sudo ingero trace --duration 60s\n"
    "  ingero trace --duration 5m --pid 4242    until 4242 ends, at most 5 min;\n"
    "                                           explains that one\n"
    "  ingero trace                             until Ctrl-C";

constexpr const char* kWithout =
    "only CUDA calls are recorded, so who held the CPUs and why threads slept "
    "will not be known: ";

// Whether there were any, nobody can tell.
constexpr const char* kPerhaps =
    "CUDA calls, if any were made, could not be recorded: ";

// What one thread of a program needs first.
constexpr off_t kLeastBytes = 2 * INGERO_BLOCK_BYTES;
constexpr Ns kLook = kMillisecond * 250;
// At all processes of the host.
constexpr Ns kLookAtAll = kSecond;
// Where the program speaks on the same terminal, whole lines now and then.
constexpr Ns kLineInPlace = kSecond, kLineBetween = kSecond * 10;
// An ingero-kprobe of somebody else writes what it has twice a second.
constexpr Ns kOthersFlush = kSecond;
constexpr size_t kNamesShown = 8;
constexpr int kNotFound = 127, kNotRunnable = 126;  // as a shell has it

Ns Now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return Ns(int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec);
}

// ---- signals ------------------------------------------------------------------

// Those that ask a program to end or do something, as a batch system sends
// them. Read from a descriptor while the program runs.
constexpr std::initializer_list<int> kForwarded = {
    SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD};

// ---- one recording --------------------------------------------------------------

class Session {
 public:
  Session(const RecordingOptions& options, const Io& io)
      : options_(options), io_(io), begin_(Now()), calls_(options.dir) {}

  // Says why not, where the kernel side can't be recorded.
  bool StartKernelSide();
  // Until the program, the time or the process has ended. The exit status.
  int Record(const std::string& shim);
  // False: there is no store.
  bool MergeAndExplain();
  // The program was not even begun: nothing to merge, nor to explain.
  bool not_started() const { return not_started_; }
  void StopKernelSide();
  const std::string& store() const { return store_; }

 private:
  void Say(const std::string& line) const {
    PrintError(io_, options_.command, line);
  }
  // The program's exit status, once there is one.
  std::optional<int> OnSignal(const signalfd_siginfo& info);
  void StartSampler();
  void WatchCode(Ns now);
  void StopSampler();
  void ShowLine(Ns now);
  // Until EndLine(), on a terminal.
  void ShowInPlace(const std::string& text);
  void EndLine();
  void PrintProcesses(const merge::TraceReader& trace) const;
  // Why what the shim in a process saw could not be written; "" = it could.
  std::string WhyNotWritten(const WatchedProcess& p) const;
  // For the store: what could not be, or that no CUDA call was seen.
  std::string Unrecorded(const merge::Recording* recording) const;
  // Whether a CUDA stream is none of the program's.
  bool Foreign(const merge::StoredStream& stream) const;
  // Ours, and what streams say, by their ids (0: of no run).
  uint64_t run_id_ = 0;
  std::map<uint64_t, uint64_t> run_of_stream_;
  // Of the program, that go on when it has ended: "NAME/PID", PID.
  std::vector<std::pair<std::string, uint32_t>> still_writing_;
  std::string no_room_;  // why the trace folder takes no more, "" = it does

  const RecordingOptions& options_;
  const Io& io_;
  Ns begin_, end_;
  std::string store_;
  std::optional<Companion> companion_;
  bool kernel_by_others_ = false;
  LiveCalls calls_;
  std::optional<ProcessWatch> watch_;
  std::unique_ptr<code_sampler::Sampler> sampler_;
  Ns watch_code_at_;
  pid_t child_ = -1;
  std::optional<GroupWitness> witness_;  // while there is a child
  bool told_to_end_ = false, not_started_ = false;
  // Of the live line.
  Ns line_at_;
  bool line_shown_ = false;
  uint64_t shown_calls_ = 0, shown_switches_ = 0;
};

bool Session::StartKernelSide() {
  if (options_.cuda_only) return true;
  const auto use_others = [this] {
    if (!WaitForOthersCompanion(options_.dir)) return false;
    kernel_by_others_ = true;
    Say("an ingero-kprobe records into " + options_.dir +
        " already; this uses what it records");
    return true;
  };
  if (use_others()) return true;
  const bool may_ask = isatty(STDIN_FILENO) == 1 && io_.err_is_terminal;
  ShowInPlace("starting ingero-kprobe, for the scheduler's side");
  auto started =
      Companion::Start(options_.dir, options_.buffer_bytes, may_ask);
  EndLine();
  // Somebody's may have been begun at the same time, and be the first.
  if (!started.ok() && use_others()) return true;
  if (!started.ok()) {
    Say((options_.program.empty() ? "" : kWithout) +
        started.status().message());
    return false;
  }
  companion_.emplace(std::move(*started));
  return true;
}

std::optional<int> Session::OnSignal(const signalfd_siginfo& info) {
  const int number = static_cast<int>(info.ssi_signo);
  if (number != SIGCHLD) {
    if (child_ < 0)
      told_to_end_ = true;
    else if (!witness_->GroupGot(number))  // else the program has it, too
      kill(child_, number);
    return std::nullopt;
  }
  int status = 0;
  if (child_ < 0 || waitpid(child_, &status, WNOHANG) != child_)
    return std::nullopt;
  return ExitStatusOf(status);
}

int Session::Record(const std::string& shim) {
  Signals signals(kForwarded);
  Fd pidfd;
  if (!options_.program.empty()) {
    const char* given = getenv("LD_PRELOAD");
    std::string preload = given == nullptr ? "" : given;
    // Behind what is there: some (ASan) insist on being the first.
    if (preload.find(kShim) == std::string::npos)
      preload += (preload.empty() ? "" : ":") + shim;
    StartOptions start;
    start.environment = options_.environment;
    start.environment.push_back("LD_PRELOAD=" + preload);
    start.environment.push_back("INGERO_DIR=" + options_.dir);
    start.signal_mask = &signals.before();
    // A run within a run is part of it.
    const char* run = getenv("INGERO_RUN");
    if (run != nullptr) run_id_ = std::strtoull(run, nullptr, 10);
    while (run_id_ == 0)
      if (getrandom(&run_id_, sizeof(run_id_), 0) < 0) run_id_ = HostNowNs();
    start.environment.push_back(fmt::format("INGERO_RUN={}", run_id_));
    witness_.emplace();
    auto started = StartProgram(options_.program, start);
    if (!started.ok()) {
      Say(started.status().message());
      not_started_ = true;
      return kNotRunnable;
    }
    child_ = *started;
    watch_.emplace(child_, fmt::format("INGERO_RUN={}", run_id_), Now());
    StartSampler();
  } else if (options_.pid != 0) {
    pidfd = Fd(static_cast<int>(syscall(SYS_pidfd_open, options_.pid, 0)));
    told_to_end_ = !pidfd.valid();  // it has ended meanwhile
  }
  if (options_.program.empty()) StartSampler();

  int exit_status = kDone;
  Ns look_at = Now();
  // Of recording: what came before (loading probes, a password) does not count.
  const Ns deadline = options_.duration > Ns{0} ? Now() + options_.duration
                                                : Ns(INT64_MAX);
  for (bool ended = false; !ended;) {
    const Ns now = Now();
    if (now >= look_at) {
      if (companion_) {
        companion_->Listen();
        if (companion_->ended() && options_.command == "trace") break;
      }
      if (watch_) watch_->Look(now);
      WatchCode(now);
      ShowLine(now);
      look_at = now + kLook;
    }
    if (now >= deadline || told_to_end_) break;
    const Ns wait = std::min(look_at, deadline) - now;
    pollfd fds[] = {{signals.fd(), POLLIN, 0}, {pidfd.get(), POLLIN, 0}};
    if (poll(fds, 2, static_cast<int>(wait.value / 1'000'000) + 1) <= 0)
      continue;
    while (const auto info = signals.Next())
      if (const auto status = OnSignal(*info)) {
        exit_status = *status;
        ended = true;
      }
    if (fds[1].revents != 0) ended = true;  // its process has ended
  }
  end_ = Now();
  child_ = -1;
  StopSampler();
  witness_.reset();
  if (watch_) watch_->LookAtAll(end_);
  EndLine();
  return exit_status;
}

// Its thread has our signal mask: it is started after the program, which does
// not inherit it.
void Session::StartSampler() {
  if (options_.where_hz == 0) return;
  auto started =
      code_sampler::Sampler::Start(options_.dir, options_.where_hz);
  if (started.ok())
    sampler_ = std::move(*started);
  else
    Say("where code is will not be known: " + started.status().message());
}

void Session::WatchCode(Ns now) {
  if (sampler_ == nullptr) return;
  if (!watch_) {
    // Of a trace: whoever writes calls into the folder.
    if (now < watch_code_at_) return;
    watch_code_at_ = now + kLookAtAll;
    sampler_->Watch(RecordedProcesses(options_.dir));
    return;
  }
  std::vector<code_sampler::Watched> list;
  for (const WatchedProcess& p : watch_->living())
    if (p.start_ticks != 0)
      list.push_back({p.pid, p.start_ticks, p.comm});
  sampler_->Watch(std::move(list));
}

void Session::StopSampler() {
  if (sampler_ == nullptr) return;
  const code_sampler::SamplerSummary summary = sampler_->Stop();
  sampler_.reset();
  for (const std::string& problem : summary.problems) Say(problem);
  if (summary.processes == 0 && summary.native == 0 &&
      summary.problems.empty())
    Say(options_.program.empty()
            ? "--where: no program that was recorded ran"
            : "--where: no process of the program was seen running");
  else if (summary.least_hz * 2 < options_.where_hz)
    Say(fmt::format("--where: down to {} looks a second of the {} asked for, so "
                    "that looking takes no more than {:.0f} % of a CPU",
                    summary.least_hz, options_.where_hz,
                    code_sampler::kMostOfOneCpu * 100));
}

void Session::ShowLine(Ns now) {
  if (!options_.live_line || !io_.err_is_terminal) return;
  const bool in_place = !io_.out_is_terminal || options_.program.empty();
  const Ns between = in_place ? kLineInPlace : kLineBetween;
  const Ns since = now - (line_at_ == Ns{0} ? begin_ : line_at_);
  if (since < between) return;
  calls_.Look();
  const CompanionCounts kernel =
      companion_ ? companion_->counts() : CompanionCounts();
  const double seconds = static_cast<double>(since.value) / 1e9;
  const auto rate = [&](uint64_t count, uint64_t* shown) {
    const double per_second =
        static_cast<double>(count - std::min(count, *shown)) / seconds;
    *shown = count;
    return FormatCount(static_cast<uint64_t>(per_second));
  };
  std::string line = fmt::format(
      "{:.0f} s  {} CUDA calls/s of {}",
      static_cast<double>((now - begin_).value) / 1e9,
      rate(calls_.calls(), &shown_calls_),
      FormatCounted(calls_.processes(), "process", "processes"));
  if (companion_)
    line += fmt::format("  {} switches/s",
                        rate(kernel.switches, &shown_switches_));
  line += fmt::format("  {} lost", FormatCount(kernel.lost + calls_.lost()));
  line = "ingero: " + line;
  Write(io_.err, "\r\x1b[K" + Ellipsize(line, io_.columns - 1) +
                     (in_place ? "" : "\n"));
  std::fflush(io_.err);
  line_shown_ = in_place;
  line_at_ = now;
}

void Session::ShowInPlace(const std::string& text) {
  if (!options_.live_line || !io_.err_is_terminal) return;
  Write(io_.err, "\r\x1b[K" + Ellipsize("ingero: " + text, io_.columns - 1));
  std::fflush(io_.err);
  line_shown_ = true;
}

void Session::EndLine() {
  if (line_shown_) Write(io_.err, "\r\x1b[K");
  std::fflush(io_.err);
  line_shown_ = false;
}

// What keeps anything from being recorded into `dir`; "" = nothing does.
std::string WhyNothingIsWritten(const std::string& dir) {
  std::string path = dir + "/.ingero-run.XXXXXX";
  const Fd fd(mkostemp(path.data(), O_CLOEXEC));
  int error = fd.valid() ? 0 : errno;
  if (fd.valid()) {
    error = posix_fallocate(fd.get(), 0, kLeastBytes);
    unlink(path.c_str());
  }
  if (error != ENOSPC && error != EDQUOT && error != EFBIG && fd.valid())
    return "";
  return (error == EROFS ? CannotUseFolder(dir, error)
                         : CannotWrite(dir, error)).message();
}

// ---- what came of it ----------------------------------------------------------

// "bash/12, sh/13 and 4 more".
std::string Named(const std::vector<std::string>& names) {
  std::string text;
  const size_t shown = std::min(names.size(), kNamesShown);
  for (size_t i = 0; i < shown; ++i) text += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > shown)
    text += fmt::format(" and {} more", FormatCount(names.size() - shown));
  return text;
}

std::string NameOf(const std::string& comm, uint32_t pid) {
  return fmt::format("{}/{}", comm.empty() ? "process" : comm, pid);
}

// Of a trace, nobody is.
bool Session::Foreign(const merge::StoredStream& stream) const {
  if (!watch_) return false;
  if (stream.span.begin < begin_) return true;
  const auto run = run_of_stream_.find(stream.stream_id);
  if (run != run_of_stream_.end() && run->second != 0)
    return run->second != run_id_;
  // It may have cleared its environment.
  const std::vector<WatchedProcess> watched = watch_->processes();
  return std::none_of(
      watched.begin(), watched.end(),
      [&](const WatchedProcess& p) { return p.pid == stream.pid; });
}

void Session::PrintProcesses(const merge::TraceReader& trace) const {
  Page page(io_.columns, io_.err_is_terminal && !io_.no_color);
  const auto fact = [&](std::string_view label, const std::string& text) {
    page.Labeled(label, SanitizeForTerminal(text, 1 << 16), 0, 12, 2,
                 /*cut=*/false);
  };
  std::map<analysis::ProcessIndex, const merge::StoredStream*> stream_of;
  for (const merge::StoredStream& s : trace.streams())
    if (s.cuda() && s.process != analysis::kNone)
      stream_of.emplace(s.process, &s);

  const std::vector<WatchedProcess> watched =
      watch_ ? watch_->processes() : std::vector<WatchedProcess>();
  std::set<uint32_t> pids;
  for (const WatchedProcess& p : watched) pids.insert(p.pid);
  // Of a trace, everybody is.
  const auto ours = [&](analysis::ProcessIndex p) {
    for (int depth = 0; depth < 64 && p < trace.processes().size(); ++depth) {
      if (pids.contains(trace.processes()[p].pid)) return true;
      p = trace.processes()[p].parent;
    }
    return !watch_;
  };

  std::vector<merge::ProcessCoverage> all = merge::ReadCoverage(trace);
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return a.calls > b.calls;
  });
  std::vector<std::string> recorded, others, beside;
  std::set<uint32_t> told;
  std::map<std::string, std::vector<std::string>> missing;  // by reason
  for (const merge::ProcessCoverage& c : all) {
    const analysis::Process& process = trace.processes()[c.process];
    const std::string name = NameOf(process.name, process.pid);
    if (c.recorded) {
      told.insert(process.pid);
      const auto stream = stream_of.find(c.process);
      (stream == stream_of.end()              ? recorded
       : stream->second->span.begin < begin_ ? others
       : Foreign(*stream->second)             ? beside
                                              : recorded)
          .push_back(fmt::format("{} ({})", name,
                                 FormatCounted(c.calls, "call", "calls")));
    } else if (!c.shim_mapped && ours(c.process)) {
      told.insert(process.pid);
      missing[c.not_recorded].push_back(name);
    }
  }
  std::vector<std::string> silent, brief, alive;
  for (const WatchedProcess& p : watched) {
    const std::string name = NameOf(p.comm, p.pid);
    if (p.alive) alive.push_back(name);
    if (!told.insert(p.pid).second) continue;
    if (const std::string why = WhyNotWritten(p); !why.empty())
      missing[kPerhaps + why].push_back(name);
    else if (p.looked_at && p.maps.shim)
      silent.push_back(name);
    else if (p.looked_at)
      missing[merge::WhyNotRecorded(p.bits)].push_back(name);
    else if (p.hidden)
      missing["another user's, or with raised privileges, where the loader "
              "drops LD_PRELOAD"]
          .push_back(name);
    else
      brief.push_back(name);
  }

  for (const auto& [name, pid] : still_writing_)
    if (told.insert(pid).second || !pids.contains(pid)) alive.push_back(name);
  fact("recorded", recorded.empty() ? "no CUDA call"
                                    : Named(recorded));
  if (!others.empty())
    fact("", "and, begun before: " + Named(others));
  if (!beside.empty()) fact("", "and, beside this program: " + Named(beside));
  if (!silent.empty())
    fact("no call", Named(silent) +
                        ": with the shim; made no CUDA call, or has said on "
                        "stderr why it could not be recorded");
  for (const auto& [reason, names] : missing)
    fact("not seen", Named(names) + ": " + reason);
  if (!brief.empty())
    fact("too brief", Named(brief) + ": ended before they could be looked at");
  if (!alive.empty())
    fact("still runs", Named(alive) +
                           "; 'ingero merge' adds what is recorded from now on");
  Write(io_.err, page.text());
}

std::string Session::WhyNotWritten(const WatchedProcess& p) const {
  if (!p.looked_at || !p.maps.shim) return "";
  if (p.bits & INGERO_CUDA_DISABLED)
    return "INGERO_DISABLE is set in the environment: unset it";
  struct stat st;
  if (stat(options_.dir.c_str(), &st) == 0 && p.effective_uid != 0 &&
      p.effective_uid != st.st_uid)
    return fmt::format(
        "run as user {}, who cannot use the trace folder of user {}; record into "
        "one that belongs to user {} (--dir)",
        p.effective_uid, st.st_uid, p.effective_uid);
  if (p.most_file_bytes < kLeastBytes)
    return fmt::format("files may have at most {} there (ulimit -f), and {} are "
                       "needed at least; raise that limit",
                       FormatBytes(p.most_file_bytes),
                       FormatBytes(kLeastBytes));
  return no_room_;
}

std::string Session::Unrecorded(const merge::Recording* recording) const {
  if (!watch_) return "";
  std::set<uint32_t> pids;
  if (recording != nullptr)
    for (const merge::StreamInfo& s : recording->streams)
      if (s.cuda()) pids.insert(s.pid);
  std::map<std::string, std::vector<std::string>> reasons;
  for (const WatchedProcess& p : watch_->processes())
    if (const std::string why = WhyNotWritten(p);
        !why.empty() && !pids.contains(p.pid))
      reasons[why].push_back(fmt::format("{}", p.pid));
  std::string text;
  for (const auto& [why, who] : reasons)
    text += fmt::format("{}of {} {}: {}{}", text.empty() ? "" : "; ",
                        who.size() == 1 ? "process" : "processes", Named(who),
                        kPerhaps, why);
  if (!text.empty() || !pids.empty()) return text;
  return "the program made no CUDA call that can be seen, or has said on stderr "
         "why it could not be recorded. One that is setuid or static, or is "
         "started with LD_PRELOAD cleared (sudo, env -i) is not seen either";
}

void Session::StopKernelSide() {
  if (!companion_) return;
  for (const std::string& line : companion_->Stop())
    Say("ingero-kprobe: " + line);
}

bool Session::MergeAndExplain() {
  StopKernelSide();
  if (kernel_by_others_) {
    if (!CompanionRecordsInto(options_.dir))
      Say("the ingero-kprobe that somebody else had started ended meanwhile; "
          "what threads did from then on is not known");
    const timespec flush{kOthersFlush.value / 1'000'000'000, 0};
    nanosleep(&flush, nullptr);
  }

  std::vector<std::string> problems;
  const std::vector<merge::Recording> recordings =
      merge::ListRecordings({options_.dir}, &problems);
  const merge::Recording* ours = nullptr;
  size_t during = 0;
  Interval span;
  for (const merge::Recording& r : recordings) {
    bool overlaps = false;
    Ns first(INT64_MAX);
    for (const merge::StreamInfo& s : r.streams) {
      overlaps |= s.span.end >= begin_;
      if (!s.span.empty()) first = std::min(first, s.span.begin);
    }
    if (overlaps) {
      ++during;
      ours = &r;
      span = {first, end_};
    }
  }
  if (ours == nullptr) {
    std::string why = WhyNothingIsWritten(options_.dir);
    if (const char* off = getenv("INGERO_DISABLE");
        why.empty() && off != nullptr && *off != '\0' &&
        std::string_view(off) != "0")
      why = "INGERO_DISABLE is set in this environment: unset it";
    if (why.empty() && problems.empty()) why = Unrecorded(nullptr);
    Say(!why.empty() ? "nothing was recorded: " + why
        : problems.empty()
            ? "nothing was recorded: nobody made a CUDA call that can be seen"
            : "nothing can be merged: " + problems[0]);
    return false;
  }
  for (const merge::StreamInfo& s : ours->streams) {
    if (!s.cuda()) continue;
    run_of_stream_[s.stream_id] = s.run_id;
    if (watch_ && s.live && s.run_id == run_id_)
      still_writing_.emplace_back(NameOf(s.comm, s.pid), s.pid);
  }
  no_room_ = WhyNothingIsWritten(options_.dir);
  if (during > 1)
    Say(fmt::format("{} recordings were made meanwhile, with longer pauses "
                    "between them; this is about the last one ('ingero list "
                    "--dir {}' has all)",
                    during, ShellWord(options_.dir)));
  merge::MergeOptions merge;
  merge.dirs = {options_.dir};
  merge.recording = ours->id;
  merge.output = options_.output;
  merge.wait = true;
  merge.unrecorded = Unrecorded(ours);
  const auto merged = MergeWithProgress(merge, recordings, io_);
  if (!merged.ok()) {
    Say(merged.status().message());
    if (!options_.kept) return false;
    Say(fmt::format("what was recorded is kept; once that is mended: ingero "
                    "merge --dir {} --recording {}{}",
                    ShellWord(options_.dir), ShellWord(ours->id),
                    options_.output.empty()
                        ? std::string()
                        : " -o " + ShellWord(options_.output)));
    return false;
  }
  store_ = merged->store_path;
  auto trace = merge::OpenTrace(store_);
  if (!trace.ok()) {
    Say(trace.status().message());
    return false;
  }
  if (!options_.quiet) PrintProcesses(**trace);
  Page page(io_.columns, io_.err_is_terminal && !io_.no_color);
  page.Labeled("store",
               fmt::format("{} ({})", SanitizeForTerminal(merged->store_path),
                           FormatBytes(merged->store_bytes)),
               0, 12, 0, /*cut=*/false);
  Write(io_.err, page.text());
  if (options_.quiet) return true;

  Args args = {"--db", merged->store_path};
  // What others recorded before is in the same recording.
  if (span.begin + kSecond < begin_)
    args.insert(args.end(),
                {"--since", fmt::format("{}ms", ((end_ - begin_).value /
                                                 1'000'000) + 1)});
  if (options_.pid != 0)
    args.insert(args.end(), {"--pid", std::to_string(options_.pid)});
  std::string own;
  bool others = false;
  for (const merge::StoredStream& s : (*trace)->streams()) {
    if (s.kernel || s.process == analysis::kNone) continue;
    if (!Foreign(s))
      own += (own.empty() ? "" : ",") + std::to_string(s.pid);
    else
      others |= s.span.end >= begin_;
  }
  if (others) {
    const std::string all =
        "'ingero explain --db " + ShellWord(store_) + "' is about all of them";
    if (own.empty()) {
      Say("the program made no CUDA call that can be seen; others did, which "
          "were recorded beside it: " +
          all);
      return true;
    }
    Say("another program was recorded beside this one; what follows is about "
        "this one alone, " +
        all);
    args.insert(args.end(), {"--pids", own});
  }
  Io io = io_;
  io.out = io_.err;
  io.out_is_terminal = io_.err_is_terminal;
  Write(io.out, "\n");
  return RunExplain(args, io) == kDone;
}

// ---- the command line -----------------------------------------------------------

void AddOptions(CLI::App* app, RecordingOptions* o) {
  app->add_option("--dir", o->dir,
                  "Folder to record into. Default: $INGERO_DIR, else\n"
                  "~/.local/state/ingero")
      ->type_name("DIR");
  app->add_option("-o,--output", o->output,
                  "Store to write. Default: beside the streams")
      ->type_name("PATH");
  app->add_option("--buffer", o->buffer,
                  "Buffer of ingero-kprobe per CPU, for example 16M:\n"
                  "where it says that events were lost")
      ->type_name("SIZE");
  app->add_flag("-q,--quiet", o->quiet,
                "No live line, list of processes or report");
}

// Of --buffer; a status to exit with where it is no size that can be.
std::optional<int> TakeBuffer(RecordingOptions* o, const Io& io) {
  if (o->buffer.empty()) return std::nullopt;
  const auto asked = ParseBytes(o->buffer);
  if (!asked.ok())
    return UsageError(io, o->command, "--buffer: " + asked.status().message());
  const auto rounded = RingBytes(*asked);
  if (!rounded.ok())
    return UsageError(io, o->command, "--buffer " + o->buffer + ": " +
                                          rounded.status().message());
  o->buffer_bytes = *rounded;
  return std::nullopt;
}

// --where[=HZ] of a command.
class WhereOption {
 public:
  explicit WhereOption(CLI::App* app) {
    option_ = app->add_option("--where", text_,
                              fmt::format("Say at which lines of Python threads "
                                          "were: look\nHZ times a second, from "
                                          "outside (default {})",
                                          code_sampler::kDefaultHz))
                  ->type_name("=HZ")
                  ->expected(0, 1);
  }
  // False: Wrong() says what is. `args`: those that were parsed, which alone
  // tell "--where=" from "--where".
  bool Take(const Args& args, RecordingOptions* o) const {
    if (option_->count() == 0) return true;
    o->where_hz = code_sampler::kDefaultHz;
    if (text_.empty())
      return std::find(args.begin(), args.end(), "--where=") == args.end();
    const auto [end, error] = std::from_chars(
        text_.data(), text_.data() + text_.size(), o->where_hz);
    return error == std::errc() && end == text_.data() + text_.size() &&
           o->where_hz > 0 && o->where_hz <= code_sampler::kMostHz;
  }
  std::string Wrong() const {
    return fmt::format("--where: '{}' is not a number of looks a second from 1 "
                       "to {}, such as --where=50",
                       text_, code_sampler::kMostHz);
  }

 private:
  std::string text_;
  CLI::Option* option_ = nullptr;
};

// Makes the folder, its path absolute. A status to exit with where it can't.
std::optional<int> PrepareFolder(RecordingOptions* o, const Io& io) {
  TraceDir dir = DefaultTraceDir();
  if (!o->dir.empty()) {
    std::error_code error;
    dir.path = std::filesystem::absolute(o->dir, error).lexically_normal();
    while (dir.path.size() > 1 && dir.path.back() == '/') dir.path.pop_back();
    // One that is there keeps its owner, where we may write to it at all.
    struct stat st;
    if (geteuid() == 0 && stat(dir.path.c_str(), &st) == 0) {
      dir.uid = st.st_uid;
      dir.gid = st.st_gid;
    }
  }
  if (Status made = CreateTraceDir(dir); !made.ok()) {
    PrintError(io, o->command, made.message());
    return kFailed;
  }
  o->dir = dir.path;
  // Before the program runs for hours.
  if (const std::string why = WhyNothingIsWritten(o->dir); !why.empty()) {
    PrintError(io, o->command, "nothing can be recorded: " + why);
    return kFailed;
  }
  if (o->output.empty()) return std::nullopt;
  if (Status can = merge::CheckStoreOutput(o->output); !can.ok()) {
    PrintError(io, o->command, can.message());
    return kFailed;
  }
  return std::nullopt;
}

// Where the program's own words begin: behind "--", or at the first word that
// is no option of ours nor the value of one.
size_t ProgramAt(const CLI::App& app, const Args& args) {
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i] == "--" || !args[i].starts_with("-") || args[i] == "-")
      return i;
    if (args[i] == "--where") continue;  // its value, if any, is behind a "="
    const CLI::Option* option = app.get_option_no_throw(args[i]);
    if (option != nullptr && option->get_items_expected_max() > 0) ++i;
  }
  return args.size();
}

}  // namespace

Recorded RecordProgram(RecordingOptions o, const Io& io) {
  const std::string shim = ShimBesideUs();
  if (shim.empty() || shim.find_first_of(": ") != std::string::npos) {
    PrintError(io, o.command,
               shim.empty() ? std::string(kShim) +
                                  " is not beside ingero: install it again, "
                                  "whole"
                            : shim + " cannot be named in LD_PRELOAD: install "
                                     "ingero in a folder without blank or "
                                     "colon in its name");
    return {kFailed, "", false};
  }
  bool there = false;
  if (const std::string why = WhyNotRun(o.program[0], &there); !why.empty()) {
    PrintError(io, o.command, why);
    return {there ? kNotRunnable : kNotFound, "", false};
  }
  if (auto status = PrepareFolder(&o, io)) return {*status, "", false};

  // Where it is ignored, nobody would tell us of the program's end.
  std::signal(SIGCHLD, SIG_DFL);
  Session session(o, io);
  session.StartKernelSide();
  const int status = session.Record(shim);
  if (session.not_started()) {
    session.StopKernelSide();
    return {status, "", false};
  }
  SayWhenStopped(o.kept ? "ingero: stopped; what was recorded is kept: 'ingero "
                          "merge' makes a store of it"
                        : "ingero: stopped; nothing is left behind");
  session.MergeAndExplain();
  return {status, session.store(), true};
}

int RunRun(const Args& args, const Io& io) {
  RecordingOptions o;
  o.command = "run";
  CLI::App app(kRunHelp, "ingero run");
  app.footer(kRunExamples);
  AddOptions(&app, &o);
  app.add_flag("--cuda-only", o.cuda_only,
               "Do not record the scheduler, nor ask sudo");
  WhereOption where(&app);
  // For the help: what is parsed ends where it begins.
  std::string unused;
  app.add_option("PROGRAM", unused,
                 "The program to run, with its arguments; '--' may\n"
                 "stand before it")
      ->type_name("");
  const size_t at = ProgramAt(app, args);
  const auto words = args.begin() + static_cast<ptrdiff_t>(at);
  const Args own(args.begin(), words);
  if (auto status = Parse(app, own, io)) return *status;
  if (auto status = TakeBuffer(&o, io)) return *status;
  if (!where.Take(own, &o)) return UsageError(io, "run", where.Wrong());
  bool there = false;
  if (at > 0 && at < args.size() && args[at - 1] == "--where" &&
      args[at].find_first_not_of("0123456789") == std::string::npos &&
      !WhyNotRun(args[at], &there).empty())
    return UsageError(io, "run",
                      fmt::format("--where: its value stands behind a '=': "
                                  "--where={}",
                                  args[at]));
  o.program.assign(words + (at < args.size() && args[at] == "--"), args.end());
  if (o.program.empty() || o.program[0].empty())
    return UsageError(io, "run",
                      "say what to run, for example: ingero run python3 "
                      "train.py");
  o.live_line = !o.quiet;
  return RecordProgram(std::move(o), io).exit_status;
}

int RunTrace(const Args& args, const Io& io) {
  RecordingOptions o;
  o.command = "trace";
  std::string duration, pid;
  CLI::App app(kTraceHelp, "ingero trace");
  app.footer(kTraceExamples);
  app.add_option("--duration", duration,
                 "End after this time. Default: at Ctrl-C")
      ->type_name("TIME");
  app.add_option("--pid", pid,
                 "Explain this process and its workers; end when\n"
                 "it ends")
      ->type_name("PID");
  AddOptions(&app, &o);
  WhereOption where(&app);
  if (auto status = Parse(app, args, io)) return *status;
  if (auto status = TakeBuffer(&o, io)) return *status;
  if (!where.Take(args, &o)) return UsageError(io, "trace", where.Wrong());
  if (!duration.empty()) {
    auto parsed = ParseDuration(duration);
    if (!parsed.ok())
      return UsageError(io, "trace",
                        "--duration: " + parsed.status().message());
    if (*parsed <= Ns{0})
      return UsageError(io, "trace",
                        "--duration: nothing is recorded in no time; give a "
                        "duration, for example --duration 60s");
    o.duration = *parsed;
  }
  if (!pid.empty()) {
    const auto [end, error] =
        std::from_chars(pid.data(), pid.data() + pid.size(), o.pid);
    if (error != std::errc() || end != pid.data() + pid.size() || o.pid == 0)
      return UsageError(io, "trace",
                        fmt::format("--pid: '{}' is not a PID, such as 4242",
                                    pid));
    const auto stat = ReadTaskStat(o.pid);
    if (!stat || IsDead(o.pid, *stat)) {
      PrintError(io, "trace", fmt::format("there is no process {}", pid));
      return kFailed;
    }
  }
  if (auto status = PrepareFolder(&o, io)) return *status;
  o.live_line = !o.quiet;

  std::signal(SIGCHLD, SIG_DFL);
  Session session(o, io);
  if (!session.StartKernelSide()) return kFailed;
  session.Record("");
  SayWhenStopped(
      "ingero trace: stopped; what was recorded is kept: 'ingero merge' makes "
      "a "
      "store of it");
  return session.MergeAndExplain() ? kDone : kFailed;
}

}  // namespace ingero::cli
