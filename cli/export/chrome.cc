// SPDX-License-Identifier: Apache-2.0
// The "Trace Event Format" of chrome://tracing: a JSON object with an array of
// events, one a line. Times are us from the recording's begin, with three
// digits: exact, and small enough that a reader's doubles hold them.
#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "analysis/names.h"
#include "cli/export/events.h"

namespace ingero::cli {
namespace {

// Tracks that belong to no process are threads of this one; the CPUs of the
// next.
constexpr uint32_t kSystemPid = 0, kCpusPid = 1'000'000'000;

class ChromeSink : public EventSink {
 public:
  explicit ChromeSink(std::FILE* out) : out_(out) {}

  void Start(Ns begin, int64_t wall_clock_ns) override {
    begin_ = begin;
    std::fputs(fmt::format("{{\"displayTimeUnit\":\"ns\",\"otherData\":{{"
                           "\"clock\":\"CLOCK_MONOTONIC\",\"begin_ns\":{},"
                           "\"begin_realtime_ns\":{}}},\"traceEvents\":[\n",
                           begin.value, wall_clock_ns)
                   .c_str(),
               out_);
    Meta("process_name", kSystemPid, 0, "system");
  }

  void AddTrack(const TrackInfo& track) override {
    Place place{track.pid, track.tid, track.name};
    switch (track.kind) {
      case TrackInfo::Kind::kProcess:
        Meta("process_name", track.pid, 0, track.name);
        return;
      case TrackInfo::Kind::kThread:
        Meta("thread_name", track.pid, track.tid, track.name);
        break;
      case TrackInfo::Kind::kOther:
        // A thread of its own, with a number that no thread has.
        place.tid = next_tid_++;
        Meta("thread_name", place.pid, place.tid, track.name);
        break;
      case TrackInfo::Kind::kCounter: break;
    }
    places_.emplace(track.id, std::move(place));
  }

  void Begin(TrackId track, Ns t, std::string_view name,
             const EventArgs& args) override {
    nlohmann::ordered_json values = nlohmann::ordered_json::object();
    for (const EventArg& arg : args)
      std::visit([&](const auto& value) { values[arg.name] = value; },
                 arg.value);
    const Place& place = places_.at(track);
    Put(fmt::format("{{\"ph\":\"B\",\"pid\":{},\"tid\":{},\"ts\":{},\"name\":{}"
                    ",\"args\":{}}}",
                    place.pid, place.tid, Us(t), Quoted(name), Text(values)));
  }
  void End(TrackId track, Ns t) override {
    const Place& place = places_.at(track);
    Put(fmt::format("{{\"ph\":\"E\",\"pid\":{},\"tid\":{},\"ts\":{}}}",
                    place.pid, place.tid, Us(t)));
  }
  void Count(TrackId track, Ns t, double value) override {
    Put(fmt::format("{{\"ph\":\"C\",\"pid\":{},\"ts\":{},\"name\":{},\"args\":{{"
                    "\"value\":{}}}}}",
                    kSystemPid, Us(t), Quoted(places_.at(track).name), value));
  }

  void Switch(const analysis::Switch& s, const SchedThread& prev,
              const SchedThread& next, const SchedThread& waker) override {
    if (cpus_.empty()) Meta("process_name", kCpusPid, 0, "CPUs");
    const auto [cpu, added] = cpus_.try_emplace(s.cpu, false);
    if (added)
      Meta("thread_name", kCpusPid, s.cpu, fmt::format("CPU {}", s.cpu));
    if (cpu->second)
      Put(fmt::format("{{\"ph\":\"E\",\"pid\":{},\"tid\":{},\"ts\":{},\"args\":"
                      "{{\"end_state\":\"{}\"}}}}",
                      kCpusPid, s.cpu, Us(s.t),
                      prev.known && s.preempted
                          ? "runnable (preempted)"
                          : analysis::NameOf(s.prev_state)));
    cpu->second = next.known && next.tid != 0;
    if (!cpu->second) return;
    nlohmann::ordered_json args = {{"tid", next.tid}};
    if (s.wake) {
      args["waited_us"] = static_cast<double>((s.t - *s.wake).value) / 1e3;
      args["woken_by"] =
          waker.known ? fmt::format("{}/{}", waker.name, waker.tid)
                      : std::string("an interrupt, or not known");
    }
    Put(fmt::format("{{\"ph\":\"B\",\"pid\":{},\"tid\":{},\"ts\":{},\"name\":{}"
                    ",\"args\":{}}}",
                    kCpusPid, s.cpu, Us(s.t),
                    Quoted(fmt::format("{}/{}", next.name, next.tid)),
                    Text(args)));
  }

  // What still runs ends with the file: a viewer draws it to the end.
  void Finish() override { std::fputs("\n]}\n", out_); }

 private:
  struct Place {
    uint32_t pid, tid;
    std::string name;
  };
  static std::string Text(const nlohmann::ordered_json& value) {
    return value.dump(-1, ' ', false,
                      nlohmann::ordered_json::error_handler_t::replace);
  }
  static std::string Quoted(std::string_view text) {
    return Text(nlohmann::ordered_json(text));
  }
  std::string Us(Ns t) const {
    const int64_t ns = (t - begin_).value;
    return fmt::format("{}{}.{:03}", ns < 0 ? "-" : "", std::abs(ns) / 1000,
                       std::abs(ns) % 1000);
  }
  void Meta(const char* what, uint32_t pid, uint32_t tid,
            std::string_view name) {
    Put(fmt::format("{{\"ph\":\"M\",\"pid\":{},\"tid\":{},\"name\":\"{}\","
                    "\"args\":{{\"name\":{}}}}}",
                    pid, tid, what, Quoted(name)));
  }
  void Put(const std::string& line) {
    if (any_) std::fputs(",\n", out_);
    any_ = true;
    std::fwrite(line.data(), 1, line.size(), out_);
  }

  std::FILE* out_;
  Ns begin_;
  bool any_ = false;
  uint32_t next_tid_ = 1'000'000'001;
  std::map<TrackId, Place> places_;
  std::map<uint16_t, bool> cpus_;  // whether a slice is open
};

}  // namespace

std::unique_ptr<EventSink> MakeChromeSink(std::FILE* out) {
  return std::make_unique<ChromeSink>(out);
}

}  // namespace ingero::cli
