// SPDX-License-Identifier: Apache-2.0
#include "analysis/feeding.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace ingero::analysis {
namespace {

bool Told(const Call& call) { return call.gpu_end != Ns(INT64_MIN); }

// cudaErrorNotReady, CUDA_ERROR_NOT_READY.
constexpr uint32_t kNotReady = 600;

// 0, cudaStreamLegacy and cudaStreamPerThread: one default stream.
uint64_t Normalise(uint64_t handle) { return handle <= 2 ? 0 : handle; }

// The copy proper of pageable memory, lower bound of its time: 8 bytes/ns is
// above every rate measured (GPU_FACTS: 6.5 to 11 GB/s).
Ns HostCopyTime(uint64_t bytes) { return Ns(static_cast<int64_t>(bytes / 8)); }

}  // namespace

std::vector<FuncTraits> MakeFuncTraits(const std::vector<Function>& functions) {
  std::vector<FuncTraits> out(functions.size());
  for (size_t i = 0; i < functions.size(); ++i) {
    out[i].call_class = functions[i].call_class;
    out[i].sets_device = functions[i].call_class == CallClass::kDevice &&
                         functions[i].name.rfind("cudaSetDevice", 0) == 0 &&
                         functions[i].name != "cudaSetDeviceFlags";
    out[i].library = functions[i].layer == Layer::kLibrary;
    using Context = FuncTraits::Context;
    static constexpr std::pair<std::string_view, Context> kContexts[] = {
        {"cuDevicePrimaryCtxRetain", Context::kPrimary},
        {"cuCtxCreate", Context::kOwn},
        {"cuGreenCtxCreate", Context::kGreen},
        {"cuCtxFromGreenCtx", Context::kGreen},
        {"cudaGreenCtxCreate", Context::kGreen},
        {"cuCtxSetCurrent", Context::kCurrent},
        {"cuCtxPushCurrent", Context::kCurrent},
        {"cuCtxPopCurrent", Context::kCurrent}};
    for (const auto& [name, context] : kContexts)
      if (functions[i].name.starts_with(name)) out[i].context = context;
    out[i].of_context = functions[i].call_class == CallClass::kSyncDevice &&
                        functions[i].name.starts_with("cuCtxSynchronize");
  }
  return out;
}

bool IsColdStart(const Call& call, const FuncTraits& traits) {
  if (call.first_use) return true;
  if (call.end - call.begin < kColdCallMin) return false;
  switch (traits.call_class) {
    case CallClass::kContext:
    case CallClass::kModule:
    case CallClass::kRegister:
      return true;
    // A first call of these may create the context or load modules. A first
    // copy, wait or free says nothing: it may take long for its own sake.
    case CallClass::kLaunch:
    case CallClass::kAlloc:
    case CallClass::kAllocAsync:
    case CallClass::kDevice:
    case CallClass::kStream:
    case CallClass::kEvent:
    case CallClass::kGetter:
    case CallClass::kResolve:
    case CallClass::kOther:
      return call.first_call;
    default:
      return false;
  }
}

bool WaitsForPeers(std::string_view kernel) {
  // NCCL and RCCL (src/device of either), vLLM's and SGLang's custom all-reduce
  // (csrc/custom_all_reduce.cuh), PyTorch's symmetric memory, TensorRT-LLM's
  // fused one, NVSHMEM.
  static constexpr std::string_view kNames[] = {
      "ncclDevKernel", "ncclKernel",       "ncclSymk",
      "cross_device_reduce", "all_reduce_kernel", "allreduce_fusion",
      "nvshmem"};
  return std::any_of(
      std::begin(kNames), std::end(kNames), [&](std::string_view name) {
        return kernel.find(name) != std::string_view::npos;
      });
}

bool IsSubmission(CallClass call_class) {
  switch (call_class) {
    case CallClass::kLaunch:
    case CallClass::kGraphLaunch:
    case CallClass::kCopy:
    case CallClass::kCopyAsync:
    case CallClass::kMemset:
    case CallClass::kMemsetAsync:
    case CallClass::kPrefetch:
      return true;
    default:
      return false;
  }
}

