/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of the shim share.
 *
 *   wrappers.c    expands cuda_api.def; no other file makes wrappers
 *   traced_call.h the hot path: time, call, time, commit
 *   thread_log.c  a thread's slot: attach, write out, retire
 *   session.c     the process's stream: folder, file, header, clock, exit
 *   loader.c      modules, symbol tables, libc's own dlsym
 *   resolver.c    which real function a wrapper calls; dlsym and kin
 *   library.c     entry points of NCCL, cuBLAS, cuDNN, on request
 *   coverage.c    what of all that was seen, and what escaped
 *   kernels.c     kernel names, first uses, streams under capture
 *   nvtx.c        ranges that the program marks
 *
 * Threads:    struct thread_state belongs to its thread. Everything in struct
 *             process is guarded by process->lock unless said otherwise.
 * Fork:       process and thread states live in MADV_WIPEONFORK memory. In a
 *             child they read as zero, which means "nothing begun": no slot,
 *             no session, lock free. So fork, _Fork and raw clone need no
 *             handler.
 * Locks:      one spin lock, never held across a call into the loader or CUDA;
 *             signals are blocked meanwhile.
 * Errors:     the program goes on; what is not recorded is counted.
 */
#ifndef INGERO_PRELOAD_SHIM_H
#define INGERO_PRELOAD_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/wire.h"

/* What follows is reached without the GOT: one load less each in the hot path. */
#pragma GCC visibility push(hidden)

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#define COLD __attribute__((cold, noinline))

/* ---- the table ----------------------------------------------------------- */

enum group { GROUP_DRIVER, GROUP_RT11, GROUP_RT12, GROUP_RT13, GROUPS };

/* RUNTIME(majors as a tag, groups as bits, symbol, ...) */
#define RUNTIME_11(...) RUNTIME(11, 1 << GROUP_RT11, __VA_ARGS__)
#define RUNTIME_12(...) RUNTIME(12, 1 << GROUP_RT12, __VA_ARGS__)
#define RUNTIME_13(...) RUNTIME(13, 1 << GROUP_RT13, __VA_ARGS__)
#define RUNTIME_11_12(...) \
	RUNTIME(11_12, 1 << GROUP_RT11 | 1 << GROUP_RT12, __VA_ARGS__)
#define RUNTIME_12_13(...) \
	RUNTIME(12_13, 1 << GROUP_RT12 | 1 << GROUP_RT13, __VA_ARGS__)
#define RUNTIME_11_12_13(...) \
	RUNTIME(11_12_13, 1 << GROUP_RT11 | 1 << GROUP_RT12 | 1 << GROUP_RT13, __VA_ARGS__)

/* A function's index in the table; the id in records is index + 1. */
enum {
	API_ROWS_MAX = 2048,
	LIBRARY_ROW = API_ROWS_MAX, /* row of the first entry point of a library */
	LIBRARY_ROWS_MAX = 4096,
	ROWS_MAX = LIBRARY_ROW + LIBRARY_ROWS_MAX,
};

struct api_row {
	const char *name;
	uint8_t groups; /* bit per enum group */
	uint8_t func_class;
	uint8_t words[INGERO_CALL_WORDS_MAX];
};

extern const struct api_row ingero_api[];
extern const unsigned ingero_api_rows;
extern const unsigned ingero_api_driver_rows; /* the first so many */

/* Row of that name in that group, or -1. */
int ingero_find_row(const char *name, enum group group);

/* ---- a thread ------------------------------------------------------------ */

#define SEEN_KERNELS 64

struct thread_state {
	struct ingero_block_header *slot; /* NULL: none (yet, or after fork) */
	unsigned char *records;           /* slot + 1 */
	union {
		uint64_t cursor; /* as in the slot */
		struct {
			uint32_t pos; /* bytes used */
			uint32_t sequence;
		};
	};
	uint64_t next_cold; /* ticks of the next clock sample; 0: no slot */
	uint32_t open;      /* `session` while nothing writes to the slot, else 0 */
	uint32_t session;   /* 0: no slot */
	uint32_t depth;     /* CUDA calls this thread is in */
	uint32_t news;      /* ingero_news when this thread last looked */
	uintptr_t frame[INGERO_INFLIGHT_DEPTH]; /* where those calls were entered */
	uint64_t seen[SEEN_KERNELS]; /* kernels known to be named */
	uint32_t skipped; /* left out by choice, not yet in the header */
	uint32_t kernel_generation;
	uint32_t tid;
	bool first_inside; /* a nested launch was its kernel's first */
	/* cold */
	uint64_t first_ticks; /* of the records in the slot */
	uint32_t slot_block;
	bool retired;
	struct thread_state *next_free;
	struct thread_state *next_all;
};

