// SPDX-License-Identifier: Apache-2.0
#include "base/trace_dir.h"

#include <gtest/gtest.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

namespace ingero {
namespace {

namespace fs = std::filesystem;

// Each test starts without the variables that the rules read.
class TraceDirTest : public testing::Test {
 protected:
  TraceDirTest() {
    for (const char* name : {"INGERO_DIR", "INGERO_DIR_ONLY", "XDG_STATE_HOME",
                             "HOME", "SUDO_UID", "SUDO_GID"})
      unsetenv(name);
    // Not below TMPDIR's link, if it is one: paths are compared.
    std::string name = fs::canonical(fs::temp_directory_path()).string() +
                       "/ingero-trace-dir-XXXXXX";
    root_ = mkdtemp(name.data());
  }
  ~TraceDirTest() override { fs::remove_all(root_); }
  static void Set(const char* name, const std::string& value) {
    setenv(name, value.c_str(), 1);
  }
  static std::string PasswdHome(uid_t uid) {
    const struct passwd* entry = getpwuid(uid);
    return entry == nullptr ? "" : entry->pw_dir;
  }
  fs::path root_;
};

TEST_F(TraceDirTest, IngeroDirGoesFirst) {
  Set("INGERO_DIR", "/somewhere/else/");
  Set("XDG_STATE_HOME", root_.string());
  Set("HOME", root_.string());
  EXPECT_EQ(DefaultTraceDir().path, "/somewhere/else");
  EXPECT_EQ(DefaultTraceDir().uid, geteuid());
  // A companion under sudo does not see the variables.
  const std::vector<std::string> dirs = DefaultTraceDirs();
  ASSERT_FALSE(dirs.empty());
  EXPECT_EQ(dirs[0], "/somewhere/else");
  if (!PasswdHome(geteuid()).empty()) {
    ASSERT_EQ(dirs.size(), 2u);
    EXPECT_EQ(dirs[1], PasswdHome(geteuid()) + "/.local/state/ingero");
  }
  unsetenv("INGERO_DIR");
  unsetenv("XDG_STATE_HOME");
  EXPECT_EQ(DefaultTraceDirs().size(), 1u);
}

TEST_F(TraceDirTest, RelativeIngeroDirIsBelowTheWorkingDirectory) {
  Set("INGERO_DIR", "./traces");
  EXPECT_EQ(DefaultTraceDir().path,
            (fs::current_path() / "traces").string());
}

TEST_F(TraceDirTest, ThenXdgStateHome) {
  Set("XDG_STATE_HOME", (root_ / "state").string() + "/");
  Set("HOME", "/nowhere");
  EXPECT_EQ(DefaultTraceDir().path, (root_ / "state/ingero").string());
}

TEST_F(TraceDirTest, RelativeXdgStateHomeIsIgnored) {
  Set("XDG_STATE_HOME", "state");
  Set("HOME", root_.string());
  EXPECT_EQ(DefaultTraceDir().path,
            (root_ / ".local/state/ingero").string());
}

TEST_F(TraceDirTest, WithoutHomeThePasswdEntry) {
  const std::string home = PasswdHome(geteuid());
  if (home.empty()) GTEST_SKIP() << "no passwd entry for this user";
  const TraceDir dir = DefaultTraceDir();
  if (!dir.note.empty()) GTEST_SKIP() << dir.note;
  EXPECT_EQ(dir.path, home + "/.local/state/ingero");
}

TEST_F(TraceDirTest, UnderSudoTheCallersFolderAndOwner) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root: SUDO_UID counts only there";
  // 65534 (nobody) has an entry everywhere, with a home that may not exist.
  const std::string home = PasswdHome(65534);
  if (home.empty()) GTEST_SKIP() << "no user 65534";
  Set("SUDO_UID", "65534");
  Set("SUDO_GID", "65533");
  Set("HOME", root_.string());
  const TraceDir dir = DefaultTraceDir();
  EXPECT_EQ(dir.uid, 65534u);
  EXPECT_EQ(dir.gid, 65533u);
  EXPECT_EQ(dir.path, home + "/.local/state/ingero");
  const std::vector<std::string> dirs = DefaultTraceDirs();
  ASSERT_EQ(dirs.size(), 2u);
  EXPECT_EQ(dirs[0], dir.path);
  EXPECT_EQ(dirs[1], PasswdHome(0) + "/.local/state/ingero");
}

TEST_F(TraceDirTest, OnlyTheFolderThatWasNamedWhereThatIsAsked) {
  Set("INGERO_DIR", root_.string());
  EXPECT_EQ(DefaultTraceDirs().size(), 2u);
  Set("INGERO_DIR_ONLY", "1");
  EXPECT_EQ(DefaultTraceDirs(), std::vector<std::string>{root_.string()});
  unsetenv("INGERO_DIR");
  Set("XDG_STATE_HOME", root_.string());
  EXPECT_EQ(DefaultTraceDirs().size(), 2u);
}

TEST_F(TraceDirTest, UnderSudoRootsOwnXdgStateHomeIsNotTheCallers) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root: SUDO_UID counts only there";
  Set("SUDO_UID", "65534");
  Set("XDG_STATE_HOME", root_.string());  // root's
  EXPECT_NE(DefaultTraceDir().path, (root_ / "ingero").string());
  ASSERT_EQ(chown(root_.c_str(), 65534, 65534), 0);
  EXPECT_EQ(DefaultTraceDir().path, (root_ / "ingero").string());
}

