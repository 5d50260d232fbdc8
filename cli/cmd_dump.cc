// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <filesystem>
#include <limits>

#include "cli/command.h"
#include "cli/options.h"
#include "cli/time_window.h"
#include "merge/dump.h"
#include "merge/merge.h"
#include "merge/store_trace.h"

namespace ingero::cli {
namespace {

constexpr const char* kHelp =
    "Print every event of a store or of a stream file, one a line, with times\n"
    "in ns on CLOCK_MONOTONIC.\n";

constexpr const char* kExamples =
    "Examples:\n"
    "  ingero dump run1.store | less\n"
    "  ingero dump run1.store --table switches --from 12.5s --to 13s\n"
    "  ingero dump run1.store --format jsonl --table calls | jq .func";

// Only --from and --to need to know when the recording began.
Result<RecordingClock> ClockOf(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error) ||
      std::filesystem::path(path).extension() == ".mdb") {
    INGERO_ASSIGN_OR_RETURN(auto source, merge::OpenStore(path));
    return RecordingClock{source->trace().span(),
                          source->facts().wall_clock_at_span_begin_ns};
  }
  std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (folder.empty()) folder = ".";
  for (const merge::Recording& r : merge::ListRecordings({folder.string()}))
    for (const merge::StreamInfo& s : r.streams)
      if (std::filesystem::equivalent(s.path, path, error))
        return RecordingClock{s.span, s.created_real_ns};
  return Status::Error(path +
                       ": is neither a store nor a stream of ingero; "
                       "'ingero list' shows where those are");
}

}  // namespace

int RunDump(const Args& args, const Io& io) {
  std::string path, format = "text";
  merge::DumpFilter filter;
  WindowOptions window;
  CLI::App app(kHelp, "ingero dump");
  app.footer(kExamples);
  app.add_option("path,--db", path, "Store (a folder) or stream file")
      ->type_name("DB|STREAM");
  app.add_option("--format", format, "text or jsonl (one JSON object a line)")
      ->type_name("FORMAT");
  app.add_option("--table", filter.table,
                 "Only this table or kind of record;\n"
                 "a wrong name lists those there are")
      ->type_name("NAME");
  app.add_option("--from", window.from,
                 "From this time on: 12.5s, 22:01:30, or a day\n"
                 "and a time")
      ->type_name("TIME");
  app.add_option("--to", window.to, "Up to this time")->type_name("TIME");
  if (auto status = Parse(app, args, io)) return *status;

  if (path.empty())
    return UsageError(io, "dump",
                      "give a store or a stream file; 'ingero list' shows "
                      "where they are");
  if (format != "text" && format != "jsonl")
    return UsageError(
        io, "dump",
        fmt::format("--format: '{}' is not one of text and jsonl", format));
  Result<WindowSpec> spec = ParseWindow(window);
  if (!spec.ok()) return UsageError(io, "dump", spec.status().message());

  const auto fail = [&](const Status& status) {
    PrintError(io, "dump", status.message());
    return kFailed;
  };
  if (!spec->empty()) {
    auto clock = ClockOf(path);
    if (!clock.ok()) return fail(clock.status());
    auto resolved = ResolveWindow(*spec, *clock);
    if (!resolved.ok()) return fail(resolved.status());
    // The last event lies on the span's end, which an interval leaves out.
    if (!spec->to) resolved->end = Ns(std::numeric_limits<int64_t>::max());
    filter.window = *resolved;
  }
  const Status status = merge::Dump(
      path,
      format == "jsonl" ? merge::DumpFormat::kJsonLines
                        : merge::DumpFormat::kText,
      filter, [&](std::string_view lines) { Write(io.out, lines); });
  const bool written = FinishOutput(io, "dump");
  if (!status.ok()) {
    fail(status);
    return merge::IsDumpTable(filter.table) ? kFailed : kUsage;
  }
  return written ? kDone : kFailed;
}

}  // namespace ingero::cli
