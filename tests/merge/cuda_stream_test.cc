// SPDX-License-Identifier: Apache-2.0
// A damaged CUDA stream cannot lie: each bit of a small one is flipped, and it
// is cut at each byte. What comes out is what was there, or is counted. Under no
// check are slots (LIVE blocks) and what the recorder changes in place in the
// stream header; there, what cannot have been written is counted.
#include "merge/cuda_stream.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "tests/support/stream_builder.h"

namespace ingero::merge {
namespace {

using testing::CudaStreamBuilder;

constexpr uint64_t kT0 = 100'000'000'000;
constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kTicksPerMs = 2'500'000;

// A few hundred calls' worth of everything that a recorder writes, over five
// seconds: two threads, nesting, a block written out, two calls in flight.
struct SmallStream {
  explicit SmallStream(ingero_clock clock, bool checked = true)
      : builder(10, int64_t{kT0}) {
    builder.checked = checked;
    const bool tsc = clock == INGERO_CLOCK_TSC;
    builder.header.clock = clock;
    builder.header.tsc_hz = tsc ? kTicksPerMs * 1000 : 0;
    builder.header.exited = 1;
    const auto ticks = [&](uint64_t ms) {
      return tsc ? 7'000'000'000'000 + ms * kTicksPerMs : kT0 + ms * kMs;
    };
    const auto knot = [&](uint32_t tid, uint64_t ms) {
      builder.Knot(tid, ticks(ms), kT0 + ms * kMs, 40);
    };
    const auto call = [&](uint32_t tid, uint16_t func, uint64_t ms,
                          uint64_t length_ms, uint8_t depth,
                          std::vector<uint64_t> words) {
      CudaStreamBuilder::CallSpec c;
      c.start = ticks(ms);
      c.duration = ticks(ms + length_ms) - ticks(ms);
      c.depth = depth;
      c.words = std::move(words);
      builder.Call(tid, func, c);
    };
    for (uint32_t tid : {10u, 11u}) {
      builder.Thread(tid, "python3");
      knot(tid, 0);
    }
    builder.Process("/bin/python3", "python3\x1ftrain.py");
    knot(10, 1);
    builder.Name(1, "cudaStreamSynchronize", INGERO_LAYER_RUNTIME,
                 INGERO_CLASS_SYNC_STREAM, {INGERO_WORD_STREAM});
    builder.Name(2, "cuStreamSynchronize", INGERO_LAYER_DRIVER,
                 INGERO_CLASS_SYNC_STREAM, {INGERO_WORD_STREAM});
    builder.Name(3, "cudaDeviceSynchronize", INGERO_LAYER_RUNTIME,
                 INGERO_CLASS_SYNC_DEVICE);
    for (uint64_t ms = 0; ms < 5000; ms += 200) {
      if (ms / 200 % 3 == 0) {
        knot(10, ms + 95);
        knot(11, ms + 95);
      }
      call(10, 2, ms + 1, 40, 1, {ms});
      call(10, 1, ms, 50, 0, {ms});
      call(10, 3, ms + 60, 1, 0, {});
      call(11, 3, ms + 62, 100, 0, {});
      if (ms == 2400) builder.WriteOut(10);
      if (ms == 3000) builder.WriteOut(11);
    }
    knot(10, 5000);
    builder.InFlight(10, 0, 1, ticks(5010));
    builder.InFlight(10, 1, 2, ticks(5011));
    bytes = builder.Bytes();
    first = ticks(0);
    last = ticks(5011);
    last_end = ticks(4860 + 1);
  }
  CudaStreamBuilder builder;
  std::string bytes;
  uint64_t first = 0, last = 0;
  uint64_t last_end = 0;  // of the outermost calls of thread 10
};

class Reading {
 public:
  Reading() : fd_(memfd_create("stream", MFD_CLOEXEC)) {}
  ~Reading() { close(fd_); }
  void Set(const std::string& bytes) {
    ASSERT_EQ(ftruncate(fd_, 0), 0);
    ASSERT_EQ(pwrite(fd_, bytes.data(), bytes.size(), 0),
              static_cast<ssize_t>(bytes.size()));
  }
  void Put(size_t at, char byte) {
    ASSERT_EQ(pwrite(fd_, &byte, 1, static_cast<off_t>(at)), 1);
  }
  Result<std::unique_ptr<CudaStream>> Open() const {
    return CudaStream::Open("/proc/self/fd/" + std::to_string(fd_));
  }

