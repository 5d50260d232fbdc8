// SPDX-License-Identifier: Apache-2.0
// torch.profiler's traces: Chrome trace events as libkineto writes them
// (output_json.cpp of pytorch/kineto), plain or gzipped, in one pass.
//
// Times are microseconds with up to three decimals, since 1970 or, in later
// versions, since "baseTimeNanoseconds".
#include <cerrno>
#include <cstdlib>
#include <istream>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/file_error.h"
#include "import/gz_buffer.h"
#include "import/import.h"

namespace ingero::import {
namespace {

using Number = nlohmann::json::number_integer_t;
using Unsigned = nlohmann::json::number_unsigned_t;
using Float = nlohmann::json::number_float_t;

constexpr size_t kMostText = 4096;

// "1695835542514261.25" us in ns, exactly: a double has no place for that.
std::optional<int64_t> MicrosecondsToNs(std::string_view text) {
  size_t at = 0;
  const bool negative = !text.empty() && text[0] == '-';
  if (negative) ++at;
  int64_t ns = 0;
  size_t digits = 0;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
    if (++digits > 15 + 3) return std::nullopt;
    ns = ns * 10 + (text[at] - '0');
  }
  if (digits == 0 || ns > INT64_MAX / 1000) return std::nullopt;
  int decimals = 0;
  if (at < text.size() && text[at] == '.')
    for (++at; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at)
      if (decimals < 3) {
        ns = ns * 10 + (text[at] - '0');
        ++decimals;
      }
  if (at != text.size()) return std::nullopt;  // an exponent
  for (; decimals < 3; ++decimals) ns *= 10;
  return negative ? -ns : ns;
}

enum class Key : uint8_t {
  kOther, kPh, kCat, kName, kPid, kTid, kTs, kDur, kArgs,
  // Of args:
  kCorrelation, kStream, kDevice, kBytes, kArgName,
};

// What one trace event said.
struct Event {
  char ph = 0;
  std::string cat, name, arg_name;
  std::optional<int64_t> pid, tid, ts, dur, correlation, stream, device, bytes;
};

class Reader : public nlohmann::json_sax<nlohmann::json> {
 public:
  Reader(Events* events, const GzBuffer* file, int64_t file_bytes,
         const Progress& progress)
      : events_(events), file_(file), file_bytes_(file_bytes),
        progress_(progress) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(Number v) override {
    return Value(std::to_string(v));
  }
  bool number_unsigned(Unsigned v) override {
    return Value(std::to_string(v));
  }
  bool number_float(Float, const std::string& text) override {
    return Value(text);
  }
  bool string(std::string& text) override { return Value(text); }
  bool binary(nlohmann::json::binary_t&) override { return true; }

  bool start_object(size_t) override {
    if (array_ && depth_ == array_depth_) {
      event_ = {};
      in_event_ = true;
    } else if (in_event_ && depth_ == array_depth_ + 1 && key_ == Key::kArgs) {
      in_args_ = true;
    }
    ++depth_;
    return true;
  }
  bool end_object() override {
    --depth_;
    if (in_args_ && depth_ == array_depth_ + 1) in_args_ = false;
    if (in_event_ && depth_ == array_depth_) {
      in_event_ = false;
      Take();
    }
    return true;
  }
  bool start_array(size_t) override {
    // The whole, or "traceEvents" of it.
    if (!array_ && (depth_ == 0 || (depth_ == 1 && events_key_))) {
      array_ = seen_ = true;
      array_depth_ = depth_ + 1;
    }
    ++depth_;
    return true;
  }
  bool end_array() override {
    --depth_;
    if (array_ && depth_ + 1 == array_depth_) array_ = false;
    return true;
  }
  bool key(std::string& name) override {
    if (depth_ == 1 && !array_) {
      events_key_ = name == "traceEvents";
      top_key_ = name;
    }
    key_ = Key::kOther;
    if (in_args_ && depth_ == array_depth_ + 2)
      key_ = ArgKey(name);
    else if (in_event_ && depth_ == array_depth_ + 1)
      key_ = EventKey(name);
    return true;
  }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::json::exception&) override {
    error_at_ = position;
    return false;
  }

  bool seen() const { return seen_; }  // an array of events
  bool open() const { return depth_ > 0; }
  size_t error_at() const { return error_at_; }
  uint64_t read() const { return read_; }
  // Calls of runtimes that are not CUDA's, and one of their names.
  const std::map<std::string, uint64_t>& foreign() const { return foreign_; }

