// SPDX-License-Identifier: Apache-2.0
// Code streams through merge: whose samples they are, in which call, and that
// no damage of theirs harms the rest.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <random>
#include <vector>

#include "merge/dump.h"
#include "merge/kernel_stream.h"
#include "merge/merge.h"
#include "merge/trace_reader.h"
#include "tests/support/stream_builder.h"

namespace ingero::merge {
namespace {

using analysis::CodeSample;
using analysis::kNone;
using testing::CudaStreamBuilder;
using testing::KernelStreamBuilder;
using testing::TempDir;
using testing::WriteFile;

constexpr int64_t kT0 = 100'000'000'000;
constexpr int64_t kMs = 1'000'000;
constexpr Interval kAlways{Ns(0), Ns(INT64_MAX)};
constexpr uint64_t kUser = code_place_table::kUser;
constexpr auto kPython = static_cast<uint64_t>(CodeKind::kPython);
constexpr auto kRuns = static_cast<uint64_t>(CodeState::kRunning);
constexpr auto kSleeps = static_cast<uint64_t>(CodeState::kAsleep);

class CodeStreamTest : public ::testing::Test {
 protected:
  // Process 10 makes a call within a call, 2 to 6 ms, and a last one at 20 ms.
  void Cuda() {
    CudaStreamBuilder s(10, kT0);
    s.Name(1, "cudaStreamSynchronize", INGERO_LAYER_RUNTIME,
           INGERO_CLASS_SYNC_STREAM, {INGERO_WORD_STREAM});
    s.Name(2, "cuStreamSynchronize", INGERO_LAYER_DRIVER,
           INGERO_CLASS_SYNC_STREAM, {INGERO_WORD_STREAM});
    s.Thread(10, "python3");
    CudaStreamBuilder::CallSpec inner;
    inner.start = kT0 + 3 * kMs;
    inner.duration = 2 * kMs;
    inner.depth = 1;
    s.Call(10, 2, inner);
    s.Call(10, 1, kT0 + 2 * kMs, 4 * kMs);
    s.Call(10, 1, kT0 + 20 * kMs, kMs);
    s.Write(dir_ / "cuda-10-1.ingero");
  }
  // Its worker is process 20, with a further thread 21.
  void Kernel() {
    KernelStreamBuilder k(kT0);
    k.Task({.t = kT0, .tid = 10, .tgid = 10, .start_ns = 5, .text = "python3"});
    k.Task({.t = kT0, .tid = 20, .tgid = 20, .parent_tgid = 10, .start_ns = 6,
            .text = "python3"});
    k.Task({.t = kT0, .tid = 21, .tgid = 20, .parent_tgid = 10, .start_ns = 6,
            .text = "feeder"});
    k.Switch(0, {.t = kT0 + kMs, .next_tid = 20, .next_tgid = 20});
    k.Switch(0, {.t = kT0 + 30 * kMs, .prev_tid = 20, .prev_tgid = 20});
    k.Write(dir_ / "kernel-1-1.ingero");
  }
  std::string Code() {
    KernelStreamBuilder c(kT0);
    c.header.magic = INGERO_MAGIC_CODE;
    const auto place = [&](uint64_t id, uint64_t line, uint64_t flags,
                           const std::string& text) {
      c.Row(code_place_table::kSchema, 0, {kT0, id, line, flags}, text);
    };
    place(1, 214, kUser, std::string("/home/me/train.py\0train_step", 28));
    place(2, 54, 0, std::string("/lib/fetch.py\0fetch", 19));
    place(7, 12, kUser, std::string("/home/me/data.py\0Set.__getitem__", 32));
    const auto at = [&](int64_t ms, uint64_t pid, uint64_t tid, uint64_t id,
                        uint64_t innermost, uint64_t state) {
      c.Row(code_read_table::kSchema, 0,
            {static_cast<uint64_t>(kT0 + ms * kMs), pid, tid, id, innermost,
             kPython, state});
    };
    at(1, 10, 10, 1, 1, kRuns);
    at(4, 10, 10, 1, 2, kRuns);    // within the inner call
    at(4, 20, 20, 7, 7, kRuns);
    at(8, 10, 10, 1, 1, kSleeps);
    at(8, 20, 21, 7, 2, kSleeps);
    at(9, 99, 99, 1, 1, kRuns);    // of a process that nobody knows
    at(9, 10, 10, 55, 1, kRuns);   // at a place that is nowhere
    c.Sample(kT0 + 10 * kMs, Metric::kCodeProblem, 20, 1, "Python 2 is not read");
    c.Sample(kT0 + 10 * kMs, Metric::kCodeCpuNs, 50, 1234);
    c.Loss(0, kT0, kT0 + 10 * kMs, INGERO_LOSS_CODE_SAMPLES, 3);
    return c.Bytes();
  }
  Result<MergeSummary> MergeAll(const std::string& store) {
    MergeOptions options;
    options.dirs = {dir_.path()};
    options.output = store;
    return Merge(options);
  }

