// SPDX-License-Identifier: Apache-2.0
// SQL over a store: SQLite with virtual tables straight over its blocks, so
// nothing is copied. Read only: only SELECT is let through, and no statement
// can reach a file.
//
// Threads:   one, but Interrupt() from any thread or a signal handler.
// Memory:    SQLite's is capped (kHeapBytes, for the process); what does not
//            fit is an error. Large sorts go to temporary files.
#ifndef INGERO_QUERY_DATABASE_H_
#define INGERO_QUERY_DATABASE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "query/table.h"

struct sqlite3;
struct sqlite3_stmt;

namespace ingero::merge {
class TraceReader;
}

namespace ingero::query {

inline constexpr int64_t kHeapBytes = 256 << 20;

class Database {
 public:
  // `reader` must outlive it.
  static Result<std::unique_ptr<Database>> Open(
      const merge::TraceReader& reader);
  ~Database();
  Database(const Database&) = delete;

  const std::vector<Table>& tables() const { return tables_; }

  struct Handler {
    // Before the first row, also where there is none.
    std::function<void(const std::vector<std::string>& columns)> columns;
    // The same, with the types that tables declare; nullopt: an expression's.
    std::function<void(const std::vector<std::string>& columns,
                       const std::vector<std::optional<Type>>& types)>
        typed_columns = {};
    // Views are valid during the call. False: enough.
    std::function<bool(const std::vector<Value>& row)> row;
    // Now and then, with the rows that the scans have gone through. False:
    // give up, as Interrupt().
    std::function<bool(uint64_t scanned)> progress;
  };
  // Whether it is one statement that can be asked, as Run() has it; what is
  // wrong with it is so of any store.
  Status Check(std::string_view sql);
  // One statement. Errors: what SQLite says of it; "interrupted".
  Status Run(std::string_view sql, const Handler& handler);
  void Interrupt() { interrupted_ = true; }

  // For the virtual tables.
  void CountScanned() { ++scanned_; }
  // Tells of progress; true: the question was given up.
  bool GivesUp() { return given_up_ = given_up_ || OnProgress(this) != 0; }
  bool gave_up() const { return given_up_; }

 private:
  Database() = default;
  static int OnProgress(void* self);
  // *statement: to be finalized, where this is ok.
  Status Prepare(std::string_view sql, sqlite3_stmt** statement);
  Status LastError() const;

  sqlite3* db_ = nullptr;
  std::vector<Table> tables_;
  const Handler* running_ = nullptr;
  uint64_t scanned_ = 0;
  bool given_up_ = false;
  std::atomic<bool> interrupted_{false};
};

}  // namespace ingero::query

#endif  // INGERO_QUERY_DATABASE_H_
