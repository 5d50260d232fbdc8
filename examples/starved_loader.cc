// SPDX-License-Identifier: Apache-2.0
// Demo workload: the DataLoader story without PyTorch and without a GPU. The
// same "training" fed twice: first the program prepares each batch itself,
// then forked workers do and hand batches over pipes. It prints what it
// planted, so that what `ingero explain` says can be checked.
//
// Built against the simulated CUDA of tests/fakes. It uses plain CUDA runtime
// functions only, so it also builds against a real one:
//   g++ -std=c++20 -Itests/fakes examples/starved_loader.cc -lcudart
// (where the GPU work is memory sets instead of kernels).
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "cuda_abi.h"

// Only the simulated runtime has it.
extern "C" __attribute__((weak)) void fake_kernel_ns(uint64_t ns);

namespace {

constexpr size_t kRows = 2048;    // of a batch
constexpr size_t kFeatures = 100;
constexpr size_t kDataRows = 200000;
constexpr int kKernels = 12;      // a step
constexpr uint64_t kKernelNs = 150 * 1000;

struct Batch {
  float values[kRows * kFeatures];
};

uint64_t Now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1000000000u +
         static_cast<uint64_t>(t.tv_nsec);
}

[[noreturn]] void Die(const char* what) {
  fprintf(stderr, "starved_loader: %s\n", what);
  exit(1);
}

void Check(cudaError_t e, const char* what) {
  if (e != cudaSuccess) {
    fprintf(stderr, "starved_loader: %s: %s\n", what, cudaGetErrorString(e));
    exit(1);
  }
}

class DataSet {
 public:
  explicit DataSet(int passes)
      : values_(kDataRows * kFeatures, 1.5f), passes_(passes) {}
  // Gathers random rows one at a time, as a shuffling loader does; `passes`
  // stands for what an interpreter adds.
  void Gather(uint32_t* random, Batch* batch) const {
    for (int pass = 0; pass < passes_; pass++) {
      for (size_t i = 0; i < kRows; i++) {
        *random = *random * 1664525u + 1013904223u;
        size_t row = *random % kDataRows;
        memcpy(&batch->values[i * kFeatures], &values_[row * kFeatures],
               kFeatures * sizeof(float));
      }
    }
  }

 private:
  std::vector<float> values_;
  int passes_;
};

class Trainer {
 public:
  Trainer() {
    Check(cudaStreamCreate(&stream_), "cudaStreamCreate");
    Check(cudaMalloc(&input_, sizeof(Batch)), "cudaMalloc");
    Check(cudaMalloc(&weights_, 64 << 20), "cudaMalloc");
  }
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;
  void Step(const Batch& batch) {
    Check(cudaMemcpyAsync(input_, &batch, sizeof batch, cudaMemcpyHostToDevice,
                          stream_),
          "cudaMemcpyAsync");
    // Until here the CPU was copying pageable memory.
    if (drained_ != 0) {
      lost_ += Now() - drained_;
    }
    for (int i = 0; i < kKernels; i++) {
      if (fake_kernel_ns != nullptr) {
        uint64_t ns = kKernelNs;
        void* args[] = {&ns};
        Check(cudaLaunchKernel(reinterpret_cast<const void*>(fake_kernel_ns),
                               {64, 1, 1}, {256, 1, 1}, args, 0, stream_),
              "cudaLaunchKernel");
      } else {
        Check(cudaMemsetAsync(weights_, i, 64 << 20, stream_),
              "cudaMemsetAsync");
      }
    }
    Check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    drained_ = Now();
    steps_++;
  }
  // Of the `wall` ns since the last call, those without GPU work. How long
  // the simulated GPU computes is known; of a real one, that it has nothing to
  // do between a synchronisation's return and the next batch.
  uint64_t TakeLost(uint64_t wall) {
    uint64_t busy = steps_ * kKernels * kKernelNs;
    uint64_t lost = fake_kernel_ns == nullptr ? lost_
                    : wall > busy             ? wall - busy
                                              : 0;
    lost_ = steps_ = 0;
    return lost;
  }

