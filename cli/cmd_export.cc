// SPDX-License-Identifier: Apache-2.0
// Arrow and Parquet need a large library that only this command would use: it
// is had from Python (python/ingero/arrow.py), which asks `ingero query`.
#include <errno.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "base/trace_dir.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/program.h"
#include "merge/store_trace.h"

namespace ingero::cli {
namespace {

constexpr const char* kHelp =
    "Write a store's tables as Parquet or Arrow files, for DuckDB, ClickHouse,\n"
    "Spark or pandas: OUT/TABLE/host=HOST/hour=HOUR/RECORDING.parquet. Every row\n"
    "has host, boot_id and the wall clock's time, so that files of many hosts line\n"
    "up. Needs python3 with pyarrow.\n";

constexpr const char* kExamples =
    "Examples:\n"
    "  ingero export -o lake\n"
    "  ingero export -o lake --tables calls,switches --format arrow\n"
    "  duckdb -c \"SELECT host, hour, sum(ns) FROM\n"
    "             read_parquet('lake/path/*/*/*.parquet') GROUP BY ALL\"";

}  // namespace

int RunExport(const Args& args, const Io& io) {
  std::string db, format = "parquet", output, tables;
  CLI::App app(kHelp, "ingero export");
  app.footer(kExamples);
  app.add_option("--db", db, "Store to read. Default: the newest")
      ->type_name("PATH");
  app.add_option("-o,--output", output, "Folder to write to")
      ->type_name("PATH");
  app.add_option("--format", format, "parquet or arrow (IPC files)")
      ->type_name("FORMAT");
  app.add_option("--tables", tables,
                 "Only these, with commas between them;\n"
                 "'ingero query --schema' lists them")
      ->type_name("NAMES");
  if (auto status = Parse(app, args, io)) return *status;
  if (format != "parquet" && format != "arrow")
    return UsageError(
        io, "export",
        fmt::format("--format: '{}' is not one of parquet and arrow", format));
  if (output.empty())
    return UsageError(io, "export",
                      "say where to write, for example -o lake");
  const auto fail = [&](const std::string& message) {
    PrintError(io, "export", message);
    return kFailed;
  };
  if (db.empty()) {
    auto newest = merge::FindNewestStore(DefaultTraceDirs());
    if (!newest.ok()) return fail(newest.status().message());
    db = newest->path;
    if (!newest->note.empty())
      PrintError(io, "export", "note: " + newest->note);
  }
  if (auto store = merge::OpenStore(db); !store.ok())
    return fail(store.status().message());
  const std::string script =
      OwnFolder() + "/../share/ingero/python/ingero/arrow.py";
  struct stat st;
  if (stat(script.c_str(), &st) != 0)
    return fail(script + " is missing: install ingero again, whole");
  char self[4096];
  const ssize_t size = readlink("/proc/self/exe", self, sizeof(self) - 1);
  if (size <= 0) return fail("/proc is needed, and is not there");
  const std::vector<std::string> words = {
      "python3", script, "--ingero", std::string(self, static_cast<size_t>(size)),
      "--db", db, "--format", format, "--output", output, "--tables=" + tables};
  std::vector<char*> argv;
  for (const std::string& w : words) argv.push_back(const_cast<char*>(w.c_str()));
  argv.push_back(nullptr);
  std::fflush(nullptr);
  execvp(argv[0], argv.data());
  return fail(fmt::format("cannot run python3: {}; it is what writes {} files, "
                          "with pyarrow: install both",
                          std::strerror(errno), format));
}

}  // namespace ingero::cli
