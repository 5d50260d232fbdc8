// SPDX-License-Identifier: Apache-2.0
// Times look-ups of functions, each of one kind: other (a name that is not
// CUDA's), runtime (dlsym), driver (cuGetProcAddress). Prints ns per look-up,
// the median of short blocks. For shim_lookups.py.
//   lookups KIND BLOCKS
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { kBlock = 100, kVersion = 12000 };

typedef int (*get_proc_address)(const char*, void**, int, uint64_t, int*);

static double NowNs(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int Order(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

int main(int argc, char** argv) {
  const int blocks = argc == 3 ? atoi(argv[2]) : 0;
  void* runtime = dlopen("libcudart.so.13", RTLD_NOW);
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  get_proc_address get =
      driver ? (get_proc_address)dlsym(driver, "cuGetProcAddress_v2") : NULL;
  if (blocks <= 0 || runtime == NULL || get == NULL) {
    fprintf(stderr, "lookups KIND BLOCKS, with libcudart.so.13 and libcuda.so.1\n");
    return 2;
  }
  double* ns = calloc((size_t)blocks, sizeof(double));
  for (int b = 0; b < blocks; ++b) {
    void* found = NULL;
    const double begin = NowNs();
    for (int i = 0; i < kBlock; ++i) {
      int status = 0;
      if (strcmp(argv[1], "driver") == 0)
        get("cuLaunchKernel", &found, kVersion, 0, &status);
      else if (strcmp(argv[1], "runtime") == 0)
        found = dlsym(runtime, "cudaMemcpyAsync");
      else
        found = dlsym(RTLD_DEFAULT, "strlen");
    }
    ns[b] = (NowNs() - begin) / kBlock;
    if (found == NULL) return 1;
  }
  qsort(ns, (size_t)blocks, sizeof(double), Order);
  printf("%.1f\n", ns[blocks / 2]);
  return 0;
}
