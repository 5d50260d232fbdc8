// SPDX-License-Identifier: Apache-2.0
#include "cli/asked.h"

#include <fmt/format.h>

#include <charconv>

#include "base/trace_dir.h"
#include "merge/store_trace.h"
#include "merge/trace_reader.h"

namespace ingero::cli {
namespace {

// Of the pid given, which is the host's or the one inside a container: the
// host's. An error lists the programs that there are.
Result<uint32_t> ResolvePid(uint32_t pid, const analysis::TraceSource& trace) {
  for (const analysis::Process& p : trace.processes())
    if (p.pid == pid) return pid;
  for (const analysis::Process& p : trace.processes())
    if (p.ns_pid == pid) return p.pid;
  std::string known;
  size_t more = 0, shown = 0;
  for (const analysis::Process& p : trace.processes()) {
    if (!p.has_cuda) continue;
    if (shown == 5) {
      ++more;
      continue;
    }
    known += fmt::format("{}{} ({})", shown++ > 0 ? ", " : "", p.pid, p.name);
  }
  if (more > 0) known += fmt::format(" and {} more", more);
  if (known.empty()) known = "none";
  return Status::Error(
      fmt::format("process {} is not in this store; those with CUDA calls: {}",
                  pid, known));
}

}  // namespace

void AskedOptions::AddTo(CLI::App* app, const char* about_pid) {
  app->add_option("--db", db_, "Store to read. Default: the newest")
      ->type_name("PATH");
  app->add_option("--since", window_.since,
                  "Only the last part, counted back from the\n"
                  "last event")
      ->type_name("DURATION");
  app->add_option("--from", window_.from, "Begin of the time to look at")
      ->type_name("TIME");
  app->add_option("--to", window_.to, "End of the time to look at")
      ->type_name("TIME");
  app->add_option("--pid", pid_, about_pid)->type_name("PID");
}

std::optional<int> AskedOptions::Check(const std::string& command,
                                       const Io& io) {
  named_ = !db_.empty();
  if (!pid_.empty()) {
    uint32_t value = 0;
    const char* end = pid_.data() + pid_.size();
    auto [at, error] = std::from_chars(pid_.data(), end, value);
    if (error != std::errc() || at != end || value == 0)
      return UsageError(io, command,
                        fmt::format("--pid: '{}' is not a process id; give a "
                                    "number, for example --pid 4242",
                                    pid_));
    pid_number_ = value;
  }
  Result<WindowSpec> spec = ParseWindow(window_);
  if (!spec.ok()) return UsageError(io, command, spec.status().message());
  spec_ = *spec;
  return std::nullopt;
}

Result<AskedOptions::Opened> AskedOptions::Open(const std::string& command,
                                                const Io& io) {
  if (!named_) {
    INGERO_ASSIGN_OR_RETURN(merge::FoundStore newest,
                            merge::FindNewestStore(DefaultTraceDirs()));
    db_ = newest.path;
    if (!newest.note.empty()) PrintError(io, command, "note: " + newest.note);
  }
  Opened opened;
  INGERO_ASSIGN_OR_RETURN(opened.trace, merge::OpenTrace(db_));
  if (pid_number_) {
    INGERO_ASSIGN_OR_RETURN(opened.options.pid,
                            ResolvePid(*pid_number_, *opened.trace));
  }
  if (!spec_.empty()) {
    const RecordingClock clock{
        opened.trace->span(),
        opened.trace->facts().wall_clock_at_span_begin_ns};
    INGERO_ASSIGN_OR_RETURN(opened.options.window,
                            ResolveWindow(spec_, clock));
  }
  opened.window = opened.options.window.value_or(opened.trace->span());
  return opened;
}

}  // namespace ingero::cli
