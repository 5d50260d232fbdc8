// SPDX-License-Identifier: Apache-2.0
// Clock knots every 100 ms and system samples every second; GPU samples at
// 10 Hz from a thread of their own, since NVML may block. Cgroups under a CPU
// quota are looked at with the knots, since short programs in containers come
// and go within a second; what has not changed is written once a second.
//
// Threads: two within; Start, then Finish.
#ifndef INGERO_KERNEL_PROBE_SAMPLER_H_
#define INGERO_KERNEL_PROBE_SAMPLER_H_

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/tables.h"
#include "bpf/probe_state.h"
#include "kernel_probe/cgroups.h"
#include "kernel_probe/nvml.h"
#include "kernel_probe/stream_writer.h"

namespace ingero::kernel_probe {

// First touch of a fresh page, ns: what one page fault costs here. Call it
// before attaching, which would add to it.
uint64_t MeasurePageCostNs();

class Sampler {
 public:
  // cpu_states: for the counts of switches seen. throttle_clock: enum
  // ingero_throttle_clock.
  Sampler(StreamWriter* writer, std::span<ingero_cpu_state> cpu_states,
          uint64_t page_cost_ns, uint32_t throttle_clock);
  // `nvml` may be null.
  void Start(std::unique_ptr<Nvml> nvml);
  // Takes a last sample and knot.
  void Finish();

 private:
  void Run();
  void RunGpu();
  // False once Finish() was called.
  bool SleepUntil(uint64_t t_ns);
  void SampleSystem(Rows* rows);
  // Without `all`: only where something changed, and only as often as it
  // costs little.
  void SampleCgroups(bool all, Rows* rows);

  StreamWriter* writer_;
  std::span<ingero_cpu_state> cpu_states_;
  uint64_t page_cost_ns_;
  uint32_t throttle_clock_;
  std::unique_ptr<Nvml> nvml_;
  std::optional<CpuController> controller_;
  std::unordered_map<uint64_t, uint64_t> periods_;  // by id, last written
  uint64_t next_cgroups_ns_ = 0;  // not before, without `all`
  std::mutex mutex_;
  std::condition_variable wake_;
  bool finish_ = false;  // under mutex_
  std::thread thread_, gpu_thread_;
};

}  // namespace ingero::kernel_probe

#endif  // INGERO_KERNEL_PROBE_SAMPLER_H_
