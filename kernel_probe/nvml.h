// SPDX-License-Identifier: Apache-2.0
// GPU figures from libnvidia-ml.so.1, loaded at run time where there is one.
// Its calls can block for long; only the thread that samples GPUs makes them.
#ifndef INGERO_KERNEL_PROBE_NVML_H_
#define INGERO_KERNEL_PROBE_NVML_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/status.h"

namespace ingero::kernel_probe {

struct GpuSample {
  uint32_t gpu;
  std::optional<uint64_t> utilization_percent, memory_used_bytes, sm_clock_mhz,
      throttle_reasons, processes;
};

class Nvml {
 public:
  static Result<std::unique_ptr<Nvml>> Open();
  ~Nvml();
  Nvml(const Nvml&) = delete;
  std::vector<GpuSample> Sample();

 private:
  struct Library;
  Nvml();
  std::unique_ptr<Library> library_;
  std::vector<void*> devices_;
};

}  // namespace ingero::kernel_probe

#endif  // INGERO_KERNEL_PROBE_NVML_H_
