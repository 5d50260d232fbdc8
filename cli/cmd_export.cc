// SPDX-License-Identifier: Apache-2.0
// Arrow and Parquet need a large library that only this command would use: it
// is had from Python (python/ingero/arrow.py), which asks `ingero query`.
#include <errno.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <sstream>

#include "base/trace_dir.h"
#include "cli/asked.h"
#include "cli/columns.h"
#include "cli/command.h"
#include "cli/export/events.h"
#include "cli/options.h"
#include "cli/program.h"
#include "merge/store_trace.h"
#include "merge/trace_reader.h"
#include "query/database.h"

namespace ingero::cli {
namespace {

constexpr const char* kHelp =
    "Write what a store holds for other programs. As pictures: perfetto (opens in\n"
    "ui.perfetto.dev: processes, threads, scheduling with who woke whom, calls,\n"
    "what the GPU had to do, starved time by cause, findings, counters), chrome\n"
    "(JSON of chrome://tracing), folded (starved time by cause, for flame graphs).\n"
    "As tables: csv, and parquet or arrow for DuckDB, ClickHouse, Spark or pandas:\n"
    "OUT/TABLE/host=HOST/hour=HOUR/RECORDING.parquet, where every row has host,\n"
    "boot_id and the wall clock's time; those two need python3 with pyarrow.\n";

constexpr const char* kExamples =
    "Examples:\n"
    "  ingero export --format perfetto -o run.pftrace\n"
    "  ingero export --format perfetto --from 12s --to 13s -o part.pftrace\n"
    "  ingero export --format folded -o - | flamegraph.pl > starved.svg\n"
    "  ingero export --format csv -o tables\n"
    "  ingero export -o lake --tables calls,switches --format arrow\n"
    "  duckdb -c \"SELECT host, hour, sum(ns) FROM\n"
    "             read_parquet('lake/path/*/*/*.parquet') GROUP BY ALL\"";

bool IsPicture(const std::string& format) {
  return format == "perfetto" || format == "chrome" || format == "folded";
}

Status ExportPicture(AskedOptions* asked, const std::string& format,
                     const std::string& output, const Io& io) {
  INGERO_ASSIGN_OR_RETURN(AskedOptions::Opened opened,
                          asked->Open("export", io));
  const merge::TraceReader& trace = *opened.trace;
  return WriteOutput(output, io, [&](std::FILE* out) {
    if (format == "folded") {
      ExportFolded(trace, opened.options, opened.window, out);
    } else {
      const std::unique_ptr<EventSink> sink =
          format == "perfetto" ? MakePerfettoSink(out) : MakeChromeSink(out);
      ExportEvents(trace, opened.options, opened.window, sink.get());
    }
    return trace.AllRead();
  });
}

Status ExportCsv(const std::string& db, const std::string& tables,
                 const std::string& output, const Io& io) {
  INGERO_ASSIGN_OR_RETURN(auto reader, merge::OpenTrace(db));
  INGERO_ASSIGN_OR_RETURN(auto database, query::Database::Open(*reader));
  std::vector<std::string> known, wanted;
  for (const query::Table& table : database->tables())
    known.push_back(table.name);
  std::istringstream words(tables);
  for (std::string word; std::getline(words, word, ',');) {
    if (std::find(known.begin(), known.end(), word) == known.end())
      return Status::Error(fmt::format("--tables: no table '{}'; there are {}",
                                       word, fmt::join(known, ", ")));
    wanted.push_back(word);
  }
  if (wanted.empty()) wanted = known;
  if (mkdir(output.c_str(), 0777) != 0 && errno != EEXIST)
    return Status::Errno(output, errno);
  for (const std::string& table : wanted)
    INGERO_RETURN_IF_ERROR(WriteOutput(
        output + "/" + table + ".csv", io, [&](std::FILE* out) {
          query::Database::Handler handler;
          handler.columns = [&](const std::vector<std::string>& names) {
            Write(out, CsvLine({names.begin(), names.end()}));
          };
          handler.row = [&](const std::vector<query::Value>& row) {
            Write(out, CsvLine(row));
            return std::ferror(out) == 0;
          };
          INGERO_RETURN_IF_ERROR(
              database->Run("SELECT * FROM " + table, handler));
          return reader->AllRead();
        }));
  return {};
}

}  // namespace

int RunExport(const Args& args, const Io& io) {
  AskedOptions asked;
  std::string format = "parquet", output, tables;
  CLI::App app(kHelp, "ingero export");
  app.footer(kExamples);
  asked.AddTo(&app);
  app.add_option("-o,--output", output,
                 "File to write ('-': standard output); of tables:\n"
                 "folder to write to")
      ->type_name("PATH");
  app.add_option("--format", format,
                 "perfetto, chrome, folded; csv, parquet (default)\n"
                 "or arrow (IPC files)")
      ->type_name("FORMAT");
  app.add_option("--tables", tables,
                 "Only these, with commas between them;\n"
                 "'ingero query --schema' lists them")
      ->type_name("NAMES");
  if (auto status = Parse(app, args, io)) return *status;
  const bool picture = IsPicture(format);
  if (!picture && format != "csv" && format != "parquet" && format != "arrow")
    return UsageError(
        io, "export",
        fmt::format("--format: '{}' is not one of perfetto, chrome, folded, "
                    "csv, parquet and arrow",
                    format));
  if (output.empty())
    return UsageError(io, "export",
                      picture ? "say where to write, for example -o run." +
                                    std::string(format == "perfetto" ? "pftrace"
                                                : format == "chrome" ? "json"
                                                                     : "folded")
                              : "say where to write, for example -o lake");
  if (picture && !tables.empty())
    return UsageError(io, "export", "--tables: is for csv, parquet and arrow");
  for (const char* option : {"--since", "--from", "--to", "--pid"})
    if (!picture && app.count(option) > 0)
      return UsageError(io, "export",
                        fmt::format("{}: is for perfetto, chrome and folded; "
                                    "tables are written whole",
                                    option));
  if (!picture && output == "-")
    return UsageError(io, "export",
                      "-o -: tables need a folder; 'ingero query' prints one");
  if (auto status = asked.Check("export", io)) return *status;
  const auto fail = [&](const std::string& message) {
    PrintError(io, "export", message);
    return kFailed;
  };
  if (picture) {
    if (Status done = ExportPicture(&asked, format, output, io); !done.ok())
      return fail(done.message());
    return FinishOutput(io, "export") ? kDone : kFailed;
  }
  std::string db = asked.db();
  if (db.empty()) {
    auto newest = merge::FindNewestStore(DefaultTraceDirs());
    if (!newest.ok()) return fail(newest.status().message());
    db = newest->path;
    if (!newest->note.empty())
      PrintError(io, "export", "note: " + newest->note);
  }
  if (format == "csv") {
    if (Status done = ExportCsv(db, tables, output, io); !done.ok())
      return fail(done.message());
    return kDone;
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
