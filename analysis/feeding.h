// SPDX-License-Identifier: Apache-2.0
// GPU feeding of one process, from its CUDA calls alone: was there work on the
// GPU, surely not, or can nobody know?
//
// A state machine over calls in order of their begin; ends are replayed from a
// heap. How each class of call moves it is measured in docs/rules.md, "How the
// GPU queue is followed". Runtime calls and the driver calls in them are both
// seen: what a submitting or waiting call contains is ignored, and a drain
// counts at the end of the outermost call.
//
// Where the recording says what the GPU did (imported traces: Call::gpu_end), a
// device is busy from a submission until that work has ended, whoever waits.
//
// The model is a plain value: a copy is a checkpoint, so that windows can be
// run again from their begin.
//
// Units: positions count submissions per device.
// Memory: grows with live streams and events that the GPU may still have to
// reach (at most kMaxEvents), not time.
#ifndef INGERO_ANALYSIS_FEEDING_H_
#define INGERO_ANALYSIS_FEEDING_H_

#include <string_view>
#include <unordered_map>
#include <vector>

#include "analysis/attribution.h"
#include "analysis/trace.h"

namespace ingero::analysis {

// What feeding needs of a function, resolved once per trace.
struct FuncTraits {
  // What a successful call says about CUDA contexts.
  enum class Context : uint8_t {
    kNothing,
    kPrimary,  // gives a device's primary one
    kOwn,      // makes one, current from then on
    kGreen,    // makes one of a part of a device
    kCurrent   // changes the thread's current one
  };
  CallClass call_class = CallClass::kOther;
  bool sets_device = false;  // cudaSetDevice: object is the thread's device
  bool library = false;      // no CUDA call: tells nothing about the GPU
  Context context = Context::kNothing;
  // A kSyncDevice that waits for one context, not for the device.
  bool of_context = false;
};
std::vector<FuncTraits> MakeFuncTraits(const std::vector<Function>& functions);

// Context creation, module load, first use of a kernel: paid once.
bool IsColdStart(const Call& call, const FuncTraits& traits);

// Whether a GPU waits for other GPUs in a kernel of this name (mangled or not):
// it then looks busy while a peer is late.
bool WaitsForPeers(std::string_view kernel);

// Gives the GPU something to do.
bool IsSubmission(CallClass call_class);

inline constexpr Ns kColdCallMin{50'000};
// Launches behind this many others may wait for a slot (measured: 1,021).
inline constexpr uint64_t kQueueDepth = 1000;
// A launch this many times slower than usual then waits for the queue.
inline constexpr int64_t kBlockedLaunchFactor = 10;
// A smaller copy says nothing about data being prepared.
inline constexpr uint64_t kDataCopyMin = 64 * 1024;
inline constexpr size_t kMaxEvents = 8192;
// A synchronising thread that runs again looks at the GPU at once: where the
// call then goes on for longer than this, the GPU had not finished before.
inline constexpr Ns kSyncTail{100'000};
// Or than this part of its wait for a CPU, if that is more: then its memory is
// no longer in any cache, and a virtual CPU has to be scheduled too (169 us
// seen after 70 ms), though never longer than the most.
inline constexpr int64_t kSyncTailShare = 64;
inline constexpr Ns kSyncTailMax{1'000'000};

// A stretch of one state that one call ended: at its begin where it submits,
// at its end where it waits.
struct FeedPiece {
  Interval range;
  uint32_t device = 0;
  FeedState state = FeedState::kUnknown;
  ThreadIndex thread = kNone;  // made the call that ended it
  CallClass ended_by = CallClass::kOther;
  // Busy until a synchronisation returned: how that wait ended, the thread's
  // timeline tells (attribution.cc). It began at `sync_begin`, or was the only
  // one from then on; kIdle or kUnknown follows.
  bool sync_ended = false;
  Ns sync_begin;
  FeedState next = FeedState::kUnknown;
};

class FeedingModel {
 public:
  explicit FeedingModel(const std::vector<FuncTraits>* traits)
      : traits_(traits) {}

  // REQUIRES: call.begin does not decrease; an outer call precedes its parts.
  void OnCall(const Call& call, std::vector<FeedPiece>* out);
  // Replays ends up to and including t.
  void AdvanceTo(Ns t, std::vector<FeedPiece>* out);
  // The stretches that are open now, [begin, t).
  void OpenPieces(Ns t, std::vector<FeedPiece>* out) const;

  Ns last_end() const { return last_end_; }
  bool started() const;
  // Lets go of what can't change an answer any more.
  void Trim();
  // About what a copy takes.
  size_t Bytes() const;
  // Threads that have submitted work.
  const std::vector<ThreadIndex>& submitters() const { return submitters_; }

 private:
  struct Stream {
    uint64_t handle = 0;
    uint64_t submitted = 0, drained = 0;
    // The last submission whose end on the GPU is not known.
    uint64_t blind = 0;
    bool pending() const { return submitted > drained; }
  };
  struct Device {
    bool started = false;
    Ns since;
    FeedState state = FeedState::kIdle;
    uint64_t position = 0;
    uint64_t since_drain = 0;                     // submissions
    uint32_t pending = 0;                         // streams with work
    uint32_t waiting = 0, copying = 0, cold = 0;  // calls under way
    bool told = false;  // what the GPU did is recorded (imported traces)
    Ns alone_since{INT64_MIN};  // an earlier one of several waits ended
    std::vector<Stream> streams;
    size_t last_stream = 0;
  };
  struct Event {
    uint32_t device = 0;
    uint32_t stream = 0;
    uint64_t position = 0;
  };
  enum class EndKind : uint8_t {
    kWaitEnds,
    kDrainStream,
    kDrainDevice,
    kCopyEnds,
    kCopyEndsSubmitting,
    kColdEnds,
    kColdEndsSubmitting
  };
  struct End {
    Ns t;
    uint64_t order = 0;  // ties: as pushed
    EndKind kind = EndKind::kWaitEnds;
    CallClass call_class = CallClass::kOther;
    uint32_t device = 0, stream = 0;
    ThreadIndex thread = kNone;
    uint64_t position = 0;
    Ns call_begin;
    bool returns = false;  // at the call's end
  };
  struct ThreadCalls {
    ThreadIndex thread = kNone;
    uint32_t device = 0;
    bool submits = false;
    bool own_context = false;  // may have another one than the primary
    Ns outermost_end;  // of the depth-0 call under way
    Ns bearing_end;    // of the submitting or waiting call under way
  };

  ThreadCalls& Of(ThreadIndex thread);
  Device& At(uint32_t device);
  uint32_t StreamIndex(Device& d, uint64_t handle);
  void Cut(uint32_t device, Ns t, const Call& call, CallClass ended_by,
           std::vector<FeedPiece>* out);
  // The new piece, or nullptr.
  FeedPiece* Emit(Device& d, uint32_t index, Ns t, ThreadIndex thread,
                  CallClass ended_by, std::vector<FeedPiece>* out);
  void Submit(Device& d, uint32_t stream, bool blind = true);
  // Of a call whose work's end is known: notes that.
  void SubmitTold(const Call& call, uint32_t device, uint32_t stream,
                  CallClass call_class);
  static FeedState StateOf(const Device& d);
  void Drain(Device& d, Stream& s, uint64_t position);
  // `sync`: a synchronisation's return is what happened, or nullptr.
  void Refresh(uint32_t device, Ns t, ThreadIndex thread, CallClass ended_by,
               std::vector<FeedPiece>* out, const End* sync = nullptr);
  void NoteContext(const Call& call, const FuncTraits& traits,
                   ThreadCalls* thread);
  bool WaitsForAll(const FuncTraits& traits, const ThreadCalls& thread) const;
  void Push(const Call& call, Ns t, EndKind kind, CallClass call_class,
            uint32_t device, uint32_t stream, uint64_t position);
  CallClass Finish(const End& end);
  void OnCopy(const Call& call, CallClass call_class, uint32_t device,
              Ns outermost_end, std::vector<FeedPiece>* out);
  void OnLaunch(const Call& call, CallClass call_class, bool cold,
                uint32_t device, std::vector<FeedPiece>* out);

  const std::vector<FuncTraits>* traits_;
  std::vector<Device> devices_;
  std::vector<ThreadCalls> threads_;
  size_t last_thread_ = 0;
  std::vector<ThreadIndex> submitters_;
  std::unordered_map<uint64_t, Event> events_;
  size_t trim_at_ = 64;  // events
  std::vector<End> ends_;  // heap, earliest first
  uint64_t order_ = 0;
  // Handles of contexts; `several`: of another handle than the first.
  uint64_t primary_ = 0, own_ = 0;
  bool several_primary_ = false, several_own_ = false, green_ = false;
  int64_t usual_launch_ns_ = 0;  // running median of launches that do not wait
  Ns last_end_{INT64_MIN};
};

}  // namespace ingero::analysis

#endif  // INGERO_ANALYSIS_FEEDING_H_