 private:
  static Key EventKey(std::string_view name) {
    static constexpr std::pair<std::string_view, Key> kKeys[] = {
        {"ph", Key::kPh},   {"cat", Key::kCat}, {"name", Key::kName},
        {"pid", Key::kPid}, {"tid", Key::kTid}, {"ts", Key::kTs},
        {"dur", Key::kDur}, {"args", Key::kArgs}};
    for (const auto& [text, key] : kKeys)
      if (name == text) return key;
    return Key::kOther;
  }
  static Key ArgKey(std::string_view name) {
    static constexpr std::pair<std::string_view, Key> kKeys[] = {
        {"correlation", Key::kCorrelation}, {"stream", Key::kStream},
        {"device", Key::kDevice},           {"bytes", Key::kBytes},
        {"name", Key::kArgName}};
    for (const auto& [text, key] : kKeys)
      if (name == text) return key;
    return Key::kOther;
  }

  // A number, perhaps in quotes, or a text.
  bool Value(const std::string& text) {
    if (depth_ == 1 && top_key_ == "baseTimeNanoseconds") {
      events_->real_ns_at_zero = std::strtoll(text.c_str(), nullptr, 10);
      return true;
    }
    const bool arg = in_args_ && depth_ == array_depth_ + 2;
    if (!arg && !(in_event_ && depth_ == array_depth_ + 1)) return true;
    const auto number = [&]() -> std::optional<int64_t> {
      char* end = nullptr;
      const long long v = std::strtoll(text.c_str(), &end, 10);
      if (end == text.c_str() || *end != '\0') return std::nullopt;
      return v;
    };
    switch (key_) {
      case Key::kPh: event_.ph = text.size() == 1 ? text[0] : '\0'; break;
      case Key::kCat: event_.cat = text; break;
      case Key::kName: event_.name = text.substr(0, kMostText); break;
      case Key::kArgName: event_.arg_name = text.substr(0, kMostText); break;
      case Key::kPid: event_.pid = number(); break;
      case Key::kTid: event_.tid = number(); break;
      case Key::kTs: event_.ts = MicrosecondsToNs(text); break;
      case Key::kDur: event_.dur = MicrosecondsToNs(text); break;
      case Key::kCorrelation: event_.correlation = number(); break;
      case Key::kStream: event_.stream = number(); break;
      case Key::kDevice: event_.device = number(); break;
      case Key::kBytes: event_.bytes = number(); break;
      case Key::kOther:
      case Key::kArgs: break;
    }
    return true;
  }

  static uint32_t Id(const std::optional<int64_t>& v) {
    return v && *v > 0 && *v <= INT32_MAX ? static_cast<uint32_t>(*v) : 0;
  }
  static uint64_t Count(const std::optional<int64_t>& v) {
    return v && *v > 0 ? static_cast<uint64_t>(*v) : 0;
  }

  void Take() {
    if (++read_ % 65536 == 0 && progress_)
      progress_(file_bytes_ > 0 ? static_cast<double>(file_->offset()) /
                                      static_cast<double>(file_bytes_)
                                : 1,
                read_);
    const Event& e = event_;
    if (e.ph == 'M') return TakeName();
    if (e.ph != 'X' || !e.ts || !e.dur || *e.dur < 0 ||
        *e.ts > INT64_MAX - *e.dur)
      return;
    const int64_t begin = *e.ts, end = *e.ts + *e.dur;
    if (e.cat == "cuda_runtime" || e.cat == "cuda_driver" ||
        e.cat == "Runtime") {
      // ROCm's come in the same category.
      if (e.name.starts_with("hip")) {
        ++foreign_["AMD's HIP"];
        return;
      }
      events_->calls.push_back({begin, end, Id(e.pid), Id(e.tid),
                                events_->texts.Index(e.name),
                                Count(e.correlation), 0});
    } else if (e.cat == "kernel" || e.cat == "Kernel" ||
               e.cat == "gpu_memcpy" || e.cat == "Memcpy" ||
               e.cat == "gpu_memset" || e.cat == "Memset") {
      TakeGpu(begin, end);
    } else if (e.cat == "cpu_op" || e.cat == "user_annotation") {
      events_->ranges.push_back(
          {begin, end, Id(e.pid), Id(e.tid),
           events_->texts.Index(e.cat == "cpu_op" ? "torch" : "user"),
           events_->texts.Index(e.name)});
    } else if (e.cat == "hip_runtime" || e.cat == "rocm") {
      ++foreign_["AMD's HIP"];
    } else if (e.cat == "xpu_runtime" || e.cat == "xpu_driver") {
      ++foreign_["Intel's XPU"];
    } else if (e.cat == "mtia_runtime" || e.cat == "privateuse1_runtime" ||
               e.cat == "hpu_runtime") {
      ++foreign_["an accelerator that is no GPU of NVIDIA's (" + e.cat + ")"];
    } else if (!e.cat.empty() && e.cat != "ac2g" && e.cat != "Trace" &&
               e.cat != "cuda_sync" && e.cat != "gpu_user_annotation" &&
               e.cat != "fwdbwd" && e.cat != "async_cpu_to_gpu") {
      ++events_->left_out[e.cat.substr(0, 64)];
    }
  }