TEST_F(TraceDirTest, NonsenseInSudoUidIsIgnored) {
  Set("HOME", root_.string());
  for (const char* value : {"", "abc", "-1", "1x", "99999999999"}) {
    Set("SUDO_UID", value);
    EXPECT_EQ(DefaultTraceDir().path,
              (root_ / ".local/state/ingero").string());
  }
}

TEST_F(TraceDirTest, SudoUidMeansNothingToAnOrdinaryUser) {
  if (geteuid() == 0) GTEST_SKIP() << "needs a user that is not root";
  Set("SUDO_UID", "0");
  Set("HOME", root_.string());
  EXPECT_EQ(DefaultTraceDir().uid, geteuid());
}

TEST_F(TraceDirTest, CreatesPrivateFoldersAndParents) {
  TraceDir dir{(root_ / "a/b/ingero").string(), geteuid(), getegid(), ""};
  ASSERT_TRUE(CreateTraceDir(dir).ok());
  ASSERT_TRUE(CreateTraceDir(dir).ok()) << "again";
  struct stat st;
  for (const char* part : {"a", "a/b", "a/b/ingero"}) {
    ASSERT_EQ(stat((root_ / part).c_str(), &st), 0);
    EXPECT_EQ(st.st_mode & 07777, 0700u) << part;
  }
}

TEST_F(TraceDirTest, FoldersThatRootCreatesBelongToTheCaller) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  ASSERT_EQ(chown(root_.c_str(), 65534, 65534), 0);
  TraceDir dir{(root_ / "a/ingero").string(), 65534, 65534, ""};
  ASSERT_TRUE(CreateTraceDir(dir).ok());
  struct stat st;
  for (const char* part : {"a", "a/ingero"}) {
    ASSERT_EQ(stat((root_ / part).c_str(), &st), 0);
    EXPECT_EQ(st.st_uid, 65534u) << part;
    EXPECT_EQ(st.st_gid, 65534u) << part;
  }
}

// A user must not lead root into creating folders where only root may.
TEST_F(TraceDirTest, RootCreatesNothingWhereTheCallerCouldNot) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  fs::create_directory(root_ / "home");
  fs::create_directory(root_ / "protected");
  ASSERT_EQ(chmod(root_.c_str(), 0755), 0);
  ASSERT_EQ(chown((root_ / "home").c_str(), 65534, 65534), 0);
  fs::create_symlink(root_ / "protected", root_ / "home/state");
  TraceDir dir{(root_ / "home/state/ingero").string(), 65534, 65534, ""};
  EXPECT_FALSE(CreateTraceDir(dir).ok());
  EXPECT_FALSE(fs::exists(root_ / "protected/ingero"));
}

TEST_F(TraceDirTest, RefusesALinkAndAnotherUsersFolder) {
  fs::create_directory(root_ / "real");
  fs::create_symlink("real", root_ / "link");
  TraceDir dir{(root_ / "link").string(), geteuid(), getegid(), ""};
  const Status link = CreateTraceDir(dir);
  ASSERT_FALSE(link.ok());
  EXPECT_NE(link.message().find("symbolic link"), std::string::npos);

  // Root looks with the owner's eyes: let those see it.
  ASSERT_EQ(chmod(root_.c_str(), 0755), 0);
  dir.path = (root_ / "real").string();
  dir.uid = geteuid() + 1;
  const Status other = CreateTraceDir(dir);
  ASSERT_FALSE(other.ok());
  EXPECT_NE(other.message().find("belongs to uid"), std::string::npos);
}

TEST_F(TraceDirTest, AFileInTheWayIsNamed) {
  fs::create_directory(root_ / "a");
  std::fclose(std::fopen((root_ / "a/f").c_str(), "w"));
  TraceDir dir{(root_ / "a/f/ingero").string(), geteuid(), getegid(), ""};
  const Status status = CreateTraceDir(dir);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find("a/f"), std::string::npos);
}

TEST_F(TraceDirTest, WhyAFolderCannotBeOneIsOneShortLine) {
  std::fclose(std::fopen((root_ / "f").c_str(), "w"));
  std::string deep = root_.string();
  for (int i = 0; i < 2000; ++i) deep += "/xx";
  const struct {
    std::string path, why;
  } kFolders[] = {
      {"/proc/x", "/proc/x: no folder can be made there"},
      {(root_ / "f").string(), "/f: it, or a part of this path, is a file"},
      {(root_ / "f/g").string(), "/g: it, or a part of this path, is a file"},
      {(root_ / std::string(300, 'x')).string(), "longer than it may be"},
      {deep, "longer than it may be"}};
  for (const auto& f : kFolders) {
    const Status status =
        CreateTraceDir({f.path, geteuid(), getegid(), ""});
    ASSERT_FALSE(status.ok()) << f.path;
    EXPECT_NE(status.message().find(f.why), std::string::npos)
        << status.message();
    EXPECT_TRUE(status.message().ends_with(
        "; name another one (INGERO_DIR, --dir)"))
        << status.message();
    EXPECT_LT(status.message().size(), 300u);
  }
}

}  // namespace
}  // namespace ingero
