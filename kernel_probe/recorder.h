// SPDX-License-Identifier: Apache-2.0
// One recording, from start to closing line.
#ifndef INGERO_KERNEL_PROBE_RECORDER_H_
#define INGERO_KERNEL_PROBE_RECORDER_H_

#include "base/status.h"
#include "kernel_probe/options.h"

namespace ingero::kernel_probe {

// Records until the duration is over, or SIGINT, SIGTERM or SIGHUP, or
// (supervised) until standard input ends: so also when its supervisor is
// killed. Talks on stderr; supervised, also a line of counts a second on stdout,
// "SWITCHES LOST BYTES"; one that finds no room there is left out. An error means that nothing (more) could be recorded.
Status Record(const Options& options);

}  // namespace ingero::kernel_probe

#endif  // INGERO_KERNEL_PROBE_RECORDER_H_
