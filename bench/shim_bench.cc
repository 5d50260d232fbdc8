// SPDX-License-Identifier: Apache-2.0
// What a recorded call costs, in steady state.
//
//   shim_bench [--dir=FOLDER] [--benchmark_filter=...]
//
// Machines are noisy and change their clock rate, so nothing is compared
// across time: each round runs a short block of bare calls, one of the same
// calls between two rdtsc, and one of the variant, in changing order. Printed
// are medians of the differences within a round, in ns per call:
//
//   bare       the call alone
//   pair       what the rdtsc pair adds
//   added      what the variant adds
//   over_pair  added - pair; the budget is 6 for up to six arguments, 11 for
//              eleven. [over_q1, over_q3] are its quartiles
//
// A block is shorter than a slot, so most have no write-out and the median is
// the steady state; what write-outs cost is recorded by the shim itself and
// printed at the end. There the stream is read back, too: every call made must
// be in it, and nothing lost, else the status is 1.
//
// The shim is preloaded by the program itself. --count WHICH N makes that many
// calls and nothing else, for counting instructions (shim_instructions.sh).
#include <benchmark/benchmark.h>
#include <concurrentqueue.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "merge/cuda_stream.h"
#include "tests/preload/nvtx_stand_in.h"

#ifdef BENCH_LTTNG
#include "bench/lttng_calls.h"
#endif

#ifdef BENCH_OBJECT
#include <bpf/libbpf.h>

#include "bench/file_offset.h"
#endif

extern "C" {
struct grid {
  unsigned x, y, z;
};
using Call5 = int(void*, const void*, size_t, int, void*);
using Call11 = int(void*, unsigned, unsigned, unsigned, unsigned, unsigned,
                   unsigned, unsigned, void*, void**, void**);
using CallNested = int(const void*, grid, grid, void**, size_t, void*);
Call5 cudaMemcpyAsync, bare_5, plt_5, probed_5;
Call11 cuLaunchKernel, bare_11;
CallNested cudaLaunchKernel, bare_nested;
Call5 cudnnBench;  // in a library of cuDNN's name
int cudaGetLastError(void);
int bare_0(void);
int from_other_module(Call5* call, int n);
}

namespace {

constexpr int kBlock = 100;      // calls
constexpr int kRounds = 20'000;

char g_host[64], g_device[64], g_kernel;
uint64_t g_expected = 0;  // records that the stream must hold
double g_ns_per_tick = 0;

[[gnu::always_inline]] inline int Do(Call5* f) {
  return f(g_device, g_host, 64, 1, nullptr);
}
[[gnu::always_inline]] inline int Do(Call11* f) {
  return f(&g_kernel, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr);
}
[[gnu::always_inline]] inline int Do(CallNested* f) {
  return f(&g_kernel, {1, 1, 1}, {32, 1, 1}, nullptr, 0, nullptr);
}
[[gnu::always_inline]] inline int Do(int (*f)(void)) { return f(); }

// The shapes of a block. `call` is a lambda, so nothing is called twice.
template <typename Call>
void Plain(Call call, int n) {
  for (int i = 0; i < n; ++i) benchmark::DoNotOptimize(call());
}
template <typename Call>
void Pair(Call call, int n) {
  for (int i = 0; i < n; ++i) {
    const uint64_t begin = __rdtsc();
    benchmark::DoNotOptimize(call());
    benchmark::DoNotOptimize(__rdtsc() - begin);
  }
}

template <typename Block>
double Ticks(Block&& block) {
  _mm_lfence();
  const uint64_t begin = __rdtsc();
  _mm_lfence();
  block();
  _mm_lfence();
  return static_cast<double>(__rdtsc() - begin);
}

double MeasureNsPerTick() {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  const uint64_t ticks = __rdtsc();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  return std::chrono::duration<double, std::nano>(Clock::now() - begin)
             .count() / static_cast<double>(__rdtsc() - ticks);
}

double Quantile(std::vector<double>* values, double q) {
  const auto at = values->begin() +
                  static_cast<long>(q * static_cast<double>(values->size() - 1));
  std::nth_element(values->begin(), at, values->end());
  return *at;
}

// Instructions, mispredicted branches and cache misses of user mode, where the
// machine lets us count them.
class Counters {
 public:
  Counters() {
    constexpr std::array<uint64_t, 3> kEvents = {
        PERF_COUNT_HW_INSTRUCTIONS, PERF_COUNT_HW_BRANCH_MISSES,
        PERF_COUNT_HW_CACHE_MISSES};
    for (const uint64_t event : kEvents) {
      perf_event_attr attr = {};
      attr.size = sizeof(attr);
      attr.type = PERF_TYPE_HARDWARE;
      attr.config = event;
      attr.exclude_kernel = 1;
      fds_.push_back(static_cast<int>(
          syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0)));
    }
  }
  ~Counters() {
    for (const int fd : fds_)
      if (fd >= 0) close(fd);
  }
  // Per call, apart from the timed rounds.
  void Report(benchmark::State& state, const std::function<void()>& block) {
    constexpr std::array<const char*, 3> kNames = {
        "instructions", "branch_misses", "cache_misses"};
    for (size_t i = 0; i < fds_.size(); ++i) {
      uint64_t before = 0, after = 0;
      if (fds_[i] < 0) continue;
      block();
      if (read(fds_[i], &before, 8) != 8) continue;
      for (int n = 0; n < 10; ++n) block();
      if (read(fds_[i], &after, 8) != 8) continue;
      state.counters[kNames[i]] =
          static_cast<double>(after - before) / (10.0 * kBlock);
    }
  }

