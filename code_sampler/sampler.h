// SPDX-License-Identifier: Apache-2.0
// Looks at processes so many times a second and writes where their code was to
// a code stream.
//
// The times between looks vary by a quarter, so that a program with a period is
// not met at the same point of it again and again. A look costs the more, the
// more threads there are: where it would take more than kMostOfOneCpu, there
// are fewer looks, and it is said. It runs at normal priority: one that waits
// until CPUs are idle would see what programs do when CPUs are idle.
//
// Threads: Watch and the rest from one thread; one thread within, which blocks
// all signals if its maker does.
#ifndef INGERO_CODE_SAMPLER_SAMPLER_H_
#define INGERO_CODE_SAMPLER_SAMPLER_H_

#include <compare>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "base/status.h"
#include "base/tables.h"
#include "base/units.h"
#include "code_sampler/code_stream.h"
#include "code_sampler/native_names.h"
#include "code_sampler/native_threads.h"
#include "code_sampler/python_process.h"

namespace ingero::code_sampler {

inline constexpr unsigned kDefaultHz = 50, kMostHz = 1000;
inline constexpr double kMostOfOneCpu = 0.05;

struct Watched {
  uint32_t pid = 0;
  uint64_t start_ticks = 0;  // with the pid: the identity
  std::string name;          // for what is said of it
  auto operator<=>(const Watched& other) const {
    return std::tie(pid, start_ticks) <=>
           std::tie(other.pid, other.start_ticks);
  }
  bool operator==(const Watched& other) const {
    return pid == other.pid && start_ticks == other.start_ticks;
  }
};

struct SamplerSummary {
  uint64_t processes = 0;  // that were read
  uint64_t samples = 0, dropped = 0, partial = 0;
  uint64_t native = 0;  // samples of native functions
  Ns cpu;              // that it took
  unsigned least_hz = 0;  // looks a second, where its own bound held it back
  std::vector<std::string> problems;  // why processes were not read, each once
};

class Sampler {
 public:
  static Result<std::unique_ptr<Sampler>> Start(const std::string& dir,
                                                unsigned hz);
  ~Sampler();
  // The processes that are to be looked at from now on.
  void Watch(std::vector<Watched> processes);
  SamplerSummary Stop();

 private:
  struct Process;
  Sampler(std::unique_ptr<CodeStream> stream, unsigned hz);
  void Run();
  void TakeOver(std::vector<Watched> processes);
  void Open(Process* process, int64_t now);
  void LookAt(Process* process, int64_t now);
  void FollowNative();
  void DrainNative();
  void GiveUp(Process* process, const std::string& why);
  void Say(const Process& process, const std::string& why);
  void Flush(int64_t now);

  const std::unique_ptr<CodeStream> stream_;
  const unsigned hz_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false, given_ = false;
  std::vector<Watched> watch_;  // guarded by mutex_
  // Of the thread.
  std::map<Watched, std::unique_ptr<Process>> processes_;
  struct Problem {
    uint32_t pid;  // the first that has it
    std::string why;
  };
  std::vector<Problem> problems_;
  size_t problems_written_ = 0;
  Places places_;
  size_t places_written_ = 0;
  std::vector<ThreadPlace> found_;
  struct Sample {
    uint64_t t;
    uint32_t pid, tid, place, innermost;
    CodeKind kind;
    CodeState state;
  };
  std::vector<Sample> samples_;  // since the last flush
  Rows place_rows_;
  NativeThreads native_;
  NativeFiles files_;
  std::vector<NativeSample> drained_;
  SamplerSummary summary_;
  uint64_t dropped_untold_ = 0, processes_untold_ = 0;
  int64_t flushed_ = 0;
  std::thread thread_;
};

}  // namespace ingero::code_sampler

#endif  // INGERO_CODE_SAMPLER_SAMPLER_H_
