// SPDX-License-Identifier: Apache-2.0
// What a program could notice of the shim: each mode checks one thing from
// inside and says on stdout what it did. Status 3: something was not as without
// the shim; stderr says what.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

extern "C" {
int cudaMalloc(void** p, size_t bytes);
int cudaFree(void* p);
int cudaDeviceSynchronize(void);
int cudaGetLastError(void);
int cudaPeekAtLastError(void);
int cudaLaunchHostFunc(void* stream, void (*fn)(void*), void* data);
struct dim3 {
  unsigned x, y, z;
};
int cudaLaunchKernel(const void* func, dim3 grid, dim3 block, void** args,
                     size_t shared, void* stream);
void __cudaRegisterFunction(void** module, const char* host, char* device,
                            const char* name, int limit, void* tid, void* bid,
                            void* block, void* grid, int* wsize);
void __cudaUnregisterFatBinary(void** module);
extern char** environ;
}

namespace {

#define EXPECT(what)                                              \
  do {                                                            \
    if (!(what)) {                                                \
      fprintf(stderr, "line %d: not so: %s (errno %d)\n", __LINE__, #what, \
              errno);                                             \
      exit(3);                                                    \
    }                                                             \
  } while (0)

void Mallocs(long from, long n) {
  void* p = nullptr;
  for (long i = 0; i < n; ++i) {
    const size_t bytes = static_cast<size_t>(from + i) * 16;
    EXPECT(cudaMalloc(&p, bytes) == 0);
    EXPECT(p == reinterpret_cast<void*>(0x1000 + bytes));
  }
}

// ---- results ---------------------------------------------------------------

void Errors(long n) {
  for (long i = 0; i < n; ++i) {
    void* p = reinterpret_cast<void*>(5);
    errno = 7;
    EXPECT(cudaMalloc(&p, 13) == 2);
    EXPECT(errno == 42);  // the real function's
    EXPECT(p == reinterpret_cast<void*>(5));
    EXPECT(cudaPeekAtLastError() == 2);
    EXPECT(cudaDeviceSynchronize() == 0);
    EXPECT(errno == 42);
    EXPECT(cudaGetLastError() == 2);  // success does not clear it
    EXPECT(cudaGetLastError() == 0);
    EXPECT(cudaFree(reinterpret_cast<void*>(7)) == 1);
    EXPECT(cudaGetLastError() == 1);
  }
}

struct Count {
  static long alive;
  Count() { ++alive; }
  ~Count() { --alive; }
};
long Count::alive;

void Throw(void* data) {
  Count here;
  if (*static_cast<int*>(data) > 0) {
    --*static_cast<int*>(data);
    cudaLaunchHostFunc(nullptr, Throw, data);
  }
  cudaDeviceSynchronize();
  throw std::runtime_error("through the shim");
}

void Exceptions(long n) {
  for (long i = 0; i < n; ++i) {
    bool caught = false;
    int nested = static_cast<int>(i % 7);
    try {
      Count here;
      cudaLaunchHostFunc(nullptr, Throw, &nested);
    } catch (const std::runtime_error& e) {
      caught = strcmp(e.what(), "through the shim") == 0;
    }
    EXPECT(caught);
    EXPECT(Count::alive == 0);
    EXPECT(cudaDeviceSynchronize() == 0);
  }
}

// ---- kernels ---------------------------------------------------------------

void Kernels(long n, long length) {
  static char host[1 << 16];
  static void* module;
  std::vector<std::string> names;
  for (long i = 0; i < n; ++i) {
    std::string name = "_Z" + std::to_string(length) + "k";
    name += std::to_string(i) + "_";
    name.resize(name.find('k') + static_cast<size_t>(length), 'x');
    names.push_back(name + "v");
  }
  for (long i = 0; i < n; ++i)
    __cudaRegisterFunction(&module, host + i, nullptr, names[i].c_str(), -1,
                           nullptr, nullptr, nullptr, nullptr, nullptr);
  for (int round = 0; round < 2; ++round)
    for (long i = 0; i < n; ++i)
      EXPECT(cudaLaunchKernel(host + i, {1, 2, 3}, {1, 1, 1}, nullptr, 0,
                              nullptr) == 0);
  __cudaUnregisterFatBinary(&module);
}

// ---- jumps -----------------------------------------------------------------

sigjmp_buf back;
void Leave(int) { siglongjmp(back, 1); }

// A handler that leaves at a random instruction, often.
void Jumps(long n) {
  struct sigaction action = {};
  action.sa_handler = Leave;
  action.sa_flags = SA_NODEFER;
  sigaction(SIGALRM, &action, nullptr);
  volatile long made = 0;
  static volatile long jumps = 0;
  const itimerval often = {{0, 20}, {0, 20}}, never = {};
  if (sigsetjmp(back, 1)) jumps = jumps + 1;
  setitimer(ITIMER_REAL, &often, nullptr);
  while (jumps < n) {
    void* p;
    cudaMalloc(&p, static_cast<size_t>(made) * 16 + 16);
    made = made + 1;
  }
  action.sa_handler = SIG_IGN;
  sigaction(SIGALRM, &action, nullptr);
  setitimer(ITIMER_REAL, &never, nullptr);
  for (int i = 0; i < 1000; ++i) EXPECT(cudaFree(nullptr) == 0);
  printf("%ld\n", jumps);
}

// ---- death -----------------------------------------------------------------

void Nest(void*) { cudaDeviceSynchronize(); }

void* Caller(void* n) {
  Mallocs(0, reinterpret_cast<long>(n));
  return nullptr;
}

// Calls after the thread that main ran on has ended.
void* AfterMain(void* main_thread) {
  EXPECT(pthread_join(reinterpret_cast<pthread_t>(main_thread), nullptr) == 0);
  Mallocs(0, 10);
  return nullptr;
}

// Returns where main is to return.
void End(const std::string& how) {
  if (how == "exit") exit(0);
  if (how == "_exit") _exit(0);
  if (how == "_Exit") _Exit(0);
  if (how == "quick_exit") quick_exit(0);
  if (how == "exit_group") syscall(SYS_exit_group, 0);
  if (how == "kill") kill(getpid(), SIGKILL);
  if (how == "term") raise(SIGTERM);
  if (how == "int") raise(SIGINT);
  if (how == "hup") raise(SIGHUP);
  if (how == "pipe") raise(SIGPIPE);
  if (how == "abort") abort();
  if (how == "segv") *reinterpret_cast<volatile int*>(getpid() % 1) = 0;
  if (how == "exec") execl("/bin/true", "true", nullptr);
  if (how == "nested") cudaLaunchHostFunc(nullptr, Nest, nullptr);
  if (how == "pthread_exit") {
    pthread_t last;
    EXPECT(pthread_create(&last, nullptr, AfterMain,
                          reinterpret_cast<void*>(pthread_self())) == 0);
    pthread_exit(nullptr);
  }
}

void* EndFromHere(void* how) {
  End(static_cast<const char*>(how));
  return nullptr;
}

// n calls in each of two threads, then the end; "thread:HOW" from a third one.
void Die(long n, const std::string& how) {
  pthread_t other;
  EXPECT(pthread_create(&other, nullptr, Caller, reinterpret_cast<void*>(n)) ==
         0);
  Mallocs(0, n);
  pthread_join(other, nullptr);
  if (!how.starts_with("thread:")) return End(how);
  std::string of_thread = how.substr(strlen("thread:"));
  EXPECT(pthread_create(&other, nullptr, EndFromHere, of_thread.data()) == 0);
  pthread_join(other, nullptr);
}

// Two threads that make calls without end; each counts in a shared file those
// that have returned.
struct Returned {
  std::atomic<uint64_t> calls;
};
void* CallAndCount(void* to) {
  auto* returned = static_cast<Returned*>(to);
  for (long i = 0;; ++i) {
    Mallocs(i, 1);
    returned->calls.store(static_cast<uint64_t>(i) + 1,
                          std::memory_order_release);
  }
}

// The end comes while they are at it, after n calls of each.
void DieMidway(long n, const std::string& how, const char* path) {
  const int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
  EXPECT(fd >= 0 && ftruncate(fd, 4096) == 0);
  auto* returned = static_cast<Returned*>(
      mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  EXPECT(returned != MAP_FAILED);
  for (int i = 0; i < 2; ++i) {
    pthread_t t;
    EXPECT(pthread_create(&t, nullptr, CallAndCount, returned + i) == 0);
  }
  for (int i = 0; i < 2; ++i)
    while (returned[i].calls.load() < static_cast<uint64_t>(n)) sched_yield();
  End(how);
}

// ---- threads ---------------------------------------------------------------

pthread_barrier_t barrier;
void* CallAndWait(void*) {
  Mallocs(0, 1);
  pthread_barrier_wait(&barrier);
  pthread_barrier_wait(&barrier);
  return nullptr;
}

long ResidentKib() {
  long pages = 0, resident = 0;
  FILE* f = fopen("/proc/self/statm", "r");
  EXPECT(f && fscanf(f, "%ld %ld", &pages, &resident) == 2);
  fclose(f);
  return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

// Resident KiB that n threads with one call each take.
void Idle(long n) {
  pthread_attr_t attr;
  pthread_attr_init(&attr);
  pthread_attr_setstacksize(&attr, 65536);
  pthread_barrier_init(&barrier, nullptr, static_cast<unsigned>(n) + 1);
  const long before = ResidentKib();
  std::vector<pthread_t> t(static_cast<size_t>(n));
  for (pthread_t& one : t)
    EXPECT(pthread_create(&one, &attr, CallAndWait, nullptr) == 0);
  pthread_barrier_wait(&barrier);
  printf("%ld\n", ResidentKib() - before);
  pthread_barrier_wait(&barrier);
  for (pthread_t one : t) pthread_join(one, nullptr);
}

void* Endless(void*) {
  void* p;
  for (long i = 0;; ++i) {
    cudaMalloc(&p, 16);
    if (i % 10 == 0) usleep(1000);
  }
}
void* Short(void*) {
  void* p;
  cudaMalloc(&p, 16);
  return nullptr;
}
void* Starter(void*) {
  for (;;) {
    pthread_t t;
    if (pthread_create(&t, nullptr, Short, nullptr) == 0)
      pthread_join(t, nullptr);
    usleep(1000);
  }
}

// 8 threads that call and start threads; n forks of which each child makes a
// call. Status 4: a child did not end.
void ForkStorm(long n) {
  for (int i = 0; i < 8; ++i) {
    pthread_t t;
    EXPECT(pthread_create(&t, nullptr, i % 2 ? Endless : Starter, nullptr) ==
           0);
    pthread_detach(t);
  }
  for (long i = 0; i < n; ++i) {
    const pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
      void* p;
      alarm(60);  // a hang ends by SIGALRM
      _exit(cudaMalloc(&p, 32) == 0 && p == reinterpret_cast<void*>(0x1020)
                ? 0
                : 5);
    }
    int status = -1;
    EXPECT(waitpid(child, &status, 0) == child);
    EXPECT(status == 0);
  }
  printf("%ld\n", n);
  fflush(stdout);
  _exit(0);
}

// Threads that still make calls while the process exits.
void Detached() {
  for (int i = 0; i < 4; ++i) {
    pthread_t t;
    EXPECT(pthread_create(&t, nullptr, i % 2 ? Endless : Starter, nullptr) ==
           0);
    pthread_detach(t);
  }
  usleep(20000);
}

// ---- exit order ------------------------------------------------------------

bool late;
void Late(const char* who, size_t bytes) {
  void* p = nullptr;
  if (!late) return;
  const int made = cudaMalloc(&p, bytes), freed = cudaFree(p);
  printf("%s %d %d %p\n", who, made, freed, p);
  fflush(stdout);
}
struct Global {
  ~Global() { Late("static", 1600); }
} global;
struct ThreadLocal {
  ~ThreadLocal() { Late("thread", 1616); }
};
thread_local ThreadLocal of_thread;
void AtExit() { Late("atexit", 1632); }
void AtQuickExit() { Late("at_quick_exit", 1648); }
pthread_key_t key;
void KeyDestructor(void* left) {
  Late("key", 1664);
  const long again = reinterpret_cast<long>(left) - 1;
  if (again) pthread_setspecific(key, reinterpret_cast<void*>(again));
}
void* WithDestructors(void*) {
  (void)&of_thread;
  of_thread = ThreadLocal();
  pthread_key_create(&key, KeyDestructor);
  pthread_setspecific(key, reinterpret_cast<void*>(3L));
  Mallocs(1, 1);
  return nullptr;
}
void ExitOrder(const std::string& how) {
  pthread_t t;
  late = true;
  (void)&of_thread;
  atexit(AtExit);
  at_quick_exit(AtQuickExit);
  EXPECT(pthread_create(&t, nullptr, WithDestructors, nullptr) == 0);
  pthread_join(t, nullptr);
  Mallocs(2, 1);
  if (how == "quick") quick_exit(21);
  if (how == "pthread") pthread_exit(nullptr);
  exit(21);
}

// ---- children --------------------------------------------------------------

void Children(char** argv) {
  char program[4096];
  const ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 1);
  EXPECT(n > 0);
  program[n] = 0;
  char name[] = "child", mode[] = "linked", count[] = "3";
  char* args[] = {name, mode, count, nullptr};
  int status = -1;
  Mallocs(0, 2);
  const pid_t by_vfork = vfork();
  if (by_vfork == 0) {
    execv(program, args);
    _exit(127);
  }
  EXPECT(waitpid(by_vfork, &status, 0) == by_vfork && status == 0);
  Mallocs(2, 2);
  pid_t spawned = 0;
  EXPECT(posix_spawn(&spawned, program, nullptr, nullptr, args, environ) == 0);
  EXPECT(waitpid(spawned, &status, 0) == spawned && status == 0);
  Mallocs(4, 2);
  (void)argv;
}

// ---- trouble ---------------------------------------------------------------

// Everything that the recorder asks of the kernel beside the hot path.
void DenySyscalls() {
  static const unsigned denied[] = {
      SYS_openat,    SYS_fallocate, SYS_pwrite64, SYS_prlimit64, SYS_madvise,
      SYS_tgkill,    SYS_nanosleep, SYS_mkdir,    SYS_lstat,     SYS_statfs,
      SYS_getcwd,    SYS_readlink,  SYS_uname,    SYS_getrandom, SYS_unlink,
      SYS_sched_yield};
  constexpr size_t kDenied = sizeof(denied) / sizeof(denied[0]);
  std::vector<sock_filter> code;
  code.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0));
  for (size_t i = 0; i < kDenied; ++i)
    code.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, denied[i],
                            static_cast<uint8_t>(kDenied - i), 0));
  code.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  code.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM));
  const sock_fprog program = {static_cast<unsigned short>(code.size()),
                              code.data()};
  EXPECT(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    printf("skip: no seccomp filters here\n");
    exit(0);
  }
}

