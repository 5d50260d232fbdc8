// SPDX-License-Identifier: Apache-2.0
// The simulated CUDA must behave as GPU_FACTS measured real CUDA to: what is
// asynchronous, what waits, how (on the CPU or asleep), and what it counts.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "cuda_abi.h"
#include "fake_cuda.h"

namespace {

constexpr uint64_t kMs = 1000 * 1000;

uint64_t Clock(clockid_t id) {
  timespec t;
  clock_gettime(id, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1000000000u +
         static_cast<uint64_t>(t.tv_nsec);
}

struct Cost {
  uint64_t wall, cpu;
};
template <typename F>
Cost Measure(F f) {
  uint64_t wall = Clock(CLOCK_MONOTONIC), cpu = Clock(CLOCK_THREAD_CPUTIME_ID);
  f();
  return {Clock(CLOCK_MONOTONIC) - wall, Clock(CLOCK_THREAD_CPUTIME_ID) - cpu};
}

cudaError_t Launch(uint64_t ns, cudaStream_t stream) {
  void* args[] = {&ns};
  return cudaLaunchKernel(reinterpret_cast<const void*>(fake_kernel_ns),
                          {1, 1, 1}, {1, 1, 1}, args, 0, stream);
}

class FakeCuda : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(cudaSetDeviceFlags(cudaDeviceScheduleAuto), cudaSuccess);
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
              cudaSuccess);
    // First-use costs belong to no test.
    ASSERT_EQ(Launch(1, stream_), cudaSuccess);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  void TearDown() override {
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
  }
  cudaStream_t stream_ = nullptr;
};

TEST_F(FakeCuda, LaunchReturnsBeforeTheKernelEnds) {
  Cost launch = Measure([&] { Launch(50 * kMs, stream_); });
  EXPECT_LT(launch.wall, 40 * kMs);
  EXPECT_EQ(cudaStreamQuery(stream_), cudaErrorNotReady);
  Cost sync = Measure([&] { cudaStreamSynchronize(stream_); });
  EXPECT_GE(launch.wall + sync.wall, 50 * kMs);
  EXPECT_EQ(cudaStreamQuery(stream_), cudaSuccess);
}

TEST_F(FakeCuda, KernelsOfOneStreamQueueAndStreamsOverlap) {
  cudaStream_t other;
  cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
  Cost both = Measure([&] {
    Launch(30 * kMs, stream_);
    Launch(30 * kMs, stream_);
    cudaStreamSynchronize(stream_);
  });
  EXPECT_GE(both.wall, 60 * kMs);
  Launch(200 * kMs, stream_);
  Cost idle_stream = Measure([&] { cudaStreamSynchronize(other); });
  EXPECT_LT(idle_stream.wall, 100 * kMs);
  cudaStreamDestroy(other);
}

TEST_F(FakeCuda, LegacyDefaultStreamWaitsForBlockingStreams) {
  cudaStream_t blocking;
  cudaStreamCreate(&blocking);
  Launch(50 * kMs, blocking);
  Launch(1, nullptr);
  Cost wait = Measure([&] { cudaStreamSynchronize(nullptr); });
  EXPECT_GT(wait.wall, 30 * kMs);
  cudaStreamDestroy(blocking);
}

TEST_F(FakeCuda, SyncSpinsByDefaultAndSleepsUnderTheBlockingFlag) {
  Launch(60 * kMs, stream_);
  Cost spin = Measure([&] { cudaStreamSynchronize(stream_); });
  cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync);
  Launch(60 * kMs, stream_);
  Cost sleep = Measure([&] { cudaStreamSynchronize(stream_); });
  // Other processes may take the CPU from the spinning one, never give CPU
  // time to the sleeping one.
  EXPECT_LT(sleep.cpu, 10 * kMs);
  EXPECT_GT(spin.cpu, sleep.cpu);
  EXPECT_GE(sleep.wall, 50 * kMs);
  // Measured: a plain event spins even then; one with the flag sleeps.
  cudaEvent_t event;
  cudaEventCreateWithFlags(&event, cudaEventBlockingSync);
  Launch(60 * kMs, stream_);
  cudaEventRecord(event, stream_);
  EXPECT_LT(Measure([&] { cudaEventSynchronize(event); }).cpu, 10 * kMs);
  cudaEventDestroy(event);
}

TEST_F(FakeCuda, QueueHolds1021PendingLaunches) {
  // The first kernel ends late enough for all others to be pending.
  Launch(400 * kMs, stream_);
  uint64_t begin = Clock(CLOCK_MONOTONIC);
  for (int i = 1; i < 1021; i++) {
    Launch(1000, stream_);
  }
  if (Clock(CLOCK_MONOTONIC) - begin > 390 * kMs) {
    GTEST_SKIP() << "the machine is too busy to fill the queue in time";
  }
  EXPECT_EQ(cudaStreamQuery(stream_), cudaErrorNotReady);
  Launch(1000, stream_);  // number 1,022
  EXPECT_GE(Clock(CLOCK_MONOTONIC) - begin, 390 * kMs);
}

