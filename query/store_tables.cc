// SPDX-License-Identifier: Apache-2.0
#include "query/store_tables.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "analysis/attribution.h"
#include "analysis/names.h"
#include "analysis/report.h"
#include "analysis/syscalls.h"
#include "base/call_class.h"
#include "base/histogram.h"
#include "base/tables.h"
#include "merge/coverage.h"
#include "merge/schema.h"
#include "merge/trace_reader.h"
#include "wire/wire.h"

namespace ingero::query {
namespace {

using analysis::kNone;
using merge::RowCursor;
using merge::TraceReader;
using std::string_view;
using enum Type;

constexpr Interval kAlways{Ns(std::numeric_limits<int64_t>::min()),
                           Ns(std::numeric_limits<int64_t>::max())};

// ---- values -----------------------------------------------------------------

Value Int(uint64_t value) { return static_cast<int64_t>(value); }
Value Int(Ns value) { return value.value; }
Value Bool(bool value) { return int64_t{value}; }
// NULL where it is empty: not known, or none.
Value Text(string_view text) {
  return text.empty() ? Value() : Value(std::string(text));
}
Value Named(const char* name, uint64_t value) {
  return name != nullptr ? Value(std::string(name))
                         : Value(std::to_string(value));
}

const char* MetricName(uint64_t value) {
  switch (value) {
#define X(id, number, name, unit, instance) \
  case number:                              \
    return name;
    INGERO_METRICS(X)
#undef X
  }
  return nullptr;
}
const char* MetricUnit(uint64_t value) {
  switch (value) {
#define X(id, number, name, unit, instance) \
  case number:                              \
    return unit;
    INGERO_METRICS(X)
#undef X
  }
  return nullptr;
}
const char* LayerName(analysis::Layer layer) {
  switch (layer) {
    case analysis::Layer::kRuntime: return "runtime";
    case analysis::Layer::kDriver: return "driver";
    case analysis::Layer::kLibrary: return "library";
  }
  return nullptr;
}
const char* DirectionName(analysis::CopyDirection direction) {
  using enum analysis::CopyDirection;
  switch (direction) {
    case kUnknown: return nullptr;
    case kHostToDevice: return "host-to-device";
    case kDeviceToHost: return "device-to-host";
    case kDeviceToDevice: return "device-to-device";
    case kHostToHost: return "host-to-host";
    case kPeer: return "peer";
    case kDefault: return "default";
  }
  return nullptr;
}
const char* MemoryName(analysis::HostMemory memory) {
  using enum analysis::HostMemory;
  switch (memory) {
    case kUnknown: return nullptr;
    case kPinned: return "pinned";
    case kPageable: return "pageable";
  }
  return nullptr;
}
const char* TaskEventName(uint64_t event) {
  switch (event) {
    case INGERO_TASK_EVENT_FORK: return "fork";
    case INGERO_TASK_EVENT_EXEC: return "exec";
    case INGERO_TASK_EVENT_EXIT: return "exit";
    case INGERO_TASK_EVENT_RENAME: return "rename";
    case INGERO_TASK_EVENT_OOM_KILL: return "oom-kill";
    case INGERO_TASK_EVENT_EXISTING: return "existing";
    case INGERO_TASK_EVENT_PAGES: return "pages";
    case INGERO_TASK_EVENT_CGROUP: return "cgroup";
    case INGERO_TASK_EVENT_RECLAIM: return "reclaim";
    case INGERO_TASK_EVENT_COMPACTION: return "compaction";
  }
  return nullptr;
}
Value OrNull(const char* name) { return name != nullptr ? Text(name) : Value(); }

// ---- indices to names -------------------------------------------------------

class Names {
 public:
  explicit Names(const TraceReader& reader) : reader_(reader) {}

  const TraceReader& reader() const { return reader_; }
  Value AtSeconds(Ns t) const {
    return static_cast<double>((t - reader_.span().begin).value) / 1e9;
  }
  const analysis::Process* Process(uint32_t index) const {
    return index < reader_.processes().size() ? &reader_.processes()[index]
                                              : nullptr;
  }
  const analysis::Thread* Thread(uint32_t index) const {
    return index < reader_.threads().size() ? &reader_.threads()[index]
                                            : nullptr;
  }
  const analysis::Process* ProcessOf(uint32_t thread) const {
    const analysis::Thread* t = Thread(thread);
    return t == nullptr ? nullptr : Process(t->process);
  }
  Value Pid(uint32_t process) const {
    const analysis::Process* p = Process(process);
    return p == nullptr ? Value() : Int(p->pid);
  }
  Value ProcessName(uint32_t process) const {
    const analysis::Process* p = Process(process);
    return p == nullptr ? Value() : Text(p->name);
  }
  Value PidOf(uint32_t thread) const {
    const analysis::Process* p = ProcessOf(thread);
    return p == nullptr ? Value() : Int(p->pid);
  }
  Value Tid(uint32_t thread) const {
    const analysis::Thread* t = Thread(thread);
    return t == nullptr ? Value() : Int(t->tid);
  }
  Value ThreadName(uint32_t thread) const {
    const analysis::Thread* t = Thread(thread);
    return t == nullptr ? Value() : Text(t->name);
  }
  const analysis::Function* Function(uint64_t index) const {
    return index < reader_.functions().size() ? &reader_.functions()[index]
                                              : nullptr;
  }
  Value FunctionName(uint64_t index) const {
    const analysis::Function* f = Function(index);
    return f == nullptr ? Value() : Text(f->name);
  }
  // Events lie within the span; nothing is widened beyond what can be added to.
  Interval Clip(Interval window) const {
    const Interval span = reader_.span();
    return {std::clamp(window.begin, span.begin, span.end + Ns(1)),
            std::clamp(window.end, span.begin, span.end + Ns(1))};
  }