struct thread_local_state {
	struct thread_state *state; /* never NULL */
	uint32_t busy;              /* inside the recorder's cold path */
	uint64_t signal_mask;       /* to give back by ingero_unlock */
};
extern __thread struct thread_local_state ingero_tls
	__attribute__((tls_model("initial-exec")));

/* ---- the process --------------------------------------------------------- */

enum call_mode {
	CALL_UNSEEN = 0, /* its NAME record is not written yet */
	CALL_RECORD = 1,
	CALL_SKIP = 2, /* left out by choice */
};

/* What one thread does once while others wait or pass. */
enum once_id {
	ONCE_CLOCK,   /* the choice of a clock */
	ONCE_NVTX,    /* memory of the ranges */
	ONCE_REVERSE, /* driver functions by address */
	ONCE_SWEEP,   /* modules that reach a library; again and again */
	ONCE_MAX
};

struct process {
	uint8_t mode[ROWS_MAX]; /* enum call_mode; racy reads are fine */
	uint32_t kernel_generation; /* changes when a kernel address is reused */
	uint32_t captures;          /* streams under capture; racy reads are fine */

	uint32_t in_loader, forks; /* threads; see loader.h */
	uint32_t lock;
	uint32_t being_done[ONCE_MAX];
	uint32_t begun;  /* session: 0 not yet, 1 runs, 2 failed for good */
	uint32_t session; /* never that of a process it was forked from */
	struct ingero_stream_header *header;
	uint64_t dev, ino; /* of the stream file */
	char path[512];
	struct thread_state *all, *free;
	uint32_t states, next_sweep;
	unsigned char *pool; /* unused thread states */
	uint32_t pool_left;
	uint64_t early_skips; /* left out before there was a header */
	uint64_t early_lost[INGERO_LOSS_MAX]; /* lost before */
	uint64_t last_knot_ticks, first_knot_ticks, first_knot_ns;
	uint64_t cold_interval_ticks;
	uint32_t knots;
	uint32_t coverage_seen; /* change counter at the last emission */
	struct kernel_set *kernel_set;
	/* What goes into a graph, with 1 added, and the capture's first stream. */
	struct captured {
		uint64_t what, origin;
	} captured[32], captured_events[64];
	uint32_t next_captured_event;
};

extern struct process *ingero_process; /* never NULL */

/*
 * True: do it, then ingero_once_end(). False: it is done (waits for that).
 * `done` is plain memory. That somebody is at it is noted where a forked child
 * finds nothing: who was at it is not there, so the child does it itself, all
 * over. INVARIANT: so what is done must bear being begun twice.
 */
bool ingero_once_begin(uint32_t *done, enum once_id id);
void ingero_once_end(uint32_t *done, enum once_id id);

void ingero_lock(void);
void ingero_unlock(void);

/* session.c */
bool ingero_session_begin(struct thread_state *t); /* false: no recording */
bool ingero_wants(unsigned func_class);
bool ingero_keeps_deepbind(void); /* dlopen is to be left alone */
COLD bool ingero_process_ready(void); /* false: recording is off */
int ingero_stream_open(void);
bool ingero_reserve_space(int fd, uint64_t offset, uint64_t bytes);
void *ingero_wiped_memory(size_t bytes);
void ingero_emit_start_records(struct thread_state *t);
void ingero_knot(struct thread_state *t);
void ingero_complain(const char *what, const char *why);
void ingero_complain_of_space(void); /* not even for the first calls */
extern bool ingero_use_tsc;
COLD uint64_t ingero_monotonic_ns(void);
bool ingero_may_write(uint64_t end);

