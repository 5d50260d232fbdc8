// SPDX-License-Identifier: Apache-2.0
#include "kernel_probe/cuda_watch.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "base/cuda_process.h"
#include "base/tables.h"

namespace ingero::kernel_probe {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;

TEST(CudaMapsTest, FindsLibrariesShimAndLoader) {
  const CudaMaps none = ParseCudaMaps(
      "5580-5581 r--p 00000000 fe:00 1 /usr/bin/python3.11\n"
      "7f00-7f01 rw-p 00000000 00:00 0 [heap]\n");
  EXPECT_TRUE(none.any);
  EXPECT_EQ(none.library, "");
  EXPECT_FALSE(none.shim);
  EXPECT_FALSE(none.loader);
  EXPECT_FALSE(ParseCudaMaps("").any);

  const CudaMaps all = ParseCudaMaps(
      "1-2 r--p 00000000 fe:00 1      /a b/libcudart.so.13.0.96\n"
      "2-3 r-xp 00000000 fe:00 2      /usr/lib/libcuda.so.580.159.04\n"
      "3-4 r-xp 00000000 fe:00 3      /x/libingero_cuda.so\n"
      "4-5 r-xp 00000000 fe:00 4      /lib64/ld-linux-x86-64.so.2\n"
      "5-6 r-xp 00000000 fe:00 5      /x/libcudart.so.12\n");
  EXPECT_EQ(all.library, "/usr/lib/libcuda.so.580.159.04");
  EXPECT_TRUE(all.shim);
  EXPECT_TRUE(all.loader);
  EXPECT_EQ(ParseCudaMaps("1-2 r--p 0 fe:00 1   /a b/libcudart.so.13").library,
            "/a b/libcudart.so.13");
  EXPECT_EQ(ParseCudaMaps("1-2 r--p 0 fe:00 1   /opt/libcudadebugger.so.1\n")
                .library,
            "");
}

TEST(CudaEnvironmentTest, KnowsWhatMatters) {
  using namespace std::string_view_literals;
  EXPECT_EQ(CudaEnvironment("A=/b\0LD_PRELOAD=/a.so:libingero_cuda.so\0"sv),
            INGERO_CUDA_SHIM_ASKED);
  EXPECT_EQ(CudaEnvironment("INGERO_DISABLE=0\0INGERO_CLEAR_DEEPBIND=1\0"sv),
            INGERO_CUDA_CLEAR_DEEPBIND);
  EXPECT_EQ(CudaEnvironment("XLD_PRELOAD=libingero_cuda.so\0X"sv), 0u);
  EXPECT_EQ(CudaEnvironment("INGERO_DISABLE=1"sv), INGERO_CUDA_DISABLED);
}

// A child that maps a file of this name and waits.
class Mapper {
 public:
  explicit Mapper(const std::string& file) {
    int ready[2];
    if (pipe(ready) != 0) return;
    pid_ = fork();
    if (pid_ == 0) {
      if (!file.empty()) {
        const int fd = open(file.c_str(), O_RDONLY);
        mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
      }
      (void)!write(ready[1], "x", 1);
      for (;;) pause();
    }
    char c;
    (void)!read(ready[0], &c, 1);
    close(ready[0]);
    close(ready[1]);
  }
  ~Mapper() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  ingero_ring_task Event(uint16_t event) const {
    ingero_ring_task e{};
    e.kind = INGERO_RING_TASK;
    e.event = event;
    e.tid = e.tgid = static_cast<uint32_t>(pid_);
    return e;
  }
  uint64_t pid() const { return static_cast<uint64_t>(pid_); }

 private:
  pid_t pid_ = -1;
};

class CudaWatchTest : public testing::Test {
 protected:
  CudaWatchTest() {
    char name[] = "/tmp/ingero-watch-XXXXXX";
    dir_ = mkdtemp(name);
    std::ofstream(dir_ + "/libcuda.so.1") << std::string(4096, 'x');
    rows_.schema = &sample_table::kSchema;
  }
  ~CudaWatchTest() override { std::filesystem::remove_all(dir_); }

  std::string dir_;
  Rows rows_;
  CudaWatch watch_;
};

TEST_F(CudaWatchTest, LooksAfterASecondAndThenWheneverTheAgeDoubles) {
  const Mapper with(dir_ + "/libcuda.so.1"), without("");
  watch_.OnTask(with.Event(INGERO_TASK_EVENT_FORK), 0);
  watch_.OnTask(without.Event(INGERO_TASK_EVENT_EXEC), 0);
  watch_.Look(kSecond / 2, 16, &rows_);
  EXPECT_EQ(rows_.size(), 0u);
  watch_.Look(kSecond, 16, &rows_);
  ASSERT_EQ(rows_.size(), 1u);
  EXPECT_EQ(rows_.at(0, sample_table::kMetric),
            static_cast<uint64_t>(Metric::kCudaProcess));
  EXPECT_EQ(rows_.at(0, sample_table::kInstance), with.pid());
  EXPECT_EQ(rows_.texts[0], dir_ + "/libcuda.so.1");
  const uint64_t seen = rows_.at(0, sample_table::kValue);
  EXPECT_FALSE(seen & INGERO_CUDA_SHIM_MAPPED);
  EXPECT_FALSE(seen & INGERO_CUDA_STATIC);
  EXPECT_FALSE(seen & INGERO_CUDA_SECURE);
  EXPECT_EQ(watch_.without_shim(), 1u);
  // Once is enough, until it execs.
  watch_.Look(100 * kSecond, 16, &rows_);
  EXPECT_EQ(rows_.size(), 1u);
  watch_.OnTask(with.Event(INGERO_TASK_EVENT_EXEC), 100 * kSecond);
  EXPECT_EQ(watch_.without_shim(), 0u);
  watch_.Look(101 * kSecond, 16, &rows_);
  EXPECT_EQ(rows_.size(), 2u);
  EXPECT_EQ(watch_.without_shim(), 1u);
  watch_.OnTask(with.Event(INGERO_TASK_EVENT_EXIT), 102 * kSecond);
  EXPECT_EQ(watch_.without_shim(), 0u);
  EXPECT_EQ(watch_.with_shim(), 0u);
}

TEST_F(CudaWatchTest, WhatWasThereBeforeIsDueAtOnceAndTheEndLooksAtAll) {
  const Mapper with(dir_ + "/libcuda.so.1"), young(dir_ + "/libcuda.so.1");
  watch_.OnTask(with.Event(INGERO_TASK_EVENT_EXISTING), kSecond);
  watch_.OnTask(young.Event(INGERO_TASK_EVENT_FORK), kSecond);
  watch_.Look(kSecond, 0, &rows_);
  EXPECT_EQ(rows_.size(), 0u);
  watch_.Look(kSecond, 1, &rows_);
  EXPECT_EQ(rows_.size(), 1u);
  watch_.LookAtAll(UINT64_MAX, &rows_);
  ASSERT_EQ(rows_.size(), 2u);
  EXPECT_EQ(rows_.at(1, sample_table::kInstance), young.pid());
}

TEST_F(CudaWatchTest, AnEndedProcessIsNotLookedAt) {
  const Mapper with(dir_ + "/libcuda.so.1");
  watch_.OnTask(with.Event(INGERO_TASK_EVENT_FORK), 0);
  watch_.OnTask(with.Event(INGERO_TASK_EVENT_EXIT), 1);
  watch_.Look(9 * kSecond, 16, &rows_);
  watch_.LookAtAll(UINT64_MAX, &rows_);
  EXPECT_EQ(rows_.size(), 0u);
}

}  // namespace
}  // namespace ingero::kernel_probe
