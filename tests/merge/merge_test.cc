// SPDX-License-Identifier: Apache-2.0
// The whole of merge: stream files in, what the analysis sees out.
#include "merge/merge.h"

#include <gtest/gtest.h>

#include <set>

#include "merge/dump.h"
#include "merge/store_trace.h"
#include "tests/support/stream_builder.h"

namespace ingero::merge {
namespace {

using analysis::Call;
using analysis::kNone;
using analysis::ReportSource;
using analysis::Switch;
using testing::CudaStreamBuilder;
using testing::KernelStreamBuilder;
using testing::ReadFile;
using testing::TempDir;

constexpr int64_t kT0 = 100'000'000'000;  // 100 s after boot
constexpr int64_t kMs = 1'000'000;

constexpr Interval kAlways{Ns(0), Ns(INT64_MAX)};

enum Func : uint16_t {
  kLaunch = 1, kDriverLaunch, kMemcpy, kSync, kMalloc, kHostAlloc, kFreeHost,
  kModuleLoad, kQuery
};

void AddNames(CudaStreamBuilder* s) {
  s->Name(kLaunch, "cudaLaunchKernel", INGERO_LAYER_RUNTIME,
          INGERO_CLASS_LAUNCH, {INGERO_WORD_KERNEL, INGERO_WORD_STREAM});
  s->Name(kDriverLaunch, "cuLaunchKernel", INGERO_LAYER_DRIVER,
          INGERO_CLASS_LAUNCH, {INGERO_WORD_KERNEL, INGERO_WORD_STREAM});
  s->Name(kMemcpy, "cudaMemcpy", INGERO_LAYER_RUNTIME, INGERO_CLASS_COPY,
          {INGERO_WORD_DST, INGERO_WORD_SRC, INGERO_WORD_BYTES});
  s->Name(kSync, "cudaStreamSynchronize", INGERO_LAYER_RUNTIME,
          INGERO_CLASS_SYNC_STREAM, {INGERO_WORD_STREAM});
  s->Name(kMalloc, "cudaMalloc", INGERO_LAYER_RUNTIME, INGERO_CLASS_ALLOC,
          {INGERO_WORD_ADDRESS, INGERO_WORD_BYTES});
  s->Name(kHostAlloc, "cudaHostAlloc", INGERO_LAYER_RUNTIME,
          INGERO_CLASS_ALLOC_HOST, {INGERO_WORD_ADDRESS, INGERO_WORD_BYTES});
  s->Name(kFreeHost, "cudaFreeHost", INGERO_LAYER_RUNTIME,
          INGERO_CLASS_FREE_HOST, {INGERO_WORD_ADDRESS});
  s->Name(kModuleLoad, "cuModuleLoadData", INGERO_LAYER_DRIVER,
          INGERO_CLASS_MODULE, {});
  s->Name(kQuery, "cudaStreamQuery", INGERO_LAYER_RUNTIME,
          INGERO_CLASS_QUERY_STREAM, {INGERO_WORD_STREAM});
}

Result<MergeSummary> MergeDir(const TempDir& dir,
                              const std::string& output = "") {
  MergeOptions options;
  options.dirs = {dir.path()};
  options.output = output;
  return Merge(options);
}

std::unique_ptr<ReportSource> MergeAndOpen(const TempDir& dir) {
  auto summary = MergeDir(dir);
  EXPECT_TRUE(summary.ok()) << summary.status().message();
  if (!summary.ok()) return nullptr;
  auto store = OpenStore(summary->store_path);
  EXPECT_TRUE(store.ok()) << store.status().message();
  return store.ok() ? std::move(*store) : nullptr;
}

std::vector<Call> AllCalls(const ReportSource& store, uint32_t process,
                           Interval window = kAlways) {
  std::vector<Call> calls;
  auto cursor = store.trace().Calls(process, window);
  Call call;
  while (cursor->Next(&call)) calls.push_back(call);
  return calls;
}

std::vector<Switch> AllSwitches(const ReportSource& store,
                                Interval window = kAlways) {
  std::vector<Switch> all;
  auto cursor = store.trace().Switches(window);
  Switch s;
  while (cursor->Next(&s)) all.push_back(s);
  return all;
}

const std::string& NameOf(const ReportSource& store, const Call& call) {
  return store.trace().functions()[call.func].name;
}

TEST(Merge, CallsMadeAreCallsStored) {
  TempDir dir;
  CudaStreamBuilder s(2254, kT0);
  AddNames(&s);
  constexpr int kCalls = 20000;  // many blocks of stream and store
  for (int i = 0; i < kCalls; ++i) {
    const uint64_t begin = kT0 + i * kMs;
    // As recorded: the nested call ends, and is written, first.
    CudaStreamBuilder::CallSpec inner;
    inner.start = begin + 1000;
    inner.duration = 5000;
    inner.depth = 1;
    inner.words = {0x1000, 7};
    s.Call(2254, kDriverLaunch, inner);
    CudaStreamBuilder::CallSpec outer;
    outer.start = begin;
    outer.duration = 8000;
    outer.words = {0x1000, 7};
    s.Call(2254, kLaunch, outer);
  }
  s.Write(dir / "cuda-2254-1.ingero");
  auto store = MergeAndOpen(dir);
  ASSERT_NE(store, nullptr);
  ASSERT_EQ(store->trace().processes().size(), 1u);
  EXPECT_EQ(store->trace().processes()[0].pid, 2254u);
  EXPECT_EQ(store->trace().processes()[0].name, "python3");
  EXPECT_TRUE(store->trace().processes()[0].has_cuda);
  const auto calls = AllCalls(*store, 0);
  ASSERT_EQ(calls.size(), 2u * kCalls);
  for (int i = 0; i < kCalls; ++i) {
    const Call& outer = calls[2 * i];
    const Call& inner = calls[2 * i + 1];
    ASSERT_EQ(outer.begin, Ns(kT0 + i * kMs));
    ASSERT_EQ(outer.end, Ns(kT0 + i * kMs + 8000));
    ASSERT_EQ(outer.depth, 0);
    ASSERT_EQ(NameOf(*store, outer), "cudaLaunchKernel");
    ASSERT_EQ(inner.begin, Ns(kT0 + i * kMs + 1000));
    ASSERT_EQ(inner.depth, 1);
    ASSERT_EQ(inner.object, 0x1000u);
    ASSERT_EQ(inner.stream, 7u);
    ASSERT_EQ(outer.first_call, i == 0);
  }
  // A window from its first to its last call, both of the store's blocks.
  const auto some =
      AllCalls(*store, 0, {Ns(kT0 + 5 * kMs), Ns(kT0 + 9000 * kMs)});
  EXPECT_EQ(some.size(), 2u * 8995);
}

TEST(Merge, NothingToMergeSaysWhatToDo) {
  TempDir dir;
  auto summary = MergeDir(dir);
  ASSERT_FALSE(summary.ok());
  EXPECT_NE(summary.status().message().find("LD_PRELOAD"), std::string::npos);
}

}  // namespace
}  // namespace ingero::merge
