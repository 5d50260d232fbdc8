// SPDX-License-Identifier: Apache-2.0
// cover_client MODE ARGUMENT...: reaches CUDA in ways that a shim may miss;
// prints what the program itself saw.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int (*get_t)(const char *, void **, int, unsigned long long, int *);

static void *must(void *p) {
  if (!p) {
    fprintf(stderr, "%s\n", dlerror());
    exit(4);
  }
  return p;
}

int main(int argc, char **argv) {
  const char *mode = argc > 1 ? argv[1] : "";

  if (strcmp(mode, "driver") == 0) {
    // As a static runtime does: dlsym once, then names through the pointer.
    void *driver = must(dlopen(argv[2], RTLD_NOW)), *p = NULL, *again = NULL;
    get_t get;
    *(void **)&get = must(dlsym(driver, "cuGetProcAddress_v2"));
    if (get("cuInit", &p, 2000, 0, NULL)) return 3;
    printf("%d ", ((int (*)(unsigned))p)(0));
    if (get("cuBrandNew", &p, 13000, 0, NULL)) return 3;
    again = must(dlsym(driver, "cuBrandNew"));
    printf("%d %d ", ((int (*)(void))p)(), p == again);
    printf("%d\n", dlsym(driver, "cuNoSuchThing") != NULL);
  } else if (strcmp(mode, "plug-in") == 0) {
    // plug-in FLAGS FILE: asks its runtime twice
    int flags = atoi(argv[2]);
    void *handle = must(dlopen(argv[3], flags));
    int (*which)(void);
    *(void **)&which = must(dlsym(handle, "plug_in_which"));
    printf("%d ", which());
    printf("%d\n", which());
  } else if (strcmp(mode, "runpath") == 0) {
    // runpath FLAGS FILE LEAF: FILE's RUNPATH leads to LEAF, ours does not
    int flags = atoi(argv[2]);
    void *handle = must(dlopen(argv[3], RTLD_NOW));
    void *(*open_leaf)(const char *, int);
    int (*leaf)(void);
    *(void **)&open_leaf = must(dlsym(handle, "open_leaf"));
    printf("%d ", dlopen(argv[4], flags) != NULL);
    *(void **)&leaf = must(dlsym(must(open_leaf(argv[4], flags)), "leaf"));
    printf("%d\n", leaf());
  } else if (strcmp(mode, "wait") == 0) {
    // wait FILE...: loads them, says so, and waits to be ended
    for (int i = 2; i < argc; i++) must(dlopen(argv[i], RTLD_NOW));
    puts("ready");
    fflush(stdout);
    while (getchar() != EOF) continue;
  } else {
    return 2;
  }
  return 0;
}
