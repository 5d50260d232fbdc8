// SPDX-License-Identifier: Apache-2.0
// Clock knots and the kernel log every 100 ms and system samples every second; GPU samples at
// 10 Hz from a thread of their own, since NVML may block. Cgroups under a CPU
// quota are looked at with the knots, since short programs in containers come
// and go within a second; what has not changed is written once a second.
//
// Threads: two within; Start, then Finish.
#ifndef INGERO_KERNEL_PROBE_SAMPLER_H_
#define INGERO_KERNEL_PROBE_SAMPLER_H_

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/tables.h"
#include "bpf/probe_state.h"
#include "kernel_probe/cgroups.h"
#include "kernel_probe/nvml.h"
#include "kernel_probe/stream_writer.h"
#include "kernel_probe/xid_log.h"

namespace ingero::kernel_probe {

// First touch of a fresh page, ns: what one page fault costs here. Call it
// before attaching, which would add to it.
uint64_t MeasurePageCostNs();

// What is known once about a recording, for those who judge it.
struct RecordingFacts {
  uint64_t page_cost_ns = 0;    // 0 = not measured
  uint32_t throttle_clock = 0;  // enum ingero_throttle_clock
  uint32_t memory_stalls = 0;   // bits by enum ingero_task_event
  bool raw_pages = false;
  std::string scope;  // whose switches are recorded; "" = everybody's
  std::vector<std::string> skipped;  // probes, each with why and what misses
};

class Sampler {
 public:
  // cpu_states: for the counts of switches seen.
  Sampler(StreamWriter* writer, std::span<ingero_cpu_state> cpu_states);
  // `nvml` may be null.
  void Start(const RecordingFacts& facts, std::unique_ptr<Nvml> nvml,
             std::optional<XidLog> xids);
  // Takes a last sample and knot.
  void Finish();
  // What NVML last told: (GPU, percent of the time in which a kernel ran).
  std::vector<std::pair<uint64_t, uint64_t>> gpu_percent();

 private:
  void Run();
  void RunGpu();
  // False once Finish() was called.
  bool SleepUntil(uint64_t t_ns);
  void SampleSystem(Rows* rows);
  void SampleXids(Rows* rows);
  // Without `all`: only where something changed, and only as often as it
  // costs little.
  void SampleCgroups(bool all, Rows* rows);

  StreamWriter* writer_;
  std::span<ingero_cpu_state> cpu_states_;
  RecordingFacts facts_;
  std::unique_ptr<Nvml> nvml_;
  std::optional<XidLog> xids_;
  std::optional<CpuController> controller_;
  std::unordered_map<uint64_t, uint64_t> periods_;  // by id, last written
  uint64_t next_cgroups_ns_ = 0;  // not before, without `all`
  std::mutex mutex_;
  std::condition_variable wake_;
  bool finish_ = false;  // under mutex_
  std::map<uint64_t, uint64_t> gpu_percent_;  // likewise
  std::thread thread_, gpu_thread_;
};

}  // namespace ingero::kernel_probe

#endif  // INGERO_KERNEL_PROBE_SAMPLER_H_