 private:
  std::vector<int> fds_;
};

struct Blocks {
  std::function<void(int)> bare, pair, variant;
  int records_per_call = 0;
  int calls = kBlock;
  int rounds = kRounds;
  std::function<void()> between = nullptr;  // not timed
};

void Rounds(benchmark::State& state, const Blocks& blocks) {
  std::vector<double> bare, pair, added, over;
  const double scale = g_ns_per_tick / blocks.calls;
  uint64_t made = 0;
  const auto variant = [&] {
    blocks.variant(blocks.calls);
    made += static_cast<uint64_t>(blocks.calls);
  };
  variant();  // names, slots
  int round = 0;
  for (auto _ : state) {
    double ns[3] = {};
    for (int i = 0; i < 3; ++i) {
      const int which = (round + i) % 3;
      ns[which] = scale * (which == 0 ? Ticks([&] { blocks.bare(blocks.calls); })
                           : which == 1
                               ? Ticks([&] { blocks.pair(blocks.calls); })
                               : Ticks(variant));
    }
    if (blocks.between) blocks.between();
    ++round;
    bare.push_back(ns[0]);
    pair.push_back(ns[1] - ns[0]);
    added.push_back(ns[2] - ns[0]);
    over.push_back(ns[2] - ns[1]);
    state.SetIterationTime(ns[2] / 1e9);
  }
  state.counters["bare"] = Quantile(&bare, 0.5);
  state.counters["pair"] = Quantile(&pair, 0.5);
  state.counters["added"] = Quantile(&added, 0.5);
  state.counters["over_pair"] = Quantile(&over, 0.5);
  state.counters["over_q1"] = Quantile(&over, 0.25);
  state.counters["over_q3"] = Quantile(&over, 0.75);
  if (blocks.calls == kBlock) Counters().Report(state, variant);
  g_expected += made * static_cast<uint64_t>(blocks.records_per_call);
}

template <typename F>
Blocks Compare(F* bare, F* variant, int records_per_call) {
  return {[=](int n) { Plain([=] { return Do(bare); }, n); },
          [=](int n) { Pair([=] { return Do(bare); }, n); },
          [=](int n) { Plain([=] { return Do(variant); }, n); },
          records_per_call};
}

