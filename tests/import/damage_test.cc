// SPDX-License-Identifier: Apache-2.0
// Files of other profilers, cut at every byte and with every byte changed: they
// are read, or refused in one line that names the file.
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <filesystem>

#include "import/import.h"
#include "merge/cuda_stream.h"
#include "tests/support/stream_builder.h"

namespace ingero::import {
namespace {

using ingero::testing::TempDir;
using ingero::testing::WriteFile;

constexpr const char* kTrace = R"json({"schemaVersion": 1, "traceEvents": [
{"ph": "M", "name": "process_name", "pid": 7, "tid": 0, "ts": 1700000000000000, "args": {"name": "python3"}},
{"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 7, "tid": 7, "ts": 1700000000000001.5, "dur": 20, "args": {"External id": 1}},
{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 7, "tid": 7, "ts": 1700000000000003.25, "dur": 5.75, "args": {"correlation": 9}},
{"ph": "X", "cat": "cuda_runtime", "name": "cudaMemcpyAsync", "pid": 7, "tid": 7, "ts": 1700000000000012, "dur": 4, "args": {"correlation": 10}},
{"ph": "X", "cat": "kernel", "name": "add_kernel", "pid": 0, "tid": 7, "ts": 1700000000000010, "dur": 100, "args": {"device": 0, "stream": 7, "correlation": 9, "nested": {"correlation": 5}}},
{"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD (Pageable -> Device)", "pid": 0, "tid": 7, "ts": 1700000000000111, "dur": 3, "args": {"device": 0, "stream": 7, "correlation": 10, "bytes": 4096}},
{"ph": "X", "cat": "python_function", "name": "f", "pid": 7, "tid": 7, "ts": 1700000000000000, "dur": 1}
], "traceName": "x"})json";

Result<Written> Import(const TempDir& dir, const std::string& path) {
  INGERO_ASSIGN_OR_RETURN(Events events, Read(path, nullptr));
  const std::string folder = dir / "streams";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directory(folder);
  INGERO_ASSIGN_OR_RETURN(const Written written,
                          WriteStreams(std::move(events), folder));
  // What was written is sound.
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    auto stream = merge::CudaStream::Open(file.path());
    EXPECT_TRUE(stream.ok()) << stream.status().message();
    if (stream.ok()) {
      EXPECT_TRUE((*stream)->damage().empty()) << (*stream)->damage().front();
    }
  }
  return written;
}

// Whether it is read, or refused as it should be.
void Check(const TempDir& dir, const std::string& path,
           const std::string& about) {
  const auto written = Import(dir, path);
  if (written.ok()) return;
  const std::string& message = written.status().message();
  EXPECT_EQ(message.find('\n'), std::string::npos) << about << message;
  EXPECT_FALSE(message.empty()) << about;
}

TEST(Kineto, EventsBecomeCalls) {
  TempDir dir;
  WriteFile(dir / "t.json", kTrace);
  auto events = Read(dir / "t.json", nullptr);
  ASSERT_TRUE(events.ok()) << events.status().message();
  ASSERT_EQ(events->calls.size(), 2u);
  // Exact to the nanosecond, which a double would not be.
  EXPECT_EQ(events->calls[0].begin, 1700000000000003250);
  EXPECT_EQ(events->calls[0].end, 1700000000000009000);
  EXPECT_EQ(events->calls[0].correlation, 9u);
  ASSERT_EQ(events->gpu.size(), 2u);
  EXPECT_EQ(events->texts[events->gpu[0].name], "add_kernel");
  EXPECT_EQ(events->gpu[0].correlation, 9u);  // not that of what is nested
  EXPECT_EQ(events->gpu[1].host_memory, INGERO_CALL_HOST_PAGEABLE);
  EXPECT_EQ(events->gpu[1].direction, INGERO_COPY_H2D);
  EXPECT_EQ(events->gpu[1].bytes, 4096u);
  ASSERT_EQ(events->ranges.size(), 1u);
  EXPECT_EQ(events->left_out.at("python_function"), 1u);
  EXPECT_EQ(events->processes.at(7), "python3");

  const auto written = Import(dir, dir / "t.json");
  ASSERT_TRUE(written.ok()) << written.status().message();
  EXPECT_EQ(written->calls, 2u);
  EXPECT_EQ(written->gpu_activities, 2u);
  EXPECT_EQ(written->ranges, 1u);
  EXPECT_EQ(written->unmatched, 0u);
  const auto stream =
      merge::CudaStream::Open(dir / "streams" + "/cuda-7-1.ingero");
  ASSERT_TRUE(stream.ok());
  merge::CallReader reader(**stream);
  merge::WireCall call;
  ASSERT_TRUE(reader.Next(&call));
  // From the call's begin until the kernel's end.
  EXPECT_EQ(call.words[2], 106'750u);
  ASSERT_TRUE(reader.Next(&call));
  EXPECT_EQ(call.words[0], 4096u);
  EXPECT_EQ(call.flags, INGERO_CALL_HOST_PAGEABLE |
                            INGERO_COPY_H2D << INGERO_CALL_DIRECTION_SHIFT);
}

TEST(Kineto, CutAtEveryByte) {
  TempDir dir;
  const std::string whole = kTrace;
  for (size_t size = 0; size < whole.size(); ++size) {
    WriteFile(dir / "t.json", whole.substr(0, size));
    const auto written = Import(dir, dir / "t.json");
    EXPECT_FALSE(written.ok()) << size;
    EXPECT_NE(written.status().message().find("t.json"), std::string::npos);
    EXPECT_EQ(written.status().message().find('\n'), std::string::npos);
  }
}

TEST(Kineto, EveryByteChanged) {
  TempDir dir;
  const std::string whole = kTrace;
  constexpr char kOthers[] = {'\0', '9', '"', '[', '-', '\xff'};
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string bytes = whole;
    bytes[at] = kOthers[at % std::size(kOthers)];
    WriteFile(dir / "t.json", bytes);
    Check(dir, dir / "t.json", std::to_string(at) + ": ");
  }
}

