// SPDX-License-Identifier: Apache-2.0
#include "query/database.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "base/text.h"
#include "merge/trace_reader.h"
#include "query/store_tables.h"

namespace ingero::query {

// ---- a table as SQLite sees it ----------------------------------------------
// https://www.sqlite.org/vtab.html; "eponymous": there without CREATE.

namespace {

struct Vtab : sqlite3_vtab {
  Database* database;
  const Table* table;
  Interval span;
};
struct Cursor : sqlite3_vtab_cursor {
  std::unique_ptr<RowSource> rows;
  bool end = true;
  int64_t row_id = 0;
};

// What xBestIndex hands to xFilter: a letter for each argument, upper case
// where the bound itself belongs to the window.
enum Use : char {
  kAtTime = 'e',
  kFromTime = 'f', kFromTimeInclusive = 'F',
  kToTime = 't', kToTimeInclusive = 'T',
  kFromAt = 'a', kToAt = 'b',
  kPid = 'p', kName = 'n',
};

const char* TypeName(Type type) {
  switch (type) {
    case Type::kInteger: return "INTEGER";
    case Type::kReal: return "REAL";
    case Type::kText: return "TEXT";
  }
  return "";
}

int Connect(sqlite3* db, void* aux, int, const char* const*,
            sqlite3_vtab** out, char**) {
  const auto* module = static_cast<Vtab*>(aux);
  std::string sql = "CREATE TABLE x(";
  for (const ColumnInfo& c : module->table->columns)
    sql += fmt::format("{}\"{}\" {}", sql.back() == '(' ? "" : ", ", c.name,
                       TypeName(c.type));
  const int status = sqlite3_declare_vtab(db, (sql + ")").c_str());
  if (status != SQLITE_OK) return status;
  *out = new Vtab(*module);
  return SQLITE_OK;
}

int Disconnect(sqlite3_vtab* vtab) {
  delete static_cast<Vtab*>(vtab);
  return SQLITE_OK;
}

int BestIndex(sqlite3_vtab* base, sqlite3_index_info* info) {
  const Table& table = *static_cast<Vtab*>(base)->table;
  std::string uses;
  double rows = std::max(table.rows, 1.0);
  for (int i = 0; i < info->nConstraint; ++i) {
    const auto& c = info->aConstraint[i];
    if (!c.usable || c.iColumn < 0) continue;
    std::string use;
    if (c.iColumn == table.time || c.iColumn == table.at) {
      const bool at = c.iColumn == table.at;
      switch (c.op) {
        case SQLITE_INDEX_CONSTRAINT_EQ:
          if (!at) use = kAtTime;
          break;
        case SQLITE_INDEX_CONSTRAINT_GT:
          use = at ? kFromAt : kFromTime;
          break;
        case SQLITE_INDEX_CONSTRAINT_GE:
          use = at ? kFromAt : kFromTimeInclusive;
          break;
        case SQLITE_INDEX_CONSTRAINT_LT:
          use = at ? kToAt : kToTime;
          break;
        case SQLITE_INDEX_CONSTRAINT_LE:
          use = at ? kToAt : kToTimeInclusive;
          break;
      }
    } else if (c.op == SQLITE_INDEX_CONSTRAINT_EQ && c.iColumn == table.pid) {
      use = kPid;
    } else if (c.op == SQLITE_INDEX_CONSTRAINT_EQ &&
               c.iColumn == table.name_column &&
               sqlite3_stricmp(sqlite3_vtab_collation(info, i), "BINARY") ==
                   0) {
      use = kName;
    }
    if (use.empty()) continue;
    uses += use;
    info->aConstraintUsage[i].argvIndex = static_cast<int>(uses.size());
    rows /= 4;
  }
  info->idxStr = sqlite3_mprintf("%s", uses.c_str());
  info->needToFreeIdxStr = 1;
  info->estimatedRows = static_cast<sqlite3_int64>(std::max(rows, 1.0));
  info->estimatedCost = std::max(rows, 1.0);
  return SQLITE_OK;
}

int Open(sqlite3_vtab*, sqlite3_vtab_cursor** out) {
  *out = new Cursor{};
  return SQLITE_OK;
}
int Close(sqlite3_vtab_cursor* cursor) {
  delete static_cast<Cursor*>(cursor);
  return SQLITE_OK;
}

int Next(sqlite3_vtab_cursor* base) {
  auto* cursor = static_cast<Cursor*>(base);
  Database* database = static_cast<Vtab*>(base->pVtab)->database;
  database->CountScanned();
  cursor->end = !cursor->rows->Next();
  ++cursor->row_id;
  // A scan that gave up is no end of the rows.
  return database->gave_up() ? SQLITE_INTERRUPT : SQLITE_OK;
}

// A number that bounds a column of integers: the next whole one upwards.
std::optional<int64_t> Ceil(double value) {
  if (std::isnan(value)) return std::nullopt;
  if (value >= 9.2e18) return std::numeric_limits<int64_t>::max();
  if (value <= -9.2e18) return std::numeric_limits<int64_t>::min();
  return static_cast<int64_t>(std::ceil(value));
}

int FilterRows(sqlite3_vtab_cursor* base, int, const char* uses, int argc,
               sqlite3_value** argv) {
  auto* cursor = static_cast<Cursor*>(base);
  auto* vtab = static_cast<Vtab*>(base->pVtab);
  // One more than the span: its end is the last event's time.
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  Filter filter{Interval{Ns(kMin), Ns(kMax)}, std::nullopt, std::nullopt,
                [d = vtab->database] { return d->GivesUp(); }};
  int64_t& begin = filter.window.begin.value;
  int64_t& end = filter.window.end.value;
  const int64_t origin = vtab->span.begin.value;
  for (int i = 0; i < argc; ++i) {
    // Only of plain values; what compares otherwise (texts, NULL) is left to
    // SQLite, which checks every row again.
    const int type = sqlite3_value_numeric_type(argv[i]);
    const bool number = type == SQLITE_INTEGER || type == SQLITE_FLOAT;
    const double real = sqlite3_value_double(argv[i]);
    std::optional<int64_t> whole;
    if (type == SQLITE_INTEGER) whole = sqlite3_value_int64(argv[i]);
    if (type == SQLITE_FLOAT) whole = Ceil(real);
    switch (uses[i]) {
      case kAtTime:
        if (type == SQLITE_INTEGER && *whole < kMax) {
          begin = std::max(begin, *whole);
          end = std::min(end, *whole + 1);
        }
        break;
      case kFromTime:
      case kFromTimeInclusive:
        if (whole) begin = std::max(begin, *whole);
        break;
      case kToTime:
        if (whole) end = std::min(end, *whole);
        break;
      case kToTimeInclusive:
        if (whole && *whole < kMax) end = std::min(end, *whole + 1);
        break;
      case kFromAt:
      case kToAt:
        // at_s has the precision of a double: a microsecond of room.
        if (number && std::abs(real) < 9e9) {
          const auto t = origin + static_cast<int64_t>(real * 1e9);
          if (uses[i] == kFromAt)
            begin = std::max(begin, t - 1000);
          else
            end = std::min(end, t + 1000);
        }
        break;
      case kPid:
        if (type == SQLITE_INTEGER) filter.pid = sqlite3_value_int64(argv[i]);
        break;
      case kName:
        if (sqlite3_value_type(argv[i]) == SQLITE_TEXT)
          filter.name = std::string(
              reinterpret_cast<const char*>(sqlite3_value_text(argv[i])),
              static_cast<size_t>(sqlite3_value_bytes(argv[i])));
        break;
    }
  }
  if (end < begin) end = begin;
  cursor->rows = vtab->table->scan(filter);
  cursor->row_id = 0;
  return Next(base);
}

int Eof(sqlite3_vtab_cursor* cursor) {
  return static_cast<Cursor*>(cursor)->end;
}

int GetColumn(sqlite3_vtab_cursor* base, sqlite3_context* context,
              int column) {
  const Value value =
      static_cast<Cursor*>(base)->rows->Get(static_cast<size_t>(column));
  if (const auto* number = std::get_if<int64_t>(&value))
    sqlite3_result_int64(context, *number);
  else if (const auto* real = std::get_if<double>(&value))
    sqlite3_result_double(context, *real);
  else if (const auto* text = std::get_if<std::string>(&value))
    sqlite3_result_text64(context, text->data(), text->size(),
                          SQLITE_TRANSIENT, SQLITE_UTF8);
  else
    sqlite3_result_null(context);
  return SQLITE_OK;
}

int RowId(sqlite3_vtab_cursor* cursor, sqlite3_int64* id) {
  *id = static_cast<Cursor*>(cursor)->row_id;
  return SQLITE_OK;
}

// No xCreate: eponymous only.
const sqlite3_module kModule = [] {
  sqlite3_module m{};
  m.iVersion = 0;
  m.xConnect = Connect;
  m.xDisconnect = Disconnect;
  m.xBestIndex = BestIndex;
  m.xOpen = Open;
  m.xClose = Close;
  m.xFilter = FilterRows;
  m.xNext = Next;
  m.xEof = Eof;
  m.xColumn = GetColumn;
  m.xRowid = RowId;
  return m;
}();

// Nothing but reading: no file, no setting, no function that loads code.
int Authorize(void*, int action, const char*, const char* name, const char*,
              const char*) {
  switch (action) {
    case SQLITE_SELECT:
    case SQLITE_READ:
    case SQLITE_RECURSIVE:
      return SQLITE_OK;
    case SQLITE_FUNCTION:
      return name != nullptr && sqlite3_stricmp(name, "load_extension") == 0
                 ? SQLITE_DENY
                 : SQLITE_OK;
    default:
      return SQLITE_DENY;
  }
}

Value ColumnOf(sqlite3_stmt* statement, int column) {
  switch (sqlite3_column_type(statement, column)) {
    case SQLITE_INTEGER:
      return static_cast<int64_t>(sqlite3_column_int64(statement, column));
    case SQLITE_FLOAT:
      return sqlite3_column_double(statement, column);
    case SQLITE_NULL:
      return std::monostate();
    default: {
      const void* bytes = sqlite3_column_blob(statement, column);
      const auto size =
          static_cast<size_t>(sqlite3_column_bytes(statement, column));
      return bytes == nullptr
                 ? std::string()
                 : std::string(static_cast<const char*>(bytes), size);
    }
  }
}

constexpr int kStepsBetweenProgress = 20000;
constexpr int kMaxTextBytes = 16 << 20;

}  // namespace

Result<std::unique_ptr<Database>> Database::Open(
    const merge::TraceReader& reader) {
  std::unique_ptr<Database> database(new Database);
  Database& d = *database;
  sqlite3_hard_heap_limit64(kHeapBytes);
  if (sqlite3_open_v2(":memory:", &d.db_, SQLITE_OPEN_READWRITE, nullptr) !=
      SQLITE_OK)
    return Status::Error(std::string("SQLite: ") + sqlite3_errmsg(d.db_));
  sqlite3_db_config(d.db_, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_limit(d.db_, SQLITE_LIMIT_LENGTH, kMaxTextBytes);
  sqlite3_limit(d.db_, SQLITE_LIMIT_ATTACHED, 0);
  d.tables_ = StoreTables(reader);
  for (const Table& table : d.tables_) {
    auto* vtab = new Vtab{};
    vtab->database = &d;
    vtab->table = &table;
    vtab->span = reader.span();
    if (sqlite3_create_module_v2(d.db_, table.name, &kModule, vtab,
                                 [](void* p) {
                                   delete static_cast<Vtab*>(p);
                                 }) != SQLITE_OK)
      return Status::Error(std::string("SQLite: ") + sqlite3_errmsg(d.db_));
    // Connects it, which is a CREATE TABLE to the authorizer.
    const std::string sql = fmt::format("SELECT 1 FROM \"{}\"", table.name);
    sqlite3_stmt* statement = nullptr;
    if (sqlite3_prepare_v2(d.db_, sql.c_str(), -1, &statement, nullptr) !=
        SQLITE_OK)
      return Status::Error(std::string("SQLite: ") + sqlite3_errmsg(d.db_));
    sqlite3_finalize(statement);
  }
  for (const View& view : StoreViews()) {
    const std::string sql =
        fmt::format("CREATE VIEW \"{}\" AS {}", view.name, view.sql);
    if (sqlite3_exec(d.db_, sql.c_str(), nullptr, nullptr, nullptr) !=
        SQLITE_OK)
      return Status::Error(fmt::format("SQLite: view {}: {}", view.name,
                                       sqlite3_errmsg(d.db_)));
  }
  sqlite3_set_authorizer(d.db_, Authorize, nullptr);
  sqlite3_progress_handler(d.db_, kStepsBetweenProgress, OnProgress, &d);
  return database;
}

Database::~Database() { sqlite3_close_v2(db_); }

int Database::OnProgress(void* self) {
  auto* d = static_cast<Database*>(self);
  if (d->interrupted_) return 1;
  return d->running_ != nullptr && d->running_->progress &&
         !d->running_->progress(d->scanned_);
}

Status Database::LastError() const {
  // It repeats what it did not understand, whatever its length.
  const std::string text = SanitizeForTerminal(sqlite3_errmsg(db_), 300);
  switch (sqlite3_errcode(db_)) {
    case SQLITE_AUTH:
      return Status::Error("only SELECT can be asked: a store is never changed (" +
                           text + ")");
    case SQLITE_NOMEM:
      return Status::Error(fmt::format(
          "the answer needs more than {} MiB of memory; ask for less, or group",
          kHeapBytes >> 20));
    default:
      return Status::Error(text);
  }
}

Status Database::Prepare(std::string_view sql, sqlite3_stmt** statement) {
  *statement = nullptr;
  const char* rest = nullptr;
  if (sqlite3_prepare_v2(db_, sql.data(), static_cast<int>(sql.size()),
                         statement, &rest) != SQLITE_OK)
    return LastError();
  if (*statement == nullptr)
    return Status::Error("no statement; ask for example "
                         "\"SELECT * FROM operations\"");
  // What follows may be blanks, semicolons or a comment, not a statement.
  sqlite3_stmt* second = nullptr;
  Status status;
  if (sqlite3_prepare_v2(db_, rest, static_cast<int>(sql.end() - rest),
                         &second, nullptr) != SQLITE_OK)
    status = LastError();
  else if (second != nullptr)
    status = Status::Error("more than one statement; ask one at a time");
  else if (sqlite3_column_count(*statement) == 0)
    status = Status::Error("only SELECT can be asked: this answers nothing");
  sqlite3_finalize(second);
  if (!status.ok()) sqlite3_finalize(*statement);
  return status;
}

Status Database::Check(std::string_view sql) {
  sqlite3_stmt* statement = nullptr;
  INGERO_RETURN_IF_ERROR(Prepare(sql, &statement));
  sqlite3_finalize(statement);
  return {};
}

Status Database::Run(std::string_view sql, const Handler& handler) {
  // What was said of an earlier one is over when this returns.
  struct Running {
    Database* d;
    ~Running() {
      d->running_ = nullptr;
      d->interrupted_ = false;
    }
  } running{this};
  running_ = &handler;
  scanned_ = 0;
  given_up_ = false;
  sqlite3_stmt* statement = nullptr;
  INGERO_RETURN_IF_ERROR(Prepare(sql, &statement));
  const auto error = [&] {
    Status status = LastError();
    sqlite3_finalize(statement);
    return status;
  };
  const int columns = sqlite3_column_count(statement);
  std::vector<std::string> names;
  for (int i = 0; i < columns; ++i) {
    // Objects have one value by a name: a second "pid" is "pid:1".
    std::string name = sqlite3_column_name(statement, i);
    for (int n = 1; std::find(names.begin(), names.end(), name) != names.end();
         ++n)
      name = fmt::format("{}:{}", sqlite3_column_name(statement, i), n);
    names.push_back(std::move(name));
  }
  if (handler.columns) handler.columns(names);
  if (handler.typed_columns) {
    std::vector<std::optional<Type>> types;
    for (int i = 0; i < columns; ++i) {
      const char* declared = sqlite3_column_decltype(statement, i);
      types.emplace_back();
      for (const Type type : {Type::kInteger, Type::kReal, Type::kText})
        if (declared != nullptr && std::string_view(declared) == TypeName(type))
          types.back() = type;
    }
    handler.typed_columns(names, types);
  }
  std::vector<Value> row(static_cast<size_t>(columns));
  int status;
  while ((status = sqlite3_step(statement)) == SQLITE_ROW) {
    for (int i = 0; i < columns; ++i)
      row[static_cast<size_t>(i)] = ColumnOf(statement, i);
    if (handler.row && !handler.row(row)) {
      status = SQLITE_DONE;
      break;
    }
  }
  if (status != SQLITE_DONE) return error();
  sqlite3_finalize(statement);
  return {};
}

}  // namespace ingero::query
