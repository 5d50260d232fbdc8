// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/text.h"
#include "base/trace_dir.h"
#include "cli/columns.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/render/layout.h"
#include "cli/render/words.h"
#include "merge/store_trace.h"
#include "merge/trace_reader.h"
#include "query/database.h"
#include "query/store_tables.h"

namespace ingero::cli {
namespace {

using query::Value;

constexpr const char* kHelp =
    "Ask a store in SQL (SQLite's; SELECT only). Nothing is copied: tables are\n"
    "read from the store's blocks. Conditions on the time, the pid and the\n"
    "name of a call are used to read less.\n";

constexpr const char* kExamples =
    "Examples:\n"
    "  ingero query --schema              the tables and views\n"
    "  ingero query --schema calls        columns, with units\n"
    "  ingero query \"SELECT name, calls, p50_ns, p99_ns FROM operations\n"
    "                ORDER BY total_ns DESC LIMIT 10\"\n"
    "  ingero query \"SELECT * FROM cpu_holders\"\n"
    "  ingero query --format csv \"SELECT at_s, duration_ns FROM calls\n"
    "                WHERE name = 'cudaMemcpyAsync' AND at_s > 12.5\"\n"
    "  ingero query - < question.sql      from a file";

constexpr size_t kTableRows = 1000;  // shown of a table for people
constexpr int kCellColumns = 64;

std::atomic<query::Database*> g_running{nullptr};
void OnInterrupt(int) {
  if (query::Database* database = g_running) database->Interrupt();
}

// ---- rows as text -----------------------------------------------------------

std::string ForPeople(const Value& value) {
  if (const auto* number = std::get_if<int64_t>(&value))
    return std::to_string(*number);
  if (const auto* real = std::get_if<double>(&value))
    return fmt::format("{:.6g}", *real);
  if (const auto* text = std::get_if<std::string>(&value))
    return Ellipsize(SanitizeForTerminal(*text), kCellColumns);
  return "-";
}

nlohmann::ordered_json Json(const Value& value) {
  if (const auto* number = std::get_if<int64_t>(&value)) return *number;
  if (const auto* real = std::get_if<double>(&value)) return *real;
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  return nullptr;
}

class Printer {
 public:
  Printer(const std::string& format, const Io& io) : format_(format), io_(io) {}

