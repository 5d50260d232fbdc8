// SPDX-License-Identifier: Apache-2.0
#include "kernel_probe/nvml.h"

#include <dlfcn.h>

#include <string>

namespace ingero::kernel_probe {
namespace {

// NVML's own values.
constexpr int kSuccess = 0;
constexpr int kInsufficientSize = 7;
constexpr unsigned kClockSm = 1;

struct Utilization {
  unsigned gpu, memory;
};
struct MemoryInfo {
  unsigned long long total, free, used;
};

}  // namespace

struct Nvml::Library {
  void* handle = nullptr;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*by_index)(unsigned, void**) = nullptr;
  int (*utilization)(void*, Utilization*) = nullptr;
  int (*memory)(void*, MemoryInfo*) = nullptr;
  int (*clock)(void*, unsigned, unsigned*) = nullptr;
  int (*throttle)(void*, unsigned long long*) = nullptr;
  int (*processes)(void*, unsigned*, void*) = nullptr;

  template <typename F>
  void Find(const char* name, F* function) {
    *function = reinterpret_cast<F>(dlsym(handle, name));
  }
};

Nvml::Nvml() : library_(std::make_unique<Library>()) {}

Nvml::~Nvml() {
  if (library_->handle == nullptr) return;
  if (library_->shutdown != nullptr) library_->shutdown();
  dlclose(library_->handle);
}

Result<std::unique_ptr<Nvml>> Nvml::Open() {
  std::unique_ptr<Nvml> nvml(new Nvml);
  Library& l = *nvml->library_;
  l.handle = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (l.handle == nullptr)
    return Status::Error("libnvidia-ml.so.1 is not installed");
  l.Find("nvmlInit_v2", &l.init);
  l.Find("nvmlDeviceGetCount_v2", &l.count);
  l.Find("nvmlDeviceGetHandleByIndex_v2", &l.by_index);
  l.Find("nvmlDeviceGetUtilizationRates", &l.utilization);
  l.Find("nvmlDeviceGetMemoryInfo", &l.memory);
  l.Find("nvmlDeviceGetClockInfo", &l.clock);
  l.Find("nvmlDeviceGetCurrentClocksThrottleReasons", &l.throttle);
  l.Find("nvmlDeviceGetComputeRunningProcesses_v3", &l.processes);
  if (l.init == nullptr || l.count == nullptr || l.by_index == nullptr)
    return Status::Error("libnvidia-ml.so.1 lacks nvmlInit_v2 or kin");
  if (const int error = l.init(); error != kSuccess)
    return Status::Error("nvmlInit_v2 failed with " + std::to_string(error));
  l.Find("nvmlShutdown", &l.shutdown);
  unsigned count = 0;
  l.count(&count);
  for (unsigned i = 0; i < count; ++i) {
    void* device = nullptr;
    nvml->devices_.push_back(l.by_index(i, &device) == kSuccess ? device
                                                                : nullptr);
  }
  if (count == 0) return Status::Error("NVML knows no GPU");
  return nvml;
}

std::vector<GpuSample> Nvml::Sample() {
  const Library& l = *library_;
  std::vector<GpuSample> samples;
  for (uint32_t i = 0; i < devices_.size(); ++i) {
    void* device = devices_[i];
    if (device == nullptr) continue;
    GpuSample s{};
    s.gpu = i;
    if (Utilization u; l.utilization != nullptr &&
                       l.utilization(device, &u) == kSuccess)
      s.utilization_percent = u.gpu;
    if (MemoryInfo m; l.memory != nullptr && l.memory(device, &m) == kSuccess)
      s.memory_used_bytes = m.used;
    if (unsigned mhz; l.clock != nullptr &&
                      l.clock(device, kClockSm, &mhz) == kSuccess)
      s.sm_clock_mhz = mhz;
    if (unsigned long long reasons; l.throttle != nullptr &&
                                    l.throttle(device, &reasons) == kSuccess)
      s.throttle_reasons = reasons;
    if (l.processes != nullptr) {
      // Asked with room for none, it tells how many there are.
      unsigned n = 0;
      const int result = l.processes(device, &n, nullptr);
      if (result == kSuccess || result == kInsufficientSize) s.processes = n;
    }
    samples.push_back(s);
  }
  return samples;
}

}  // namespace ingero::kernel_probe