bool FeedingModel::started() const {
  for (const Device& d : devices_)
    if (d.started) return true;
  return false;
}

FeedingModel::ThreadCalls& FeedingModel::Of(ThreadIndex thread) {
  if (last_thread_ < threads_.size() && threads_[last_thread_].thread == thread)
    return threads_[last_thread_];
  for (size_t i = 0; i < threads_.size(); ++i)
    if (threads_[i].thread == thread) {
      last_thread_ = i;
      return threads_[i];
    }
  last_thread_ = threads_.size();
  ThreadCalls& t = threads_.emplace_back();
  t.thread = thread;
  t.outermost_end = t.bearing_end = Ns(INT64_MIN);
  return t;
}

FeedingModel::Device& FeedingModel::At(uint32_t device) {
  if (device >= devices_.size()) devices_.resize(device + 1u);
  return devices_[device];
}

uint32_t FeedingModel::StreamIndex(Device& d, uint64_t handle) {
  handle = Normalise(handle);
  if (d.last_stream < d.streams.size() &&
      d.streams[d.last_stream].handle == handle)
    return static_cast<uint32_t>(d.last_stream);
  for (size_t i = 0; i < d.streams.size(); ++i)
    if (d.streams[i].handle == handle) {
      d.last_stream = i;
      return static_cast<uint32_t>(i);
    }
  d.last_stream = d.streams.size();
  d.streams.push_back({handle, 0, 0});
  return static_cast<uint32_t>(d.last_stream);
}

FeedPiece* FeedingModel::Emit(Device& d, uint32_t index, Ns t,
                              ThreadIndex thread, CallClass ended_by,
                              std::vector<FeedPiece>* out) {
  const Ns since = std::exchange(d.since, std::max(d.since, t));
  if (!d.started || since >= t || !out) return nullptr;
  FeedPiece& piece = out->emplace_back();
  piece.range = {since, t};
  piece.device = index;
  piece.state = d.state;
  piece.thread = thread;
  piece.ended_by = ended_by;
  return &piece;
}

// A submission begins: whatever was before ends here.
void FeedingModel::Cut(uint32_t device, Ns t, const Call& call,
                       CallClass ended_by, std::vector<FeedPiece>* out) {
  Device& d = At(device);
  if (!d.started) {
    d.started = true;
    d.since = t;
  } else {
    Emit(d, device, t, call.thread, ended_by, out);
  }
  ThreadCalls& thread = Of(call.thread);
  if (!thread.submits) {
    thread.submits = true;
    submitters_.push_back(call.thread);
  }
}

void FeedingModel::Submit(Device& d, uint32_t stream, bool blind) {
  Stream& s = d.streams[stream];
  if (!s.pending()) ++d.pending;
  s.submitted = ++d.position;
  if (blind) s.blind = s.submitted;
  ++d.since_drain;
}

void FeedingModel::SubmitTold(const Call& call, uint32_t device,
                              uint32_t stream, CallClass call_class) {
  Device& d = At(device);
  Submit(d, stream, false);
  Push(call, call.gpu_end, EndKind::kDrainStream, call_class, device, stream,
       d.position);
}

FeedState FeedingModel::StateOf(const Device& d) {
  if (d.told) {
    if (d.pending > 0) {
      const bool blind =
          std::any_of(d.streams.begin(), d.streams.end(),
                      [](const Stream& s) { return s.blind > s.drained; });
      // Something is known to be under way in any case where some is told.
      const bool told = std::any_of(
          d.streams.begin(), d.streams.end(), [](const Stream& s) {
            return s.pending() && s.submitted != s.blind;
          });
      return blind && !told && d.waiting == 0 ? FeedState::kUnknown
                                              : FeedState::kBusy;
    }
  } else if (d.waiting > 0) {
    return FeedState::kBusy;
  } else if (d.pending > 0) {
    return FeedState::kUnknown;
  }
  return d.copying > 0 ? FeedState::kHostCopy
         : d.cold > 0  ? FeedState::kColdStart
                       : FeedState::kIdle;
}

