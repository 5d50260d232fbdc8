// SPDX-License-Identifier: Apache-2.0
// What the analysis sees of a trace: plain values and cursors in time order.
//
// The store implements TraceSource (merge/store_trace.h); tests implement it
// from text (tests/support/trace_text.h). Nothing here knows LMDB, the wire or
// a clock: all times are Ns on the host's CLOCK_MONOTONIC, all intervals are
// half-open.
//
// Threads: a source and its cursors are used by one thread.
// Memory:  cursors hold a bounded number of decoded blocks.
#ifndef INGERO_ANALYSIS_TRACE_H_
#define INGERO_ANALYSIS_TRACE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/interval.h"
#include "base/units.h"

namespace ingero::analysis {

// Dense indices into TraceSource::processes() / threads() / functions(). One
// per life: a reused pid or tid gets a new index.
using ProcessIndex = uint32_t;
using ThreadIndex = uint32_t;
using FuncIndex = uint32_t;
inline constexpr uint32_t kNone = UINT32_MAX;

struct Process {
  uint32_t pid = 0;     // host's root namespace where a kernel stream tells,
                        // else as the process sees itself
  uint32_t ns_pid = 0;  // innermost pid namespace
  Ns start;             // creation, CLOCK_BOOTTIME ns (10 ms steps without a
                        // kernel stream); with pid: the identity
  Ns first_seen, last_seen;  // span over which the trace knows it
  std::optional<Ns> exited;
  std::optional<int64_t> exit_code;  // as wait() has it
  std::string name;                  // comm, as of the last rename
  std::string exe, cmdline;          // "" = not known
  ProcessIndex parent = kNone;
  ThreadIndex main_thread = kNone;
  bool has_cuda = false;   // a CUDA stream of it was merged
  bool is_ingero = false;  // our own companion or merge: never blamed
  bool is_kernel = false;  // kernel thread
  // Not of the tree that recording was limited to: known is only what it ran
  // on CPUs that one of the tree waited for.
  bool outside_scope = false;
  uint64_t cgroup_id = 0;  // of the cpu controller, as of the last event
  uint32_t cpus_allowed = 0;  // by its affinity at its first CUDA call; 0 = not
                              // known
  // A kernel that it launched in which a GPU waits for others (NCCL and its
  // like); "" = none known.
  std::string peer_kernel;
};

struct Thread {
  uint32_t tid = 0;
  ProcessIndex process = kNone;
  std::string name;
};

// enum ingero_class and ingero_layer of wire/wire.h have these values; the
// store converts. static_assert-ed in merge.
enum class CallClass : uint8_t {
  kOther = 0,
  kLaunch = 1,
  kGraphLaunch = 2,
  kCopy = 3,
  kCopyAsync = 4,
  kMemset = 5,
  kMemsetAsync = 6,
  kAlloc = 7,
  kAllocAsync = 8,
  kAllocHost = 9,
  kAllocManaged = 10,
  kFree = 11,
  kFreeAsync = 12,
  kFreeHost = 13,
  kSyncDevice = 14,
  kSyncStream = 15,
  kSyncEvent = 16,
  kQueryStream = 17,
  kQueryEvent = 18,
  kEventRecord = 19,
  kStreamWaitEvent = 20,
  kContext = 21,
  kDevice = 22,
  kModule = 23,
  kHostFunc = 24,
  kCapture = 25,
  kGraph = 26,
  kResolve = 27,
  kGetter = 28,
  kStream = 29,
  kEvent = 30,
  kPrefetch = 31,
  kRegister = 32,
  kNccl = 33,
  kCublas = 34,
  kCublasLt = 35,
  kCudnn = 36
};
// Entry points of libraries (NCCL, cuBLAS, ...) are recorded on request only.
// CUDA calls inside are recorded as well, so nothing but their own figures may
// depend on them.
enum class Layer : uint8_t { kRuntime = 1, kDriver = 2, kLibrary = 3 };

struct Function {
  std::string name;  // exact entry point, or the kernel-independent call name
  Layer layer = Layer::kRuntime;
  CallClass call_class = CallClass::kOther;
};

enum class CopyDirection : uint8_t {
  kUnknown = 0,
  kHostToDevice = 1,
  kDeviceToHost = 2,
  kDeviceToDevice = 3,
  kHostToHost = 4,
  kPeer = 5,
  kDefault = 6
};
enum class HostMemory : uint8_t { kUnknown = 0, kPinned = 1, kPageable = 2 };

struct Call {
  Ns begin, end;
  ThreadIndex thread = kNone;
  FuncIndex func = kNone;
  uint32_t result = 0;  // 0 = success
  uint8_t depth = 0;  // CUDA calls around it; of a library's: library calls
  bool first_use = false;   // first launch of its kernel in its process
  bool first_call = false;  // first call of its function in its process
  bool captured = false;    // recorded into a graph, not executed
  bool no_end = false;      // `end` is the end of its process or of the trace
  CopyDirection direction = CopyDirection::kUnknown;
  HostMemory host_memory = HostMemory::kUnknown;
  uint64_t bytes = 0;
  uint64_t stream = 0;  // handle; 0 = default stream
  uint64_t object = 0;  // kernel, event, graph, address, device: by class
  // Of imported calls that submit: when the GPU had finished that, and which
  // one it was. INT64_MIN = not known.
  Ns gpu_end{INT64_MIN};
  uint32_t gpu = 0;
};

enum class ThreadState : uint8_t {
  kUnknown = 0,
  kRunning = 1,
  kRunnable = 2,  // wants a CPU and has none
  kSleeping = 3,  // interruptible sleep
  kDisk = 4,      // waiting for block I/O (in_iowait)
  kBlocked = 5,   // uninterruptible sleep that is not I/O
  kStopped = 6,   // stopped or traced
  kDead = 7,
};

// One context switch on one CPU. Index kNone for a thread that is not known;
// `prev_idle`/`next_idle` for the idle task.
struct Switch {
  Ns t;
  uint16_t cpu = 0;
  ThreadIndex prev = kNone, next = kNone;
  bool prev_idle = false, next_idle = false;
  // The switches here since the row before were left out, but for the side of
  // `next` of the last: others had the CPU, and who left is not told.
  bool left_out = false;
  // kRunnable: see preempted. kUnknown: prev is outside the scope.
  ThreadState prev_state = ThreadState::kUnknown;
  bool preempted = false;  // prev did not leave by its own will
  bool yielded = false;    // prev called sched_yield
  int16_t prev_syscall = -1;
  uint64_t prev_arg0 = 0;
  // When `next` was woken; nullopt: it was not asleep, or not known.
  std::optional<Ns> wake;
  ThreadIndex waker = kNone;   // kNone: interrupt, idle or not known
  bool wake_from_irq = false;  // woken by a timer, device or network interrupt
  uint64_t prev_pages = 0;     // pages allocated since its previous switch-out
  uint64_t prev_min_faults = 0, prev_maj_faults = 0;
  Ns prev_kernel;  // of its CPU time, in the kernel; sampled by the tick
  // Of the time that `next` was runnable until now: its cgroup was out of CPU
  // quota.
  Ns next_throttled;
};

// A thread had to make room in memory before it got some. Short ones are told
// together: `range` ends with the last and is as long as all of them.
struct MemoryStall {
  Interval range;
  ThreadIndex thread = kNone;
  bool compaction = false;  // else reclaim
};

// State of a thread at some moment.
struct StateAt {
  ThreadIndex thread = kNone;
  ThreadState state = ThreadState::kUnknown;
  Ns since;
  uint16_t cpu = 0;  // last or current
  int16_t syscall = -1;
};

// Data missing in [range): rules must not conclude from silence there.
struct Loss {
  Interval range;
  std::string id;    // kebab-case, wire/wire.h
  std::string text;  // what happened; what to change
  int severity = 2;  // 2 data lost, 1 notice
  uint64_t count = 0;
  enum class Side { kCuda, kKernel, kCode } side = Side::kCuda;
  ProcessIndex process = kNone;  // CUDA side
};

inline const char* SideName(Loss::Side side) {
  return side == Loss::Side::kCuda     ? "cuda"
         : side == Loss::Side::kKernel ? "kernel"
                                       : "code";
}

struct Sample {
  Ns t;
  uint16_t metric;  // base/tables.h Metric
  uint64_t instance;
  uint64_t value;
  std::string text;
};

template <typename T>
class Cursor {
 public:
  virtual ~Cursor() = default;
  // False at the end. *out is overwritten.
  virtual bool Next(T* out) = 0;
};

class TraceSource {
 public:
  virtual ~TraceSource() = default;

