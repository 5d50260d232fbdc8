// SPDX-License-Identifier: Apache-2.0
#include "kernel_probe/stream_writer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <array>
#include <thread>

#include "tests/kernel_probe/stream_file.h"

namespace ingero::kernel_probe {
namespace {

Rows SwitchRows(uint64_t first_ns, size_t count) {
  Rows rows;
  rows.schema = &switch_table::kSchema;
  std::array<uint64_t, switch_table::kCount> row{};
  for (size_t i = 0; i < count; ++i) {
    row[switch_table::kT] = first_ns + i;
    row[switch_table::kPrevTid] = i;
    rows.Append(row);
  }
  return rows;
}

class StreamWriterTest : public testing::Test {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + "ingero_stream_writer_test.ingero";
    unlink(path_.c_str());
  }
  void TearDown() override { unlink(path_.c_str()); }
  Fd Create() {
    auto fd = OpenFile(path_, O_WRONLY | O_CREAT | O_EXCL);
    EXPECT_TRUE(fd.ok());
    return std::move(*fd);
  }
  std::string path_;
};

TEST_F(StreamWriterTest, WhatIsPushedIsReadBack) {
  StreamWriter writer(Create());
  ASSERT_TRUE(writer.WriteHeader(MakeStreamHeader()).ok());
  writer.Start();
  for (uint32_t cpu = 0; cpu < 3; ++cpu) {
    Rows rows = SwitchRows(1000 * cpu, 100);
    EXPECT_TRUE(writer.Push(&rows, cpu));
  }
  ASSERT_TRUE(writer.Finish().ok());
  auto file = test::ReadStream(path_);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->header.magic, INGERO_MAGIC_KERNEL);
  EXPECT_EQ(file->header.pid, static_cast<uint32_t>(getpid()));
  EXPECT_NE(file->header.stream_id, 0u);
  EXPECT_EQ(file->torn_bytes, 0u);
  EXPECT_EQ(file->file_bytes, writer.bytes_written());
  const auto& rows = file->rows(switch_table::kSchema);
  ASSERT_EQ(rows.size(), 300u);
  EXPECT_EQ(rows[150].owner, 1u);
  EXPECT_EQ(rows[150][switch_table::kT], 1050u);
}

TEST_F(StreamWriterTest, NothingOfAnyPusherIsLeftBehindAtTheEnd) {
  StreamWriter writer(Create());
  ASSERT_TRUE(writer.WriteHeader(MakeStreamHeader()).ok());
  writer.Start();
  std::vector<std::thread> pushers;
  for (uint32_t p = 0; p < 8; ++p)
    pushers.emplace_back([&writer, p] {
      for (uint64_t i = 0; i < 50; ++i) {
        Rows rows = SwitchRows(i, 10);
        EXPECT_TRUE(writer.Push(&rows, p));
      }
    });
  for (std::thread& t : pushers) t.join();
  ASSERT_TRUE(writer.Finish().ok());
  auto file = test::ReadStream(path_);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->rows(switch_table::kSchema).size(), 8u * 50 * 10);
}

TEST_F(StreamWriterTest, OverTheBoundPushRefusesAndKeepsTheRows) {
  // A pipe that nobody reads blocks the writer, as a hung disk would.
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const size_t block_bytes = 1000 * switch_table::kCount * sizeof(uint64_t);
  StreamWriter writer(Fd(ends[1]), 3 * block_bytes);
  ASSERT_TRUE(writer.WriteHeader(MakeStreamHeader()).ok());
  writer.Start();
  int accepted = 0;
  bool refused = false;
  for (int i = 0; i < 1000 && !refused; ++i) {
    // Random tids, so that blocks do not shrink to nothing.
    Rows rows = SwitchRows(i, 1000);
    for (uint64_t& v : rows.values) v += static_cast<uint64_t>(rand());
    refused = !writer.Push(&rows, 0);
    if (refused)
      EXPECT_EQ(rows.size(), 1000u);
    else
      ++accepted;
  }
  EXPECT_TRUE(refused);
  EXPECT_LT(accepted, 100);
  Rows loss = SwitchRows(1, 1);
  EXPECT_TRUE(writer.Push(&loss, 0, /*always=*/true));
  std::thread reader([&] {
    char buffer[1 << 16];
    while (read(ends[0], buffer, sizeof(buffer)) > 0) continue;
  });
  EXPECT_TRUE(writer.Finish().ok());
  close(ends[0]);
  reader.detach();
}

