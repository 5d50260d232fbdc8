// SPDX-License-Identifier: Apache-2.0
// Starts other programs; finds those of ingero.
#ifndef INGERO_CLI_PROGRAM_H_
#define INGERO_CLI_PROGRAM_H_

#include <string>
#include <vector>

#include "base/status.h"

namespace ingero::cli {

struct ProgramResult {
  int exit_status = 0;   // 128 + signal where one ended it
  std::string out, err;  // at most 1 MiB each, the rest is dropped
};

// argv[0] is a path, not looked up in PATH. `environment` ("NAME=value") is put
// over this process's own. After `seconds` it is ended with SIGALRM.
// Threads: none other may exist. Errors: it could not be started.
Result<ProgramResult> RunProgram(const std::vector<std::string>& argv,
                                 const std::vector<std::string>& environment,
                                 unsigned seconds);

// Folder of this process's own executable, "" if unknown.
std::string OwnFolder();

inline constexpr const char* kShim = "libingero_cuda.so";
// Where an installation or a build tree has them, "" where they are not.
std::string ShimBesideUs();
std::string FindCompanion();  // beside us, else in PATH

}  // namespace ingero::cli

#endif  // INGERO_CLI_PROGRAM_H_
