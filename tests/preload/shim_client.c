// SPDX-License-Identifier: Apache-2.0
// Makes CUDA calls in one of many ways; what it prints is what it did.
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

int cudaGetDeviceCount(int *count);
int cudaMalloc(void **p, size_t bytes);
int cudaFree(void *p);
int cudaDeviceSynchronize(void);
int cudaGetLastError(void);
int cudaLaunchHostFunc(void *stream, void (*fn)(void *), void *data);
typedef struct {
  unsigned x, y, z;
} dim3;
int cudaLaunchKernel(const void *func, dim3 grid, dim3 block, void **args,
                     size_t shared, void *stream);
void __cudaRegisterFunction(void **module, const char *host, char *device,
                            const char *name, int limit, void *tid, void *bid,
                            void *block, void *grid, int *wsize);

// Numbered calls: the size argument counts up, so the reader can tell which
// are missing or doubled.
static void malloc_calls(long from, long n) {
  void *p;
  for (long i = 0; i < n; i++) cudaMalloc(&p, (size_t)(from + i));
}

static long per_thread;
static pthread_barrier_t all_here;
static void *short_thread(void *arg) {
  malloc_calls((long)arg, per_thread);
  return NULL;
}
static void *together(void *arg) {
  malloc_calls((long)arg, 1);
  pthread_barrier_wait(&all_here);
  malloc_calls((long)arg + 1, 1);
  return NULL;
}
static void *endless(void *arg) {
  for (long i = (long)arg;; i++) {
    malloc_calls(i, 1);
    if (i % 100 == 0) usleep(1000);
  }
  return NULL;
}

static void *die(void *arg) {
  usleep(50000);
  (void)arg;
  return NULL;
}

static pthread_key_t late_key;
static void late_destructor(void *value) {
  malloc_calls((long)value, 1);
  if ((long)value < 903) pthread_setspecific(late_key, (void *)((long)value + 1));
}
static void *late_thread(void *arg) {
  (void)arg;
  pthread_setspecific(late_key, (void *)901L);
  malloc_calls(900, 1);
  return NULL;
}
static int late;
static void at_exit(void) { malloc_calls(910, 1); }
__attribute__((destructor)) static void at_unload(void) {
  if (late) malloc_calls(911, 1);
}

static void child_calls(void) {
  malloc_calls(5000, 1000);
  _exit(0);
}

static void fork_in_callback(void *data) {
  pid_t *child = data;
  *child = fork();
}

static volatile long handled;
static void on_signal(int number) {
  (void)number;
  malloc_calls(1, 1);
  handled++;
}

