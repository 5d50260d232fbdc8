// SPDX-License-Identifier: Apache-2.0
// SQL says what the store says, however much of it a scan leaves out, and can
// do nothing but read.
#include "query/database.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "analysis/report.h"
#include "merge/dump.h"
#include "merge/trace_reader.h"
#include "query/store_tables.h"

namespace ingero::query {
namespace {

class QueryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto reader = merge::OpenTrace(INGERO_KEPT_STORE);
    ASSERT_TRUE(reader.ok()) << reader.status().message();
    reader_ = std::move(*reader);
    auto database = Database::Open(*reader_);
    ASSERT_TRUE(database.ok()) << database.status().message();
    database_ = std::move(*database);
  }
  // Rows, values as text.
  using Answer = std::vector<std::vector<std::string>>;
  Result<Answer> Ask(const std::string& sql) {
    Answer rows;
    Database::Handler handler;
    handler.row = [&](const std::vector<Value>& row) {
      std::vector<std::string> cells;
      for (const Value& v : row) {
        if (const auto* i = std::get_if<int64_t>(&v))
          cells.push_back(std::to_string(*i));
        else if (const auto* d = std::get_if<double>(&v))
          cells.push_back(fmt::format("{}", *d));
        else if (const auto* s = std::get_if<std::string>(&v))
          cells.push_back(*s);
        else
          cells.push_back("NULL");
      }
      rows.push_back(std::move(cells));
      return true;
    };
    Status status = database_->Run(sql, handler);
    if (!status.ok()) return status;
    return rows;
  }
  std::string One(const std::string& sql) {
    auto answer = Ask(sql);
    if (!answer.ok()) return "error: " + answer.status().message();
    return answer->size() == 1 && (*answer)[0].size() == 1 ? (*answer)[0][0]
                                                           : "not one value";
  }
  std::string Error(const std::string& sql) {
    auto answer = Ask(sql);
    return answer.ok() ? "" : answer.status().message();
  }

  std::unique_ptr<merge::TraceReader> reader_;
  std::unique_ptr<Database> database_;
};

TEST_F(QueryTest, EveryTableAndViewAnswersAndSaysWhatItIs) {
  std::set<std::string> names;
  for (const Table& t : database_->tables()) {
    EXPECT_TRUE(names.insert(t.name).second) << t.name;
    EXPECT_NE(std::string(t.about), "") << t.name;
    std::set<std::string> columns;
    for (const ColumnInfo& c : t.columns)
      EXPECT_TRUE(columns.insert(c.name).second) << t.name << "." << c.name;
    // ns in integers and s in reals, and said so by the name.
    for (const ColumnInfo& c : t.columns) {
      if (std::string(c.name).ends_with("_ns")) {
        EXPECT_EQ(c.type, Type::kInteger) << c.name;
      }
    }
    auto rows = Ask(fmt::format("SELECT * FROM {} LIMIT 100", t.name));
    ASSERT_TRUE(rows.ok()) << t.name << ": " << rows.status().message();
    for (const auto& row : *rows) EXPECT_EQ(row.size(), t.columns.size());
  }
  for (const View& v : StoreViews()) {
    EXPECT_TRUE(names.insert(v.name).second) << v.name;
    EXPECT_EQ(Error(fmt::format("SELECT * FROM {} LIMIT 100", v.name)), "")
        << v.name;
  }
}

// The same events as the text twin has, table by table.
TEST_F(QueryTest, HasEveryRowThatDumpHas) {
  std::map<std::string, int64_t> dumped;
  ASSERT_TRUE(merge::Dump(INGERO_KEPT_STORE, merge::DumpFormat::kText,
                          [&](std::string_view line) {
                            ++dumped[std::string(line.substr(0, line.find(' ')))];
                          })
                  .ok());
  const std::map<std::string, std::string> same = {
      {"calls", "calls"},       {"switches", "switches"},
      {"path", "path"},         {"feed", "feed"},
      {"splits", "call_splits"}, {"sched_summary", "sched_seconds"},
      {"op_summary", "operation_seconds"}, {"samples", "system"},
      {"tasks", "tasks"},       {"processes", "processes"},
      {"threads", "threads"},   {"kernel_names", "kernels"},
      {"streams", "streams"}};
  for (const auto& [table, name] : same)
    EXPECT_EQ(One("SELECT count(*) FROM " + name),
              std::to_string(dumped[table]))
        << name;
  EXPECT_GT(dumped["calls"], 20000);
  // Ranges of one loss are folded; the count is what is kept.
  EXPECT_EQ(One("SELECT id || ' ' || sum(count) FROM losses GROUP BY id"),
            "switch-unseen 258");
  EXPECT_GE(dumped["losses"], 1);
  // A text is compared as the number that it is.
  EXPECT_EQ(One("SELECT count(*) FROM calls WHERE pid = '2912'"), "21760");
  EXPECT_EQ(One("SELECT count(*) FROM calls WHERE begin_ns < '0'"), "0");
}

