// SPDX-License-Identifier: Apache-2.0
#include "kernel_probe/recorder.h"

#include <poll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/text.h"
#include "kernel_probe/clock.h"
#include "kernel_probe/drain.h"
#include "kernel_probe/loader.h"
#include "kernel_probe/losses.h"
#include "kernel_probe/metrics.h"
#include "kernel_probe/otlp.h"
#include "kernel_probe/output.h"
#include "kernel_probe/preflight.h"
#include "kernel_probe/proc.h"
#include "kernel_probe/sampler.h"
#include "kernel_probe/stream_writer.h"
#include "kernel_probe/task_log.h"

namespace ingero::kernel_probe {
namespace {

constexpr uint64_t kFlushNs = 500'000'000;  // a live merge wants under 1 s
constexpr uint64_t kTellNs = 900'000'000;  // at each second flush
constexpr uint64_t kMinPollNs = 1'000'000;
constexpr uint64_t kMaxPollNs = 20'000'000;
// A busy CPU switches about this often; the poll must come round before its
// ring is half full.
constexpr double kFastestSwitchesPerNs = 1e-3;
constexpr int kReaderNice = -10;
// What the probes add to one (bench/README.md); merge counts with it, too.
constexpr uint64_t kProbeNsPerSwitch = 200;

const char* LossText(uint32_t loss) {
  switch (loss) {
#define X(id, value, kebab, severity, text) \
  case value:                               \
    return text;
    INGERO_LOSSES(X)
#undef X
  }
  return "unknown loss";
}

Status WriteFailure(const std::string& path, const Status& status) {
  // Another folder of the same kind does not raise a limit.
  const bool limit = status.message().find("ulimit") != std::string::npos;
  return Status::Error(
      path + ": " + status.message() +
      (limit ? "" : ", as with another folder (--dir, INGERO_DIR)"));
}

double CpuSeconds() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) / 1e9;
}

// Ends the program's signals' default actions before any thread exists; from
// then on they are read from a descriptor.
Result<Fd> BlockEndSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (int s : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&set, s);
  signal(SIGPIPE, SIG_IGN);
  if (pthread_sigmask(SIG_BLOCK, &set, nullptr) != 0)
    return Status::Errno("blocking signals", errno);
  Fd fd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd.valid()) return Status::Errno("signalfd", errno);
  return fd;
}

// Losses found so far, on their way into the stream and in total.
class LossBook {
 public:
  void Add(const Loss& loss) {
    totals_[loss.loss] += loss.count;
    Rows& rows = pending_[loss.cpu];
    rows.schema = &loss_table::kSchema;
    std::array<uint64_t, loss_table::kCount> row{};
    row[loss_table::kT] = loss.first_ns;
    row[loss_table::kEndT] = loss.last_ns;
    row[loss_table::kLoss] = loss.loss;
    row[loss_table::kCountLost] = loss.count;
    rows.Append(row);
  }
  void Flush(StreamWriter* writer) {
    for (auto& [cpu, rows] : pending_)
      (void)writer->Push(&rows, cpu, /*always=*/true);
    pending_.clear();
  }
  const std::map<uint32_t, uint64_t>& totals() const { return totals_; }
  uint64_t Total(uint32_t loss) const {
    const auto it = totals_.find(loss);
    return it == totals_.end() ? 0 : it->second;
  }
  // Events that are missing.
  uint64_t events() const {
    return Total(INGERO_LOSS_SWITCH_RING_FULL) +
           Total(INGERO_LOSS_TASK_RING_FULL) +
           Total(INGERO_LOSS_PAGE_RING_FULL) +
           Total(INGERO_LOSS_WRITER_BEHIND) + Total(INGERO_LOSS_BPF_MISSED);
  }

 private:
  std::map<uint32_t, Rows> pending_;
  std::map<uint32_t, uint64_t> totals_;
};

class Recorder {
 public:
  explicit Recorder(const Options& options) : options_(options) {}
  Status Run();

