// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <vector>

#include "base/text.h"
#include "base/trace_dir.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/render/layout.h"
#include "cli/stop.h"
#include "merge/store_trace.h"
#include "merge/store_upkeep.h"

namespace ingero::cli {
namespace {

constexpr const char* kHelp =
    "Copy a store to send on, without what it should not tell: by default\n"
    "command lines, paths and the host's name. Times, pids, CUDA functions and\n"
    "what the answer rests on stay.\n"
    "\n"
    "  cmdline  command lines\n"
    "  paths    folders of programs and libraries; cgroups become numbers\n"
    "  host     the host's name and boot id\n"
    "  names    names of processes and threads\n"
    "  ranges   names of NVTX ranges and their domains\n"
    "  kernels  names of kernels\n"
    "  code     files and functions that --where met; lines keep their "
    "numbers\n";

constexpr const char* kExamples =
    "Examples:\n"
    "  ingero share -o to-send.store\n"
    "  ingero share --redact all run1.store -o to-send.store\n"
    "  ingero share --redact cmdline,kernels run1.store -o to-send.store\n"
    "\n"
    "Look at it before it is sent: ingero dump to-send.store | less";

constexpr const char* kDefault = "cmdline,paths,host";

struct What {
  const char* name;
  bool merge::Redaction::*member;
};
constexpr What kWhat[] = {{"cmdline", &merge::Redaction::command_lines},
                          {"paths", &merge::Redaction::paths},
                          {"host", &merge::Redaction::host},
                          {"names", &merge::Redaction::names},
                          {"ranges", &merge::Redaction::ranges},
                          {"kernels", &merge::Redaction::kernels},
                          {"code", &merge::Redaction::code}};

Result<merge::Redaction> ParseRedaction(const std::string& list) {
  merge::Redaction out;
  for (size_t at = 0; at <= list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    const std::string word = list.substr(at, end - at);
    at = end + 1;
    bool known = false;
    for (const What& w : kWhat)
      if (word == w.name || word == "all") known = out.*w.member = true;
    if (!known)
      return Status::Error(fmt::format(
          "--redact: '{}' is none of cmdline, paths, host, names, ranges, "
          "kernels, code and all",
          word));
  }
  return out;
}

}  // namespace

int RunShare(const Args& args, const Io& io) {
  std::string path, output, redact = kDefault;
  CLI::App app(kHelp, "ingero share");
  app.footer(kExamples);
  app.add_option("path,--db", path, "Store to copy. Default: the newest")
      ->type_name("DB");
  app.add_option("-o,--output", output, "Folder of the copy")
      ->type_name("PATH");
  app.add_option("--redact", redact,
                 fmt::format("What to leave out, with commas between;\n"
                             "default: {}",
                             kDefault))
      ->type_name("LIST");
  if (auto status = Parse(app, args, io)) return *status;
  if (output.empty())
    return UsageError(io, "share", "give the copy a name: -o to-send.store");
  const auto what = ParseRedaction(redact);
  if (!what.ok()) return UsageError(io, "share", what.status().message());

  const auto fail = [&](const Status& status) {
    PrintError(io, "share", status.message());
    return kFailed;
  };
  if (path.empty()) {
    auto newest = merge::FindNewestStore(DefaultTraceDirs());
    if (!newest.ok()) return fail(newest.status());
    path = newest->path;
    if (!newest->note.empty()) PrintError(io, "share", "note: " + newest->note);
  }
  SayWhenStopped("ingero share: stopped; nothing was written");
  auto copied = [&] {
    Progress progress(io);
    return merge::ShareStore(path, *what, output,
                             [&](double fraction, uint64_t rows) {
                               progress.Update("copying", fraction, rows);
                             });
  }();
  if (!copied.ok()) return fail(copied.status());
  Page page(io.columns, io.err_is_terminal && !io.no_color);
  page.Labeled("store",
               fmt::format("{} ({})", SanitizeForTerminal(copied->path),
                           FormatBytes(copied->bytes_after)),
               0, 12, 0, /*cut=*/false);
  std::string left_out, kept;
  for (const What& w : kWhat) {
    std::string& list = *what.*w.member ? left_out : kept;
    list += (list.empty() ? "" : ", ") + std::string(w.name);
  }
  page.Labeled("left out", left_out, 0, 12);
  if (!kept.empty()) page.Labeled("still in it", kept, 0, 12);
  Write(io.err, page.text());
  return kDone;
}

}  // namespace ingero::cli
