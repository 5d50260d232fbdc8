// SPDX-License-Identifier: Apache-2.0
// What a store says of how calls were seen, and of who was not recorded.
#include "merge/coverage.h"

#include <gtest/gtest.h>

#include <map>

#include "merge/merge.h"
#include "merge/trace_reader.h"
#include "tests/support/stream_builder.h"

namespace ingero::merge {
namespace {

using testing::CudaStreamBuilder;
using testing::KernelStreamBuilder;
using testing::TempDir;

constexpr int64_t kT0 = 100'000'000'000;  // 100 s after boot
constexpr int64_t kMs = 1'000'000;
constexpr uint16_t kSync = 1;

void AddNames(CudaStreamBuilder* s) {
  s->Name(kSync, "cudaStreamSynchronize", INGERO_LAYER_RUNTIME,
          INGERO_CLASS_SYNC_STREAM, {INGERO_WORD_STREAM});
}

Result<MergeSummary> MergeDir(const TempDir& dir) {
  MergeOptions options;
  options.dirs = {dir.path()};
  return Merge(options);
}

// Coverage of the stores' processes by pid.
std::map<uint32_t, ProcessCoverage> CoverageOf(const std::string& path) {
  std::map<uint32_t, ProcessCoverage> all;
  auto trace = OpenTrace(path);
  EXPECT_TRUE(trace.ok());
  if (trace.ok())
    for (ProcessCoverage& c : ReadCoverage(**trace))
      all[(*trace)->processes()[c.process].pid] = std::move(c);
  return all;
}

TEST(Coverage, TellsWhatWasSeenAndWhatEscaped) {
  TempDir dir;
  CudaStreamBuilder s(10, kT0);
  AddNames(&s);
  s.Call(10, kSync, kT0, 500);
  s.Coverage(INGERO_WAY_MAPPED, "/opt/lib/libcudart.so.13.0.96", 1);
  s.Coverage(INGERO_WAY_MAPPED, "/opt/lib/libcublas.so.13.1.0.3", 1);
  // Totals so far: the last one counts.
  s.Coverage(INGERO_WAY_LINKED, "", 1);
  s.Coverage(INGERO_WAY_LINKED, "", 3);
  s.Coverage(INGERO_WAY_PROC_ADDRESS, "", 2);
  s.Coverage(INGERO_WAY_ENTRIES, "cudaMalloc cudaFree", 2, INGERO_WAY_LINKED);
  s.Coverage(INGERO_WAY_ENTRIES, "cuInit", 1, INGERO_WAY_PROC_ADDRESS);
  s.Coverage(INGERO_WAY_ENTRIES, "cudaFree", 1, INGERO_WAY_LINKED);
  s.Coverage(INGERO_WAY_ASKED_BY, "/opt/lib/libcudart.so.13.0.96", 1);
  s.Coverage(INGERO_WAY_ASKED_BY, "/opt/lib/libcublas.so.13.1.0.3", 1);
  s.Coverage(INGERO_WAY_ESCAPED, "cuGetExportTable", 9);
  s.Coverage(INGERO_WAY_ESCAPED, "cuBrandNew", 1);
  s.Coverage(INGERO_WAY_ESCAPED, "cuBrandNew", 4);
  s.Coverage(INGERO_WAY_ESCAPED, "cudaFree", 1, INGERO_ESCAPE_COPY);
  s.Coverage(INGERO_WAY_DEEPBIND, "/opt/a.so", 1, 0);
  s.Coverage(INGERO_WAY_DEEPBIND, "/opt/b.so", 1, 1);
  s.Write(dir / "cuda-10-1.ingero");
  auto merged = MergeDir(dir);
  ASSERT_TRUE(merged.ok());
  auto coverage = CoverageOf(merged->store_path);
  ASSERT_EQ(coverage.size(), 1u);
  const ProcessCoverage& c = coverage[10];
  EXPECT_TRUE(c.recorded);
  EXPECT_EQ(c.calls, 1u);
  ASSERT_EQ(c.libraries.size(), 2u);
  EXPECT_EQ(c.libraries[0].version, "13.0.96");
  EXPECT_TRUE(c.libraries[0].runtime);
  EXPECT_FALSE(c.libraries[1].runtime);
  ASSERT_EQ(c.ways.size(), 2u);
  EXPECT_EQ(c.ways[0].way, "the PLT");
  EXPECT_EQ(c.ways[0].count, 3u);
  EXPECT_EQ(c.ways[0].entries,
            (std::vector<std::string>{"cudaFree", "cudaMalloc"}));
  EXPECT_EQ(c.hooked(), 3u);
  EXPECT_EQ(c.static_runtimes,
            std::vector<std::string>{"/opt/lib/libcublas.so.13.1.0.3"});
  ASSERT_EQ(c.escapes.size(), 3u);
  EXPECT_EQ(c.escapes[1].count, 4u);
  EXPECT_EQ(c.escapes[2].why, "of a second copy of its library");
  EXPECT_EQ(c.Escaped(), (std::vector<std::string>{"cuBrandNew", "cudaFree"}));
  analysis::Process p;
  p.name = "python3";
  p.pid = 10;
  EXPECT_EQ(CoverageSentence(c, p),
            "runtime calls of python3/10 seen through the PLT and "
            "cuGetProcAddress; runtime: libcudart.so.13.0.96 (shared); static "
            "in libcublas.so.13.1.0.3, its calls appear at driver level; not "
            "seen: calls from b.so, opened with RTLD_DEEPBIND "
            "(INGERO_CLEAR_DEEPBIND=1 has them seen); 2 functions handed out unwrapped: "
            "cuBrandNew, cudaFree");
}

TEST(Coverage, SaysWhoUsedCudaUnrecorded) {
  TempDir dir;
  KernelStreamBuilder k(kT0);
  k.Switch(0, {.t = kT0, .next_tid = 10, .next_tgid = 10});
  for (uint32_t tid : {10u, 11u})
    k.Switch(0, {.t = static_cast<uint64_t>(kT0 + (tid - 9) * kMs),
                 .prev_tid = tid,
                 .prev_tgid = tid,
                 .next_tid = tid + 1,
                 .next_tgid = tid + 1});
  k.Switch(0, {.t = kT0 + 3 * kMs, .prev_tid = 12, .prev_tgid = 12});
  k.Sample(kT0 + 3 * kMs, Metric::kCudaProcess, 10, 0, "/lib/libcuda.so.580.1");
  k.Sample(kT0 + 3 * kMs, Metric::kCudaProcess, 11, INGERO_CUDA_SHIM_MAPPED,
           "/lib/libcuda.so.580.1");
  k.Sample(kT0 + 3 * kMs, Metric::kCudaProcess, 12,
           INGERO_CUDA_STATIC | INGERO_CUDA_SHIM_ASKED, "/lib/libcuda.so.1");
  k.Sample(kT0 + 3 * kMs, Metric::kCudaProcess, 99, 0, "/lib/libcuda.so.1");
  k.Task({.t = kT0,
          .tid = 13,
          .tgid = 13,
          .text = "ingero-kprobe"});
  k.Sample(kT0 + 3 * kMs, Metric::kCudaProcess, 13, 0, "/lib/libcuda.so.1");
  k.Write(dir / "kernel-1-1.ingero");
  auto merged = MergeDir(dir);
  ASSERT_TRUE(merged.ok());
  auto coverage = CoverageOf(merged->store_path);
  ASSERT_EQ(coverage.size(), 3u);  // 99 is nobody, 13 is ingero's own
  EXPECT_NE(coverage[10].not_recorded.find("was not in its environment"),
            std::string::npos);
  EXPECT_NE(coverage[11].not_recorded.find("no readable stream of it is here"),
            std::string::npos);
  EXPECT_NE(coverage[12].not_recorded.find("statically"), std::string::npos);
  EXPECT_EQ(coverage[10].libraries[0].version, "580.1");
  auto store = OpenTrace(merged->store_path);
  ASSERT_TRUE(store.ok());
  const auto facts = (*store)->facts();
  EXPECT_EQ(facts.coverage.size(), 3u);
  ASSERT_EQ(facts.missing.size(), 1u);
  EXPECT_NE(facts.missing[0].find("libcuda.so.580.1 mapped, but nothing of it "
                                  "was recorded"),
            std::string::npos)
      << facts.missing[0];

  // Beside a recorded program, a worker that only inherited the libraries is
  // not worth a line; one without the shim is.
  CudaStreamBuilder s(12, kT0);
  AddNames(&s);
  s.Call(12, kSync, kT0, 500);
  s.Write(dir / "cuda-12-1.ingero");
  ASSERT_TRUE(MergeDir(dir).ok());
  store = OpenTrace(merged->store_path);
  ASSERT_TRUE(store.ok());
  std::vector<std::string> lines;
  for (const auto& c : (*store)->facts().coverage) lines.push_back(c.text);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_NE(lines[0].find("nothing of it was recorded"), std::string::npos);
  EXPECT_NE(lines[1].find("calls of python3/12 seen"), std::string::npos);
}

TEST(Coverage, AWorkerThatMadeNoCallIsNoAlarm) {
  TempDir dir;
  KernelStreamBuilder k(kT0);
  for (uint32_t pid : {10u, 11u, 12u})
    k.Task({.t = kT0, .tid = pid, .tgid = pid,
            .parent_tgid = pid == 10 ? 1u : 10u, .start_ns = pid,
            .text = "python3"});
  k.Switch(0, {.t = kT0, .next_tid = 10, .next_tgid = 10});
  k.Sample(kT0 + kMs, Metric::kCudaProcess, 11, INGERO_CUDA_SHIM_MAPPED,
           "/lib/libcuda.so.1");
  // This one could not have been recorded.
  k.Sample(kT0 + kMs, Metric::kCudaProcess, 12, 0, "/lib/libcuda.so.1");
  k.Write(dir / "kernel-1-1.ingero");
  CudaStreamBuilder s(10, kT0, 10);
  AddNames(&s);
  s.Call(10, kSync, kT0, 500);
  s.Write(dir / "cuda-10-1.ingero");
  auto merged = MergeDir(dir);
  ASSERT_TRUE(merged.ok());
  auto coverage = CoverageOf(merged->store_path);
  EXPECT_NE(coverage[11].not_recorded.find("no CUDA call was made; the libraries "
                                           "are those of python3/10"),
            std::string::npos)
      << coverage[11].not_recorded;
  EXPECT_FALSE(coverage[12].idle_child);
  EXPECT_NE(coverage[12].not_recorded.find("was not in its environment"),
            std::string::npos);
}

TEST(Coverage, VersionsAreThoseOfFileNames) {
  EXPECT_EQ(VersionOfLibrary("libcudart.so.13.0.96"), "13.0.96");
  EXPECT_EQ(VersionOfLibrary("libcudart-0a1b2c.so.12"), "12");
  EXPECT_EQ(VersionOfLibrary("libtorch_cuda.so"), "");
  EXPECT_EQ(VersionOfLibrary("libx.so.1a"), "");
}

}  // namespace
}  // namespace ingero::merge
