// SPDX-License-Identifier: Apache-2.0
// Ctrl-C, SIGTERM and SIGHUP end a command at once, and nothing that is not
// whole stays behind (base/leftover.h). Commands that wait for signals
// themselves (cli/signals.h) are asked first.
#ifndef INGERO_CLI_STOP_H_
#define INGERO_CLI_STOP_H_

namespace ingero::cli {

// For main(): from here on. What is ignored, as under nohup, stays so.
void CleanUpWhenStopped();

// One line, without its end, to be said then; of static storage.
void SayWhenStopped(const char* line);

// For main(): from here on a file that would become larger than it may
// (ulimit -f) is an error that is told, not this process's end.
void IgnoreFileSizeSignal();
// For a child before exec: what is started gets it as we did.
void RestoreFileSizeSignal();

}  // namespace ingero::cli

#endif  // INGERO_CLI_STOP_H_