TEST_F(FakeCuda, PageableCopiesCostTheCallerPinnedOnesDoNot) {
  constexpr size_t kBytes = 32 << 20;
  std::vector<char> pageable(kBytes);
  void *device, *pinned;
  ASSERT_EQ(cudaMalloc(&device, kBytes), cudaSuccess);
  ASSERT_EQ(cudaMallocHost(&pinned, kBytes), cudaSuccess);
  Cost slow = Measure([&] {
    cudaMemcpyAsync(device, pageable.data(), kBytes, cudaMemcpyHostToDevice,
                    stream_);
  });
  Cost fast = Measure([&] {
    cudaMemcpyAsync(device, pinned, kBytes, cudaMemcpyHostToDevice, stream_);
  });
  EXPECT_GT(slow.cpu, 4 * kMs);  // 32 MiB at 6.6 GB/s
  EXPECT_LT(fast.cpu, slow.cpu);
  // A small pageable copy is staged: it does not wait for the stream.
  Launch(100 * kMs, stream_);
  EXPECT_LT(Measure([&] {
              cudaMemcpyAsync(device, pageable.data(), 32 << 10,
                              cudaMemcpyHostToDevice, stream_);
            }).wall,
            90 * kMs);
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
  EXPECT_EQ(cudaFree(device), cudaSuccess);
  EXPECT_EQ(cudaFree(device), cudaErrorInvalidValue);
}

TEST_F(FakeCuda, FreeIsAHiddenDeviceSyncFreeAsyncIsNot) {
  void *a, *b;
  ASSERT_EQ(cudaMalloc(&a, 4096), cudaSuccess);
  ASSERT_EQ(cudaMallocAsync(&b, 4096, stream_), cudaSuccess);
  Launch(100 * kMs, stream_);
  uint64_t begin = Clock(CLOCK_MONOTONIC);
  EXPECT_EQ(cudaFreeAsync(b, stream_), cudaSuccess);
  EXPECT_LT(Clock(CLOCK_MONOTONIC) - begin, 90 * kMs);
  EXPECT_EQ(cudaFree(a), cudaSuccess);
  EXPECT_GE(Clock(CLOCK_MONOTONIC) - begin, 90 * kMs);
}

TEST_F(FakeCuda, EventsOrderStreamsAndMeasure) {
  cudaStream_t other;
  cudaEvent_t begin, end;
  cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  cudaEventRecord(begin, stream_);
  Launch(40 * kMs, stream_);
  cudaEventRecord(end, stream_);
  EXPECT_EQ(cudaEventQuery(end), cudaErrorNotReady);
  float ms = 0;
  EXPECT_EQ(cudaEventElapsedTime(&ms, begin, end), cudaErrorNotReady);
  cudaStreamWaitEvent(other, end, 0);
  cudaStreamSynchronize(other);
  EXPECT_EQ(cudaEventQuery(end), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&ms, begin, end), cudaSuccess);
  EXPECT_GE(ms, 40);
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  cudaStreamDestroy(other);
}

std::atomic<pid_t> g_callback_tid;
void Callback(void*) {
  timespec t{0, 30 * 1000 * 1000};
  nanosleep(&t, nullptr);
  g_callback_tid = gettid();
}

TEST_F(FakeCuda, HostFunctionRunsOnADriverThreadAndHoldsItsStream) {
  g_callback_tid = 0;
  Launch(kMs, stream_);
  cudaLaunchHostFunc(stream_, Callback, nullptr);
  Launch(kMs, stream_);
  EXPECT_EQ(cudaStreamQuery(stream_), cudaErrorNotReady);
  cudaStreamSynchronize(stream_);
  EXPECT_NE(g_callback_tid.load(), 0);
  EXPECT_NE(g_callback_tid.load(), gettid());
}

TEST_F(FakeCuda, CaptureRecordsAndDoesNotExecute) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  ASSERT_EQ(cudaStreamBeginCapture(stream_, 0), cudaSuccess);
  Launch(20 * kMs, stream_);
  Launch(20 * kMs, stream_);
  ASSERT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(stream_), cudaSuccess);
  size_t nodes = 0;
  cudaGraphGetNodes(graph, nullptr, &nodes);
  EXPECT_EQ(nodes, 2u);
  ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
  Cost run = Measure([&] {
    cudaGraphLaunch(exec, stream_);
    cudaStreamSynchronize(stream_);
  });
  EXPECT_GE(run.wall, 40 * kMs);
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
}

