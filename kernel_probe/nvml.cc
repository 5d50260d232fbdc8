// SPDX-License-Identifier: Apache-2.0
#include "kernel_probe/nvml.h"

#include <dlfcn.h>

#include <string>

namespace ingero::kernel_probe {
namespace {

// NVML's own values and layouts: nvml.h, driver API 12 and 13.
constexpr int kSuccess = 0;
constexpr int kInsufficientSize = 7;
constexpr unsigned kClockSm = 1, kClockMemory = 2;
constexpr unsigned kTemperatureGpu = 0;
constexpr unsigned kPcieSent = 0, kPcieReceived = 1;
constexpr unsigned kMaxProcesses = 256;

struct Utilization {
  unsigned gpu, memory;
};
struct MemoryInfo {
  unsigned long long total, free, used;
};
struct ProcessInfo {
  unsigned pid;
  unsigned long long used_bytes;
  unsigned gpu_instance, compute_instance;
};
static_assert(sizeof(ProcessInfo) == 24);

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
  int (*processes)(void*, unsigned*, ProcessInfo*) = nullptr;
  int (*power)(void*, unsigned*) = nullptr;
  int (*temperature)(void*, unsigned, unsigned*) = nullptr;
  int (*pcie)(void*, unsigned, unsigned*) = nullptr;

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
  l.Find("nvmlDeviceGetPowerUsage", &l.power);
  l.Find("nvmlDeviceGetTemperature", &l.temperature);
  l.Find("nvmlDeviceGetPcieThroughput", &l.pcie);
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

std::vector<GpuValue> Nvml::Sample(bool slow) {
  const Library& l = *library_;
  std::vector<GpuValue> values;
  for (uint32_t gpu = 0; gpu < devices_.size(); ++gpu) {
    void* device = devices_[gpu];
    if (device == nullptr) continue;
    const auto add = [&](Metric metric, uint64_t value) {
      values.push_back({metric, gpu, value});
    };
    // function(device, which..., unsigned*)
    const auto ask = [&](Metric metric, auto function, auto... which) {
      unsigned value = 0;
      if (function != nullptr &&
          function(device, which..., &value) == kSuccess)
        add(metric, value);
    };
    if (Utilization u; l.utilization != nullptr &&
                       l.utilization(device, &u) == kSuccess)
      add(Metric::kGpuUtilization, u.gpu);
    if (MemoryInfo m; l.memory != nullptr && l.memory(device, &m) == kSuccess)
      add(Metric::kGpuMemoryUsedBytes, m.used);
    ask(Metric::kGpuSmClockMhz, l.clock, kClockSm);
    ask(Metric::kGpuMemoryClockMhz, l.clock, kClockMemory);
    ask(Metric::kGpuPowerMw, l.power);
    ask(Metric::kGpuTemperatureC, l.temperature, kTemperatureGpu);
    if (unsigned long long reasons; l.throttle != nullptr &&
                                    l.throttle(device, &reasons) == kSuccess)
      add(Metric::kGpuThrottleReasons, reasons);
    if (!slow) continue;
    ask(Metric::kGpuPcieSentKbPerS, l.pcie, kPcieSent);
    ask(Metric::kGpuPcieReceivedKbPerS, l.pcie, kPcieReceived);
    if (l.processes != nullptr) {
      std::vector<ProcessInfo> processes(kMaxProcesses);
      unsigned n = kMaxProcesses;
      const int result = l.processes(device, &n, processes.data());
      // Where they are more, it tells how many, and names none.
      if (result == kSuccess || result == kInsufficientSize)
        add(Metric::kGpuProcesses, n);
      for (unsigned i = 0; result == kSuccess && i < n; ++i)
        values.push_back({Metric::kGpuProcessBytes, processes[i].pid,
                          processes[i].used_bytes, std::to_string(gpu)});
    }
  }
  return values;
}

}  // namespace ingero::kernel_probe
