// SPDX-License-Identifier: Apache-2.0
// What recording costs the user's own command: runs it bare, with the shim and
// with both collectors, in turns.
#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "analysis/trace.h"
#include "base/file.h"
#include "base/interval.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/program.h"
#include "cli/progress.h"
#include "cli/render/layout.h"
#include "cli/render/words.h"
#include "merge/merge.h"
#include "merge/trace_reader.h"

namespace ingero::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kHelp =
    "Run a command bare, with the shim, and with both collectors, in turns, "
    "and\n"
    "say how much longer it takes. The companion takes part where it may "
    "(root).\n"
    "What the command prints is dropped, it reads nothing, and what was "
    "recorded\n"
    "is deleted at the end. A first run, which finds files not yet in memory, "
    "does\n"
    "not count. How much longer the command takes is the answer. What the "
    "shim\n"
    "accounts for is an estimate of its part: records, each at what one takes "
    "in "
    "a\n"
    "warm loop on this machine, and write-outs. A runtime call with the driver "
    "call\n"
    "in it is two records, and in a program whose own data push them out of "
    "the\n"
    "caches they take more: 190 to 270 ns both, write-outs included, on an "
    "H200\n"
    "machine (README.md).\n";

constexpr const char* kExamples =
    "Examples:\n"
    "  ingero overhead -- python3 train.py\n"
    "  sudo ingero overhead --rounds 11 -- python3 train.py --steps 100\n"
    "  ingero overhead --json -- ./program > overhead.json\n"
    "\n"
    "Exit status: 0 done, 1 failed (the command did, too), 2 wrong usage; "
    "after\n"
    "a signal 128 and its number.";

