// SPDX-License-Identifier: Apache-2.0
#include "cli/group_witness.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/file.h"

namespace ingero::cli {
namespace {

constexpr int kPatienceMs = 20;

// "ShdPnd:" of /proc/PID/status, a bit per signal (proc(5)). 0 = unknown.
unsigned long long Pending(pid_t pid) {
  const auto text =
      ReadWholeFile("/proc/" + std::to_string(pid) + "/status", 64 * 1024);
  if (!text.ok()) return 0;
  const size_t at = text->find("\nShdPnd:");
  if (at == std::string::npos) return 0;
  return std::strtoull(text->c_str() + at + 8, nullptr, 16);
}

}  // namespace

GroupWitness::GroupWitness() { Start(); }
GroupWitness::~GroupWitness() { End(); }

void GroupWitness::Start() {
  sigset_t all, before;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, &before);
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(0);
    prctl(PR_SET_NAME, "ingero-witness");
    // Whoever waits for the end of our output does not wait for it.
    if (close_range(0, ~0U, 0) != 0)
      for (int fd = 0; fd < 1024; ++fd) close(fd);
    for (;;) pause();
  }
  sigprocmask(SIG_SETMASK, &before, nullptr);
}

void GroupWitness::End() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

bool GroupWitness::GroupGot(int signal) {
  for (int i = 0; pid_ > 0 && i <= kPatienceMs; ++i) {
    if ((Pending(pid_) >> (signal - 1) & 1) != 0) {
      // What is pending can't be taken back; the next one starts anew.
      End();
      Start();
      return true;
    }
    usleep(1000);
  }
  return false;
}

}  // namespace ingero::cli
