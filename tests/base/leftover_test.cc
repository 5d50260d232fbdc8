// SPDX-License-Identifier: Apache-2.0
#include "base/leftover.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>

namespace ingero {
namespace {

namespace fs = std::filesystem;

class LeftoverTest : public ::testing::Test {
 protected:
  LeftoverTest() {
    std::string path = (fs::temp_directory_path() / "leftover-XXXXXX").string();
    dir_ = mkdtemp(path.data());
  }
  ~LeftoverTest() override { fs::remove_all(dir_); }
  std::string Path(const std::string& name) const {
    return (dir_ / name).string();
  }
  void Touch(const std::string& name) const {
    std::ofstream(Path(name)) << "x";
  }
  bool There(const std::string& name) const {
    return fs::exists(fs::symlink_status(Path(name)));
  }
  // How a child ends that does this.
  static int InChild(const std::function<void()>& what) {
    const pid_t child = fork();
    if (child == 0) {
      what();
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return status;
  }
  // A folder in folders, with files and a link out of it.
  void MakeTree(const std::string& name) const {
    fs::create_directories(Path(name) + "/a/b/c");
    for (int i = 0; i < 300; ++i) Touch(name + "/a/file" + std::to_string(i));
    Touch(name + "/a/b/c/deep");
    Touch("outside");
    fs::create_symlink(dir_, Path(name) + "/a/link");
  }

  fs::path dir_;
};

TEST_F(LeftoverTest, GoesUnlessItIsKept) {
  Touch("gone");
  Touch("kept");
  {
    Leftover gone(Path("gone"), Leftover::kFile);
    Leftover kept(Path("kept"), Leftover::kFile);
    Leftover never_made(Path("never"), Leftover::kFile);
    kept.Keep();
  }
  EXPECT_FALSE(There("gone"));
  EXPECT_TRUE(There("kept"));
}

TEST_F(LeftoverTest, AFolderGoesWithAllInItAndNothingBesides) {
  MakeTree("tree");
  { const Leftover tree(Path("tree"), Leftover::kFolder); }
  EXPECT_FALSE(There("tree"));
  EXPECT_TRUE(There("outside"));
}

TEST_F(LeftoverTest, AFileNeverTakesAFolder) {
  MakeTree("tree");
  { const Leftover tree(Path("tree"), Leftover::kFile); }
  EXPECT_TRUE(There("tree/a/b/c/deep"));
}

TEST_F(LeftoverTest, MovedItGoesOnce) {
  MakeTree("a");
  MakeTree("b");
  Leftover first(Path("a"), Leftover::kFolder);
  Leftover second = std::move(first);
  EXPECT_TRUE(There("a"));
  second = Leftover(Path("b"), Leftover::kFolder);
  EXPECT_FALSE(There("a"));
  EXPECT_TRUE(There("b"));
  second = Leftover();
  EXPECT_FALSE(There("b"));
}

TEST_F(LeftoverTest, ASignalsHandlerRemovesThem) {
  MakeTree("tree");
  Touch("file");
  Touch("kept");
  const int status = InChild([&] {
    signal(SIGTERM, [](int number) {
      RemoveLeftovers();
      signal(number, SIG_DFL);
      raise(number);
    });
    const Leftover tree(Path("tree"), Leftover::kFolder);
    const Leftover file(Path("file"), Leftover::kFile);
    Leftover kept(Path("kept"), Leftover::kFile);
    kept.Keep();
    raise(SIGTERM);
  });
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGTERM);
  EXPECT_FALSE(There("tree"));
  EXPECT_FALSE(There("file"));
  EXPECT_TRUE(There("kept"));
}

TEST_F(LeftoverTest, AForkedChildRemovesNothing) {
  Touch("ours");
  Leftover ours(Path("ours"), Leftover::kFile);
  EXPECT_EQ(InChild([] {
              if (RemoveLeftovers()) _exit(1);
            }),
            0);
  EXPECT_TRUE(There("ours"));
}

TEST_F(LeftoverTest, ManyAtATimeAllGo) {
  {
    std::vector<Leftover> all;
    for (size_t i = 0; i < 3 * kMostLeftovers; ++i) {
      Touch(std::to_string(i));
      all.emplace_back(Path(std::to_string(i)), Leftover::kFile);
    }
  }
  EXPECT_TRUE(fs::is_empty(dir_));
}

TEST_F(LeftoverTest, AScratchFolderIsPrivate) {
  auto folder = MakeScratchFolder(Path("scratch"));
  ASSERT_TRUE(folder.ok());
  struct stat st;
  ASSERT_EQ(stat(folder->path().c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0700u);
  const auto none = MakeScratchFolder(Path("no/such"));
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.status().message().find(Path("no/such")), std::string::npos);
}

}  // namespace
}  // namespace ingero
