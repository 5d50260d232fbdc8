// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <map>
#include <thread>

#include "code_sampler/native_names.h"
#include "code_sampler/native_threads.h"

namespace ingero::code_sampler {
namespace planted {
namespace {
__attribute__((noinline)) void Burn(volatile unsigned* x, unsigned n) {
  for (unsigned i = 0; i < n; ++i) *x = *x + i;
}
}  // namespace
// Never returns; the loop is in Burn.
[[noreturn]] void Spin() {
  volatile unsigned x = 0;
  for (;;) Burn(&x, 1'000'000);
}
}  // namespace planted

namespace {

class Child {
 public:
  template <typename F>
  explicit Child(F f) : pid_(fork()) {
    if (pid_ == 0) {
      alarm(120);
      f();
      _exit(0);
    }
  }
  ~Child() { End(); }
  void End() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  uint32_t pid() const { return static_cast<uint32_t>(pid_); }

 private:
  pid_t pid_;
};

void Pause() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

class NativeTest : public testing::Test {
 protected:
  // `least` samples of the process, however long that takes; stops after a
  // minute, for the assertions to tell.
  std::vector<NativeSample> Samples(NativeThreads* threads, size_t least) {
    std::vector<NativeSample> all;
    for (int i = 0; i < 3000 && all.size() < least; ++i) {
      Pause();
      threads->Drain(&all);
    }
    return all;
  }
};

#define FOLLOW_OR_SKIP(threads, pid)                      \
  if (const std::string why = (threads).Follow(pid); !why.empty()) \
  GTEST_SKIP() << why

TEST_F(NativeTest, NamesTheFunctionThatRuns) {
  Child child([] { planted::Spin(); });
  NativeThreads threads(200);
  FOLLOW_OR_SKIP(threads, child.pid());
  EXPECT_EQ(threads.following(), 1u);
  const std::vector<NativeSample> samples = Samples(&threads, 50);
  ASSERT_GE(samples.size(), 50u);
  NativeFiles files;
  NativeNames names(child.pid(), &files);
  size_t planted = 0;
  int64_t last = 0;
  for (const NativeSample& s : samples) {
    EXPECT_EQ(s.pid, child.pid());
    EXPECT_EQ(s.tid, child.pid());
    EXPECT_GT(s.t_ns, last);
    last = s.t_ns;
    const NativeName name = names.At(s.ip);
    if (name.function ==
        "ingero::code_sampler::planted::(anonymous namespace)::Burn")
      ++planted;
  }
  EXPECT_GT(planted, samples.size() * 9 / 10);
}

TEST_F(NativeTest, WhoSleepsHasNoSamples) {
  Child child([] {
    for (;;) pause();
  });
  NativeThreads threads(1000);
  FOLLOW_OR_SKIP(threads, child.pid());
  std::vector<NativeSample> all;
  for (int i = 0; i < 20; ++i) {
    Pause();
    threads.Drain(&all);
  }
  EXPECT_EQ(all.size(), 0u);
}

TEST_F(NativeTest, FurtherThreadsAreFollowedAndDeadOnesLetGo) {
  Child child([] {
    for (int i = 0; i < 3; ++i) std::thread([] { planted::Spin(); }).detach();
    planted::Spin();
  });
  NativeThreads threads(200);
  for (int i = 0; i < 3000 && threads.following() < 4; ++i) {
    FOLLOW_OR_SKIP(threads, child.pid());
    Pause();
  }
  ASSERT_EQ(threads.following(), 4u);
  std::map<uint32_t, size_t> by_thread;
  for (int i = 0; i < 3000 && by_thread.size() < 4; ++i)
    for (const NativeSample& s : Samples(&threads, 1)) ++by_thread[s.tid];
  EXPECT_EQ(by_thread.size(), 4u);
  child.End();
  std::vector<NativeSample> rest;
  for (int i = 0; i < 3000 && threads.following() > 0; ++i) {
    threads.Drain(&rest);
    Pause();
  }
  EXPECT_EQ(threads.following(), 0u);
  EXPECT_EQ(threads.Follow(child.pid()), "");  // there is no such process
}

TEST_F(NativeTest, WhatIsNoFileHasNoName) {
  NativeFiles files;
  NativeNames names(static_cast<uint32_t>(getpid()), &files);
  int local = 0;
  EXPECT_EQ(names.At(0).file, "");
  EXPECT_EQ(names.At(reinterpret_cast<uint64_t>(&local)).file, "");
  const NativeName self =
      names.At(reinterpret_cast<uint64_t>(&planted::Spin));
  EXPECT_EQ(self.function, "ingero::code_sampler::planted::Spin");
  EXPECT_NE(self.file.find("native_test"), std::string::npos);
  EXPECT_EQ(NativeFunctions::Read("/proc/self/maps")->At(0), "");
  EXPECT_EQ(NativeFunctions::Read("/nope")->At(0), "");
}

}  // namespace
}  // namespace ingero::code_sampler