void PltOnly(benchmark::State& state) {
  Rounds(state, Compare(bare_5, plt_5, 0));
}
void Shim5(benchmark::State& state) {
  Rounds(state, Compare(bare_5, cudaMemcpyAsync, 1));
}
void Shim11(benchmark::State& state) {
  Rounds(state, Compare(bare_11, cuLaunchKernel, 1));
}
void ShimLibrary(benchmark::State& state) {
  Rounds(state, Compare(bare_5, cudnnBench, 1));
}
// Two records a call.
void ShimNested(benchmark::State& state) {
  Rounds(state, Compare(bare_nested, cudaLaunchKernel, 2));
}
void ShimLeftOut(benchmark::State& state) {
  Rounds(state, Compare(bare_0, cudaGetLastError, 0));
}
void ShimOtherModule(benchmark::State& state) {
  Blocks blocks = Compare(bare_5, cudaMemcpyAsync, 1);
  blocks.bare = [](int n) { from_other_module(bare_5, n); };
  blocks.variant = [](int n) { from_other_module(cudaMemcpyAsync, n); };
  Rounds(state, blocks);
}
// As Shim5, while other threads make the same calls: so many in all.
void ShimThreads(benchmark::State& state) {
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> made{0};
  std::vector<std::thread> others;
  for (int64_t i = 1; i < state.range(0); ++i)
    others.emplace_back([&] {
      uint64_t mine = 0;
      while (!stop.load(std::memory_order_relaxed)) {
        Plain([] { return Do(cudaMemcpyAsync); }, kBlock);
        mine += kBlock;
      }
      made += mine;
    });
  Rounds(state, Compare(bare_5, cudaMemcpyAsync, 1));
  stop = true;
  for (std::thread& other : others) other.join();
  g_expected += made;
}
// The other ways that one might take.
void ClockGettimePair(benchmark::State& state) {
  Blocks blocks = Compare(bare_5, bare_5, 0);
  blocks.variant = [](int n) {
    for (int i = 0; i < n; ++i) {
      timespec begin, end;
      clock_gettime(CLOCK_MONOTONIC, &begin);
      benchmark::DoNotOptimize(Do(bare_5));
      clock_gettime(CLOCK_MONOTONIC, &end);
      benchmark::DoNotOptimize(end.tv_nsec - begin.tv_nsec);
    }
  };
  Rounds(state, blocks);
}
void ConcurrentQueue(benchmark::State& state) {
  struct Record {
    uint64_t start, duration, words[4];
  };
  static_assert(sizeof(Record) == 48);
  moodycamel::ConcurrentQueue<Record> queue;
  moodycamel::ProducerToken producer(queue);
  moodycamel::ConsumerToken consumer(queue);
  Blocks blocks = Compare(bare_5, bare_5, 0);
  blocks.variant = [&](int n) {
    for (int i = 0; i < n; ++i) {
      const uint64_t begin = __rdtsc();
      benchmark::DoNotOptimize(Do(bare_5));
      queue.enqueue(producer,
                    Record{begin, __rdtsc() - begin,
                           {64, 0, reinterpret_cast<uint64_t>(g_device),
                            reinterpret_cast<uint64_t>(g_host)}});
    }
  };
  blocks.between = [&] {
    std::array<Record, 256> out;
    while (queue.try_dequeue_bulk(consumer, out.begin(), out.size()) > 0)
      continue;
  };
  Rounds(state, blocks);
}

