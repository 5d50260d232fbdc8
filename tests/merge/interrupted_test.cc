// SPDX-License-Identifier: Apache-2.0
// A merge that is killed, stopped, out of disk or out of memory, or not alone
// (CASES 59, 61, 62): the store is as it was or whole, and merging again
// completes it. Each merge runs in a process of its own.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <new>
#include <set>
#include <string>
#include <vector>

#include "merge/merge.h"
#include "merge/store_trace.h"
#include "tests/support/stream_builder.h"

namespace ingero::merge {
namespace {

using testing::CudaStreamBuilder;
using testing::KernelStreamBuilder;
using testing::ReadFile;
using testing::TempDir;

constexpr int64_t kT0 = 100'000'000'000;
constexpr int64_t kMs = 1'000'000;

// `steps` ms of one program and one CPU.
void WriteStreams(const std::string& folder, int steps) {
  CudaStreamBuilder s(10, kT0);
  s.header.stream_id = 1;  // the same ones, longer
  s.Name(1, "cudaLaunchKernel", INGERO_LAYER_RUNTIME, INGERO_CLASS_LAUNCH,
         {INGERO_WORD_KERNEL, INGERO_WORD_STREAM});
  KernelStreamBuilder k(kT0);
  k.header.stream_id = 2;
  k.Task({.t = kT0, .tid = 10, .tgid = 10, .start_ns = 0, .text = "python3"});
  for (int i = 0; i < steps; ++i) {
    const auto t = static_cast<uint64_t>(kT0 + i * kMs);
    // Values that no coding makes small: a store of some MiB.
    const uint64_t noise = static_cast<uint64_t>(i) * 0x9e3779b97f4a7c15;
    s.Call(10, 1, {t, 500 + noise % 100'000, 0, 0, 0, {noise, noise * 7}});
    k.Switch(0, {.t = t, .next_tid = 10, .next_tgid = 10,
                 .pages = noise >> 40});
    k.Switch(0, {.t = t + 600'000, .prev_tid = 10, .prev_tgid = 10,
                 .prev_state = INGERO_TASK_INTERRUPTIBLE});
    if (i % 1000 == 999) {
      s.WriteOut(10);
      k.Flush();
    }
  }
  s.Write(folder + "/cuda-10-1.ingero");
  k.Flush();
  k.Write(folder + "/kernel-1-1.ingero");
}

constexpr int kFew = 500, kMany = 12'000;

struct Ended {
  int status = 0;       // of waitpid()
  std::string message;  // what an error said; "" = done
  bool Killed() const { return WIFSIGNALED(status); }
};

// Runs `merge` in a child. What it returns is the message.
Ended InChild(const std::function<std::string()>& merge) {
  int pipes[2];
  EXPECT_EQ(pipe(pipes), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    std::string message;
    try {
      message = merge();
    } catch (const std::bad_alloc&) {  // as main() does
      message = "std::bad_alloc";
    }
    const ssize_t n = write(pipes[1], message.data(), message.size());
    _exit(n < 0 || !message.empty() ? 1 : 0);
  }
  close(pipes[1]);
  Ended ended;
  char buffer[512];
  for (ssize_t n; (n = read(pipes[0], buffer, sizeof(buffer))) > 0;)
    ended.message.append(buffer, static_cast<size_t>(n));
  close(pipes[0]);
  waitpid(pid, &ended.status, 0);
  return ended;
}

std::string MergeOnce(MergeOptions options) {
  auto summary = Merge(options);
  return summary.ok() ? "" : summary.status().message();
}

class Interrupted : public ::testing::Test {
 protected:
  Interrupted() {
    options_.dirs = {dir_.path()};
    options_.output = dir_ / "out";
    WriteStreams(dir_.path(), kFew);
    EXPECT_EQ(MergeOnce(options_), "");
    old_ = ReadFile(dir_ / "out/data.mdb");
    WriteStreams(dir_.path(), kMany);
  }
  std::set<std::string> Files() const {
    std::set<std::string> files;
    for (const auto& f : std::filesystem::directory_iterator(dir_ / "out"))
      files.insert(f.path().filename());
    return files;
  }
  // The old store, or the new one as a whole.
  void ExpectOldOrWhole(bool* whole = nullptr) {
    const std::string now = ReadFile(dir_ / "out/data.mdb");
    if (whole != nullptr) *whole = now != old_;
    if (now == old_) return;
    auto store = OpenStore(dir_ / "out");
    ASSERT_TRUE(store.ok()) << store.status().message();
    EXPECT_EQ((*store)->facts().events, uint64_t{3 * kMany + 1});
  }
  void ExpectMergesAtLast() {
    auto summary = Merge(options_);
    ASSERT_TRUE(summary.ok()) << summary.status().message();
    EXPECT_EQ(summary->calls, uint64_t{kMany});
    EXPECT_EQ(summary->switches, uint64_t{2 * kMany});
    EXPECT_EQ(Files(), (std::set<std::string>{"data.mdb", "merge.lock"}));
    auto store = OpenStore(dir_ / "out");
    ASSERT_TRUE(store.ok()) << store.status().message();
  }
  TempDir dir_;
  MergeOptions options_;
  std::string old_;
};

TEST_F(Interrupted, KilledAtEachStepOfItsProgress) {
  int killed = 0;
  for (int at = 0;; ++at) {
    const Ended ended = InChild([&] {
      MergeOptions options = options_;
      options.progress = [n = 0, at](const std::string&, double,
                                     uint64_t) mutable {
        if (n++ == at) kill(getpid(), SIGKILL);
      };
      return MergeOnce(options);
    });
    bool whole = false;
    ExpectOldOrWhole(&whole);
    if (whole || !ended.Killed()) break;
    ++killed;
  }
  EXPECT_GT(killed, 10);
  ExpectMergesAtLast();
}

TEST_F(Interrupted, KilledAtAnyTime) {
  int killed = 0;
  for (int i = 0; i < 40; ++i) {
    const pid_t pid = fork();
    if (pid == 0) _exit(MergeOnce(options_).empty() ? 0 : 1);
    usleep(static_cast<useconds_t>(1000 + i * 2500));
    kill(pid, SIGKILL);
    int status = 0;
    waitpid(pid, &status, 0);
    killed += WIFSIGNALED(status);
    bool whole = false;
    ExpectOldOrWhole(&whole);
    if (whole) break;
  }
  EXPECT_GT(killed, 0);
  ExpectMergesAtLast();
}

TEST_F(Interrupted, FilesCannotGrow) {
  int failed = 0;
  for (rlim_t kib = 16;; kib *= 2) {
    const Ended ended = InChild([&] {
      signal(SIGXFSZ, SIG_IGN);
      const rlimit limit{kib << 10, kib << 10};
      setrlimit(RLIMIT_FSIZE, &limit);
      return MergeOnce(options_);
    });
    ASSERT_FALSE(ended.Killed()) << kib << " KiB";
    if (ended.message.empty()) break;
    ++failed;
    ASSERT_LT(kib, rlim_t{1} << 20) << ended.message;
    EXPECT_NE(ended.message.find("ulimit -f"), std::string::npos)
        << ended.message;
    EXPECT_EQ(ended.message.find('\n'), std::string::npos) << ended.message;
    EXPECT_EQ(ReadFile(dir_ / "out/data.mdb"), old_);
    EXPECT_EQ(Files(), (std::set<std::string>{"data.mdb", "merge.lock"}));
  }
  EXPECT_GE(failed, 3);
  ExpectMergesAtLast();
}

// ulimit -v
TEST_F(Interrupted, AddressSpaceIsShort) {
  int failed = 0;
  for (size_t mib = 0;; mib += mib < 32 ? 2 : mib) {
    const Ended ended = InChild([&] {
      // What the process has already, and so much more.
      size_t pages = 0;
      std::ifstream("/proc/self/statm") >> pages;
      const rlim_t bytes =
          pages * static_cast<size_t>(sysconf(_SC_PAGESIZE)) + (mib << 20);
      const rlimit limit{bytes, bytes};
      setrlimit(RLIMIT_AS, &limit);
      return MergeOnce(options_);
    });
    ASSERT_FALSE(ended.Killed()) << mib << " MiB: " << WTERMSIG(ended.status);
    if (ended.message.empty()) break;
    ++failed;
    EXPECT_EQ(ended.message.find('\n'), std::string::npos) << ended.message;
    EXPECT_EQ(ReadFile(dir_ / "out/data.mdb"), old_);
    ASSERT_LT(mib, 1u << 12) << ended.message;
  }
  // The heap may have much left of earlier tests.
  EXPECT_GE(failed, 1);
  ExpectMergesAtLast();
}

// With a file system of its own that only the child sees. `flags`: of a second
// mount over the first.
void InMount(const std::string& at, const std::string& size,
             unsigned long flags, const std::function<std::string()>& work,
             Ended* ended) {
  *ended = InChild([&]() -> std::string {
    if (unshare(CLONE_NEWNS) != 0 ||
        mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
      return "SKIP: no mount namespace";
    const std::string from = at + ".before";
    std::filesystem::rename(at, from);
    std::filesystem::create_directory(at);
    if (mount("tmpfs", at.c_str(), "tmpfs", 0, ("size=" + size).c_str()) != 0)
      return "SKIP: no tmpfs";
    std::filesystem::copy(from, at, std::filesystem::copy_options::recursive);
    if (flags != 0 && mount("", at.c_str(), nullptr, MS_REMOUNT | flags,
                            nullptr) != 0)
      return "SKIP: no remount";
    const std::string message = work();
    return message + "\nold store " +
           (ReadFile(at + "/data.mdb") == ReadFile(from + "/data.mdb")
                ? "kept"
                : "changed");
  });
}

TEST_F(Interrupted, TheDiskIsFull) {
  Ended ended;
  InMount(dir_ / "out", std::to_string(old_.size() + (32 << 10)), 0, [&] { return MergeOnce(options_); }, &ended);
  if (ended.message.starts_with("SKIP")) GTEST_SKIP() << ended.message;
  EXPECT_FALSE(ended.Killed());
  EXPECT_NE(ended.message.find("free some space"), std::string::npos)
      << ended.message;
  EXPECT_NE(ended.message.find("\nold store kept"), std::string::npos);
}

TEST_F(Interrupted, TheMediumIsReadOnly) {
  Ended ended;
  InMount(dir_ / "out", "64m", MS_RDONLY,
          [&]() -> std::string {
            auto store = OpenStore(options_.output);
            if (!store.ok()) return store.status().message();
            return MergeOnce(options_);
          },
          &ended);
  if (ended.message.starts_with("SKIP")) GTEST_SKIP() << ended.message;
  EXPECT_FALSE(ended.Killed());
  EXPECT_NE(ended.message.find("Read-only file system"), std::string::npos)
      << ended.message;
  EXPECT_NE(ended.message.find("\nold store kept"), std::string::npos);
}

TEST_F(Interrupted, TwoAtOnceOneIsTold) {
  int told = 0;
  for (int round = 0; round < 10; ++round) {
    WriteStreams(dir_.path(), kMany - round);
    std::vector<pid_t> pids;
    for (int i = 0; i < 2; ++i) {
      const pid_t pid = fork();
      if (pid == 0) {
        const std::string message = MergeOnce(options_);
        _exit(message.empty()                                      ? 0
              : message.find("another merge is") != message.npos ? 2
                                                                   : 1);
      }
      pids.push_back(pid);
    }
    for (const pid_t pid : pids) {
      int status = 0;
      waitpid(pid, &status, 0);
      ASSERT_TRUE(WIFEXITED(status));
      EXPECT_NE(WEXITSTATUS(status), 1);
      told += WEXITSTATUS(status) == 2;
    }
    auto store = OpenStore(dir_ / "out");
    ASSERT_TRUE(store.ok()) << store.status().message();
  }
  EXPECT_GT(told, 0);
}

TEST_F(Interrupted, TwoAtOnceBothWait) {
  options_.wait = true;
  std::vector<pid_t> pids;
  for (int i = 0; i < 3; ++i) {
    const pid_t pid = fork();
    if (pid == 0) _exit(MergeOnce(options_).empty() ? 0 : 1);
    pids.push_back(pid);
  }
  for (const pid_t pid : pids) {
    int status = 0;
    waitpid(pid, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  ExpectMergesAtLast();
}

TEST_F(Interrupted, KilledReadersLeaveNothing) {
  ExpectMergesAtLast();
  const auto size = std::filesystem::file_size(dir_ / "out/data.mdb");
  for (int i = 0; i < 200; ++i) {
    const pid_t pid = fork();
    if (pid == 0) {
      while (true) {
        auto store = OpenStore(dir_ / "out");
        if (!store.ok()) _exit(1);
      }
    }
    usleep(static_cast<useconds_t>(i * 50));
    kill(pid, SIGKILL);
    int status = 0;
    waitpid(pid, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status));
  }
  // One ms more than before.
  WriteStreams(dir_.path(), kMany + 1);
  auto summary = Merge(options_);
  ASSERT_TRUE(summary.ok()) << summary.status().message();
  EXPECT_EQ(summary->added_events, 3u);
  EXPECT_LT(std::filesystem::file_size(dir_ / "out/data.mdb"), size * 6 / 5);
  EXPECT_EQ(Files(), (std::set<std::string>{"data.mdb", "merge.lock"}));
}

}  // namespace
}  // namespace ingero::merge
