// SPDX-License-Identifier: Apache-2.0
// Records a program from both sides, merges and explains: what `ingero run`
// does, and `ingero demo` with a program of its own. Defined in cmd_run.cc.
#ifndef INGERO_CLI_RECORDING_H_
#define INGERO_CLI_RECORDING_H_

#include <cstdint>
#include <string>

#include "base/units.h"
#include "cli/command.h"

namespace ingero::cli {

struct RecordingOptions {
  std::string command;      // of ingero, for its messages
  std::string dir, output;  // "": the default
  bool quiet = false;       // no list of processes and no report
  bool live_line = false;   // on a terminal: what is going on
  bool kept = true;         // false: what is recorded goes when this ends
  bool cuda_only = false;
  unsigned where_hz = 0;  // looks a second at where code is; 0: none
  std::string buffer;  // as it was typed
  uint64_t buffer_bytes = 0;  // of the companion, per CPU; 0: as it likes
  Ns duration;       // of a trace; 0: until told to end
  uint32_t pid = 0;  // of a trace; 0: of everybody
  Args program;      // empty: a trace
  Args environment;  // "NAME=value", for the program alone
};

struct Recorded {
  int exit_status = kFailed;  // as `ingero run --help` has it
  std::string store;          // "" = there is none, and it was said why
  bool started = false;       // false: the program was not, and it was said why
};

// REQUIRES: !options.program.empty()
Recorded RecordProgram(RecordingOptions options, const Io& io);

}  // namespace ingero::cli

#endif  // INGERO_CLI_RECORDING_H_
