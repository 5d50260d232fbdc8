// SPDX-License-Identifier: Apache-2.0
#include "code_sampler/sampler.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <chrono>
#include <cstdlib>
#include <random>
#include <string_view>

#include "base/file.h"
#include "base/stream_header.h"
#include "base/tables.h"
#include "base/task_stat.h"
#include "base/text.h"
#include "wire/wire.h"

namespace ingero::code_sampler {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kFlushNs = kSecondNs;
constexpr size_t kMostRows = 4096;
// A process may load Python, or execute one, later; and maps cost time.
constexpr int64_t kFirstRetryNs = 300'000'000, kLastRetryNs = 10 * kSecondNs;
constexpr size_t kMostProblems = 8;
// In place of a file: what a compiler within the process has made.
constexpr const char* kMadeAtRunTime = "[code made at run time]";
// Of a process: those of further threads are opened each time.
constexpr size_t kMostOpenStats = 16;

int64_t ThreadCpuNs() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return int64_t{t.tv_sec} * kSecondNs + t.tv_nsec;
}

// The letter in /proc/PID/task/TID/stat.
CodeState StateOf(int fd) {
  char text[128];
  const ssize_t n = pread(fd, text, sizeof(text), 0);
  if (n <= 0) return CodeState::kUnknown;
  const std::string_view line(text, static_cast<size_t>(n));
  const size_t end = line.rfind(')');
  if (end == line.npos || end + 2 >= line.size()) return CodeState::kUnknown;
  switch (line[end + 2]) {
    case 'R': return CodeState::kRunning;
    case 'S': return CodeState::kAsleep;
    case 'D': return CodeState::kBlocked;
    default: return CodeState::kUnknown;
  }
}

std::string LinkAt(const std::string& path) {
  char target[4096];
  const ssize_t n = readlink(path.c_str(), target, sizeof(target));
  return n > 0 ? std::string(target, static_cast<size_t>(n)) : "";
}

uint64_t PidNamespace(const std::string& of) {
  struct stat st;
  return stat(("/proc/" + of + "/ns/pid").c_str(), &st) == 0 ? st.st_ino : 0;
}

}  // namespace

struct Sampler::Process {
  explicit Process(const Watched& w)
      : watched(w), memory(static_cast<pid_t>(w.pid)) {}
  Watched watched;
  ProcessMemory memory;
  std::unique_ptr<PythonProcess> python;
  int64_t look_again = 0, retry = kFirstRetryNs;  // while there is none
  bool read = false;
  bool given_up = false;
  bool native_given_up = false;
  std::unique_ptr<NativeNames> names;
  std::map<uint32_t, Fd> stats;  // by tid
  CodeState State(uint32_t tid);
};

CodeState Sampler::Process::State(uint32_t tid) {
  const auto open = [&] {
    auto file = OpenFile(
        fmt::format("/proc/{}/task/{}/stat", watched.pid, tid), O_RDONLY);
    return file.ok() ? std::move(*file) : Fd();
  };
  const auto known = stats.find(tid);
  if (known != stats.end()) {
    const CodeState state = StateOf(known->second.get());
    if (state == CodeState::kUnknown) stats.erase(known);  // it has ended
    return state;
  }
  Fd file = open();
  const CodeState state = StateOf(file.get());
  if (file.valid() && stats.size() < kMostOpenStats)
    stats.emplace(tid, std::move(file));
  return state;
}

Sampler::Sampler(std::unique_ptr<CodeStream> stream, unsigned hz)
    : stream_(std::move(stream)),
      hz_(std::clamp(hz, 1u, kMostHz)),
      native_(hz_) {
  place_rows_.schema = &code_place_table::kSchema;
  summary_.least_hz = hz_;
}

Sampler::~Sampler() {
  if (thread_.joinable()) Stop();
}

Result<std::unique_ptr<Sampler>> Sampler::Start(const std::string& dir,
                                                unsigned hz) {
  INGERO_ASSIGN_OR_RETURN(auto stream, CodeStream::Create(dir));
  std::unique_ptr<Sampler> sampler(new Sampler(std::move(stream), hz));
  sampler->thread_ = std::thread([s = sampler.get()] { s->Run(); });
  return sampler;
}

void Sampler::Watch(std::vector<Watched> processes) {
  const std::lock_guard lock(mutex_);
  watch_ = std::move(processes);
  given_ = true;
}

SamplerSummary Sampler::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
  stream_->Finish();
  return summary_;
}

