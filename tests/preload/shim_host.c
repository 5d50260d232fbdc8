// SPDX-License-Identifier: Apache-2.0
// shim_host [-g] PLUG_IN...: loads each (RTLD_LOCAL; -g: the next RTLD_GLOBAL),
// then calls all of them twice, in order, and prints what their runtimes said.
// With LINKED, the program's own runtime is asked first.
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#ifdef LINKED
int cudaGetDeviceCount(int *count);
#endif

int main(int argc, char **argv) {
  int (*which[16])(void);
  int n = 0, mode = RTLD_LOCAL;

  for (int i = 1; i < argc && n < 16; i++) {
    if (strcmp(argv[i], "-g") == 0) {
      mode = RTLD_GLOBAL;
      continue;
    }
    void *handle = dlopen(argv[i], RTLD_NOW | mode);
    mode = RTLD_LOCAL;
    if (!handle) {
      fprintf(stderr, "%s\n", dlerror());
      return 1;
    }
    *(void **)&which[n++] = dlsym(handle, "plug_in_which");
  }
  // No CUDA is linked here: it must not look present.
#ifndef LINKED
  if (dlsym(RTLD_DEFAULT, "cuInit")) printf("cuInit out of nowhere ");
  if (dlsym(dlopen(NULL, RTLD_NOW), "cuMemAlloc_v2")) printf("cuMemAlloc ");
#endif
  for (int round = 0; round < 2; round++) {
#ifdef LINKED
    int own = -1;
    cudaGetDeviceCount(&own);
    printf("own=%d ", own);
#endif
    for (int i = 0; i < n; i++) printf("%d ", which[i]());
  }
  printf("\n");
  return 0;
}
