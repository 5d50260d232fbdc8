/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hot path of a wrapper. Budget: two time stamps, plain stores, one
 * release store of the cursor; no lock, libc call, system call or errno
 * change. Guarded by bench/shim_bench.cc.
 */
#ifndef INGERO_PRELOAD_TRACED_CALL_H
#define INGERO_PRELOAD_TRACED_CALL_H

#include <time.h>
#include <x86intrin.h>

#include "preload/shim.h"

static inline uint64_t ingero_ticks(void)
{
	struct timespec now;

	if (likely(ingero_use_tsc))
		return __rdtsc();
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* NULL: the call is not recorded (left out, counted as lost, or no session). */
static inline struct thread_state *call_enter(unsigned row)
{
	struct thread_state *t = ingero_tls.state;

	if (unlikely(ingero_process->mode[row] != CALL_RECORD || !t->slot || ingero_tls.busy))
		return ingero_enter_slow(row);
	return t;
}

/* Publishes the call in flight; returns its start. */
static inline __attribute__((always_inline)) uint64_t call_begin(struct thread_state *t, unsigned row)
{
	uint32_t depth = t->depth;
	uint64_t start;

	t->depth = depth + 1;
	start = ingero_ticks();
	if (likely(depth < INGERO_INFLIGHT_DEPTH)) {
		struct ingero_inflight *in = &t->slot->inflight[depth];

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
	uint64_t duration = end - start;
	struct ingero_call *call;
	uint32_t size = (uint32_t)sizeof(*call) + 8 * words;

	t->depth = depth;
	if (unlikely(t->pos >= t->limit || end >= t->next_cold)) {
		if (!ingero_make_room(t, row))
			return;
		t = ingero_tls.state;
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
	call = (struct ingero_call *)(t->records + t->pos);
	call->r.kind = INGERO_RECORD_CALL;
	call->r.flags = (__u8)flags;
	call->r.size8 = (__u16)(size / 8);
	call->func = (__u16)(row + 1);
	call->result = (__u16)(result > 0xffff ? 0xffff : result);
	call->start_ticks = start;
	call->duration_lo = (__u32)duration;
	call->duration_hi = (__u16)(duration >> 32);
	call->depth = (__u8)depth;
	call->reserved = 0;
	for (unsigned i = 0; i < words; i++)
		((__u64 *)(call + 1))[i] = word[i];
	t->pos += size;
	__atomic_store_n(&t->slot->cursor, t->sequence | t->pos, __ATOMIC_RELEASE);
}

#endif /* INGERO_PRELOAD_TRACED_CALL_H */
