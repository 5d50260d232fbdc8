// SPDX-License-Identifier: Apache-2.0
// The threads of a merge: what they make does not depend on how many they are,
// and what goes wrong in one of them comes out as an error. Built a second time
// with ThreadSanitizer.
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <map>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/tables.h"
#include "merge/ahead.h"
#include "merge/block_queue.h"
#include "merge/merge.h"
#include "tests/support/stream_builder.h"

namespace ingero::merge {
namespace {

using testing::CudaStreamBuilder;
using testing::KernelStreamBuilder;
using testing::ReadFile;
using testing::TempDir;

constexpr int64_t kT0 = 100'000'000'000;
constexpr int64_t kMs = 1'000'000;

TEST(Ahead, ComesInOrderFromAnyNumberOfThreads) {
  for (const size_t threads : {0u, 1u, 2u, 4u}) {
    constexpr uint64_t kValues = 3000;
    Ahead<std::vector<uint64_t>> ahead(
        threads, 2 * threads, [](uint64_t i, std::vector<uint64_t>* out) {
          out->assign(i % 50, i);
          return i < kValues;
        });
    uint64_t n = 0;
    while (const std::vector<uint64_t>* v = ahead.Next()) {
      ASSERT_EQ(*v, std::vector<uint64_t>(n % 50, n));
      ++n;
    }
    EXPECT_EQ(n, kValues);
    EXPECT_EQ(ahead.Next(), nullptr);
  }
}

TEST(Ahead, KeepsToItsRoomAndStopsWhenNobodyAsks) {
  std::atomic<uint64_t> made{0};
  {
    Ahead<int> ahead(2, 4, [&](uint64_t, int*) {
      ++made;
      return true;
    });
    for (int i = 0; i < 10; ++i) ASSERT_NE(ahead.Next(), nullptr);
  }
  EXPECT_LE(made, 10u + 4u);
}

TEST(Ahead, AnExceptionComesOut) {
  for (const size_t threads : {0u, 1u, 3u}) {
    Ahead<int> ahead(threads, 4, [](uint64_t i, int*) {
      if (i == 7) throw std::bad_alloc();
      return true;
    });
    for (int i = 0; i < 7; ++i) ASSERT_NE(ahead.Next(), nullptr);
    EXPECT_THROW(ahead.Next(), std::bad_alloc);
  }
}

Rows OneRow(uint64_t t) {
  Rows rows;
  rows.schema = &feed_table::kSchema;
  std::vector<uint64_t> row(feed_table::kCount, 0);
  row[0] = t;
  rows.Append(row);
  return rows;
}

TEST(BlockQueue, PutsInOrderAndReturnsTheFirstError) {
  std::vector<int64_t> times;
  auto queue = BlockQueue::Start(
      [&](const std::string& block) -> Status {
        auto p = ReadPreamble(block);
        if (!p.ok()) return p.status();
        if (p->first_ns == 500) return Status::Error("the disk is full");
        times.push_back(p->first_ns);
        return {};
      },
      [] { return Status(); });
  ASSERT_TRUE(queue.ok());
  for (uint64_t t = 0; t < 500; ++t) {
    Rows rows = OneRow(t);
    ASSERT_TRUE((*queue)->PutRows(&rows, 0).ok());
  }
  ASSERT_TRUE((*queue)->Flush().ok());
  ASSERT_EQ(times.size(), 500u);
  for (size_t t = 0; t < times.size(); ++t)
    EXPECT_EQ(times[t], static_cast<int64_t>(t));
  Status s;
  for (uint64_t t = 500; t < 600 && s.ok(); ++t) {
    Rows rows = OneRow(t);
    s = (*queue)->PutRows(&rows, 0);
  }
  if (s.ok()) s = (*queue)->Flush();
  ASSERT_FALSE(s.ok());
  EXPECT_EQ(s.message(), "the disk is full");
  EXPECT_FALSE((*queue)->Flush().ok());
  EXPECT_EQ(times.size(), 500u);
}

TEST(BlockQueue, OutOfMemoryIsAnError) {
  auto queue = BlockQueue::Start(
      [](const std::string&) -> Status { throw std::bad_alloc(); },
      [] { return Status(); });
  ASSERT_TRUE(queue.ok());
  Rows rows = OneRow(1);
  Status s = (*queue)->PutRows(&rows, 0);
  if (s.ok()) s = (*queue)->Flush();
  ASSERT_FALSE(s.ok());
  EXPECT_EQ(s.message(), "out of memory");
}

// Three processes with several threads each and four CPUs, some seconds: many
// blocks of every table, windows that blocks cross, calls that come late.
void WriteStreams(const TempDir& dir, bool damaged) {
  constexpr int kSteps = 3000;
  for (uint32_t process = 1; process <= 3; ++process) {
    const uint32_t pid = process * 100;
    CudaStreamBuilder s(pid, kT0, kT0 / 2);
    s.Name(1, "cudaLaunchKernel", INGERO_LAYER_RUNTIME, INGERO_CLASS_LAUNCH,
           {INGERO_WORD_KERNEL, INGERO_WORD_STREAM});
    s.Name(2, "cuLaunchKernel", INGERO_LAYER_DRIVER, INGERO_CLASS_LAUNCH,
           {INGERO_WORD_KERNEL, INGERO_WORD_STREAM});
    s.Name(3, "cudaStreamSynchronize", INGERO_LAYER_RUNTIME,
           INGERO_CLASS_SYNC_STREAM, {INGERO_WORD_STREAM});
    std::map<uint32_t, int> in_slot;
    for (int i = 0; i < kSteps; ++i) {
      const uint32_t tid = pid + static_cast<uint32_t>(i % 2);
      const uint64_t t = static_cast<uint64_t>(kT0 + i * kMs);
      CudaStreamBuilder::CallSpec inner{t + 2000, 3000, 1, 0, 0, {7, 1}};
      CudaStreamBuilder::CallSpec outer{t + 1000, 5000, 0, 0, 0, {7, 1}};
      s.Call(tid, 2, inner);
      s.Call(tid, 1, outer);
      s.Call(tid, 3, t + 10'000, 600'000);
      if (++in_slot[tid] == 400) {
        s.WriteOut(tid);
        in_slot[tid] = 0;
      }
    }
    s.Write(dir / ("cuda-" + std::to_string(pid) + "-1.ingero"));
  }
  KernelStreamBuilder k(kT0);
  for (uint32_t process = 1; process <= 3; ++process)
    k.Task({.t = kT0, .tid = process * 100, .tgid = process * 100,
            .start_ns = static_cast<uint64_t>(kT0 / 2), .text = "python3"});
  for (int i = 0; i < kSteps; ++i) {
    const uint64_t t = static_cast<uint64_t>(kT0 + i * kMs);
    for (uint32_t cpu = 0; cpu < 4; ++cpu) {
      const uint32_t pid = (cpu % 3 + 1) * 100;
      const uint32_t tid = cpu == 3 ? 900 : pid + static_cast<uint32_t>(i % 2);
      const uint32_t tgid = cpu == 3 ? 900 : pid;
      k.Switch(cpu, {.t = t + cpu, .next_tid = tid, .next_tgid = tgid,
                     .wake = t - 1000, .waker_tid = 900, .waker_tgid = 900});
      k.Switch(cpu, {.t = t + 700'000 + cpu, .prev_tid = tid,
                     .prev_tgid = tgid, .prev_state = INGERO_TASK_INTERRUPTIBLE,
                     .prev_syscall = 202});
    }
    if (i % 50 == 49) k.Flush();
  }
  k.Flush();
  std::string bytes = k.Bytes();
  if (damaged) bytes[bytes.size() / 2] = static_cast<char>(~bytes[bytes.size() / 2]);
  testing::WriteFile(dir / "kernel-1-1.ingero", bytes);
}

TEST(Merge, TheStoreDoesNotDependOnTheDecoders) {
  for (const bool damaged : {false, true}) {
    TempDir dir;
    WriteStreams(dir, damaged);
    std::string expected;
    for (const int decoders : {0, 1, 2, 4, -1}) {
      MergeOptions options;
      options.dirs = {dir.path()};
      options.output = dir / ("out" + std::to_string(decoders));
      options.decoders = decoders;
      auto summary = Merge(options);
      ASSERT_TRUE(summary.ok()) << summary.status().message();
      EXPECT_EQ(summary->calls, 27'000u);
      const std::string bytes = ReadFile(summary->store_path + "/data.mdb");
      if (expected.empty())
        expected = bytes;
      else
        EXPECT_TRUE(bytes == expected) << decoders << " decoders";
    }
  }
}

TEST(Merge, AnErrorBetweenTheStagesLeavesNoFile) {
  TempDir dir;
  WriteStreams(dir, false);
  MergeOptions options;
  options.dirs = {dir.path()};
  // A folder in the place of the file that the results go to.
  options.output = dir / "out";
  std::filesystem::create_directories(dir / "out/data.mdb.results");
  auto summary = Merge(options);
  ASSERT_FALSE(summary.ok());
  EXPECT_NE(summary.status().message().find("data.mdb.results"),
            std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(dir / "out/data.mdb.new"));
  EXPECT_FALSE(std::filesystem::exists(dir / "out/data.mdb"));
}

}  // namespace
}  // namespace ingero::merge
