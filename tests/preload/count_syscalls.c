// SPDX-License-Identifier: Apache-2.0
// What a program does from exec to its end, counted from outside (ptrace):
//
//   count_syscalls calls PROGRAM...  a line on stdout for each system call:
//                                    its number, and what it opens
//   count_syscalls steps PROGRAM...  the number of instructions in user mode
//
// PROGRAM gets LD_PRELOAD from COUNT_PRELOAD, so that this one does without.
// 77: no ptrace here.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

static FILE *out;

static void print_call(pid_t pid) {
  struct user_regs_struct regs;
  char path[4096] = "";
  if (ptrace(PTRACE_GETREGS, pid, NULL, &regs) != 0) exit(1);
  if (regs.orig_rax == SYS_openat)
    for (size_t i = 0; i + 8 < sizeof(path); i += 8) {
      errno = 0;
      long word = ptrace(PTRACE_PEEKDATA, pid, regs.rsi + i, NULL);
      if (errno != 0) break;
      memcpy(path + i, &word, 8);
      if (memchr(&word, 0, 8) != NULL) break;
    }
  fprintf(out, "%lld %s\n", (long long)regs.orig_rax, path);
}

int main(int argc, char **argv) {
  const int steps = argc > 2 && strcmp(argv[1], "steps") == 0;
  unsigned long long count = 0;
  int status, entry = 1;
  if (argc < 3) return 2;
  out = fdopen(fcntl(1, F_DUPFD_CLOEXEC, 3), "w");
  pid_t pid = fork();
  if (pid == 0) {
    const char *preload = getenv("COUNT_PRELOAD");
    if (preload != NULL) setenv("LD_PRELOAD", preload, 1);
    unsetenv("COUNT_PRELOAD");
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) _exit(77);
    execvp(argv[2], argv + 2);
    _exit(127);
  }
  if (pid < 0 || waitpid(pid, &status, 0) != pid) return 1;
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  // Stopped at its exec.
  if (ptrace(PTRACE_SETOPTIONS, pid, NULL,
             (void *)(PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL)) != 0)
    return 77;
  for (long give = 0;;) {
    if (ptrace(steps ? PTRACE_SINGLESTEP : PTRACE_SYSCALL, pid, NULL,
               (void *)give) != 0)
      return 1;
    if (waitpid(pid, &status, 0) != pid) return 1;
    if (WIFEXITED(status)) break;
    if (!WIFSTOPPED(status)) return 1;
    const int signal = WSTOPSIG(status);
    give = 0;
    if (steps && signal == SIGTRAP) {
      count++;
    } else if (signal == (SIGTRAP | 0x80)) {
      if (entry) print_call(pid);
      entry = !entry;
    } else {
      give = signal;
    }
  }
  if (steps) fprintf(out, "%llu\n", count);
  fclose(out);
  return WEXITSTATUS(status);
}
