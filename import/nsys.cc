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

  Result<bool> Has(const char* table) {
    bool found = false;
    INGERO_RETURN_IF_ERROR(Each(
        "SELECT name FROM sqlite_master WHERE type = 'table'",
        [&](sqlite3_stmt* s) { found |= Text(s, 0) == table; }));
    return found;
  }

  template <typename Visit>
  Status Each(const char* sql, Visit visit) {
    sqlite3_stmt* raw = nullptr;
    if (sqlite3_prepare_v2(db_.get(), sql, -1, &raw, nullptr) != SQLITE_OK)
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
  // start, end, device, stream, correlation, globalPid, then what is their own.
  const auto gpu = [&](const char* table, const char* sql,
                       auto more) -> Status {
    INGERO_ASSIGN_OR_RETURN(const bool have, file.Has(table));
    if (!have) return {};
    return file.Each(sql, [&](sqlite3_stmt* s) {
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
  INGERO_RETURN_IF_ERROR(gpu(
      "CUPTI_ACTIVITY_KIND_KERNEL",
      "SELECT start, \"end\", deviceId, streamId, correlationId, globalPid, "
      "demangledName FROM CUPTI_ACTIVITY_KIND_KERNEL",
      [&](sqlite3_stmt* s, GpuWork* w) {
        w->name = text(sqlite3_column_int64(s, 6));
      }));
  // A graph as a whole (--cuda-graph-trace=graph).
  INGERO_RETURN_IF_ERROR(gpu(
      "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
      "SELECT start, \"end\", deviceId, streamId, correlationId, globalPid "
      "FROM CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
      [](sqlite3_stmt*, GpuWork*) {}));
  tell(0.7);
  INGERO_RETURN_IF_ERROR(gpu(
      "CUPTI_ACTIVITY_KIND_MEMCPY",
      "SELECT start, \"end\", deviceId, streamId, correlationId, globalPid, "
      "bytes, copyKind, srcKind, dstKind FROM CUPTI_ACTIVITY_KIND_MEMCPY",
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
  INGERO_RETURN_IF_ERROR(gpu(
      "CUPTI_ACTIVITY_KIND_MEMSET",
      "SELECT start, \"end\", deviceId, streamId, correlationId, globalPid, "
      "bytes FROM CUPTI_ACTIVITY_KIND_MEMSET",
      [](sqlite3_stmt* s, GpuWork* w) {
        w->kind = INGERO_GPU_MEMSET;
        w->bytes = Count(sqlite3_column_int64(s, 6));
      }));

  tell(0.8);
  INGERO_ASSIGN_OR_RETURN(const bool nvtx, file.Has("NVTX_EVENTS"));
  if (nvtx)
    INGERO_RETURN_IF_ERROR(file.Each(
        "SELECT start, \"end\", eventType, globalTid, text, textId "
        "FROM NVTX_EVENTS WHERE \"end\" IS NOT NULL",
        [&](sqlite3_stmt* s) {
          const int64_t type = sqlite3_column_int64(s, 2);
          if (type != kNvtxPushPop && type != kNvtxStartEnd) return;
          const int64_t global = sqlite3_column_int64(s, 3);
          const std::string_view own = Export::Text(s, 4);
          events.ranges.push_back(
              {sqlite3_column_int64(s, 0), sqlite3_column_int64(s, 1),
               PidOf(global), TidOf(global), 0,
               own.empty() ? text(sqlite3_column_int64(s, 5))
                           : events.texts.Index(own)});
          ++read;
        }));
  INGERO_ASSIGN_OR_RETURN(const bool threads, file.Has("ThreadNames"));
  if (threads)
    INGERO_RETURN_IF_ERROR(file.Each(
        "SELECT nameId, globalTid FROM ThreadNames", [&](sqlite3_stmt* s) {
          const uint32_t name = text(sqlite3_column_int64(s, 0));
          const int64_t global = sqlite3_column_int64(s, 1);
          if (name == 0 || PidOf(global) == 0) return;
          events.threads[{PidOf(global), TidOf(global)}] = events.texts[name];
          if (PidOf(global) == TidOf(global))
            events.processes.emplace(PidOf(global), events.texts[name]);
        }));
  INGERO_ASSIGN_OR_RETURN(const bool start,
                          file.Has("TARGET_INFO_SESSION_START_TIME"));
  if (start)
    INGERO_RETURN_IF_ERROR(
        file.Each("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME",
                  [&](sqlite3_stmt* s) {
                    events.real_ns_at_zero = sqlite3_column_int64(s, 0);
                  }));
  INGERO_ASSIGN_OR_RETURN(const bool system,
                          file.Has("TARGET_INFO_SYSTEM_ENV"));
  if (system)
    INGERO_RETURN_IF_ERROR(file.Each(
        "SELECT value FROM TARGET_INFO_SYSTEM_ENV WHERE name = 'Hostname'",
        [&](sqlite3_stmt* s) {
          events.host = std::string(Export::Text(s, 0)).substr(0, 63);
        }));
  for (const char* table : {"OSRT_API", "SCHED_EVENTS", "COMPOSITE_EVENTS"}) {
    INGERO_ASSIGN_OR_RETURN(const bool have, file.Has(table));
    if (have)
      INGERO_RETURN_IF_ERROR(
          file.Each(("SELECT count(*) FROM " + std::string(table)).c_str(),
                    [&](sqlite3_stmt* s) {
                      if (sqlite3_column_int64(s, 0) > 0)
                        events.left_out[table] +=
                            Count(sqlite3_column_int64(s, 0));
                    }));
  }
  if (events.calls.empty())
    return file.Failed(
        "has no CUDA call; record it with nsys profile --trace=cuda,nvtx");
  return events;
}

}  // namespace ingero::import