int main(int argc, char **argv) {
  const char *mode = argc > 1 ? argv[1] : "";
  long n = argc > 2 ? atol(argv[2]) : 100;

  if (strcmp(mode, "none") == 0) return 0;
  if (strcmp(mode, "linked") == 0) {
    malloc_calls(0, n);
  } else if (strcmp(mode, "dlsym") == 0 || strcmp(mode, "dlvsym") == 0) {
    int (*f)(void **, size_t);
    void *p;
    *(void **)&f = mode[2] == 's'
                       ? dlsym(RTLD_DEFAULT, "cudaMalloc")
                       : dlvsym(RTLD_DEFAULT, "cudaMalloc", "libcudart.so.13");
    if (!f) return 3;
    for (long i = 0; i < n; i++) f(&p, (size_t)i);
  } else if (strcmp(mode, "getter") == 0) {
    malloc_calls(0, 1);
    for (long i = 0; i < n; i++)
      if (cudaGetLastError() != 13) return 3;
  } else if (strcmp(mode, "threads") == 0) {
    // n short threads, at most 8 at once, 3 calls each
    per_thread = 3;
    for (long i = 0; i < n; i += 8) {
      pthread_t t[8];
      long k = n - i < 8 ? n - i : 8;
      for (long j = 0; j < k; j++)
        if (pthread_create(&t[j], NULL, short_thread, (void *)((i + j) * 3)))
          return 3;
      for (long j = 0; j < k; j++) pthread_join(t[j], NULL);
    }
  } else if (strcmp(mode, "together") == 0) {
    pthread_t *t = calloc((size_t)n, sizeof(*t));
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 65536);
    pthread_barrier_init(&all_here, NULL, (unsigned)n);
    for (long i = 0; i < n; i++)
      if (pthread_create(&t[i], &attr, together, (void *)(i * 2))) return 3;
    for (long i = 0; i < n; i++) pthread_join(t[i], NULL);
  } else if (strcmp(mode, "fork") == 0 || strcmp(mode, "_Fork") == 0 ||
             strcmp(mode, "clone") == 0) {
    pid_t child;
    malloc_calls(0, 500);
    if (strcmp(mode, "fork") == 0)
      child = fork();
    else if (strcmp(mode, "_Fork") == 0)
#if __GLIBC_PREREQ(2, 34)
      child = _Fork();
#else
      child = fork();
#endif
    else
      child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) child_calls();
    malloc_calls(500, 500);
    waitpid(child, NULL, 0);
    printf("%d\n", (int)child);
  } else if (strcmp(mode, "fork_inside") == 0) {
    pid_t child = -1;
    malloc_calls(0, 10);
    cudaLaunchHostFunc(NULL, fork_in_callback, &child);
    malloc_calls(child ? 10 : 5000, 10);
    if (child) waitpid(child, NULL, 0);
  } else if (strcmp(mode, "fork_threads") == 0) {
    // fork while other threads attach and write out
    pthread_t t[4];
    for (long i = 0; i < 4; i++)
      pthread_create(&t[i], NULL, endless, (void *)(i * 1000000));
    for (long i = 0; i < n; i++) {
      pid_t child = fork();
      if (child == 0) {
        malloc_calls(0, 5);
        _exit(0);
      }
      waitpid(child, NULL, 0);
    }
    _exit(0);
  } else if (strcmp(mode, "die") == 0) {
    // 2 threads, n calls each, then the way of argv[3]
    const char *how = argc > 3 ? argv[3] : "exit";
    pthread_t t[2];
    per_thread = n;
    for (long i = 0; i < 2; i++)
      pthread_create(&t[i], NULL, short_thread, (void *)(i * n));
    for (long i = 0; i < 2; i++) pthread_join(t[i], NULL);
    pthread_create(&t[0], NULL, die, NULL);
    if (strcmp(how, "kill") == 0) kill(getpid(), SIGKILL);
    if (strcmp(how, "_exit") == 0) _exit(0);
    if (strcmp(how, "abort") == 0) abort();
    if (strcmp(how, "segv") == 0) raise(SIGSEGV);
  } else if (strcmp(mode, "late") == 0) {
    pthread_t t;
    late = 1;
    atexit(at_exit);
    pthread_key_create(&late_key, late_destructor);
    pthread_create(&t, NULL, late_thread, NULL);
    pthread_join(t, NULL);
  } else if (strcmp(mode, "errno") == 0) {
    void *p;
    for (long i = 0; i < n; i++) {
      errno = 77;
      cudaMalloc(&p, (size_t)i);
      if (errno != 77) {
        printf("errno %d at %ld\n", errno, i);
        return 3;
      }
    }
  } else if (strcmp(mode, "kernels") == 0) {
    static char kernel[3];
    static void *module;
    dim3 one = {2, 3, 4};
    __cudaRegisterFunction(&module, &kernel[0], &kernel[0], "_Z3addPf", -1, 0,
                           0, 0, 0, 0);
    __cudaRegisterFunction(&module, &kernel[1], &kernel[1], "_Z3mulPf", -1, 0,
                           0, 0, 0, 0);
    for (long i = 0; i < n; i++)
      for (int k = 0; k < 3; k++)
        cudaLaunchKernel(&kernel[k], one, one, NULL, 0, (void *)0x77);
  } else if (strcmp(mode, "signal") == 0) {
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGALRM, &action, NULL);
    ualarm(50, 50);
    malloc_calls(0, n);
    ualarm(0, 0);
    printf("%ld\n", handled);
  } else if (strcmp(mode, "exec") == 0) {
    malloc_calls(0, 10);
    execl(argv[0], argv[0], "linked", "10", (char *)NULL);
    return 3;
  } else {
    return 2;
  }
  return 0;
}
