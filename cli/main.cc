// SPDX-License-Identifier: Apache-2.0
#include <exception>

#include "cli/command.h"
#include "cli/stop.h"

int main(int argc, char** argv) {
  const ingero::cli::Io io = ingero::cli::ProcessIo();
  ingero::cli::CleanUpWhenStopped();
  ingero::cli::IgnoreFileSizeSignal();
  // Our own code throws nothing; what libraries throw (no memory, mostly)
  // still ends in one line and a status.
  try {
    return ingero::cli::Run(ingero::cli::Args(argv + (argc > 0), argv + argc),
                            io);
  } catch (const std::exception& e) {
    ingero::cli::PrintError(io, "", e.what());
    return ingero::cli::kFailed;
  }
}