 private:
  void Say(const std::string& line) const {
    if (!options_.quiet)
      std::fprintf(stderr, "%s\n", SanitizeForTerminal(line).c_str());
  }
  Status Start();
  void Loop();
  Status Finish();
  void OnTask(const ingero_ring_task& e);
  // Losses that the kernel counted since the last call.
  void PollLosses();
  // Switches that --tree left out, so far.
  uint64_t LeftOut() const;
  void ShowStatus(uint64_t now);
  void TellSupervisor() const;
  Figures FiguresAt(uint64_t now) const;
  void PublishFigures(uint64_t now);
  // Missing from the stream so far.
  uint64_t LostRows() const {
    return losses_.events() + writer_->rows_failed();
  }

  const Options& options_;
  Fd signals_;
  Output output_;
  std::unique_ptr<Loader> loader_;
  std::unique_ptr<StreamWriter> writer_;
  std::unique_ptr<TaskLog> tasks_;
  std::unique_ptr<Drain> drain_;
  std::unique_ptr<LossReader> loss_reader_;
  std::unique_ptr<Sampler> sampler_;
  std::unique_ptr<MetricsServer> metrics_;  // null: not asked for
  std::unique_ptr<OtlpExporter> otlp_;      // likewise
  RecordingFacts facts_;
  LossBook losses_;
  std::vector<ingero_ring_task> early_;  // task events before TaskLog runs
  bool early_phase_ = true;
  uint64_t begin_ns_ = 0;
  double begin_cpu_s_ = 0;  // spent on loading
  uint64_t missed_ = 0, missed_polled_ns_ = 0;
  // Of the status line.
  bool live_ = false;
  uint64_t shown_ns_ = 0, shown_switches_ = 0;
  bool told_write_failure_ = false;
};

Status Recorder::Run() {
  INGERO_RETURN_IF_ERROR(CheckSystem(ThisSystem()));
  INGERO_ASSIGN_OR_RETURN(signals_, BlockEndSignals());
  if (!options_.ready_file.empty()) {
    if (Status can = CheckReadyFile(options_.ready_file); !can.ok())
      return std::move(can).In("--ready-file");
    unlink(options_.ready_file.c_str());
  }
  if (options_.metrics) {
    auto server = MetricsServer::Listen(*options_.metrics,
                                        options_.metrics_token);
    if (!server.ok()) return Status(server.status()).In("--metrics");
    metrics_ = std::move(*server);
  }
  INGERO_RETURN_IF_ERROR(Start());
  Loop();
  return Finish();
}

