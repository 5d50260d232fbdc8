// SPDX-License-Identifier: Apache-2.0
// Signals as something to read while a command waits for other things, too.
#ifndef INGERO_CLI_SIGNALS_H_
#define INGERO_CLI_SIGNALS_H_

#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <initializer_list>
#include <optional>

#include "base/file.h"

namespace ingero::cli {

// From its making to Restore() these do nothing but show here. Threads: one.
class Signals {
 public:
  explicit Signals(std::initializer_list<int> numbers) {
    sigset_t set;
    sigemptyset(&set);
    for (const int number : numbers) sigaddset(&set, number);
    sigprocmask(SIG_BLOCK, &set, &before_);
    fd_ = Fd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  }
  // From here on they do to this process what they did before.
  void Restore() {
    if (!fd_.valid()) return;
    // What came while there was nothing left to pass it on to.
    while (Next()) continue;
    fd_.reset();
    sigprocmask(SIG_SETMASK, &before_, nullptr);
  }
  ~Signals() { Restore(); }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  int fd() const { return fd_.get(); }
  const sigset_t& before() const { return before_; }
  std::optional<signalfd_siginfo> Next() const {
    signalfd_siginfo info;
    if (read(fd_.get(), &info, sizeof(info)) != sizeof(info))
      return std::nullopt;
    return info;
  }

 private:
  Fd fd_;
  sigset_t before_{};
};

}  // namespace ingero::cli

#endif  // INGERO_CLI_SIGNALS_H_