  TempDir dir_;
};

TEST_F(CodeStreamTest, SamplesAreOfTheirProcessThreadAndCall) {
  Cuda();
  Kernel();
  WriteFile(dir_ / "code-1-1.ingero", Code());
  auto merged = MergeAll(dir_ / "a.store");
  ASSERT_TRUE(merged.ok()) << merged.status().message();
  EXPECT_EQ(merged->code_samples, 5u);
  EXPECT_EQ(merged->cuda_streams, 1u);
  EXPECT_EQ(merged->kernel_streams, 1u);
  EXPECT_EQ(merged->incomplete, "") << "a dropped sample is a notice";
  auto reader = OpenTrace(dir_ / "a.store");
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  const TraceReader& trace = **reader;
  ASSERT_EQ(trace.code_lines().size(), 3u);
  EXPECT_EQ(trace.code_lines()[0].file, "/home/me/train.py");
  EXPECT_EQ(trace.code_lines()[0].function, "train_step");
  EXPECT_EQ(trace.code_lines()[0].line, 214u);
  EXPECT_TRUE(trace.code_lines()[0].user);
  EXPECT_FALSE(trace.code_lines()[1].user);

  std::vector<CodeSample> of_program, of_worker;
  for (uint32_t p = 0; p < trace.processes().size(); ++p) {
    auto cursor = trace.CodeSamples(p, kAlways);
    for (CodeSample s; cursor->Next(&s);)
      (trace.processes()[p].pid == 10 ? of_program : of_worker).push_back(s);
  }
  ASSERT_EQ(of_program.size(), 3u);
  EXPECT_EQ(of_program[0].func, kNone);
  ASSERT_NE(of_program[1].func, kNone);
  EXPECT_EQ(trace.functions()[of_program[1].func].name,
            "cudaStreamSynchronize")
      << "the outermost one";
  EXPECT_EQ(of_program[1].line, 0u);
  EXPECT_EQ(of_program[1].innermost, 1u);
  EXPECT_EQ(of_program[2].func, kNone) << "it has returned";
  EXPECT_EQ(of_program[2].state, CodeSample::State::kAsleep);
  ASSERT_EQ(of_worker.size(), 2u);
  EXPECT_EQ(trace.threads()[of_worker[0].thread].tid, 20u);
  EXPECT_EQ(trace.threads()[of_worker[1].thread].tid, 21u);
  EXPECT_EQ(trace.code_lines()[of_worker[0].line].function, "Set.__getitem__");

  const analysis::TraceFacts facts = trace.facts();
  EXPECT_EQ(facts.code_hz, 50u);
  EXPECT_EQ(facts.code_cost, Ns(1234));
  EXPECT_FALSE(facts.code_cut);
  ASSERT_EQ(facts.code_problems.size(), 1u);
  EXPECT_EQ(facts.code_problems[0].text, "Python 2 is not read");
  ASSERT_LT(facts.code_problems[0].process, trace.processes().size());
  EXPECT_EQ(trace.processes()[facts.code_problems[0].process].pid, 20u);
  bool told = false;
  for (const analysis::Loss& loss : trace.losses())
    told |= loss.id == "code-samples" && loss.count == 3 &&
            loss.side == analysis::Loss::Side::kCode;
  EXPECT_TRUE(told);
  // Nothing new, nothing done.
  auto again = MergeAll(dir_ / "a.store");
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->added_events, 0u);
}

// Between two blocks, where nothing is left that is odd.
TEST_F(CodeStreamTest, OneThatIsCutIsTold) {
  Cuda();
  const std::string path = dir_ / "code-1-1.ingero";
  WriteFile(path, Code());
  auto stream = KernelStream::Open(path, true);
  ASSERT_TRUE(stream.ok());
  const std::vector<BlockRef> blocks = (*stream)->blocks();
  ASSERT_GT(blocks.size(), 2u);
  std::string whole = Code();
  const auto put = [&](size_t offset, uint64_t value) {
    std::memcpy(whole.data() + offset, &value, sizeof(value));
  };
  put(offsetof(ingero_stream_header, blocks_reserved), blocks.size());
  put(offsetof(ingero_stream_header, exited), 1);
  for (const bool cut : {false, true}) {
    std::filesystem::remove_all(dir_ / "a.store");
    WriteFile(path, cut ? whole.substr(0, blocks.back().offset) : whole);
    auto merged = MergeAll(dir_ / "a.store");
    ASSERT_TRUE(merged.ok()) << merged.status().message();
    auto reader = OpenTrace(dir_ / "a.store");
    ASSERT_TRUE(reader.ok()) << reader.status().message();
    EXPECT_EQ((*reader)->facts().code_cut.has_value(), cut);
    const std::vector<std::string>& notes = merged->notes;
    EXPECT_EQ(std::any_of(notes.begin(), notes.end(),
                          [](const std::string& note) {
                            return note.starts_with("code stream: 1 x torn-");
                          }),
              cut);
  }
}

TEST_F(CodeStreamTest, AloneItIsNoRecording) {
  WriteFile(dir_ / "code-1-1.ingero", Code());
  EXPECT_TRUE(ListRecordings({dir_.path()}).empty());
  EXPECT_FALSE(MergeAll(dir_ / "a.store").ok());
}

TEST_F(CodeStreamTest, OneThatIsDumpedHasAllOfIt) {
  WriteFile(dir_ / "code-1-1.ingero", Code());
  std::string text;
  ASSERT_TRUE(Dump(dir_ / "code-1-1.ingero", DumpFormat::kText,
                   [&](std::string_view line) { text += line; })
                  .ok());
  EXPECT_NE(text.find("code_places owner=0 t_ns=100000000000 place=1 line=214"),
            text.npos)
      << text;
  EXPECT_NE(text.find("code_read owner=0"), text.npos);
}

TEST_F(CodeStreamTest, WhateverIsCutOrFlippedTheRestIsThere) {
  Cuda();
  const std::string whole = Code();
  std::vector<std::string> damaged;
  for (size_t cut = INGERO_HEADER_BYTES; cut < whole.size(); cut += 7)
    damaged.push_back(whole.substr(0, cut));
  std::mt19937 random(3);
  for (int i = 0; i < 120; ++i) {
    std::string bytes = whole;
    const size_t at = i % 4 == 0 ? random() % 400
                                 : INGERO_HEADER_BYTES +
                                       random() % (whole.size() -
                                                   INGERO_HEADER_BYTES);
    bytes[at] ^= static_cast<char>(1u << random() % 8);
    damaged.push_back(bytes);
  }
  for (const std::string& bytes : damaged) {
    std::filesystem::remove_all(dir_ / "a.store");
    WriteFile(dir_ / "code-1-1.ingero", bytes);
    auto merged = MergeAll(dir_ / "a.store");
    ASSERT_TRUE(merged.ok()) << merged.status().message();
    EXPECT_EQ(merged->calls, 3u);
    auto reader = OpenTrace(dir_ / "a.store");
    ASSERT_TRUE(reader.ok()) << reader.status().message();
    for (uint32_t p = 0; p < (*reader)->processes().size(); ++p) {
      auto cursor = (*reader)->CodeSamples(p, kAlways);
      for (CodeSample s; cursor->Next(&s);)
        ASSERT_LT(s.line, (*reader)->code_lines().size());
    }
  }
}

}  // namespace
}  // namespace ingero::merge
