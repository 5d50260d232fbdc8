// SPDX-License-Identifier: Apache-2.0
// Perfetto's trace format, a few messages of it, written field by field. The
// field numbers are those of github.com/google/perfetto, protos/perfetto/
// (trace/trace_packet.proto, track_event/*.proto, ftrace/{sched,ftrace_event,
// ftrace_event_bundle}.proto, clock_snapshot.proto, system_info.proto), which
// keeps them for ever; tests/cli/trace_export_test.py decodes them on its own.
//
// Trace time is CLOCK_MONOTONIC, told to Perfetto as its default clock, with the
// wall clock beside it. Scheduling goes out as ftrace's sched_switch and
// sched_waking, of which Perfetto makes CPU tracks, thread states and wakers.
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/text.h"
#include "cli/export/events.h"

namespace ingero::cli {
namespace {

namespace trace {
constexpr uint32_t kPacket = 1;
}
namespace packet {
constexpr uint32_t kFtraceEvents = 1, kClockSnapshot = 6, kTimestamp = 8,
                   kSequenceId = 10, kTrackEvent = 11, kInternedData = 12,
                   kSequenceFlags = 13, kSystemInfo = 45, kTrackDescriptor = 60;
constexpr uint64_t kStateCleared = 1, kNeedsState = 2;
}  // namespace packet
namespace clocks {
constexpr uint32_t kClocks = 1, kClockId = 1, kTimestamp = 2;
constexpr uint64_t kRealtime = 1, kBoottime = 6;
}  // namespace clocks
namespace track_descriptor {
constexpr uint32_t kUuid = 1, kName = 2, kProcess = 3, kThread = 4,
                   kParent = 5, kCounter = 8;
}
namespace process_descriptor {
constexpr uint32_t kPid = 1, kCommandLine = 2, kName = 6;
}
namespace thread_descriptor {
constexpr uint32_t kPid = 1, kTid = 2, kName = 5;
}
namespace track_event {
constexpr uint32_t kAnnotations = 4, kType = 9, kNameIid = 10, kTrack = 11,
                   kDoubleCounter = 44;
constexpr uint64_t kBegin = 1, kEnd = 2, kCounter = 4;
}  // namespace track_event
namespace annotation {
constexpr uint32_t kNameIid = 1, kInt = 4, kString = 6, kStringIid = 17;
}
namespace interned {
constexpr uint32_t kEventNames = 2, kAnnotationNames = 3, kStrings = 29;
constexpr uint32_t kIid = 1, kText = 2;  // of each of their entries
}  // namespace interned
namespace ftrace {
constexpr uint32_t kCpu = 1, kEvent = 2;             // of a bundle
constexpr uint32_t kTimestamp = 1, kPid = 2, kSwitch = 4, kWaking = 20;
}  // namespace ftrace
namespace sched_switch {
constexpr uint32_t kPrevComm = 1, kPrevPid = 2, kPrevPrio = 3, kPrevState = 4,
                   kNextComm = 5, kNextPid = 6, kNextPrio = 7;
}
namespace sched_waking {
constexpr uint32_t kComm = 1, kPid = 2, kPrio = 3, kSuccess = 4, kCpu = 5;
}
namespace system_info {
constexpr uint32_t kUtsname = 1, kSysname = 1, kRelease = 3;
}

// A message in protobuf's encoding.
class Message {
 public:
  Message& Int(uint32_t field, uint64_t value) {
    Varint(uint64_t{field} << 3);
    Varint(value);
    return *this;
  }
  Message& Double(uint32_t field, double value) {
    Varint(uint64_t{field} << 3 | 1);
    char bytes[sizeof(value)];
    std::memcpy(bytes, &value, sizeof(value));
    bytes_.append(bytes, sizeof(bytes));
    return *this;
  }
  Message& Text(uint32_t field, std::string_view text) {
    Varint(uint64_t{field} << 3 | 2);
    Varint(text.size());
    bytes_ += text;
    return *this;
  }
  Message& Add(uint32_t field, const Message& message) {
    return Text(field, message.bytes_);
  }
  const std::string& bytes() const { return bytes_; }
  bool empty() const { return bytes_.empty(); }
  void clear() { bytes_.clear(); }

