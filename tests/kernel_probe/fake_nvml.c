// SPDX-License-Identifier: Apache-2.0
// libnvidia-ml.so.1 of two GPUs, as far as the companion asks it. Each value is
// another one; GPU 1 does not know its power, and has more processes than fit.
#include <string.h>

struct process {
  unsigned pid;
  unsigned long long used;
  unsigned gpu_instance, compute_instance;
};

static char gpus[2];
static int number(void *device) { return (int)((char *)device - gpus); }

int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) {
  *count = 2;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
  *device = &gpus[index];
  return 0;
}
int nvmlDeviceGetUtilizationRates(void *device, unsigned *rates) {
  rates[0] = 41u + (unsigned)number(device);
  rates[1] = 99;
  return 0;
}
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *info) {
  info[0] = 80ull << 30;
  info[1] = 79ull << 30;
  info[2] = (1ull << 30) + (unsigned)number(device);
  return 0;
}
int nvmlDeviceGetClockInfo(void *device, unsigned type, unsigned *mhz) {
  (void)device;
  *mhz = 1000 * type + 7;
  return type == 1 || type == 2 ? 0 : 2;
}
int nvmlDeviceGetPowerUsage(void *device, unsigned *mw) {
  *mw = 345678;
  return number(device) ? 3 : 0;
}
int nvmlDeviceGetTemperature(void *device, unsigned sensor, unsigned *c) {
  (void)device;
  *c = 61;
  return sensor == 0 ? 0 : 2;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device,
                                              unsigned long long *reasons) {
  (void)device;
  *reasons = 1ull << 40 | 4;
  return 0;
}
int nvmlDeviceGetPcieThroughput(void *device, unsigned counter, unsigned *kb) {
  (void)device;
  *kb = 5000 + counter;
  return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count,
                                            struct process *processes) {
  if (number(device)) {
    *count = 1000;
    return 7;
  }
  struct process both[] = {{4321, 123456789, 0, 0}, {4322, ~0ull, 0, 0}};
  if (*count < 2) {
    *count = 2;
    return 7;
  }
  memcpy(processes, both, sizeof(both));
  *count = 2;
  return 0;
}