void Sampler::TakeOver(std::vector<Watched> processes) {
  std::sort(processes.begin(), processes.end());
  std::erase_if(processes_, [&](const auto& entry) {
    return !std::binary_search(processes.begin(), processes.end(), entry.first);
  });
  bool more = false;
  for (const Watched& w : processes)
    if (!processes_.contains(w)) {
      processes_.emplace(w, std::make_unique<Process>(w));
      more = true;
    }
  if (more) FollowNative();
}

void Sampler::GiveUp(Process* process, const std::string& why) {
  process->given_up = true;
  process->python.reset();
  ++processes_untold_;
  Say(*process, why);
}

void Sampler::Say(const Process& process, const std::string& why) {
  if (problems_.size() >= kMostProblems ||
      std::any_of(problems_.begin(), problems_.end(),
                  [&](const Problem& p) { return p.why == why; }))
    return;
  problems_.push_back({process.watched.pid, why});
  summary_.problems.push_back(fmt::format(
      "{}/{}: {}", SanitizeForTerminal(process.watched.name, 64),
      process.watched.pid, why));
}

void Sampler::Open(Process* process, int64_t now) {
  process->look_again = now + process->retry;
  process->retry = std::min(process->retry * 2, kLastRetryNs);
  const std::string pid = std::to_string(process->watched.pid);
  const std::string exe = LinkAt("/proc/" + pid + "/exe");
  auto maps = ReadWholeFile("/proc/" + pid + "/maps");
  if (!maps.ok()) {
    if (access(("/proc/" + pid).c_str(), F_OK) == 0 &&
        access(("/proc/" + pid + "/maps").c_str(), R_OK) != 0)
      GiveUp(process,
              "where its code is cannot be read (another user's, or with "
              "raised privileges)");
    return;
  }
  OpenPython open = PythonProcess::Open(&process->memory, *maps, exe);
  if (!open.problem.empty()) {
    GiveUp(process, open.problem);
    return;
  }
  if (open.process == nullptr) {
    // Whether it is none, or is not for us to read.
    char byte;
    const size_t end = maps->find('-');
    const uint64_t first =
        std::strtoull(maps->substr(0, end).c_str(), nullptr, 16);
    if (process->memory.Read(first, &byte, 1) == Outcome::kDenied)
      GiveUp(process,
              "where its code is cannot be read: the kernel allows that to "
              "root and, where kernel.yama.ptrace_scope is 1, to those that "
              "started it");
    return;
  }
  if (PidNamespace(pid) != PidNamespace("self")) {
    GiveUp(process, "where its code is cannot be told: it is in another pid "
                     "namespace (a container); run ingero inside");
    return;
  }
  process->python = std::move(open.process);
  process->retry = kFirstRetryNs;
  if (!process->read) ++summary_.processes;
  process->read = true;
}

void Sampler::LookAt(Process* process, int64_t now) {
  if (process->given_up) return;
  if (process->python == nullptr) {
    if (now >= process->look_again) Open(process, now);
    if (process->python == nullptr) return;
  }
  found_.clear();
  LookCounts counts;
  const uint64_t t = HostNowNs();
  if (process->python->Look(&places_, &found_, &counts) != Outcome::kRead) {
    process->python.reset();  // it has executed something else, or ended
    process->look_again = now;
    return;
  }
  summary_.samples += found_.size();
  summary_.dropped += counts.dropped;
  summary_.partial += counts.partial;
  dropped_untold_ += counts.dropped;
  for (const ThreadPlace& place : found_) {
    samples_.push_back({t, process->watched.pid, place.tid, place.place,
                        place.innermost, CodeKind::kPython,
                        process->State(place.tid)});
  }
}

void Sampler::FollowNative() {
  for (const auto& [watched, process] : processes_) {
    if (process->native_given_up) continue;
    const std::string why = native_.Follow(watched.pid);
    if (why.empty()) continue;
    process->native_given_up = true;
    Say(*process, why);
  }
}

void Sampler::DrainNative() {
  drained_.clear();
  native_.Drain(&drained_);
  dropped_untold_ += native_.TakeLost();
  if (drained_.empty()) return;
  std::map<uint32_t, Process*> by_pid;
  for (const auto& [watched, process] : processes_)
    by_pid[watched.pid] = process.get();
  for (const NativeSample& s : drained_) {
    const auto it = by_pid.find(s.pid);
    if (it == by_pid.end()) continue;  // it has ended
    Process& process = *it->second;
    if (process.names == nullptr)
      process.names = std::make_unique<NativeNames>(s.pid, &files_);
    const NativeName name = process.names->At(s.ip);
    const uint32_t place = places_.IdOf(
        {name.file.empty() ? kMadeAtRunTime : name.file, name.function, 0,
         false});
    if (place == 0) {
      ++dropped_untold_;
      continue;
    }
    ++summary_.native;
    samples_.push_back({static_cast<uint64_t>(s.t_ns), s.pid, s.tid, place,
                        place, CodeKind::kNative, CodeState::kRunning});
  }
}

