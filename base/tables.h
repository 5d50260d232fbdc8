// SPDX-License-Identifier: Apache-2.0
// The tables of the store and of kernel streams: which columns a row has.
//
// One place for all of them, because the companion writes some, merge writes
// the rest, and dump, SQL and the tests read any by name. Ids and column
// numbers are on disk: append, never renumber. Times are ns on the host's
// CLOCK_MONOTONIC. "owner" is the block's owner field and part of its key.
#ifndef INGERO_BASE_TABLES_H_
#define INGERO_BASE_TABLES_H_

#include <array>

#include "base/block_codec.h"

namespace ingero {

using enum Transform;


// ---- written by the companion -------------------------------------------

// Context switches. owner = cpu. Sorted by time. Meanings: struct
// ingero_ring_switch in wire/wire.h.
namespace switch_table {
enum Col : size_t {
  kT, kPrevTid, kPrevTgid, kNextTid, kNextTgid, kFlags, kPrevState,
  kPrevSyscall,  // number + 1; 0 = none
  kPrevArg0, kPrevArg1, kWakeT, kWakerTid, kWakerTgid, kPrevPages,
  kPrevLargeAllocs, kPrevMinFaults, kPrevMajFaults, kPrevKernelUs,
  kNextThrottledNs, kCount
};
inline constexpr Column kColumns[] = {
    {"t_ns", kDelta},        {"prev_tid", kDelta},   {"prev_tgid", kDelta},
    {"next_tid", kDelta},    {"next_tgid", kDelta},  {"flags", kPlain},
    {"prev_state", kPlain},  {"prev_syscall", kPlain}, {"prev_arg0", kPlain},
    {"prev_arg1", kPlain},   {"wake_ns", kMinusTime}, {"waker_tid", kPlain},
    {"waker_tgid", kPlain},  {"prev_pages", kPlain},
    {"prev_large_allocs", kPlain}, {"prev_min_faults", kPlain},
    {"prev_maj_faults", kPlain}, {"prev_kernel_us", kPlain},
    {"next_throttled_ns", kPlain}};
static_assert(std::size(kColumns) == kCount);
inline constexpr TableSchema kSchema{1, "switches", kColumns, false};
}  // namespace switch_table

// Life of tasks: enum ingero_task_event. owner = 0. text = comm, or for
// EXISTING/FORK/EXEC of a process: comm NUL exe NUL cmdline (args by 0x1f),
// as far as known.
namespace task_table {
enum Col : size_t {
  kT, kEvent, kTid, kTgid, kParentTid, kParentTgid, kStartNs, kNsTid, kNsTgid,
  kPidNamespace, kCgroupId, kCode, kCount
};
inline constexpr Column kColumns[] = {
    {"t_ns", kDelta},       {"event", kPlain},     {"tid", kDelta},
    {"tgid", kDelta},       {"parent_tid", kDelta}, {"parent_tgid", kDelta},
    {"start_ns", kDelta},   {"ns_tid", kDelta},    {"ns_tgid", kDelta},
    {"pid_namespace", kDelta}, {"cgroup_id", kDelta}, {"code", kZigzag}};
static_assert(std::size(kColumns) == kCount);
inline constexpr TableSchema kSchema{2, "tasks", kColumns, true};
}  // namespace task_table

// System samples. owner = 0. metric: enum Metric.
namespace sample_table {
enum Col : size_t { kT, kMetric, kInstance, kValue, kCount };
inline constexpr Column kColumns[] = {{"t_ns", kDelta},
                                      {"metric", kPlain},
                                      {"instance", kPlain},
                                      {"value", kPlain}};
static_assert(std::size(kColumns) == kCount);
inline constexpr TableSchema kSchema{3, "samples", kColumns, true};
}  // namespace sample_table

// On disk: append. Counters are totals since boot unless said otherwise.
// X(enumerator, value, "name", unit, meaning of instance)
#define INGERO_METRICS(X)                                                    \
  X(kCpuOnline, 1, "cpu.online", "cpus", "")                                 \
  X(kCpuBusyNs, 2, "cpu.busy", "ns", "cpu")                                  \
  X(kCpuIdleNs, 3, "cpu.idle", "ns", "cpu")                                  \
  X(kCpuStealNs, 4, "cpu.steal", "ns", "cpu")                                \
  X(kContextSwitches, 5, "cpu.switches", "count", "")                        \
  X(kLoad1, 6, "load.1m", "1/1000", "")                                      \
  X(kPsiCpuSomeUs, 7, "psi.cpu.some", "us", "")                              \
  X(kPsiIoSomeUs, 8, "psi.io.some", "us", "")                                \
  X(kPsiIoFullUs, 9, "psi.io.full", "us", "")                                \
  X(kPsiMemorySomeUs, 10, "psi.memory.some", "us", "")                       \
  X(kPsiMemoryFullUs, 11, "psi.memory.full", "us", "")                       \
  X(kMemAvailableBytes, 12, "mem.available", "bytes", "")                    \
  X(kMemTotalBytes, 13, "mem.total", "bytes", "")                            \
  X(kSwapUsedBytes, 14, "swap.used", "bytes", "")                            \
  X(kCgroupPeriods, 15, "cgroup.periods", "count",                           \
    "id of a cgroup with a quota of its own; text: its path")                \
  X(kCgroupThrottled, 16, "cgroup.throttled", "count", "cgroup id")          \
  X(kCgroupThrottledNs, 17, "cgroup.throttled_time", "ns", "cgroup id")      \
  X(kGpuUtilization, 18, "gpu.utilization", "percent", "GPU")                \
  X(kGpuMemoryUsedBytes, 19, "gpu.memory", "bytes", "GPU")                   \
  X(kGpuSmClockMhz, 20, "gpu.clock.sm", "MHz", "GPU")                        \
  X(kGpuThrottleReasons, 21, "gpu.throttle", "NVML bit mask", "GPU")         \
  X(kGpuProcesses, 22, "gpu.processes", "count", "GPU")                      \
  X(kPageCostNs, 23, "page.cost", "ns", "measured once by the companion: "   \
    "first touch of one 4 KiB page of anonymous memory")                     \
  X(kOwnCpuNs, 24, "ingero.cpu", "ns", "companion's own CPU time")          \
  X(kSwitchesSeen, 25, "ingero.switches_seen", "count",                      \
    "cpu; switches that the BPF program saw: recorded + lost")               \
  X(kCudaProcess, 26, "cuda.process", "enum ingero_cuda_process",            \
    "pid of a process with a CUDA library mapped; text: its path")           \
  X(kCgroupQuotaNs, 27, "cgroup.quota", "ns a period", "cgroup id")          \
  X(kCgroupPeriodNs, 28, "cgroup.period", "ns", "cgroup id")                 \
  X(kCgroupQuotaAbove, 29, "cgroup.quota_above",                             \
    "id of the nearest cgroup above that has a quota; 0 = none",             \
    "id of a cgroup with or below a quota; text: its path")                  \
  X(kThrottleClock, 30, "cgroup.throttle_clock",                             \
    "enum ingero_throttle_clock", "")                                        \
  X(kCpuIrqNs, 31, "cpu.irq", "ns", "cpu; part of cpu.busy")                 \
  X(kCpuSoftirqNs, 32, "cpu.softirq", "ns", "cpu; part of cpu.busy")         \
  X(kMemoryStalls, 33, "memory.stalls_recorded",                             \
    "bit mask: enum ingero_task_event of the stalls that are recorded", "")  \
  X(kGpuXid, 34, "gpu.xid", "number of an error that the NVIDIA driver "     \
    "logged just now", "text: the line of the kernel log")                     \
  X(kAllocationsSeen, 35, "ingero.allocations_seen", "count",                \
    "cpu; with --pages raw: allocations that the BPF program saw")           \
  X(kGpuMemoryClockMhz, 36, "gpu.clock.memory", "MHz", "GPU")                \
  X(kGpuPowerMw, 37, "gpu.power", "mW", "GPU")                               \
  X(kGpuTemperatureC, 38, "gpu.temperature", "degrees Celsius", "GPU")       \
  X(kGpuPcieSentKbPerS, 39, "gpu.pcie.sent", "KB/s over 20 ms", "GPU")       \
  X(kGpuPcieReceivedKbPerS, 40, "gpu.pcie.received", "KB/s over 20 ms",      \
    "GPU")                                                                   \
  X(kGpuProcessBytes, 41, "gpu.process_memory",                              \
    "bytes of GPU memory that the process uses; all ones: not told",         \
    "pid, as the companion sees it; text: the GPU")             \
  X(kScope, 42, "ingero.scope", "1", "text: whose switches are recorded "    \
    "(--tree); no such sample = everybody's")                                \
  X(kSwitchesLeftOut, 43, "ingero.switches_left_out", "count",               \
    "cpu; of the switches seen: of others, left out by --tree")              \
  X(kProbeSkipped, 44, "ingero.probe_skipped", "1",                          \
    "any; text: the kernel event that is not recorded, why, and what is "    \
    "missing for it")                                                        \
  X(kRecorder, 45, "ingero.recorder", "1",                                   \
    "text: what recorded the scheduler; no such sample = ingero-kprobe")     \
  X(kCodeCpuNs, 46, "code.cpu", "ns, of the sampler of code",                \
    "looks a second that were asked for")                                    \
  X(kCodeProblem, 47, "code.problem", "1",                                   \
    "pid, as the sampler of code sees it; text: why its code was not "       \
    "looked at, or not all of it. The first with that reason")

enum class Metric : uint16_t {
#define X(id, value, name, unit, instance) id = value,
  INGERO_METRICS(X)
#undef X
};

// Losses. owner = cpu (companion) or 65536 + stream index (merge). t = begin
// of the range in which the count was lost.
namespace loss_table {
enum Col : size_t { kT, kEndT, kLoss, kCountLost, kCount };
inline constexpr Column kColumns[] = {{"t_ns", kDelta},
                                      {"end_ns", kDelta},
                                      {"loss", kPlain},
                                      {"count", kPlain}};
static_assert(std::size(kColumns) == kCount);
inline constexpr TableSchema kSchema{4, "losses", kColumns, false};
}  // namespace loss_table

// Paired clock samples, host-wide. owner = 0.
namespace knot_table {
enum Col : size_t { kT, kTsc, kWindowTicks, kRealNs, kCount };
inline constexpr Column kColumns[] = {{"mono_ns", kDelta},
                                      {"tsc", kDelta},
                                      {"window_ticks", kPlain},
                                      {"real_ns", kDelta}};
static_assert(std::size(kColumns) == kCount);
inline constexpr TableSchema kSchema{5, "knots", kColumns, false};
}  // namespace knot_table

// Allocations of pages, each of its own: only of `ingero-kprobe --pages raw`.
// owner = cpu. Sorted by time.
namespace allocation_table {
enum Col : size_t { kT, kTid, kTgid, kOrder, kCount };
inline constexpr Column kColumns[] = {{"t_ns", kDelta},
                                      {"tid", kDelta},  // 0: idle task, in an
                                                        // interrupt
                                      {"tgid", kDelta},
                                      {"order", kPlain}};  // 2^order pages
static_assert(std::size(kColumns) == kCount);
inline constexpr TableSchema kSchema{6, "allocations", kColumns, false};
}  // namespace allocation_table

// ---- written by the sampler of code (code_sampler/) -----------------------

// Where the threads of a program were in its code. owner = 0. Sorted by time.
namespace code_read_table {
enum Col : size_t {
  kT, kPid, kTid,  // in the pid namespace of the stream's writer
  kPlace,          // id of code_places: the innermost line of the user's own
  kInnermost,      // likewise: where it was
  kKind,           // enum CodeKind
  kState,          // enum CodeState
  kCount
};
inline constexpr Column kColumns[] = {{"t_ns", kDelta},   {"pid", kDelta},
                                      {"tid", kDelta},    {"place", kDelta},
                                      {"innermost", kDelta}, {"kind", kPlain},
                                      {"state", kPlain}};
static_assert(std::size(kColumns) == kCount);
inline constexpr TableSchema kSchema{7, "code_read", kColumns, false};
}  // namespace code_read_table

// On disk: append.
enum class CodeKind : uint8_t {
  kPython = 1,
  kNative = 2,  // the instruction of a running thread; place = innermost
};

// What the thread did, as /proc said at that moment. On disk: append.
enum class CodeState : uint8_t {
  kUnknown = 0,
  kRunning = 1,  // or waited for a CPU
  kAsleep = 2,
  kBlocked = 3,  // uninterruptible: disk and the like
};

// What the ids of code_read mean; a place precedes or follows its first use.
// owner = 0. text = file NUL function.
namespace code_place_table {
enum Col : size_t {
  kT, kPlace,
  kLine,   // 0 = not known
  kFlags,  // CodePlaceFlag
  kCount
};
enum CodePlaceFlag : uint64_t {
  kUser = 1,  // the user's own code, not of Python or an installed package
};
inline constexpr Column kColumns[] = {{"t_ns", kDelta},
                                      {"place", kDelta},
                                      {"line", kPlain},
                                      {"flags", kPlain}};
static_assert(std::size(kColumns) == kCount);
inline constexpr TableSchema kSchema{8, "code_places", kColumns, true};
}  // namespace code_place_table

// ---- written by merge ---------------------------------------------------

// Finished and in-flight calls. owner = process index. Sorted by begin.
namespace call_table {
enum Col : size_t {
  kT, kDuration, kTid,  // host tid where known, else the stream's own
  kFunc,                // function index of the store
  kResult, kDepth,
  kFlags,  // wire call flags in bits 0..7; CallFlag above
  kWord0, kWord1, kWord2, kWord3, kCount
};
// Bits of kFlags added by merge.
enum CallFlag : uint64_t {
  kHostPinned = 1 << 8,    // copy: the host side lies in pinned memory
  kHostPageable = 1 << 9,  // copy: the host side is not pinned
  kNoEnd = 1 << 10,        // in flight when its process or the trace ended
  kFirstCall = 1 << 11,    // first call of this function in its process
};
inline constexpr Column kColumns[] = {
    {"begin_ns", kDelta}, {"duration_ns", kPlain}, {"tid", kDelta},
    {"func", kPlain},     {"result", kPlain},      {"depth", kPlain},
    {"flags", kPlain},    {"word0", kDelta},       {"word1", kDelta},
    {"word2", kDelta},    {"word3", kDelta}};
static_assert(std::size(kColumns) == kCount);
inline constexpr TableSchema kSchema{16, "calls", kColumns, false};
}  // namespace call_table

// Attribution: where a starved process's GPU-feeding time went. owner =
// starved process index. Rows cover [t, end) and hold `ns` of it: equal for a
// single stretch, less where short stretches of one kind were folded into a
// cell (see analysis/attribution.h). Sorted by t.
namespace path_table {
enum Col : size_t {
  kT, kEndOffset,  // end - t
  kNs, kStretches, kThread, kState, kReason, kCulprit, kFunc, kCertainty,
  kPages, kDetail, kCount
};
inline constexpr Column kColumns[] = {
    {"t_ns", kDelta},     {"length_ns", kPlain}, {"ns", kPlain},
    {"stretches", kPlain}, {"thread", kDelta},   {"state", kPlain},
    {"reason", kPlain},   {"culprit", kPlain},   {"func", kPlain},
    {"certainty", kPlain}, {"pages", kPlain},    {"detail", kPlain}};
static_assert(std::size(kColumns) == kCount);
inline constexpr TableSchema kSchema{17, "path", kColumns, false};
}  // namespace path_table

// GPU feeding. owner = process index. kState: analysis::FeedState.
namespace feed_table {
enum Col : size_t { kT, kLength, kNs, kIntervals, kDevice, kState, kCount };
inline constexpr Column kColumns[] = {{"t_ns", kDelta},  {"length_ns", kPlain},
                                      {"ns", kPlain},    {"intervals", kPlain},
                                      {"device", kPlain}, {"state", kPlain}};
static_assert(std::size(kColumns) == kCount);
inline constexpr TableSchema kSchema{18, "feed", kColumns, false};
}  // namespace feed_table

// Split of calls during which their thread left the CPU, waited for one, or
// was not known. owner = process index. A call without a row ran throughout.
// Parts sum to the call's duration.
namespace split_table {
enum Col : size_t {
  kT, kTid, kFunc, kRunningNs, kRunnableNs, kSleepingNs, kIoNs, kUnknownNs,
  kHolder,  // thread index that held the CPU longest; plus 1, 0 = none
  kWaker,   // thread index of the last waker; plus 1
  kStartsUp,  // first use or first call: 2 yes, 1 no, 0 not told
  kCount
};
inline constexpr Column kColumns[] = {
    {"begin_ns", kDelta},  {"tid", kDelta},        {"func", kPlain},
    {"running_ns", kPlain}, {"runnable_ns", kPlain}, {"sleeping_ns", kPlain},
    {"io_ns", kPlain},     {"unknown_ns", kPlain}, {"holder", kPlain},
    {"waker", kPlain},     {"starts_up", kPlain}};
static_assert(std::size(kColumns) == kCount);
inline constexpr TableSchema kSchema{19, "splits", kColumns, false};
}  // namespace split_table

// What each thread was doing at the keyframe's time, so that any window can
// be opened without reading from the start. owner = 0; all rows of one
// keyframe share t. kState: analysis::ThreadState.
namespace keyframe_table {
enum Col : size_t {
  kT, kTid, kTgid, kState, kSince, kCpu, kSyscall, kFlags, kCount
};
inline constexpr Column kColumns[] = {
    {"t_ns", kDelta},  {"tid", kDelta},        {"tgid", kDelta},
    {"state", kPlain}, {"since_ns", kMinusTime}, {"cpu", kPlain},
    {"syscall", kPlain}, {"flags", kPlain}};
static_assert(std::size(kColumns) == kCount);
inline constexpr TableSchema kSchema{20, "keyframes", kColumns, false};
}  // namespace keyframe_table

// Scheduling per second and thread. owner = 0: of the second in which it was
// known. owner = 1: what was known later (how a long sleep began), also rows of
// several whole seconds in one state. t = begin of the first second. A (second,
// thread) may have several rows: they add up.
namespace sched_summary_table {
enum Col : size_t {
  kT, kTid, kTgid, kPreempted, kSlept, kYielded, kRunningNs, kRunnableNs,
  kSleepingNs, kIoNs, kWorstOffCpuNs, kPages, kMinFaults, kMajFaults,
  kSeconds,  // whole seconds that the row covers; 0 = 1
  kKernelNs,  // part of running_ns, sampled
  kCount
};
inline constexpr Column kColumns[] = {
    {"t_ns", kDelta},      {"tid", kDelta},        {"tgid", kDelta},
    {"preempted", kPlain}, {"slept", kPlain},      {"yielded", kPlain},
    {"running_ns", kPlain}, {"runnable_ns", kPlain}, {"sleeping_ns", kPlain},
    {"io_ns", kPlain},     {"worst_off_cpu_ns", kPlain}, {"pages", kPlain},
    {"min_faults", kPlain}, {"maj_faults", kPlain}, {"seconds", kPlain},
    {"kernel_ns", kPlain}};
static_assert(std::size(kColumns) == kCount);
inline constexpr TableSchema kSchema{21, "sched_summary", kColumns, false};
}  // namespace sched_summary_table

// Calls per second, process and function. owner = process index. text = the
// serialized histogram (base/histogram.h) of durations, first uses excluded.
namespace op_summary_table {
enum Col : size_t {
  kT, kFunc, kCalls, kTotalNs, kOutermostNs, kMaxNs, kFirstUses, kFirstUseNs,
  kErrors, kBytes, kCount
};
inline constexpr Column kColumns[] = {
    {"t_ns", kDelta},     {"func", kDelta},      {"calls", kPlain},
    {"total_ns", kPlain}, {"outermost_ns", kPlain}, {"max_ns", kPlain},
    {"first_uses", kPlain}, {"first_use_ns", kPlain}, {"errors", kPlain},
    {"bytes", kPlain}};
static_assert(std::size(kColumns) == kCount);
inline constexpr TableSchema kSchema{22, "op_summary", kColumns, true};
}  // namespace op_summary_table

// NVTX ranges of the program. owner = process index. Sorted by begin. text =
// domain NUL name.
namespace nvtx_table {
enum Col : size_t {
  kT, kDuration, kTid,  // tid of the thread that ended it; kOpen: began it
  kKind,                // enum ingero_nvtx_kind
  kOpen,  // 1: it had no end, and lasted to that of its process or the trace
  kCount
};
inline constexpr Column kColumns[] = {{"begin_ns", kDelta},
                                      {"duration_ns", kPlain},
                                      {"tid", kDelta},
                                      {"kind", kPlain},
                                      {"open", kPlain}};
static_assert(std::size(kColumns) == kCount);
inline constexpr TableSchema kSchema{23, "nvtx", kColumns, true};
}  // namespace nvtx_table

// Where the steps of a program begin and end: a call that bounds them. owner =
// process index. Programs without a period have no rows.
namespace step_table {
enum Col : size_t {
  kT, kTid, kFunc,
  kEvery,        // so many such calls are a step
  kSubmissions,  // of a usual step
  kCount
};
inline constexpr Column kColumns[] = {{"t_ns", kDelta},
                                      {"tid", kDelta},
                                      {"func", kPlain},
                                      {"every", kPlain},
                                      {"submissions", kPlain}};
static_assert(std::size(kColumns) == kCount);
inline constexpr TableSchema kSchema{24, "steps", kColumns, false};
}  // namespace step_table

// Rows of path and feed, summed by second and kind: the same columns and the
// same sums in a tenth of the rows, for questions about a long time. A second
// and kind may have several rows: they add up.
namespace path_seconds_table {
inline constexpr TableSchema kSchema{25, "path_seconds", path_table::kColumns,
                                     false};
}  // namespace path_seconds_table
namespace feed_seconds_table {
inline constexpr TableSchema kSchema{26, "feed_seconds", feed_table::kColumns,
                                     false};
}  // namespace feed_seconds_table

// Rows of op_summary, summed by minute.
namespace op_minutes_table {
inline constexpr TableSchema kSchema{27, "op_minutes",
                                     op_summary_table::kColumns, true};
}  // namespace op_minutes_table

// What GPUs did (imported recordings). owner = process index. Sorted by begin.
namespace gpu_activity_table {
enum Col : size_t {
  kT, kDuration,
  kKind,    // enum ingero_gpu_kind
  kDevice, kStream,
  kKernel,  // key of kernel_names; 0 = none
  kBytes, kDirection,
  kCall,    // begin of the call that submitted it; 0 = not known
  kCount
};
inline constexpr Column kColumns[] = {
    {"begin_ns", kDelta}, {"duration_ns", kPlain}, {"kind", kPlain},
    {"device", kPlain},   {"stream", kDelta},      {"kernel", kDelta},
    {"bytes", kPlain},    {"direction", kPlain},   {"call_ns", kMinusTime}};
static_assert(std::size(kColumns) == kCount);
inline constexpr TableSchema kSchema{28, "gpu_activity", kColumns, false};
}  // namespace gpu_activity_table

// Rows of sched_summary, summed by minute and process (index). owner = 0. t =
// begin of the minute. A (minute, process) may have several rows: they add up.
// Where there are such, no row of sched_summary reaches over a minute's border.
namespace sched_minutes_table {
enum Col : size_t {
  kT, kProcess, kPreempted, kSlept, kYielded, kRunningNs, kRunnableNs,
  kSleepingNs, kIoNs, kWorstOffCpuNs, kPages, kMinFaults, kMajFaults, kKernelNs,
  kCount
};
inline constexpr Column kColumns[] = {
    {"t_ns", kDelta},      {"process", kDelta},
    {"preempted", kPlain}, {"slept", kPlain},      {"yielded", kPlain},
    {"running_ns", kPlain}, {"runnable_ns", kPlain}, {"sleeping_ns", kPlain},
    {"io_ns", kPlain},     {"worst_off_cpu_ns", kPlain}, {"pages", kPlain},
    {"min_faults", kPlain}, {"maj_faults", kPlain}, {"kernel_ns", kPlain}};
static_assert(std::size(kColumns) == kCount);
inline constexpr TableSchema kSchema{29, "sched_minutes", kColumns, false};
}  // namespace sched_minutes_table

// Where threads were in their code: code_read, joined with what they did. owner
// = process index. Sorted by time.
namespace code_table {
enum Col : size_t {
  kT, kTid,
  kPlace, kInnermost,  // row of code_lines (merge/schema.h)
  kKind,               // enum CodeKind
  kState,              // enum CodeState
  kFunc,  // of the outermost CUDA call that the thread was in, plus 1; 0 = none
  kCount
};
inline constexpr Column kColumns[] = {{"t_ns", kDelta},  {"tid", kDelta},
                                      {"place", kDelta}, {"innermost", kDelta},
                                      {"kind", kPlain},  {"state", kPlain},
                                      {"func", kPlain}};
static_assert(std::size(kColumns) == kCount);
inline constexpr TableSchema kSchema{30, "code_samples", kColumns, false};
}  // namespace code_table

inline constexpr std::array kAllTables = {
    &switch_table::kSchema,   &task_table::kSchema,
    &sample_table::kSchema,   &loss_table::kSchema,
    &knot_table::kSchema,     &allocation_table::kSchema,
    &call_table::kSchema,
    &path_table::kSchema,     &feed_table::kSchema,
    &split_table::kSchema,    &keyframe_table::kSchema,
    &sched_summary_table::kSchema, &op_summary_table::kSchema,
    &nvtx_table::kSchema,     &step_table::kSchema,
    &path_seconds_table::kSchema, &feed_seconds_table::kSchema,
    &op_minutes_table::kSchema, &gpu_activity_table::kSchema,
    &sched_minutes_table::kSchema, &code_read_table::kSchema,
    &code_place_table::kSchema, &code_table::kSchema};

// nullptr where no table has this id.
constexpr const TableSchema* FindTable(uint16_t id) {
  for (const TableSchema* t : kAllTables)
    if (t->id == id) return t;
  return nullptr;
}

}  // namespace ingero

#endif  // INGERO_BASE_TABLES_H_
