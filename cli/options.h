// SPDX-License-Identifier: Apache-2.0
// CLI11 with our manners: help to stdout and status 0; anything wrong is one
// line on stderr that names the option and what to do, and status 2.
#ifndef INGERO_CLI_OPTIONS_H_
#define INGERO_CLI_OPTIONS_H_

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command.h"

namespace ingero::cli {

// nullopt: parsed, go on. Else the exit status to return. app.get_name() is
// "ingero COMMAND".
std::optional<int> Parse(CLI::App& app, const Args& args, const Io& io);

// Prints "ingero COMMAND: MESSAGE", returns kUsage.
int UsageError(const Io& io, std::string_view command,
               std::string_view message);

// Of folders that the user named: nullopt where all are there, else one line is
// printed, and the exit status to return.
std::optional<int> RequireFolders(const std::vector<std::string>& dirs,
                                  std::string_view command, const Io& io);

// The candidate that `word` is probably a misspelling of; "" = none is near.
std::string Nearest(std::string_view word,
                    const std::vector<std::string>& candidates);

}  // namespace ingero::cli

#endif  // INGERO_CLI_OPTIONS_H_
