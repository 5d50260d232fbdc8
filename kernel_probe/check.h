// SPDX-License-Identifier: Apache-2.0
// `ingero-kprobe --check`: whether each probe works on this kernel.
#ifndef INGERO_KERNEL_PROBE_CHECK_H_
#define INGERO_KERNEL_PROBE_CHECK_H_

#include "base/status.h"

namespace ingero::kernel_probe {

// Loads and attaches every probe, makes for a fifth of a second happen what
// they wait for, and prints a line for each on stdout: state, name, and what
// was seen. `ingero check` reads these lines: the first two words are
//   works     fired, and the kernel ran it
//   attached  not fired: what it waits for is rare or does harm
//   silent    fired, but the kernel did not run it
//   skipped   this kernel cannot take it
// An error: nothing can be recorded here. Records nothing, leaves no file.
Status Check();

}  // namespace ingero::kernel_probe

#endif  // INGERO_KERNEL_PROBE_CHECK_H_