Status Recorder::Start() {
  std::vector<TreeRoot> tree = options_.tree;
  INGERO_ASSIGN_OR_RETURN(facts_.scope, FindRoots(&tree));
  facts_.page_cost_ns = MeasurePageCostNs();
  LoaderOptions load;
  load.ring_bytes = options_.ring_bytes;
  load.verbose = options_.verbose;
  load.raw_pages = options_.raw_pages;
  load.tree = std::move(tree);
  load.report = [this](const std::string& line) { Say(line); };
  INGERO_ASSIGN_OR_RETURN(loader_, Loader::Load(load));
  // Made last of what can fail, so that a failed start leaves no file. Who
  // supervises has made the folder; one that is gone again is to stay so.
  INGERO_ASSIGN_OR_RETURN(output_, OpenOutput(options_.dir, !options_.supervised));
  writer_ = std::make_unique<StreamWriter>(std::move(output_.file));
  if (Status can = writer_->WriteHeader(MakeStreamHeader()); !can.ok()) {
    unlink(output_.path.c_str());
    return WriteFailure(output_.path, can);
  }
  if (!output_.dir.note.empty()) Say(output_.dir.note);
  if (!options_.note.empty()) Say(options_.note);
  if (!facts_.scope.empty())
    Say("scope: " + facts_.scope +
        ", and who holds the CPUs that it waits for");

  const std::span<ingero_cpu_state> states(
      loader_->cpu_states(), static_cast<size_t>(loader_->cpus()));
  tasks_ = std::make_unique<TaskLog>(writer_.get());
  loss_reader_ = std::make_unique<LossReader>(states);
  sampler_ = std::make_unique<Sampler>(writer_.get(), states);
  INGERO_ASSIGN_OR_RETURN(
      drain_,
      Drain::Make(
          *loader_, writer_.get(),
          [this](const ingero_ring_task& e) { OnTask(e); },
          [this](const Loss& loss) { losses_.Add(loss); }));

  // Births are seen before the dump, the dump gives every task its storage
  // before the first switch: no gap. Tasks born meanwhile are in both; their
  // births are in the ring by now, and WithoutBorn() drops the others.
  begin_ns_ = missed_polled_ns_ = NowNs();
  INGERO_RETURN_IF_ERROR(loader_->AttachTaskProbes());
  std::vector<ingero_ring_task> existing = loader_->DumpTasks();
  AddTasksOfProc(&existing);
  drain_->Consume();
  INGERO_RETURN_IF_ERROR(loader_->AttachScheduler());

  // Opened with all privileges (a library's init may need them); after the
  // drop no thread has more than it needs.
  std::unique_ptr<Nvml> nvml;
  if (auto opened = Nvml::Open(); opened.ok()) {
    nvml = std::move(*opened);
    Say("probe nvml: attached");
  } else {
    Say("probe nvml: skipped, because " + opened.status().message() +
        " (missing: GPU samples)");
  }
  std::optional<XidLog> xids;
  if (auto opened = XidLog::Open(); opened.ok())
    xids = std::move(*opened);
  else
    Say("probe kernel log: skipped, because " + opened.status().message() +
        " (missing: errors of the NVIDIA driver)");
  if (!options_.ready_file.empty()) {
    auto ready = OpenFile(options_.ready_file,
                          O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0644);
    if (!ready.ok()) return Status(ready.status()).In("--ready-file");
  }
  if (metrics_)
    std::fprintf(stderr, "metrics: %s\n", metrics_->url().c_str());
  if (options_.otlp)
    std::fprintf(stderr, "metrics: sent to %s\n",
                 SanitizeForTerminal(options_.otlp->url()).c_str());
  TellRecording(output_);
  std::fprintf(stderr, "recording\n");
  begin_cpu_s_ = CpuSeconds();
  if (setpriority(PRIO_PROCESS, 0, kReaderNice) != 0) {
    // Without it a starved reader loses sooner, and counts it.
  }
  if (Status dropped = DropPrivileges(); !dropped.ok()) Say(dropped.message());

  writer_->Start();
  tasks_->Start();
  early_phase_ = false;
  for (const ingero_ring_task& e :
       WithoutBorn(std::move(existing), early_))
    OnTask(e);
  for (const ingero_ring_task& e : early_) OnTask(e);
  early_ = {};
  facts_.throttle_clock = loader_->throttle_clock();
  facts_.memory_stalls = loader_->MemoryStalls();
  facts_.raw_pages = options_.raw_pages;
  for (const ProbeState& probe : loader_->States())
    if (!probe.attached)
      facts_.skipped.push_back(std::string(probe.tracepoint) + ": " +
                               probe.skipped + " (missing: " + probe.without +
                               ")");
  sampler_->Start(facts_, std::move(nvml), std::move(xids));
  if (options_.otlp) otlp_ = std::make_unique<OtlpExporter>(*options_.otlp);
  PublishFigures(NowNs());
  if (metrics_) metrics_->Start();
  if (otlp_) otlp_->Start();
  if (options_.supervised) TellSupervisor();
  live_ = !options_.quiet && isatty(STDERR_FILENO) == 1;
  return {};
}

void Recorder::OnTask(const ingero_ring_task& e) {
  if (early_phase_)
    early_.push_back(e);
  else if (!tasks_->Add(e))
    losses_.Add({e.cpu, INGERO_LOSS_WRITER_BEHIND, e.t_ns, e.t_ns, 1});
}

void Recorder::PollLosses() {
  const uint64_t now = NowNs();
  loss_reader_->Poll(now, [this](const Loss& loss) { losses_.Add(loss); });
  // One call per program: not in each round.
  if (now - missed_polled_ns_ < kFlushNs) return;
  const uint64_t missed = loader_->MissedRuns();
  if (missed != missed_)
    losses_.Add({0, INGERO_LOSS_BPF_MISSED, missed_polled_ns_, now,
                 missed - missed_});
  missed_ = missed;
  missed_polled_ns_ = now;
}

