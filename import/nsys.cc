// SPDX-License-Identifier: Apache-2.0
// SQLite exports of Nsight Systems (nsys export --type sqlite), by NVIDIA's
// published schema of that format: "SQLite Schema Reference" in the Nsight
// Systems user guide. Times are ns since the session began.
#include <sqlite3.h>

#include <cstring>
#include <memory>

#include "import/import.h"

namespace ingero::import {
namespace {

// Parts of globalTid and globalPid.
constexpr int kPidShift = 24;
constexpr int64_t kIdMask = 0xffffff;
// NVTX_EVENTS.eventType.
constexpr int64_t kNvtxPushPop = 59, kNvtxStartEnd = 60;
// CUPTI_ACTIVITY_MEMORY_KIND_*.
constexpr int64_t kPageable = 1, kPinned = 2;

struct Close {
  void operator()(sqlite3* db) const { sqlite3_close(db); }
  void operator()(sqlite3_stmt* s) const { sqlite3_finalize(s); }
};

class Export {
 public:
  static Result<Export> Open(const std::string& path) {
    sqlite3* db = nullptr;
    const int code =
        sqlite3_open_v2(path.c_str(), &db, SQLITE_OPEN_READONLY, nullptr);
    Export e(path, db);
    if (code != SQLITE_OK) return e.Failed(db ? sqlite3_errmsg(db) : "memory");
    sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
    sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
    return e;
  }

  Status Failed(const std::string& why) const {
    return Status::Error(path_ + ": " + why);
  }

  Result<bool> Has(const std::string& table) {
    bool found = false;
    INGERO_RETURN_IF_ERROR(Each(
        "SELECT name FROM sqlite_master WHERE type = 'table'",
        [&](sqlite3_stmt* s) { found |= Text(s, 0) == table; }));
    return found;
  }

  // Of a table that not every export has.
  template <typename Visit>
  Status EachOf(const std::string& table, const std::string& columns,
                Visit visit, const std::string& where = "1") {
    INGERO_ASSIGN_OR_RETURN(const bool have, Has(table));
    if (!have) return {};
    return Each("SELECT " + columns + " FROM " + table + " WHERE " + where,
                visit);
  }

  template <typename Visit>
  Status Each(const std::string& sql, Visit visit) {
    sqlite3_stmt* raw = nullptr;
    if (sqlite3_prepare_v2(db_.get(), sql.c_str(), -1, &raw, nullptr) !=
        SQLITE_OK)
      return Failed(std::string(sqlite3_errmsg(db_.get())) +
                    "; is it an export of Nsight Systems (nsys export --type "
                    "sqlite)?");
    const std::unique_ptr<sqlite3_stmt, Close> statement(raw);
    int code;
    while ((code = sqlite3_step(raw)) == SQLITE_ROW) visit(raw);
    if (code != SQLITE_DONE) return Failed(sqlite3_errmsg(db_.get()));
    return {};
  }

  static std::string_view Text(sqlite3_stmt* s, int column) {
    const auto* text =
        reinterpret_cast<const char*>(sqlite3_column_text(s, column));
    return text == nullptr ? std::string_view()
                           : std::string_view(text, static_cast<size_t>(
                                                        sqlite3_column_bytes(
                                                            s, column)));
  }

 private:
  Export(std::string path, sqlite3* db) : path_(std::move(path)), db_(db) {}