constexpr int kMaxRounds = 1000;
constexpr unsigned kCalibrationSeconds = 30;
constexpr int kCalibrations = 3;
constexpr Ns kMostUntilReady{30'000'000'000};

// CLOCK_MONOTONIC, as in a store.
Ns Now() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return Ns(t.tv_sec * int64_t{1'000'000'000} + t.tv_nsec);
}

// ---- figures ----------------------------------------------------------------

// The k-th smallest and largest of n values hold their true median with the
// probability given, whatever their distribution: the largest k that keeps
// 95 %, else 1.
struct Range {
  double median = 0, low = 0, high = 0, probability = 0;
};

Range RangeOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  Range r;
  if (n == 0) return r;
  r.median = (values[(n - 1) / 2] + values[n / 2]) / 2;
  double tail = 1;
  for (size_t i = 0; i < n; ++i) tail /= 2;
  double next = tail;  // probability that exactly k values are too small
  size_t k = 1;
  for (; k < n / 2; ++k) {
    next *= static_cast<double>(n - k + 1) / static_cast<double>(k);
    if (1 - 2 * (tail + next) < 0.95) break;
    tail += next;
  }
  r.low = values[k - 1];
  r.high = values[n - k];
  r.probability = 1 - 2 * tail;
  return r;
}

double Median(const std::vector<double>& values) {
  return RangeOf(values).median;
}

// ---- processes --------------------------------------------------------------

// Signals that end the command, and SIGCHLD, are waited for instead of handled
// while this lives.
class SignalsHeld {
 public:
  SignalsHeld() {
    sigemptyset(&set_);
    for (const int s : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) sigaddset(&set_, s);
    sigprocmask(SIG_BLOCK, &set_, &before_);
  }
  ~SignalsHeld() { sigprocmask(SIG_SETMASK, &before_, nullptr); }
  SignalsHeld(const SignalsHeld&) = delete;
  SignalsHeld& operator=(const SignalsHeld&) = delete;

  // 0 = it is time to look again; else the signal that says stop.
  int Wait(long milliseconds) const {
    const timespec timeout{milliseconds / 1000,
                           milliseconds % 1000 * 1'000'000};
    const int signal = sigtimedwait(&set_, nullptr, &timeout);
    return signal > 0 && signal != SIGCHLD ? signal : 0;
  }

 private:
  sigset_t set_, before_;
};

// A process group of its own, gone when this is.
class Group {
 public:
  static Result<Group> Start(const std::vector<std::string>& argv,
                             const std::vector<std::string>& environment,
                             const std::string& err_path) {
    INGERO_ASSIGN_OR_RETURN(const Fd nothing, OpenFile("/dev/null", O_RDWR));
    INGERO_ASSIGN_OR_RETURN(
        const Fd err,
        OpenFile(err_path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND));
    sigset_t none;
    sigemptyset(&none);
    StartOptions start;
    start.environment = environment;
    start.in = start.out = nothing.get();
    start.err = err.get();
    start.own_group = true;
    start.signal_mask = &none;
    Group group;
    INGERO_ASSIGN_OR_RETURN(group.pid_, StartProgram(argv, start));
    return group;
  }
  Group(Group&& other) noexcept
      : pid_(std::exchange(other.pid_, 0)), cpu_s_(other.cpu_s_) {}
  Group& operator=(Group&&) = delete;
  ~Group() {
    if (pid_ == 0) return;
    Stop();
    for (int i = 0; i < 200; ++i) {
      if (Ended()) return;
      usleep(10'000);
    }
    kill(-pid_, SIGKILL);
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) continue;
  }

  void Stop() const { kill(-pid_, SIGTERM); }
  // Its exit status once it has ended; 128 + signal.
  std::optional<int> Ended() {
    int status = 0;
    rusage usage{};
    if (wait4(pid_, &status, WNOHANG, &usage) != pid_) return std::nullopt;
    pid_ = 0;
    for (const timeval& t : {usage.ru_utime, usage.ru_stime})
      cpu_s_ +=
          static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
    return ExitStatusOf(status);
  }
  double cpu_s() const { return cpu_s_; }  // once it has ended

 private:
  Group() = default;
  pid_t pid_ = 0;
  double cpu_s_ = 0;
};

std::string LastLineOf(const std::string& path) {
  auto text = ReadWholeFile(path);
  if (!text.ok()) return "";
  while (text->ends_with('\n')) text->pop_back();
  return text->substr(text->rfind('\n') + 1);
}

// CPU time of a context switch: two processes on one CPU pass a byte to and
// fro. nullopt: it cannot be had here.
std::optional<double> SwitchNs() {
  constexpr int kWindows = 15, kRoundTrips = 1000;
  cpu_set_t before, one;
  auto to = MakePipe(), from = MakePipe();
  if (!to.ok() || !from.ok() ||
      sched_getaffinity(0, sizeof(before), &before) != 0)
    return std::nullopt;
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  if (sched_setaffinity(0, sizeof(one), &one) != 0) return std::nullopt;
  char byte = 0;
  const pid_t child = fork();
  if (child == 0) {
    to->write.reset();
    while (read(to->read.get(), &byte, 1) == 1 &&
           write(from->write.get(), &byte, 1) == 1)
      continue;
    _exit(0);
  }
  std::vector<double> ns;
  clockid_t childs;
  if (child > 0 && clock_getcpuclockid(child, &childs) == 0) {
    const auto cpu_ns = [&] {
      double sum = 0;
      for (const clockid_t clock : {CLOCK_PROCESS_CPUTIME_ID, childs}) {
        timespec t{};
        clock_gettime(clock, &t);
        sum += static_cast<double>(t.tv_sec) * 1e9 +
               static_cast<double>(t.tv_nsec);
      }
      return sum;
    };
    for (int w = 0; w < kWindows; ++w) {
      const double begin = cpu_ns();
      bool whole = true;
      for (int i = 0; i < kRoundTrips && whole; ++i)
        whole = write(to->write.get(), &byte, 1) == 1 &&
                read(from->read.get(), &byte, 1) == 1;
      if (whole) ns.push_back((cpu_ns() - begin) / (2 * kRoundTrips));
    }
  }
  to->write.reset();
  if (child > 0) waitpid(child, nullptr, 0);
  sched_setaffinity(0, sizeof(before), &before);
  if (ns.empty()) return std::nullopt;
  return Median(ns);
}

// ---- the runs ---------------------------------------------------------------

struct Mode {
  const char* id;
  const char* title;
  bool shim, companion;
  std::vector<double> seconds = {};
  // Of runs with a collector.
  std::vector<double> slowdown_percent = {};  // over the same round's bare run
  std::vector<double> calls = {}, self_ns = {}, switches = {};
  std::vector<double> companion_cpu_s = {};
};

struct Failure {
  int exit_status;
  std::string message;
};

class Comparison {
 public:
  Comparison(std::vector<std::string> command, int rounds, std::string folder,
             const Io& io)
      : command_(std::move(command)),
        rounds_(rounds),
        folder_(std::move(folder)),
        progress_(io),
        shim_(ShimBesideUs()),
        companion_(FindCompanion()) {}

  std::optional<Failure> Run();
  std::string AsText(const Io& io) const;
  std::string AsJson() const;

 private:
  std::optional<Failure> Calibrate();
  std::optional<Failure> RunOnce(Mode* mode);
  std::optional<Failure> StartCompanion(const std::string& traces,
                                        std::optional<Group>* companion);
  std::optional<Failure> CalibrateCompanion();
  std::optional<Failure> CountEvents(const std::string& traces, Interval run,
                                     Mode* mode);
  // Waits until `done` says so. A failure where a signal came first.
  template <typename Done>
  std::optional<Failure> Until(const Done& done);
  double CallsMs(const Mode& m) const {
    return (Median(m.calls) * ns_per_call_ + Median(m.self_ns)) / 1e6;
  }
  double SwitchesMs(const Mode& m) const {
    return Median(m.switches) * std::max(0.0, Median(ns_per_switch_)) / 1e6;
  }

  const std::vector<std::string> command_;
  const int rounds_;
  const std::string folder_;
  Progress progress_;
  std::string shim_, companion_;
  std::string left_out_;  // why the companion is
  SignalsHeld signals_;
  double ns_per_call_ = 0;
  std::vector<double> ns_per_switch_;
  std::vector<Mode> modes_ = {{"bare", "bare", false, false},
                              {"shim", "with the shim", true, false},
                              {"both", "with both", true, true}};
  int runs_done_ = 0;
};

template <typename Done>
std::optional<Failure> Comparison::Until(const Done& done) {
  while (!done()) {
    progress_.Update("running the command",
                     static_cast<double>(runs_done_) /
                         (1 + rounds_ * static_cast<double>(modes_.size())),
                     0);
    if (const int signal = signals_.Wait(200); signal != 0)
      return Failure{128 + signal, "interrupted; nothing is left behind"};
  }
  return std::nullopt;
}

std::optional<Failure> Comparison::Calibrate() {
  if (shim_.empty())
    return Failure{kFailed,
                   "there is no libingero_cuda.so beside ingero; "
                   "install ingero again, whole"};
  const auto run = RunProgram(
      {"/proc/self/exe", "check", "--simulated-calls"},
      {"LD_PRELOAD=" + shim_, "INGERO_DIR=" + folder_ + "/calibration"},
      kCalibrationSeconds);
  if (!run.ok()) return Failure{kFailed, run.status().message()};
  const size_t line = run->out.find('\n');
  if (run->exit_status != kDone || line == std::string::npos)
    return Failure{kFailed,
                   "the shim does not work here; 'ingero check' says "
                   "why"};
  ns_per_call_ = std::strtod(run->out.c_str() + line, nullptr);
  return std::nullopt;
}

std::optional<Failure> Comparison::StartCompanion(
    const std::string& traces, std::optional<Group>* companion) {
  const std::string ready = folder_ + "/ready", log = folder_ + "/companion";
  std::error_code error;
  std::filesystem::remove(ready, error);
  auto started = Group::Start(
      {companion_, "--dir", traces, "--ready-file", ready, "--quiet"}, {}, log);
  if (!started.ok()) return Failure{kFailed, started.status().message()};
  companion->emplace(std::move(*started));
  const Ns begin = Now();
  std::optional<int> ended;
  if (auto failure = Until([&] {
        ended = (*companion)->Ended();
        return ended || access(ready.c_str(), F_OK) == 0 ||
               Now() - begin > kMostUntilReady;
      }))
    return failure;
  if (access(ready.c_str(), F_OK) != 0) {
    const std::string why = LastLineOf(log);
    companion->reset();
    return Failure{kFailed, why.empty() ? "ingero-kprobe did not start" : why};
  }
  return std::nullopt;
}

// Whether the companion may record here shows when it is asked to.
std::optional<Failure> Comparison::CalibrateCompanion() {
  for (int i = 0; i < kCalibrations; ++i) {
    const std::optional<double> without = SwitchNs();
    std::optional<Group> companion;
    if (auto failure = StartCompanion(folder_ + "/calibration", &companion))
      return failure;
    const std::optional<double> with = SwitchNs();
    if (with && without) ns_per_switch_.push_back(*with - *without);
  }
  return std::nullopt;
}

std::optional<Failure> Comparison::CountEvents(const std::string& traces,
                                               Interval run, Mode* mode) {
  double self_ns = 0, calls = 0, switches = 0;
  merge::MergeOptions options;
  options.dirs = {traces};
  options.output = folder_ + "/overhead.store";
  std::error_code error;
  if (!merge::ListRecordings(options.dirs).empty()) {
    const auto merged = merge::Merge(options);
    if (!merged.ok()) return Failure{kFailed, merged.status().message()};
    calls = static_cast<double>(merged->calls);
    auto reader = merge::OpenTrace(options.output);
    if (!reader.ok()) return Failure{kFailed, reader.status().message()};
    for (const merge::StoredStream& s : (*reader)->streams())
      if (s.cuda()) self_ns += static_cast<double>(s.self_ns);
    // Without those of the companion's own start and end.
    if (mode->companion) {
      auto rows = (*reader)->Switches(run);
      for (analysis::Switch row; rows->Next(&row);) ++switches;
    }
  }
  std::filesystem::remove_all(options.output, error);
  std::filesystem::remove_all(traces, error);
  mode->calls.push_back(calls);
  mode->self_ns.push_back(self_ns);
  mode->switches.push_back(switches);
  return std::nullopt;
}

std::optional<Failure> Comparison::RunOnce(Mode* mode) {
  const std::string traces = folder_ + "/traces", log = folder_ + "/command";
  std::optional<Group> companion;
  if (mode->companion)
    if (auto failure = StartCompanion(traces, &companion)) return failure;
  std::vector<std::string> environment;
  if (mode->shim) {
    const char* preload = std::getenv("LD_PRELOAD");
    environment = {"LD_PRELOAD=" + shim_ +
                       (preload == nullptr || *preload == '\0'
                            ? std::string()
                            : std::string(":") + preload),
                   "INGERO_DIR=" + traces};
  }
  Interval run;
  run.begin = Now();
  auto program = Group::Start(command_, environment, log);
  if (!program.ok()) return Failure{kFailed, program.status().message()};
  std::optional<int> status;
  if (auto failure = Until([&] {
        status = program->Ended();
        return status.has_value();
      }))
    return failure;
  run.end = Now();
  if (companion) {
    companion->Stop();
    std::optional<int> ended;
    if (auto failure = Until([&] {
          ended = companion->Ended();
          return ended.has_value();
        }))
      return failure;
    if (*ended != 0)
      return Failure{kFailed,
                     "ingero-kprobe: " + LastLineOf(folder_ + "/companion")};
    mode->companion_cpu_s.push_back(companion->cpu_s());
  }
  if (*status != 0) {
    const std::string said = LastLineOf(log);
    return Failure{
        kFailed,
        fmt::format("{} ended with status {} {}{}; only a command that "
                    "succeeds can be compared",
                    command_[0], *status, mode->title,
                    said.empty() ? "" : ": " + said)};
  }
  mode->seconds.push_back(static_cast<double>(run.length().value) / 1e9);
  if (mode->shim) return CountEvents(traces, run, mode);
  return std::nullopt;
}

std::optional<Failure> Comparison::Run() {
  if (const char* preload = std::getenv("LD_PRELOAD");
      preload != nullptr &&
      std::string_view(preload).find(kShim) != std::string_view::npos)
    return Failure{kUsage,
                   "LD_PRELOAD has the shim in it, so nothing would run "
                   "without; unset it"};
  if (auto failure = Calibrate()) return failure;
  if (companion_.empty()) {
    left_out_ = "there is no ingero-kprobe beside ingero or in PATH";
  } else if (auto failure = CalibrateCompanion()) {
    if (failure->exit_status != kFailed) return failure;
    left_out_ = failure->message;
    if (geteuid() != 0) left_out_ += "; sudo ingero overhead";
  }
  if (!left_out_.empty()) modes_.pop_back();

  Mode first = modes_[0];
  if (auto failure = RunOnce(&first)) return failure;
  ++runs_done_;
  for (int round = 0; round < rounds_; ++round) {
    for (size_t i = 0; i < modes_.size(); ++i) {
      Mode& mode = modes_[(i + static_cast<size_t>(round)) % modes_.size()];
      if (auto failure = RunOnce(&mode)) return failure;
      ++runs_done_;
    }
    const double bare = modes_[0].seconds.back();
    for (Mode& mode : modes_)
      mode.slowdown_percent.push_back(100 * (mode.seconds.back() / bare - 1));
  }
  progress_.Finish();
  return std::nullopt;
}

// ---- the answer -------------------------------------------------------------

std::string Seconds(double s) {
  return FormatDuration(Ns(static_cast<int64_t>(s * 1e9)));
}

std::string Comparison::AsText(const Io& io) const {
  constexpr int kLabel = 16;
  Page page(io.columns, io.out_is_terminal && !io.no_color);
  const Range bare = RangeOf(modes_[0].seconds);
  page.Labeled("bare",
               fmt::format("{} in the median ({} to {}), {}",
                           Seconds(bare.median),
                           Seconds(bare.low), Seconds(bare.high),
                           FormatCounted(static_cast<uint64_t>(rounds_),
                                         "round", "rounds")),
               0, kLabel);
  for (const Mode& m : modes_) {
    if (!m.shim) continue;
    const Range r = RangeOf(m.slowdown_percent);
    page.Labeled(
        m.title,
        fmt::format(
            "{} in the median; each run against the bare one of its round: "
            "{:+.2f} % in the median ({})",
            Seconds(Median(m.seconds)), r.median,
            r.probability > 0
                ? fmt::format(
                      "{:+.2f} to {:+.2f} %, which holds the true value "
                      "with {:.0f} %{}",
                      r.low, r.high, 100 * r.probability,
                      r.low <= 0 && r.high >= 0
                          ? "; not told from no difference"
                          : "")
                : "one round says nothing of how much it varies"),
        0, kLabel);
    page.Labeled(
        "",
        fmt::format("the shim accounts for {} ({:.3f} %): {} calls at {:.0f} "
                    "ns (what a record takes in a warm loop here), write-outs "
                    "{}",
                    Seconds(CallsMs(m) / 1e3), CallsMs(m) / 10 / bare.median,
                    FormatCount(static_cast<uint64_t>(Median(m.calls))),
                    ns_per_call_, Seconds(Median(m.self_ns) / 1e9)),
        0, kLabel);
    if (!m.companion) continue;
    page.Labeled(
        "",
        fmt::format(
            "the companion for {} ({:.3f} %): {} switches of the whole machine "
            "{}; its own process used {} of CPU time, start and end "
            "included",
            Seconds(SwitchesMs(m) / 1e3), SwitchesMs(m) / 10 / bare.median,
            FormatCount(static_cast<uint64_t>(Median(m.switches))),
            Median(ns_per_switch_) > 0
                ? fmt::format("at {:.0f} ns", Median(ns_per_switch_))
                : "at a cost lost in noise",
            Seconds(Median(m.companion_cpu_s))),
        0, kLabel);
  }
  if (!left_out_.empty())
    page.Labeled("not compared",
                 "the companion: " + SanitizeForTerminal(left_out_), 0, kLabel);
  if (Median(modes_[1].calls) == 0)
    page.Labeled("note",
                 "no CUDA call was recorded; 'ingero stats --coverage' "
                 "tells why of a program that should make some",
                 0, kLabel);
  return page.text();
}

std::string Comparison::AsJson() const {
  const auto range = [](const std::vector<double>& values) {
    const Range r = RangeOf(values);
    return Json{{"median", r.median},
                {"low", r.low},
                {"high", r.high},
                {"probability", r.probability}};
  };
  Json out = {{"schema", {{"name", "ingero.overhead"}, {"version", 1}}},
              {"command", command_},
              {"rounds", rounds_},
              {"ns_per_call", ns_per_call_}};
  out["ns_per_switch"] =
      ns_per_switch_.empty() ? Json(nullptr) : Json(Median(ns_per_switch_));
  out["companion_left_out"] =
      left_out_.empty() ? Json(nullptr) : Json(left_out_);
  out["modes"] = Json::array();
  for (const Mode& m : modes_) {
    Json one = {{"mode", m.id}, {"seconds", range(m.seconds)}};
    if (m.shim) {
      one["slowdown_percent"] = range(m.slowdown_percent);
      one["calls"] = static_cast<uint64_t>(Median(m.calls));
      one["shim_ms"] = CallsMs(m);
    }
    if (m.companion) {
      one["switches"] = static_cast<uint64_t>(Median(m.switches));
      one["companion_ms"] = SwitchesMs(m);
      one["companion_cpu_s"] = Median(m.companion_cpu_s);
    }
    out["modes"].push_back(one);
  }
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

int RunOverhead(const Args& args, const Io& io) {
  const auto separator = std::find(args.begin(), args.end(), "--");
  bool json = false;
  int rounds = 6;
  std::string dir;
  CLI::App app(kHelp, "ingero overhead");
  app.footer(kExamples);
  app.add_option("--rounds", rounds,
                 "Runs of each kind (default 6, from which on the\n"
                 "ranges hold with 95 %)")
      ->type_name("N")
      ->check(CLI::Range(1, kMaxRounds));
  app.add_option("--dir", dir,
                 "Folder for what is recorded meanwhile (default:\n"
                 "TMPDIR, else /tmp); name one on the disk that you\n"
                 "would record to")
      ->type_name("DIR");
  app.add_flag("--json", json, "Print it as JSON, for programs");
  Args before;  // the separator: none may be
  app.add_option("COMMAND", before, "What to run, with its arguments");
  if (auto status = Parse(app, Args(args.begin(), separator), io))
    return *status;
  if (separator == args.end() || separator + 1 == args.end() || !before.empty())
    return UsageError(io, "overhead",
                      "give the command after --, as in 'ingero overhead -- "
                      "python3 train.py'");
  bool there = false;
  if (const std::string why = WhyNotRun(*(separator + 1), &there);
      !why.empty()) {
    PrintError(io, "overhead", why);
    return kFailed;
  }
  if (!dir.empty()) {
    if (auto status = RequireFolders({dir}, "overhead", io)) return *status;
    std::error_code error;
    dir = std::filesystem::absolute(dir, error).string();
  }
  auto folder = NewFolder("ingero-overhead", dir);
  if (!folder.ok()) {
    PrintError(io, "overhead", folder.status().message() + ", as with --dir");
    return kFailed;
  }
  std::optional<Failure> failure;
  std::string text;
  {
    Comparison comparison(Args(separator + 1, args.end()), rounds,
                          folder->path(), io);
    failure = comparison.Run();
    if (!failure) text = json ? comparison.AsJson() : comparison.AsText(io);
  }
  if (failure) {
    PrintError(io, "overhead", failure->message);
    return failure->exit_status;
  }
  Write(io.out, text);
  return FinishOutput(io, "overhead") ? kDone : kFailed;
}

}  // namespace ingero::cli
