// SPDX-License-Identifier: Apache-2.0
// Starts other programs; finds those of ingero.
#ifndef INGERO_CLI_PROGRAM_H_
#define INGERO_CLI_PROGRAM_H_

#include <signal.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "base/file.h"
#include "base/status.h"

namespace ingero::cli {

// Both ends close on exec.
struct Pipe {
  Fd read, write;
};
Result<Pipe> MakePipe();

struct StartOptions {
  // "NAME=value", put over this process's own.
  std::vector<std::string> environment;
  int in = -1, out = -1, err = -1;  // -1: this process's own
  bool own_group = false;  // out of reach of the terminal's Ctrl-C
  const sigset_t* signal_mask = nullptr;  // else this thread's
  unsigned seconds = 0;  // then it is ended with SIGALRM; 0: never
};
// argv[0] is looked up in PATH where it has no '/'. Errors: it could not be
// started. Threads: none other may exist.
Result<pid_t> StartProgram(const std::vector<std::string>& argv,
                           const StartOptions& options);
// Waits for its end. Its exit status; 128 + signal where one ended it.
int WaitForProgram(pid_t pid);
// Of what waitpid() tells.
int ExitStatusOf(int wait_status);

struct ProgramResult {
  int exit_status = 0;   // 128 + signal where one ended it
  std::string out, err;  // at most 1 MiB each, the rest is dropped
};

// Starts it, waits for its end and takes what it prints.
Result<ProgramResult> RunProgram(const std::vector<std::string>& argv,
                                 const std::vector<std::string>& environment,
                                 unsigned seconds);

// Folder of this process's own executable, "" if unknown.
std::string OwnFolder();

inline constexpr const char* kShim = "libingero_cuda.so";
// Where an installation or a build tree has them, "" where they are not.
std::string ShimBesideUs();
std::string FindCompanion();  // beside us, else in PATH
struct DemoProgram {
  std::string path;       // "" = it is not there
  std::string libraries;  // folder of the CUDA that it runs on
};
DemoProgram FindDemoProgram();
// The file that execvp() would take for `name`, "" = none.
std::string FindInPath(const std::string& name);
// "NAME: why it can't be run, and what to do", "" where it can. *there: whether
// there is such a file.
std::string WhyNotRun(const std::string& name, bool* there);

}  // namespace ingero::cli

#endif  // INGERO_CLI_PROGRAM_H_
