// SPDX-License-Identifier: Apache-2.0
// Starvation simulator: a trainer with a planted cause of GPU starvation, on
// simulated CUDA. It measures by itself what it lost and to whom, and writes
// that down, so that `ingero explain` can be scored against the truth.
//
//   starve_sim --preset loader-cpu-bound --seed 1 --truth truth.json
//   starve_sim --list            one preset a line
//   starve_sim --help            every cost and external cause as a flag
//
// The process asked for starts the trainer and, beside it and not as its
// children, the external causes.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <condition_variable>
#include <chrono>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "batch_channel.h"
#include "cuda_abi.h"
#include "fake_cuda.h"
#include "modes.h"
#include "sim_util.h"

namespace sim {
namespace {

using nlohmann::json;

// ---- options ------------------------------------------------------------

// X(name, default, "what")
#define SIM_NUMBERS(X)                                                       \
  X(steps, 200, "training steps")                                            \
  X(seed, 1, "of the +-10 % jitter on every planted cost")                   \
  X(workers, 0, "forked loader workers; 0 = the trainer loads")              \
  X(prefetch, 2, "batches a worker may run ahead")                           \
  X(load_cpu_us, 0, "CPU time to prepare a batch")                           \
  X(load_forks, 0, "processes started for that, one after the other")         \
  X(slow_worker_us, 0, "CPU time that worker 0 takes longer for a batch")    \
  X(load_sleep_us, 0, "sleep to prepare a batch (a remote source)")          \
  X(load_read_kib, 0, "O_DIRECT read to prepare a batch")                    \
  X(launches, 20, "kernel launches a step")                                  \
  X(launch_us, 5, "CPU time of a launch")                                    \
  X(kernel_us, 100, "GPU time of a kernel")                                  \
  X(copy_kib, 256, "host-to-device copy a step; 0 = none")                   \
  X(context_ms, 50, "first CUDA call")                                       \
  X(first_launch_us, 200, "first launch")                                    \
  X(sync_every, 1, "steps per sync; 0 = only at the end")                    \
  X(host_us, 0, "CPU time of the trainer a step")                            \
  X(touch_pages, 0, "fresh pages touched by the trainer a step")             \
  X(sleep_us, 0, "sleep of the trainer a step")                              \
  X(stop_us, 0, "the trainer is stopped by a signal a step")                 \
  X(lock_hold_us, 0, "a sibling thread holds a mutex the trainer needs")     \
  X(gil_turns, 0, "times a step that the trainer lets go of an interpreter "  \
    "lock that a sibling thread wants, too")                                 \
  X(queries, 0, "queries of the empty stream a step")                        \
  X(query_us, 1, "CPU time of one")                                          \
  X(allocations, 0, "buffers allocated and freed a step")                    \
  X(malloc_us, 20, "CPU time of allocating one")                             \
  X(module_us, 0, "a sibling thread loads a module, every tenth step")       \
  X(epoch_steps, 0, "steps after which all workers are replaced; 0 = never") \
  X(worker_end_us, 0, "CPU time that a worker needs to end")                 \
  X(engine_us, 0, "CPU time of the process above before each step")          \
  X(kill_worker_at, 0, "step at which the last worker is killed; 0 = none")  \
  X(host_functions, 0, "host functions put on the stream a step")            \
  X(phases, 1, "2 = sleep_us in the first half, host_us in the second")      \
  X(spinners, 0, "unrelated processes spinning on the trainer's CPU")        \
  X(quota_ms, 0, "CPU quota of the trainer per 100 ms, by cgroup; root")     \
  X(calls, 10000, "--mode sleepers: calls")                                  \
  X(call_us, 1000, "--mode sleepers: sleep inside each")                     \
  X(seconds, 3, "--mode states: for how long")
// X(name, default, "what")
#define SIM_TEXTS(X)                                                       \
  X(preset, "", "see --list; flags after it override it")                  \
  X(mode, "train", "train, sleepers or states")                            \
  X(truth, "", "where to write what was planted and measured (JSON)")      \
  X(transport, "pipe", "pipe or futex: how workers hand over batches")     \
  X(copy, "pinned", "pinned or pageable")                                  \
  X(sync, "block", "spin or block: how the trainer waits for the GPU")     \
  X(cpus, "", "pin everything, e.g. 0,1: of those that it may use")        \
  X(trainer_cpus, "", "pin the trainer")                                   \
  X(worker_cpus, "", "pin the workers")                                    \
  X(data_dir, "/tmp", "folder for the file that O_DIRECT reads")

struct Options {
#define X(name, value, what) uint64_t name = value;
  SIM_NUMBERS(X)
#undef X
#define X(name, value, what) std::string name = value;
  SIM_TEXTS(X)
#undef X
};

// A planted cause. `part` of the lost time (see struct Lost) is what the
// finding should report; `culprit` says who must be named.
struct Preset {
  const char* name;
  const char* cause;     // DESIGN's id; "" = control: nothing to find
  const char* accepted;  // further ids that say the same truth
  const char* part;
  const char* culprit;   // "worker", "slow-worker", "engine", "spinner",
                         // "self" or ""
  const char* flags;
  // "" = known loss of severity HIGH or MEDIUM, the rest: "low", known loss;
  // "possible", at most that much; "fact", no lost time at all.
  const char* kind = "";
  const char* also = "";  // "cause:part" that must be found beside it
};

// All fit on two CPUs. GPU time a step is 2 ms unless said otherwise.
const Preset kPresets[] = {
    {"loader-cpu-bound", "loader-cpu-bound", "", "wait", "worker",
     "--workers 1 --load-cpu-us 10000 --cpus 0,1 --steps 200"},
    // CASES 45: batches are taken in order, so every other one is late.
    {"loader-slow-worker", "loader-cpu-bound", "", "wait", "slow-worker",
     "--workers 2 --load-cpu-us 500 --slow-worker-us 14000 --cpus 0,1 "
     "--steps 200"},
    {"loader-oversubscribed", "loader-oversubscribed", "cpu-oversubscribed",
     "wait", "worker",
     "--workers 4 --load-cpu-us 10000 --trainer-cpus 0 --worker-cpus 1 "
     "--steps 200"},
    {"cpu-oversubscribed", "cpu-oversubscribed", "loader-oversubscribed",
     "wait+runnable", "worker",
     "--workers 3 --load-cpu-us 8000 --cpus 0 --steps 150"},
    {"cpu-other-process", "cpu-other-process", "", "runnable", "spinner",
     "--trainer-cpus 0 --spinners 3 --host-us 4000 --steps 80"},
    {"in-process-loading", "in-process-loading", "host-bound", "load", "",
     "--load-cpu-us 8000 --cpus 0,1 --steps 200"},
    {"fork-storm", "fork-storm", "", "load", "",
     "--load-cpu-us 12000 --load-forks 4 --cpus 0,1 --steps 150"},
    {"host-bound", "host-bound", "in-process-loading launch-bound", "host", "",
     "--host-us 8000 --copy-kib 0 --cpus 0,1 --steps 200"},
    // A server: its engine hands steps to the process that has the GPU.
    {"host-bound-engine", "host-bound", "", "engine", "engine",
     "--engine-us 8000 --copy-kib 0 --cpus 0,1 --steps 200"},
    {"memory-faults", "memory-faults", "", "touch", "",
     "--touch-pages 8192 --copy-kib 0 --cpus 0,1 --steps 150"},
    {"pageable-copy", "pageable-copy", "", "copy", "",
     "--copy pageable --copy-kib 49152 --cpus 0,1 --steps 150"},
    {"idle-by-choice", "idle-by-choice", "", "sleep", "",
     "--sleep-us 8000 --cpus 0,1 --steps 200"},
    {"stopped", "stopped", "", "stop", "",
     "--stop-us 8000 --copy-kib 0 --cpus 0,1 --steps 200"},
    {"storage-bound", "storage-bound", "", "wait", "worker",
     "--workers 1 --load-read-kib 16384 --cpus 0,1 --steps 100"},
    {"upstream-wait", "upstream-wait", "", "wait", "worker",
     "--workers 1 --load-sleep-us 10000 --cpus 0,1 --steps 200"},
    {"cgroup-quota", "cgroup-quota", "", "throttled", "",
     "--quota-ms 20 --host-us 4000 --cpus 0,1 --steps 80"},
    // Somebody else runs while the quota is used up, and also before.
    {"quota-contention", "cgroup-quota", "", "throttled", "",
     "--quota-ms 20 --host-us 4000 --trainer-cpus 0 --spinners 1 --steps 80"},
    // The program waits for a worker, and that for its quota. On one CPU: of two
    // the kernel's account is the sum.
    {"quota-loader", "cgroup-quota", "", "throttled", "",
     "--quota-ms 30 --workers 1 --load-cpu-us 10000 --cpus 0 --steps 60"},
    // There is a quota, and it lasts.
    {"quota-not-reached", "cpu-other-process", "", "runnable", "spinner",
     "--quota-ms 60 --host-us 4000 --trainer-cpus 0 --spinners 3 --steps 80"},
    {"lock-held", "lock-held", "", "lock", "self",
     "--lock-hold-us 8000 --cpus 0,1 --steps 200"},
    // As CPython's threads do: only a wait of 5 ms makes the other let go.
    {"interpreter-lock", "lock-held", "", "lock", "self",
     "--gil-turns 2 --copy-kib 0 --cpus 0,1 --steps 150"},
    {"sync-storm", "sync-storm", "", "query", "",
     "--queries 1000 --query-us 6 --cpus 0,1 --steps 150"},
    {"alloc-churn", "alloc-churn", "", "alloc", "",
     "--allocations 10 --malloc-us 600 --cpus 0,1 --steps 150"},
    {"launch-bound", "launch-bound", "", "launch", "",
     "--launches 400 --launch-us 20 --kernel-us 2 --copy-kib 0 --cpus 0,1 "
     "--steps 100",
     "possible"},
    {"cold-start", "cold-start", "", "cold", "",
     "--first-launch-us 400000 --cpus 0,1 --steps 200", "low"},
    {"lazy-load-stall", "lazy-load-stall", "", "module", "",
     "--module-us 60000 --cpus 0,1 --steps 200"},
    {"workers-replaced", "workers-replaced", "", "replace", "",
     "--workers 2 --load-cpu-us 500 --epoch-steps 20 --worker-end-us 80000 "
     "--kernel-us 300 "
     "--cpus 0,1 --steps 200"},
    {"worker-died", "worker-died", "", "", "",
     "--workers 2 --load-cpu-us 500 --kernel-us 500 --kill-worker-at 100 "
     "--cpus 0,1 --steps 200",
     "fact"},
    {"host-callback", "host-callback", "", "", "",
     "--host-functions 1 --kernel-us 500 --cpus 0,1 --steps 200", "fact"},
    // Two at once, and one after the other.
    {"two-causes", "host-bound", "in-process-loading", "host", "",
     "--host-us 6000 --sleep-us 4000 --copy-kib 0 --cpus 0,1 --steps 150", "",
     "idle-by-choice:sleep"},
    {"mixed-phases", "host-bound", "in-process-loading", "host", "",
     "--phases 2 --host-us 9000 --sleep-us 6000 --copy-kib 0 --cpus 0,1 "
     "--steps 200",
     "", "idle-by-choice:sleep"},
    // Controls.
    {"healthy", "", "gpu-bound", "", "",
     "--workers 1 --load-cpu-us 500 --kernel-us 500 --cpus 0,1 --steps 200"},
    {"gpu-bound", "", "gpu-bound", "", "",
     "--kernel-us 1000 --sync spin --cpus 0,1 --steps 100"},
    {"gpu-bound-queue", "", "gpu-bound", "", "",
     "--kernel-us 1000 --launches 3000 --sync-every 0 --copy-kib 0 --steps 1 "
     "--cpus 0,1"},
};

void Usage(FILE* f) {
  fprintf(f,
          "usage: starve_sim [--preset NAME] [--FLAG VALUE]... "
          "[--truth FILE]\n");
#define X(name, value, what) fprintf(f, "  --%-16s %s\n", #name, what);
  SIM_NUMBERS(X)
  SIM_TEXTS(X)
#undef X
  fprintf(f, "In flags - and _ are the same. --list prints the presets.\n");
}

void ParseFlags(const std::vector<std::string>& args, Options* o,
                const Preset** preset) {
  for (size_t i = 0; i < args.size(); i += 2) {
    std::string flag = args[i];
    std::replace(flag.begin(), flag.end(), '-', '_');
    if (flag.rfind("__", 0) != 0 || i + 1 == args.size()) {
      Usage(stderr);
      exit(2);
    }
    flag.erase(0, 2);
    const std::string& value = args[i + 1];
    if (flag == "preset") {
      *preset = nullptr;
      for (const Preset& p : kPresets) {
        if (value == p.name) {
          *preset = &p;
        }
      }
      if (*preset == nullptr) {
        Die("no preset is called \"" + value + "\"; see --list");
      }
      std::vector<std::string> words;
      std::string text = (*preset)->flags;
      for (size_t at = 0; at < text.size();) {
        size_t end = std::min(text.find(' ', at), text.size());
        words.push_back(text.substr(at, end - at));
        at = end + 1;
      }
      ParseFlags(words, o, preset);
      continue;
    }
    bool known = false;
#define X(name, unused, what)                            \
  if (flag == #name) {                                   \
    char* rest;                                          \
    o->name = strtoull(value.c_str(), &rest, 10);        \
    if (value.empty() || *rest != '\0') {                \
      Die("--" #name " " + value + " is not a number");  \
    }                                                    \
    known = true;                                        \
  }
    SIM_NUMBERS(X)
#undef X
#define X(name, unused, what) \
  if (flag == #name) {        \
    o->name = value;          \
    known = true;             \
  }
    SIM_TEXTS(X)
#undef X
    if (!known) {
      Die("no flag is called " + args[i] + "; see --help");
    }
  }
}

// ---- loading ------------------------------------------------------------

class Loader {
 public:
  Loader(const Options& o, uint64_t seed) : o_(o), jitter_(seed) {
    if (o.load_read_kib == 0) {
      return;
    }
    bytes_ = (o.load_read_kib * 1024 + 4095) & ~uint64_t{4095};
    path_ = o.data_dir + "/starve_sim." + std::to_string(getpid());
    int fd = open(path_.c_str(), O_CREAT | O_RDWR | O_TRUNC, 0600);
    std::vector<char> block(1 << 20, 'x');
    for (uint64_t at = 0; at < bytes_; at += block.size()) {
      if (write(fd, block.data(), block.size()) < 0) {
        Die("cannot write " + path_);
      }
    }
    fsync(fd);
    close(fd);
    fd_ = open(path_.c_str(), O_RDONLY | O_DIRECT);
    unlink(path_.c_str());
    if (fd_ < 0) {
      Die("O_DIRECT does not work in " + o.data_dir + "; use --data-dir");
    }
    buffer_ = aligned_alloc(4096, bytes_);
  }
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;
  ~Loader() {
    free(buffer_);
    if (fd_ >= 0) {
      close(fd_);
    }
  }
  void PrepareBatch() {
    for (uint64_t i = 0; i < o_.load_forks; i++) {
      const uint64_t ns = jitter_(o_.load_cpu_us * 1000 / o_.load_forks);
      pid_t pid = fork();
      if (pid < 0) {
        Die("cannot fork");
      }
      if (pid == 0) {
        prctl(PR_SET_NAME, "sim_helper");
        Burn(ns);
        _exit(0);
      }
      waitpid(pid, nullptr, 0);
    }
    if (o_.load_forks == 0) {
      Burn(jitter_(o_.load_cpu_us * 1000));
    }
    Sleep(jitter_(o_.load_sleep_us * 1000));
    if (fd_ >= 0 && pread(fd_, buffer_, bytes_, 0) < 0) {
      Die("cannot read " + path_);
    }
  }

 private:
  const Options& o_;
  Jitter jitter_;
  uint64_t bytes_ = 0;
  std::string path_;
  int fd_ = -1;
  void* buffer_ = nullptr;
};

struct Worker {
  pid_t pid = 0;
  std::string name;
  std::unique_ptr<BatchChannel> channel;
};

std::vector<Worker> StartWorkers(const Options& o) {
  std::vector<Worker> workers(o.workers);
  for (size_t i = 0; i < workers.size(); i++) {
    Worker& w = workers[i];
    w.name = "sim_worker_" + std::to_string(i);
    w.channel =
        MakeChannel(o.transport == "futex", static_cast<int>(o.prefetch));
    w.pid = fork();
    if (w.pid < 0) {
      Die("cannot fork");
    }
    if (w.pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      prctl(PR_SET_NAME, w.name.c_str());
      signal(SIGPIPE, SIG_IGN);  // told by the channel
      PinTo(ParseCpus(o.worker_cpus));
      w.channel->WorkerSide();
      for (size_t k = 0; k < i; k++) {
        workers[k].channel->WorkerSide();  // closes what the trainer kept
      }
      Loader loader(o, o.seed * 1000 + i);
      do {
        loader.PrepareBatch();
        if (i == 0) {
          Burn(o.slow_worker_us * 1000);
        }
      } while (w.channel->Put());
      Burn(o.worker_end_us * 1000);
      _exit(0);
    }
    w.channel->TrainerSide();
  }
  return workers;
}

void EndWorkers(std::vector<Worker>* workers) {
  for (Worker& w : *workers) {
    w.channel->Close();
  }
  for (Worker& w : *workers) {
    waitpid(w.pid, nullptr, 0);
  }
  workers->clear();
}

// ---- the trainer --------------------------------------------------------

// Where the time from a drained GPU to the next work went, by what the
// trainer did then (wall time).
struct Lost {
  uint64_t total = 0;
  uint64_t wait = 0;   // for a batch
  uint64_t load = 0;   // preparing it itself
  uint64_t host = 0;   // other host work
  uint64_t touch = 0;  // fresh pages
  uint64_t sleep = 0;
  uint64_t stop = 0;   // stopped by a signal
  uint64_t lock = 0;
  uint64_t copy = 0;   // pageable: inside the copy
  uint64_t query = 0;  // asking a stream that has finished
  uint64_t alloc = 0;  // allocating and freeing
  uint64_t module = 0;   // allocating, while a sibling loads a module
  uint64_t engine = 0;   // waiting for the process above
  uint64_t replace = 0;  // ending workers and starting new ones
  // Part of load, host, touch, copy and of the end of a wait for the GPU that
  // had finished, in which the thread was not on a CPU.
  uint64_t runnable = 0;
  // Part of total in which the cgroup was out of quota, by the kernel's own
  // account. A sum over CPUs, so one thread must be what is waited for.
  uint64_t throttled = 0;
};

// How long this thread has waited for a CPU, by the kernel's account
// (/proc/thread-self/schedstat); 0 where the kernel keeps none.
uint64_t RunDelayNs() {
  static const int fd = open("/proc/thread-self/schedstat", O_RDONLY);
  char text[128] = "";
  unsigned long long run = 0, delay = 0;
  if (fd < 0 || pread(fd, text, sizeof text - 1, 0) <= 0 ||
      sscanf(text, "%llu %llu", &run, &delay) != 2) {
    return 0;
  }
  return delay;
}

// When the simulated GPU finished, and how long it was without work so far.
void ReadGpu(cudaStream_t stream, uint64_t* end_ns, uint64_t* idle_ns) {
  static const auto times =
      reinterpret_cast<decltype(&fake_cuda_stream_times)>(
          dlsym(dlopen("libcuda.so.1", RTLD_NOW), "fake_cuda_stream_times"));
  if (times == nullptr || times(stream, end_ns, idle_ns) != 0) {
    Die("needs the simulated CUDA");
  }
}

// Of this process's cgroup, set by EnterQuota(); "" = no quota.
std::string cgroup_folder;

uint64_t ThrottledNs() {
  if (cgroup_folder.empty()) {
    return 0;
  }
  FILE* f = fopen((cgroup_folder + "/cpu.stat").c_str(), "r");
  char key[64];
  unsigned long long value, ns = 0;
  while (f != nullptr && fscanf(f, "%63s %llu", key, &value) == 2) {
    if (strcmp(key, "throttled_time") == 0) {  // cgroup v1
      ns = value;
    } else if (strcmp(key, "throttled_usec") == 0) {
      ns = value * 1000;
    }
  }
  if (f != nullptr) {
    fclose(f);
  }
  return ns;
}

#define CUDA(function, ...)                                               \
  do {                                                                    \
    calls[#function]++;                                                   \
    if (cudaError_t e = function(__VA_ARGS__)) {                          \
      Die(std::string(#function ": ") + cudaGetErrorName(e));             \
    }                                                                     \
  } while (0)

// Times one part of a step: wall time to *wall, time without a CPU to
// *runnable.
class Part {
 public:
  Part(uint64_t* wall, uint64_t* runnable)
      : wall_(wall), runnable_(runnable), begin_(Now()), cpu_(ThreadCpu()) {}
  ~Part() {
    uint64_t wall = Now() - begin_, cpu = ThreadCpu() - cpu_;
    *wall_ += wall;
    if (runnable_ != nullptr && wall > cpu) {
      *runnable_ += wall - cpu;
    }
  }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

 private:
  uint64_t *wall_, *runnable_, begin_, cpu_;
};

void TouchFreshPages(uint64_t pages) {
  size_t bytes = pages * 4096;
  auto* p = static_cast<volatile char*>(
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (p == MAP_FAILED) {
    Die("cannot map memory");
  }
  madvise(const_cast<char*>(p), bytes, MADV_NOHUGEPAGE);
  for (size_t i = 0; i < bytes; i += 4096) {
    p[i] = 1;
  }
  munmap(const_cast<char*>(p), bytes);
}

void LaunchKernel(uint64_t ns, cudaStream_t stream,
                  std::map<std::string, uint64_t>* counts) {
  auto& calls = *counts;
  void* args[] = {&ns};
  CUDA(cudaLaunchKernel, reinterpret_cast<const void*>(fake_kernel_ns),
       fake_dim3{64, 1, 1}, fake_dim3{256, 1, 1}, args, 0, stream);
}

void AllocateAndFree(std::map<std::string, uint64_t>* counts) {
  auto& calls = *counts;
  void* p;
  CUDA(cudaMalloc, &p, size_t{1} << 20);
  CUDA(cudaFree, p);
}

// A sibling thread that loads a module whenever it is asked to.
class ModuleLoader {
 public:
  ModuleLoader()
      : load_(reinterpret_cast<decltype(load_)>(
            dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuModuleLoadData"))),
        thread_([this] { Run(); }) {
    if (load_ == nullptr) {
      Die("libcuda.so.1 has no cuModuleLoadData");
    }
  }
  ModuleLoader(const ModuleLoader&) = delete;
  ModuleLoader& operator=(const ModuleLoader&) = delete;
  ~ModuleLoader() {
    Ask(kStop);
    thread_.join();
  }
  // Returns when the thread is about to load.
  void Begin() {
    Ask(kLoad);
    while (state_ != kLoading) {
    }
    Burn(300000);
  }

 private:
  enum { kIdle, kLoad, kLoading, kStop };
  void Ask(int what) {
    int idle;
    while (!state_.compare_exchange_weak(idle = kIdle, what)) {
      std::this_thread::yield();
    }
    syscall(SYS_futex, &state_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
  }
  void Run() {
    prctl(PR_SET_NAME, "module_loader");
    cudaFree(nullptr);  // the context
    for (;;) {
      syscall(SYS_futex, &state_, FUTEX_WAIT_PRIVATE, kIdle, nullptr, nullptr,
              0);
      if (state_ == kStop) {
        return;
      }
      if (state_ == kLoad) {
        state_ = kLoading;
        CUmodule module;
        load_(&module, "");
        state_ = kIdle;
      }
    }
  }
  CUresult (*load_)(CUmodule*, const void*);
  std::atomic<int> state_{kIdle};
  std::thread thread_;
};

// As take_gil() and drop_gil() of CPython's Python/ceval_gil.c: whoever wants it
// asks for it only after a wait of the switch interval, and who lets go of it on
// request waits until it was taken.
class InterpreterLock {
 public:
  void Take() {
    std::unique_lock lock(mutex_);
    while (locked_) {
      const uint64_t turn = turn_;
      if (free_.wait_for(lock, std::chrono::milliseconds(5)) ==
              std::cv_status::timeout &&
          locked_ && turn == turn_) {
        wanted_ = true;
      }
    }
    locked_ = true;
    ++turn_;
    wanted_ = false;
    taken_.notify_one();
  }
  void Drop() {
    std::unique_lock lock(mutex_);
    const bool asked = wanted_;
    const uint64_t turn = turn_;
    locked_ = false;
    free_.notify_one();
    if (asked) {
      taken_.wait(lock, [&] { return turn_ != turn; });
    }
  }
  bool wanted() const { return wanted_; }

 private:
  std::mutex mutex_;
  std::condition_variable free_, taken_;
  bool locked_ = false;
  uint64_t turn_ = 0;
  std::atomic<bool> wanted_{false};
};

// Between the trainer and the process above it.
struct EngineLink {
  int ask[2] = {-1, -1}, answer[2] = {-1, -1};
};
EngineLink engine_link;

void ServeSteps(const Options& o) {
  Jitter jitter(o.seed + 99);
  for (char c; read(engine_link.ask[0], &c, 1) == 1;) {
    Burn(jitter(o.engine_us * 1000));
    if (write(engine_link.answer[1], &c, 1) != 1) {
      return;
    }
  }
}

void AwaitEngine() {
  char c = 0;
  if (write(engine_link.ask[1], &c, 1) != 1 ||
      read(engine_link.answer[0], &c, 1) != 1) {
    Die("the engine has ended");
  }
}

// Stops this process and lets it go on: a process of its own, as this one
// can't.
class Stopper {
 public:
  explicit Stopper(uint64_t stop_ns) {
    const pid_t stopped = getpid();
    if (pipe(ask_) != 0 || pipe(done_) != 0 || (pid_ = fork()) < 0) {
      Die("cannot start the stopper");
    }
    if (pid_ == 0) {
      prctl(PR_SET_NAME, "sim_stopper");
      close(ask_[1]);
      for (char c; read(ask_[0], &c, 1) == 1;) {
        kill(stopped, SIGSTOP);
        Sleep(stop_ns);
        const bool told = write(done_[1], &c, 1) == 1;
        kill(stopped, SIGCONT);
        if (!told) {
          break;
        }
      }
      _exit(0);
    }
    close(ask_[0]);
    close(done_[1]);
  }
  ~Stopper() {
    close(ask_[1]);
    waitpid(pid_, nullptr, 0);
  }
  void Stop() {
    char c = 's';
    if (write(ask_[1], &c, 1) != 1 || read(done_[0], &c, 1) != 1) {
      Die("the stopper has ended");
    }
  }

 private:
  int ask_[2], done_[2];
  pid_t pid_;
};

json Train(const Options& o) {
  prctl(PR_SET_NAME, "sim_trainer");
  std::vector<Worker> workers = StartWorkers(o);
  json all_workers = json::array();
  const auto list_workers = [&] {
    for (const Worker& w : workers) {
      all_workers.push_back({{"pid", w.pid}, {"name", w.name}});
    }
  };
  list_workers();
  PinTo(ParseCpus(o.trainer_cpus));
  std::map<std::string, uint64_t> calls;
  Loader loader(o, o.seed);
  Jitter jitter(o.seed + 77);

  // Sibling thread that holds the lock most of the time.
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  std::atomic<bool> stop{false};
  std::thread sibling;
  std::atomic<pid_t> sibling_tid{0};
  if (o.lock_hold_us != 0) {
    sibling = std::thread([&] {
      prctl(PR_SET_NAME, "lock_holder");
      sibling_tid = gettid();
      while (!stop) {
        pthread_mutex_lock(&mutex);
        Burn(o.lock_hold_us * 1000);
        pthread_mutex_unlock(&mutex);
        Sleep(1000000);
      }
    });
  }

  std::unique_ptr<Stopper> stopper;
  if (o.stop_us != 0) {
    stopper = std::make_unique<Stopper>(o.stop_us * 1000);
  }

  InterpreterLock gil;
  if (o.gil_turns != 0) {
    gil.Take();
    sibling = std::thread([&] {
      prctl(PR_SET_NAME, "postprocess");
      sibling_tid = gettid();
      gil.Take();
      while (!stop) {
        Burn(20000);
        if (gil.wanted()) {
          gil.Drop();
          gil.Take();
        }
      }
      gil.Drop();
    });
  }

  // Warm-up: context, stream, memory, first launch.
  if (o.sync == "block") {
    CUDA(cudaSetDeviceFlags, cudaDeviceScheduleBlockingSync);
  }
  cudaStream_t stream;
  CUDA(cudaStreamCreate, &stream);
  size_t bytes = o.copy_kib * 1024;
  void* device = nullptr;
  void* host = nullptr;
  if (bytes != 0) {
    CUDA(cudaMalloc, &device, bytes);
    if (o.copy == "pageable") {
      host = malloc(bytes);
      memset(host, 1, bytes);
    } else {
      CUDA(cudaMallocHost, &host, bytes);
    }
  }
  // GPU use begins here.
  const uint64_t cold_begin = Now();
  LaunchKernel(1000, stream, &calls);
  CUDA(cudaStreamSynchronize, stream);
  const uint64_t cold = Now() - cold_begin;

  std::unique_ptr<ModuleLoader> modules;
  if (o.module_us != 0) {
    modules = std::make_unique<ModuleLoader>();
  }

  Lost lost;
  json gaps = json::array();
  uint64_t begin = Now();
  uint64_t drained = begin;  // 0 = work may be pending
  uint64_t throttled = ThrottledNs();  // when it drained
  // From there to the return of the wait for it, without a CPU.
  uint64_t tail_runnable = 0;
  uint64_t gpu_ns = 0, gpu_end = 0, gpu_idle = 0, gpu_idle_before = 0;
  ReadGpu(stream, &gpu_end, &gpu_idle_before);
  for (uint64_t step = 0; step < o.steps; step++) {
    Lost part;
    part.runnable = std::exchange(tail_runnable, 0);
    if (o.epoch_steps != 0 && step != 0 && step % o.epoch_steps == 0) {
      Part p(&part.replace, &part.runnable);
      EndWorkers(&workers);
      workers = StartWorkers(o);
      list_workers();
    }
    if (o.kill_worker_at != 0 && step == o.kill_worker_at) {
      kill(workers.back().pid, SIGKILL);
      waitpid(workers.back().pid, nullptr, 0);
      workers.pop_back();
    }
    if (!workers.empty()) {
      Part p(&part.wait, nullptr);
      if (!workers[step % workers.size()].channel->Take()) {
        Die("a worker has ended");
      }
    } else if (o.load_cpu_us + o.load_sleep_us + o.load_read_kib != 0) {
      Part p(&part.load, &part.runnable);
      loader.PrepareBatch();
    }
    if (o.engine_us != 0) {
      Part p(&part.engine, nullptr);
      AwaitEngine();
    }
    const bool sleeps = o.phases < 2 || step < o.steps / 2;
    const bool computes = o.phases < 2 || !sleeps;
    if (o.host_us != 0 && computes) {
      Part p(&part.host, &part.runnable);
      Burn(jitter(o.host_us * 1000));
    }
    if (o.touch_pages != 0) {
      Part p(&part.touch, &part.runnable);
      TouchFreshPages(jitter(o.touch_pages));
    }
    if (o.sleep_us != 0 && sleeps) {
      Part p(&part.sleep, nullptr);
      Sleep(jitter(o.sleep_us * 1000));
    }
    if (stopper) {
      Part p(&part.stop, nullptr);
      stopper->Stop();
    }
    if (o.lock_hold_us != 0) {
      Part p(&part.lock, nullptr);
      pthread_mutex_lock(&mutex);
      pthread_mutex_unlock(&mutex);
    }
    for (uint64_t i = 0; i < o.gil_turns; i++) {
      gil.Drop();
      // From here on the other may have it, also while it keeps the CPU.
      Part p(&part.lock, nullptr);
      std::this_thread::yield();
      gil.Take();
    }
    if (o.queries != 0) {
      Part p(&part.query, &part.runnable);
      for (uint64_t i = 0; i < o.queries; i++) {
        CUDA(cudaStreamQuery, stream);
      }
    }
    if (o.allocations != 0) {
      Part p(&part.alloc, &part.runnable);
      for (uint64_t i = 0; i < o.allocations; i++) {
        AllocateAndFree(&calls);
      }
    }
    if (modules != nullptr && step % 10 == 9) {
      Part p(&part.module, nullptr);
      modules->Begin();
      AllocateAndFree(&calls);
    }
    uint64_t submitted = Now();
    if (bytes != 0) {
      Part p(&part.copy, &part.runnable);
      CUDA(cudaMemcpyAsync, device, host, bytes, cudaMemcpyHostToDevice,
           stream);
    }
    if (o.copy == "pageable" && bytes != 0) {
      submitted = Now();  // until then the host copies, the GPU computes nothing
    } else {
      part.copy = 0;
    }
    if (drained != 0) {
      lost.total += submitted - drained;
#define ADD(x) lost.x += part.x
      ADD(wait); ADD(load); ADD(host); ADD(touch); ADD(sleep); ADD(lock);
      ADD(copy); ADD(query); ADD(alloc); ADD(module); ADD(replace);
      ADD(engine); ADD(stop);
      ADD(runnable);
#undef ADD
      lost.throttled += ThrottledNs() - throttled;
      gaps.push_back({drained, submitted});
    }
    for (uint64_t i = 0; i < o.host_functions; i++) {
      CUDA(cudaLaunchHostFunc, stream, [](void*) {}, nullptr);
    }
    for (uint64_t i = 0; i < o.launches; i++) {
      LaunchKernel(o.kernel_us * 1000, stream, &calls);
      gpu_ns += o.kernel_us * 1000;
    }
    drained = 0;
    if (o.sync_every != 0 && (step + 1) % o.sync_every == 0) {
      const uint64_t delay = RunDelayNs(), quota = ThrottledNs();
      const uint64_t entered = Now();
      CUDA(cudaStreamSynchronize, stream);
      const uint64_t returned = Now();
      ReadGpu(stream, &gpu_end, &gpu_idle);
      // A wait that began after the GPU had finished tells nobody when that was.
      drained = entered < gpu_end ? std::min(returned, gpu_end) : returned;
      const uint64_t tail = returned - drained;
      tail_runnable = std::min(tail, RunDelayNs() - delay);
      throttled = ThrottledNs();
      throttled -= std::min(tail, throttled - quota);
    }
  }
  CUDA(cudaDeviceSynchronize);
  uint64_t end = Now();
  ReadGpu(stream, &gpu_end, &gpu_idle);
  // The GPU's own account ends with its last work; a trainer that is kept off
  // the CPU before its last call starves the GPU as well.
  gpu_idle += end - std::min(end, gpu_end);
  if (drained != 0) {
    lost.total += end - drained;
    lost.throttled += ThrottledNs() - throttled;
    gaps.push_back({drained, end});
  }
  stop = true;
  if (o.gil_turns != 0) {
    gil.Drop();
  }
  modules.reset();
  if (sibling.joinable()) {
    sibling.join();
  }
  if (bytes != 0) {
    CUDA(cudaFree, device);
    if (o.copy == "pageable") {
      free(host);
    } else {
      CUDA(cudaFreeHost, host);
    }
  }
  CUDA(cudaStreamDestroy, stream);

  json truth;
  truth["pid"] = getpid();
  truth["begin_ns"] = begin;
  truth["end_ns"] = end;
  truth["gpu_work_ns"] = gpu_ns;
  truth["calls"] = calls;
  truth["gaps"] = gaps;
  truth["lost_ns"] = lost.total;
  // All of it: also between launches, and while the trainer was kept from
  // asking whether the GPU had finished.
  truth["gpu_idle_ns"] = gpu_idle - gpu_idle_before;
  truth["parts"] = {{"wait", lost.wait},   {"load", lost.load},
                    {"host", lost.host},   {"touch", lost.touch},
                    {"sleep", lost.sleep}, {"lock", lost.lock},
                    {"copy", lost.copy},   {"runnable", lost.runnable},
                    {"query", lost.query}, {"alloc", lost.alloc},
                    {"module", lost.module}, {"replace", lost.replace},
                    {"engine", lost.engine}, {"stop", lost.stop},
                    {"cold", cold},
                    // Between launches: no gap of ours, the GPU's own account.
                    {"launch", gpu_idle - gpu_idle_before -
                                   std::min(lost.total,
                                            gpu_idle - gpu_idle_before)},
                    {"throttled", lost.throttled}};
  truth["workers"] = all_workers;
  for (Worker& w : workers) {
    kill(w.pid, SIGKILL);
    waitpid(w.pid, nullptr, 0);
  }
  if (sibling_tid != 0) {
    truth["sibling_tid"] = sibling_tid.load();
  }
  return truth;
}

// ---- external causes ----------------------------------------------------

// CPU time of the whole machine so far, idle and steal left out.
uint64_t MachineCpu() {
  FILE* f = fopen("/proc/stat", "r");
  unsigned long long user = 0, nice = 0, system = 0, idle, iowait, irq = 0,
                     softirq = 0;
  if (f == nullptr ||
      fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu", &user, &nice,
             &system, &idle, &iowait, &irq, &softirq) != 7) {
    Die("cannot read /proc/stat");
  }
  fclose(f);
  return (user + nice + system + irq + softirq) *
         (1000000000u / static_cast<uint64_t>(sysconf(_SC_CLK_TCK)));
}

// CPU time of this process, its ended children and the spinners.
uint64_t OwnCpu(const std::vector<pid_t>& spinners) {
  uint64_t ns = 0;
  for (int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage usage;
    getrusage(who, &usage);
    for (const timeval& t : {usage.ru_utime, usage.ru_stime}) {
      ns += static_cast<uint64_t>(t.tv_sec) * 1000000000u +
            static_cast<uint64_t>(t.tv_usec) * 1000u;
    }
  }
  for (pid_t pid : spinners) {
    clockid_t clock;
    if (clock_getcpuclockid(pid, &clock) == 0) {
      ns += ReadClock(clock);
    }
  }
  return ns;
}

// A process of its own session, child of init: nothing of ours. Returns its
// pid; the caller kills it.
pid_t StartSpinner(const std::vector<int>& cpus, int number) {
  const pid_t owner = getpid();
  int fds[2];
  if (pipe(fds) != 0) {
    Die("cannot make a pipe");
  }
  pid_t middle = fork();
  if (middle == 0) {
    setsid();
    pid_t spinner = fork();
    if (spinner == 0) {
      close(fds[0]);
      close(fds[1]);
      std::string name = "cpu_hog_" + std::to_string(number);
      prctl(PR_SET_NAME, name.c_str());
      PinTo(cpus);
      alarm(300);
      // Until it is killed; or else until nobody is left to do that.
      while (kill(owner, 0) == 0) {
        Burn(1000000);
      }
      _exit(0);
    }
    if (write(fds[1], &spinner, sizeof spinner) != sizeof spinner) {
      _exit(1);
    }
    _exit(0);
  }
  pid_t spinner = -1;
  if (read(fds[0], &spinner, sizeof spinner) != sizeof spinner) {
    spinner = -1;
  }
  close(fds[0]);
  close(fds[1]);
  waitpid(middle, nullptr, 0);
  if (spinner <= 0) {
    Die("cannot start a spinner");
  }
  return spinner;
}

bool WriteFile(const std::string& path, const std::string& text) {
  int fd = open(path.c_str(), O_WRONLY);
  bool ok = fd >= 0 && write(fd, text.data(), text.size()) ==
                           static_cast<ssize_t>(text.size());
  if (fd >= 0) {
    close(fd);
  }
  return ok;
}

constexpr const char* kCpuHierarchies[] = {"/sys/fs/cgroup/cpu",
                                           "/sys/fs/cgroup"};

// A zombie is not: nothing of it runs any more.
bool IsAlive(int pid) {
  FILE* f = fopen(("/proc/" + std::to_string(pid) + "/stat").c_str(), "r");
  char state = 'X';
  bool read = f != nullptr && fscanf(f, "%*d (%*[^)]) %c", &state) == 1;
  if (f != nullptr) {
    fclose(f);
  }
  return read && state != 'Z' && state != 'X';
}

// Cgroups of simulators that were killed: those that nobody is in any more.
void RemoveOldGroups() {
  for (const char* root : kCpuHierarchies) {
    DIR* dir = opendir(root);
    while (const dirent* entry = dir != nullptr ? readdir(dir) : nullptr) {
      if (strncmp(entry->d_name, "starve_sim.", 11) == 0 &&
          !IsAlive(atoi(entry->d_name + 11))) {
        rmdir((std::string(root) + "/" + entry->d_name).c_str());
      }
    }
    if (dir != nullptr) {
      closedir(dir);
    }
  }
}

// Stays behind to remove the cgroup where this process is killed.
void StartJanitor() {
  int alive[2];
  if (pipe(alive) != 0) {
    Die("cannot make a pipe");
  }
  if (fork() != 0) {
    close(alive[0]);
    fcntl(alive[1], F_SETFD, FD_CLOEXEC);
    return;  // alive[1] closes when this process and the trainer have ended
  }
  setsid();
  for (int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO, alive[1]}) {
    close(fd);
  }
  char c;
  while (read(alive[0], &c, 1) < 0 && errno == EINTR) {
  }
  for (int i = 0; i < 50; i++) {  // workers may still be dying
    RemoveOldGroups();
    Sleep(20000000);
  }
  _exit(0);
}

// Puts this process into a new cgroup with a quota, cgroup_folder. What did
// not work, or "".
std::string EnterQuota(uint64_t ms) {
  RemoveOldGroups();
  std::string name = "/starve_sim." + std::to_string(getpid());
  std::string why;
  for (const char* root : kCpuHierarchies) {
    std::string dir = root + name;
    why += why.empty() ? "" : "; ";
    if (mkdir(dir.c_str(), 0755) != 0) {
      why += "mkdir " + dir + ": " + strerror(errno);
      continue;
    }
    std::string us = std::to_string(ms * 1000);
    bool v1 = WriteFile(dir + "/cpu.cfs_period_us", "100000") &&
              WriteFile(dir + "/cpu.cfs_quota_us", us);
    if (!v1) {
      WriteFile(std::string(root) + "/cgroup.subtree_control", "+cpu");
    }
    if (!v1 && !WriteFile(dir + "/cpu.max", us + " 100000")) {
      why += "no cpu controller in " + std::string(root);
    } else if (!WriteFile(dir + "/cgroup.procs", std::to_string(getpid()))) {
      why += "cannot enter " + dir + ": " + strerror(errno);
    } else {
      cgroup_folder = dir;
      return "";
    }
    rmdir(dir.c_str());
  }
  return why;
}

}  // namespace

int Main(int argc, char** argv) {
  std::vector<std::string> args(argv + 1, argv + argc);
  if (args.size() == 1 && args[0] == "--help") {
    Usage(stdout);
    return 0;
  }
  if (args.size() == 1 && args[0] == "--list") {
    for (const Preset& p : kPresets) {
      printf("%s\n", p.name);
    }
    return 0;
  }
  Options o;
  const Preset* preset = nullptr;
  ParseFlags(args, &o, &preset);
  if (o.mode != "train" && o.mode != "sleepers" && o.mode != "states") {
    Die("--mode " + o.mode + ": use train, sleepers or states");
  }
  PinTo(ParseCpus(o.cpus));
  // The simulated driver reads this at the first CUDA call.
  std::string settings = "context_ms=" + std::to_string(o.context_ms) +
                         ",launch_us=" + std::to_string(o.launch_us) +
                         ",first_launch_us=" +
                         std::to_string(o.first_launch_us) +
                         ",malloc_us=" + std::to_string(o.malloc_us) +
                         ",query_us=" + std::to_string(o.query_us) +
                         ",module_us=" + std::to_string(o.module_us);
  setenv("FAKE_CUDA", settings.c_str(), 1);

  std::vector<pid_t> spinners;
  json spinner_list = json::array();
  std::vector<int> spinner_cpus =
      ParseCpus(o.trainer_cpus.empty() ? o.cpus : o.trainer_cpus);
  for (uint64_t i = 0; i < o.spinners; i++) {
    spinners.push_back(StartSpinner(spinner_cpus, static_cast<int>(i)));
    spinner_list.push_back({{"pid", spinners.back()},
                            {"name", "cpu_hog_" + std::to_string(i)}});
  }

  if (o.quota_ms != 0) {
    StartJanitor();
  }
  uint64_t machine = MachineCpu(), own = OwnCpu(spinners);
  int fds[2];
  if (pipe(fds) != 0) {
    Die("cannot make a pipe");
  }
  if (o.engine_us != 0 &&
      (pipe(engine_link.ask) != 0 || pipe(engine_link.answer) != 0)) {
    Die("cannot make a pipe");
  }
  pid_t trainer = fork();
  if (trainer == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(fds[0]);
    close(engine_link.ask[0]);
    std::string why = o.quota_ms != 0 ? EnterQuota(o.quota_ms) : "";
    if (!why.empty()) {
      fprintf(stderr, "starve_sim: SKIP: no CPU quota can be set here: %s\n",
              why.c_str());
      exit(77);
    }
    json truth = o.mode == "train"      ? Train(o)
                 : o.mode == "sleepers" ? RunSleepers(o.calls, o.call_us)
                                        : RunStates(o.seconds, o.data_dir);
    truth["cgroup"] = cgroup_folder;
    std::string text = truth.dump();
    for (size_t at = 0; at < text.size();) {
      ssize_t n = write(fds[1], text.data() + at, text.size() - at);
      if (n <= 0) {
        exit(1);
      }
      at += static_cast<size_t>(n);
    }
    exit(0);
  }
  close(fds[1]);
  close(engine_link.ask[1]);
  if (o.engine_us != 0) {
    ServeSteps(o);
  }
  std::string text;
  char buffer[65536];
  for (ssize_t n; (n = read(fds[0], buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<size_t>(n));
  }
  int status = 0;
  waitpid(trainer, &status, 0);
  RemoveOldGroups();
  // What others used meanwhile: planted truth holds on a quiet machine only.
  machine = MachineCpu() - machine;
  own = OwnCpu(spinners) - own;
  for (pid_t pid : spinners) {
    kill(pid, SIGKILL);
  }
  if (status != 0) {
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
  }
  json truth = json::parse(text);
  truth["spinners"] = spinner_list;
  truth["engine"] = getpid();
  truth["other_cpu_ns"] = machine > own ? machine - own : 0;
  truth["preset"] = preset != nullptr ? preset->name : "";
  if (preset != nullptr) {
    truth["cause"] = preset->cause;
    truth["accepted"] = preset->accepted;
    truth["part"] = preset->part;
    truth["culprit"] = preset->culprit;
    truth["kind"] = preset->kind;
    // The loads of the loop count as start-up, too: CUDA cannot tell.
    truth["loads"] = o.module_us != 0;
    const auto lost_to = [&](const std::string& parts) {
      uint64_t ns = 0;
      for (auto& [name, value] : truth["parts"].items()) {
        if (("+" + parts + "+").find("+" + name + "+") != std::string::npos) {
          ns += value.get<uint64_t>();
        }
      }
      return ns;
    };
    if (truth.contains("parts")) {
      truth["cause_lost_ns"] = lost_to(preset->part);
      const std::string also = preset->also;
      if (const size_t colon = also.find(':'); colon != std::string::npos) {
        truth["also"] = {{"cause", also.substr(0, colon)},
                         {"lost_ns", lost_to(also.substr(colon + 1))}};
      }
    }
  }
  if (!o.truth.empty()) {
    FILE* f = fopen(o.truth.c_str(), "w");
    if (f == nullptr) {
      Die("cannot write " + o.truth);
    }
    std::string pretty = truth.dump(1) + "\n";
    fwrite(pretty.data(), 1, pretty.size(), f);
    fclose(f);
  } else if (truth.contains("lost_ns")) {
    double wall = static_cast<double>(truth["end_ns"].get<uint64_t>() -
                                      truth["begin_ns"].get<uint64_t>());
    printf("trainer %d: %.3f s, GPU without work %.3f s (%.0f %%)\n",
           truth["pid"].get<int>(), wall / 1e9,
           truth["lost_ns"].get<double>() / 1e9,
           100 * truth["lost_ns"].get<double>() / wall);
  }
  return 0;
}

}  // namespace sim

int main(int argc, char** argv) { return sim::Main(argc, argv); }