void FeedingModel::Drain(Device& d, Stream& s, uint64_t position) {
  if (position <= s.drained) return;
  const bool was = s.pending();
  s.drained = position;
  if (was && !s.pending()) --d.pending;
  d.since_drain = 0;
}

void FeedingModel::Refresh(uint32_t device, Ns t, ThreadIndex thread,
                           CallClass ended_by, std::vector<FeedPiece>* out,
                           const End* sync) {
  Device& d = devices_[device];
  const FeedState state = StateOf(d);
  if (state == d.state) return;
  FeedPiece* piece = Emit(d, device, t, thread, ended_by, out);
  if (piece != nullptr && sync != nullptr &&
      piece->state == FeedState::kBusy) {
    piece->sync_ended = true;
    piece->sync_begin = std::max(sync->call_begin, d.alone_since);
    piece->next = state;
  }
  d.state = state;
}

void FeedingModel::Push(const Call& call, Ns t, EndKind kind,
                        CallClass call_class, uint32_t device, uint32_t stream,
                        uint64_t position) {
  End e;
  e.t = std::max(t, call.begin);
  e.order = order_++;
  e.kind = kind;
  e.call_class = call_class;
  e.device = device;
  e.stream = stream;
  e.thread = call.thread;
  e.position = position;
  e.call_begin = call.begin;
  e.returns = t == call.end;
  ends_.push_back(e);
  std::push_heap(ends_.begin(), ends_.end(), [](const End& a, const End& b) {
    return a.t != b.t ? a.t > b.t : a.order > b.order;
  });
}

void FeedingModel::AdvanceTo(Ns t, std::vector<FeedPiece>* out) {
  CallClass group = CallClass::kOther;
  End sync;
  bool synced = false;
  while (!ends_.empty() && ends_.front().t <= t) {
    const End e = ends_.front();
    std::pop_heap(ends_.begin(), ends_.end(), [](const End& a, const End& b) {
      return a.t != b.t ? a.t > b.t : a.order > b.order;
    });
    ends_.pop_back();
    CallClass ended_by = Finish(e);
    // A launch that waited for the full queue proves no end of the work.
    if (e.kind == EndKind::kWaitEnds && e.returns &&
        e.call_class != CallClass::kLaunch) {
      sync = e;
      synced = true;
    }
    // Parts of one moment belong together: the last one decides.
    if (!ends_.empty() && ends_.front().t == e.t &&
        ends_.front().device == e.device && ends_.front().thread == e.thread) {
      if (ended_by != CallClass::kOther) group = ended_by;
      continue;
    }
    if (ended_by == CallClass::kOther) ended_by = group;
    group = CallClass::kOther;
    Refresh(e.device, e.t, e.thread, ended_by, out, synced ? &sync : nullptr);
    synced = false;
  }
}

CallClass FeedingModel::Finish(const End& e) {
  Device& d = devices_[e.device];
  CallClass ended_by = CallClass::kOther;
  switch (e.kind) {
    case EndKind::kWaitEnds:
      if (--d.waiting > 0) d.alone_since = std::max(d.alone_since, e.t);
      break;
    case EndKind::kDrainStream:
      Drain(d, d.streams[e.stream], e.position);
      break;
    case EndKind::kDrainDevice:
      for (Stream& s : d.streams)
        Drain(d, s, std::min(e.position, s.submitted));
      break;
    case EndKind::kCopyEnds:
      --d.copying;
      ended_by = e.call_class;
      break;
    case EndKind::kCopyEndsSubmitting:
      --d.copying;
      Submit(d, e.stream);
      ended_by = e.call_class;
      break;
    case EndKind::kColdEnds:
      --d.cold;
      break;
    case EndKind::kColdEndsSubmitting:
      --d.cold;
      Submit(d, e.stream);
      ended_by = e.call_class;
      break;
  }
  return ended_by;
}

void FeedingModel::OpenPieces(Ns t, std::vector<FeedPiece>* out) const {
  for (uint32_t i = 0; i < devices_.size(); ++i) {
    const Device& d = devices_[i];
    if (!d.started || d.since >= t) continue;
    FeedPiece& piece = out->emplace_back();
    piece.range = {d.since, t};
    piece.device = i;
    piece.state = d.state;
  }
}

