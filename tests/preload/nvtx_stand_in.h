// SPDX-License-Identifier: Apache-2.0
// The part of NVTX 3 that nvtx_client uses, for machines without its header:
// same types, numbers and way of loading.
#ifndef INGERO_TESTS_PRELOAD_NVTX_STAND_IN_H_
#define INGERO_TESTS_PRELOAD_NVTX_STAND_IN_H_

#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <wchar.h>

#define NVTX_VERSION 3
#define NVTX_MESSAGE_TYPE_REGISTERED 3
#define NVTX_EVENT_ATTRIB_STRUCT_SIZE sizeof(nvtxEventAttributes_t)

typedef struct domain *nvtxDomainHandle_t;
typedef struct string *nvtxStringHandle_t;
typedef uint64_t nvtxRangeId_t;
typedef struct {
  uint16_t version, size;
  uint32_t category;
  int32_t color_type;
  uint32_t color;
  int32_t payload_type, reserved;
  uint64_t payload;
  int32_t messageType;
  union {
    const char *ascii;
    nvtxStringHandle_t registered;
  } message;
} nvtxEventAttributes_t;

static void *nvtx_core[16], *nvtx_core2[16];
static void **nvtx_core_table[16], **nvtx_core2_table[16];

static int nvtx_functions(int module, void ****table, unsigned *size) {
  if (module != 1 && module != 5) return 0;
  *table = module == 1 ? nvtx_core_table : nvtx_core2_table;
  *size = 16;
  return 1;
}

static struct {
  size_t size;
  int (*functions)(int, void ****, unsigned *);
} nvtx_callbacks = {sizeof(nvtx_callbacks), nvtx_functions};

static const void *nvtx_export(uint32_t id) {
  return id == 1 ? &nvtx_callbacks : NULL;
}

__attribute__((constructor)) static void nvtx_load(void) {
  const char *path = getenv("NVTX_INJECTION64_PATH");
  void *handle = path ? dlopen(path, RTLD_LAZY) : NULL;
  int (*start)(const void *(*)(uint32_t)) = NULL;
  for (int i = 0; i < 16; i++) {
    nvtx_core_table[i] = &nvtx_core[i];
    nvtx_core2_table[i] = &nvtx_core2[i];
  }
  if (handle) *(void **)&start = dlsym(handle, "InitializeInjectionNvtx2");
  if (start) start(nvtx_export);
}

#define NVTX_CALL(type, none, table, number, types, ...) \
  table[number] ? ((type(*) types)table[number])(__VA_ARGS__) : none

static inline void nvtxMarkA(const char *m) {
  if (nvtx_core[2]) ((void (*)(const char *))nvtx_core[2])(m);
}
static inline nvtxRangeId_t nvtxRangeStartA(const char *m) {
  return NVTX_CALL(uint64_t, 0, nvtx_core, 5, (const char *), m);
}
static inline void nvtxRangeEnd(nvtxRangeId_t id) {
  if (nvtx_core[7]) ((void (*)(uint64_t))nvtx_core[7])(id);
}
static inline int nvtxRangePushA(const char *m) {
  return NVTX_CALL(int, -2, nvtx_core, 9, (const char *), m);
}
static inline int nvtxRangePushW(const wchar_t *m) {
  return NVTX_CALL(int, -2, nvtx_core, 10, (const wchar_t *), m);
}
static inline int nvtxRangePop(void) {
  return NVTX_CALL(int, -2, nvtx_core, 11, (void), );
}
static inline int nvtxDomainRangePushEx(nvtxDomainHandle_t d,
                                        const nvtxEventAttributes_t *a) {
  return NVTX_CALL(int, -2, nvtx_core2, 4, (void *, const void *), d, a);
}
static inline int nvtxDomainRangePop(nvtxDomainHandle_t d) {
  return NVTX_CALL(int, -2, nvtx_core2, 5, (void *), d);
}
static inline nvtxStringHandle_t nvtxDomainRegisterStringA(nvtxDomainHandle_t d,
                                                           const char *m) {
  return NVTX_CALL(nvtxStringHandle_t, NULL, nvtx_core2, 10,
                   (void *, const char *), d, m);
}
static inline nvtxDomainHandle_t nvtxDomainCreateA(const char *m) {
  return NVTX_CALL(nvtxDomainHandle_t, NULL, nvtx_core2, 12, (const char *), m);
}

#endif  // INGERO_TESTS_PRELOAD_NVTX_STAND_IN_H_
