// SPDX-License-Identifier: Apache-2.0
#include "cli/stop.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "base/leftover.h"

namespace ingero::cli {
namespace {

std::atomic<const char*> g_said{nullptr};
void (*g_before_xfsz)(int) = SIG_DFL;

void Say(const char* text) {
  if (write(STDERR_FILENO, text, std::strlen(text)) < 0) {
    // Nobody listens.
  }
}

void OnStop(int number) {
  const bool removed = RemoveLeftovers();
  const char* said = g_said;
  if (said == nullptr && removed)
    said = "ingero: stopped; what was not whole yet is removed";
  if (said != nullptr) {
    Say("\n");
    Say(said);
    Say("\n");
  }
  raise(number);  // SA_RESETHAND: ends the process when this returns
}

}  // namespace

void CleanUpWhenStopped() {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before {
    }, action{};
    sigaction(number, nullptr, &before);
    if (before.sa_handler == SIG_IGN) continue;
    action.sa_handler = OnStop;
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    sigaction(number, &action, nullptr);
  }
}

void SayWhenStopped(const char* line) { g_said = line; }

void IgnoreFileSizeSignal() { g_before_xfsz = signal(SIGXFSZ, SIG_IGN); }

void RestoreFileSizeSignal() { signal(SIGXFSZ, g_before_xfsz); }

}  // namespace ingero::cli