void FeedingModel::OnLaunch(const Call& call, CallClass call_class, bool cold,
                            uint32_t device, std::vector<FeedPiece>* out) {
  Cut(device, call.begin, call, call_class, out);
  Device& d = At(device);
  const uint32_t stream = StreamIndex(d, call.stream);
  const int64_t took = (call.end - call.begin).value;
  if (Told(call)) {
    SubmitTold(call, device, stream, call_class);
  } else if (cold && d.pending == 0) {
    // The kernel's code is loaded first; until then the queue stays empty.
    ++d.cold;
    Push(call, call.end, EndKind::kColdEndsSubmitting, call_class, device,
         stream, 0);
  } else {
    const bool blocked = call_class == CallClass::kLaunch && !cold &&
                         d.since_drain >= kQueueDepth && usual_launch_ns_ > 0 &&
                         took > kBlockedLaunchFactor * usual_launch_ns_;
    Submit(d, stream);
    if (blocked) {
      ++d.waiting;
      Push(call, call.end, EndKind::kWaitEnds, call_class, device, stream, 0);
    } else if (call_class == CallClass::kLaunch && !cold) {
      // A step towards each sample: converges to the median, needs no memory.
      if (usual_launch_ns_ == 0) usual_launch_ns_ = std::max<int64_t>(1, took);
      const int64_t step = std::max<int64_t>(1, usual_launch_ns_ / 16);
      if (took > usual_launch_ns_) usual_launch_ns_ += step;
      if (took < usual_launch_ns_)
        usual_launch_ns_ = std::max<int64_t>(1, usual_launch_ns_ - step);
    }
  }
  Refresh(device, call.begin, call.thread, call_class, out);
}

void FeedingModel::OnCopy(const Call& call, CallClass call_class,
                          uint32_t device, Ns outermost_end,
                          std::vector<FeedPiece>* out) {
  const bool pageable = call.host_memory == HostMemory::kPageable;
  const bool to_device = call.direction == CopyDirection::kHostToDevice ||
                         ((call.direction == CopyDirection::kUnknown ||
                           call.direction == CopyDirection::kDefault) &&
                          call.host_memory != HostMemory::kUnknown);
  const bool to_host = call.direction == CopyDirection::kDeviceToHost;
  const bool on_device = call.direction == CopyDirection::kDeviceToDevice ||
                         call.direction == CopyDirection::kPeer;
  const bool data = to_device && call.bytes >= kDataCopyMin;
  // One to the host is no submission: what comes before it prepared no data.
  const CallClass ends = to_host ? CallClass::kOther : call_class;
  Cut(device, call.begin, call, data ? call_class : CallClass::kOther, out);
  Device& d = At(device);
  const uint32_t stream = StreamIndex(d, call.stream);
  if (Told(call)) {
    // A pageable copy for itself is the host's work, and the GPU computes
    // nothing; behind other work it is a part of that.
    if (pageable && d.pending == 0) {
      ++d.copying;
      Push(call, std::max(call.end, call.gpu_end), EndKind::kCopyEnds,
           ends, device, stream, 0);
    } else {
      SubmitTold(call, device, stream, call_class);
    }
    return Refresh(device, call.begin, call.thread, call_class, out);
  }
  const bool sync = call_class == CallClass::kCopy;
  // Small pageable copies to the device are staged and wait for nobody;
  // copies on the device are asynchronous in either form.
  const bool waits = sync ? !on_device && !(to_device && pageable &&
                                            call.bytes <= kDataCopyMin)
                          : to_host && pageable;
  if (waits) {
    if (d.streams[stream].pending()) {
      const Ns copy = pageable ? HostCopyTime(call.bytes) : Ns(0);
      const Ns turn = std::max(call.begin, call.end - copy);
      const uint64_t before = d.streams[stream].submitted;
      ++d.waiting;
      if (pageable && turn < call.end) {
        ++d.copying;
        Push(call, turn, EndKind::kDrainStream, call_class, device, stream,
             before);
        Push(call, turn, EndKind::kWaitEnds, call_class, device, stream, 0);
        Push(call, call.end, EndKind::kCopyEnds, ends, device, stream, 0);
      } else {
        Push(call, call.end, EndKind::kWaitEnds, call_class, device, stream, 0);
      }
      Push(call, outermost_end, EndKind::kDrainStream, call_class, device,
           stream, before);
    } else if (pageable) {
      ++d.copying;
      Push(call, call.end, EndKind::kCopyEnds, ends, device, stream, 0);
    } else {
      Submit(d, stream);
      ++d.waiting;
      Push(call, call.end, EndKind::kWaitEnds, call_class, device, stream, 0);
      Push(call, outermost_end, EndKind::kDrainStream, call_class, device,
           stream, d.streams[stream].submitted);
    }
  } else if (pageable && to_device && d.pending == 0) {
    ++d.copying;
    Push(call, call.end, EndKind::kCopyEndsSubmitting, call_class, device,
         stream, 0);
  } else if (call.direction != CopyDirection::kHostToHost) {
    Submit(d, stream);
  }
  Refresh(device, call.begin, call.thread, call_class, out);
}

