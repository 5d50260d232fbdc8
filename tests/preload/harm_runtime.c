// SPDX-License-Identifier: Apache-2.0
// Two stand-ins that behave as the real pair does where harm would show: the
// runtime calls the driver, keeps a last error, sets errno, runs callbacks and
// has an exit handler that still calls the driver.
//   -DDRIVER   libcuda.so.1       else libcudart.so.13
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// The psABI: at a call the stack is a multiple of 16; SSE code relies on it.
// A frame address is the saved %rbp, 16 below that.
#define ALIGNED() ((uintptr_t)__builtin_frame_address(0) % 16 == 0)

enum { OK = 0, INVALID = 1, MISALIGNED = 716 };

#ifdef DRIVER

static long waits;

int cuInit(unsigned flags) { return flags ? INVALID : OK; }
int cuCtxSynchronize(void) {
  waits++;
  if (getenv("HARM_KILL")) raise(SIGKILL);
  return ALIGNED() ? OK : MISALIGNED;
}
int cuMemAlloc_v2(uint64_t *p, size_t bytes) {
  if (!ALIGNED()) return MISALIGNED;
  if (bytes == 13) {
    errno = 42;
    return 2;
  }
  *p = 0x1000 + bytes;
  return OK;
}
int cuMemFree_v2(uint64_t p) { return p == 7 ? INVALID : OK; }
int cuStreamSynchronize(void *stream) { return stream == (void *)9 ? 600 : OK; }
int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                   unsigned by, unsigned bz, unsigned shared, void *stream,
                   void **params, void **extra) {
  (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared;
  (void)stream, (void)params, (void)extra;
  return f ? OK : INVALID;
}

#else

int cuInit(unsigned flags);
int cuCtxSynchronize(void);
int cuMemAlloc_v2(uint64_t *p, size_t bytes);
int cuMemFree_v2(uint64_t p);
int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                   unsigned by, unsigned bz, unsigned shared, void *stream,
                   void **params, void **extra);

static __thread int last_error;

static int set(int status) {
  if (status) last_error = status;
  return status;
}

static void at_exit(void) {
  uint64_t p;
  if (cuMemAlloc_v2(&p, 77) != 0 || cuCtxSynchronize() != 0) _exit(99);
  if (getenv("HARM_EXIT")) {
    static const char said[] = "runtime at exit\n";
    if (write(1, said, sizeof(said) - 1) < 0) _exit(98);
  }
}
__attribute__((constructor)) static void at_load(void) { atexit(at_exit); }

int cudaMalloc(void **p, size_t bytes) {
  uint64_t address = 0;
  int status = cuMemAlloc_v2(&address, bytes);
  if (status == 0) *p = (void *)address;
  return set(status);
}
int cudaFree(void *p) { return set(cuMemFree_v2((uintptr_t)p)); }
int cudaDeviceSynchronize(void) {
  if (!ALIGNED()) return set(MISALIGNED);
  return set(cuCtxSynchronize());
}
int cudaLaunchHostFunc(void *stream, void (*fn)(void *), void *data) {
  (void)stream;
  fn(data);
  return 0;
}
int cudaGetLastError(void) {
  int status = last_error;
  last_error = 0;
  return status;
}
int cudaPeekAtLastError(void) { return last_error; }
int cudaGetDeviceCount(int *count) {
  *count = 1;
  return 0;
}
int cudaRuntimeGetVersion(int *version) {
  *version = 13000;
  return 0;
}
typedef struct {
  unsigned x, y, z;
} dim3;
void __cudaRegisterFunction(void **module, const char *host, char *device,
                            const char *name, int limit, void *tid, void *bid,
                            void *block, void *grid, int *wsize) {
  (void)module, (void)host, (void)device, (void)name, (void)limit, (void)tid;
  (void)bid, (void)block, (void)grid, (void)wsize;
}
void __cudaUnregisterFatBinary(void **module) { (void)module; }
int cudaLaunchKernel(const void *func, dim3 grid, dim3 block, void **args,
                     size_t shared, void *stream) {
  return set(cuLaunchKernel((void *)func, grid.x, grid.y, grid.z, block.x,
                            block.y, block.z, (unsigned)shared, stream, args,
                            NULL));
}
#endif