TEST(Kineto, GzippedAndCut) {
  TempDir dir;
  const std::string path = dir / "t.json.gz";
  gzFile file = gzopen(path.c_str(), "wb");
  ASSERT_NE(file, nullptr);
  gzputs(file, kTrace);
  gzclose(file);
  ASSERT_TRUE(Import(dir, path).ok());
  const std::string whole = ingero::testing::ReadFile(path);
  for (size_t size = 0; size < whole.size(); ++size) {
    WriteFile(path, whole.substr(0, size));
    EXPECT_FALSE(Import(dir, path).ok()) << size;
  }
}

TEST(Kineto, TimesThatCannotBe) {
  TempDir dir;
  for (const char* ts : {"9223372036854775807", "1e300", "-9223372036854775808",
                         "99999999999999999", "\"soon\"", "null"}) {
    std::string bytes = kTrace;
    const std::string from = "1700000000000003.25";
    bytes.replace(bytes.find(from), from.size(), ts);
    WriteFile(dir / "t.json", bytes);
    Check(dir, dir / "t.json", ts);
  }
}

TEST(WriteStreams, NestedCallsAndRoundedTimes) {
  TempDir dir;
  Events e;
  const uint32_t name = e.texts.Index("cudaStreamSynchronize");
  // Microseconds: the inner one seems to outlast the outer one, and that the
  // call behind it.
  e.calls = {{1'000, 9'000, 5, 5, name, 0, 0},
             {2'000, 10'000, 5, 5, name, 0, 0},
             {8'000, 12'000, 5, 5, name, 0, 0},
             {3'000, 4'000, 5, 6, name, 0, 0}};
  std::filesystem::create_directory(dir / "streams");
  const auto written = WriteStreams(std::move(e), dir / "streams");
  ASSERT_TRUE(written.ok()) << written.status().message();
  const auto stream =
      merge::CudaStream::Open(dir / "streams" + "/cuda-5-1.ingero");
  ASSERT_TRUE(stream.ok());
  EXPECT_TRUE((*stream)->damage().empty());
  EXPECT_EQ((*stream)->calls(), 4u);
  merge::CallReader reader(**stream);
  merge::WireCall call;
  std::vector<uint64_t> begins;
  while (reader.Next(&call)) begins.push_back(call.start_ticks);
  EXPECT_EQ(begins.size(), 4u);
  EXPECT_TRUE(std::is_sorted(begins.begin(), begins.end()));
}

TEST(WriteStreams, AmbiguousWorkIsNobodys) {
  TempDir dir;
  Events e;
  const uint32_t name = e.texts.Index("cudaLaunchKernel");
  e.calls = {{1'000, 2'000, 5, 5, name, 3, 0}, {1'000, 2'000, 6, 6, name, 3, 0}};
  GpuWork w;
  w.begin = 5'000;
  w.end = 6'000;
  w.correlation = 3;
  e.gpu = {w};
  std::filesystem::create_directory(dir / "streams");
  const auto written = WriteStreams(std::move(e), dir / "streams");
  ASSERT_TRUE(written.ok());
  EXPECT_EQ(written->unmatched, 1u);
  EXPECT_EQ(written->processes, 2u);
}

TEST(Read, OddFiles) {
  TempDir dir;
  const std::string path = dir / "odd";
  const auto refused = [&](const std::string& bytes, const std::string& why) {
    WriteFile(path, bytes);
    const auto events = Read(path, nullptr);
    ASSERT_FALSE(events.ok()) << bytes;
    EXPECT_NE(events.status().message().find(why), std::string::npos)
        << events.status().message();
  };
  refused("", "is empty");
  refused("hello", "is neither");
  refused("{}", "has no \"traceEvents\"");
  refused("[]", "has no event");
  refused("{\"traceEvents\": []}", "has no event");
  refused("{\"traceEvents\": {}}", "has no \"traceEvents\"");
  refused("[1, 2, [3]]", "has no event");
  refused(R"([{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1,)"
          R"("dur":1}])",
          "has no CUDA call");
  refused(R"([{"ph":"X","cat":"cuda_runtime","name":"hipLaunchKernel",)"
          R"("pid":1,"tid":1,"ts":1,"dur":1}])",
          "AMD");
  refused(R"([{"ph":"X","cat":"xpu_runtime","name":"q","pid":1,"tid":1,)"
          R"("ts":1,"dur":1}])",
          "Intel");
  refused(std::string("SQLite format 3\0garbage", 23), "odd");
  EXPECT_FALSE(Read(dir / "none", nullptr).ok());
  EXPECT_FALSE(Read(dir.path(), nullptr).ok());
}

}  // namespace
}  // namespace ingero::import
