// SPDX-License-Identifier: Apache-2.0
// nvtx_client [HEADER]: marks ranges by NVTX around calls of a runtime. Built
// with the NVTX 3 header where there is one, else with a stand-in that loads
// the injection library as that header does: the environment variable, dlopen,
// InitializeInjectionNvtx2, then calls through its tables.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <wchar.h>

#ifdef HAVE_NVTX3
#include <nvtx3/nvToolsExt.h>
#else
#include "tests/preload/nvtx_stand_in.h"
#endif

int cudaMalloc(void **p, size_t bytes);

static void attributed(nvtxDomainHandle_t domain, nvtxStringHandle_t name) {
  nvtxEventAttributes_t a;
  memset(&a, 0, sizeof(a));
  a.version = NVTX_VERSION;
  a.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  a.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  a.message.registered = name;
  nvtxDomainRangePushEx(domain, &a);
}

static void *ender(void *id) {
  nvtxRangeEnd(*(nvtxRangeId_t *)id);
  return NULL;
}

int main(void) {
  void *p;
  int depths[4];
  pthread_t thread;

  nvtxRangePushA("whole run");  // begins before the first CUDA call
  cudaMalloc(&p, 1);
  for (int step = 0; step < 10; step++) {
    depths[0] = nvtxRangePushA("step");
    depths[1] = nvtxRangePushW(L"l\u00f6ad \u20ac \U0001f600");
    cudaMalloc(&p, 2);
    depths[2] = nvtxRangePop();
    depths[3] = nvtxRangePop();
  }
  nvtxDomainHandle_t domain = nvtxDomainCreateA("my library");
  nvtxStringHandle_t name = nvtxDomainRegisterStringA(domain, "solve");
  attributed(domain, name);
  nvtxRangePushA("inside");
  nvtxDomainRangePop(domain);  // crosses the other domain's range
  nvtxRangePop();
  nvtxRangeId_t id = nvtxRangeStartA("over threads");
  pthread_create(&thread, NULL, ender, &id);
  pthread_join(thread, NULL);
  nvtxRangeEnd(id);  // a second end, and one of nothing
  nvtxRangeEnd(12345);
  nvtxMarkA("now");
  // More than are kept at once come back balanced.
  for (int i = 0; i < 100; i++) nvtxRangePushA("deep");
  for (int i = 0; i < 100; i++) nvtxRangePop();
  int child = fork();
  if (child == 0) {
    cudaMalloc(&p, 3);
    nvtxRangePop();  // its parent's: not begun here
    nvtxRangePushA("child");
    attributed(domain, name);
    nvtxDomainRangePop(domain);
    nvtxRangePop();
    exit(0);
  }
  waitpid(child, NULL, 0);
  nvtxRangePop();
  nvtxRangePop();  // one too many
  printf("%d %d %d %d\n", depths[0] == depths[3], depths[1] == depths[2],
         domain != NULL, name != NULL);
  return 0;
}