TEST_F(StreamWriterTest, AFullDiskIsCountedAndTheFileStaysWhole) {
  StreamWriter writer(Create());
  ASSERT_TRUE(writer.WriteHeader(MakeStreamHeader()).ok());
  writer.Start();
  Rows rows = SwitchRows(0, 50);
  ASSERT_TRUE(writer.Push(&rows, 0));
  while (writer.bytes_written() == INGERO_HEADER_BYTES) usleep(1000);

  // From here on a file may not grow.
  signal(SIGXFSZ, SIG_IGN);
  rlimit old_limit, limit;
  getrlimit(RLIMIT_FSIZE, &old_limit);
  limit = old_limit;
  limit.rlim_cur = writer.bytes_written() + 10;
  setrlimit(RLIMIT_FSIZE, &limit);
  rows = SwitchRows(1000, 70);
  ASSERT_TRUE(writer.Push(&rows, 0));
  while (writer.rows_failed() == 0) usleep(1000);
  setrlimit(RLIMIT_FSIZE, &old_limit);

  rows = SwitchRows(5000, 5);
  ASSERT_TRUE(writer.Push(&rows, 0));
  ASSERT_TRUE(writer.Finish().ok());
  EXPECT_EQ(writer.rows_failed(), 70u);
  auto file = test::ReadStream(path_);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->torn_bytes, 0u);
  EXPECT_EQ(file->rows(switch_table::kSchema).size(), 55u);
  const auto& losses = file->rows(loss_table::kSchema);
  ASSERT_EQ(losses.size(), 1u);
  EXPECT_EQ(losses[0][loss_table::kLoss], INGERO_LOSS_WRITE_FAILED);
  EXPECT_EQ(losses[0][loss_table::kCountLost], 70u);
  EXPECT_EQ(losses[0][loss_table::kT], 1000u);
}

// A disk that stays full: losses wait in vain, and the header has them.
TEST_F(StreamWriterTest, WhatNoRowCanTellIsInTheHeader) {
  StreamWriter writer(Create());
  ASSERT_TRUE(writer.WriteHeader(MakeStreamHeader()).ok());
  signal(SIGXFSZ, SIG_IGN);
  rlimit old_limit, limit;
  getrlimit(RLIMIT_FSIZE, &old_limit);
  limit = old_limit;
  limit.rlim_cur = writer.bytes_written();
  setrlimit(RLIMIT_FSIZE, &limit);
  writer.Start();
  Rows rows = SwitchRows(1000, 70);
  ASSERT_TRUE(writer.Push(&rows, 0));
  // More than are kept for later.
  for (uint64_t i = 0; i < 3000; ++i) {
    Rows losses;
    losses.schema = &loss_table::kSchema;
    losses.Append(std::array<uint64_t, loss_table::kCount>{
        i, i, INGERO_LOSS_SWITCH_RING_FULL, 2});
    ASSERT_TRUE(writer.Push(&losses, 0, /*always=*/true));
  }
  EXPECT_FALSE(writer.Finish().ok());
  setrlimit(RLIMIT_FSIZE, &old_limit);
  EXPECT_EQ(writer.rows_failed(), 70u);
  EXPECT_EQ(writer.rows_failed(switch_table::kSchema), 70u);
  auto file = test::ReadStream(path_);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->file_bytes, size_t{INGERO_HEADER_BYTES});
  EXPECT_EQ(file->header.lost[INGERO_LOSS_WRITE_FAILED], 70u);
  EXPECT_EQ(file->header.lost[INGERO_LOSS_SWITCH_RING_FULL], 6000u);
}

}  // namespace
}  // namespace ingero::kernel_probe
