// SPDX-License-Identifier: Apache-2.0
// Where GPU-feeding time went: the heart of ingero.
//
// For each process with CUDA calls, its time between first and last GPU
// submission is cut into FeedState intervals. Every interval in which the GPU
// was or may have been starved is walked back from its end (the submission
// that ended it): while the submitting thread ran it was host work; while it
// was runnable it waited for whoever held the CPU, or for the next period of
// its cgroup's CPU quota; while it slept the walk jumps to the thread that woke
// it, at the moment of the waking, and goes on there, down to the interval's
// begin. Every nanosecond lands on exactly one PathCell; what cannot be known
// lands on kUnknown.
//
// Invariants (asserted on every fixture; in release builds too, where input
// that cannot be true is counted and never stops a merge):
//  (1) per process, feed intervals partition [first submission, end of the last
//      work]: idleness after that is shutting down, no starvation.
//  (2) the ns of the path cells of one starved interval sum to its length.
//  (3) the parts of a call's split sum to its duration.
//
// Bounded memory: the walk runs over windows from the newest to the oldest;
// one window's switches and calls are in memory at a time.
#ifndef INGERO_ANALYSIS_ATTRIBUTION_H_
#define INGERO_ANALYSIS_ATTRIBUTION_H_

#include <functional>

#include "analysis/trace.h"