void Sampler::Flush(int64_t now) {
  const uint64_t t = HostNowNs();
  for (; places_written_ < places_.size(); ++places_written_) {
    const auto id = static_cast<uint32_t>(places_written_ + 1);
    const Place& place = places_.at(id);
    const uint64_t row[] = {t, id, place.line,
                            place.user ? code_place_table::kUser : uint64_t{0}};
    static_assert(std::size(row) == code_place_table::kCount);
    place_rows_.Append(row, place.file + '\0' + place.function);
    if (place_rows_.size() >= kMostRows / 8) stream_->Write(&place_rows_);
  }
  stream_->Write(&place_rows_);
  // What ran natively is told later than it was. All of this drain is older
  // than all of the next.
  std::stable_sort(
      samples_.begin(), samples_.end(),
      [](const Sample& a, const Sample& b) { return a.t < b.t; });
  Rows rows;
  rows.schema = &code_read_table::kSchema;
  for (const Sample& s : samples_) {
    const uint64_t row[] = {s.t,         s.pid,
                            s.tid,       s.place,
                            s.innermost, static_cast<uint64_t>(s.kind),
                            static_cast<uint64_t>(s.state)};
    static_assert(std::size(row) == code_read_table::kCount);
    rows.Append(row);
    if (rows.size() >= kMostRows) stream_->Write(&rows);
  }
  stream_->Write(&rows);
  samples_.clear();
  Rows losses;
  losses.schema = &loss_table::kSchema;
  const auto lose = [&](uint64_t loss, uint64_t* count) {
    const uint64_t row[] = {t - static_cast<uint64_t>(now - flushed_), t, loss,
                            *count};
    static_assert(std::size(row) == loss_table::kCount);
    if (*count > 0) losses.Append(row);
    *count = 0;
  };
  lose(INGERO_LOSS_CODE_SAMPLES, &dropped_untold_);
  lose(INGERO_LOSS_CODE_PROCESS, &processes_untold_);
  stream_->Write(&losses);
  summary_.cpu = Ns(ThreadCpuNs());
  Rows told;
  told.schema = &sample_table::kSchema;
  const auto tell = [&](Metric metric, uint64_t instance, uint64_t value,
                        std::string_view text) {
    const uint64_t row[] = {t, static_cast<uint64_t>(metric), instance, value};
    static_assert(std::size(row) == sample_table::kCount);
    told.Append(row, text);
  };
  for (; problems_written_ < problems_.size(); ++problems_written_) {
    const Problem& p = problems_[problems_written_];
    tell(Metric::kCodeProblem, p.pid, 1, p.why);
  }
  tell(Metric::kCodeCpuNs, hz_, static_cast<uint64_t>(summary_.cpu.value), "");
  stream_->Write(&told);
  flushed_ = now;
}

void Sampler::Run() {
  std::minstd_rand random(std::random_device{}());
  const auto mono = [] { return static_cast<int64_t>(HostNowNs()); };
  const int64_t period = kSecondNs / hz_;
  flushed_ = mono();
  int64_t asked = 0, paused = 0;  // between looks, since the last flush
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (given_) {
      given_ = false;
      std::vector<Watched> watch = watch_;
      lock.unlock();
      TakeOver(std::move(watch));
      lock.lock();
    }
    lock.unlock();
    const int64_t begin = mono(), cpu = ThreadCpuNs();
    for (const auto& [watched, process] : processes_)
      LookAt(process.get(), begin);
    const int64_t looked = ThreadCpuNs();
    // Symbols of a large library take a second, once: no part of a look.
    DrainNative();
    if (const int64_t now = mono();
        now - flushed_ >= kFlushNs || samples_.size() >= kMostRows) {
      if (paused >= kFlushNs / 2)
        summary_.least_hz = std::min(
            summary_.least_hz,
            static_cast<unsigned>(int64_t{hz_} * asked / paused));
      asked = paused = 0;
      Flush(now);
      FollowNative();
    }
    const auto least = static_cast<int64_t>(
        static_cast<double>(looked - cpu) / kMostOfOneCpu);
    const int64_t pause = std::max(period, least);
    asked += period;
    paused += pause;
    const int64_t jitter =
        static_cast<int64_t>(random() % 1000) * pause / 2000 - pause / 4;
    lock.lock();
    changed_.wait_for(lock, std::chrono::nanoseconds(pause + jitter),
                      [this] { return stop_; });
  }
  lock.unlock();
  DrainNative();
  Flush(mono());
}

}  // namespace ingero::code_sampler