TEST_F(QueryTest, TotalsAreTheSumsOfThePath) {
  const auto by_kind = [&](const std::string& table) {
    return One(
        "SELECT group_concat(line, ';') FROM (SELECT pid || ' ' || "
        "ifnull(thread_tid, '-') || ' ' || reason || ' ' || state || ' ' || "
        "ifnull(culprit_tid, '-') || ' ' || known || ' ' || sum(ns) || ' ' || "
        "sum(stretches) || ' ' || sum(pages) AS line FROM " + table +
        " GROUP BY pid, thread_tid, reason, state, culprit_tid, known "
        "ORDER BY 1)");
  };
  const std::string cells = by_kind("path");
  EXPECT_GT(cells.size(), 1000u);
  EXPECT_EQ(by_kind("path_totals"), cells);
  EXPECT_LT(std::stoll(One("SELECT count(*) FROM path_totals")) * 10,
            std::stoll(One("SELECT count(*) FROM path")));
  EXPECT_EQ(One("SELECT sum(ns) FROM starvation"),
            One("SELECT sum(ns) FROM path"));
}

TEST_F(QueryTest, SumsAreThoseOfTheReport) {
  const analysis::Report report = analysis::BuildReport(*reader_, {});
  ASSERT_FALSE(report.findings.empty());
  EXPECT_EQ(One("SELECT lost_ns FROM findings WHERE rank = 1"),
            std::to_string(report.findings[0].lost.value));
  int64_t known = 0;
  for (const analysis::Feeding& f : report.feeding)
    known += f.idle_at_least.value;
  EXPECT_EQ(One("SELECT sum(ns) FROM feed WHERE state IN "
                "('idle', 'host-copy', 'cold-start')"),
            std::to_string(known));
  EXPECT_EQ(One("SELECT sum(ns) FROM path WHERE known = 1"),
            std::to_string(known));
  for (const analysis::Operation& o : report.operations) {
    const std::string name = report.functions[o.func].name;
    EXPECT_EQ(One(fmt::format("SELECT sum(duration_ns) FROM calls WHERE name = "
                              "'{}' AND first_use = 0 AND first_call = 0",
                              name)),
              One(fmt::format("SELECT total_ns FROM operations WHERE name = "
                              "'{}' AND calls > 0",
                              name)))
        << name;
    if (&o - report.operations.data() == 5) break;
  }
}

// A condition that a scan uses gives what SQLite finds without it: the unary
// plus hides the column from the scan.
TEST_F(QueryTest, ConditionsThatAScanUsesChangeNoAnswer) {
  std::mt19937 random(1);
  for (const Table& t : database_->tables()) {
    if (t.time < 0) continue;
    const char* time = t.columns[static_cast<size_t>(t.time)].name;
    std::vector<std::string> bounds = {
        "0", "-1", "1e30", "-1e30", "9223372036854775807",
        "-9223372036854775808", "NULL", "1.5",
        std::to_string(reader_->span().begin.value),
        std::to_string(reader_->span().end.value)};
    // Also times of rows, exactly.
    auto rows = Ask(fmt::format("SELECT {} FROM {}", time, t.name));
    ASSERT_TRUE(rows.ok());
    for (int i = 0; i < 8 && !rows->empty(); ++i)
      bounds.push_back((*rows)[random() % rows->size()][0]);
    for (const std::string& bound : bounds)
      for (const char* op : {"<", "<=", ">", ">=", "=", "IS"}) {
        const std::string sql = "SELECT count(*) FROM {} WHERE {}{} {} {}";
        EXPECT_EQ(One(fmt::format(fmt::runtime(sql), t.name, "", time, op, bound)),
                  One(fmt::format(fmt::runtime(sql), t.name, "+", time, op, bound)))
            << t.name << " " << op << " " << bound;
      }
    if (t.at >= 0)
      for (const char* bound : {"0", "12.5", "101.912", "-3", "1e12"})
        for (const char* op : {"<", "<=", ">", ">="}) {
          const std::string sql = "SELECT count(*) FROM {} WHERE {}at_s {} {}";
          EXPECT_EQ(One(fmt::format(fmt::runtime(sql), t.name, "", op, bound)),
                    One(fmt::format(fmt::runtime(sql), t.name, "+", op, bound)))
              << t.name << " at_s " << op << " " << bound;
        }
  }
  for (const char* is : {"pid = 2912", "pid = 1", "pid = 2912.0",
                         "name = 'cudaMemcpyAsync'", "name = 'none'", 
                         "name = NULL",
                         "pid = 2912 AND name = 'cuLaunchKernel'"}) {
    const std::string plain = std::string("SELECT count(*) FROM calls WHERE ") + is;
    std::string hidden = plain;
    for (const char* column : {"pid =", "name ="})
      if (const size_t at = hidden.find(column); at != hidden.npos)
        hidden.insert(at, "+");
    EXPECT_EQ(One(plain), One(hidden)) << is;
  }
  // Another collation is SQLite's affair.
  for (const char* collation : {"NOCASE", "RTRIM", "BINARY"})
    EXPECT_EQ(One(fmt::format("SELECT count(*) FROM calls WHERE name = "
                              "'CUINIT  ' COLLATE {}",
                              collation)),
              One(fmt::format("SELECT count(*) FROM calls WHERE +name = "
                              "'CUINIT  ' COLLATE {}",
                              collation)));
  EXPECT_EQ(One("SELECT count(*) > 0 FROM calls WHERE name = 'CUINIT' COLLATE "
                "NOCASE"),
            "1");
  EXPECT_EQ(One("SELECT count(*) FROM calls WHERE name = 'cudaMemcpyAsync' AND "
                "at_s > 101.912 AND at_s < 122.367"),
            "321");
}