namespace ingero::analysis {

// On disk (feed_table): append only.
enum class FeedState : uint8_t {
  // Drained by a synchronisation and nothing submitted since: the GPU had
  // nothing from this process.
  kIdle = 1,
  // Someone waits in a sync with work pending, or a launch waits for the full
  // queue: the GPU is working.
  kBusy = 2,
  // Work was submitted and nobody has asked since: busy or drained, unknown.
  kUnknown = 3,
  // The host itself copies pageable memory for the GPU, queue otherwise empty:
  // the GPU computes nothing.
  kHostCopy = 4,
  // Context creation, module load or first use of a kernel, queue empty.
  kColdStart = 5,
};

// On disk (path_table): append only.
enum class Reason : uint8_t {
  kUnknown = 0,        // no data: loss, no kernel stream, before the trace
  kHostCode = 1,       // running outside any CUDA call
  kCudaCall = 2,       // running inside a CUDA call that submits nothing
                       // (func says which)
  kWaitingForCpu = 3,  // runnable; culprit = longest holder of that CPU
  kDiskWait = 4,
  kSleepTimer = 5,    // asleep by its own choice: nanosleep and kin
  kSleepNetwork = 6,  // asleep in a socket or poll call, woken by interrupt
  kSleepOther = 7,    // asleep, woken by interrupt or nobody known
  kPageableCopy = 8,  // running inside a copy of pageable memory
  kColdStart = 9,     // inside first use, context creation, module load
  kStopped = 10,
  kBlocked = 11,     // uninterruptible sleep that is not block I/O
  kSubmitting = 12,  // inside the submitting call itself (launch, copy)
  kThrottled = 13,   // runnable; its cgroup had used up its CPU quota
  // Runnable; who held that CPU was not seen. kWaitingForCpu without a culprit:
  // nobody did.
  kHolderUnseen = 14,
  kReclaim = 15,     // freeing memory before it got some, or waiting for that
  kCompaction = 16,  // likewise: moving pages together
};

// Whether the GPU is known to have been starved during these ns.
// On disk: append only.
enum class Certainty : uint8_t {
  kKnown = 1,     // FeedState kIdle, kHostCopy, kColdStart
  kPossible = 2,  // FeedState kUnknown
};

struct FeedInterval {
  Interval range;
  Ns time;  // == range.length() unless folded
  // How many were folded into this one. Intervals are cut at multiples of
  // kCellLength; only the piece with the begin counts, so 0 = goes on.
  uint64_t intervals = 1;
  ProcessIndex process = kNone;
  uint32_t device = 0;
  FeedState state = FeedState::kUnknown;
};

// One stretch of a critical path, or many short ones of the same kind folded
// into a cell of at most kCellLength.
struct PathCell {
  Interval range;  // first to last stretch
  Ns time;         // sum of the stretches
  uint64_t stretches = 1;
  ProcessIndex process = kNone;               // the starved one
  ThreadIndex thread = kNone;                 // whose time this is
  ThreadState state = ThreadState::kUnknown;  // of `thread`
  Reason reason = Reason::kUnknown;
  ThreadIndex culprit = kNone;  // kWaitingForCpu: holder of the CPU
  FuncIndex func = kNone;       // kCudaCall, kPageableCopy, kColdStart
  Certainty certainty = Certainty::kKnown;
  uint64_t pages = 0;  // allocated by `thread` in these ns
  // What ended the starved interval this belongs to: class of the submission
  // (a host-to-device copy says that the work before it prepared data).
  CallClass ended_by = CallClass::kOther;
  int16_t syscall = -1;  // asleep in
  bool submits = false;  // `thread` submits GPU work of `process` itself
};

inline constexpr Ns kCellLength{10'000'000};
// A rule tells cells apart whose stretches are shorter on average.
inline constexpr Ns kShortStretch{50'000};

struct CallSplit {
  Ns begin;
  ThreadIndex thread = kNone;
  FuncIndex func = kNone;
  ProcessIndex process = kNone;
  Ns running, runnable, sleeping, io, unknown;
  ThreadIndex holder = kNone, waker = kNone;
  // First use of its kernel, or first call of its function; nullopt: stored by
  // an older ingero (see StartsUp()).
  std::optional<bool> starts_up;
};

// Of a split without the answer, the call is looked up.
bool StartsUp(const TraceSource& trace, const CallSplit& split);

// A step of `process` ends here and the next one begins. How a step is found:
// analysis/step_finder.h.
struct StepMark {
  Ns t;
  ProcessIndex process = kNone;
  ThreadIndex thread = kNone;
  FuncIndex func = kNone;
  uint32_t every = 1;        // so many of its calls are a step
  uint64_t submissions = 0;  // of a usual step
};

class AttributionSink {
 public:
  virtual ~AttributionSink() = default;
  // Any order; a store sorts by block.
  virtual void OnFeed(const FeedInterval& feed) = 0;
  virtual void OnPath(const PathCell& cell) = 0;
  virtual void OnSplit(const CallSplit& split) = 0;
  virtual void OnStep(const StepMark& mark) = 0;
};

// Called now and then with the fraction done, 0..1.
using Progress = std::function<void(double)>;

// What the attribution asks a trace for: all that its TraceSource::Switches or
// Calls(process) of `range` gives.
struct RowsWanted {
  Interval range;
  ProcessIndex process = kNone;  // whose calls; kNone: switches
};
// The next one; false after the last. For one thread, any.
using NextWanted = std::function<bool(RowsWanted*)>;

struct AttributeOptions {
  // Aim; a multiple of kCellLength is used. The result does not depend on it.
  Ns window{200'000'000};
  // Exactly this window, even where keyframes suggest a longer one (tests).
  bool exact_window = false;
  // Of the states at the windows' begins, together: more of them, and there are
  // half as many windows.
  size_t most_checkpoint_bytes = 96u << 20;
  // Told before each pass, so that rows can be read ahead, and with nullptr
  // after the last: what was given before is not called any more.
  std::function<void(NextWanted)> will_read;
};

// Rows that cannot be true (a damaged stream): left out or marked unknown.
struct Impossible {
  uint64_t calls = 0;     // out of order, or of no known thread or function
  uint64_t splits = 0;    // parts do not sum: all unknown
  uint64_t feeds = 0;     // devices whose feed intervals do not partition
  uint64_t switches = 0;  // out of order
  uint64_t total() const { return calls + splits + feeds + switches; }
};

// Reads the whole trace and reports everything to `sink`.
Impossible Attribute(const TraceSource& trace, AttributionSink* sink,
                     const Progress& progress, const AttributeOptions& options);
Impossible Attribute(const TraceSource& trace, AttributionSink* sink,
                     const Progress& progress);

}  // namespace ingero::analysis

#endif  // INGERO_ANALYSIS_ATTRIBUTION_H_