void Recorder::Loop() {
  // Of two slots each at the worst.
  const double ring_records = loader_->ring_slots() / 2.0;
  const auto max_poll_ns = std::clamp(
      static_cast<uint64_t>(ring_records / kFastestSwitchesPerNs / 2),
      kMinPollNs, kMaxPollNs);
  uint64_t poll_ns = kMinPollNs;
  uint64_t flush_at = NowNs() + kFlushNs, tell_at = 0;
  const uint64_t end_ns =
      options_.duration.value == 0
          ? UINT64_MAX
          : begin_ns_ + static_cast<uint64_t>(options_.duration.value);
  for (;;) {
    const double fill = drain_->Consume();
    // Between 1/32 and 1/8 full is right; a longer sleep costs less.
    if (fill > 1.0 / 8)
      poll_ns = std::max(poll_ns / 2, kMinPollNs);
    else if (fill < 1.0 / 32)
      poll_ns = std::min(poll_ns * 2, max_poll_ns);

    const uint64_t now = NowNs();
    if (fill > 0.5 || now >= flush_at) PollLosses();
    if (now >= flush_at) {
      drain_->Flush();
      losses_.Flush(writer_.get());
      flush_at = now + kFlushNs;
      if (writer_->rows_failed() > 0 && !told_write_failure_) {
        told_write_failure_ = true;
        std::fprintf(stderr,
                     "%singero-kprobe: %s cannot be written to and rows are "
                     "being lost; free disk space, or raise ulimit -f\n",
                     live_ ? "\r\033[K" : "",
                     SanitizeForTerminal(output_.path).c_str());
      }
      if (live_) ShowStatus(now);
      PublishFigures(now);
      if (options_.supervised && now >= tell_at) {
        TellSupervisor();
        tell_at = now + kTellNs;
      }
    }
    if (now >= end_ns) return;
    const uint64_t sleep_ns =
        std::min({poll_ns, flush_at - now, end_ns - now});
    const timespec timeout{0, static_cast<long>(sleep_ns)};
    pollfd fds[] = {{signals_.get(), POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}};
    if (ppoll(fds, options_.supervised ? 2 : 1, &timeout, nullptr) <= 0)
      continue;
    if (fds[0].revents != 0) return;
    char ignored[256];
    if (fds[1].revents != 0 &&
        read(STDIN_FILENO, ignored, sizeof(ignored)) <= 0)
      return;
  }
}

Status Recorder::Finish() {
  metrics_.reset();
  loader_->Detach();
  drain_->Consume();
  missed_polled_ns_ = std::min(missed_polled_ns_, NowNs() - kFlushNs);
  PollLosses();
  drain_->Flush();
  sampler_->Finish();
  tasks_->Finish();
  losses_.Flush(writer_.get());
  const uint64_t end_ns = NowNs();
  const Status written = writer_->Finish();
  std::string not_sent;
  if (otlp_) not_sent = otlp_->Finish(FiguresAt(end_ns));

  if (live_) std::fprintf(stderr, "\r\033[K");
  const double seconds = static_cast<double>(end_ns - begin_ns_) / 1e9;
  std::string left_out;
  if (!facts_.scope.empty())
    left_out =
        ", left out " + FormatCount(LeftOut()) + " switches of others (--tree)";
  char line[512];
  std::snprintf(
      line, sizeof(line),
      "recorded %s switches and %s task events in %.1f s, lost %s%s; %s, own "
      "CPU %s: %s",
      FormatCount(drain_->recorded() -
                  writer_->rows_failed(switch_table::kSchema)).c_str(),
      FormatCount(tasks_->written() -
                  writer_->rows_failed(task_table::kSchema)).c_str(),
      seconds, FormatCount(LostRows()).c_str(),
      left_out.c_str(), FormatBytes(writer_->bytes_written()).c_str(),
      FormatPercent((CpuSeconds() - begin_cpu_s_) / seconds).c_str(), output_.path.c_str());
  Say(line);
  if (!not_sent.empty())
    std::fprintf(stderr, "ingero-kprobe: --otlp: %s\n",
                 SanitizeForTerminal(not_sent).c_str());
  for (const auto& [loss, count] : losses_.totals())
    std::fprintf(stderr, "ingero-kprobe: %s times: %s\n",
                 FormatCount(count).c_str(), LossText(loss));
  if (writer_->rows_failed() > 0)
    std::fprintf(stderr, "ingero-kprobe: %s rows: %s\n",
                 FormatCount(writer_->rows_failed()).c_str(),
                 LossText(INGERO_LOSS_WRITE_FAILED));
  return written.ok() ? Status() : WriteFailure(output_.path, written);
}

