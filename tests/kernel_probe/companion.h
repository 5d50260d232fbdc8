// SPDX-License-Identifier: Apache-2.0
// Runs the real ingero-kprobe around a workload and reads back its stream.
#ifndef INGERO_TESTS_KERNEL_PROBE_COMPANION_H_
#define INGERO_TESTS_KERNEL_PROBE_COMPANION_H_

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/kernel_probe/stream_file.h"

namespace ingero::test {

// The companion that is tested: $INGERO_KPROBE, else the one built here.
std::string KprobePath();
// "" or why the companion cannot run here (for GTEST_SKIP).
std::string WhyNoCompanion();

class Companion {
 public:
  // A fresh private trace folder.
  Companion();
  ~Companion();
  Companion(const Companion&) = delete;

  // Starts it, as `uid` if not root; false if it ended before recording.
  bool Start(std::vector<std::string> args = {}, uid_t uid = 0);
  // Sends a signal (0: none), waits for the end. Its exit status; 128 + signal
  // where one killed it.
  int End(int signal);
  pid_t pid() const { return pid_; }
  double start_seconds() const { return start_seconds_; }
  // All that it said on stderr; complete after End().
  std::string said() const;
  const std::string& dir() const { return dir_; }
  // The newest stream in the folder, "" if none.
  std::string StreamPath() const;
  Result<StreamFile> Stream() const { return ReadStream(StreamPath()); }

 private:
  std::string dir_;
  pid_t pid_ = -1;
  double start_seconds_ = 0;
};

// Children pinned to one CPU, so that nothing but the planted states occurs.
void PinToCpu(int cpu);
// Runs `child` in a forked process, which exits with what it returns.
pid_t Fork(const std::function<int()>& child);
// Exit status, or 128 + signal.
int Wait(pid_t pid);
uint64_t NowNs();

}  // namespace ingero::test

#endif  // INGERO_TESTS_KERNEL_PROBE_COMPANION_H_
