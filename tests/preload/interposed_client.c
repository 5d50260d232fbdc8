// SPDX-License-Identifier: Apache-2.0
// Beside another interposer: 10 linked calls, 1,000 look-ups with one call each
// through the answer, and a function that the interposer does not wrap. Prints
// "look-ups calls" as the other interposer counted them. "jump": a call that
// longjmp leaves, then others.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

int cudaMalloc(void **p, size_t bytes);
int cudaFree(void *p);
int cudaDeviceSynchronize(void);
int cudaLaunchHostFunc(void *stream, void (*fn)(void *), void *data);
long interposer_dlsyms(void) __attribute__((weak));
long interposer_mallocs(void) __attribute__((weak));
long interposer_calls(void) __attribute__((weak));

static jmp_buf back;
static void leave(void *data) {
  (void)data;
  longjmp(back, 1);
}
static void nest(void *data) {
  (void)data;
  cudaDeviceSynchronize();
}

int main(int argc, char **argv) {
  void *p;
  if (argc > 1 && strcmp(argv[1], "jump") == 0) {
    if (!setjmp(back)) cudaLaunchHostFunc(NULL, leave, NULL);
    for (int i = 0; i < 3; i++) cudaMalloc(&p, 5);
    cudaLaunchHostFunc(NULL, nest, NULL);
    return 0;
  }
  if (cudaFree(NULL)) return 4;
  for (int i = 0; i < 10; i++) cudaMalloc(&p, 1);
  if (cudaFree(NULL)) return 4;
  if (interposer_calls) {
    printf("%ld\n", interposer_calls());
    return 0;
  }
  for (int i = 0; i < 1000; i++) {
    int (*f)(void **, size_t);
    *(void **)&f = dlsym(RTLD_DEFAULT, "cudaMalloc");
    if (!f) return 3;
    if (f(&p, 2) || p != (void *)0x1002) return 5;
  }
  if (interposer_dlsyms)
    printf("%ld %ld\n", interposer_dlsyms(), interposer_mallocs());
  return 0;
}