  void TakeGpu(int64_t begin, int64_t end) {
    const Event& e = event_;
    GpuWork w;
    w.begin = begin;
    w.end = end;
    w.correlation = Count(e.correlation);
    w.stream = Count(e.stream ? e.stream : e.tid);
    w.bytes = Count(e.bytes);
    const uint64_t device = Count(e.device ? e.device : e.pid);
    w.device = device < 64 ? static_cast<uint32_t>(device) : 0;
    if (e.cat == "gpu_memset" || e.cat == "Memset") {
      w.kind = INGERO_GPU_MEMSET;
    } else if (e.cat == "gpu_memcpy" || e.cat == "Memcpy") {
      w.kind = INGERO_GPU_COPY;
      // "Memcpy HtoD (Pageable -> Device)"
      static constexpr std::pair<const char*, ingero_copy_direction> kTo[] = {
          {"HtoD", INGERO_COPY_H2D}, {"DtoH", INGERO_COPY_D2H},
          {"DtoD", INGERO_COPY_D2D}, {"HtoH", INGERO_COPY_H2H},
          {"PtoP", INGERO_COPY_PEER}};
      for (const auto& [text, direction] : kTo)
        if (e.name.find(text) != e.name.npos) w.direction = direction;
      w.host_memory = e.name.find("Pageable") != e.name.npos
                          ? INGERO_CALL_HOST_PAGEABLE
                      : e.name.find("Pinned") != e.name.npos
                          ? INGERO_CALL_HOST_PINNED
                          : 0;
    } else {
      w.name = events_->texts.Index(e.name);
    }
    events_->gpu.push_back(w);
  }

  void TakeName() {
    const uint32_t pid = Id(event_.pid), tid = Id(event_.tid);
    if (event_.arg_name.empty() || pid == 0) return;
    if (event_.name == "process_name")
      events_->processes[pid] = event_.arg_name;
    else if (event_.name == "thread_name" && tid != 0)
      events_->threads[{pid, tid}] = event_.arg_name;
  }

  Events* events_;
  const GzBuffer* file_;
  int64_t file_bytes_;
  const Progress& progress_;
  int depth_ = 0, array_depth_ = 0;  // of what lies in the array of events
  bool array_ = false, seen_ = false, events_key_ = false;
  bool in_event_ = false, in_args_ = false;
  Key key_ = Key::kOther;
  std::string top_key_;
  Event event_;
  size_t error_at_ = 0;
  uint64_t read_ = 0;
  std::map<std::string, uint64_t> foreign_;
};

}  // namespace

Result<Events> ReadKineto(const std::string& path, const Progress& progress) {
  GzBuffer buffer(path);
  if (!buffer.opened()) return CannotOpen(path, errno);
  std::istream in(&buffer);
  Events events;
  events.source = "torch.profiler";
  events.path = path;
  Reader reader(&events, &buffer, buffer.bytes(), progress);
  const bool whole = nlohmann::json::sax_parse(in, &reader);
  if (const std::string problem = buffer.Problem(); !problem.empty())
    return Status::Error(path + ": is cut or damaged (" + problem +
                         "); record it again, or copy it again");
  if (!whole)
    return Status::Error(
        path + ": is no JSON from byte " + std::to_string(reader.error_at()) +
        " on" +
        (reader.open() ? ": it was cut, or its program ended while it was "
                         "written; record it again"
                       : ""));
  if (!reader.seen())
    return Status::Error(
        path + ": has no \"traceEvents\", so it is no trace of torch.profiler "
               "(profiler.export_chrome_trace)");
  if (events.calls.empty() && !reader.foreign().empty())
    return Status::Error(path + ": is of " + reader.foreign().begin()->first +
                         "; ingero knows CUDA alone");
  for (const auto& [name, count] : reader.foreign())
    events.left_out[name] += count;
  if (events.calls.empty())
    return Status::Error(
        path + (events.ranges.empty() && events.gpu.empty()
                    ? ": has no event of torch.profiler"
                    : ": has no CUDA call; record it with "
                      "ProfilerActivity.CPU and ProfilerActivity.CUDA"));
  return events;
}

}  // namespace ingero::import
