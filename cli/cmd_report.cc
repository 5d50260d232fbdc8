// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <string_view>

#include "cli/asked.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/report/page_data.h"
#include "cli/stop.h"
#include "cli/written.h"
#include "merge/trace_reader.h"

extern "C" const char ingero_report_page[], ingero_report_page_end[];

namespace ingero::cli {
namespace {

constexpr const char* kHelp =
    "Write the answer as one HTML file, to look at and to send on: the verdict,\n"
    "a timeline to zoom (what the GPU had to do, starved time coloured by cause,\n"
    "threads, calls, the system), findings, operations, processes. The file needs\n"
    "no network and is under 5 MB however long the recording.\n";

constexpr const char* kExamples =
    "Examples:\n"
    "  ingero report -o report.html\n"
    "  ingero report --since 60s -o report.html      the last minute, finer\n"
    "  ingero report --db run1.store --pid 4242 -o report.html\n"
    "\n"
    "A link to a part: report.html#from=12.5&to=12.6&at=12.55, in seconds.";

constexpr std::string_view kPlace = "__INGERO_DATA__";

// JSON in a <script>: whatever a program is called, it cannot end that.
std::string Embedded(const nlohmann::ordered_json& data) {
  const std::string text = data.dump(
      -1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  std::string safe;
  safe.reserve(text.size());
  for (const char c : text)
    if (c == '<')
      safe += "\\u003c";
    else
      safe += c;
  return safe;
}

}  // namespace

int RunReport(const Args& args, const Io& io) {
  AskedOptions asked;
  std::string output;
  bool quiet = false;
  CLI::App app(kHelp, "ingero report");
  app.footer(kExamples);
  asked.AddTo(&app);
  app.add_option("-o,--output", output,
                 "File to write; '-': standard output")
      ->type_name("PATH");
  app.add_flag("-q,--quiet", quiet, "Do not say what was written");
  if (auto status = Parse(app, args, io)) return *status;
  if (output.empty())
    return UsageError(io, "report",
                      "say where to write, for example -o report.html");
  if (auto status = asked.Check("report", io)) return *status;
  const auto fail = [&](const Status& status) {
    PrintError(io, "report", status.message());
    return kFailed;
  };
  auto opened = asked.Open("report", io);
  if (!opened.ok()) return fail(opened.status());
  const std::string data = Embedded(
      PageData(*opened->trace, opened->options, opened->window));
  if (Status read = opened->trace->AllRead(); !read.ok()) return fail(read);
  const std::string_view page(
      ingero_report_page,
      static_cast<size_t>(ingero_report_page_end - ingero_report_page));
  const size_t place = page.find(kPlace);
  INGERO_CHECK(place != page.npos);
  SayWhenStopped("ingero report: stopped; nothing was written");
  const Status written = WriteOutput(output, io, [&](std::FILE* out) {
    Write(out, page.substr(0, place));
    Write(out, data);
    Write(out, page.substr(place + kPlace.size()));
    return Status();
  });
  if (!written.ok()) return fail(written);
  if (!FinishOutput(io, "report")) return kFailed;
  if (!quiet) SayWritten(io, "report", output);
  return kDone;
}

}  // namespace ingero::cli
