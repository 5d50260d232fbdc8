// SPDX-License-Identifier: Apache-2.0
// ingero-kprobe: the kernel companion.
#include <csignal>
#include <cstdio>

#include "base/text.h"
#include "kernel_probe/check.h"
#include "kernel_probe/options.h"
#include "kernel_probe/recorder.h"

int main(int argc, char** argv) {
  using namespace ingero;
  // A stream that would become larger than it may (ulimit -f) is a loss that is
  // counted and said, not the end of the recording.
  std::signal(SIGXFSZ, SIG_IGN);
  const kernel_probe::ParsedArgs args = kernel_probe::ParseArgs(argc, argv);
  if (args.exit_status) return *args.exit_status;
  const Status status = args.options.check
                            ? kernel_probe::Check()
                            : kernel_probe::Record(args.options);
  if (status.ok()) return 0;
  std::fprintf(stderr, "ingero-kprobe: %s\n",
               SanitizeForTerminal(status.message()).c_str());
  return 1;
}