 private:
  int fd_;
};

std::vector<WireCall> AllCalls(const CudaStream& stream) {
  std::vector<WireCall> calls;
  CallReader reader(stream);
  for (WireCall call; reader.Next(&call);) calls.push_back(call);
  return calls;
}

// Bytes that hold something: the rest of a block is zeros.
std::vector<size_t> UsedBytes(const std::string& bytes) {
  std::vector<size_t> used;
  for (size_t block = INGERO_BLOCK_BYTES; block < bytes.size();
       block += INGERO_BLOCK_BYTES) {
    ingero_block_header h;
    std::memcpy(&h, bytes.data() + block, sizeof(h));
    for (size_t i = 0; i < sizeof(h) + (h.cursor & UINT32_MAX); ++i)
      used.push_back(block + i);
  }
  return used;
}

// All that a reader can ask of a stream.
std::string Decoded(const CudaStream& s) {
  const ingero_stream_header& h = s.header();
  std::string text(reinterpret_cast<const char*>(&h),
                   offsetof(ingero_stream_header, blocks_reserved));
  const auto add = [&](auto... values) {
    ((text += std::to_string(values) + ' '), ...);
    text += '\n';
  };
  add(h.calls_skipped, s.calls(), s.ranges(), s.self_ticks(), s.first_ticks(),
      s.last_ticks());
  for (const WireCall& c : AllCalls(s)) {
    add(c.start_ticks, c.end_ticks, c.tid, c.func, c.result, c.depth, c.flags,
        c.words_used, c.no_end);
    for (uint64_t w : c.words) add(w);
  }
  for (const auto& [id, f] : s.functions()) {
    text += f.name;
    add(id, f.layer, f.call_class);
    for (uint8_t w : f.words) add(w);
  }
  for (const auto& [kernel, name] : s.kernels()) text += name, add(kernel);
  for (const auto& [tid, t] : s.threads()) text += t.comm, add(tid);
  for (const auto& c : s.coverage()) text += c.text, add(c.way, c.count);
  for (const auto& [id, name] : s.nvtx_names()) text += name, add(id);
  EXPECT_TRUE(s.EachRange([&](const WireRange& r) {
                 add(r.start_ticks, r.end_ticks, r.tid, r.name, r.kind, r.open);
                 return Status();
               }).ok());
  for (const Knot& k : s.knots()) add(k.ticks, k.mono_ns, k.window_ticks);
  return text + s.exe() + s.cmdline();
}

// Bytes under a check, and those that mean nothing.
std::vector<size_t> CheckedBytes(const std::string& bytes) {
  std::vector<size_t> checked;
  for (size_t i = 0; i < offsetof(ingero_stream_header, blocks_reserved); ++i)
    checked.push_back(i);
  for (size_t i = sizeof(ingero_stream_header); i < INGERO_BLOCK_BYTES;
       i += 251)
    checked.push_back(i);
  for (size_t block = INGERO_BLOCK_BYTES; block < bytes.size();
       block += INGERO_BLOCK_BYTES) {
    ingero_block_header h;
    std::memcpy(&h, bytes.data() + block, sizeof(h));
    if (h.type != INGERO_BLOCK_DATA) continue;
    const size_t used = sizeof(h) + (h.cursor & UINT32_MAX);
    for (size_t i = 0; i < INGERO_BLOCK_BYTES; i += i < used + 16 ? 1 : 97)
      checked.push_back(block + i);
  }
  return checked;
}

TEST(FlippedBitUnderCheck, ChangesNothingOrIsSaid) {
  const SmallStream small(INGERO_CLOCK_TSC);
  Reading file;
  file.Set(small.bytes);
  std::string clean;
  size_t all = 0;
  {
    auto opened = file.Open();
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    ASSERT_TRUE((*opened)->losses().empty());
    clean = Decoded(**opened);
    all = AllCalls(**opened).size();
  }
  int refused = 0, lost = 0, same = 0;
  for (const size_t at : CheckedBytes(small.bytes)) {
    for (int bit = 0; bit < 8; ++bit) {
      file.Put(at, static_cast<char>(small.bytes[at] ^ (1 << bit)));
      const std::string what = "byte " + std::to_string(at) + " bit " +
                               std::to_string(bit);
      auto damaged = file.Open();
      if (!damaged.ok()) {
        ++refused;
        EXPECT_LT(at, sizeof(ingero_stream_header)) << what;
        EXPECT_EQ(damaged.status().message().find('\n'), std::string::npos);
      } else if ((*damaged)->losses().empty()) {
        ++same;
        EXPECT_EQ(Decoded(**damaged) == clean, true) << what;
      } else {
        // What is left is what was there: the other blocks, whole.
        ++lost;
        const size_t calls = AllCalls(**damaged).size();
        EXPECT_TRUE(calls < all && calls > all / 4) << what << ": " << calls;
        ASSERT_EQ((*damaged)->losses().size(), 1u) << what;
        EXPECT_EQ((*damaged)->losses()[0].loss, INGERO_LOSS_DAMAGED_BLOCK);
        ASSERT_EQ((*damaged)->damage().size(), 1u) << what;
        EXPECT_NE((*damaged)->damage()[0].find(
                      "offset " + std::to_string(at / INGERO_BLOCK_BYTES *
                                                 INGERO_BLOCK_BYTES)),
                  std::string::npos)
            << (*damaged)->damage()[0];
      }
      if (HasFailure()) return;
    }
    file.Put(at, small.bytes[at]);
  }
  EXPECT_EQ(refused, 8 * offsetof(ingero_stream_header, blocks_reserved));
  EXPECT_GT(lost, 8000);
  EXPECT_GT(same, 5000);
}

TEST(DamagedBlock, IsPlacedBetweenTheBlocksOfItsSlot) {
  CudaStreamBuilder builder(10, int64_t{kT0});
  builder.Name(1, "cudaDeviceSynchronize", INGERO_LAYER_RUNTIME,
               INGERO_CLASS_SYNC_DEVICE);
  for (uint64_t ms = 0; ms < 100; ++ms) {
    builder.Call(10, 1, kT0 + ms * kMs, 1000);
    if (ms % 25 == 24) builder.WriteOut(10);
  }
  builder.Call(10, 1, kT0 + 100 * kMs, 1000);
  std::string bytes = builder.Bytes();
  // The second of four.
  bytes[3 * INGERO_BLOCK_BYTES + 500] ^= 4;
  Reading file;
  file.Set(bytes);
  auto stream = file.Open();
  ASSERT_TRUE(stream.ok());
  EXPECT_EQ(AllCalls(**stream).size(), 76u);
  ASSERT_EQ((*stream)->losses().size(), 1u);
  const CudaStream::Loss& loss = (*stream)->losses()[0];
  EXPECT_EQ(loss.first_ticks, kT0 + 24 * kMs + 1000);
  EXPECT_EQ(loss.last_ticks, kT0 + 50 * kMs);
}

// Found by stream_fuzz: such a call was counted, and never came.
TEST(CallAtTickZero, IsDamageAndCounted) {
  CudaStreamBuilder s(10, 1'000'000'000);
  s.Call(10, 1, 0, 500);
  s.InFlight(10, 0, 1, 0);
  Reading file;
  file.Set(s.Bytes());
  auto stream = file.Open();
  ASSERT_TRUE(stream.ok()) << stream.status().message();
  EXPECT_EQ((*stream)->calls(), 0u);
  EXPECT_TRUE(AllCalls(**stream).empty());
  uint64_t damaged = 0;
  for (const CudaStream::Loss& loss : (*stream)->losses())
    if (loss.loss == INGERO_LOSS_DAMAGED_BLOCK) damaged += loss.count;
  EXPECT_EQ(damaged, 2u);
}

TEST(AbsurdCount, OfADamagedHeaderIsNotTaken) {
  const SmallStream small(INGERO_CLOCK_TSC);
  Reading file;
  file.Set(small.bytes);
  const size_t places[] = {
      offsetof(ingero_stream_header, calls_skipped),
      offsetof(ingero_stream_header, lost) + 8 * INGERO_LOSS_WRITE_FAILED,
      offsetof(ingero_stream_header, lost) + 8 * 60};
  for (const size_t at : places) {
    file.Put(at + 6, 0x10);
    auto damaged = file.Open();
    ASSERT_TRUE(damaged.ok());
    EXPECT_EQ((*damaged)->header().calls_skipped, 0u);
    ASSERT_EQ((*damaged)->losses().size(), 1u);
    EXPECT_EQ((*damaged)->losses()[0].loss, INGERO_LOSS_DAMAGED_BLOCK);
    EXPECT_EQ((*damaged)->losses()[0].count, 1u);
    ASSERT_EQ((*damaged)->damage().size(), 1u);
    EXPECT_NE((*damaged)->damage()[0].find("4503599627370496"),
              std::string::npos);
    file.Put(at + 6, 0);
  }
  // Of a newer recorder.
  file.Put(places[2], 3);
  auto newer = file.Open();
  ASSERT_TRUE(newer.ok());
  ASSERT_EQ((*newer)->losses().size(), 1u);
  EXPECT_EQ((*newer)->losses()[0].loss, INGERO_LOSS_UNKNOWN_KIND);
}

template <typename T>
std::string BytesOf(T record, uint8_t kind, uint8_t flags) {
  record.r = {kind, flags, sizeof(T) / 8};
  return {reinterpret_cast<const char*>(&record), sizeof(T)};
}

std::string Begin(uint64_t ms, uint8_t kind, uint32_t tid = 0) {
  return BytesOf(ingero_nvtx_begin{{}, 7, 8, tid, kT0 + ms * kMs},
                 INGERO_RECORD_NVTX_BEGIN, kind);
}

std::string Range(uint64_t ms, uint64_t length_ms, uint8_t kind) {
  return BytesOf(
      ingero_nvtx{{}, 7, kT0 + ms * kMs, length_ms * kMs, 8, 0},
      INGERO_RECORD_NVTX, kind);
}

// "10 5+3" is a range of thread 10 from the 5th ms on for 3 ms; "open" follows
// where it has no end.
std::vector<std::string> RangesOf(const std::string& bytes,
                                  uint64_t* dropped = nullptr) {
  Reading file;
  file.Set(bytes);
  auto opened = file.Open();
  EXPECT_TRUE(opened.ok()) << opened.status().message();
  std::vector<std::string> out;
  EXPECT_TRUE((*opened)
                  ->EachRange([&](const WireRange& r) {
                    EXPECT_EQ(r.name, 7u);
                    EXPECT_EQ(r.domain, 8u);
                    out.push_back(
                        std::to_string(r.tid) + " " +
                        std::to_string((r.start_ticks - kT0) / kMs) + "+" +
                        std::to_string((r.end_ticks - r.start_ticks) / kMs) +
                        (r.open ? " open" : ""));
                    return Status();
                  })
                  .ok());
  for (const CudaStream::Loss& l : (*opened)->losses())
    if (dropped != nullptr && l.loss == INGERO_LOSS_RANGES) *dropped += l.count;
  std::sort(out.begin(), out.end());
  return out;
}

using Lines = std::vector<std::string>;

TEST(NvtxRange, WithoutAnEndIsOpenUntilTheLastThatIsKnown) {
  CudaStreamBuilder builder(10, int64_t{kT0});
  // Slots in the order 10, 11: the end of one comes before its begin.
  builder.Thread(10, "a");
  builder.Thread(11, "b");
  builder.Raw(10, Begin(1, INGERO_NVTX_NESTED));
  builder.Raw(10, Begin(2, INGERO_NVTX_NESTED));
  builder.WriteOut(10);
  builder.Raw(10, Range(2, 5, INGERO_NVTX_NESTED));
  builder.Raw(10, Range(3, 5, INGERO_NVTX_PROCESS));
  builder.Raw(11, Begin(3, INGERO_NVTX_PROCESS));
  // Same start, another thread.
  builder.Raw(11, Begin(2, INGERO_NVTX_NESTED));
  // Of before the stream, told by thread 11.
  builder.Raw(11, Begin(0, INGERO_NVTX_NESTED, 10));
  builder.Raw(11, Begin(0, INGERO_NVTX_PROCESS, 12));
  EXPECT_EQ(RangesOf(builder.Bytes()),
            (Lines{"10 0+8 open", "10 1+7 open", "10 2+5", "10 3+5",
                   "11 2+6 open", "12 0+8 open"}));
}

TEST(NvtxRange, OfAStreamWithoutBeginsIsAsItWas) {
  CudaStreamBuilder builder(10, int64_t{kT0});
  builder.Thread(10, "a");
  builder.Raw(10, Range(2, 5, INGERO_NVTX_NESTED));
  builder.Raw(10, Range(1, 7, INGERO_NVTX_NESTED));
  builder.Raw(10, Range(9, 0, INGERO_NVTX_MARK));
  EXPECT_EQ(RangesOf(builder.Bytes()), (Lines{"10 1+7", "10 2+5", "10 9+0"}));
}

TEST(NvtxRange, WhoseEndMayBeLostIsCountedNotOpen) {
  CudaStreamBuilder builder(10, int64_t{kT0});
  builder.Name(1, "cudaDeviceSynchronize", INGERO_LAYER_RUNTIME,
               INGERO_CLASS_SYNC_DEVICE);
  builder.Call(10, 1, kT0, 1000);
  builder.Raw(10, Begin(1, INGERO_NVTX_NESTED));
  builder.WriteOut(10);
  builder.Raw(10, Range(1, 1, INGERO_NVTX_NESTED));
  builder.Call(10, 1, kT0 + 3 * kMs, 1000);
  builder.WriteOut(10);
  builder.Call(10, 1, kT0 + 4 * kMs, 1000);
  builder.Raw(10, Begin(5, INGERO_NVTX_NESTED));
  std::string bytes = builder.Bytes();
  EXPECT_EQ(RangesOf(bytes), (Lines{"10 1+1", "10 5+0 open"}));
  bytes[3 * INGERO_BLOCK_BYTES + 150] ^= 4;
  uint64_t dropped = 0;
  EXPECT_EQ(RangesOf(bytes, &dropped), (Lines{"10 5+0 open"}));
  EXPECT_EQ(dropped, 1u);
}

class FlippedBit : public ::testing::TestWithParam<ingero_clock> {};

TEST_P(FlippedBit, CannotStretchACallAndIsCountedWhereCallsAreMissing) {
  const SmallStream small(GetParam(), /*checked=*/false);
  Reading file;
  file.Set(small.bytes);
  auto clean = file.Open();
  ASSERT_TRUE(clean.ok()) << clean.status().message();
  ASSERT_TRUE((*clean)->losses().empty());
  const std::vector<WireCall> all = AllCalls(**clean);
  ASSERT_EQ(all.size(), 102u);
  const bool tsc = GetParam() == INGERO_CLOCK_TSC;
  const auto map_of = [&](const CudaStream& s) {
    return tsc ? ClockMap::Fit({}, s.knots(), s.header().tsc_hz)
               : ClockMap::Identity(0);
  };
  const auto clean_map = map_of(**clean);
  int changed = 0, counted = 0;
  std::string uncounted;
  for (const size_t at : UsedBytes(small.bytes)) {
    for (int bit = 0; bit < 8; ++bit) {
      file.Put(at, static_cast<char>(small.bytes[at] ^ (1 << bit)));
      auto damaged = file.Open();
      const std::string what = "byte " + std::to_string(at) + " bit " +
                               std::to_string(bit);
      ASSERT_TRUE(damaged.ok()) << what << damaged.status().message();
      const CudaStream& s = **damaged;
      const std::vector<WireCall> calls = AllCalls(s);
      const bool is_counted = !s.losses().empty();
      counted += is_counted;
      // A nested call in flight may look as if it had just returned.
      const size_t in_header = at % INGERO_BLOCK_BYTES;
      const bool in_flight =
          in_header >= offsetof(ingero_block_header, inflight) &&
          in_header < sizeof(ingero_block_header);
      if (calls.size() + (in_flight ? 1 : 0) < all.size() ||
          calls.size() > all.size()) {
        ++changed;
        if (!is_counted) uncounted += what + "\n";
      }
      const auto map = map_of(s);
      ASSERT_TRUE(map.has_value()) << what;
      for (const WireCall& c : calls) {
        EXPECT_LE(c.end_ticks - c.start_ticks, small.last - small.first)
            << what;
        // In flight: not from before what is known to have ended.
        if (c.no_end && c.tid == 10) {
          EXPECT_GE(c.start_ticks + (1 << 13), small.last_end) << what;
        }
        // The clock is at most a tenth of a segment off.
        EXPECT_NEAR(static_cast<double>(map->ToNs(c.start_ticks) -
                                        clean_map->ToNs(c.start_ticks)),
                    0, 0.1 * 600 * kMs)
            << what;
      }
      if (HasFailure()) return;
      file.Put(at, small.bytes[at]);
    }
  }
  EXPECT_GT(changed, 1000);
  // Without checksums some pass for another sound record (a short call's for a
  // COVERAGE record, say).
  EXPECT_LE(std::count(uncounted.begin(), uncounted.end(), '\n'),
            changed / 100)
      << uncounted;
  EXPECT_GT(counted, changed);
}

INSTANTIATE_TEST_SUITE_P(Clocks, FlippedBit,
                         ::testing::Values(INGERO_CLOCK_TSC,
                                           INGERO_CLOCK_MONOTONIC));

TEST(CutStream, AtEveryByteKeepsWhatIsBeforeTheCut) {
  const SmallStream small(INGERO_CLOCK_TSC);
  Reading file;
  file.Set(small.bytes);
  size_t whole = 0;
  {
    auto clean = file.Open();
    ASSERT_TRUE(clean.ok());
    whole = AllCalls(**clean).size();
  }
  size_t last = whole;
  std::vector<size_t> used = UsedBytes(small.bytes);
  for (auto at = used.rbegin(); at != used.rend(); ++at) {
    file.Set(small.bytes.substr(0, *at));
    auto cut = file.Open();
    ASSERT_TRUE(cut.ok()) << *at << cut.status().message();
    const size_t calls = AllCalls(**cut).size();
    EXPECT_LE(calls, last) << *at;
    if (calls < whole && *at % INGERO_BLOCK_BYTES != 0) {
      EXPECT_FALSE((*cut)->losses().empty()) << *at;
    }
    last = calls;
  }
  EXPECT_EQ(last, 0u);
  for (size_t size = 0; size < sizeof(ingero_stream_header); ++size) {
    file.Set(small.bytes.substr(0, size));
    auto cut = file.Open();
    ASSERT_FALSE(cut.ok());
    EXPECT_EQ(cut.status().message().find('\n'), std::string::npos);
  }
}

}  // namespace
}  // namespace ingero::merge
