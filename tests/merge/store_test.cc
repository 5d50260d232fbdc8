// SPDX-License-Identifier: Apache-2.0
// The store file by itself, and next to LMDB's own reader.
#include "merge/store.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/support/stream_builder.h"

namespace ingero::merge {
namespace {

using testing::TempDir;

Rows SampleRows(int64_t first, size_t count, uint32_t seed) {
  std::mt19937_64 random(seed);
  Rows rows;
  rows.schema = &sample_table::kSchema;
  for (size_t i = 0; i < count; ++i) {
    const uint64_t row[] = {static_cast<uint64_t>(first) + i, 1, seed,
                            random()};
    rows.Append(row, "text");
  }
  return rows;
}

TEST(StoreKey, SortsByTableOwnerAndTime) {
  const auto key = [](uint16_t table, uint32_t owner, int64_t first,
                      uint32_t sequence) {
    BlockRef ref;
    ref.table = table;
    ref.owner = owner;
    ref.first_ns = first;
    ref.last_ns = first + 5;
    ref.sequence = sequence;
    return EncodeKey(ref);
  };
  EXPECT_LT(key(1, 9, 9, 9), key(2, 0, 0, 0));
  EXPECT_LT(key(1, 1, 9, 9), key(1, 256, 0, 0));
  EXPECT_LT(key(1, 1, -5, 0), key(1, 1, 3, 0));
  EXPECT_LT(key(1, 1, 255, 0), key(1, 1, 256, 0));
  EXPECT_LT(key(1, 1, 3, 1), key(1, 1, 3, 2));
  BlockRef back;
  ASSERT_TRUE(DecodeKey(key(3, 4, -77, 5), &back));
  EXPECT_EQ(back.table, 3);
  EXPECT_EQ(back.owner, 4u);
  EXPECT_EQ(back.first_ns, -77);
  EXPECT_EQ(back.last_ns, -72);
  EXPECT_EQ(back.sequence, 5u);
  EXPECT_FALSE(DecodeKey("short", &back));
}

TEST(Store, GrowsFromOneMebibyte) {
  TempDir dir;
  const std::string path = dir / "data.mdb";
  auto writer = StoreWriter::Create(path);
  ASSERT_TRUE(writer.ok()) << writer.status().message();
  constexpr size_t kBlocks = 1500;
  for (size_t i = 0; i < kBlocks; ++i) {
    // Random values: about 30 KiB each, 45 MiB in all; every tenth is small.
    Rows rows = SampleRows(static_cast<int64_t>(i * 10'000),
                           i % 10 == 0 ? 3 : 3000, static_cast<uint32_t>(i));
    ASSERT_TRUE((*writer)->PutRows(&rows, i % 7).ok());
  }
  Status s = (*writer)->Finish();
  ASSERT_TRUE(s.ok()) << s.message();
  auto file = StoreFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ((*file)->blocks().size(), kBlocks + 1);  // and the index
  EXPECT_TRUE((*file)->VerifyBlocks().ok());
  EXPECT_EQ((*file)->Owner(sample_table::kSchema.id, 3).size(), 214u);
  EXPECT_EQ((*file)->Owner(sample_table::kSchema.id, 99).size(), 0u);
  EXPECT_EQ((*file)->Table(task_table::kSchema.id).size(), 0u);
  size_t bytes = 0;
  for (const BlockRef& ref : (*file)->blocks()) bytes += ref.bytes;
  EXPECT_LT((*file)->size(), bytes + bytes / 4);  // pages round up
}

TEST(Store, UnfinishedFileIsRemoved) {
  TempDir dir;
  const std::string path = dir / "data.mdb";
  {
    auto writer = StoreWriter::Create(path);
    ASSERT_TRUE(writer.ok());
    Rows rows = SampleRows(0, 10, 1);
    ASSERT_TRUE((*writer)->PutRows(&rows, 0).ok());
    ASSERT_TRUE((*writer)->Flush().ok());
    EXPECT_TRUE(StoreFile::Open(path).ok());  // readable once flushed
  }
  EXPECT_FALSE(StoreFile::Open(path).ok());
}

}  // namespace
}  // namespace ingero::merge