  virtual Interval span() const = 0;  // first to last event of any stream
  virtual const std::vector<Process>& processes() const = 0;
  virtual const std::vector<Thread>& threads() const = 0;
  virtual const std::vector<Function>& functions() const = 0;
  virtual const std::vector<Loss>& losses() const = 0;
  // Spans in which scheduling was recorded; empty = no kernel stream.
  virtual const std::vector<Interval>& kernel_spans() const = 0;

  // Calls of one process that begin in `window`, by begin; an outer call
  // precedes the calls it contains.
  virtual std::unique_ptr<Cursor<Call>> Calls(ProcessIndex process,
                                              Interval window) const = 0;
  // Switches of all CPUs in `window`, by time.
  virtual std::unique_ptr<Cursor<Switch>> Switches(Interval window) const = 0;
  // Every thread's state at the newest keyframe at or before t, and that
  // keyframe's time. Empty (and span().begin) where there is none.
  virtual std::pair<Ns, std::vector<StateAt>> StatesAt(Ns t) const = 0;
  virtual std::unique_ptr<Cursor<Sample>> Samples(Interval window) const = 0;
  // Those that end in `window`, by end.
  virtual std::vector<MemoryStall> MemoryStalls(Interval window) const = 0;
};

}  // namespace ingero::analysis

#endif  // INGERO_ANALYSIS_TRACE_H_
