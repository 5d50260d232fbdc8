// SPDX-License-Identifier: Apache-2.0
// Another preload library: wraps dlsym, cudaMalloc and dl_iterate_phdr with
// RTLD_NEXT and counts the first two (CASES 6). With MALLOC it wraps malloc too, and makes a CUDA call from its
// first allocation and from its constructor (CASES 9).
#include <dlfcn.h>
#include <link.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

static long dlsyms, mallocs;

#ifdef MALLOC
int cudaDeviceSynchronize(void) __attribute__((weak));
extern void *__libc_malloc(size_t);
static __thread int inside __attribute__((tls_model("initial-exec")));
static long calls;
long interposer_calls(void) { return calls; }

void *malloc(size_t bytes) {
  if (!inside && cudaDeviceSynchronize && calls < 1000) {
    inside = 1;
    calls++;
    cudaDeviceSynchronize();
    inside = 0;
  }
  return __libc_malloc(bytes);
}
__attribute__((constructor)) static void at_load(void) {
  if (cudaDeviceSynchronize && !inside) {
    inside = 1;
    calls++;
    cudaDeviceSynchronize();
    inside = 0;
  }
}
#else
void *dlsym(void *handle, const char *name) {
  static void *(*next)(void *, const char *);
  if (!next) {
    *(void **)&next = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    if (!next) *(void **)&next = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
  }
  dlsyms++;
  return next(handle, name);
}

int cudaMalloc(void **p, size_t bytes) {
  static int (*next)(void **, size_t);
  if (!next) {
    long before = dlsyms;
    *(void **)&next = dlsym(RTLD_NEXT, "cudaMalloc");
    dlsyms = before;
  }
  if (!next) abort();
  mallocs++;
  return next(p, bytes);
}
int dl_iterate_phdr(int (*look)(struct dl_phdr_info *, size_t, void *),
                    void *to) {
  static int (*next)(int (*)(struct dl_phdr_info *, size_t, void *), void *);
  if (!next) {
    long before = dlsyms;
    *(void **)&next = dlsym(RTLD_NEXT, "dl_iterate_phdr");
    dlsyms = before;
  }
  return next(look, to);
}
long interposer_dlsyms(void) { return dlsyms; }
long interposer_mallocs(void) { return mallocs; }
#endif