bool Recorded() {
  DIR* dir = opendir(getenv("INGERO_DIR"));
  bool any = false;
  if (dir) {
    while (const dirent* e = readdir(dir)) any |= e->d_name[0] != '.';
    closedir(dir);
  }
  return any;
}

std::vector<int> opened;
void UseUpDescriptors() {
  const rlimit few = {64, 64};
  setrlimit(RLIMIT_NOFILE, &few);
  for (int fd; (fd = open("/dev/null", O_RDONLY)) >= 0;) opened.push_back(fd);
  EXPECT(errno == EMFILE);
}

void StartTrouble(const std::string& how) {
  if (how == "seccomp") {
    DenySyscalls();
  } else if (how == "chroot") {
    EXPECT(chroot("/proc/self/fdinfo") == 0 && chdir("/") == 0);
  } else if (how == "setuid") {
    EXPECT(setgid(65534) == 0 && setuid(65534) == 0);
  } else if (how == "descriptors") {
    UseUpDescriptors();
  } else if (how == "deleted") {
    const std::string dir = getenv("INGERO_DIR");
    EXPECT(system(("rm -r '" + dir + "'").c_str()) == 0);
  } else if (how == "moved") {
    const std::string dir = getenv("INGERO_DIR");
    EXPECT(rename(dir.c_str(), (dir + "-moved").c_str()) == 0);
  } else if (how == "closed") {
    // As daemons do; what comes next gets these numbers.
    for (int fd = 0; fd < 64; ++fd) close(fd);
    for (int fd = 0; fd < 3; ++fd)
      EXPECT(open("/dev/null", O_RDWR) == fd);
  } else {
    EXPECT(how == "none");
  }
}

