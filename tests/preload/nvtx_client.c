// SPDX-License-Identifier: Apache-2.0
// nvtx_client [WHAT]: marks ranges by NVTX around calls of a runtime.
//   killed, left, ended   many kinds, some open; then SIGKILL, _exit or exit
//   early ENDED OPEN      so many before the first call of CUDA
//   no-cuda               some, and no call of CUDA
//   full STEPS            a range around so many with a call each, then SIGKILL
//   race THREADS STEPS    threads mark ranges while one of them begins with CUDA
// Built with the NVTX 3 header where there is one, else with a stand-in that
// loads the injection library as that header does: the environment variable,
// dlopen, InitializeInjectionNvtx2, then calls through its tables.
#include <pthread.h>
#include <signal.h>
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

static void *early_thread(void *unused) {
  (void)unused;
  nvtxRangePushA("early thread");
  nvtxRangePop();
  return NULL;
}

static pthread_barrier_t both;

static void *open_thread(void *unused) {
  (void)unused;
  nvtxRangePushA("thread's");
  pthread_barrier_wait(&both);
  pause();
  return NULL;
}

static void open_ranges(const char *how) {
  void *p;
  pthread_t thread;
  nvtxDomainHandle_t domain = nvtxDomainCreateA("my library");
  nvtxStringHandle_t name = nvtxDomainRegisterStringA(domain, "solve");
  nvtxRangePushA("early");
  nvtxRangePop();
  nvtxMarkA("early mark");
  nvtxRangePushA("whole run");
  nvtxRangeStartA("started early");
  nvtxRangeId_t ended = nvtxRangeStartA("ended late");
  pthread_create(&thread, NULL, early_thread, NULL);
  pthread_join(thread, NULL);
  cudaMalloc(&p, 1);
  pthread_create(&thread, NULL, ender, &ended);
  pthread_join(thread, NULL);
  nvtxRangePushA("epoch");
  for (int step = 0; step < 3; step++) {
    nvtxRangePushA("step");
    cudaMalloc(&p, 2);
    nvtxRangePop();
  }
  nvtxRangeStartA("started late");
  attributed(domain, name);
  pthread_barrier_init(&both, NULL, 2);
  pthread_create(&thread, NULL, open_thread, NULL);
  pthread_barrier_wait(&both);
  int child = fork();
  if (child == 0) {
    nvtxRangePushA("child's early");
    cudaMalloc(&p, 3);
    nvtxRangePushA("child's");
    _exit(0);
  }
  waitpid(child, NULL, 0);
  cudaMalloc(&p, 4);
  if (strcmp(how, "killed") == 0) kill(getpid(), SIGKILL);
  if (strcmp(how, "left") == 0) _exit(0);
}

static void early(int ended, int open) {
  void *p;
  for (int i = 0; i < ended; i++) {
    nvtxRangePushA("ended");
    nvtxRangePop();
  }
  nvtxRangeId_t ids[1024];
  for (int i = 0; i < open; i++) ids[i] = nvtxRangeStartA("open");
  cudaMalloc(&p, 1);
  for (int i = 0; i < open; i++) nvtxRangeEnd(ids[i]);
}

static void full(int steps) {
  void *p;
  cudaMalloc(&p, 1);
  nvtxRangePushA("whole run");
  for (int i = 0; i < steps; i++) {
    nvtxRangePushA("step");
    cudaMalloc(&p, 2);
    nvtxRangePop();
  }
  kill(getpid(), SIGKILL);
}

static int race_steps;

static void *racer(void *begins) {
  void *p;
  pthread_barrier_wait(&both);
  for (int i = 0; i < race_steps; i++) {
    nvtxRangePushA("raced");
    if (begins && i == race_steps / 2) cudaMalloc(&p, 1);
    nvtxRangePop();
  }
  return NULL;
}

static void race(int threads, int steps) {
  pthread_t thread[64];
  race_steps = steps;
  pthread_barrier_init(&both, NULL, (unsigned)threads);
  for (int i = 0; i < threads; i++)
    pthread_create(&thread[i], NULL, racer, i == 0 ? &both : NULL);
  for (int i = 0; i < threads; i++) pthread_join(thread[i], NULL);
}

int main(int argc, char **argv) {
  if (argc > 1) {
    const int first = argc > 2 ? atoi(argv[2]) : 0;
    const int second = argc > 3 ? atoi(argv[3]) : 0;
    if (strcmp(argv[1], "early") == 0)
      early(first, second);
    else if (strcmp(argv[1], "full") == 0)
      full(first);
    else if (strcmp(argv[1], "race") == 0)
      race(first, second);
    else if (strcmp(argv[1], "no-cuda") == 0)
      early_thread(NULL);
    else
      open_ranges(argv[1]);
    return 0;
  }
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
