// SPDX-License-Identifier: Apache-2.0
#include "base/block_codec.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>
#include <thread>

#include "base/crc32c.h"
#include "base/tables.h"

namespace ingero {
namespace {

constexpr Column kColumns[] = {{"t_ns", kDelta},
                               {"plain", kPlain},
                               {"signed", kZigzag},
                               {"near", kMinusTime}};
constexpr TableSchema kSchema{900, "test", kColumns, true};

const uint64_t kEdges[] = {0,
                           1,
                           127,
                           128,
                           16383,
                           16384,
                           (1ULL << 32) - 1,
                           1ULL << 62,
                           (1ULL << 63) - 1,
                           1ULL << 63,
                           std::numeric_limits<uint64_t>::max()};

// Every transform at every edge of 64 bits, near the time and far from it.
Rows EdgeRows() {
  Rows rows;
  rows.schema = &kSchema;
  for (uint64_t t : kEdges)
    for (uint64_t v : kEdges) {
      const uint64_t row[] = {t, v, v, t - v};
      rows.Append(row, std::string(v % 5, static_cast<char>(t)));
    }
  return rows;
}

Rows SmallRows() {
  Rows rows;
  rows.schema = &kSchema;
  for (uint64_t i = 0; i < 12; ++i) {
    const uint64_t row[] = {1'000'000'000 + i * 300, i, 0 - i, i % 3 * 1000};
    rows.Append(row, i % 2 == 0 ? "python" : "");
  }
  return rows;
}

Rows SwitchRows(size_t count, uint32_t seed) {
  Rows rows;
  rows.schema = &switch_table::kSchema;
  std::mt19937_64 random(seed);
  uint64_t t = 5'000'000'000;
  for (size_t i = 0; i < count; ++i) {
    uint64_t row[switch_table::kCount] = {};
    t += random() % 20'000;
    row[switch_table::kT] = t;
    row[switch_table::kPrevTid] = 1000 + random() % 8;
    row[switch_table::kNextTid] = 1000 + random() % 8;
    if (random() % 2 == 0) row[switch_table::kWakeT] = t - random() % 5000;
    row[switch_table::kPrevArg0] = random();
    rows.Append(row);
  }
  return rows;
}

std::string Encoded(const Rows& rows, uint32_t owner = 0) {
  std::string bytes;
  EncodeBlock(rows, owner, &bytes);
  return bytes;
}

// With a CRC that fits, so that what lies behind it is tested too.
void FixCrc(std::string* bytes) {
  BlockPreamble p;
  std::memcpy(&p, bytes->data(), sizeof(p));
  p.crc = 0;
  std::memcpy(bytes->data(), &p, sizeof(p));
  p.crc = Crc32c(std::string_view(*bytes).substr(
      0, sizeof(p) + std::min<size_t>(p.payload_bytes,
                                      bytes->size() - sizeof(p))));
  std::memcpy(bytes->data(), &p, sizeof(p));
}

TEST(BlockCodecTest, EveryValueSurvives) {
  const Rows rows = EdgeRows();
  Rows back;
  ASSERT_TRUE(DecodeBlock(Encoded(rows), kSchema, &back).ok());
  EXPECT_EQ(back.values, rows.values);
  EXPECT_EQ(back.texts, rows.texts);
}

TEST(BlockCodecTest, RandomRowsSurvive) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 200; ++round) {
    Rows rows;
    rows.schema = &kSchema;
    const size_t count = 1 + random() % 300;
    for (size_t i = 0; i < count; ++i) {
      uint64_t row[4];
      for (uint64_t& v : row) v = random() >> (random() % 64);
      rows.Append(row, std::string(random() % 9, 'x'));
    }
    Rows back;
    ASSERT_TRUE(DecodeBlock(Encoded(rows), kSchema, &back).ok());
    ASSERT_EQ(back.values, rows.values);
    ASSERT_EQ(back.texts, rows.texts);
  }
}

TEST(BlockCodecTest, RealTablesSurvive) {
  const Rows rows = SwitchRows(4096, 1);
  const std::string bytes = Encoded(rows, 3);
  Rows back;
  ASSERT_TRUE(DecodeBlock(bytes, switch_table::kSchema, &back).ok());
  EXPECT_EQ(back.values, rows.values);
  Result<BlockPreamble> p = ReadPreamble(bytes);
  ASSERT_TRUE(p.ok());
  EXPECT_EQ(p->owner, 3u);
  EXPECT_EQ(p->rows, 4096u);
  EXPECT_EQ(BlockBytes(*p), bytes.size());
  EXPECT_EQ(static_cast<uint64_t>(p->first_ns), rows.at(0, 0));
  EXPECT_EQ(static_cast<uint64_t>(p->last_ns), rows.at(4095, 0));
}

TEST(BlockCodecTest, LargestBlockSurvives) {
  Rows rows;
  rows.schema = &switch_table::kSchema;
  std::mt19937_64 random(3);
  rows.values.resize(kMaxBlockRows * rows.columns());
  for (uint64_t& v : rows.values) v = random();
  Rows back;
  ASSERT_TRUE(DecodeBlock(Encoded(rows), switch_table::kSchema, &back).ok());
  EXPECT_EQ(back.values, rows.values);
}

TEST(BlockCodecTest, TimesNeedNotBeSorted) {
  Rows rows;
  rows.schema = &kSchema;
  for (int64_t t : {50, -20, 90, 10}) {
    const uint64_t row[] = {static_cast<uint64_t>(t), 0, 0, 0};
    rows.Append(row);
  }
  const std::string bytes = Encoded(rows);
  Result<BlockPreamble> p = ReadPreamble(bytes);
  ASSERT_TRUE(p.ok());
  EXPECT_EQ(p->first_ns, -20);
  EXPECT_EQ(p->last_ns, 90);
}

TEST(BlockCodecTest, BlocksFollowEachOther) {
  std::string bytes;
  EncodeBlock(SmallRows(), 1, &bytes);
  const size_t first = bytes.size();
  EncodeBlock(EdgeRows(), 2, &bytes);
  Rows back;
  ASSERT_TRUE(DecodeBlock(bytes, kSchema, &back).ok());
  EXPECT_EQ(back.values, SmallRows().values);
  ASSERT_TRUE(
      DecodeBlock(std::string_view(bytes).substr(first), kSchema, &back).ok());
  EXPECT_EQ(back.values, EdgeRows().values);
}

TEST(BlockCodecTest, SameRowsGiveSameBytes) {
  EXPECT_EQ(Encoded(SwitchRows(4096, 1)), Encoded(SwitchRows(4096, 1)));
}

TEST(BlockCodecTest, MissingTrailingColumnsReadAsZero) {
  static constexpr TableSchema kNewer{
      switch_table::kSchema.id, "newer", switch_table::kColumns, false};
  static const TableSchema kOlder{
      kNewer.id, "older", std::span(switch_table::kColumns).first(5), false};
  Rows rows;
  rows.schema = &kOlder;
  for (uint64_t i = 0; i < 10; ++i) {
    const uint64_t row[] = {i, i + 1, i + 2, i + 3, i + 4};
    rows.Append(row);
  }
  Rows back;
  ASSERT_TRUE(DecodeBlock(Encoded(rows), kNewer, &back).ok());
  ASSERT_EQ(back.size(), 10u);
  EXPECT_EQ(back.at(9, 4), 13u);
  EXPECT_EQ(back.at(9, 5), 0u);
}

TEST(BlockCodecTest, ExtraColumnsAreIgnoredAndTextsStillRead) {
  static const TableSchema kOlder{kSchema.id, "older",
                                  std::span(kColumns).first(2), true};
  const Rows rows = SmallRows();
  Rows back;
  ASSERT_TRUE(DecodeBlock(Encoded(rows), kOlder, &back).ok());
  ASSERT_EQ(back.size(), rows.size());
  for (size_t r = 0; r < rows.size(); ++r) {
    EXPECT_EQ(back.at(r, 0), rows.at(r, 0));
    EXPECT_EQ(back.at(r, 1), rows.at(r, 1));
  }
  EXPECT_EQ(back.texts, rows.texts);
}

TEST(BlockCodecTest, AnotherTableIsRefused) {
  Rows back;
  const Status status =
      DecodeBlock(Encoded(SmallRows()), task_table::kSchema, &back);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(back.size(), 0u);
}

TEST(BlockCodecTest, TruncationAtEveryByteIsAnError) {
  const std::string bytes = Encoded(SmallRows());
  Rows back;
  for (size_t n = 0; n < bytes.size(); ++n) {
    // A copy of its own, so that a read past the end is one past the heap
    // block and the sanitizer sees it.
    const std::string cut(bytes.data(), n);
    EXPECT_FALSE(DecodeBlock(cut, kSchema, &back).ok()) << n;
    EXPECT_FALSE(CheckBlock(cut).ok()) << n;
  }
}

TEST(BlockCodecTest, EveryFlippedBitIsAnError) {
  const std::string bytes = Encoded(SmallRows());
  Rows back;
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::string damaged = bytes;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    EXPECT_FALSE(DecodeBlock(damaged, kSchema, &back).ok()) << bit;
    EXPECT_FALSE(CheckBlock(damaged).ok()) << bit;
  }
}

