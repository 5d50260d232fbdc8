// SPDX-License-Identifier: Apache-2.0
// The stream file in the trace folder. Never follows a link, never overwrites;
// the folder's owner owns what is made.
#ifndef INGERO_KERNEL_PROBE_OUTPUT_H_
#define INGERO_KERNEL_PROBE_OUTPUT_H_

#include <string>

#include "base/file.h"
#include "base/status.h"
#include "base/trace_dir.h"

namespace ingero::kernel_probe {

struct Output {
  TraceDir dir;
  std::string path;
  Fd file;
  Fd lock;  // one companion per folder; released by the kernel
};

// dir: "" for the default folder. Takes the lock, makes the file. `make_dir`:
// the folder, too, where it is not there.
Result<Output> OpenOutput(const std::string& dir, bool make_dir = true);
// All probes are attached: who finds the lock taken knows it from here on.
void TellRecording(const Output& output);

}  // namespace ingero::kernel_probe

#endif  // INGERO_KERNEL_PROBE_OUTPUT_H_
