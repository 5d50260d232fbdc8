// SPDX-License-Identifier: Apache-2.0
#include "modes.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <thread>
#include <utility>
#include <vector>

#include "cuda_abi.h"
#include "fake_cuda.h"
#include "sim_util.h"

namespace sim {

using nlohmann::json;

namespace {

void Check(cudaError_t e, const char* what) {
  if (e != cudaSuccess) {
    Die(std::string(what) + ": " + cudaGetErrorName(e));
  }
}

void Launch(uint64_t ns, cudaStream_t stream) {
  void* args[] = {&ns};
  Check(cudaLaunchKernel(reinterpret_cast<const void*>(fake_kernel_ns),
                         {1, 1, 1}, {1, 1, 1}, args, 0, stream),
        "cudaLaunchKernel");
}

// cpu: how much of it the thread had a CPU by its own clock; waited: how long
// it wanted one by the kernel's count; switches: how often the kernel counted
// that it lost the CPU against its will; rival: for how long another thread saw
// itself run on this thread's only CPU. -1 = not known.
json Interval(uint64_t begin, uint64_t end, const char* state, uint64_t cpu,
              int64_t waited, int64_t switches = -1, int64_t rival = -1) {
  return {begin, end, state, cpu, waited, switches, rival};
}

// How long the calling thread has waited for a CPU so far.
class RunDelay {
 public:
  RunDelay() : fd_(open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC)) {}
  RunDelay(const RunDelay&) = delete;
  ~RunDelay() {
    if (fd_ >= 0) {
      close(fd_);
    }
  }
  // -1 where the kernel does not count it.
  int64_t Ns() const {
    char text[80] = {};
    unsigned long long ran, waited;
    if (fd_ < 0 || pread(fd_, text, sizeof text - 1, 0) <= 0 ||
        sscanf(text, "%llu %llu", &ran, &waited) != 2) {
      return -1;
    }
    return static_cast<int64_t>(waited);
  }

 private:
  int fd_;
};

int64_t Waited(int64_t before, int64_t after) {
  return before < 0 || after < 0 ? -1 : after - before;
}

rusage ThreadUsage() {
  rusage usage;
  getrusage(RUSAGE_THREAD, &usage);
  return usage;
}

// A step between two clock reads longer than this is one in which the thread
// did not run, or was interrupted.
constexpr uint64_t kStep = 20000;

// [(begin, end)] in which the calling thread ran without a longer step.
using Runs = std::vector<std::pair<uint64_t, uint64_t>>;

// Runs until told, and says when it ran.
Runs Rival(const std::atomic<bool>& stop) {
  Runs runs(1000000);  // touched now
  size_t count = 0;
  uint64_t begin = Now(), last = begin;
  while (!stop && count + 1 < runs.size()) {
    uint64_t now = Now();
    if (now - last > kStep) {
      runs[count++] = {begin, last};
      begin = now;
    }
    last = now;
  }
  runs[count++] = {begin, last};
  while (!stop) {
    Burn(100000);
  }
  runs.resize(count);
  return runs;
}

// Says in each interval of `list` how long the rival ran.
void TellRival(json& list, const Runs& runs) {
  size_t i = 0;
  for (json& interval : list) {
    uint64_t begin = interval[0], end = interval[1], ran = 0;
    while (i < runs.size() && runs[i].second <= begin) {
      i++;
    }
    for (size_t k = i; k < runs.size() && runs[k].first < end; k++) {
      ran += std::min(end, runs[k].second) - std::max(begin, runs[k].first);
    }
    interval[6] = ran;
  }
}

// Runs all the time; in a step between two clock reads in which the kernel
// counted an involuntary switch, the thread was without a CPU at least while
// its rival ran there. The kernel's count of the wait is a witness for the steps
// without the rival alone: it begins with the wake of the next thread, not with
// the switch to it, 4 us earlier on a quiet machine, and 200 us earlier where
// the host of a virtual machine takes the CPU in between.
json Preempted(uint64_t until) {
  struct Gap {
    uint64_t begin, end, cpu;  // cpu: of the thread so far
    int64_t waited;            // so far
    int64_t switches;
  };
  std::vector<Gap> gaps(1000000);  // touched now, so that noting one is quick
  size_t count = 0;
  RunDelay delay;
  long switches = ThreadUsage().ru_nivcsw;
  int64_t waited = delay.Ns();
  uint64_t first_cpu = ThreadCpu(), first = Now(), last = first;
  while (last < until && count < gaps.size()) {
    uint64_t now = Now();
    if (now - last > kStep) {
      // Once more where the thread lost the CPU while asking.
      long seen;
      int64_t delayed;
      uint64_t cpu, before;
      do {
        before = Now();
        seen = ThreadUsage().ru_nivcsw;
        delayed = delay.Ns();
        cpu = ThreadCpu();
        now = Now();
      } while (now - before > kStep);
      if (seen != switches) {
        gaps[count++] = {last, now, cpu, delayed, seen - switches};
        switches = seen;
      }
    }
    last = now;
  }
  json list = json::array();
  uint64_t begin = first, cpu = first_cpu;
  for (size_t i = 0; i < count; i++) {
    const Gap& gap = gaps[i];
    uint64_t ran = gap.begin - begin, used = gap.cpu - cpu;
    list.push_back(Interval(begin, gap.begin, "running", ran, 0));
    list.push_back(Interval(gap.begin, gap.end, "runnable",
                            used > ran ? used - ran : 0,
                            Waited(waited, gap.waited), gap.switches));
    waited = gap.waited;
    begin = gap.end;
    cpu = gap.cpu;
  }
  list.push_back(Interval(begin, last, "running", last - begin, 0));
  return list;
}

json FutexSleep(uint64_t until) {
  json list = json::array();
  std::atomic<uint32_t> word{0};
  RunDelay delay;
  while (Now() < until) {
    timespec t{0, 10 * 1000 * 1000};
    int64_t waited = delay.Ns();
    uint64_t cpu = ThreadCpu(), begin = Now();
    syscall(SYS_futex, &word, FUTEX_WAIT, 0, &t, nullptr, 0);
    uint64_t end = Now();
    cpu = ThreadCpu() - cpu;
    list.push_back(Interval(begin, end, "sleeping", cpu,
                            Waited(waited, delay.Ns())));
  }
  return list;
}

json DirectRead(uint64_t until, const std::string& dir) {
  json list = json::array();
  constexpr size_t kBytes = 8 << 20;
  std::string path = dir + "/starve_sim.states." + std::to_string(getpid());
  int fd = open(path.c_str(), O_CREAT | O_RDWR | O_TRUNC, 0600);
  std::vector<char> block(kBytes, 'x');
  if (fd < 0 || write(fd, block.data(), kBytes) < 0) {
    Die("cannot write " + path);
  }
  fsync(fd);
  close(fd);
  fd = open(path.c_str(), O_RDONLY | O_DIRECT);
  unlink(path.c_str());
  if (fd < 0) {
    return nullptr;  // said in the truth: not planted
  }
  void* buffer = aligned_alloc(4096, kBytes);
  RunDelay delay;
  while (Now() < until) {
    int64_t waited = delay.Ns();
    uint64_t cpu = ThreadCpu(), begin = Now();
    if (pread(fd, buffer, kBytes, 0) < 0) {
      Die("cannot read " + path);
    }
    uint64_t end = Now();
    cpu = ThreadCpu() - cpu;
    list.push_back(Interval(begin, end, "io", cpu,
                            Waited(waited, delay.Ns())));
    Sleep(1000000);
  }
  free(buffer);
  close(fd);
  return list;
}

}  // namespace

