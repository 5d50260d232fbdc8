/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hot path of a wrapper. Budget: two time stamps, plain stores, one
 * release store of the cursor; no lock, libc call, system call or errno
 * change. Guarded by bench/shim_bench.cc.
 */
#ifndef INGERO_PRELOAD_TRACED_CALL_H
#define INGERO_PRELOAD_TRACED_CALL_H

#include <x86intrin.h>

#include "preload/shim.h"

static inline uint64_t ingero_ticks(void)
{
	return likely(ingero_use_tsc) ? __rdtsc() : ingero_monotonic_ns();
}

/*
 * `open` is zero while this thread's recorder writes, so a signal handler's
 * call within those stores is counted and not recorded over them.
 */
static inline void call_close(struct thread_state *t)
{
	t->open = 0;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

static inline void call_open(struct thread_state *t)
{
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	t->open = 1;
}

/* NULL: the call is not recorded (left out, counted as lost, or no session). */
static inline struct thread_state *call_enter(unsigned row)
{
	struct thread_state *t = ingero_tls.state;

	if (unlikely(__atomic_load_n(&ingero_process->mode[row], __ATOMIC_RELAXED) != CALL_RECORD ||
		     !t->open))
		return ingero_enter_slow(row);
	return t;
}

/*
 * Publishes the call in flight; returns its start. `frame` is the stack
 * address where the wrapper was entered: a call that longjmp or an exception
 * left has a frame at or below it, and is not around this one.
 */
static inline __attribute__((always_inline)) uint64_t call_begin(struct thread_state *t,
								unsigned row, uintptr_t frame,
								uint32_t *outer)
{
	uint32_t depth = t->depth;
	uint64_t start;

	if (unlikely(depth))
		depth = ingero_calls_around(t, frame);
	*outer = depth;
	t->depth = depth + 1;
	start = ingero_ticks();
	if (likely(depth < INGERO_INFLIGHT_DEPTH)) {
		struct ingero_inflight *in = &t->slot->inflight[depth];

		t->frame[depth] = frame;
		in->start_ticks = start;
		__atomic_store_n(&in->func, row + 1, __ATOMIC_RELEASE);
	}
	return start;
}

/*
 * Commits the record. `t` may have been wiped by a fork inside the call (a
 * callback): then slot is NULL and limit 0, and make_room starts afresh.
 */
static inline __attribute__((always_inline)) void call_end(struct thread_state *t, unsigned row, unsigned func_class,
			    uint32_t depth, uint64_t start, unsigned result, unsigned flags,
			    unsigned words, const __u64 *word)
{
	uint64_t end = ingero_ticks();
	const uint32_t size = (uint32_t)sizeof(struct ingero_call) + 8 * words;
	__u64 *to;

	call_close(t);
	t->depth = depth;
	if (unlikely(t->pos >= t->limit || end >= t->next_cold)) {
		t = ingero_make_room(t, row, depth);
		if (!t)
			return;
	}
	if (depth < INGERO_INFLIGHT_DEPTH)
		__atomic_store_n(&t->slot->inflight[depth].func, 0, __ATOMIC_RELAXED);
	if (func_class == INGERO_CLASS_LAUNCH) {
		uint64_t kernel = word[0];

		if (unlikely(t->seen[kernel >> 4 & (SEEN_KERNELS - 1)] != kernel ||
			     t->kernel_generation != ingero_process->kernel_generation))
			flags |= ingero_kernel_seen(t, kernel);
		/* The driver's launch inside a runtime's may be the first. */
		if (unlikely(t->first_inside && !depth)) {
			flags |= INGERO_CALL_FIRST_USE;
			t->first_inside = false;
		}
	}
	/*
	 * struct ingero_call, as three stores; layout asserted below. Flags fit
	 * their byte; a depth beyond 255 spills into `reserved`.
	 */
	to = (__u64 *)(t->records + t->pos);
	to[0] = INGERO_RECORD_CALL | (__u64)flags << 8 | (__u64)(size / 8) << 16 |
		(__u64)(row + 1) << 32 | (__u64)(result > 0xffff ? 0xffff : result) << 48;
	to[1] = start;
	to[2] = ((end - start) & 0xffffffffffff) | (__u64)depth << 48;
	for (unsigned i = 0; i < words; i++)
		to[3 + i] = word[i];
	t->pos += size;
	__atomic_store_n(&t->slot->cursor, t->sequence | t->pos, __ATOMIC_RELEASE);
	call_open(t);
}

_Static_assert(offsetof(struct ingero_call, func) == 4 &&
	       offsetof(struct ingero_call, result) == 6 &&
	       offsetof(struct ingero_call, start_ticks) == 8 &&
	       offsetof(struct ingero_call, duration_lo) == 16 &&
	       offsetof(struct ingero_call, duration_hi) == 20 &&
	       offsetof(struct ingero_call, depth) == 22, "call_end stores it in words");

#endif /* INGERO_PRELOAD_TRACED_CALL_H */
