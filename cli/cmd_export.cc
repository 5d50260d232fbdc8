// SPDX-License-Identifier: Apache-2.0
// Arrow and Parquet need a large library that only this command would use: it
// is had from Python (python/ingero/arrow.py), which asks `ingero query`.
#include <errno.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>

#include "base/file_error.h"
#include "base/text.h"
#include "base/trace_dir.h"
#include "cli/asked.h"
#include "cli/columns.h"
#include "cli/command.h"
#include "cli/export/events.h"
#include "cli/options.h"
#include "cli/program.h"
#include "cli/render/words.h"
#include "cli/stop.h"
#include "cli/written.h"
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
      // A part of it could be taken for all.
      const std::string text =
          ExportFolded(trace, opened.options, opened.window);
      INGERO_RETURN_IF_ERROR(trace.AllRead());
      if (text.empty())
        PrintError(io, "export",
                   "note: no starved time has a cause in this part of the "
                   "recording, so there are no stacks");
      Write(out, text);
    } else {
      const std::unique_ptr<EventSink> sink =
          format == "perfetto" ? MakePerfettoSink(out) : MakeChromeSink(out);
      ExportEvents(trace, opened.options, opened.window, sink.get());
    }
    return trace.AllRead();
  });
}

// Where something is wrong with --tables: what.
std::string WrongTables(const std::vector<std::string>& wanted,
                        const std::vector<query::Table>& tables) {
  std::vector<std::string> known;
  for (const query::Table& table : tables) known.push_back(table.name);
  for (const std::string& name : wanted)
    if (std::find(known.begin(), known.end(), name) == known.end())
      return fmt::format("--tables: no table '{}'; there are {}", name,
                         fmt::join(known, ", "));
  return "";
}

std::string HeaderOf(const query::Table& table) {
  std::vector<query::Value> names;
  for (const query::ColumnInfo& column : table.columns)
    names.emplace_back(std::string(column.name));
  return CsvLine(names);
}

// Files are replaced in a folder of nothing but tables of an earlier export,
// which their first lines tell.
Status CheckCsvFolder(const std::string& folder,
                      const std::vector<query::Table>& tables) {
  std::error_code error;
  if (!std::filesystem::exists(folder, error)) return {};
  std::filesystem::directory_iterator entries(folder, error);
  if (error) return CannotWrite(folder, error.value());
  for (const auto& entry : entries) {
    const std::string name = entry.path().filename();
    bool ours = false;
    for (const query::Table& table : tables) {
      if (name != std::string(table.name) + ".csv") continue;
      const std::string header = HeaderOf(table);
      std::string begin(header.size(), '\0');
      std::ifstream(entry.path()).read(
          begin.data(), static_cast<std::streamsize>(begin.size()));
      ours = begin == header;
    }
    if (!ours)
      return Status::Error(fmt::format(
          "{} holds {}, which is of no export, and is left alone; name a new "
          "folder",
          folder, name));
  }
  return {};
}

Status ExportCsv(const merge::TraceReader& reader, query::Database* database,
                 const std::vector<std::string>& wanted,
                 const std::string& output, const Io& io) {
  INGERO_RETURN_IF_ERROR(CheckCsvFolder(output, database->tables()));
  INGERO_ASSIGN_OR_RETURN(Leftover folder, MakeNewFolder(output, 0777));
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
          return reader.AllRead();
        }));
  folder.Keep();
  return {};
}

uint64_t BytesOf(const std::string& folder,
                 const std::vector<std::string>& tables) {
  uint64_t bytes = 0;
  for (const std::string& table : tables) {
    std::error_code error;
    const uint64_t size =
        std::filesystem::file_size(folder + "/" + table + ".csv", error);
    if (!error) bytes += size;
  }
  return bytes;
}

}  // namespace

int RunExport(const Args& args, const Io& io) {
  AskedOptions asked;
  std::string format = "parquet", output, tables;
  bool quiet = false;
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
  app.add_flag("-q,--quiet", quiet, "Do not say what was written");
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
  SayWhenStopped("ingero export: stopped; what was not whole is removed");
  if (picture) {
    if (Status done = ExportPicture(&asked, format, output, io); !done.ok())
      return fail(done.message());
    if (!FinishOutput(io, "export")) return kFailed;
    if (!quiet) SayWritten(io, "export", output);
    return kDone;
  }
  std::string db = asked.db();
  if (db.empty()) {
    auto newest = merge::FindNewestStore(DefaultTraceDirs());
    if (!newest.ok()) return fail(newest.status().message());
    db = newest->path;
    if (!newest->note.empty())
      PrintError(io, "export", "note: " + newest->note);
  }
  auto reader = merge::OpenTrace(db);
  if (!reader.ok()) return fail(reader.status().message());
  auto database = query::Database::Open(**reader);
  if (!database.ok()) return fail(database.status().message());
  std::vector<std::string> wanted;
  std::istringstream words(tables);
  for (std::string word; std::getline(words, word, ',');)
    wanted.push_back(word);
  if (const std::string wrong = WrongTables(wanted, (*database)->tables());
      !wrong.empty())
    return UsageError(io, "export", wrong);
  if (format == "csv") {
    if (wanted.empty())
      for (const query::Table& table : (*database)->tables())
        wanted.push_back(table.name);
    if (Status done = ExportCsv(**reader, database->get(), wanted, output, io);
        !done.ok())
      return fail(done.message());
    if (!quiet)
      SayWritten(io, "export", output,
                 fmt::format(" ({}, {})",
                             FormatCounted(wanted.size(), "table", "tables"),
                             FormatBytes(BytesOf(output, wanted))));
    return kDone;
  }
  const std::string script =
      OwnFolder() + "/../share/ingero/python/ingero/arrow.py";
  struct stat st;
  if (stat(script.c_str(), &st) != 0)
    return fail(script + " is missing: install ingero again, whole");
  char self[4096];
  const ssize_t size = readlink("/proc/self/exe", self, sizeof(self) - 1);
  if (size <= 0) return fail("/proc is needed, and is not there");
  std::vector<std::string> command = {
      "python3", script, "--ingero", std::string(self, static_cast<size_t>(size)),
      "--db", db, "--format", format, "--output", output, "--tables=" + tables};
  if (quiet) command.push_back("--quiet");
  std::vector<char*> argv;
  for (const std::string& w : command) argv.push_back(const_cast<char*>(w.c_str()));
  argv.push_back(nullptr);
  std::fflush(nullptr);
  RestoreFileSizeSignal();
  execvp(argv[0], argv.data());
  return fail(fmt::format("cannot run python3: {}; it is what writes {} files, "
                          "with pyarrow: install both",
                          std::strerror(errno), format));
}

}  // namespace ingero::cli
