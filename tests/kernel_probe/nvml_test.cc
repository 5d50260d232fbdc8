// SPDX-License-Identifier: Apache-2.0
// With tests/kernel_probe/fake_nvml.c as libnvidia-ml.so.1.
#include "kernel_probe/nvml.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>

namespace ingero::kernel_probe {
namespace {

TEST(NvmlTest, EachFigureIsTheOneThatItIsCalled) {
  auto nvml = Nvml::Open();
  ASSERT_TRUE(nvml.ok()) << nvml.status().message();
  EXPECT_EQ((*nvml)->gpus(), 2u);
  using Key = std::tuple<Metric, uint64_t, std::string>;
  std::map<Key, uint64_t> got;
  for (const GpuValue& v : (*nvml)->Sample(true))
    EXPECT_TRUE(got.emplace(Key{v.metric, v.instance, v.text}, v.value).second);
  const std::map<Key, uint64_t> expected = {
      {{Metric::kGpuUtilization, 0, ""}, 41},
      {{Metric::kGpuUtilization, 1, ""}, 42},
      {{Metric::kGpuMemoryUsedBytes, 0, ""}, 1ull << 30},
      {{Metric::kGpuMemoryUsedBytes, 1, ""}, (1ull << 30) + 1},
      {{Metric::kGpuSmClockMhz, 0, ""}, 1007},
      {{Metric::kGpuSmClockMhz, 1, ""}, 1007},
      {{Metric::kGpuMemoryClockMhz, 0, ""}, 2007},
      {{Metric::kGpuMemoryClockMhz, 1, ""}, 2007},
      {{Metric::kGpuPowerMw, 0, ""}, 345678},  // the other does not know
      {{Metric::kGpuTemperatureC, 0, ""}, 61},
      {{Metric::kGpuTemperatureC, 1, ""}, 61},
      {{Metric::kGpuThrottleReasons, 0, ""}, 1ull << 40 | 4},
      {{Metric::kGpuThrottleReasons, 1, ""}, 1ull << 40 | 4},
      {{Metric::kGpuPcieSentKbPerS, 0, ""}, 5000},
      {{Metric::kGpuPcieSentKbPerS, 1, ""}, 5000},
      {{Metric::kGpuPcieReceivedKbPerS, 0, ""}, 5001},
      {{Metric::kGpuPcieReceivedKbPerS, 1, ""}, 5001},
      {{Metric::kGpuProcesses, 0, ""}, 2},
      {{Metric::kGpuProcesses, 1, ""}, 1000},
      {{Metric::kGpuProcessBytes, 4321, "0"}, 123456789},
      {{Metric::kGpuProcessBytes, 4322, "0"}, ~uint64_t{0}},
  };
  EXPECT_EQ(got, expected);

  std::set<Metric> quick;
  for (const GpuValue& v : (*nvml)->Sample(false)) quick.insert(v.metric);
  EXPECT_EQ(quick.size(), 7u);
  EXPECT_FALSE(quick.contains(Metric::kGpuPcieSentKbPerS));
}

}  // namespace
}  // namespace ingero::kernel_probe