  std::string path_;
  std::unique_ptr<sqlite3, Close> db_;
};

uint32_t PidOf(int64_t global) {
  return static_cast<uint32_t>(global >> kPidShift & kIdMask);
}
uint32_t TidOf(int64_t global) {
  return static_cast<uint32_t>(global & kIdMask);
}
uint64_t Count(int64_t v) { return v > 0 ? static_cast<uint64_t>(v) : 0; }

// CUPTI_ACTIVITY_MEMCPY_KIND_*; arrays lie on the device.
ingero_copy_direction DirectionOf(int64_t kind) {
  switch (kind) {
    case 1:
    case 3: return INGERO_COPY_H2D;
    case 2:
    case 4: return INGERO_COPY_D2H;
    case 5:
    case 6:
    case 7:
    case 8: return INGERO_COPY_D2D;
    case 9: return INGERO_COPY_H2H;
    case 10: return INGERO_COPY_PEER;
    default: return INGERO_COPY_UNKNOWN;
  }
}

}  // namespace

Result<Events> ReadNsys(const std::string& path, const Progress& progress) {
  INGERO_ASSIGN_OR_RETURN(Export file, Export::Open(path));
  INGERO_ASSIGN_OR_RETURN(const bool calls,
                          file.Has("CUPTI_ACTIVITY_KIND_RUNTIME"));
  if (!calls) {
    INGERO_ASSIGN_OR_RETURN(const bool strings, file.Has("StringIds"));
    return file.Failed(strings
                           ? "has no CUDA call; record it with nsys profile "
                             "--trace=cuda,nvtx"
                           : "is an SQLite file, but no export of Nsight "
                             "Systems (nsys export --type sqlite)");
  }
  Events events;
  events.source = "Nsight Systems";
  events.path = path;
  std::unordered_map<int64_t, uint32_t> texts;  // by StringIds.id
  INGERO_RETURN_IF_ERROR(
      file.Each("SELECT id, value FROM StringIds", [&](sqlite3_stmt* s) {
        texts[sqlite3_column_int64(s, 0)] =
            events.texts.Index(Export::Text(s, 1));
      }));
  const auto text = [&](int64_t id) {
    const auto at = texts.find(id);
    return at == texts.end() ? 0u : at->second;
  };
  uint64_t read = 0;
  const auto tell = [&](double fraction) {
    if (progress) progress(fraction, read);
  };

  tell(0.1);
  INGERO_RETURN_IF_ERROR(file.Each(
      "SELECT start, \"end\", globalTid, nameId, correlationId, returnValue "
      "FROM CUPTI_ACTIVITY_KIND_RUNTIME",
      [&](sqlite3_stmt* s) {
        const int64_t global = sqlite3_column_int64(s, 2);
        const int64_t result = sqlite3_column_int64(s, 5);
        events.calls.push_back(
            {sqlite3_column_int64(s, 0), sqlite3_column_int64(s, 1),
             PidOf(global), TidOf(global), text(sqlite3_column_int64(s, 3)),
             Count(sqlite3_column_int64(s, 4)),
             static_cast<uint16_t>(
                 result >= 0 && result < 0xffff ? result : 0xffff)});
        ++read;
      }));
  tell(0.4);
  // `columns`: what is a table's own, from the sixth on.
  const auto gpu = [&](const std::string& table, const std::string& columns,
                       auto more) {
    return file.EachOf(
        table,
        "start, \"end\", deviceId, streamId, correlationId, globalPid" +
            columns,
        [&](sqlite3_stmt* s) {
          GpuWork w;
          w.begin = sqlite3_column_int64(s, 0);
          w.end = sqlite3_column_int64(s, 1);
          const uint64_t device = Count(sqlite3_column_int64(s, 2));
          w.device = device < 64 ? static_cast<uint32_t>(device) : 0;
          w.stream = Count(sqlite3_column_int64(s, 3));
          w.correlation = Count(sqlite3_column_int64(s, 4));
          w.pid = PidOf(sqlite3_column_int64(s, 5));
          more(s, &w);
          events.gpu.push_back(w);
          ++read;
        });
  };
  INGERO_RETURN_IF_ERROR(gpu("CUPTI_ACTIVITY_KIND_KERNEL", ", demangledName",
                             [&](sqlite3_stmt* s, GpuWork* w) {
                               w->name = text(sqlite3_column_int64(s, 6));
                             }));
  // A graph as a whole (--cuda-graph-trace=graph).
  INGERO_RETURN_IF_ERROR(gpu("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "",
                             [](sqlite3_stmt*, GpuWork*) {}));
  tell(0.7);
  INGERO_RETURN_IF_ERROR(gpu(
      "CUPTI_ACTIVITY_KIND_MEMCPY", ", bytes, copyKind, srcKind, dstKind",
      [](sqlite3_stmt* s, GpuWork* w) {
        w->kind = INGERO_GPU_COPY;
        w->bytes = Count(sqlite3_column_int64(s, 6));
        w->direction = DirectionOf(sqlite3_column_int64(s, 7));
        const int64_t host = w->direction == INGERO_COPY_H2D
                                 ? sqlite3_column_int64(s, 8)
                             : w->direction == INGERO_COPY_D2H
                                 ? sqlite3_column_int64(s, 9)
                                 : 0;
        w->host_memory = host == kPageable ? INGERO_CALL_HOST_PAGEABLE
                         : host == kPinned ? INGERO_CALL_HOST_PINNED
                                           : 0;
      }));
  INGERO_RETURN_IF_ERROR(gpu("CUPTI_ACTIVITY_KIND_MEMSET", ", bytes",
                             [](sqlite3_stmt* s, GpuWork* w) {
                               w->kind = INGERO_GPU_MEMSET;
                               w->bytes = Count(sqlite3_column_int64(s, 6));
                             }));

  tell(0.8);
  INGERO_RETURN_IF_ERROR(file.EachOf(
      "NVTX_EVENTS", "start, \"end\", eventType, globalTid, text, textId",
      [&](sqlite3_stmt* s) {
        const int64_t type = sqlite3_column_int64(s, 2);
        if (type != kNvtxPushPop && type != kNvtxStartEnd) return;
        const int64_t global = sqlite3_column_int64(s, 3);
        const std::string_view own = Export::Text(s, 4);
        events.ranges.push_back({sqlite3_column_int64(s, 0),
                                 sqlite3_column_int64(s, 1), PidOf(global),
                                 TidOf(global), 0,
                                 own.empty() ? text(sqlite3_column_int64(s, 5))
                                             : events.texts.Index(own)});
        ++read;
      },
      "\"end\" IS NOT NULL"));
  INGERO_RETURN_IF_ERROR(
      file.EachOf("ThreadNames", "nameId, globalTid", [&](sqlite3_stmt* s) {
        const uint32_t name = text(sqlite3_column_int64(s, 0));
        const int64_t global = sqlite3_column_int64(s, 1);
        if (name == 0 || PidOf(global) == 0) return;
        events.threads[{PidOf(global), TidOf(global)}] = events.texts[name];
        if (PidOf(global) == TidOf(global))
          events.processes.emplace(PidOf(global), events.texts[name]);
      }));
  INGERO_RETURN_IF_ERROR(file.EachOf(
      "TARGET_INFO_SESSION_START_TIME", "utcEpochNs", [&](sqlite3_stmt* s) {
        events.real_ns_at_zero = sqlite3_column_int64(s, 0);
      }));
  INGERO_RETURN_IF_ERROR(file.EachOf(
      "TARGET_INFO_SYSTEM_ENV", "value",
      [&](sqlite3_stmt* s) {
        events.host = std::string(Export::Text(s, 0)).substr(0, 63);
      },
      "name = 'Hostname'"));
  for (const char* table : {"OSRT_API", "SCHED_EVENTS", "COMPOSITE_EVENTS"})
    INGERO_RETURN_IF_ERROR(file.EachOf(table, "count(*)", [&](sqlite3_stmt* s) {
      if (sqlite3_column_int64(s, 0) > 0)
        events.left_out[table] += Count(sqlite3_column_int64(s, 0));
    }));
  if (events.calls.empty())
    return file.Failed(
        "has no CUDA call; record it with nsys profile --trace=cuda,nvtx");
  return events;
}

}  // namespace ingero::import
