// SPDX-License-Identifier: Apache-2.0
// What a recorded call may cost besides instructions, counted, not timed:
//
//   steady  between two write-outs, calls make no system call (a seccomp filter
//           kills at one), no allocation and no page fault
//   memory  what threads that make calls add to the process's memory
//
// 0: as promised; 1: not, with a line why; 77: cannot be told here. A clock
// sample (every 100 ms) or the kernel's own doings may come between, so a few
// attempts are made, each in a child; what the hot path does shows in all.
#include <fcntl.h>
#include <glob.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "wire/wire.h"

int cudaMalloc(void **p, size_t bytes);
int cudaFree(void *p);
int cudaLaunchHostFunc(void *stream, void (*fn)(void *), void *data);
typedef struct {
  unsigned x, y, z;
} dim3;
int cudaLaunchKernel(const void *func, dim3 grid, dim3 block, void **args,
                     size_t shared, void *stream);

enum { ROUNDS = 200, ATTEMPTS = 8, THREADS = 400 };

static volatile long allocations;
void *__libc_malloc(size_t bytes);
void *malloc(size_t bytes) {
  allocations++;
  return __libc_malloc(bytes);
}

static void nested(void *data) { cudaFree(data); }

// Six records: every kind of way through a wrapper.
static void calls(int rounds) {
  static const char kernel = 0;
  const dim3 one = {1, 1, 1};
  void *p;
  for (int i = 0; i < rounds; i++) {
    cudaMalloc(&p, 64);
    cudaLaunchKernel(&kernel, one, one, NULL, 0, NULL);
    cudaLaunchHostFunc(NULL, nested, NULL);
    cudaFree(NULL);
  }
}

// This process's stream, as a reader sees it.
static const unsigned char *stream(void) {
  char pattern[4096];
  glob_t found;
  struct stat st;
  const void *p = MAP_FAILED;
  snprintf(pattern, sizeof(pattern), "%s/cuda-%d-*", getenv("INGERO_DIR"),
           (int)getpid());
  if (glob(pattern, 0, NULL, &found) == 0) {
    int fd = open(found.gl_pathv[0], O_RDONLY);
    if (fd >= 0 && fstat(fd, &st) == 0)
      p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    globfree(&found);
  }
  return p == MAP_FAILED ? NULL : p;
}

static int deny_system_calls(void) {
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
  };
  struct sock_fprog program = {sizeof(code) / sizeof(code[0]), code};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

enum { FINE = 40, NO_STREAM, OTHER_CLOCK, FAULTS, ALLOCATED, NOT_RECORDED,
       NO_SECCOMP };

// In a child: its stream begins here.
static int attempt(void) {
  const struct ingero_stream_header *header;
  const struct ingero_block_header *slot;
  struct rusage before, after;
  long allocated;

  calls(1);
  header = (const void *)stream();
  if (!header) return NO_STREAM;
  if (header->clock != INGERO_CLOCK_TSC) return OTHER_CLOCK;
  slot = (const void *)((const unsigned char *)header + INGERO_BLOCK_BYTES);
#define CURSOR __atomic_load_n(&slot->cursor, __ATOMIC_ACQUIRE)
  // Twice through the slot, so that each page was touched; then as many calls
  // as fit for certain behind a write-out.
  while (CURSOR >> 32 < 2 || (uint32_t)CURSOR > 4096) calls(1);

  uint64_t from = CURSOR;
  calls(1);
  const uint64_t bytes = CURSOR - from;
  if (bytes < 5 * sizeof(struct ingero_call)) return NOT_RECORDED;

  getrusage(RUSAGE_THREAD, &before);
  allocated = allocations;
  from = CURSOR;
  calls(ROUNDS);
  if (CURSOR - from < bytes * ROUNDS) return NOT_RECORDED;
  getrusage(RUSAGE_THREAD, &after);
  if (allocations != allocated) return ALLOCATED;
  if (after.ru_minflt != before.ru_minflt || after.ru_majflt != before.ru_majflt)
    return FAULTS;

  while ((uint32_t)CURSOR > 4096) calls(1);
  if (deny_system_calls()) return NO_SECCOMP;
  from = CURSOR;
  calls(ROUNDS);
  return CURSOR - from == bytes * ROUNDS ? FINE : NOT_RECORDED;
}

