// SPDX-License-Identifier: Apache-2.0
// CASES 60 and 14: whatever was cut, flipped or put in the place of a file,
// the answer is one line and a status, and what is whole is still read.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <random>

#include "merge/dump.h"
#include "merge/merge.h"
#include "merge/store.h"
#include "merge/store_trace.h"
#include "merge/stream.h"
#include "merge/trace_reader.h"
#include "tests/support/stream_builder.h"

namespace ingero::merge {
namespace {

using analysis::ReportSource;
using testing::CudaStreamBuilder;
using testing::KernelStreamBuilder;
using testing::ReadFile;
using testing::TempDir;
using testing::WriteFile;

constexpr int64_t kT0 = 100'000'000'000;
constexpr int64_t kMs = 1'000'000;

std::string CudaBytes(int calls) {
  CudaStreamBuilder s(10, kT0);
  s.Name(1, "cudaStreamSynchronize", INGERO_LAYER_RUNTIME,
         INGERO_CLASS_SYNC_STREAM, {INGERO_WORD_STREAM});
  for (int i = 0; i < calls; ++i) {
    CudaStreamBuilder::CallSpec c;
    c.start = kT0 + i * kMs;
    c.duration = 500;
    c.words = {static_cast<uint64_t>(i)};
    s.Call(10 + i % 2, 1, c);
  }
  s.WriteOut(10);
  s.Call(10, 1, kT0 + calls * kMs, 500);
  return s.Bytes();
}

std::string KernelBytes() {
  KernelStreamBuilder k(kT0);
  k.Task({.t = kT0, .tid = 10, .tgid = 10, .start_ns = 5, .text = "python3"});
  for (int i = 0; i < 2000; ++i) {
    const bool in = i % 2 == 0;
    k.Switch(static_cast<uint32_t>(i / 2 % 2),
             {.t = static_cast<uint64_t>(kT0 + i * kMs),
              .prev_tid = in ? 0u : 10u, .prev_tgid = in ? 0u : 10u,
              .next_tid = in ? 10u : 0u, .next_tgid = in ? 10u : 0u});
    if (i % 200 == 199) k.Flush();
  }
  k.Sample(kT0, Metric::kCpuOnline, 0, 2);
  return k.Bytes();
}

// Everything a reader can ask; the numbers are not checked, only that it ends.
size_t ReadEverything(const ReportSource& store) {
  size_t count = 0;
  const auto& trace = store.trace();
  const Interval all{Ns(INT64_MIN), Ns(INT64_MAX)};
  analysis::Switch s;
  for (auto c = trace.Switches(all); c->Next(&s);) ++count;
  analysis::Sample sample;
  for (auto c = trace.Samples(all); c->Next(&sample);) ++count;
  for (uint32_t p = 0; p < trace.processes().size(); ++p) {
    analysis::Call call;
    for (auto c = trace.Calls(p, all); c->Next(&call);) ++count;
  }
  count += trace.StatesAt(trace.span().end).second.size();
  count += store.Summarize(trace.span()).operations.size();
  analysis::PathCell cell;
  for (auto c = store.Paths(all); c->Next(&cell);) ++count;
  count += store.facts().streams.size();
  return count;
}

Result<MergeSummary> MergeDir(const TempDir& dir) {
  MergeOptions options;
  options.dirs = {dir.path()};
  return Merge(options);
}

// One line or success; whatever was merged can be read.
void ExpectSane(const TempDir& dir, const std::string& what) {
  std::filesystem::remove_all(dir / "out");
  MergeOptions options;
  options.dirs = {dir.path()};
  options.output = dir / "out";
  auto merged = Merge(options);
  if (!merged.ok()) {
    EXPECT_EQ(merged.status().message().find('\n'), std::string::npos) << what;
    return;
  }
  auto store = OpenStore(merged->store_path);
  ASSERT_TRUE(store.ok()) << what << ": " << store.status().message();
  ReadEverything(**store);
}

uint64_t CallsIn(const TempDir& dir) {
  auto merged = MergeDir(dir);
  return merged.ok() ? merged->calls : 0;
}

TEST(DamageLines, AllPlacesOfAFileAreOneLine) {
  DamageLines lines;
  lines.Add("/x/cuda-1.ingero", 65536, 4096);
  ASSERT_EQ(lines.lines().size(), 1u);
  EXPECT_TRUE(lines.lines()[0].starts_with(
      "cuda-1.ingero: 4,096 bytes at offset 65536 are damaged"));
  lines.Add("/x/cuda-1.ingero", "its header counts 3 threads");
  for (uint64_t i = 0; i < 1500; ++i)
    lines.Add("/x/cuda-1.ingero", 4096 * (1500 - i), 1000);
  ASSERT_EQ(lines.lines().size(), 2u);
  EXPECT_TRUE(lines.lines()[0].starts_with(
      "cuda-1.ingero: 1,504,096 bytes in 1,501 places are damaged and were left "
      "out (the first at offset 4096), the rest was read; copy the file again"))
      << lines.lines()[0];
}

TEST(StreamDamage, CutCudaStreamKeepsWhatIsBeforeTheCut) {
  const std::string bytes = CudaBytes(300);
  uint64_t last = 0;
  // Every byte of the header's end and of the first block's begin, then
  // steps that do not divide a record.
  for (size_t size = 0; size <= bytes.size();
       size += size < 100 || (size > 65500 && size < 66200) ? 1 : 2477) {
    TempDir dir;
    WriteFile(dir / "cuda-10-1.ingero", bytes.substr(0, size));
    ExpectSane(dir, "cut at " + std::to_string(size));
    const uint64_t calls = CallsIn(dir);
    EXPECT_GE(calls, last) << "cut at " << size;
    EXPECT_LE(calls, 301u);
    last = calls;
    if (HasFatalFailure()) return;
  }
  TempDir dir;
  WriteFile(dir / "cuda-10-1.ingero", bytes);
  EXPECT_EQ(CallsIn(dir), 301u);
}

TEST(StreamDamage, CutKernelStreamKeepsWholeBlocks) {
  const std::string bytes = KernelBytes();
  for (size_t size = 0; size <= bytes.size();
       size += size < 100 ? 1 : size < 4000 ? 997 : 61) {
    TempDir dir;
    WriteFile(dir / "kernel-1-1.ingero", bytes.substr(0, size));
    ExpectSane(dir, "cut at " + std::to_string(size));
    if (HasFatalFailure()) return;
  }
}

TEST(StreamDamage, FlippedBitsAreCountedOrHarmless) {
  std::mt19937 random(1);
  const std::string cuda = CudaBytes(300), kernel = KernelBytes();
  for (int round = 0; round < 300; ++round) {
    TempDir dir;
    std::string c = cuda, k = kernel;
    // Mostly where there is data: the rest of a block is zeros.
    const size_t at_c = round % 3 ? INGERO_BLOCK_BYTES + random() % 9000
                                  : random() % c.size();
    c[at_c] = static_cast<char>(c[at_c] ^ (1 << random() % 8));
    const size_t at_k = random() % k.size();
    k[at_k] = static_cast<char>(k[at_k] ^ (1 << random() % 8));
    WriteFile(dir / "cuda-10-1.ingero", c);
    WriteFile(dir / "kernel-1-1.ingero", k);
    ExpectSane(dir, "round " + std::to_string(round));
    Status dumped = Dump(dir / "cuda-10-1.ingero", DumpFormat::kText,
                         [](std::string_view) {});
    if (!dumped.ok()) {
      EXPECT_EQ(dumped.message().find('\n'), std::string::npos);
    }
    if (HasFatalFailure()) return;
  }
}

TEST(StreamDamage, DamagedKernelBlockIsCountedAndTheRestRead) {
  TempDir dir;
  const std::string clean = KernelBytes();
  std::string bytes = clean;
  const size_t at =
      INGERO_HEADER_BYTES + (bytes.size() - INGERO_HEADER_BYTES) / 2;
  bytes[at] = static_cast<char>(bytes[at] ^ 0x10);
  WriteFile(dir / "kernel-1-1.ingero", bytes);
  auto merged = MergeDir(dir);
  ASSERT_TRUE(merged.ok()) << merged.status().message();
  EXPECT_LT(merged->switches, 2000u);
  EXPECT_GE(merged->switches, 1700u);
  auto store = OpenStore(merged->store_path);
  ASSERT_TRUE(store.ok());
  ASSERT_EQ((*store)->trace().losses().size(), 1u);
  EXPECT_EQ((*store)->trace().losses()[0].id, "damaged-block");
}

// A line of facts().missing that holds all of `words`.
bool Said(const ReportSource& store, std::vector<std::string> words) {
  for (const std::string& line : store.facts().missing)
    if (std::all_of(words.begin(), words.end(), [&](const std::string& w) {
          return line.find(w) != std::string::npos;
        }))
      return true;
  return false;
}

TEST(StreamDamage, ExplainSaysWhereAWrittenBlockIsDamaged) {
  TempDir dir;
  std::string bytes = CudaBytes(300);
  // Thread 10's DATA block: the slots were made first.
  bytes[3 * INGERO_BLOCK_BYTES + 777] ^= 1;
  WriteFile(dir / "cuda-10-1.ingero", bytes);
  auto merged = MergeDir(dir);
  ASSERT_TRUE(merged.ok()) << merged.status().message();
  EXPECT_EQ(merged->calls, 151u);
  auto store = OpenStore(merged->store_path);
  ASSERT_TRUE(store.ok());
  EXPECT_TRUE(Said(**store, {"cuda-10-1.ingero", "offset 196608", "damaged",
                             "copy the file again"}));
  ASSERT_EQ((*store)->trace().losses().size(), 1u);
  EXPECT_EQ((*store)->trace().losses()[0].id, "damaged-block");
  // Merging again says the same.
  auto again = MergeDir(dir);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->added_events, 0u);
  EXPECT_EQ(again->notes, merged->notes);
}

TEST(StreamDamage, CutKernelStreamIsSaidAndNotTakenForNone) {
  for (const size_t size : {size_t{0}, size_t{100}, sizeof(ingero_stream_header),
                            size_t{INGERO_HEADER_BYTES},
                            size_t{INGERO_HEADER_BYTES} + 20}) {
    TempDir dir;
    // Recorded before the program began: a recording of its own otherwise.
    KernelStreamBuilder k(kT0 - 5000 * kMs);
    k.Switch(0, {.t = kT0, .next_tid = 10, .next_tgid = 10});
    WriteFile(dir / "kernel-1-1.ingero", k.Bytes().substr(0, size));
    WriteFile(dir / "cuda-10-1.ingero", CudaBytes(30));
    auto merged = MergeDir(dir);
    ASSERT_TRUE(merged.ok()) << merged.status().message();
    EXPECT_EQ(merged->kernel_streams, 0u);
    auto store = OpenStore(merged->store_path);
    ASSERT_TRUE(store.ok());
    EXPECT_TRUE(Said(**store, {"left out", "kernel-1-1.ingero"})) << size;
    const size_t lines = (*store)->facts().missing.size();
    EXPECT_EQ(lines, 2u);
    // Whole again: not left out any more.
    k.Write(dir / "kernel-1-1.ingero");
    merged = MergeDir(dir);
    ASSERT_TRUE(merged.ok()) << merged.status().message();
    EXPECT_EQ(merged->kernel_streams, 1u);
    store = OpenStore(merged->store_path);
    ASSERT_TRUE(store.ok());
    EXPECT_FALSE(Said(**store, {"left out"}));
  }
}

TEST(StreamDamage, AnImpossibleTimeDoesNotStretchTheRecording) {
  const std::string clean = KernelBytes();
  TempDir dir;
  WriteFile(dir / "kernel-1-1.ingero", clean);
  const Interval span =
      ListRecordings({dir.path()}).at(0).streams.at(0).span;
  for (int bit = 0; bit < 64; ++bit) {
    std::string bytes = clean;
    const size_t at = INGERO_HEADER_BYTES + offsetof(BlockPreamble, last_ns);
    bytes[at + bit / 8] ^= static_cast<char>(1 << bit % 8);
    WriteFile(dir / "kernel-1-1.ingero", bytes);
    const auto recordings = ListRecordings({dir.path()});
    ASSERT_EQ(recordings.size(), 1u);
    EXPECT_LT(recordings[0].streams.at(0).span.end,
              span.end + Ns(61'000 * kMs))
        << bit;
  }
}

// ---- stores ---------------------------------------------------------------

class StoreDamage : public ::testing::Test {
 protected:
  void SetUp() override {
    WriteFile(dir_ / "cuda-10-1.ingero", CudaBytes(3000));
    WriteFile(dir_ / "kernel-1-1.ingero", KernelBytes());
    auto merged = MergeDir(dir_);
    ASSERT_TRUE(merged.ok()) << merged.status().message();
    store_ = merged->store_path;
    clean_ = ReadFile(store_ + "/data.mdb");
    auto opened = OpenStore(store_);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    events_ = ReadEverything(**opened);
    ASSERT_GT(events_, 5000u);
  }
  // One line when it is opened or asked, or the same data as the undamaged
  // store.
  void ExpectLineOrSame(const std::string& bytes, const std::string& what) {
    WriteFile(store_ + "/data.mdb", bytes);
    auto opened = OpenTrace(store_);
    if (!opened.ok()) {
      EXPECT_EQ(opened.status().message().find('\n'), std::string::npos)
          << what;
      return;
    }
    const size_t events = ReadEverything(**opened);
    const Status read = (*opened)->AllRead();
    if (read.ok()) {
      EXPECT_EQ(events, events_) << what;
    } else {
      EXPECT_LE(events, events_) << what;
      EXPECT_EQ(read.message().find('\n'), std::string::npos) << what;
      ++told_late_;
    }
  }

  TempDir dir_;
  std::string store_, clean_;
  size_t events_ = 0, told_late_ = 0;
};

TEST_F(StoreDamage, CutFiles) {
  for (int i = 0; i < 20; ++i) {
    WriteFile(store_ + "/data.mdb", clean_.substr(0, clean_.size() * i / 20));
    auto opened = OpenStore(store_);
    ASSERT_FALSE(opened.ok()) << i;
    EXPECT_EQ(opened.status().message().find('\n'), std::string::npos);
    EXPECT_NE(opened.status().message().find("data.mdb"), std::string::npos);
  }
}

TEST_F(StoreDamage, FlippedBytes) {
  std::mt19937 random(7);
  for (int i = 0; i < 200; ++i) {
    std::string bytes = clean_;
    const size_t at = random() % bytes.size();
    bytes[at] = static_cast<char>(random());
    ExpectLineOrSame(bytes, "byte " + std::to_string(at));
    if (HasFatalFailure()) return;
  }
  // The pages that LMDB would trust: meta, branch and leaf.
  for (int i = 0; i < 2000; ++i) {
    std::string bytes = clean_;
    const size_t page = i % 4 == 0 ? random() % 2
                                   : random() % (bytes.size() / 4096);
    const size_t at = page * 4096 + random() % (i % 2 ? 200 : 4096);
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
    ExpectLineOrSame(bytes, "bit at " + std::to_string(at));
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(told_late_, 5u);
}

// What a key says is what decides whether its block is read at all.
TEST_F(StoreDamage, AKeyThatHidesItsBlockIsFound) {
  auto file = StoreFile::Open(store_ + "/data.mdb");
  ASSERT_TRUE(file.ok());
  size_t tried = 0;
  for (const BlockRef& ref : (*file)->blocks()) {
    // The last of their bytes: the order of keys stays as it is.
    BlockRef wrong = ref;
    wrong.last_ns ^= 1;
    std::string bytes = clean_;
    // Wherever it stands: pages that a later commit replaced hold keys, too.
    const std::string key = EncodeKey(ref);
    for (size_t at = bytes.find(key); at != std::string::npos;
         at = bytes.find(key, at + 1))
      bytes.replace(at, key.size(), EncodeKey(wrong));
    ASSERT_NE(bytes, clean_);
    WriteFile(store_ + "/data.mdb", bytes);
    auto opened = OpenStore(store_);
    ASSERT_FALSE(opened.ok());
    EXPECT_NE(opened.status().message().find("key"), std::string::npos)
        << opened.status().message();
    ++tried;
  }
  EXPECT_GT(tried, 10u);
}

TEST_F(StoreDamage, OtherThingsInItsPlace) {
  WriteFile(store_ + "/data.mdb", "");
  auto opened = OpenStore(store_);
  ASSERT_FALSE(opened.ok());
  EXPECT_NE(opened.status().message().find("empty"), std::string::npos);

  WriteFile(store_ + "/data.mdb", std::string(50000, 'x'));
  EXPECT_FALSE(OpenStore(store_).ok());

  std::filesystem::remove(store_ + "/data.mdb");
  EXPECT_FALSE(OpenStore(store_).ok());
  std::filesystem::create_directory(store_ + "/data.mdb");
  EXPECT_FALSE(OpenStore(store_).ok());
  std::filesystem::remove(store_ + "/data.mdb");
  ASSERT_EQ(mkfifo((store_ + "/data.mdb").c_str(), 0600), 0);
  EXPECT_FALSE(OpenStore(store_).ok());  // and does not wait for a writer
  EXPECT_FALSE(OpenStore(dir_ / "nowhere").ok());
}

TEST_F(StoreDamage, MergeReplacesADamagedStore) {
  WriteFile(store_ + "/data.mdb", clean_.substr(0, clean_.size() / 2));
  auto merged = MergeDir(dir_);
  ASSERT_TRUE(merged.ok()) << merged.status().message();
  ASSERT_FALSE(merged->notes.empty());
  EXPECT_NE(merged->notes[0].find("replaced"), std::string::npos);
  auto opened = OpenStore(store_);
  ASSERT_TRUE(opened.ok());
  EXPECT_EQ(ReadEverything(**opened), events_);
}

TEST_F(StoreDamage, ReadingLeavesNoTrace) {
  std::filesystem::remove(store_ + "/merge.lock");
  auto opened = OpenStore(store_);
  ASSERT_TRUE(opened.ok());
  ReadEverything(**opened);
  size_t files = 0;
  for (const auto& f : std::filesystem::directory_iterator(store_)) {
    (void)f;
    ++files;
  }
  EXPECT_EQ(files, 1u);
  EXPECT_EQ(ReadFile(store_ + "/data.mdb"), clean_);
  // The data file alone is a store too.
  auto by_file = OpenStore(store_ + "/data.mdb");
  ASSERT_TRUE(by_file.ok());
  EXPECT_EQ(ReadEverything(**by_file), events_);
}

TEST_F(StoreDamage, CutWhileItIsRead) {
  auto opened = OpenStore(store_);
  ASSERT_TRUE(opened.ok());
  ASSERT_EQ(truncate((store_ + "/data.mdb").c_str(), 8192), 0);
  EXPECT_LT(ReadEverything(**opened), events_);
  bool said = false;
  for (const std::string& missing : (*opened)->facts().missing)
    said |= missing.find("could not be read") != std::string::npos;
  EXPECT_TRUE(said);
}

}  // namespace
}  // namespace ingero::merge