json RunSleepers(uint64_t calls, uint64_t call_us) {
  prctl(PR_SET_NAME, "sim_sleepers");
  std::vector<int> cpus = AllowedCpus();
  Check(cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync),
        "cudaSetDeviceFlags");
  cudaStream_t stream;
  Check(cudaStreamCreate(&stream), "cudaStreamCreate");
  uint64_t begin = Now();
  // A call slept if the kernel counted a voluntary switch; where the thread
  // was kept from a CPU until the work was done, it does not.
  uint64_t slept = 0;
  for (uint64_t i = 0; i < calls; i++) {
    if (i % 100 == 0 && !cpus.empty()) {
      PinTo({cpus[i / 100 % cpus.size()]});
    }
    Launch(call_us * 1000, stream);
    long before = ThreadUsage().ru_nvcsw;
    Check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    slept += ThreadUsage().ru_nvcsw != before;
  }
  return {{"pid", getpid()},
          {"tid", gettid()},
          {"begin_ns", begin},
          {"end_ns", Now()},
          {"slept", slept},
          {"calls",
           {{"cudaSetDeviceFlags", 1},
            {"cudaStreamCreate", 1},
            {"cudaLaunchKernel", calls},
            {"cudaStreamSynchronize", calls}}}};
}

json RunStates(uint64_t seconds, const std::string& data_dir) {
  prctl(PR_SET_NAME, "sim_states");
  cudaStream_t stream;
  Check(cudaStreamCreate(&stream), "cudaStreamCreate");
  std::vector<int> cpus = AllowedCpus();
  uint64_t begin = Now(), until = begin + seconds * 1000000000u;
  // The preempted thread and its rival share the last CPU; the others have
  // the rest.
  std::vector<int> last = {cpus.back()};
  std::vector<int> rest(cpus.begin(), cpus.end() - (cpus.size() > 1 ? 1 : 0));
  std::atomic<bool> stop{false};
  Runs rival_runs;
  std::thread rival([&] {
    prctl(PR_SET_NAME, "rival");
    PinTo(last);
    rival_runs = Rival(stop);
  });
  json states = json::array();
  states.push_back({{"name", "preempted"}});
  states.push_back({{"name", "futex"}});
  states.push_back({{"name", "direct_read"}});
  auto run = [&](size_t i, const std::vector<int>& where, auto body) {
    return std::thread([&states, &where, i, body, stream] {
      prctl(PR_SET_NAME,
            states[i]["name"].get<std::string>().c_str());
      PinTo(where);
      states[i]["tid"] = gettid();
      Launch(1000, stream);
      states[i]["intervals"] = body();
      Launch(1000, stream);
    });
  };
  std::thread a = run(0, last, [=] { return Preempted(until); });
  std::thread b = run(1, rest, [=] { return FutexSleep(until); });
  std::thread c =
      run(2, rest, [=, &data_dir] { return DirectRead(until, data_dir); });
  a.join();
  b.join();
  c.join();
  stop = true;
  rival.join();
  TellRival(states[0]["intervals"], rival_runs);
  Check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  return {{"pid", getpid()},
          {"begin_ns", begin},
          {"end_ns", Now()},
          {"states", states},
          {"calls",
           {{"cudaStreamCreate", 1},
            {"cudaLaunchKernel", 6},
            {"cudaStreamSynchronize", 1}}}};
}

}  // namespace sim