void FeedingModel::NoteContext(const Call& call, const FuncTraits& traits,
                               ThreadCalls* thread) {
  if (traits.context == FuncTraits::Context::kNothing || call.result != 0)
    return;
  const auto note = [&](uint64_t* first, bool* several) {
    if (*first == 0) *first = call.object;
    *several |= *first != call.object;
  };
  switch (traits.context) {
    case FuncTraits::Context::kNothing:
      return;
    case FuncTraits::Context::kPrimary:
      return note(&primary_, &several_primary_);
    case FuncTraits::Context::kGreen:
      green_ = true;
      return;
    case FuncTraits::Context::kOwn:
      note(&own_, &several_own_);
      break;
    case FuncTraits::Context::kCurrent:
      break;
  }
  // The runtime's own calls inside others set the primary one.
  if (call.depth == 0)
    thread->own_context = call.object == 0 || call.object != primary_;
}

// Whether a synchronisation of the device waits for all that this process gave
// it. One of a context waits for no other context; one of the primary context
// waits for green ones too.
bool FeedingModel::WaitsForAll(const FuncTraits& traits,
                               const ThreadCalls& thread) const {
  const bool only_one =
      !green_ && !several_own_ && (own_ == 0 || primary_ == 0);
  if (traits.of_context) return only_one && !several_primary_;
  return only_one || (own_ == 0 && !thread.own_context);
}

void FeedingModel::Trim() {
  if (events_.size() < trim_at_) return;
  // To wait for what has been reached is to wait for nothing.
  std::erase_if(events_, [&](const auto& event) {
    const Event& e = event.second;
    return e.position <= devices_[e.device].streams[e.stream].drained;
  });
  trim_at_ = std::clamp<size_t>(2 * events_.size(), 64, kMaxEvents);
}

size_t FeedingModel::Bytes() const {
  // A node of the map, and its share of the buckets.
  constexpr size_t kEntry = sizeof(std::pair<uint64_t, Event>) + 24;
  size_t bytes = sizeof(*this) + devices_.size() * sizeof(Device) +
                 threads_.size() * sizeof(ThreadCalls) +
                 submitters_.size() * sizeof(ThreadIndex) +
                 events_.size() * kEntry + ends_.size() * sizeof(End);
  for (const Device& d : devices_) bytes += d.streams.size() * sizeof(Stream);
  return bytes;
}