 private:
  const TraceReader& reader_;
};

// ---- sources ----------------------------------------------------------------

template <typename Row>
std::function<bool(Row*)> From(std::unique_ptr<analysis::Cursor<Row>> cursor) {
  return [cursor = std::shared_ptr<analysis::Cursor<Row>>(std::move(cursor))](
             Row* row) { return cursor->Next(row); };
}
// Rows that are at hand.
template <typename Row>
std::function<bool(Row*)> From(std::shared_ptr<const std::vector<Row>> rows) {
  return [rows, next = size_t{0}](Row* row) mutable {
    if (next == rows->size()) return false;
    *row = (*rows)[next++];
    return true;
  };
}

// A stored row as it is; columns pick from it.
struct Stored {
  uint32_t owner = 0;
  std::vector<uint64_t> row;
  std::string text;
  uint64_t operator[](size_t column) const { return row[column]; }
  Ns t() const { return Ns(static_cast<int64_t>(row[0])); }
  // Part `i` of a text whose parts are separated by NUL.
  string_view Part(size_t i) const {
    string_view rest = text;
    for (; i > 0; --i) {
      const size_t nul = rest.find('\0');
      if (nul == rest.npos) return "";
      rest.remove_prefix(nul + 1);
    }
    return rest.substr(0, rest.find('\0'));
  }
};

std::function<bool(Stored*)> FromTable(const TraceReader& reader,
                                       const TableSchema& schema,
                                       Interval window) {
  const auto blocks = reader.file().Table(schema.id);
  std::shared_ptr<RowCursor> rows = reader.Cursor(schema, blocks, window);
  return [rows](Stored* out) {
    if (!rows->Next()) return false;
    out->owner = rows->owner();
    out->row.assign(rows->row().begin(), rows->row().end());
    out->text = rows->text();
    return true;
  };
}

double RowsOf(const TraceReader& reader, const TableSchema& schema) {
  return static_cast<double>(reader.file().Table(schema.id).size()) *
         merge::kRowsPerChunk;
}

// ---- the tables -------------------------------------------------------------

struct CallOf {
  analysis::Call call;
  analysis::ProcessIndex process = kNone;
};

Table Calls(std::shared_ptr<Names> n) {
  auto begin = [](const CallOf& c) { return Int(c.call.begin); };
  std::vector<Column<CallOf>> columns = {
      {{"begin_ns", kInteger, "begin, ns on CLOCK_MONOTONIC"}, begin},
      {{"at_s", kReal, "begin, s from the recording's begin"},
       [n](const CallOf& c) { return n->AtSeconds(c.call.begin); }},
      {{"duration_ns", kInteger, "ns"},
       [](const CallOf& c) { return Int(c.call.end - c.call.begin); }},
      {{"end_ns", kInteger, "end, ns on CLOCK_MONOTONIC"},
       [](const CallOf& c) { return Int(c.call.end); }},
      {{"pid", kInteger, "process"},
       [n](const CallOf& c) { return n->Pid(c.process); }},
      {{"tid", kInteger, "thread"},
       [n](const CallOf& c) { return n->Tid(c.call.thread); }},
      {{"name", kText, "function"},
       [n](const CallOf& c) { return n->FunctionName(c.call.func); }},
      {{"layer", kText, "runtime, driver or library"},
       [n](const CallOf& c) {
         const analysis::Function* f = n->Function(c.call.func);
         return f == nullptr ? Value() : OrNull(LayerName(f->layer));
       }},
      {{"class", kText, "what it does: launch, copy-async, sync-stream, ..."},
       [n](const CallOf& c) {
         const analysis::Function* f = n->Function(c.call.func);
         return f == nullptr
                    ? Value()
                    : OrNull(CallClassName(static_cast<uint64_t>(f->call_class)));
       }},
      {{"depth", kInteger, "calls around it; 0 = made by the program itself"},
       [](const CallOf& c) { return Int(uint64_t{c.call.depth}); }},
      {{"result", kInteger, "status; 0 = success"},
       [](const CallOf& c) { return Int(uint64_t{c.call.result}); }},
      {{"bytes", kInteger, "bytes copied, set or allocated; 0 = not said"},
       [](const CallOf& c) { return Int(c.call.bytes); }},
      {{"direction", kText, "of a copy: host-to-device, ..."},
       [](const CallOf& c) { return OrNull(DirectionName(c.call.direction)); }},
      {{"host_memory", kText, "of a copy's host side: pinned or pageable"},
       [](const CallOf& c) { return OrNull(MemoryName(c.call.host_memory)); }},
      {{"stream", kInteger, "handle; 0 = default stream"},
       [](const CallOf& c) { return Int(c.call.stream); }},
      {{"kernel", kText, "of a launch: name, demangled"},
       [n](const CallOf& c) {
         const analysis::Function* f = n->Function(c.call.func);
         if (f == nullptr || f->call_class != analysis::CallClass::kLaunch)
           return Value();
         return Text(n->reader().KernelName(c.process, c.call.object));
       }},
      {{"first_use", kInteger, "1: first launch of its kernel"},
       [](const CallOf& c) { return Bool(c.call.first_use); }},
      {{"first_call", kInteger, "1: first call of its function"},
       [](const CallOf& c) { return Bool(c.call.first_call); }},
      {{"captured", kInteger, "1: recorded into a graph, not executed"},
       [](const CallOf& c) { return Bool(c.call.captured); }},
      {{"in_flight", kInteger, "1: had not returned when the trace ended"},
       [](const CallOf& c) { return Bool(c.call.no_end); }},
  };
  Table table = MakeTable<CallOf>(
      "calls", "CUDA and library calls, process by process", std::move(columns),
      [n](const Filter& filter) -> std::function<bool(CallOf*)> {
        const Interval window = n->Clip(filter.window);
        // Functions of the asked name; they may be several (two runtimes).
        std::vector<bool> wanted;
        if (filter.name) {
          for (const analysis::Function& f : n->reader().functions())
            wanted.push_back(f.name == *filter.name);
        }
        struct At {
          analysis::ProcessIndex process = 0;
          std::unique_ptr<analysis::Cursor<analysis::Call>> calls;
        };
        return [n, window, wanted, pid = filter.pid,
                stop = filter.stop, passed = uint64_t{0},
                at = std::make_shared<At>()](CallOf* out) mutable {
          const auto& processes = n->reader().processes();
          for (;;) {
            if (at->calls != nullptr) {
              while (at->calls->Next(&out->call)) {
                // SQLite sees nothing of what is passed over.
                if (++passed % 65536 == 0 && stop && stop()) return false;
                if (wanted.empty() || (out->call.func < wanted.size() &&
                                       wanted[out->call.func]))
                  return true;
              }
              at->calls = nullptr;
              ++at->process;
            }
            while (at->process < processes.size() &&
                   (!processes[at->process].has_cuda ||
                    (pid && processes[at->process].pid != *pid)))
              ++at->process;
            if (at->process >= processes.size()) return false;
            out->process = at->process;
            at->calls = n->reader().Calls(at->process, window);
          }
        };
      });
  table.name_column = table.Find("name");
  table.rows = RowsOf(n->reader(), call_table::kSchema);
  return table;
}

Table Switches(std::shared_ptr<Names> n) {
  using analysis::Switch;
  std::vector<Column<Switch>> columns = {
      {{"t_ns", kInteger, "ns on CLOCK_MONOTONIC"},
       [](const Switch& s) { return Int(s.t); }},
      {{"at_s", kReal, "s from the recording's begin"},
       [n](const Switch& s) { return n->AtSeconds(s.t); }},
      {{"cpu", kInteger, ""},
       [](const Switch& s) { return Int(uint64_t{s.cpu}); }},
      {{"prev_pid", kInteger, "process that left the CPU; NULL = idle task"},
       [n](const Switch& s) { return n->PidOf(s.prev); }},
      {{"prev_tid", kInteger, "thread that left the CPU"},
       [n](const Switch& s) { return n->Tid(s.prev); }},
      {{"prev_name", kText, "its name"},
       [n](const Switch& s) {
         return s.prev_idle ? Text("idle") : n->ThreadName(s.prev);
       }},
      {{"prev_state", kText,
        "what it became: runnable (preempted or yielded), sleeping, disk, ..."},
       [](const Switch& s) { return OrNull(analysis::NameOf(s.prev_state)); }},
      {{"preempted", kInteger, "1: it did not leave by its own will"},
       [](const Switch& s) { return Bool(s.preempted); }},
      {{"yielded", kInteger, "1: it called sched_yield"},
       [](const Switch& s) { return Bool(s.yielded); }},
      {{"prev_syscall", kText, "system call that it sleeps in"},
       [](const Switch& s) {
         return Text(analysis::SyscallName(s.prev_syscall));
       }},
      {{"prev_arg0", kInteger, "first argument of that call"},
       [](const Switch& s) { return Int(s.prev_arg0); }},
      {{"prev_pages", kInteger, "pages it allocated since its switch before"},
       [](const Switch& s) { return Int(s.prev_pages); }},
      {{"prev_minor_faults", kInteger, "likewise"},
       [](const Switch& s) { return Int(s.prev_min_faults); }},
      {{"prev_major_faults", kInteger, "likewise"},
       [](const Switch& s) { return Int(s.prev_maj_faults); }},
      {{"prev_kernel_ns", kInteger,
        "of its CPU time, ns in the kernel (sampled by the tick)"},
       [](const Switch& s) { return Int(s.prev_kernel); }},
      {{"next_pid", kInteger, "process that came; NULL = idle task"},
       [n](const Switch& s) { return n->PidOf(s.next); }},
      {{"next_tid", kInteger, "thread that came"},
       [n](const Switch& s) { return n->Tid(s.next); }},
      {{"next_name", kText, "its name"},
       [n](const Switch& s) {
         return s.next_idle ? Text("idle") : n->ThreadName(s.next);
       }},
      {{"wake_ns", kInteger, "when it was woken; NULL = it was not asleep"},
       [](const Switch& s) { return s.wake ? Int(*s.wake) : Value(); }},
      {{"wait_ns", kInteger, "from being woken to running"},
       [](const Switch& s) { return s.wake ? Int(s.t - *s.wake) : Value(); }},
      {{"throttled_ns", kInteger,
        "of the time that it was runnable: its cgroup had no CPU quota"},
       [](const Switch& s) { return Int(s.next_throttled); }},
      {{"waker_pid", kInteger, "process that woke it; NULL = an interrupt"},
       [n](const Switch& s) { return n->PidOf(s.waker); }},
      {{"waker_tid", kInteger, "thread that woke it"},
       [n](const Switch& s) { return n->Tid(s.waker); }},
      {{"waker_name", kText, "its name"},
       [n](const Switch& s) { return n->ThreadName(s.waker); }},
      {{"wake_from_irq", kInteger, "1: a timer, device or network woke it"},
       [](const Switch& s) { return Bool(s.wake_from_irq); }},
  };
  Table table = MakeTable<Switch>(
      "switches", "context switches of all CPUs", std::move(columns),
      [n](const Filter& filter) {
        return From<Switch>(n->reader().Switches(n->Clip(filter.window)));
      });
  table.rows = RowsOf(n->reader(), switch_table::kSchema);
  return table;
}

// Of results, cell by cell or summed by second.
double RowsOfResults(const TraceReader& reader, const TableSchema& cells,
                     const TableSchema& seconds, bool by_second) {
  const double sums = by_second ? RowsOf(reader, seconds) : 0;
  return sums > 0 ? sums : RowsOf(reader, cells);
}

enum class Sums { kNone, kBySecond, kAll };

// The path of the whole recording, summed by kind: SQL would sort it for that.
std::function<bool(analysis::PathCell*)> PathTotals(const TraceReader& reader,
                                                    const Filter& filter) {
  using analysis::PathCell;
  using Kind = std::array<uint64_t, 4>;
  struct Hash {
    size_t operator()(const Kind& kind) const {
      uint64_t hash = 0;
      for (const uint64_t part : kind)
        hash = std::rotl((hash ^ part) * 0x9E3779B97F4A7C15u, 29);
      return hash;
    }
  };
  const auto pair = [](uint32_t high, uint32_t low) {
    return uint64_t{high} << 32 | low;
  };
  auto totals = std::make_shared<std::vector<PathCell>>();
  std::unordered_map<Kind, size_t, Hash> at;
  analysis::Part part(kAlways);
  part.by_second = true;
  uint64_t read = 0;
  auto cells = reader.Paths(part);
  for (PathCell c; cells->Next(&c);) {
    if (++read % 65536 == 0 && filter.stop && filter.stop()) break;
    const Kind kind = {
        pair(c.process, c.thread), pair(c.culprit, c.func),
        pair(static_cast<uint32_t>(c.state), static_cast<uint32_t>(c.reason)),
        pair(static_cast<uint32_t>(c.certainty) << 16 |
                 static_cast<uint32_t>(c.ended_by),
             static_cast<uint32_t>(c.syscall))};
    const auto [it, added] = at.try_emplace(kind, totals->size());
    if (added) {
      totals->push_back(c);
      continue;
    }
    PathCell& total = (*totals)[it->second];
    total.range = {std::min(total.range.begin, c.range.begin),
                   std::max(total.range.end, c.range.end)};
    total.time += c.time;
    total.stretches += c.stretches;
    total.pages += c.pages;
  }
  return From<PathCell>(std::shared_ptr<const std::vector<PathCell>>(totals));
}

Table Path(std::shared_ptr<Names> n, Sums sums) {
  using analysis::PathCell;
  const bool by_second = sums == Sums::kBySecond;
  std::vector<Column<PathCell>> columns = {
      {{"begin_ns", kInteger, "begin, ns on CLOCK_MONOTONIC"},
       [](const PathCell& c) { return Int(c.range.begin); }},
      {{"at_s", kReal, "begin, s from the recording's begin"},
       [n](const PathCell& c) { return n->AtSeconds(c.range.begin); }},
      {{"end_ns", kInteger, "end of the last stretch"},
       [](const PathCell& c) { return Int(c.range.end); }},
      {{"ns", kInteger, "time lost in it: sum of the stretches"},
       [](const PathCell& c) { return Int(c.time); }},
      {{"stretches", kInteger, "short stretches of one kind are folded"},
       [](const PathCell& c) { return Int(c.stretches); }},
      {{"pid", kInteger, "process whose GPU starved"},
       [n](const PathCell& c) { return n->Pid(c.process); }},
      {{"thread_pid", kInteger, "process whose time this is"},
       [n](const PathCell& c) { return n->PidOf(c.thread); }},
      {{"thread_tid", kInteger, "thread whose time this is"},
       [n](const PathCell& c) { return n->Tid(c.thread); }},
      {{"thread_name", kText, "its name"},
       [n](const PathCell& c) { return n->ThreadName(c.thread); }},
      {{"state", kText, "its state: running, runnable, sleeping, disk, ..."},
       [](const PathCell& c) { return OrNull(analysis::NameOf(c.state)); }},
      {{"reason", kText, "host-code, waiting-for-cpu, throttled, disk-wait, ..."},
       [](const PathCell& c) { return OrNull(analysis::NameOf(c.reason)); }},
      {{"culprit_pid", kInteger, "waiting-for-cpu: process that held the CPU"},
       [n](const PathCell& c) { return n->PidOf(c.culprit); }},
      {{"culprit_tid", kInteger, "thread that held it"},
       [n](const PathCell& c) { return n->Tid(c.culprit); }},
      {{"culprit_name", kText, "its name"},
       [n](const PathCell& c) { return n->ThreadName(c.culprit); }},
      {{"call", kText, "CUDA call it was in"},
       [n](const PathCell& c) { return n->FunctionName(c.func); }},
      {{"known", kInteger, "1: the GPU is known to have starved; 0: it may"},
       [](const PathCell& c) {
         return Bool(c.certainty == analysis::Certainty::kKnown);
       }},
      {{"pages", kInteger, "pages allocated meanwhile"},
       [](const PathCell& c) { return Int(c.pages); }},
      {{"ended_by", kText, "class of the submission that ended the wait"},
       [](const PathCell& c) {
         return OrNull(CallClassName(static_cast<uint64_t>(c.ended_by)));
       }},
      {{"syscall", kText, "system call it slept in"},
       [](const PathCell& c) { return Text(analysis::SyscallName(c.syscall)); }},
  };
  if (sums == Sums::kAll) {
    Table table = MakeTable<PathCell>(
        "path_totals", "path, summed over the whole recording by kind",
        std::move(columns), [n](const Filter& filter) {
          return PathTotals(n->reader(), filter);
        });
    table.rows = 10000;
    return table;
  }
  Table table = MakeTable<PathCell>(
      by_second ? "path_seconds" : "path",
      by_second
          ? "path, summed by second and kind: the same sums, in fewer rows"
          : "critical path of the starved time: who, in which state, why",
      std::move(columns), [n, by_second](const Filter& filter) {
        analysis::Part part(n->Clip(filter.window));
        part.by_second = by_second;
        return From<PathCell>(n->reader().Paths(part));
      });
  // Cells are clipped to a window: not what was asked, so it is not used.
  table.scan = [scan = table.scan](const Filter& filter) {
    Filter all = filter;
    all.window = kAlways;
    return scan(all);
  };
  table.rows = RowsOfResults(n->reader(), path_table::kSchema,
                             path_seconds_table::kSchema, by_second);
  return table;
}

Table Feed(std::shared_ptr<Names> n, bool by_second) {
  using analysis::FeedInterval;
  std::vector<Column<FeedInterval>> columns = {
      {{"begin_ns", kInteger, "begin, ns on CLOCK_MONOTONIC"},
       [](const FeedInterval& f) { return Int(f.range.begin); }},
      {{"at_s", kReal, "begin, s from the recording's begin"},
       [n](const FeedInterval& f) { return n->AtSeconds(f.range.begin); }},
      {{"end_ns", kInteger, "end, ns on CLOCK_MONOTONIC"},
       [](const FeedInterval& f) { return Int(f.range.end); }},
      {{"ns", kInteger, "time in this state"},
       [](const FeedInterval& f) { return Int(f.time); }},
      {{"pid", kInteger, "process that feeds the GPU"},
       [n](const FeedInterval& f) { return n->Pid(f.process); }},
      {{"device", kInteger, "GPU, as CUDA counts them"},
       [](const FeedInterval& f) { return Int(uint64_t{f.device}); }},
      {{"state", kText,
        "idle, busy, unknown (submitted, nobody has asked since), host-copy, "
        "cold-start"},
       [](const FeedInterval& f) { return OrNull(analysis::NameOf(f.state)); }},
      {{"intervals", kInteger, "folded into this row; 0 = goes on"},
       [](const FeedInterval& f) { return Int(f.intervals); }},
  };
  Table table = MakeTable<FeedInterval>(
      by_second ? "feed_seconds" : "feed",
      by_second ? "feed, summed by second and state"
                : "what each process had for its GPU to do",
      std::move(columns), [n, by_second](const Filter&) {
        analysis::Part part(n->Clip(kAlways));
        part.by_second = by_second;
        return From<FeedInterval>(n->reader().Feeds(part));
      });
  table.rows = RowsOfResults(n->reader(), feed_table::kSchema,
                             feed_seconds_table::kSchema, by_second);
  return table;
}

Table Splits(std::shared_ptr<Names> n) {
  using analysis::CallSplit;
  std::vector<Column<CallSplit>> columns = {
      {{"begin_ns", kInteger, "begin of the call, ns on CLOCK_MONOTONIC"},
       [](const CallSplit& s) { return Int(s.begin); }},
      {{"at_s", kReal, "begin, s from the recording's begin"},
       [n](const CallSplit& s) { return n->AtSeconds(s.begin); }},
      {{"pid", kInteger, "process"},
       [n](const CallSplit& s) { return n->Pid(s.process); }},
      {{"tid", kInteger, "thread"},
       [n](const CallSplit& s) { return n->Tid(s.thread); }},
      {{"name", kText, "function"},
       [n](const CallSplit& s) { return n->FunctionName(s.func); }},
      {{"running_ns", kInteger, "of the call's duration"},
       [](const CallSplit& s) { return Int(s.running); }},
      {{"runnable_ns", kInteger, "waiting for a CPU"},
       [](const CallSplit& s) { return Int(s.runnable); }},
      {{"sleeping_ns", kInteger, ""},
       [](const CallSplit& s) { return Int(s.sleeping); }},
      {{"io_ns", kInteger, "waiting for a disk"},
       [](const CallSplit& s) { return Int(s.io); }},
      {{"unknown_ns", kInteger, "not recorded"},
       [](const CallSplit& s) { return Int(s.unknown); }},
      {{"holder_pid", kInteger, "process that held the CPU longest"},
       [n](const CallSplit& s) { return n->PidOf(s.holder); }},
      {{"holder_name", kText, "its thread's name"},
       [n](const CallSplit& s) { return n->ThreadName(s.holder); }},
      {{"waker_pid", kInteger, "process that woke it last"},
       [n](const CallSplit& s) { return n->PidOf(s.waker); }},
      {{"waker_name", kText, "its thread's name"},
       [n](const CallSplit& s) { return n->ThreadName(s.waker); }},
  };
  Table table = MakeTable<CallSplit>(
      "call_splits", "calls in which the thread left the CPU: its states",
      std::move(columns), [n](const Filter& filter) {
        return From<CallSplit>(n->reader().Splits(n->Clip(filter.window)));
      });
  table.rows = RowsOf(n->reader(), split_table::kSchema);
  return table;
}

Table Operations(std::shared_ptr<Names> n) {
  using analysis::Operation;
  std::vector<Column<Operation>> columns = {
      {{"pid", kInteger, "process"},
       [n](const Operation& o) { return n->Pid(o.process); }},
      {{"name", kText, "function"},
       [n](const Operation& o) { return n->FunctionName(o.func); }},
      {{"layer", kText, "runtime, driver or library"},
       [n](const Operation& o) {
         const analysis::Function* f = n->Function(o.func);
         return f == nullptr ? Value() : OrNull(LayerName(f->layer));
       }},
      {{"class", kText, "what it does"},
       [n](const Operation& o) {
         const analysis::Function* f = n->Function(o.func);
         return f == nullptr
                    ? Value()
                    : OrNull(CallClassName(static_cast<uint64_t>(f->call_class)));
       }},
      {{"calls", kInteger, "first uses left out, as in all columns up to max"},
       [](const Operation& o) { return Int(o.count); }},
      {{"total_ns", kInteger, "sum"},
       [](const Operation& o) { return Int(o.total); }},
      {{"average_ns", kInteger, ""},
       [](const Operation& o) { return Int(o.average); }},
      {{"p50_ns", kInteger, "quantiles are off by 1/64 at most"},
       [](const Operation& o) { return Int(o.p50); }},
      {{"p95_ns", kInteger, ""}, [](const Operation& o) { return Int(o.p95); }},
      {{"p99_ns", kInteger, ""}, [](const Operation& o) { return Int(o.p99); }},
      {{"max_ns", kInteger, "exact"},
       [](const Operation& o) { return Int(o.max); }},
      {{"wall_share", kReal, "of the recording's length, outermost calls"},
       [](const Operation& o) { return Value(o.wall_share); }},
      {{"first_uses", kInteger, "calls that paid for something once"},
       [](const Operation& o) { return Int(o.first_uses); }},
      {{"first_use_ns", kInteger, "their sum"},
       [](const Operation& o) { return Int(o.first_use_time); }},
      {{"errors", kInteger, "calls that did not return success"},
       [](const Operation& o) { return Int(o.errors); }},
      {{"bytes", kInteger, "copied, set or allocated"},
       [](const Operation& o) { return Int(o.bytes); }},
  };
  return MakeTable<Operation>(
      "operations", "calls by process and function, from stored summaries",
      std::move(columns), [n](const Filter&) {
        return From<Operation>(
            std::make_shared<const std::vector<Operation>>(
                n->reader().Operations(n->reader().span())));
      });
}

struct Second {
  Stored stored;
  Histogram histogram;
};

Table OperationSeconds(std::shared_ptr<Names> n) {
  using namespace op_summary_table;
  const auto number = [](size_t column) {
    return [column](const Second& s) { return Int(s.stored[column]); };
  };
  const auto quantile = [](double q) {
    return [q](const Second& s) {
      if (s.histogram.count() == 0) return Value();
      return Int(std::min(s.histogram.Quantile(q), s.stored[kMaxNs]));
    };
  };
  std::vector<Column<Second>> columns = {
      {{"t_ns", kInteger, "begin of the second, ns on CLOCK_MONOTONIC"},
       [](const Second& s) { return Int(s.stored.t()); }},
      {{"at_s", kReal, "begin, s from the recording's begin"},
       [n](const Second& s) { return n->AtSeconds(s.stored.t()); }},
      {{"pid", kInteger, "process"},
       [n](const Second& s) { return n->Pid(s.stored.owner); }},
      {{"name", kText, "function"},
       [n](const Second& s) { return n->FunctionName(s.stored[kFunc]); }},
      {{"calls", kInteger, "first uses left out"}, number(kCalls)},
      {{"total_ns", kInteger, ""}, number(kTotalNs)},
      {{"outermost_ns", kInteger, "of calls that are in no other call"},
       number(kOutermostNs)},
      {{"max_ns", kInteger, ""}, number(kMaxNs)},
      {{"p50_ns", kInteger, ""}, quantile(0.5)},
      {{"p99_ns", kInteger, ""}, quantile(0.99)},
      {{"first_uses", kInteger, ""}, number(kFirstUses)},
      {{"first_use_ns", kInteger, ""}, number(kFirstUseNs)},
      {{"errors", kInteger, ""}, number(kErrors)},
      {{"bytes", kInteger, ""}, number(kBytes)},
  };
  Table table = MakeTable<Second>(
      "operation_seconds", "calls by second, process and function",
      std::move(columns), [n](const Filter& filter) {
        auto rows = FromTable(n->reader(), kSchema, filter.window);
        return std::function<bool(Second*)>([rows](Second* s) mutable {
          if (!rows(&s->stored)) return false;
          auto parsed = Histogram::Parse(s->stored.text);
          s->histogram = parsed.ok() ? std::move(*parsed) : Histogram();
          return true;
        });
      });
  table.rows = RowsOf(n->reader(), kSchema);
  return table;
}

// A column that is a number of the stored row.
Column<Stored> Number(const char* name, size_t column, const char* about = "") {
  return {{name, kInteger, about},
          [column](const Stored& s) { return Int(s[column]); }};
}
Column<Stored> Time(const char* about) {
  return {{"t_ns", kInteger, about}, [](const Stored& s) { return Int(s.t()); }};
}
Column<Stored> At(std::shared_ptr<Names> n) {
  return {{"at_s", kReal, "the same, s from the recording's begin"},
          [n](const Stored& s) { return n->AtSeconds(s.t()); }};
}
// window: whether rows are asked for by their own time.
Table FromStored(std::shared_ptr<Names> n, const TableSchema& schema,
                 const char* name, const char* about,
                 std::vector<Column<Stored>> columns) {
  Table table = MakeTable<Stored>(
      name, about, std::move(columns), [n, &schema](const Filter& filter) {
        return FromTable(n->reader(), schema, filter.window);
      });
  table.rows = RowsOf(n->reader(), schema);
  return table;
}

Table SchedSeconds(std::shared_ptr<Names> n) {
  using namespace sched_summary_table;
  return FromStored(
      n, kSchema, "sched_seconds",
      "threads by second: what they did; several rows add up",
      {Time("begin of the second, ns on CLOCK_MONOTONIC"), At(n),
       {{"seconds", kInteger, "that the row covers (a long sleep is one row)"},
        [](const Stored& s) { return Int(std::max<uint64_t>(s[kSeconds], 1)); }},
       Number("pid", kTgid, "process"), Number("tid", kTid, "thread"),
       {{"thread_name", kText, "its name"},
        [n](const Stored& s) {
          return n->ThreadName(n->reader().ThreadOfSwitch(
              static_cast<uint32_t>(s[kTid]), static_cast<uint32_t>(s[kTgid]),
              s.t().value));
        }},
       Number("running_ns", kRunningNs),
       Number("kernel_ns", kKernelNs, "part of running_ns (sampled)"),
       Number("runnable_ns", kRunnableNs, "waiting for a CPU"),
       Number("sleeping_ns", kSleepingNs),
       Number("io_ns", kIoNs, "waiting for a disk"),
       Number("worst_off_cpu_ns", kWorstOffCpuNs),
       Number("preempted", kPreempted, "switches"),
       Number("slept", kSlept, "switches"),
       Number("yielded", kYielded, "switches"),
       Number("pages", kPages, "pages allocated"),
       Number("minor_faults", kMinFaults), Number("major_faults", kMajFaults)});
}

Table System(std::shared_ptr<Names> n) {
  using namespace sample_table;
  return FromStored(
      n, kSchema, "system",
      "samples of the machine: CPUs, PSI, memory, cgroup quotas, GPUs",
      {Time("ns on CLOCK_MONOTONIC"), At(n),
       {{"metric", kText, "cpu.busy, psi.io.some, gpu.utilization, ..."},
        [](const Stored& s) {
          return Named(MetricName(s[kMetric]), s[kMetric]);
        }},
       Number("instance", kInstance, "CPU, GPU, cgroup: by metric"),
       Number("value", kValue, "counters are totals since boot"),
       {{"unit", kText, ""},
        [](const Stored& s) { return OrNull(MetricUnit(s[kMetric])); }},
       {{"text", kText, ""}, [](const Stored& s) { return Text(s.text); }}});
}

Table Tasks(std::shared_ptr<Names> n) {
  using namespace task_table;
  return FromStored(
      n, kSchema, "tasks", "births, programs, names and ends of threads",
      {Time("ns on CLOCK_MONOTONIC"), At(n),
       {{"event", kText, "fork, exec, exit, rename, oom-kill, existing, ..."},
        [](const Stored& s) {
          return Named(TaskEventName(s[kEvent]), s[kEvent]);
        }},
       Number("pid", kTgid, "process"), Number("tid", kTid, "thread"),
       Number("parent_pid", kParentTgid), Number("parent_tid", kParentTid),
       Number("ns_pid", kNsTgid, "in its own pid namespace"),
       Number("ns_tid", kNsTid),
       Number("pid_namespace", kPidNamespace, "inode"),
       Number("cgroup_id", kCgroupId, "of the cpu controller"),
       {{"code", kInteger, "exit: as wait() has it"},
        [](const Stored& s) { return Value(static_cast<int64_t>(s[kCode])); }},
       {{"name", kText, "comm"}, [](const Stored& s) { return Text(s.Part(0)); }},
       {{"exe", kText, ""}, [](const Stored& s) { return Text(s.Part(1)); }}});
}

Table Nvtx(std::shared_ptr<Names> n) {
  using namespace nvtx_table;
  return FromStored(
      n, kSchema, "nvtx", "ranges that the program marked with NVTX",
      {{{"begin_ns", kInteger, "begin, ns on CLOCK_MONOTONIC"},
        [](const Stored& s) { return Int(s.t()); }},
       At(n), Number("duration_ns", kDuration),
       {{"pid", kInteger, "process"},
        [n](const Stored& s) { return n->Pid(s.owner); }},
       Number("tid", kTid, "thread that ended it (open: began it)"),
       {{"domain", kText, ""}, [](const Stored& s) { return Text(s.Part(0)); }},
       {{"name", kText, ""}, [](const Stored& s) { return Text(s.Part(1)); }},
       {{"mark", kInteger, "1: a moment, not a range"},
        [](const Stored& s) { return Bool(s[kKind] == INGERO_NVTX_MARK); }},
       {{"open", kInteger,
         "1: it had no end, and lasted as long as the process was seen"},
        [](const Stored& s) { return Bool(s[kOpen] != 0); }}});
}

Table CodeSamples(std::shared_ptr<Names> n) {
  using namespace code_table;
  const auto line = [n](const Stored& s, Col column) {
    return s[column] < n->reader().code_lines().size()
               ? &n->reader().code_lines()[s[column]]
               : nullptr;
  };
  const auto text = [line](Col column, std::string analysis::CodeLine::*part) {
    return [=](const Stored& s) {
      const analysis::CodeLine* at = line(s, column);
      return at == nullptr ? Value() : Text(at->*part);
    };
  };
  const auto number = [line](Col column) {
    return [=](const Stored& s) {
      const analysis::CodeLine* at = line(s, column);
      return at == nullptr || at->line == 0 ? Value() : Int(uint64_t{at->line});
    };
  };
  return FromStored(
      n, kSchema, "code_samples",
      "where threads were in their code (`ingero run --where`)",
      {{{"t_ns", kInteger, "ns on CLOCK_MONOTONIC"},
        [](const Stored& s) { return Int(s.t()); }},
       At(n),
       {{"pid", kInteger, "process"},
        [n](const Stored& s) { return n->Pid(s.owner); }},
       Number("tid", kTid, "thread"),
       {{"file", kText, "of the innermost line of the user's own code"},
        text(kPlace, &analysis::CodeLine::file)},
       {{"line", kInteger, "NULL: not known"}, number(kPlace)},
       {{"function", kText, ""}, text(kPlace, &analysis::CodeLine::function)},
       {{"inner_file", kText, "of where it was, in a library maybe"},
        text(kInnermost, &analysis::CodeLine::file)},
       {{"inner_line", kInteger, ""}, number(kInnermost)},
       {{"inner_function", kText, ""},
        text(kInnermost, &analysis::CodeLine::function)},
       {{"kind", kText, "python"},
        [](const Stored& s) {
          return OrNull(s[kKind] == static_cast<uint64_t>(CodeKind::kPython)
                            ? "python"
                        : s[kKind] == static_cast<uint64_t>(CodeKind::kNative)
                            ? "native"
                            : nullptr);
        }},
       {{"state", kText, "running (or waiting for a CPU), asleep or blocked"},
        [](const Stored& s) {
          switch (static_cast<CodeState>(s[kState])) {
            case CodeState::kRunning: return OrNull("running");
            case CodeState::kAsleep: return OrNull("asleep");
            case CodeState::kBlocked: return OrNull("blocked");
            default: return OrNull(nullptr);
          }
        }},
       {{"name", kText, "CUDA function that it was in; NULL: in none"},
        [n](const Stored& s) {
          return s[kFunc] == 0 ? Value()
                               : n->FunctionName(static_cast<uint32_t>(
                                     s[kFunc] - 1));
        }}});
}

const char* GpuKindName(uint64_t kind) {
  switch (kind) {
    case INGERO_GPU_KERNEL: return "kernel";
    case INGERO_GPU_COPY: return "copy";
    case INGERO_GPU_MEMSET: return "memset";
    default: return nullptr;
  }
}

Table GpuActivity(std::shared_ptr<Names> n) {
  using namespace gpu_activity_table;
  return FromStored(
      n, kSchema, "gpu_activity",
      "what GPUs did (imported recordings; the shim sees calls alone)",
      {{{"begin_ns", kInteger, "begin, ns on CLOCK_MONOTONIC"},
        [](const Stored& s) { return Int(s.t()); }},
       At(n), Number("duration_ns", kDuration),
       {{"pid", kInteger, "process that it was for"},
        [n](const Stored& s) { return n->Pid(s.owner); }},
       {{"kind", kText, "kernel, copy or memset"},
        [](const Stored& s) { return OrNull(GpuKindName(s[kKind])); }},
       Number("gpu", kDevice), Number("stream", kStream),
       {{"name", kText, "of a kernel, demangled"},
        [n](const Stored& s) {
          return s[kKernel] == 0
                     ? Value()
                     : Text(n->reader().KernelName(s.owner, s[kKernel]));
        }},
       Number("bytes", kBytes, "copied or set; 0 = not said"),
       {{"direction", kText, "of a copy: host-to-device, ..."},
        [](const Stored& s) {
          return OrNull(DirectionName(
              static_cast<analysis::CopyDirection>(s[kDirection])));
        }},
       {{"call_ns", kInteger, "begin of the call that gave it; null: unknown"},
        [](const Stored& s) {
          return s[kCall] == 0 ? Value() : Int(s[kCall]);
        }}});
}

// A name with its numbers as '#': "step 12" and "step 13" are one.
std::string WithoutNumbers(string_view name) {
  std::string out;
  for (const char c : name) {
    const bool digit = c >= '0' && c <= '9';
    if (digit && !out.empty() && out.back() == '#') continue;
    out += digit ? '#' : c;
  }
  return out;
}

// A stretch of a process, and what its GPUs had to do meanwhile; that is looked
// for when it is asked for.
struct Stretch {
  Ns begin, length;
  uint32_t process = 0;
  mutable std::optional<std::array<Ns, 3>> fed;  // idle, busy, unknown
};

template <typename Row>
std::vector<Column<Row>> StretchColumns(std::shared_ptr<Names> n,
                                        std::vector<Column<Row>> own) {
  const auto fed = [n](size_t which) {
    return [n, which](const Row& s) {
      if (!s.fed) {
        using enum analysis::FeedState;
        s.fed.emplace();
        analysis::FeedInterval f;
        analysis::Part part(Interval{s.begin, s.begin + s.length});
        part.process = s.process;
        for (auto feeds = n->reader().Feeds(part); feeds->Next(&f);)
          (*s.fed)[f.state == kBusy ? 1 : f.state == kUnknown ? 2 : 0] +=
              f.time;
      }
      return Int((*s.fed)[which]);
    };
  };
  std::vector<Column<Row>> columns = {
      {{"begin_ns", kInteger, "begin, ns on CLOCK_MONOTONIC"},
       [](const Row& s) { return Int(s.begin); }},
      {{"at_s", kReal, "begin, s from the recording's begin"},
       [n](const Row& s) { return n->AtSeconds(s.begin); }},
      {{"duration_ns", kInteger, ""},
       [](const Row& s) { return Int(s.length); }},
      {{"pid", kInteger, "process"},
       [n](const Row& s) { return n->Pid(s.process); }}};
  for (Column<Row>& c : own) columns.push_back(std::move(c));
  columns.push_back(
      {{"gpu_idle_ns", kInteger,
        "of it, its GPUs had nothing to do for certain (sum over GPUs)"},
       fed(0)});
  columns.push_back(
      {{"gpu_busy_ns", kInteger, "they were busy for certain"}, fed(1)});
  columns.push_back(
      {{"gpu_unknown_ns", kInteger, "neither is known"}, fed(2)});
  return columns;
}

struct Step : Stretch {
  analysis::StepMark mark;
  uint64_t number = 0;
};

Table Steps(std::shared_ptr<Names> n) {
  Table table = MakeTable<Step>(
      "steps",
      "steps of programs, as their calls repeat; a program without a period has "
      "none",
      StretchColumns<Step>(
          n,
          {{{"tid", kInteger, "thread whose call bounds it"},
            [n](const Step& s) { return n->Tid(s.mark.thread); }},
           {{"name", kText, "function of that call"},
            [n](const Step& s) { return n->FunctionName(s.mark.func); }},
           {{"number", kInteger, "1, 2, ... in its process"},
            [](const Step& s) { return Int(s.number); }},
           {{"usual_submissions", kInteger, "work that a step hands to the GPU"},
            [](const Step& s) { return Int(s.mark.submissions); }}}),
      [n](const Filter& filter) {
        struct At {
          uint32_t process = 0;
          std::unique_ptr<analysis::Cursor<analysis::StepMark>> marks;
          std::optional<analysis::StepMark> last;
          uint64_t number = 0;
        };
        return [n, window = filter.window,
                at = std::make_shared<At>()](Step* step) {
          for (; at->process < n->reader().processes().size(); ++at->process) {
            if (at->marks == nullptr) {
              *at = {at->process, n->reader().Steps(at->process, kAlways),
                     std::nullopt, 0};
            }
            analysis::StepMark mark;
            while (at->marks->Next(&mark)) {
              if (at->last && mark.t <= at->last->t) continue;
              const auto last = std::exchange(at->last, mark);
              if (!last) continue;
              ++at->number;
              if (!window.Contains(last->t)) continue;
              step->begin = last->t;
              step->length = mark.t - last->t;
              step->process = at->process;
              step->mark = *last;
              step->number = at->number;
              step->fed.reset();
              return true;
            }
            at->marks = nullptr;
          }
          return false;
        };
      });
  table.rows = RowsOf(n->reader(), step_table::kSchema);
  return table;
}

struct MarkedStep : Stretch {
  Stored range;
  uint64_t number = 0;
  std::string name;
};

Table NvtxSteps(std::shared_ptr<Names> n) {
  using namespace nvtx_table;
  Table table = MakeTable<MarkedStep>(
      "nvtx_steps",
      "NVTX ranges that a program marked again and again (steps, epochs, ...)",
      StretchColumns<MarkedStep>(
          n, {{{"tid", kInteger, "thread that ended it"},
               [](const MarkedStep& s) { return Int(s.range[kTid]); }},
              {{"domain", kText, "of NVTX"},
               [](const MarkedStep& s) { return Text(s.range.Part(0)); }},
              {{"name", kText, "of the range, its numbers as #"},
               [](const MarkedStep& s) { return Text(s.name); }},
              {{"label", kText, "as the program gave it"},
               [](const MarkedStep& s) { return Text(s.range.Part(1)); }},
              {{"number", kInteger, "1, 2, ... of this name in its process"},
               [](const MarkedStep& s) { return Int(s.number); }}}),
      [n](const Filter& filter) {
        // How often each name occurs; numbers go on where a window begins.
        using Key = std::pair<uint32_t, std::string>;
        const auto key = [](const Stored& s) {
          return Key{s.owner, std::string(s.Part(0)) + '\0' +
                                  WithoutNumbers(s.Part(1))};
        };
        auto seen = std::make_shared<std::map<Key, std::array<uint64_t, 2>>>();
        Stored stored;
        for (auto rows = FromTable(n->reader(), kSchema, kAlways);
             rows(&stored);)
          if (stored[kKind] != INGERO_NVTX_MARK) ++(*seen)[key(stored)][0];
        return [=, window = filter.window,
                rows = FromTable(n->reader(), kSchema, kAlways)](
                   MarkedStep* step) mutable {
          while (rows(&step->range)) {
            if (step->range[kKind] == INGERO_NVTX_MARK) continue;
            const Key k = key(step->range);
            auto& [count, number] = (*seen)[k];
            if (count < 2) continue;
            step->number = ++number;
            step->begin = step->range.t();
            if (!window.Contains(step->begin)) continue;
            step->length = Ns(static_cast<int64_t>(step->range[kDuration]));
            step->process = step->range.owner;
            step->name = k.second.substr(k.second.find('\0') + 1);
            step->fed.reset();
            return true;
          }
          return false;
        };
      });
  table.rows = RowsOf(n->reader(), kSchema);
  return table;
}

Table KernelNames(std::shared_ptr<Names> n) {
  using namespace merge::kernel_name_table;
  return FromStored(
      n, kSchema, "kernels", "kernels that were registered or launched",
      {{{"pid", kInteger, "process"},
        [n](const Stored& s) { return n->Pid(static_cast<uint32_t>(s[kProcess])); }},
       {{"name", kText, "demangled"},
        [](const Stored& s) { return Text(s.Part(1)); }},
       {{"symbol", kText, "as in the module"},
        [](const Stored& s) { return Text(s.Part(0)); }}});
}

Table Processes(std::shared_ptr<Names> n) {
  using analysis::Process;
  std::vector<Column<Process>> columns = {
      {{"pid", kInteger, "in the host's root namespace where that is known"},
       [](const Process& p) { return Int(uint64_t{p.pid}); }},
      {{"ns_pid", kInteger, "in its own pid namespace"},
       [](const Process& p) { return Int(uint64_t{p.ns_pid}); }},
      {{"name", kText, "comm, as of the last rename"},
       [](const Process& p) { return Text(p.name); }},
      {{"exe", kText, ""}, [](const Process& p) { return Text(p.exe); }},
      {{"command", kText, "command line"},
       [](const Process& p) {
         std::string text = p.cmdline;
         std::replace(text.begin(), text.end(), '\x1f', ' ');
         return Text(text);
       }},
      {{"parent_pid", kInteger, ""},
       [n](const Process& p) { return n->Pid(p.parent); }},
      {{"start_ns", kInteger, "creation, ns on CLOCK_BOOTTIME"},
       [](const Process& p) { return Int(p.start); }},
      {{"first_seen_ns", kInteger, "ns on CLOCK_MONOTONIC"},
       [](const Process& p) { return Int(p.first_seen); }},
      {{"last_seen_ns", kInteger, "ns on CLOCK_MONOTONIC"},
       [](const Process& p) { return Int(p.last_seen); }},
      {{"exited_ns", kInteger, "NULL = it was not seen to end"},
       [](const Process& p) { return p.exited ? Int(*p.exited) : Value(); }},
      {{"exit_code", kInteger, "as wait() has it"},
       [](const Process& p) {
         return p.exit_code ? Value(*p.exit_code) : Value();
       }},
      {{"has_cuda", kInteger, "1: its CUDA calls were recorded"},
       [](const Process& p) { return Bool(p.has_cuda); }},
      {{"is_ingero", kInteger, "1: the recorder itself"},
       [](const Process& p) { return Bool(p.is_ingero); }},
      {{"is_kernel", kInteger, "1: a kernel thread"},
       [](const Process& p) { return Bool(p.is_kernel); }},
      {{"outside_scope", kInteger,
        "1: ingero-kprobe --tree named others; its switches are not complete"},
       [](const Process& p) { return Bool(p.outside_scope); }},
      {{"cpus_allowed", kInteger, "by its affinity; 0 = not known"},
       [](const Process& p) { return Int(uint64_t{p.cpus_allowed}); }},
      {{"cgroup_id", kInteger, "of the cpu controller"},
       [](const Process& p) { return Int(p.cgroup_id); }},
  };
  Table table = MakeTable<Process>(
      "processes", "every process that was seen", std::move(columns),
      [n](const Filter&) {
        return [n, next = size_t{0}](Process* out) mutable {
          if (next == n->reader().processes().size()) return false;
          *out = n->reader().processes()[next++];
          return true;
        };
      });
  table.rows = static_cast<double>(n->reader().processes().size());
  return table;
}

Table Threads(std::shared_ptr<Names> n) {
  using analysis::Thread;
  Table table = MakeTable<Thread>(
      "threads", "every thread that was seen",
      {{{"pid", kInteger, "process"},
        [n](const Thread& t) { return n->Pid(t.process); }},
       {{"tid", kInteger, ""},
        [](const Thread& t) { return Int(uint64_t{t.tid}); }},
       {{"name", kText, "comm"}, [](const Thread& t) { return Text(t.name); }},
       {{"process_name", kText, ""},
        [n](const Thread& t) { return n->ProcessName(t.process); }}},
      [n](const Filter&) {
        return [n, next = size_t{0}](Thread* out) mutable {
          if (next == n->reader().threads().size()) return false;
          *out = n->reader().threads()[next++];
          return true;
        };
      });
  table.rows = static_cast<double>(n->reader().threads().size());
  return table;
}

struct FindingOf {
  int64_t rank = 0;
  analysis::Finding finding;
};

Table Findings(std::shared_ptr<Names> n) {
  std::vector<Column<FindingOf>> columns = {
      {{"rank", kInteger, "1 = most time lost"},
       [](const FindingOf& f) { return Value(f.rank); }},
      {{"cause", kText, "as in docs/rules.md"},
       [](const FindingOf& f) { return Text(f.finding.cause); }},
      {{"severity", kText, "high, medium, low, info"},
       [](const FindingOf& f) {
         static constexpr std::array kNames = {"info", "low", "medium", "high"};
         return Text(kNames[static_cast<size_t>(f.finding.severity)]);
       }},
      {{"pid", kInteger, "process whose GPU starved"},
       [](const FindingOf& f) { return Int(uint64_t{f.finding.pid}); }},
      {{"claim", kText, ""},
       [](const FindingOf& f) { return Text(f.finding.claim); }},
      {{"lost_ns", kInteger, "known to be lost to it"},
       [](const FindingOf& f) { return Int(f.finding.lost); }},
      {{"lost_at_most_ns", kInteger, "with what may have been"},
       [](const FindingOf& f) { return Int(f.finding.lost_at_most); }},
      {{"base_ns", kInteger, "GPU use that it is a share of"},
       [](const FindingOf& f) { return Int(f.finding.base); }},
      {{"confidence", kText, "low, medium, high"},
       [](const FindingOf& f) {
         static constexpr std::array kNames = {"low", "medium", "high"};
         return Text(kNames[static_cast<size_t>(f.finding.confidence)]);
       }},
      {{"coverage", kText, "complete, or what is missing"},
       [](const FindingOf& f) { return Text(f.finding.coverage); }},
      {{"advice", kText, "the first"},
       [](const FindingOf& f) {
         return f.finding.recommendations.empty()
                    ? Value()
                    : Text(f.finding.recommendations[0].text);
       }},
  };
  Table table = MakeTable<FindingOf>(
      "findings", "what `ingero explain` finds in the whole recording",
      std::move(columns), [n](const Filter&) {
        auto rows = std::make_shared<std::vector<FindingOf>>();
        for (analysis::Finding& f :
             analysis::BuildReport(n->reader(), {}).findings)
          rows->push_back(
              {static_cast<int64_t>(rows->size()) + 1, std::move(f)});
        return From<FindingOf>(
            std::shared_ptr<const std::vector<FindingOf>>(rows));
      });
  table.rows = 10;
  return table;
}

Table Losses(std::shared_ptr<Names> n) {
  using analysis::Loss;
  return MakeTable<Loss>(
      "losses", "what was not recorded: where, how much, and what to change",
      {{{"begin_ns", kInteger, "of the time in which it was lost"},
        [](const Loss& l) { return Int(l.range.begin); }},
       {{"end_ns", kInteger, ""},
        [](const Loss& l) { return Int(l.range.end); }},
       {{"id", kText, ""}, [](const Loss& l) { return Text(l.id); }},
       {{"count", kInteger, "events"},
        [](const Loss& l) { return Int(l.count); }},
       {{"is_loss", kInteger, "1: data are missing; 0: a notice"},
        [](const Loss& l) { return Bool(l.severity >= 2); }},
       {{"side", kText, "cuda, kernel or code"},
        [](const Loss& l) { return Text(analysis::SideName(l.side)); }},
       {{"pid", kInteger, "NULL: of no process"},
        [n](const Loss& l) { return n->Pid(l.process); }},
       {{"text", kText, ""}, [](const Loss& l) { return Text(l.text); }}},
      [n](const Filter&) {
        return From<Loss>(std::make_shared<const std::vector<Loss>>(
            n->reader().losses()));
      });
}

Table Coverage(std::shared_ptr<Names> n) {
  using merge::ProcessCoverage;
  return MakeTable<ProcessCoverage>(
      "coverage", "processes with CUDA: what of their calls was seen",
      {{{"pid", kInteger, ""},
        [n](const ProcessCoverage& c) { return n->Pid(c.process); }},
       {{"name", kText, ""},
        [n](const ProcessCoverage& c) { return n->ProcessName(c.process); }},
       {{"recorded", kInteger, "1: a stream of it was merged"},
        [](const ProcessCoverage& c) { return Bool(c.recorded); }},
       {{"calls", kInteger, "recorded"},
        [](const ProcessCoverage& c) { return Int(c.calls); }},
       {{"skipped_calls", kInteger, "left out on request (INGERO_APIS)"},
        [](const ProcessCoverage& c) { return Int(c.skipped_calls); }},
       {{"why_not", kText, "nothing of it was recorded: the reason"},
        [](const ProcessCoverage& c) { return Text(c.not_recorded); }}},
      [n](const Filter&) {
        return From<ProcessCoverage>(
            std::make_shared<const std::vector<ProcessCoverage>>(
                merge::ReadCoverage(n->reader())));
      });
}

Table Streams(std::shared_ptr<Names> n) {
  using merge::StoredStream;
  return MakeTable<StoredStream>(
      "streams", "the files that were merged",
      {{{"file", kText, ""}, [](const StoredStream& s) { return Text(s.file); }},
       {{"kernel", kInteger, "1: the companion's"},
        [](const StoredStream& s) { return Bool(s.kernel); }},
       {{"code", kInteger, "1: the sampler's of code"},
        [](const StoredStream& s) { return Bool(s.code); }},
       {{"pid", kInteger, "of the recorded process"},
        [](const StoredStream& s) { return Int(s.pid); }},
       {{"begin_ns", kInteger, "ns on CLOCK_MONOTONIC"},
        [](const StoredStream& s) { return Int(s.span.begin); }},
       {{"end_ns", kInteger, ""},
        [](const StoredStream& s) { return Int(s.span.end); }},
       {{"events", kInteger, ""},
        [](const StoredStream& s) { return Int(s.events); }},
       {{"bytes", kInteger, ""},
        [](const StoredStream& s) { return Int(s.bytes); }},
       {{"skipped_calls", kInteger, "left out on request"},
        [](const StoredStream& s) { return Int(s.skipped_calls); }},
       {{"clock_error_ns", kInteger, "bound of its place in time"},
        [](const StoredStream& s) { return Int(s.clock_error_ns); }},
       {{"self_ns", kInteger, "time that recording took"},
        [](const StoredStream& s) { return Int(s.self_ns); }},
       {{"nesting_violations", kInteger,
         "calls that do not lie within the one around them: a wrong clock"},
        [](const StoredStream& s) { return Int(s.nesting_violations); }}},
      [n](const Filter&) {
        return From<StoredStream>(
            std::make_shared<const std::vector<StoredStream>>(
                n->reader().streams()));
      });
}

constexpr View kViews[] = {
    {"wakes", "who woke whom, and how long that waited for a CPU",
     "SELECT wake_ns, t_ns, at_s, wait_ns, next_pid AS pid, next_tid AS tid, "
     "next_name AS name, waker_pid, waker_tid, waker_name, wake_from_irq, cpu "
     "FROM switches WHERE wake_ns IS NOT NULL"},
    {"page_allocs", "pages allocated, by thread and stretch on a CPU",
     "SELECT t_ns, at_s, prev_pid AS pid, prev_tid AS tid, prev_name AS name, "
     "prev_pages AS pages FROM switches WHERE prev_pages > 0"},
    {"gpu", "samples of the GPUs (NVML)",
     "SELECT t_ns, at_s, iif(metric = 'gpu.process_memory', CAST(text AS "
     "INTEGER), instance) AS gpu, iif(metric = 'gpu.process_memory', instance, "
     "NULL) AS pid, metric, value, unit FROM system WHERE metric LIKE 'gpu.%'"},
    {"slow_steps", "steps, slowest first, and how long their GPUs idled",
     "SELECT pid, name, number, at_s, duration_ns, gpu_idle_ns, gpu_busy_ns, "
     "gpu_unknown_ns FROM steps ORDER BY duration_ns DESC"},
    {"starvation", "starved time by process and reason",
     "SELECT pid, reason, state, sum(ns) AS ns, sum(ns * known) AS known_ns, "
     "sum(stretches) AS stretches FROM path_totals GROUP BY pid, reason, state "
     "ORDER BY ns DESC"},
    {"cpu_holders", "who held the CPUs that the starved path waited for",
     "SELECT pid, culprit_pid, culprit_name, sum(ns) AS ns FROM path_totals WHERE "
     "reason = 'waiting-for-cpu' GROUP BY pid, culprit_pid, culprit_name "
     "ORDER BY ns DESC"},
    {"process_time", "what each process did with its time",
     "SELECT s.pid, p.name, sum(s.running_ns) AS running_ns, "
     "sum(s.runnable_ns) AS runnable_ns, sum(s.sleeping_ns) AS sleeping_ns, "
     "sum(s.io_ns) AS io_ns, sum(s.preempted) AS preempted, sum(s.pages) AS "
     "pages FROM sched_seconds AS s LEFT JOIN (SELECT pid, max(name) AS name "
     "FROM processes GROUP BY pid) AS p ON p.pid = s.pid GROUP BY s.pid "
     "ORDER BY running_ns DESC"},
    {"slowest_calls", "calls that the program itself made, slowest first",
     "SELECT begin_ns, at_s, duration_ns, pid, tid, name, bytes, kernel FROM "
     "calls WHERE depth = 0 AND first_call = 0 AND first_use = 0 "
     "ORDER BY duration_ns DESC"},
};

}  // namespace

std::vector<Table> StoreTables(const TraceReader& reader) {
  auto n = std::make_shared<Names>(reader);
  return {Calls(n),   Switches(n),   Operations(n), OperationSeconds(n),
          Feed(n, false), Path(n, Sums::kNone), Feed(n, true),
          Path(n, Sums::kBySecond), Path(n, Sums::kAll),
          Splits(n),  SchedSeconds(n), Processes(n), Threads(n),  System(n),     Tasks(n),
          Nvtx(n),    CodeSamples(n), GpuActivity(n), Steps(n),      NvtxSteps(n),  KernelNames(n),
          Findings(n), Losses(n),    Coverage(n),   Streams(n)};
}

std::span<const View> StoreViews() { return kViews; }

}  // namespace ingero::query
