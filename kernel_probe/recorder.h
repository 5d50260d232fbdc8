// SPDX-License-Identifier: Apache-2.0
// One recording, from start to closing line.
#ifndef INGERO_KERNEL_PROBE_RECORDER_H_
#define INGERO_KERNEL_PROBE_RECORDER_H_

#include "base/status.h"
#include "kernel_probe/options.h"

namespace ingero::kernel_probe {

// Records until the duration is over, or SIGINT, SIGTERM or SIGHUP. Talks on
// stderr. An error means that nothing (more) could be recorded.
Status Record(const Options& options);

}  // namespace ingero::kernel_probe

#endif  // INGERO_KERNEL_PROBE_RECORDER_H_