#ifdef BENCH_LTTNG
void LttngUst(benchmark::State& state) {
  // A session takes notice of this process on a thread of its own.
  for (int i = 0; i < 100 && !lttng_enabled(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  if (!lttng_enabled()) {
    state.SkipWithError("no LTTng session records it (shim_bench_lttng.sh)");
    return;
  }
  Blocks blocks = Compare(bare_5, bare_5, 0);
  blocks.variant = [](int n) {
    for (int i = 0; i < n; ++i) {
      lttng_begin(g_device, g_host, 64, 1);
      const int result = Do(bare_5);
      benchmark::DoNotOptimize(result);
      lttng_end(result);
    }
  };
  Rounds(state, blocks);
}
#endif

#ifdef BENCH_OBJECT
void UprobeUretprobe(benchmark::State& state) {
  libbpf_set_print([](libbpf_print_level, const char*, va_list) { return 0; });
  bpf_object* object = bpf_object__open_file(BENCH_OBJECT, nullptr);
  const auto where = FileOffset(reinterpret_cast<void*>(probed_5));
  if (!object || bpf_object__load(object) != 0 || !where) {
    state.SkipWithError("cannot load its BPF programs; it needs root");
    return;
  }
  std::vector<bpf_link*> links;
  for (const char* name : {"enter", "leave"})
    links.push_back(bpf_program__attach_uprobe(
        bpf_object__find_program_by_name(object, name), name[0] == 'l',
        getpid(), where->first.c_str(), where->second));
  ring_buffer* ring = ring_buffer__new(
      bpf_object__find_map_fd_by_name(object, "ring"),
      [](void* records, void*, size_t) {
        ++*static_cast<uint64_t*>(records);
        return 0;
      },
      &g_expected, nullptr);
  const uint64_t before = g_expected;
  if (links[0] && links[1] && ring) {
    Blocks blocks = Compare(bare_5, probed_5, 0);
    blocks.calls = 20;
    blocks.between = [&] { ring_buffer__consume(ring); };
    Rounds(state, blocks);
    const uint64_t expected = 20 * (static_cast<uint64_t>(state.iterations()) + 1);
    if (g_expected - before != expected)
      state.SkipWithError("its ring did not hold every call");
  } else {
    state.SkipWithError("cannot attach uprobes");
  }
  g_expected = before;
  ring_buffer__free(ring);
  for (bpf_link* link : links) bpf_link__destroy(link);
  bpf_object__close(object);
}
#endif

// A thread's first recorded call, which gets its slot, and its second.
void FirstCallOfThread(benchmark::State& state) {
  std::vector<double> first, second;
  for (auto _ : state) {
    double ns[2];
    std::thread([&] {
      for (double& t : ns) t = g_ns_per_tick * Ticks([] {
        benchmark::DoNotOptimize(Do(cudaMemcpyAsync));
      });
    }).join();
    first.push_back(ns[0]);
    second.push_back(ns[1]);
    state.SetIterationTime(ns[0] / 1e9);
  }
  g_expected += 2 * first.size();
  state.counters["first"] = Quantile(&first, 0.5);
  state.counters["second"] = Quantile(&second, 0.5);
}

#define VARIANT(f) BENCHMARK(f)->UseManualTime()->Iterations(kRounds)
VARIANT(Shim5);
VARIANT(Shim11);
VARIANT(ShimNested);
VARIANT(ShimLibrary);
VARIANT(ShimThreads)->Arg(2)->Arg(4);
VARIANT(ShimOtherModule);
VARIANT(ShimLeftOut);
VARIANT(PltOnly);
VARIANT(ClockGettimePair);
VARIANT(ConcurrentQueue);
#ifdef BENCH_LTTNG
VARIANT(LttngUst);
#endif
#ifdef BENCH_OBJECT
BENCHMARK(UprobeUretprobe)->UseManualTime()->Iterations(500);
#endif
BENCHMARK(FirstCallOfThread)->UseManualTime()->Iterations(500);

// False where the recording is not complete.
bool CheckStream(const std::string& dir) {
  uint64_t calls = 0, lost = 0, self = 0, bytes = 0;
  int streams = 0;
  for (const auto& file : std::filesystem::directory_iterator(dir)) {
    auto stream = ingero::merge::CudaStream::Open(file.path());
    if (!stream.ok()) {
      std::fprintf(stderr, "shim_bench: %s\n", stream.status().message().c_str());
      return false;
    }
    ++streams;
    calls += (*stream)->calls();
    self += (*stream)->self_ticks();
    bytes += (*stream)->bytes();
    for (const auto& loss : (*stream)->losses()) lost += loss.count;
  }
  std::printf("recorded %llu calls of %llu, lost %llu, %.1f bytes per call; "
              "write-outs and clock samples %.1f ns per call\n",
              static_cast<unsigned long long>(calls),
              static_cast<unsigned long long>(g_expected),
              static_cast<unsigned long long>(lost),
              static_cast<double>(bytes) / static_cast<double>(calls),
              static_cast<double>(self) * g_ns_per_tick /
                  static_cast<double>(calls));
  return streams == 1 && calls == g_expected && lost == 0;
}

int Count(const std::string& which, int n) {
  if (which == "bare5" || which == "shim5") {
    auto* f = which == "bare5" ? bare_5 : cudaMemcpyAsync;
    Plain([=] { return Do(f); }, n);
  } else if (which == "bareRange" || which == "shimRange") {
    Do(cudaMemcpyAsync);  // the stream begins
    Plain([] { return nvtxRangePushA("range") + nvtxRangePop(); }, n);
  } else if (which == "shimLibrary") {
    Plain([] { return Do(cudnnBench); }, n);
  } else if (which == "bare11" || which == "shim11") {
    auto* f = which == "bare11" ? bare_11 : cuLaunchKernel;
    Plain([=] { return Do(f); }, n);
  } else if (which == "bareNested" || which == "shimNested") {
    auto* f = which == "bareNested" ? bare_nested : cudaLaunchKernel;
    Plain([=] { return Do(f); }, n);
  } else {
    return 2;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 4 && std::strcmp(argv[1], "--count") == 0)
    return Count(argv[2], std::stoi(argv[3]));
  if (!getenv("INGERO_BENCH_DIR")) {
    std::string dir = "/dev/shm";
    if (argc > 1 && std::strncmp(argv[1], "--dir=", 6) == 0) {
      dir = argv[1] + 6;
      argv[1] = argv[0];
      ++argv;
    }
    dir += "/ingero-shim-bench-" + std::to_string(getpid());
    setenv("LD_PRELOAD", INGERO_SHIM, 1);
    setenv("INGERO_DIR", dir.c_str(), 1);
    setenv("INGERO_APIS", "cudnn", 1);
    setenv("INGERO_BENCH_DIR", dir.c_str(), 1);
    execv("/proc/self/exe", argv);
    return 1;
  }
  const std::string dir = getenv("INGERO_BENCH_DIR");
  benchmark::Initialize(&argc, argv);
  g_ns_per_tick = MeasureNsPerTick();
  benchmark::RunSpecifiedBenchmarks();
  const bool complete =
      g_expected == 0 || (std::filesystem::exists(dir) && CheckStream(dir));
  std::filesystem::remove_all(dir);
  if (!complete) std::fprintf(stderr, "shim_bench: the recording is not complete\n");
  return complete ? 0 : 1;
}