TEST_F(FakeCuda, TellsWhenAStreamEndedAndForHowLongItWasIdle) {
  void* lib = dlopen("libcuda.so.1", RTLD_NOW);
  ASSERT_NE(lib, nullptr) << dlerror();
  auto times = reinterpret_cast<decltype(&fake_cuda_stream_times)>(
      dlsym(lib, "fake_cuda_stream_times"));
  ASSERT_NE(times, nullptr);
  cudaStreamSynchronize(stream_);
  uint64_t end = 0, idle = 0, idle_before = 0;
  ASSERT_EQ(times(stream_, &end, &idle_before), 0);
  EXPECT_GT(end, 0u);
  usleep(20000);
  Launch(10 * kMs, stream_);
  uint64_t first_end = 0;
  ASSERT_EQ(times(stream_, &first_end, &idle), 0);
  EXPECT_EQ(first_end - end, 10 * kMs + (idle - idle_before));
  EXPECT_GE(idle - idle_before, 20 * kMs);
  usleep(30000);  // idle again, but that has no end yet
  ASSERT_EQ(times(stream_, &end, &idle_before), 0);
  EXPECT_EQ(end, first_end);
  EXPECT_EQ(idle, idle_before);
}

TEST_F(FakeCuda, CountsArrivalsInBothLayers) {
  int64_t runtime = fake_cudart_arrivals("cudaLaunchKernel");
  int64_t driver = fake_cuda_arrivals("cuLaunchKernel");
  for (int i = 0; i < 10; i++) {
    Launch(1, stream_);
  }
  EXPECT_EQ(fake_cudart_arrivals("cudaLaunchKernel"), runtime + 10);
  EXPECT_EQ(fake_cuda_arrivals("cuLaunchKernel"), driver + 10);
  EXPECT_EQ(fake_cudart_arrivals("cudaNoSuchFunction"), -1);
  EXPECT_GT(fake_cudart_arrivals_total(), 10);
}

TEST_F(FakeCuda, AForkedChildCountsForItselfAndIsRefused) {
  pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    bool ok = fake_cudart_arrivals_total() == 0 &&
              cudaStreamSynchronize(nullptr) == cudaErrorInitializationError &&
              fake_cudart_arrivals_total() == 1;
    _exit(ok ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(FakeDriver, GetProcAddressKnowsVersionsAndStreamKinds) {
  void* lib = dlopen("libcuda.so.1", RTLD_NOW);
  ASSERT_NE(lib, nullptr) << dlerror();
  using Get = int (*)(const char*, void**, int, uint64_t, int*);
  auto get = reinterpret_cast<Get>(dlsym(lib, "cuGetProcAddress_v2"));
  ASSERT_NE(get, nullptr);
  auto find = [&](const char* name, int version, uint64_t flags) {
    void* p = nullptr;
    int status = -1;
    int result = get(name, &p, version, flags, &status);
    EXPECT_EQ(result == 0, p != nullptr) << name;
    EXPECT_EQ(status == 0, p != nullptr) << name;
    return p;
  };
  auto symbol = [&](const char* name) { return dlsym(lib, name); };
  EXPECT_EQ(find("cuMemAlloc", 3020, 0), symbol("cuMemAlloc_v2"));
  EXPECT_EQ(find("cuMemAlloc", 2000, 0), symbol("cuMemAlloc"));
  EXPECT_EQ(find("cuCtxCreate", 3020, 0), symbol("cuCtxCreate_v2"));
  EXPECT_EQ(find("cuCtxCreate", 11040, 0), symbol("cuCtxCreate_v3"));
  EXPECT_EQ(find("cuCtxCreate", 13000, 0), symbol("cuCtxCreate_v4"));
  EXPECT_EQ(find("cuStreamSynchronize", 13000, 0),
            symbol("cuStreamSynchronize"));
  EXPECT_EQ(find("cuStreamSynchronize", 13000, 2),
            symbol("cuStreamSynchronize_ptsz"));
  EXPECT_EQ(find("cuMemcpyHtoD", 13000, 2), symbol("cuMemcpyHtoD_v2_ptds"));
  EXPECT_EQ(find("cuMemFree", 13000, 2), symbol("cuMemFree_v2"));
  EXPECT_EQ(find("cuGetProcAddress", 12000, 0), symbol("cuGetProcAddress_v2"));
  EXPECT_EQ(find("cuGetProcAddress", 11030, 0), symbol("cuGetProcAddress"));
  EXPECT_EQ(find("", 0, 0), nullptr);
  EXPECT_EQ(find("cuNoSuchFunction", 13000, 0), nullptr);
  EXPECT_EQ(find("cuLaunchKernelEx", 11000, 0), nullptr);
}

TEST(FakeDriver, WhatIsNotSimulatedSaysSo) {
  void* lib = dlopen("libcuda.so.1", RTLD_NOW);
  ASSERT_NE(lib, nullptr);
  auto* f = reinterpret_cast<int (*)()>(dlsym(lib, "cuTexRefCreate"));
  ASSERT_NE(f, nullptr);
  EXPECT_EQ(f(), CUDA_ERROR_NOT_SUPPORTED);
}

}  // namespace
