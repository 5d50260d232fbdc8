/* SPDX-License-Identifier: Apache-2.0 */
/*
 * System calls that leave errno alone, are no cancellation points and cannot
 * be interposed: a traced program must not notice the recorder's own. Results
 * are the kernel's: negative errno on failure.
 */
#ifndef INGERO_PRELOAD_SYSCALLS_H
#define INGERO_PRELOAD_SYSCALLS_H

#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>

static inline long sys6(long n, long a, long b, long c, long d, long e, long f)
{
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	long ret;

	__asm__ volatile("syscall"
			 : "=a"(ret)
			 : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return ret;
}

#define SYS4(n, a, b, c, d) sys6(n, (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)

static inline int sys_open(const char *path, int flags, int mode)
{
	return (int)SYS4(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, mode);
}

static inline void sys_close(int fd)
{
	SYS4(SYS_close, fd, 0, 0, 0);
}

static inline long sys_read(int fd, void *to, size_t bytes)
{
	return SYS4(SYS_read, fd, to, bytes, 0);
}

static inline long sys_pwrite(int fd, const void *from, size_t bytes, uint64_t offset)
{
	return SYS4(SYS_pwrite64, fd, from, bytes, offset);
}

/* NULL on failure. */
static inline void *sys_mmap(size_t bytes, int prot, int flags, int fd, uint64_t offset)
{
	long p = sys6(SYS_mmap, 0, (long)bytes, prot, flags, fd, (long)offset);

	return p < 0 && p > -4096 ? NULL : (void *)p;
}

/*
 * Signals wait while the recorder holds its lock or is in the loader: a handler
 * may make CUDA calls. Returns the mask to give back.
 */
static inline uint64_t sys_block_signals(void)
{
	uint64_t all = ~0ULL, before = 0;

	SYS4(SYS_rt_sigprocmask, 2 /* SIG_SETMASK */, &all, &before, sizeof(all));
	return before;
}

static inline void sys_restore_signals(uint64_t before)
{
	SYS4(SYS_rt_sigprocmask, 2, &before, 0, sizeof(before));
}

#endif /* INGERO_PRELOAD_SYSCALLS_H */
