// SPDX-License-Identifier: Apache-2.0
// The options that name a store and a part of it (--db, --since, --from, --to,
// --pid), alike in every command that has them.
#ifndef INGERO_CLI_ASKED_H_
#define INGERO_CLI_ASKED_H_

#include <memory>
#include <optional>
#include <string>

#include "analysis/report.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/time_window.h"

namespace ingero::merge {
class TraceReader;
}

namespace ingero::cli {

class AskedOptions {
 public:
  // about_pid: what --pid means to the command.
  void AddTo(CLI::App* app,
             const char* about_pid = "Only this process and its workers");
  // All that can be wrong without looking at a store. An exit status, after
  // saying what is wrong; nullopt: go on.
  std::optional<int> Check(const std::string& command, const Io& io);

  struct Opened {
    std::unique_ptr<merge::TraceReader> trace;
    analysis::ReportOptions options;
    Interval window;  // options.window, or the whole span
  };
  Result<Opened> Open(const std::string& command, const Io& io);
  bool names_store() const { return named_; }
  bool names_pid() const { return pid_number_.has_value(); }
  const std::string& db() const { return db_; }

 private:
  std::string db_, pid_;
  bool named_ = false;
  WindowOptions window_;
  WindowSpec spec_;
  std::optional<uint32_t> pid_number_;
};

}  // namespace ingero::cli

#endif  // INGERO_CLI_ASKED_H_
