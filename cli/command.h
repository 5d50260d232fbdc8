// SPDX-License-Identifier: Apache-2.0
// The subcommands of `ingero`, as a table that can be read top to bottom. To
// add one: write cmd_<name>.cc, declare it here, add its row in command.cc.
//
// Data go to io.out, everything else (errors, progress, advice) to io.err, so
// that a pipe never sees words. A command that fails writes nothing to io.out
// that could be taken for a whole answer.
#ifndef INGERO_CLI_COMMAND_H_
#define INGERO_CLI_COMMAND_H_

#include <span>
#include <string>
#include <vector>

#include "cli/io.h"

namespace ingero::cli {

// Interface for scripts: never renumber.
enum ExitStatus : int {
  kDone = 0,
  kFailed = 1,
  kUsage = 2,
  kIncomplete = 3,  // done, but the data are incomplete; only with --strict
  kWorse = 4,       // done, and worse than 'ingero diff --fail-on' allows
};

using Args = std::vector<std::string>;

struct Command {
  const char* name;
  const char* summary;  // one line of `ingero help`
  int (*run)(const Args& args, const Io& io);
};

std::span<const Command> Commands();

int RunRun(const Args& args, const Io& io);
int RunTrace(const Args& args, const Io& io);
int RunDemo(const Args& args, const Io& io);
int RunTop(const Args& args, const Io& io);
int RunMerge(const Args& args, const Io& io);
int RunExplain(const Args& args, const Io& io);
int RunReport(const Args& args, const Io& io);
int RunDiff(const Args& args, const Io& io);
int RunStats(const Args& args, const Io& io);
int RunList(const Args& args, const Io& io);
int RunQuery(const Args& args, const Io& io);
int RunMcp(const Args& args, const Io& io);
int RunCheck(const Args& args, const Io& io);
int RunOverhead(const Args& args, const Io& io);
int RunExport(const Args& args, const Io& io);
int RunImport(const Args& args, const Io& io);
int RunShare(const Args& args, const Io& io);
int RunStore(const Args& args, const Io& io);
int RunTimeline(const Args& args, const Io& io);
int RunDump(const Args& args, const Io& io);

// What main() does: finds the command, runs it, returns its exit status.
// `args` is without the program's own name.
int Run(const Args& args, const Io& io);

}  // namespace ingero::cli

#endif  // INGERO_CLI_COMMAND_H_