  void Columns(const std::vector<std::string>& names) {
    names_ = names;
    if (format_ == "csv")
      Write(io_.out, CsvLine({names.begin(), names.end()}));
  }
  bool Row(const std::vector<Value>& row) {
    ++rows_;
    if (format_ == "csv") {
      Write(io_.out, CsvLine(row));
    } else if (format_ == "jsonl") {
      nlohmann::ordered_json object;
      for (size_t i = 0; i < row.size(); ++i) object[names_[i]] = Json(row[i]);
      using Json = nlohmann::ordered_json;
      Write(io_.out,
            object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
    } else if (rows_ <= kTableRows) {
      std::vector<std::string> cells;
      for (const Value& value : row) cells.push_back(ForPeople(value));
      numeric_.resize(row.size(), true);
      for (size_t i = 0; i < row.size(); ++i)
        if (std::holds_alternative<std::string>(row[i])) numeric_[i] = false;
      table_.push_back(std::move(cells));
    } else {
      return false;
    }
    return std::ferror(io_.out) == 0;
  }
  void Finish() {
    if (format_ != "table") return;
    std::vector<int> width;
    for (const std::string& name : names_)
      width.push_back(DisplayWidth(SanitizeForTerminal(name)));
    for (const auto& row : table_)
      for (size_t i = 0; i < row.size(); ++i)
        width[i] = std::max(width[i], DisplayWidth(row[i]));
    numeric_.resize(names_.size(), false);
    const auto line = [&](const std::vector<std::string>& cells) {
      std::string text;
      for (size_t i = 0; i < cells.size(); ++i) {
        const std::string pad(
            static_cast<size_t>(width[i] - DisplayWidth(cells[i])), ' ');
        text += (i > 0 ? "  " : "") +
                (numeric_[i] ? pad + cells[i] : cells[i] + pad);
      }
      text.erase(text.find_last_not_of(' ') + 1);
      Write(io_.out, text + "\n");
    };
    std::vector<std::string> header;
    for (const std::string& name : names_)
      header.push_back(SanitizeForTerminal(name));
    line(header);
    for (const auto& row : table_) line(row);
    if (rows_ > kTableRows)
      PrintError(io_, "query",
                 fmt::format("only the first {} rows are shown; add LIMIT, or "
                             "--format csv or jsonl for all",
                             FormatCount(kTableRows)));
  }

 private:
  std::string format_;
  const Io& io_;
  std::vector<std::string> names_;
  std::vector<std::vector<std::string>> table_;
  std::vector<bool> numeric_;
  size_t rows_ = 0;
};

// ---- --schema ---------------------------------------------------------------

const char* TypeName(query::Type type) {
  switch (type) {
    case query::Type::kText: return "text";
    case query::Type::kInteger: return "integer";
    case query::Type::kReal: return "real";
  }
  return "";
}

int PrintSchema(const std::vector<query::Table>& tables,
                const std::string& only, bool json, const Io& io) {
  std::string lines;  // json: one object a table or view
  Page page(io.columns, io.out_is_terminal && !io.no_color);
  std::vector<std::string> names;
  for (const query::Table& t : tables) {
    names.push_back(t.name);
    if (!only.empty() && only != t.name) continue;
    page.Blank();
    page.Labeled(Toned(Tone::kBold, t.name), t.about, 0, 20);
    nlohmann::ordered_json object = {
        {"name", t.name}, {"kind", "table"}, {"about", t.about}};
    for (const query::ColumnInfo& c : t.columns) {
      page.Labeled(fmt::format("{:<18} {:<8}", c.name, TypeName(c.type)),
                   c.about, 2, 30);
      object["columns"].push_back(
          {{"name", c.name}, {"type", TypeName(c.type)}, {"about", c.about}});
    }
    lines += object.dump() + "\n";
  }
  for (const query::View& v : query::StoreViews()) {
    names.push_back(v.name);
    if (!only.empty() && only != v.name) continue;
    page.Blank();
    page.Labeled(Toned(Tone::kBold, v.name), v.about, 0, 20);
    page.Labeled("view", v.sql, 2, 18);
    lines += nlohmann::ordered_json{{"name", v.name},
                                    {"kind", "view"},
                                    {"about", v.about},
                                    {"sql", v.sql}}
                 .dump() +
             "\n";
  }
  if (page.text().empty())
    return UsageError(
        io, "query",
        fmt::format("--schema: no table or view '{}'; there are {}", only,
                    fmt::join(names, ", ")));
  Write(io.out, json ? lines : page.text());
  return FinishOutput(io, "query") ? kDone : kFailed;
}

std::string ReadAll(std::FILE* file) {
  std::string text;
  char chunk[4096];
  size_t n;
  while ((n = std::fread(chunk, 1, sizeof(chunk), file)) > 0)
    text.append(chunk, n);
  return text;
}

}  // namespace

int RunQuery(const Args& args, const Io& io) {
  std::string db, format = "table", sql;
  CLI::App app(kHelp, "ingero query");
  app.footer(kExamples);
  app.add_option("--db", db, "Store to read. Default: the newest")
      ->type_name("PATH");
  app.add_option("--format", format,
                 "table (for people), csv, jsonl (one JSON object\n"
                 "a line), or columns (binary; docs/formats.md)")
      ->type_name("FORMAT");
  bool show = false;
  app.add_flag("--schema", show,
               "Print the tables and views; with a name, that\n"
               "one alone");
  app.add_option("sql", sql, "One SELECT; '-': read it from stdin")
      ->type_name("SQL");
  if (auto status = Parse(app, args, io)) return *status;

  if (format != "table" && format != "csv" && format != "jsonl" &&
      format != "columns")
    return UsageError(io, "query",
                      fmt::format("--format: '{}' is not one of table, csv, "
                                  "jsonl and columns",
                                  format));
  if (!show && sql.empty())
    return UsageError(io, "query",
                      "ask something, for example \"SELECT * FROM "
                      "operations\"; --schema lists the tables");
  if (sql == "-") sql = ReadAll(stdin);

  const auto fail = [&](const Status& status) {
    PrintError(io, "query", status.message());
    return kFailed;
  };
  if (db.empty()) {
    auto newest = merge::FindNewestStore(DefaultTraceDirs());
    if (!newest.ok()) return fail(newest.status());
    db = newest->path;
    if (!newest->note.empty())
      PrintError(io, "query", "note: " + newest->note);
  }
  auto reader = merge::OpenTrace(db);
  if (!reader.ok()) return fail(reader.status());
  auto database = query::Database::Open(**reader);
  if (!database.ok()) return fail(database.status());
  if (show)
    return PrintSchema((*database)->tables(), sql, format == "jsonl", io);

  if (const Status wrong = (*database)->Check(sql); !wrong.ok()) {
    std::string what = wrong.message();
    if (what.starts_with("no such "))
      what += "; 'ingero query --schema' lists tables and columns";
    else if (what.ends_with("syntax error") ||
             what.ends_with("incomplete input"))
      what += "; the question is one SELECT, 'ingero query --help' has "
              "examples";
    return UsageError(io, "query", what);
  }
  Printer printer(format, io);
  query::Database::Handler handler;
  ColumnWriter columns(io.out);
  Status unfit;
  if (format == "columns") {
    handler.typed_columns = [&](const auto& names, const auto& types) {
      columns.Begin(names, types);
    };
    handler.row = [&](const auto& row) {
      unfit = columns.Add(row);
      return unfit.ok() && std::ferror(io.out) == 0;
    };
  } else {
    handler.columns = [&](const auto& names) { printer.Columns(names); };
    handler.row = [&](const auto& row) { return printer.Row(row); };
  }
  auto said = std::chrono::steady_clock::now();
  bool saying = false;
  handler.progress = [&](uint64_t scanned) {
    const auto now = std::chrono::steady_clock::now();
    if (!io.err_is_terminal || now - said < std::chrono::seconds(1))
      return true;
    said = now;
    saying = true;
    Write(io.err, fmt::format("\r\033[K{} rows read, Ctrl-C ends it",
                              FormatCount(scanned)));
    return true;
  };
  g_running = database->get();
  struct sigaction action{}, before{};
  action.sa_handler = OnInterrupt;
  sigaction(SIGINT, &action, &before);
  Status status = (*database)->Run(sql, handler);
  if (status.ok()) status = unfit;
  sigaction(SIGINT, &before, nullptr);
  g_running = nullptr;
  if (saying) Write(io.err, "\r\033[K");
  if (!status.ok()) {
    FinishOutput(io, "query");
    fail(status);
    return status.message() == "interrupted" ? 128 + SIGINT : kFailed;
  }
  if (format != "columns") printer.Finish();
  if (Status read = (*reader)->AllRead(); !read.ok()) {
    FinishOutput(io, "query");
    return fail(read);
  }
  // Its end is what says that it is whole.
  if (format == "columns") columns.Finish();
  return FinishOutput(io, "query") ? kDone : kFailed;
}

}  // namespace ingero::cli
