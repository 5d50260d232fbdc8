// SPDX-License-Identifier: Apache-2.0
// GPU figures from libnvidia-ml.so.1, loaded at run time where there is one.
// Its calls can block for long; only the thread that samples GPUs makes them.
#ifndef INGERO_KERNEL_PROBE_NVML_H_
#define INGERO_KERNEL_PROBE_NVML_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/tables.h"

namespace ingero::kernel_probe {

// One row of sample_table.
struct GpuValue {
  Metric metric;
  uint64_t instance, value;
  std::string text = {};
};

class Nvml {
 public:
  static Result<std::unique_ptr<Nvml>> Open();
  ~Nvml();
  Nvml(const Nvml&) = delete;
  size_t gpus() const { return devices_.size(); }
  // What each GPU tells; what it does not is left out. slow: also what takes
  // long (PCIe: 20 ms a counter) or changes seldom (who uses it, and how much
  // memory).
  std::vector<GpuValue> Sample(bool slow);

 private:
  struct Library;
  Nvml();
  std::unique_ptr<Library> library_;
  std::vector<void*> devices_;
};

}  // namespace ingero::kernel_probe

#endif  // INGERO_KERNEL_PROBE_NVML_H_