 private:
  void Varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7)
      bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

// As the kernel prints task states since 4.14 (fs/proc/array.c).
uint64_t KernelState(const analysis::Switch& s) {
  using enum analysis::ThreadState;
  switch (s.prev_state) {
    case kRunning:
    case kRunnable: return s.preempted ? 0x100 : 0;  // R+, R
    case kSleeping: return 1;                        // S
    case kDisk:
    case kBlocked: return 2;  // D
    case kStopped: return 4;  // T
    case kDead: return 0x10;  // X
    case kUnknown: return 0x80;  // I: none of the others is true
  }
  return 0;
}

constexpr uint64_t kSequence = 1;
// Whoever is not known by number: no tid, as 0 is the idle task.
constexpr uint32_t kUnknownTid = 0x7fffffff;
// A text longer than this is no name that repeats.
constexpr size_t kMaxInterned = 1 << 20;

class PerfettoSink : public EventSink {
 public:
  explicit PerfettoSink(std::FILE* out) : out_(out) {}

  void Start(Ns begin, int64_t wall_clock_ns) override {
    Message first;
    first.Int(packet::kSequenceFlags, packet::kStateCleared);
    if (wall_clock_ns != 0) {
      Message snapshot;
      for (const auto& [id, t] :
           {std::pair{clocks::kBoottime, static_cast<uint64_t>(begin.value)},
            std::pair{clocks::kRealtime, static_cast<uint64_t>(wall_clock_ns)}})
        snapshot.Add(clocks::kClocks, Message()
                                          .Int(clocks::kClockId, id)
                                          .Int(clocks::kTimestamp, t));
      first.Add(packet::kClockSnapshot, snapshot);
    }
    Put(first);
    // Says how task states are to be read, no more: which kernel it was is not
    // in the store.
    Put(Message().Add(packet::kSystemInfo,
                      Message().Add(system_info::kUtsname,
                                    Message()
                                        .Text(system_info::kSysname, "Linux")
                                        .Text(system_info::kRelease,
                                              "4.14.0"))));
  }

  void AddTrack(const TrackInfo& track) override {
    Message descriptor;
    descriptor.Int(track_descriptor::kUuid, track.id);
    const std::string name = Utf8(track.name);
    switch (track.kind) {
      case TrackInfo::Kind::kProcess: {
        Message process;
        process.Int(process_descriptor::kPid, track.pid);
        if (!track.command.empty())
          process.Text(process_descriptor::kCommandLine, Utf8(track.command));
        process.Text(process_descriptor::kName, name);
        descriptor.Add(track_descriptor::kProcess, process);
        break;
      }
      case TrackInfo::Kind::kThread:
        descriptor.Add(track_descriptor::kThread,
                       Message()
                           .Int(thread_descriptor::kPid, track.pid)
                           .Int(thread_descriptor::kTid, track.tid)
                           .Text(thread_descriptor::kName, name));
        break;
      case TrackInfo::Kind::kCounter:
        descriptor.Add(track_descriptor::kCounter, Message());
        [[fallthrough]];
      case TrackInfo::Kind::kOther:
        descriptor.Text(track_descriptor::kName, name);
        if (track.parent != 0)
          descriptor.Int(track_descriptor::kParent, track.parent);
        break;
    }
    Put(Message().Add(packet::kTrackDescriptor, descriptor));
  }

  void Begin(TrackId track, Ns t, std::string_view name,
             const EventArgs& args) override {
    Message event, names;
    event.Int(track_event::kType, track_event::kBegin)
        .Int(track_event::kTrack, track)
        .Int(track_event::kNameIid,
             Intern(interned::kEventNames, name, &names));
    for (const EventArg& arg : args) {
      Message one;
      one.Int(annotation::kNameIid,
              Intern(interned::kAnnotationNames, arg.name, &names));
      if (const auto* number = std::get_if<int64_t>(&arg.value)) {
        one.Int(annotation::kInt, static_cast<uint64_t>(*number));
      } else {
        const std::string_view text = std::get<std::string_view>(arg.value);
        if (const uint64_t iid = Intern(interned::kStrings, text, &names))
          one.Int(annotation::kStringIid, iid);
        else
          one.Text(annotation::kString, Utf8(text));
      }
      event.Add(track_event::kAnnotations, one);
    }
    PutEvent(t, event, names);
  }
  void End(TrackId track, Ns t) override {
    PutEvent(t, Message()
                    .Int(track_event::kType, track_event::kEnd)
                    .Int(track_event::kTrack, track),
             Message());
  }
  void Count(TrackId track, Ns t, double value) override {
    PutEvent(t, Message()
                    .Int(track_event::kType, track_event::kCounter)
                    .Int(track_event::kTrack, track)
                    .Double(track_event::kDoubleCounter, value),
             Message());
  }