/* thread_log.c */
struct cell;
COLD struct thread_state *ingero_enter_slow(unsigned row, struct cell *cell);
/* The state to write to, or NULL. The call was entered at `depth`. */
COLD struct thread_state *ingero_make_room(struct thread_state *t, unsigned row, uint32_t depth);
/* How many of the calls that t->depth counts are still on the stack. */
__attribute__((noinline)) uint32_t ingero_calls_around(struct thread_state *t, uintptr_t frame);
/* Space for one more record, or NULL. The caller fills all but kind and size. */
void *ingero_reserve(struct thread_state *t, unsigned kind, size_t bytes);
void ingero_commit(struct thread_state *t);
/* Around records that are no calls. NULL: not now; what is lost is counted. */
struct thread_state *ingero_record_begin(uint64_t *signals);
void ingero_record_end(struct thread_state *t, uint64_t signals);
void ingero_count_loss(enum ingero_loss loss, uint64_t count);
void ingero_fold_skipped(struct thread_state *t);
void ingero_retire_all(void);
/* This thread's new state, or NULL, after the session has begun anew. */
struct thread_state *ingero_attach_anew(void);

/* resolver.c */
enum { CELL_CALLERS = 2 }; /* modules; others are looked up */
struct cell {
	struct {
		void *real;
		uintptr_t low; /* callers in [low, low + span) use `real` */
		uintptr_t span; /* written last and read first; 0: none yet */
	} of[CELL_CALLERS];
	uint32_t named; /* session that has its NAME record; racy reads are fine */
} __attribute__((aligned(64)));
COLD void *ingero_resolve(enum group group, unsigned row, struct cell *cell, uintptr_t caller);
COLD void ingero_map_proc_address(enum group asked, const char *name, void **out);
/* By row; NULL where the group lacks the row. One per group (wrappers.c). */
extern void *const ingero_wrappers_0[], *const ingero_wrappers_11[];
extern void *const ingero_wrappers_12[], *const ingero_wrappers_13[];

/* loader.c: looked up by name in libc; NULL where there is none. */
void *ingero_libc_symbol(const char *name);

/* library.c */
#define LIBRARIES_UNKNOWN (1u << 31)
/* Bit per class asked for, INGERO_CLASS_NCCL first. Set once, at load. */
extern uint32_t ingero_libraries;
extern struct api_row ingero_library_rows[LIBRARY_ROWS_MAX];
/* The module that called, where `address`, a return address, is that of a thunk. */
COLD uintptr_t ingero_true_caller(uintptr_t address);
/* Looks at modules that came since; no lock held, not inside dlopen's own work. */
COLD void ingero_libraries_sweep(void);
/* The answer to a dlsym, or NULL: not of a library that was asked for. */
COLD void *ingero_library_dlsym(void *handle, const char *name, const char *version, void *caller);

/* coverage.c: what was not written yet, where anything changed */
void ingero_emit_coverage(struct thread_state *t);
/* What was written is gone: all is due again. */
void ingero_resend_coverage(void);

/* nvtx.c */
/* What began or ended before the process had a stream. */
void ingero_nvtx_flush(struct thread_state *t);
/* Of a record in this thread's slot: has the range not ended yet? */
COLD bool ingero_nvtx_is_open(const struct ingero_nvtx_begin *begin);

/* kernels.c */
COLD unsigned ingero_kernel_seen(struct thread_state *t, uint64_t kernel, uint32_t depth);
COLD void ingero_kernel_named(uint64_t kernel, const char *name);
COLD void ingero_kernel_alias(uint64_t kernel, uint64_t known);
COLD void ingero_kernel_registered(void *module, const void *host, const char *name);
COLD void ingero_kernels_unregister(void *module);
COLD void ingero_capture_begin(uint64_t stream);
COLD void ingero_capture_end(uint64_t stream);
COLD void ingero_capture_event(uint64_t event, uint64_t stream);
COLD void ingero_capture_join(uint64_t stream, uint64_t event);
/*
 * Changes with what a call must look at: streams under capture, kernel
 * addresses in use again. A thread that missed a change asks for its call's
 * flags. Never 0; survives fork.
 */
extern uint32_t ingero_news;
COLD unsigned ingero_news_flags(struct thread_state *t, unsigned row, uint32_t depth,
				unsigned words, const __u64 *word);

#pragma GCC visibility pop

#endif /* INGERO_PRELOAD_SHIM_H */