void FeedingModel::OnCall(const Call& call, std::vector<FeedPiece>* out) {
  AdvanceTo(call.begin, out);
  last_end_ = std::max(last_end_, call.end);
  ThreadCalls& thread = Of(call.thread);
  const FuncTraits& traits = (*traits_)[call.func];
  NoteContext(call, traits, &thread);
  if (call.depth == 0 || call.begin >= thread.outermost_end) {
    thread.outermost_end = call.end;
    thread.bearing_end = Ns(INT64_MIN);
  } else if (call.begin < thread.bearing_end) {
    return;  // a part of what the outer call does
  }
  const Ns outermost_end = std::max(thread.outermost_end, call.end);
  if (traits.sets_device && call.result == 0 && call.object < 64) {
    thread.device = static_cast<uint32_t>(call.object);
    thread.own_context = false;
    return;
  }
  if (Told(call)) {
    thread.device = call.gpu;
    At(call.gpu).told = true;
  }
  const uint32_t device = thread.device;
  const bool cold = IsColdStart(call, traits);
  const bool ok = call.result == 0;
  const auto bearing = [&] { Of(call.thread).bearing_end = call.end; };
  switch (traits.call_class) {
    case CallClass::kLaunch:
    case CallClass::kGraphLaunch:
    case CallClass::kMemset:
    case CallClass::kMemsetAsync:
    case CallClass::kPrefetch:
      bearing();
      if (!call.captured && ok)
        OnLaunch(call, traits.call_class, cold, device, out);
      return;
    case CallClass::kCopy:
    case CallClass::kCopyAsync:
      bearing();
      if (!call.captured && ok)
        OnCopy(call, traits.call_class, device, outermost_end, out);
      return;
    case CallClass::kSyncStream:
    case CallClass::kSyncEvent:
    case CallClass::kQueryStream:
    case CallClass::kQueryEvent: {
      bearing();
      uint32_t at = device, stream = 0;
      uint64_t position = 0;
      if (traits.call_class == CallClass::kSyncEvent ||
          traits.call_class == CallClass::kQueryEvent) {
        auto it = events_.find(call.object);
        if (it == events_.end()) return;
        at = it->second.device;
        stream = it->second.stream;
        position = it->second.position;
      } else {
        Device& d = At(at);
        stream = StreamIndex(d, call.stream);
        position = d.streams[stream].submitted;
      }
      Device& d = At(at);
      if (!d.started || position <= d.streams[stream].drained) return;
      const bool waits = traits.call_class == CallClass::kSyncStream ||
                         traits.call_class == CallClass::kSyncEvent;
      if (!waits && call.result == kNotReady &&
          d.state == FeedState::kUnknown) {
        // That work was given before the last stretch began, and still is not
        // done.
        if (FeedPiece* piece =
                Emit(d, at, call.begin, call.thread, CallClass::kOther, out))
          piece->state = FeedState::kBusy;
      }
      if (waits) {
        ++d.waiting;
        Push(call, call.end, EndKind::kWaitEnds, traits.call_class, at, stream,
             0);
      }
      if (ok && !call.no_end)
        Push(call, outermost_end, EndKind::kDrainStream, traits.call_class, at,
             stream, position);
      if (waits) Refresh(at, call.begin, call.thread, traits.call_class, out);
      return;
    }
    case CallClass::kFree:
      if (call.object == 0) return;  // cudaFree(0) only makes a context
      [[fallthrough]];
    case CallClass::kSyncDevice: {
      bearing();
      Device& d = At(device);
      if (!d.started || d.pending == 0) return;
      if (traits.call_class == CallClass::kSyncDevice &&
          !WaitsForAll(traits, Of(call.thread)))
        return;
      ++d.waiting;
      Push(call, call.end, EndKind::kWaitEnds, traits.call_class, device, 0, 0);
      if (ok && !call.no_end)
        Push(call, outermost_end, EndKind::kDrainDevice, traits.call_class,
             device, 0, d.position);
      Refresh(device, call.begin, call.thread, traits.call_class, out);
      return;
    }
    case CallClass::kEventRecord: {
      if (call.captured || !ok) return;
      Device& d = At(device);
      const uint32_t stream = StreamIndex(d, call.stream);
      if (events_.size() >= kMaxEvents) Trim();
      // Forgetting events only makes the answer "unknown" more often.
      if (events_.size() >= kMaxEvents) events_.clear();
      events_[call.object] = {device, stream, d.streams[stream].submitted};
      return;
    }
    default:
      break;
  }
  if (cold && device < devices_.size()) {
    Device& d = devices_[device];
    if (!d.started || d.pending > 0 || d.waiting > 0) return;
    ++d.cold;
    Push(call, call.end, EndKind::kColdEnds, traits.call_class, device, 0, 0);
    Refresh(device, call.begin, call.thread, CallClass::kOther, out);
  }
}

}  // namespace ingero::analysis
