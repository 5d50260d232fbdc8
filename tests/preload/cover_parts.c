// SPDX-License-Identifier: Apache-2.0
// Small libraries for cover_client, one each by PART.
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#if PART == 1  // a driver that is newer than ingero
int cuInit(unsigned flags) { return (int)flags; }
int cuDriverGetVersion(int *version) {
  *version = 13000;
  return 0;
}
int cuBrandNew(void) { return 77; }
int cuGetProcAddress_v2(const char *name, void **out, int version,
                        unsigned long long flags, int *status) {
  (void)version, (void)flags, (void)status;
  *out = strcmp(name, "cuInit") == 0       ? (void *)cuInit
         : strcmp(name, "cuBrandNew") == 0 ? (void *)cuBrandNew
                                           : NULL;
  return *out ? 0 : 500;
}
#elif PART == 2  // a library whose RUNPATH leads to the leaf
void *open_leaf(const char *name, int flags) {
  void *volatile handle = dlopen(name, flags);  // no tail call: we are the caller
  return handle;
}
#else  // the leaf
int leaf(void) { return 42; }
#endif
