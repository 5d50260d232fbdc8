// SPDX-License-Identifier: Apache-2.0
// What others recorded, as ingero's own streams: merge, explain and all the
// rest then work on it as on any recording.
//
//   format reader (kineto.cc, nsys.cc) -> Events -> WriteStreams() -> a folder
//
// What perf recorded of the scheduler: sched.h.
// To add a format: a reader that fills Events, and its row in import.cc.
//
// Threads: one. Memory: about 100 bytes an event.
// Errors: one line that says what, where and what to do. Files come from
// strangers: nothing in them is trusted.
#ifndef INGERO_IMPORT_IMPORT_H_
#define INGERO_IMPORT_IMPORT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/status.h"
#include "wire/wire.h"

namespace ingero::import {

// Each text once.
class Texts {
 public:
  // From 1 on; 0 is "".
  uint32_t Index(std::string_view text);
  const std::string& operator[](uint32_t index) const { return *texts_[index]; }

 private:
  static const std::string kNone;
  std::unordered_map<std::string, uint32_t> index_;
  std::vector<const std::string*> texts_{&kNone};
};

// All times: ns, from any one zero.
struct HostCall {
  int64_t begin = 0, end = 0;
  uint32_t pid = 0, tid = 0;
  uint32_t name = 0;  // of Events::texts
  uint64_t correlation = 0;  // 0 = none
  uint16_t result = 0;
};

struct GpuWork {
  int64_t begin = 0, end = 0;
  uint32_t pid = 0;  // 0 = not told: the correlation alone says whose it is
  uint32_t name = 0;
  uint64_t correlation = 0, stream = 0, bytes = 0;
  uint32_t device = 0;
  ingero_gpu_kind kind = INGERO_GPU_KERNEL;
  ingero_copy_direction direction = INGERO_COPY_UNKNOWN;
  uint8_t host_memory = 0;  // INGERO_CALL_HOST_PINNED, _PAGEABLE, 0: neither
};

struct HostRange {
  int64_t begin = 0, end = 0;
  uint32_t pid = 0, tid = 0;
  uint32_t domain = 0, name = 0;
};

struct Events {
  Texts texts;
  std::vector<HostCall> calls;
  std::vector<GpuWork> gpu;
  std::vector<HostRange> ranges;
  std::map<uint32_t, std::string> processes;  // names, by pid
  std::map<std::pair<uint32_t, uint32_t>, std::string> threads;  // pid, tid
  int64_t real_ns_at_zero = 0;  // CLOCK_REALTIME; 0 = not told
  std::string host;
  std::string source;  // "torch.profiler"
  std::string path;    // of the file, for errors
  // What the file had and ingero has no use for: "python_function", and how
  // often.
  std::map<std::string, uint64_t> left_out;
};

// fraction 0..1 of the file.
using Progress = std::function<void(double fraction, uint64_t events)>;

enum class Format { kKineto, kNsys, kPerfSched };
// By what the file holds. An error says what it is, or what it should be.
Result<Format> FormatOf(const std::string& path);

Result<Events> ReadKineto(const std::string& path, const Progress& progress);
Result<Events> ReadNsys(const std::string& path, const Progress& progress);
// One of these two, by what the file holds.
Result<Events> Read(const std::string& path, const Progress& progress);

struct Written {
  uint64_t calls = 0, gpu_activities = 0, ranges = 0, processes = 0;
  // GPU work of which no call is in the file, or more than one may be it.
  uint64_t unmatched = 0;
};

// Where a recording of the scheduler lies, on whose clock these streams are
// written then.
struct Placement {
  int64_t real_minus_clock_ns = 0;
  uint64_t boot = 0;
  std::map<uint32_t, int64_t> born_ns;  // by pid: those that began meanwhile
};

// A stream for each process into `folder`, which exists. An error where there is
// no CUDA call to write.
Result<Written> WriteStreams(Events events, const std::string& folder,
                             const Placement* placement = nullptr);

}  // namespace ingero::import

#endif  // INGERO_IMPORT_IMPORT_H_