static int steady(void) {
  static const char *const why[] = {
      [NO_STREAM] = "no stream", [FAULTS] = "page faults",
      [ALLOCATED] = "allocations",
      [NOT_RECORDED] = "not the records that the calls should have left"};
  int status = 0;
  for (int i = 0; i < ATTEMPTS; i++) {
    pid_t child = fork();
    if (child == 0) syscall(SYS_exit_group, attempt());
    waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == FINE) return 0;
    if (WIFEXITED(status) && WEXITSTATUS(status) == OTHER_CLOCK) {
      printf("SKIP: the clock is not the TSC: it may need system calls\n");
      return 77;
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == NO_SECCOMP) {
      printf("SKIP: no seccomp filters here\n");
      return 77;
    }
  }
  if (WIFSIGNALED(status))
    printf("signal %d: %s\n", WTERMSIG(status),
           WTERMSIG(status) == SIGSYS ? "a system call" : "");
  else
    printf("status %d: %s\n", WEXITSTATUS(status),
           WEXITSTATUS(status) < NO_SECCOMP ? why[WEXITSTATUS(status)] : "");
  return 1;
}

static pthread_barrier_t here;
static void *thread(void *unused) {
  pthread_barrier_wait(&here);
  pthread_barrier_wait(&here);  // measured
  calls(1);
  pthread_barrier_wait(&here);
  pthread_barrier_wait(&here);  // measured
  calls(1000);
  pthread_barrier_wait(&here);
  pthread_barrier_wait(&here);  // measured
  return unused;
}

// Of /proc/self/status, in bytes.
static long status_bytes(const char *field) {
  char line[256];
  long kib = -1;
  FILE *f = fopen("/proc/self/status", "r");
  while (f && fgets(line, sizeof(line), f))
    if (strncmp(line, field, strlen(field)) == 0)
      kib = atol(line + strlen(field) + 1);
  if (f) fclose(f);
  return kib * 1024;
}

static int memory(void) {
  pthread_t t[THREADS];
  pthread_attr_t attr;
  long data[3], all[3];
  calls(1);
  status_bytes("VmData:");  // stdio's own buffer
  pthread_attr_init(&attr);
  pthread_attr_setstacksize(&attr, 65536);
  pthread_barrier_init(&here, NULL, THREADS + 1);
  for (int i = 0; i < THREADS; i++)
    if (pthread_create(&t[i], &attr, thread, NULL)) return 2;
  for (int i = 0; i < 3; i++) {
    pthread_barrier_wait(&here);
    data[i] = status_bytes("VmData:");
    all[i] = status_bytes("VmSize:");
    pthread_barrier_wait(&here);
  }
  for (int i = 0; i < THREADS; i++) pthread_join(t[i], NULL);
  printf("a thread: %ld bytes private, %ld mapped; after 5,000 calls %ld, %ld "
         "more\n", (data[1] - data[0]) / THREADS, (all[1] - all[0]) / THREADS,
         (data[2] - data[1]) / THREADS, (all[2] - all[1]) / THREADS);
  // A state and a slot each; a pool of states is handed out in 64 KiB.
  return data[1] - data[0] > THREADS * 1024L + 65536 ||
         all[1] - all[0] > THREADS * (INGERO_BLOCK_BYTES + 1024L) + 65536 ||
         all[2] != all[1];
}

int main(int argc, char **argv) {
  if (argc == 2 && strcmp(argv[1], "steady") == 0) return steady();
  if (argc == 2 && strcmp(argv[1], "memory") == 0) return memory();
  return 2;
}
