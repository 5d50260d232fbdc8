// SPDX-License-Identifier: Apache-2.0
#include "cli/command.h"

#include <fmt/format.h>

#include <string_view>

#include "cli/options.h"

namespace ingero::cli {
namespace {

int RunHelp(const Args& args, const Io& io);
int RunVersion(const Args& args, const Io& io);

constexpr Command kCommands[] = {
    {"run", "record a program from both sides, and say why it starves",
     RunRun},
    {"trace", "record what runs already, for a time or until Ctrl-C", RunTrace},
    {"top", "show live how the GPU is fed, while it is recorded", RunTop},
    {"demo", "show it on a simulated GPU, with a cause planted", RunDemo},
    {"merge", "join what was recorded into a store that can be asked",
     RunMerge},
    {"explain", "say why the GPU was starved, and what to do about it",
     RunExplain},
    {"report", "write the answer and its timeline as one HTML page", RunReport},
    {"diff", "compare two recordings: what got slower, and why", RunDiff},
    {"stats", "count and time CUDA calls; say what was seen of them",
     RunStats},
    {"timeline", "print what one thread did, event by event", RunTimeline},
    {"query", "ask a store in SQL", RunQuery},
    {"export", "write a store for Perfetto, flame graphs, Parquet, CSV, ...",
     RunExport},
    {"import", "make a store of a torch.profiler or Nsight Systems trace",
     RunImport},
    {"mcp", "serve a store to an LLM (Model Context Protocol)", RunMcp},
    {"list", "list the recordings and whether they are merged", RunList},
    {"share", "copy a store to send on, without paths and command lines",
     RunShare},
    {"store", "measure, check, compact or prune a store", RunStore},
    {"dump", "print every event of a store or of a stream file", RunDump},
    {"check", "try what recording needs on this machine", RunCheck},
    {"overhead", "measure what recording costs a command of yours",
     RunOverhead},
    {"help", "print the help of a command", RunHelp},
    {"version", "print the version", RunVersion},
};

const Command* Find(std::string_view name) {
  for (const Command& c : kCommands)
    if (name == c.name) return &c;
  return nullptr;
}

void PrintOverview(const Io& io) {
  std::string text =
      "ingero says why a GPU is starved of work.\n"
      "\n"
      "Usage: ingero COMMAND [OPTIONS]\n"
      "\n"
      "Commands:\n";
  for (const Command& c : kCommands)
    text += fmt::format("  {:<10}{}\n", c.name, c.summary);
  text +=
      "\n"
      "From the program to the answer:\n"
      "  ingero run python3 train.py      records, merges and explains\n"
      "The same by hand, in two terminals:\n"
      "  sudo ingero-kprobe                              the scheduler\n"
      "  LD_PRELOAD=libingero_cuda.so python3 train.py   CUDA calls\n"
      "  ingero merge && ingero explain\n"
      "\n"
      "'ingero COMMAND --help' has the options and examples of a command.\n"
      "Exit status: 0 done, 1 failed, 2 wrong usage, 3 done but the data are\n"
      "incomplete (with --strict), 4 worse than 'ingero diff --fail-on' allows,\n"
      "130 interrupted.\n";
  Write(io.out, text);
}

int UnknownCommand(const std::string& name, const Io& io) {
  std::vector<std::string> names;
  for (const Command& c : kCommands) names.push_back(c.name);
  std::string near = Nearest(name, names);
  PrintError(io, "",
             near.empty()
                 ? fmt::format("there is no command '{}'; 'ingero help' lists "
                               "them",
                               name)
                 : fmt::format("there is no command '{}'; did you mean "
                               "'ingero {}'?",
                               name, near));
  return kUsage;
}

int RunHelp(const Args& args, const Io& io) {
  if (args.empty() || args[0] == "--help" || args[0] == "-h") {
    PrintOverview(io);
    return FinishOutput(io, "help") ? kDone : kFailed;
  }
  if (args.size() > 1)
    return UsageError(io, "help",
                      "takes one command, for example "
                      "'ingero help explain'");
  const Command* command = Find(args[0]);
  if (command == nullptr) return UnknownCommand(args[0], io);
  if (command->run == RunHelp) return RunHelp({}, io);
  return command->run({"--help"}, io);
}

int RunVersion(const Args& args, const Io& io) {
  CLI::App app("Print the version of ingero.\n", "ingero version");
  if (auto status = Parse(app, args, io)) return *status;
  Write(io.out, "ingero " INGERO_VERSION "\n");
  return FinishOutput(io, "version") ? kDone : kFailed;
}

}  // namespace

std::span<const Command> Commands() { return kCommands; }

int Run(const Args& args, const Io& io) {
  if (args.empty()) return RunHelp({}, io);
  std::string name = args[0];
  if (name == "--help" || name == "-h") name = "help";
  if (name == "--version" || name == "-V") name = "version";
  if (name.starts_with("-"))
    return UsageError(io, "",
                      fmt::format("unknown option {}; options come after the "
                                  "command, as in 'ingero explain --since "
                                  "60s'",
                                  name));
  const Command* command = Find(name);
  if (command == nullptr) return UnknownCommand(name, io);
  return command->run(Args(args.begin() + 1, args.end()), io);
}

}  // namespace ingero::cli