// The CRC does not hide what is behind it: zstd's and the varints' checks.
TEST(BlockCodecTest, FlippedBitsBehindAValidCrcNeverCrash) {
  size_t refused = 0;
  for (const Rows& rows : {SmallRows(), EdgeRows()}) {
    const std::string bytes = Encoded(rows);
    Rows back;
    for (size_t bit = 32; bit < bytes.size() * 8; ++bit) {
      std::string damaged = bytes;
      damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
      FixCrc(&damaged);
      if (!DecodeBlock(damaged, kSchema, &back).ok()) {
        ++refused;
        EXPECT_EQ(back.size(), 0u);
      }
    }
  }
  EXPECT_GT(refused, 0u);
}

TEST(BlockCodecTest, TruncationBehindAValidCrcIsAnError) {
  // Plain encoding: random values do not compress.
  Rows rows;
  rows.schema = &kSchema;
  std::mt19937_64 random(1);
  for (int i = 0; i < 8; ++i) {
    const uint64_t row[] = {random(), random(), random(), random()};
    rows.Append(row, std::string(1, static_cast<char>(random())));
  }
  const std::string bytes = Encoded(rows);
  BlockPreamble p;
  std::memcpy(&p, bytes.data(), sizeof(p));
  ASSERT_EQ(p.encoding, 0);
  Rows back;
  for (uint32_t n = 0; n < p.raw_bytes; ++n) {
    std::string cut = bytes.substr(0, sizeof(p) + n);
    BlockPreamble q = p;
    q.raw_bytes = q.payload_bytes = n;
    std::memcpy(cut.data(), &q, sizeof(q));
    FixCrc(&cut);
    EXPECT_FALSE(DecodeBlock(cut, kSchema, &back).ok()) << n;
  }
}

