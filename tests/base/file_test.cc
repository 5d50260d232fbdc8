// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

namespace ingero {
namespace {

namespace fs = std::filesystem;

class FileTest : public testing::Test {
 protected:
  FileTest() {
    std::string name = testing::TempDir() + "ingero-file-test-XXXXXX";
    dir_ = mkdtemp(name.data());
  }
  ~FileTest() override { fs::remove_all(dir_); }
  std::string Path(const std::string& name) const {
    return (dir_ / name).string();
  }
  fs::path dir_;
};

TEST_F(FileTest, ReplaceFileLeavesOneCompleteFile) {
  for (const std::string& contents : {std::string("one"), std::string("two two"),
                                      std::string(3 << 20, 'x')}) {
    ASSERT_TRUE(ReplaceFile(Path("f"), contents, 0640).ok());
    Result<std::string> back = ReadWholeFile(Path("f"));
    ASSERT_TRUE(back.ok());
    EXPECT_EQ(*back, contents);
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_), {}), 1)
      << "no temporary file stays behind";
  struct stat st;
  ASSERT_EQ(stat(Path("f").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 0640u);
}

TEST_F(FileTest, ReplaceFileReplacesALinkAndNotItsTarget) {
  ASSERT_TRUE(ReplaceFile(Path("target"), "kept").ok());
  fs::create_symlink("target", dir_ / "link");
  ASSERT_TRUE(ReplaceFile(Path("link"), "new").ok());
  EXPECT_EQ(*ReadWholeFile(Path("target")), "kept");
  EXPECT_EQ(*ReadWholeFile(Path("link")), "new");
  EXPECT_FALSE(fs::is_symlink(dir_ / "link"));
}

TEST_F(FileTest, FailuresNameTheFileAndTheReason) {
  const Status status = ReplaceFile(Path("no/such/f"), "x");
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find("no/such/f"), std::string::npos);
  EXPECT_NE(status.message().find("No such file"), std::string::npos);
  const Status open = OpenFile(Path("absent"), O_RDONLY).status();
  EXPECT_NE(open.message().find("absent"), std::string::npos);
}

TEST_F(FileTest, ReadWholeFileReadsFilesThatSayTheyAreEmpty) {
  Result<std::string> status = ReadWholeFile("/proc/self/status");
  ASSERT_TRUE(status.ok());
  EXPECT_NE(status->find("Pid:"), std::string::npos);
}

TEST_F(FileTest, ReadWholeFileRefusesMoreThanAllowed) {
  ASSERT_TRUE(ReplaceFile(Path("f"), std::string(100, 'x')).ok());
  EXPECT_TRUE(ReadWholeFile(Path("f"), 100).ok());
  EXPECT_FALSE(ReadWholeFile(Path("f"), 99).ok());
}

TEST_F(FileTest, InputFileSurvivesACutWhileOpen) {
  ASSERT_TRUE(ReplaceFile(Path("f"), std::string(100'000, 'x')).ok());
  Result<InputFile> file = InputFile::Open(Path("f"));
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(*file->Size(), 100'000u);
  ASSERT_EQ(truncate(Path("f").c_str(), 10), 0);
  std::string bytes;
  ASSERT_TRUE(file->ReadAt(4, 50'000, &bytes).ok());
  EXPECT_EQ(bytes, "xxxxxx");
  ASSERT_TRUE(file->ReadAt(50'000, 10, &bytes).ok());
  EXPECT_EQ(bytes, "");
  EXPECT_EQ(*file->Size(), 10u);
}

TEST_F(FileTest, InputFileTakesOnlyRegularFiles) {
  EXPECT_FALSE(InputFile::Open(dir_.string()).ok());
  ASSERT_EQ(mkfifo(Path("fifo").c_str(), 0600), 0);
  EXPECT_FALSE(InputFile::Open(Path("fifo")).ok()) << "and does not wait";
  ASSERT_TRUE(ReplaceFile(Path("f"), "x").ok());
  fs::create_symlink("f", dir_ / "link");
  EXPECT_TRUE(InputFile::Open(Path("link")).ok());
  EXPECT_FALSE(InputFile::Open(Path("link"), false).ok());
}

TEST_F(FileTest, WriteAllReportsAFullDisk) {
  Result<Fd> full = OpenFile("/dev/full", O_WRONLY);
  if (!full.ok()) GTEST_SKIP() << "no /dev/full here";
  const Status status = WriteAll(full->get(), "x");
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find("No space left"), std::string::npos);
  EXPECT_NE(status.message().find("; free some space"), std::string::npos);
}

TEST_F(FileTest, FdClosesOnce) {
  Result<Fd> fd = OpenFile("/dev/null", O_RDONLY);
  ASSERT_TRUE(fd.ok());
  const int number = fd->get();
  Fd moved = std::move(*fd);
  EXPECT_FALSE(fd->valid());
  EXPECT_NE(fcntl(number, F_GETFD) & FD_CLOEXEC, 0);
  moved.reset();
  EXPECT_EQ(fcntl(number, F_GETFD), -1);
}

}  // namespace
}  // namespace ingero
