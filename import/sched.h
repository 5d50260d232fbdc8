// SPDX-License-Identifier: Apache-2.0
// What perf recorded of the scheduler, as ingero's own kernel stream.
//
//   text -> ReadPerfSched() -> SchedEvents -> WriteKernelStream() -> a folder
//
// perf's text says who left a CPU and who came, when a thread was woken, births
// and execs; with call chains also by whom it was woken and in which system
// call it slept. Nothing else is made up: see NotTold().
//
// Threads: one. Memory: about 100 bytes an event.
// Errors: one line that says what, where and what to do. Files come from
// strangers: nothing in them is trusted.
#ifndef INGERO_IMPORT_SCHED_H_
#define INGERO_IMPORT_SCHED_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "import/import.h"

namespace ingero::import {

// What makes the text of a recording, as docs/import.md has it: without a part
// of it less can be said (see NotTold()). " -i FILE" may follow.
inline constexpr std::string_view kPerfScript =
    "perf script --header --ns --show-task-events --show-lost-events -F "
    "comm,pid,tid,cpu,time,event,ip,sym,trace";

// One event of the text, in its order.
struct SchedEvent {
  enum Kind : uint8_t {
    kSwitch,   // tid left, other came
    kWaking,   // tid was woken by self
    kWakeup,   // tid became runnable, maybe on another CPU than it was woken
    kWakeNew,  // tid is new, made by self
    kFork,     // of tid, by other
    kExec,     // of tid, whose thread was other
    kName,     // tid has this name
    kLost,     // count of events, before this moment
  };
  static constexpr uint32_t kNobody = UINT32_MAX;

  int64_t t = 0;
  uint32_t cpu = kNobody;
  uint32_t self = kNobody, self_tgid = kNobody;  // who ran when it was written
  uint32_t tid = 0, other = 0;
  uint32_t tgid = kNobody;  // of tid; kNobody = not told
  uint32_t name = 0, other_name = 0;  // of texts; kExec: name is the file's
  uint64_t count = 0;
  int16_t syscall = -1;
  uint16_t flags = 0;  // enum ingero_switch_flags; kSwitch, wakes
  uint8_t state = 0;   // kSwitch: INGERO_TASK_*
  Kind kind = kSwitch;
};

struct SchedEvents {
  enum class Clock : uint8_t {
    kNotTold,  // perf's own, unless its header was not printed
    kPerf,     // perf's own: nobody else has it
    kMonotonic,
    kOther,    // CLOCK_MONOTONIC_RAW and kin
  };
  Texts texts;
  std::vector<SchedEvent> events;
  std::string host;
  std::string path;  // of the file, for errors
  uint32_t cpus_online = 0;  // 0 = not told
  Clock clock = Clock::kNotTold;
  std::string clock_name;  // "monotonic_raw"
  // CLOCK_REALTIME minus the clock of the events; 0 = not told.
  int64_t real_minus_clock_ns = 0;
  // What the text has.
  bool pids = false;    // which process a thread is of
  bool wakes = false;
  bool chains = false;
  bool whole_us = true;  // times were rounded
  uint64_t switches = 0;
  uint64_t odd_lines = 0;  // of events that ingero wants, not understood
  std::string first_odd;   // its line number and beginning
  uint64_t no_events = 0;  // lines that are none, nor any part of one
  std::string first_no_event;
  // Where the text ends within an event's lines, "in line 12"; "" = it does
  // not, as far as can be told.
  std::string cut;
  // Between these two moments events may be missing, on any CPU: lines there
  // are no events, or the text was cut.
  struct Gap {
    int64_t since = 0, t = 0;
  };
  std::vector<Gap> gaps;  // by t
};

Result<SchedEvents> ReadPerfSched(const std::string& path,
                                  const Progress& progress);

// Rows of what the text does not say: "name: why (missing: what)".
std::vector<std::string> NotTold(const SchedEvents& events);

struct KernelWritten {
  uint64_t switches = 0, threads = 0, cpus = 0, lost = 0;
  int64_t begin_ns = 0, end_ns = 0;  // as written
};

// Threads of a process, as another trace tells: "which process" where perf's
// text does not say.
using ThreadsOf = std::map<uint32_t, uint32_t>;  // tid -> pid

// A kernel stream into `folder`, which exists. *placement, where not nullptr:
// what a trace that is joined with it needs.
Result<KernelWritten> WriteKernelStream(SchedEvents events,
                                        const ThreadsOf& threads_of,
                                        const std::string& folder,
                                        Placement* placement);

// Whether calls of `events` can have been made by the threads that `sched`
// tells of, on its clock: an error says why not.
Status CheckTogether(const Events& events, const std::string& events_path,
                     const SchedEvents& sched, const std::string& sched_path);

}  // namespace ingero::import

#endif  // INGERO_IMPORT_SCHED_H_