 private:
  cudaStream_t stream_;
  void* input_;
  void* weights_;
  uint64_t drained_ = 0, lost_ = 0, steps_ = 0;
};

bool ReadAll(int fd, void* to, size_t n) {
  auto* p = static_cast<char*>(to);
  while (n > 0) {
    ssize_t r = read(fd, p, n);
    if (r <= 0) {
      return false;
    }
    p += r;
    n -= static_cast<size_t>(r);
  }
  return true;
}

void WriteAll(int fd, const void* from, size_t n) {
  auto* p = static_cast<const char*>(from);
  while (n > 0) {
    ssize_t w = write(fd, p, n);
    if (w <= 0) {
      _exit(0);  // the trainer has ended
    }
    p += w;
    n -= static_cast<size_t>(w);
  }
}

struct Planted {
  uint64_t wall = 0, lost = 0;
};

void Report(const char* phase, const Planted& p) {
  printf("planted: %-22s %6.3f s, GPU without work %6.3f s (%2.0f %%)\n",
         phase, static_cast<double>(p.wall) / 1e9,
         static_cast<double>(p.lost) / 1e9,
         100.0 * static_cast<double>(p.lost) / static_cast<double>(p.wall));
  fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  int steps = 150, workers = 4, passes = 40;
  for (int i = 1; i < argc; i += 2) {
    int* value = strcmp(argv[i], "--steps") == 0     ? &steps
                 : strcmp(argv[i], "--workers") == 0 ? &workers
                 : strcmp(argv[i], "--passes") == 0  ? &passes
                                                     : nullptr;
    if (value == nullptr || i + 1 == argc || (*value = atoi(argv[i + 1])) < 1) {
      fprintf(stderr,
              "usage: starved_loader [--steps N] [--workers N] [--passes N]\n");
      return 2;
    }
  }
  static Batch batch;
  DataSet data(passes);
  printf("starved_loader: pid %d, %d steps a phase, %d workers\n", getpid(),
         steps, workers);
  fflush(stdout);

  // Workers before the first CUDA call, as a forked process cannot use its
  // parent's CUDA. They stand still until the trainer says go.
  struct Worker {
    pid_t pid;
    int go, data;
  };
  std::vector<Worker> pool;
  for (int i = 0; i < workers; i++) {
    int go[2], out[2];
    if (pipe(go) != 0 || pipe(out) != 0) {
      Die("cannot make a pipe");
    }
    pid_t pid = fork();
    if (pid < 0) {
      Die("cannot fork");
    }
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      prctl(PR_SET_NAME, "demo_worker");
      close(go[1]);
      close(out[0]);
      char c;
      if (!ReadAll(go[0], &c, 1)) {
        _exit(0);
      }
      for (uint32_t random = static_cast<uint32_t>(i);;) {
        data.Gather(&random, &batch);
        WriteAll(out[1], &batch, sizeof batch);
      }
    }
    close(go[0]);
    close(out[1]);
    pool.push_back({pid, go[1], out[0]});
  }

  {
    Trainer trainer;
    uint32_t random = 7;
    Planted all;
    uint64_t begin = Now();
    const auto report = [&](const char* phase) {
      uint64_t now = Now();
      Planted p;
      p.wall = now - begin;
      p.lost = trainer.TakeLost(p.wall);
      all.wall += p.wall;
      all.lost += p.lost;
      begin = now;
      Report(phase, p);
    };
    trainer.Step(batch);
    report("first step");

    for (int i = 0; i < steps; i++) {
      data.Gather(&random, &batch);
      trainer.Step(batch);
    }
    report("loading in the program");

    for (const Worker& w : pool) {
      WriteAll(w.go, "g", 1);
    }
    for (int i = 0; i < steps; i++) {
      if (!ReadAll(pool[static_cast<size_t>(i) % pool.size()].data, &batch,
                   sizeof batch)) {
        Die("a worker has ended");
      }
      trainer.Step(batch);
    }
    report("loading in workers");
    Report("in all", all);
  }
  for (const Worker& w : pool) {
    kill(w.pid, SIGKILL);
    waitpid(w.pid, nullptr, 0);
  }
  return 0;
}
