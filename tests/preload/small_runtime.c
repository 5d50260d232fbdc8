// SPDX-License-Identifier: Apache-2.0
// A runtime of nine functions that says which copy it is (ID).
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

int cudaGetDeviceCount(int *count) {
  *count = ID;
  return 0;
}
int cudaMalloc(void **p, size_t bytes) {
  *p = (void *)(uintptr_t)(0x1000 + bytes);
  return 0;
}
int cudaFree(void *p) {
  return p == (void *)-1 ? 1 : 0;
}
int cudaDeviceSynchronize(void) { return 0; }
// A callback inside a call, as cudaStreamAddCallback may make one.
int cudaLaunchHostFunc(void *stream, void (*fn)(void *), void *data) {
  (void)stream;
  fn(data);
  return 0;
}
int cudaGetLastError(void) { return ID; }
int cudaRuntimeGetVersion(int *version) {
  *version = ID;
  return 0;
}
void __cudaRegisterFunction(void **module, const char *host, char *device,
                            const char *name, int limit, void *tid, void *bid,
                            void *block, void *grid, int *wsize) {
  (void)module, (void)host, (void)device, (void)name, (void)limit, (void)tid;
  (void)bid, (void)block, (void)grid, (void)wsize;
}
typedef struct {
  unsigned x, y, z;
} dim3;
int cudaLaunchKernel(const void *func, dim3 grid, dim3 block, void **args,
                     size_t shared, void *stream) {
  (void)func, (void)grid, (void)block, (void)args, (void)shared, (void)stream;
  return 0;
}
