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

/* Of the slot's bytes; a call record fits behind any position below LIMIT. */
enum {
	SLOT_BYTES = INGERO_BLOCK_BYTES - sizeof(struct ingero_block_header),
	CALL_BYTES_MAX = sizeof(struct ingero_call) + 8 * INGERO_CALL_WORDS_MAX,
	SLOT_LIMIT = SLOT_BYTES - CALL_BYTES_MAX + 1,
};

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
	t->open = t->session;
}

/* NULL: the call is not recorded (left out, counted as lost, or no session). */
static inline struct thread_state *call_enter(unsigned row, struct cell *cell)
{
	struct thread_state *t = ingero_tls.state;
	uint32_t named = __atomic_load_n(&cell->named, __ATOMIC_RELAXED);

	if (unlikely(named != t->open || !named))
		return ingero_enter_slow(row, cell);
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

	if (depth && unlikely(depth > INGERO_INFLIGHT_DEPTH || t->frame[depth - 1] <= frame))
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
 * callback): then next_cold is 0, and make_room starts afresh. Closed before
 * `end` was read: a handler's call in between would end later and be stored
 * first, and readers rely on ends that never fall within a slot.
 */
static inline __attribute__((always_inline)) void call_end(struct thread_state *t, unsigned row,
							   unsigned func_class, uint32_t depth,
							   uint64_t start, uint64_t end,
							   unsigned result, unsigned flags,
							   unsigned words, const __u64 *word)
{
	typedef __u16 __attribute__((may_alias)) u16;
	typedef __u32 __attribute__((may_alias)) u32;
	typedef __u64 __attribute__((may_alias)) u64;
	const uint32_t size = (uint32_t)sizeof(struct ingero_call) + 8 * words;
	unsigned char *to;
	uint64_t cursor;

	t->depth = depth;
	if (unlikely(t->pos >= SLOT_LIMIT || end >= t->next_cold)) {
		t = ingero_make_room(t, row, depth);
		if (!t)
			return;
	}
	if (likely(depth < INGERO_INFLIGHT_DEPTH))
		__atomic_store_n(&t->slot->inflight[depth].func, 0, __ATOMIC_RELAXED);
	if (func_class == INGERO_CLASS_LAUNCH) {
		uint64_t kernel = word[0];

		if (unlikely(t->seen[kernel >> 4 & (SEEN_KERNELS - 1)] != kernel))
			flags |= ingero_kernel_seen(t, kernel, depth);
	}
	/* struct ingero_call in few stores; layout asserted below. */
	cursor = t->cursor;
	to = t->records + (uint32_t)cursor;
	*(u32 *)to = INGERO_RECORD_CALL | flags << 8 | (size / 8) << 16;
	*(u32 *)(to + 4) = (row + 1) | (result > 0xffff ? 0xffff : result) << 16;
	*(u64 *)(to + 8) = start;
	*(u64 *)(to + 16) = end - start;
	*(u16 *)(to + 22) = (u16)depth; /* over the duration's top; beyond 255 spills */
	/* Not a loop: as memcpy it would send `word` through memory. */
	if (words > 0)
		*(u64 *)(to + 24) = word[0];
	if (words > 1)
		*(u64 *)(to + 32) = word[1];
	if (words > 2)
		*(u64 *)(to + 40) = word[2];
	if (words > 3)
		*(u64 *)(to + 48) = word[3];
	cursor += size;
	t->cursor = cursor;
	__atomic_store_n(&t->slot->cursor, cursor, __ATOMIC_RELEASE);
	call_open(t);
}

_Static_assert(offsetof(struct ingero_call, func) == 4 &&
	       offsetof(struct ingero_call, result) == 6 &&
	       offsetof(struct ingero_call, start_ticks) == 8 &&
	       offsetof(struct ingero_call, duration_lo) == 16 &&
	       offsetof(struct ingero_call, duration_hi) == 20 &&
	       offsetof(struct ingero_call, depth) == 22 &&
	       sizeof(struct ingero_call) == 24 && INGERO_CALL_WORDS_MAX == 4, "call_end stores it in words");
_Static_assert(offsetof(struct thread_state, pos) == offsetof(struct thread_state, cursor),
	       "the cursor's low half is the position");

#endif /* INGERO_PRELOAD_TRACED_CALL_H */