// n calls, the trouble, n calls more and n of a thread that is new.
void Trouble(long n, const std::string& how, long before) {
  pthread_t t;
  Mallocs(0, before);
  StartTrouble(how);
  Mallocs(n, n);
  EXPECT(pthread_create(&t, nullptr, Caller, reinterpret_cast<void*>(n)) == 0);
  pthread_join(t, nullptr);
  printf("done\n");
}

// No descriptor at the first call; later there are. Prints the calls made.
void LateStart(long n) {
  long made = n;
  UseUpDescriptors();
  Mallocs(0, n);
  for (int fd : opened) close(fd);
  for (int i = 0; i < 3000 && !Recorded(); ++i) {
    usleep(10000);
    Mallocs(made++, 1);
  }
  Mallocs(made, n);
  printf("%ld\n", made + n);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  const long n = argc > 2 ? atol(argv[2]) : 1;
  if (mode == "linked") {
    Mallocs(0, n);
  } else if (mode == "errors") {
    Errors(n);
  } else if (mode == "exceptions") {
    Exceptions(n);
  } else if (mode == "kernels") {
    Kernels(n, argc > 3 ? atol(argv[3]) : 40);
  } else if (mode == "jumps") {
    Jumps(n);
  } else if (mode == "die") {
    Die(n, argc > 3 ? argv[3] : "");
  } else if (mode == "die_midway") {
    DieMidway(n, argv[3], argv[4]);
  } else if (mode == "idle") {
    Idle(n);
  } else if (mode == "fork_storm") {
    ForkStorm(n);
  } else if (mode == "detached") {
    Detached();
  } else if (mode == "exit_order") {
    ExitOrder(argc > 2 ? argv[2] : "");
  } else if (mode == "trouble") {
    Trouble(n, argc > 3 ? argv[3] : "", argc > 4 ? atol(argv[4]) : n);
  } else if (mode == "late_start") {
    LateStart(n);
  } else if (mode == "children") {
    Children(argv);
  } else {
    return 2;
  }
  return 0;
}