  void Switch(const analysis::Switch& s, const SchedThread& prev,
              const SchedThread& next, const SchedThread& waker) override {
    const auto tid = [](const SchedThread& t) {
      return t.known ? t.tid : kUnknownTid;
    };
    const auto comm = [](const SchedThread& t) {
      return t.known ? t.tid == 0 ? std::string("swapper") : Utf8(t.name)
                     : std::string("(unknown)");
    };
    Message bundle;
    bundle.Int(ftrace::kCpu, s.cpu);
    if (s.wake)
      bundle.Add(ftrace::kEvent,
                 Message()
                     .Int(ftrace::kTimestamp,
                          static_cast<uint64_t>(s.wake->value))
                     // Woken by an interrupt: whoever it came upon.
                     .Int(ftrace::kPid, waker.known ? waker.tid : 0)
                     .Add(ftrace::kWaking,
                          Message()
                              .Text(sched_waking::kComm, comm(next))
                              .Int(sched_waking::kPid, tid(next))
                              .Int(sched_waking::kPrio, kPriority)
                              .Int(sched_waking::kSuccess, 1)
                              .Int(sched_waking::kCpu, s.cpu)));
    bundle.Add(ftrace::kEvent,
               Message()
                   .Int(ftrace::kTimestamp, static_cast<uint64_t>(s.t.value))
                   .Int(ftrace::kPid, tid(prev))
                   .Add(ftrace::kSwitch,
                        Message()
                            .Text(sched_switch::kPrevComm, comm(prev))
                            .Int(sched_switch::kPrevPid, tid(prev))
                            .Int(sched_switch::kPrevPrio, kPriority)
                            .Int(sched_switch::kPrevState, KernelState(s))
                            .Text(sched_switch::kNextComm, comm(next))
                            .Int(sched_switch::kNextPid, tid(next))
                            .Int(sched_switch::kNextPrio, kPriority)));
    Put(Message().Add(packet::kFtraceEvents, bundle));
  }

  void Finish() override {}

 private:
  static constexpr uint64_t kPriority = 120;  // not recorded: the default

  // Its strings must be valid; what programs call themselves need not be.
  static std::string Utf8(std::string_view text) {
    return SanitizeForTerminal(text, 1 << 20);
  }
  // The number of `text` in an index of the sequence; told in *names when new.
  // 0: too long, or too many.
  uint64_t Intern(uint32_t index, std::string_view text, Message* names) {
    auto& known = interned_[index];
    if (const auto it = known.find(std::string(text)); it != known.end())
      return it->second;
    if (index == interned::kStrings &&
        (interned_bytes_ + text.size() > kMaxInterned))
      return 0;
    interned_bytes_ += text.size();
    const uint64_t iid = known.size() + 1;
    known.emplace(text, iid);
    names->Add(index, Message()
                          .Int(interned::kIid, iid)
                          .Text(interned::kText, Utf8(text)));
    return iid;
  }
  void PutEvent(Ns t, const Message& event, const Message& names) {
    Message one;
    one.Int(packet::kTimestamp, static_cast<uint64_t>(t.value))
        .Add(packet::kTrackEvent, event)
        .Int(packet::kSequenceFlags, packet::kNeedsState);
    if (!names.empty()) one.Add(packet::kInternedData, names);
    Put(one);
  }
  void Put(Message message) {
    message.Int(packet::kSequenceId, kSequence);
    const std::string bytes = Message().Add(trace::kPacket, message).bytes();
    std::fwrite(bytes.data(), 1, bytes.size(), out_);
  }

  std::FILE* out_;
  std::map<uint32_t, std::unordered_map<std::string, uint64_t>> interned_;
  size_t interned_bytes_ = 0;
};

}  // namespace

std::unique_ptr<EventSink> MakePerfettoSink(std::FILE* out) {
  return std::make_unique<PerfettoSink>(out);
}

}  // namespace ingero::cli