uint64_t Recorder::LeftOut() const {
  uint64_t count = 0;
  for (int cpu = 0; cpu < loader_->cpus(); ++cpu)
    count += __atomic_load_n(&loader_->cpu_states()[cpu].switches_left_out,
                             __ATOMIC_RELAXED);
  return count;
}

void Recorder::PublishFigures(uint64_t now) {
  if (!metrics_ && !otlp_) return;
  const Figures f = FiguresAt(now);
  if (metrics_) metrics_->Publish(f);
  if (otlp_) otlp_->Publish(f);
}

Figures Recorder::FiguresAt(uint64_t now) const {
  Figures f;
  f.recording = Ns(static_cast<int64_t>(now - begin_ns_));
  for (int cpu = 0; cpu < loader_->cpus(); ++cpu)
    f.switches_seen += __atomic_load_n(
        &loader_->cpu_states()[cpu].switches_seen, __ATOMIC_RELAXED);
  f.switches_recorded = drain_->recorded();
  f.switches_left_out = LeftOut();
  f.wakes = drain_->wakes();
  f.pages = drain_->pages();
  f.task_events = tasks_->written();
  f.lost = losses_.totals();
  f.lost[INGERO_LOSS_WRITE_FAILED] += writer_->rows_failed();
  f.bytes_written = writer_->bytes_written();
  f.cuda_with_shim = tasks_->cuda().with_shim();
  f.cuda_without_shim = tasks_->cuda().without_shim();
  f.own_cpu = Ns(static_cast<int64_t>(CpuSeconds() * 1e9));
  f.probes = Ns(static_cast<int64_t>(f.switches_seen * kProbeNsPerSwitch));
  uint64_t measured = 0;
  for (const ProbeState& probe : loader_->States()) measured += probe.run_ns;
  if (measured > 0) f.probes_measured = Ns(static_cast<int64_t>(measured));
  f.gpu_percent = sampler_->gpu_percent();
  return f;
}

void Recorder::TellSupervisor() const {
  char line[96];
  const int size = std::snprintf(
      line, sizeof(line), "%llu %llu %llu\n",
      static_cast<unsigned long long>(drain_->recorded()),
      static_cast<unsigned long long>(LostRows()),
      static_cast<unsigned long long>(writer_->bytes_written()));
  pollfd fd{STDOUT_FILENO, POLLOUT, 0};
  if (poll(&fd, 1, 0) != 1 || (fd.revents & POLLOUT) == 0) return;
  if (write(STDOUT_FILENO, line, static_cast<size_t>(size)) < 0) {
    // Its standard input says whether the supervisor has gone.
  }
}

void Recorder::ShowStatus(uint64_t now) {
  const uint64_t switches = drain_->recorded();
  const double seconds = static_cast<double>(now - shown_ns_) / 1e9;
  if (shown_ns_ != 0 && seconds < 0.9) return;
  const double rate =
      shown_ns_ == 0 ? 0
                     : static_cast<double>(switches - shown_switches_) / seconds;
  std::fprintf(stderr, "\r\033[K%.0f s  %s switches/s  %s recorded  %s lost  %s",
               static_cast<double>(now - begin_ns_) / 1e9,
               FormatCount(static_cast<uint64_t>(rate)).c_str(),
               FormatCount(switches).c_str(),
               FormatCount(LostRows()).c_str(),
               FormatBytes(writer_->bytes_written()).c_str());
  shown_ns_ = now;
  shown_switches_ = switches;
}

}  // namespace

Status Record(const Options& options) { return Recorder(options).Run(); }

}  // namespace ingero::kernel_probe
