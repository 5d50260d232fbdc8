// SPDX-License-Identifier: Apache-2.0
// The processes whose calls are being recorded into a folder, and their
// descendants (loader workers), as far as this pid namespace has them.
#ifndef INGERO_CLI_RECORDED_PROCESSES_H_
#define INGERO_CLI_RECORDED_PROCESSES_H_

#include <string>
#include <vector>

#include "code_sampler/sampler.h"

namespace ingero::cli {

// Reads the headers of the folder's CUDA streams and the stat of every process:
// a few ms on a large host.
std::vector<code_sampler::Watched> RecordedProcesses(const std::string& dir);

}  // namespace ingero::cli

#endif  // INGERO_CLI_RECORDED_PROCESSES_H_