TEST_F(QueryTest, CanOnlyRead) {
  for (const char* sql :
       {"INSERT INTO calls VALUES (1)", "DELETE FROM calls", "DROP VIEW gpu",
        "UPDATE calls SET pid = 1", "CREATE TABLE t(x)",
        "CREATE TEMP TABLE t AS SELECT 1", "ATTACH '/tmp/x' AS x",
        "PRAGMA journal_mode", "PRAGMA writable_schema = 1", "VACUUM",
        "VACUUM INTO '/tmp/ingero-query-test'", "BEGIN", "REINDEX",
        "SELECT load_extension('x')", "ANALYZE",
        "CREATE VIRTUAL TABLE t USING calls"})
    EXPECT_NE(Error(sql), "") << sql;
  EXPECT_NE(Error("DROP VIEW gpu").find("only SELECT"), std::string::npos);
  EXPECT_NE(Error("SELECT 1; SELECT 2"), "");
  EXPECT_NE(Error(""), "");
  EXPECT_NE(Error("-- nothing"), "");
  EXPECT_NE(Error("SELECT 'open"), "");
  EXPECT_NE(Error("SELECT no_such FROM calls"), "");
  EXPECT_EQ(Error("SELECT 1; -- done\n ;"), "");
  // And goes on after all that.
  EXPECT_EQ(One("SELECT count(*) FROM calls"), "21760");
}

TEST_F(QueryTest, EachColumnHasANameOfItsOwn) {
  std::vector<std::string> names;
  Database::Handler handler;
  handler.columns = [&](const auto& all) { names = all; };
  ASSERT_TRUE(database_
                  ->Run("SELECT a.pid, b.pid, 1 AS \"pid:1\", 2 AS pid FROM "
                        "processes AS a, processes AS b LIMIT 1",
                        handler)
                  .ok());
  EXPECT_EQ(names, (std::vector<std::string>{"pid", "pid:1", "pid:1:1",
                                             "pid:2"}));
}

TEST_F(QueryTest, ErrorsAreShort) {
  EXPECT_LT(Error("SELECT " + std::string(100000, 'x') + " FROM calls").size(),
            400u);
}

TEST_F(QueryTest, MemoryIsBounded) {
  EXPECT_NE(Error("SELECT zeroblob(100000000)"), "");
  EXPECT_NE(Error("WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 "
                  "FROM c WHERE x < 3000000) SELECT group_concat(x || 'abcdefghijklmnop') FROM c"),
            "");
  EXPECT_EQ(One("SELECT count(*) FROM calls"), "21760");
}

TEST_F(QueryTest, EndsWhenTold) {
  const std::string endless =
      "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) "
      "SELECT count(*) FROM c";
  Database::Handler handler;
  handler.progress = [](uint64_t) { return false; };
  EXPECT_EQ(database_->Run(endless, handler).message(), "interrupted");
  handler.progress = [&](uint64_t) {
    database_->Interrupt();
    return true;
  };
  EXPECT_EQ(database_->Run(endless, handler).message(), "interrupted");
  // The next one is not.
  EXPECT_EQ(One("SELECT 1"), "1");
  // Rows are taken until it is enough.
  int rows = 0;
  handler.progress = nullptr;
  handler.row = [&](const std::vector<Value>&) { return ++rows < 3; };
  EXPECT_TRUE(database_->Run("SELECT * FROM calls", handler).ok());
  EXPECT_EQ(rows, 3);
}

}  // namespace
}  // namespace ingero::query