TEST(BlockCodecTest, HugeSizesInAPreambleAllocateNothing) {
  const std::string bytes = Encoded(SmallRows());
  BlockPreamble p;
  std::memcpy(&p, bytes.data(), sizeof(p));
  Rows back;
  const auto refused = [&](BlockPreamble q) {
    std::string changed = bytes;
    std::memcpy(changed.data(), &q, sizeof(q));
    FixCrc(&changed);
    return !DecodeBlock(changed, kSchema, &back).ok();
  };
  BlockPreamble q = p;
  q.rows = 0xffffffff;
  EXPECT_TRUE(refused(q));
  q = p, q.rows = 0;
  EXPECT_TRUE(refused(q));
  q = p, q.raw_bytes = 0xffffffff;
  EXPECT_TRUE(refused(q));
  q = p, q.payload_bytes = 0xffffffff;
  EXPECT_TRUE(refused(q));
  q = p, q.columns = 0;
  EXPECT_TRUE(refused(q));
  q = p, q.encoding = 2;
  EXPECT_TRUE(refused(q));
}

TEST(BlockCodecTest, ThreadsDoNotShareState) {
  std::vector<std::thread> threads;
  std::vector<int> failures(4, 0);
  for (uint32_t id = 0; id < 4; ++id)
    threads.emplace_back([id, &failures] {
      const Rows rows = SwitchRows(500, id);
      Rows back;
      for (int i = 0; i < 50; ++i)
        if (!DecodeBlock(Encoded(rows), switch_table::kSchema, &back).ok() ||
            back.values != rows.values)
          ++failures[id];
    });
  for (std::thread& thread : threads) thread.join();
  for (int failed : failures) EXPECT_EQ(failed, 0);
}

TEST(TablesTest, IdsAndColumnNamesAreUnique) {
  for (const TableSchema* a : kAllTables) {
    EXPECT_EQ(FindTable(a->id), a);
    EXPECT_EQ(a->columns[0].transform, kDelta) << a->name;
    for (const TableSchema* b : kAllTables) {
      if (a != b) { EXPECT_STRNE(a->name, b->name); }
    }
    for (size_t i = 0; i < a->columns.size(); ++i)
      for (size_t j = 0; j < i; ++j)
        EXPECT_STRNE(a->columns[i].name, a->columns[j].name) << a->name;
  }
  EXPECT_EQ(FindTable(9999), nullptr);
}

TEST(Crc32cTest, KnownValues) {
  // RFC 3720, B.4.
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(Crc32c(""), 0u);
}

TEST(Crc32cTest, PortableAgreesAndPartsChain) {
  std::mt19937_64 random(5);
  std::string bytes;
  for (int n = 0; n < 300; ++n) {
    EXPECT_EQ(Crc32c(bytes), Crc32cPortable(bytes)) << n;
    const std::string_view all = bytes;
    const size_t cut = bytes.empty() ? 0 : random() % bytes.size();
    EXPECT_EQ(Crc32c(all.substr(cut), Crc32c(all.substr(0, cut))),
              Crc32c(all));
    bytes.push_back(static_cast<char>(random()));
  }
}

}  // namespace
}  // namespace ingero
