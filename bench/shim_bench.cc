// SPDX-License-Identifier: Apache-2.0
// What a recorded call costs: a bare call, the same with a pair of rdtsc, and
// through the shim, for 5 and 11 arguments, in one run. Compare within a run.
// Target: the rdtsc pair plus at most 6 ns.
//
//   LD_PRELOAD=lib/libingero_cuda.so INGERO_DIR=/dev/shm/x bin/shim_bench
//
// Without LD_PRELOAD it sets that up itself and removes the recording.
#include <benchmark/benchmark.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>
#include <x86intrin.h>

#include <filesystem>
#include <string>

extern "C" {
int cudaMemcpyAsync(void*, const void*, size_t, int, void*);
int cuLaunchKernel(void*, unsigned, unsigned, unsigned, unsigned, unsigned,
                   unsigned, unsigned, void*, void**, void**);
int bare_5(void*, const void*, size_t, int, void*);
int bare_11(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
            unsigned, void*, void**, void**);
}

namespace {

// About 100 MB of records: enough write-outs to be averaged in.
constexpr int kCalls = 1'000'000;

char g_host[64], g_device[64], g_kernel;

int Call5(decltype(&bare_5) f) { return f(g_device, g_host, 64, 1, nullptr); }
int Call11(decltype(&bare_11) f) {
  return f(&g_kernel, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr);
}

// Time in user mode alone: without it the system calls of write-outs, which
// the shim records as its own (SELF), would hide the cost of the hot path.
class UserTime {
 public:
  explicit UserTime(benchmark::State& state) : state_(state), begin_(Now()) {}
  ~UserTime() {
    state_.counters["user_ns"] = (Now() - begin_) * 1e9 / kCalls;
  }

 private:
  static double Now() {
    rusage use;
    getrusage(RUSAGE_SELF, &use);
    return static_cast<double>(use.ru_utime.tv_sec) + use.ru_utime.tv_usec / 1e6;
  }
  benchmark::State& state_;
  double begin_;
};

void Bare5(benchmark::State& state) {
  UserTime user(state);
  for (auto _ : state) benchmark::DoNotOptimize(Call5(bare_5));
}
void RdtscPair5(benchmark::State& state) {
  UserTime user(state);
  for (auto _ : state) {
    auto begin = __rdtsc();
    benchmark::DoNotOptimize(Call5(bare_5));
    benchmark::DoNotOptimize(__rdtsc() - begin);
  }
}
void Shim5(benchmark::State& state) {
  UserTime user(state);
  for (auto _ : state) benchmark::DoNotOptimize(Call5(cudaMemcpyAsync));
}
void Bare11(benchmark::State& state) {
  UserTime user(state);
  for (auto _ : state) benchmark::DoNotOptimize(Call11(bare_11));
}
void RdtscPair11(benchmark::State& state) {
  UserTime user(state);
  for (auto _ : state) {
    auto begin = __rdtsc();
    benchmark::DoNotOptimize(Call11(bare_11));
    benchmark::DoNotOptimize(__rdtsc() - begin);
  }
}
void Shim11(benchmark::State& state) {
  UserTime user(state);
  for (auto _ : state) benchmark::DoNotOptimize(Call11(cuLaunchKernel));
}

BENCHMARK(Bare5)->Iterations(kCalls)->Repetitions(5);
BENCHMARK(RdtscPair5)->Iterations(kCalls)->Repetitions(5);
BENCHMARK(Shim5)->Iterations(kCalls)->Repetitions(5);
BENCHMARK(Bare11)->Iterations(kCalls)->Repetitions(5);
BENCHMARK(RdtscPair11)->Iterations(kCalls)->Repetitions(5);
BENCHMARK(Shim11)->Iterations(kCalls)->Repetitions(5);

// --count WHICH N: that many calls and nothing else, for counting instructions
// (shim_instructions.sh).
int Count(const std::string& which, long n) {
  if (which == "bare5" || which == "shim5") {
    auto* f = which == "bare5" ? bare_5 : cudaMemcpyAsync;
    for (long i = 0; i < n; ++i) benchmark::DoNotOptimize(Call5(f));
  } else {
    auto* f = which == "bare11" ? bare_11 : cuLaunchKernel;
    for (long i = 0; i < n; ++i) benchmark::DoNotOptimize(Call11(f));
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 4 && std::string(argv[1]) == "--count")
    return Count(argv[2], std::stol(argv[3]));
  std::string dir;
  if (!getenv("LD_PRELOAD")) {
    dir = "/dev/shm/ingero-shim-bench-" + std::to_string(getpid());
    setenv("LD_PRELOAD", INGERO_SHIM, 1);
    setenv("INGERO_DIR", dir.c_str(), 1);
    setenv("INGERO_BENCH_DIR", dir.c_str(), 1);
    execv("/proc/self/exe", argv);
    return 1;
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  if (const char* made = getenv("INGERO_BENCH_DIR"))
    std::filesystem::remove_all(made);
  return 0;
}
