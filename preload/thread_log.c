/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread's slot: claimed at its first recorded call, written out by the
 * thread itself when full, handed on when the thread ends.
 *
 * Invariants: (1) slot records up to `cursor` are whole.
 *             (2) a slot has one owner, or is on process->free.
 *             (3) records reach a DATA block before the slot is reset.
 * Errors:     no space or memory: the calls are counted as lost and the
 *             thread tries again every RETRY_TICKS.
 */
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "preload/crc32c.h"
#include "preload/syscalls.h"
#include "preload/traced_call.h"

enum {
	POOL_BYTES = 1 << 16,
	SKIPS_PER_FOLD = 64,
	SWEEP_FIRST = 64,
};
#define RETRY_TICKS (1ULL << 29) /* about a quarter of a second */

static struct thread_state no_slot;
__thread struct thread_local_state ingero_tls = { &no_slot, 0, 0 };

/* When this thread may try again to get a slot. */
static uint64_t retry_at;

void ingero_lock(void)
{
	uint32_t *lock = &ingero_process->lock;
	uint64_t mask = sys_block_signals();

	for (unsigned spins = 0; __atomic_exchange_n(lock, 1, __ATOMIC_ACQUIRE); spins++) {
		struct timespec nap = { 0, 20000 };

		if (spins < 200)
			__builtin_ia32_pause();
		else
			SYS4(SYS_nanosleep, &nap, 0, 0, 0);
	}
	ingero_tls.signal_mask = mask;
}

void ingero_unlock(void)
{
	uint64_t mask = ingero_tls.signal_mask;

	__atomic_store_n(&ingero_process->lock, 0, __ATOMIC_RELEASE);
	sys_restore_signals(mask);
}

void ingero_count_loss(enum ingero_loss loss, uint64_t count)
{
	struct ingero_stream_header *header = ingero_process->header;
	uint64_t *lost = header ? (uint64_t *)header->lost : ingero_process->early_lost;

	__atomic_fetch_add(&lost[loss], count, __ATOMIC_RELAXED);
}

void ingero_fold_skipped(struct thread_state *t)
{
	struct ingero_stream_header *header = ingero_process->header;

	if (!header || !t->skipped)
		return;
	__atomic_fetch_add(&header->calls_skipped, t->skipped, __ATOMIC_RELAXED);
	t->skipped = 0;
}

/* ---- appending ----------------------------------------------------------- */

void ingero_commit(struct thread_state *t)
{
	__atomic_store_n(&t->slot->cursor, t->cursor, __ATOMIC_RELEASE);
}

/*
 * A block that was reserved in vain, unless others came after it: else the file
 * would grow holes for as long as there is no space.
 */
static void give_back(uint64_t number)
{
	__u64 next = number + 1;

	__atomic_compare_exchange_n(&ingero_process->header->blocks_reserved, &next, number,
				    false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

/* Writes the slot's records to a block of their own. */
static bool write_block(struct thread_state *t, uint64_t now)
{
	struct ingero_block_header block;
	uint64_t number, offset;
	int fd = ingero_stream_open();
	bool written;

	if (fd < 0)
		return false;
	if (t->session != __atomic_load_n(&ingero_process->session, __ATOMIC_RELAXED)) {
		sys_close(fd); /* its slot is of a stream that was deleted */
		return false;
	}
	number = __atomic_fetch_add(&ingero_process->header->blocks_reserved, 1,
				    __ATOMIC_RELAXED);
	offset = number * INGERO_BLOCK_BYTES;
	if (!ingero_may_write(offset + INGERO_BLOCK_BYTES)) {
		sys_close(fd);
		give_back(number);
		return false;
	}
	memset(&block, 0, sizeof(block));
	block.magic = INGERO_MAGIC_BLOCK;
	block.type = INGERO_BLOCK_DATA;
	block.state = INGERO_SLOT_FREE;
	block.slot = t->slot_block;
	block.tid = t->tid;
	block.cursor = t->cursor;
	block.first_ticks = t->first_ticks;
	block.last_ticks = now;
	block.check = INGERO_CHECK_CRC32C;
	block.records_crc = ingero_records_crc(t->records, t->pos);
	block.header_crc = ingero_crc32c(&block, sizeof(block), 0);
	/* The header last: a block without one was never written. */
	written = sys_pwrite(fd, t->records, t->pos, offset + sizeof(block)) == (long)t->pos &&
		  sys_pwrite(fd, &block, sizeof(block), offset) == (long)sizeof(block);
	sys_close(fd);
	if (!written)
		give_back(number);
	return written;
}

static void reset_slot(struct thread_state *t, uint64_t now)
{
	t->sequence++;
	t->pos = 0;
	t->first_ticks = now;
	ingero_commit(t);
}

static bool is_name(unsigned kind)
{
	return kind == INGERO_RECORD_NAME || kind == INGERO_RECORD_KERNEL ||
	       kind == INGERO_RECORD_NVTX_NAME;
}

/*
 * Nowhere to write to: the slot's calls, ranges and clock samples go, what
 * describes others (names, kernels, threads, the process, losses) and the
 * begins of open ranges stay, and coverage is due again. Returns the calls
 * dropped; earlier LOSS records of the slot are folded into *loss.
 */
static uint64_t drop_calls(struct thread_state *t, struct ingero_loss_range *loss)
{
	uint32_t end = t->pos, to = 0;
	uint64_t calls = 0, names = 0, ranges = 0, begins = 0;

	t->sequence++;
	t->pos = 0;
	ingero_commit(t); /* nobody reads while records move */
	for (uint32_t at = 0, size; at < end; at += size) {
		const struct ingero_record *r = (const void *)(t->records + at);

		size = r->size8 * 8u;
		if (!size)
			break;
		if (r->kind == INGERO_RECORD_NVTX_BEGIN && !ingero_nvtx_is_open((const void *)r)) {
			ranges += r->flags == INGERO_NVTX_NESTED;
			continue;
		}
		if (r->kind == INGERO_RECORD_LOSS) {
			const struct ingero_loss_range *old = (const void *)r;

			loss->count += old->count;
			if (old->first_ticks < loss->first_ticks)
				loss->first_ticks = old->first_ticks;
		} else if (r->kind == INGERO_RECORD_CALL) {
			calls++;
		} else if (r->kind == INGERO_RECORD_NVTX) {
			/* Else its begin counts; one that is written the reader counts. */
			ranges += r->flags != INGERO_NVTX_NESTED ||
				  ((const struct ingero_nvtx *)r)->tid != 0;
		} else if (r->kind == INGERO_RECORD_COVERAGE) {
			ingero_resend_coverage();
		} else if (r->kind != INGERO_RECORD_KNOT && r->kind != INGERO_RECORD_SELF) {
			begins += r->kind == INGERO_RECORD_NVTX_BEGIN;
			names += is_name(r->kind);
			memmove(t->records + to, r, size);
			to += size;
		}
	}
	loss->count += calls;
	if (to > SLOT_BYTES / 2) {
		/* Names fill half the slot: give them up, too. */
		ingero_count_loss(INGERO_LOSS_NAMES, names);
		ranges += begins;
		to = 0;
	}
	if (ranges)
		ingero_count_loss(INGERO_LOSS_RANGES, ranges);
	t->pos = to;
	ingero_commit(t);
	return calls;
}

/* What the recorder itself took since `begin`. */
static void charge(struct thread_state *t, uint64_t begin, uint32_t bytes)
{
	uint64_t end = ingero_ticks();
	struct ingero_self_cost *self = ingero_reserve(t, INGERO_RECORD_SELF, sizeof(*self));

	self->bytes = bytes;
	self->start_ticks = begin;
	self->duration_ticks = end - begin;
	ingero_commit(t);
}

/*
 * The kernel write-protects pages when it writes them back, and the next store
 * faults. Taken here, those faults are charged to ingero.
 */
static void touch_ahead(struct thread_state *t, uint32_t pos)
{
	unsigned char *end = (unsigned char *)t->slot + INGERO_BLOCK_BYTES;

	for (unsigned char *at = t->records + pos; at < end;
	     at = (unsigned char *)(((uintptr_t)at | 4095) + 1)) {
		__u64 *word = (__u64 *)at;

		__atomic_store_n(word, __atomic_load_n(word, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
	}
}

static void write_out(struct thread_state *t)
{
	uint64_t begin = ingero_ticks();
	uint32_t bytes = t->pos;

	if (!write_block(t, begin)) {
		struct ingero_loss_range range = { .first_ticks = t->first_ticks }, *loss;

		ingero_count_loss(INGERO_LOSS_WRITE_FAILED, drop_calls(t, &range));
		loss = ingero_reserve(t, INGERO_RECORD_LOSS, sizeof(*loss));
		loss->loss = INGERO_LOSS_WRITE_FAILED;
		loss->count = range.count;
		loss->first_ticks = range.first_ticks;
		loss->last_ticks = begin;
		ingero_commit(t);
		t->first_ticks = ingero_ticks();
		bytes = 0;
	} else {
		touch_ahead(t, 0);
		reset_slot(t, ingero_ticks());
	}
	charge(t, begin, bytes);
}

/* What is due every 100 ms. */
static void sample(struct thread_state *t)
{
	uint64_t begin = ingero_ticks();
	uint32_t sequence = t->sequence;

	ingero_knot(t);
	ingero_emit_coverage(t);
	ingero_fold_skipped(t);
	if (t->sequence) /* else most of the slot has no memory yet */
		touch_ahead(t, t->pos);
	if (t->sequence == sequence) /* a write-out within is charged already */
		charge(t, begin, 0);
}

void *ingero_reserve(struct thread_state *t, unsigned kind, size_t bytes)
{
	struct ingero_record *r;

	bytes = (bytes + 7) & ~(size_t)7;
	/* A call record fits behind it: call_end has asked for that already. */
	if (t->pos + bytes > SLOT_BYTES - CALL_BYTES_MAX)
		write_out(t);
	r = (struct ingero_record *)(t->records + t->pos);
	memset(r, 0, bytes);
	r->kind = (__u8)kind;
	r->size8 = (__u16)(bytes / 8);
	t->pos += (uint32_t)bytes;
	return r;
}

/* ---- claiming ------------------------------------------------------------ */

/* A LIVE block, its space reserved before it is touched: no SIGBUS later. */
static bool map_slot(struct thread_state *t)
{
	uint64_t number, offset;
	struct ingero_block_header *slot = NULL;
	int fd = ingero_stream_open();

	if (fd < 0)
		return false;
	number = __atomic_fetch_add(&ingero_process->header->blocks_reserved, 1,
				    __ATOMIC_RELAXED);
	offset = number * INGERO_BLOCK_BYTES;
	if (ingero_reserve_space(fd, offset, INGERO_BLOCK_BYTES))
		slot = sys_mmap(INGERO_BLOCK_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, offset);
	sys_close(fd);
	if (!slot) {
		give_back(number);
		if (number == 1)
			ingero_complain_of_space();
		return false;
	}
	t->slot_block = (uint32_t)number;
	t->records = (unsigned char *)(slot + 1);
	slot->slot = t->slot_block;
	slot->type = INGERO_BLOCK_LIVE;
	slot->state = INGERO_SLOT_OWNED;
	slot->cursor = 0;
	__atomic_store_n(&slot->magic, INGERO_MAGIC_BLOCK, __ATOMIC_RELEASE);
	t->slot = slot;
	return true;
}

/* States whose thread ended without its destructor (raw clone, late calls). */
static void sweep_dead(struct process *p)
{
	uint32_t alive = 0;
	long pid = SYS4(SYS_getpid, 0, 0, 0, 0);

	for (struct thread_state *t = p->all; t; t = t->next_all) {
		if (t->retired)
			continue;
		if (t->slot && SYS4(SYS_tgkill, pid, t->tid, 0, 0) == -3 /* ESRCH */) {
			t->retired = true;
			t->slot->state = INGERO_SLOT_RETIRED;
			ingero_fold_skipped(t);
			t->next_free = p->free;
			p->free = t;
		} else {
			alive++;
		}
	}
	p->next_sweep = alive < SWEEP_FIRST / 2 ? SWEEP_FIRST : 2 * alive;
}

static struct thread_state *claim_state(void)
{
	struct process *p = ingero_process;
	struct thread_state *t;

	ingero_lock();
	if (!p->free && p->states >= (p->next_sweep ? p->next_sweep : SWEEP_FIRST))
		sweep_dead(p);
	t = p->free;
	if (t) {
		p->free = t->next_free;
	} else {
		if (p->pool_left < sizeof(*t)) {
			p->pool = ingero_wiped_memory(POOL_BYTES);
			p->pool_left = p->pool ? POOL_BYTES : 0;
		}
		if (p->pool_left >= sizeof(*t)) {
			t = (struct thread_state *)p->pool;
			p->pool += (sizeof(*t) + 63) & ~63u;
			p->pool_left -= (sizeof(*t) + 63) & ~63u;
			t->next_all = p->all;
			p->all = t;
			p->states++;
		}
	}
	if (t) {
		/* Under the lock: sweep_dead must not see the last owner's tid. */
		t->tid = (uint32_t)SYS4(SYS_gettid, 0, 0, 0, 0);
		t->retired = false;
	}
	ingero_unlock();
	return t;
}

static void release_state(struct thread_state *t)
{
	struct process *p = ingero_process;

	ingero_lock();
	t->retired = true;
	if (t->slot)
		t->slot->state = INGERO_SLOT_RETIRED;
	t->next_free = p->free;
	p->free = t;
	ingero_unlock();
}

static unsigned thread_key;
static int (*set_specific)(unsigned, const void *);

/*
 * The thread's destructor. A later call of the same thread (from another
 * library's destructor) attaches anew.
 */
static void retire(void *state)
{
	struct thread_state *t = state;

	if (ingero_tls.state != t || !t->slot)
		return; /* wiped by a fork, or not ours any more */
	ingero_tls.busy++;
	call_close(t);
	ingero_fold_skipped(t);
	ingero_tls.state = &no_slot;
	t->depth = 0;
	release_state(t);
	ingero_tls.busy--;
}

/* libpthread may be absent, or come later: asked for again until it is there. */
static void arm_destructor(struct thread_state *t)
{
	static uint32_t made; /* 0 no, 1 being made, 2 yes */
	uint32_t none = 0;

	if (__atomic_load_n(&made, __ATOMIC_ACQUIRE) == 0) {
		int (*create)(unsigned *, void (*)(void *)) =
			(int (*)(unsigned *, void (*)(void *)))ingero_libc_symbol(
				"pthread_key_create");
		int (*set)(unsigned, const void *) = (int (*)(unsigned, const void *))
			ingero_libc_symbol("pthread_setspecific");

		if (!create || !set ||
		    !__atomic_compare_exchange_n(&made, &none, 1, false, __ATOMIC_ACQ_REL,
						 __ATOMIC_RELAXED))
			return;
		set_specific = set;
		if (create(&thread_key, retire) != 0)
			return; /* sweep_dead reclaims */
		__atomic_store_n(&made, 2, __ATOMIC_RELEASE);
	}
	if (__atomic_load_n(&made, __ATOMIC_ACQUIRE) == 2)
		set_specific(thread_key, t);
}

static void write_thread_record(struct thread_state *t)
{
	struct ingero_thread *thread = ingero_reserve(t, INGERO_RECORD_THREAD, sizeof(*thread));

	thread->tid = t->tid;
	thread->start_ticks = ingero_ticks();
	SYS4(SYS_prctl, 16 /* PR_GET_NAME */, thread->comm, 0, 0);
	ingero_commit(t);
}

static struct thread_state *attach_quietly(void);

/* Signals wait meanwhile: fallocate gives up at every one (EINTR). */
static struct thread_state *attach(void)
{
	uint64_t before = sys_block_signals();
	struct thread_state *t = attach_quietly();

	sys_restore_signals(before);
	return t;
}

static struct thread_state *attach_quietly(void)
{
	struct thread_state *t = claim_state();
	uint64_t begin = ingero_ticks();
	uint32_t session;

	if (!t) {
		ingero_complain("a thread's state", "no memory that is wiped by fork");
		return NULL;
	}
	t->depth = 0;
	memset(t->seen, 0, sizeof(t->seen));
	t->first_inside = false;
	if (!ingero_session_begin(t)) {
		release_state(t);
		return NULL;
	}
	session = __atomic_load_n(&ingero_process->session, __ATOMIC_RELAXED);
	if (t->slot && t->session != session) {
		t->slot = NULL; /* of a deleted stream; stays mapped */
		t->cursor = t->first_ticks = 0;
	}
	if (!t->slot && !map_slot(t)) {
		release_state(t);
		return NULL;
	}
	t->session = session;
	t->slot->tid = t->tid;
	t->slot->state = INGERO_SLOT_OWNED;
	memset(t->slot->inflight, 0, sizeof(t->slot->inflight));
	if (!t->first_ticks)
		t->first_ticks = begin;
	if (t->pos + 4096 > SLOT_BYTES)
		write_out(t);
	write_thread_record(t);
	charge(t, begin, 0);
	ingero_emit_start_records(t);
	ingero_tls.state = t;
	arm_destructor(t);
	return t;
}

struct thread_state *ingero_attach_anew(void)
{
	ingero_tls.state = &no_slot;
	return attach();
}

/* ---- the slow ways into and out of a call -------------------------------- */

static const struct api_row *row_of(unsigned row)
{
	return row < LIBRARY_ROW ? &ingero_api[row] : &ingero_library_rows[row - LIBRARY_ROW];
}

static void write_name(struct thread_state *t, unsigned row)
{
	const struct api_row *api = row_of(row);
	struct ingero_name *name;
	size_t length = strlen(api->name);

	name = ingero_reserve(t, INGERO_RECORD_NAME, sizeof(*name) + length + 1);
	name->func = (__u16)(row + 1);
	name->layer = row < ingero_api_driver_rows ? INGERO_LAYER_DRIVER :
		      row < LIBRARY_ROW		   ? INGERO_LAYER_RUNTIME :
						     INGERO_LAYER_LIBRARY;
	name->func_class = api->func_class;
	memcpy(name->words, api->words, sizeof(name->words));
	memcpy(name + 1, api->name, length);
	ingero_commit(t);
}

static void skip(struct thread_state *t)
{
	if (!t->slot)
		__atomic_fetch_add(&ingero_process->early_skips, 1, __ATOMIC_RELAXED);
	else if (++t->skipped >= SKIPS_PER_FOLD)
		ingero_fold_skipped(t);
}

static uint8_t mode_of(unsigned row)
{
	return __atomic_load_n(&ingero_process->mode[row], __ATOMIC_RELAXED);
}

static void set_mode(unsigned row, enum call_mode mode)
{
	__atomic_store_n(&ingero_process->mode[row], (uint8_t)mode, __ATOMIC_RELAXED);
}

static struct thread_state *enter(unsigned row, struct cell *cell)
{
	struct thread_state *t = ingero_tls.state;
	unsigned func_class = row_of(row)->func_class;

	if (mode_of(row) == CALL_UNSEEN && !ingero_wants(func_class))
		set_mode(row, CALL_SKIP);
	/* A look-up alone does not begin a stream. */
	if (mode_of(row) == CALL_SKIP || (func_class == INGERO_CLASS_RESOLVE && !t->slot)) {
		skip(t);
		return NULL;
	}
	if (!t->slot) {
		uint64_t now = ingero_ticks();

		t = now >= __atomic_load_n(&retry_at, __ATOMIC_RELAXED) ? attach() : NULL;
		if (!t) {
			if (now >= retry_at)
				__atomic_store_n(&retry_at, now + RETRY_TICKS, __ATOMIC_RELAXED);
			ingero_count_loss(INGERO_LOSS_NO_SLOT, 1);
			return NULL;
		}
	}
	if (mode_of(row) == CALL_UNSEEN) {
		/* Two threads may both write it; readers take either. */
		uint64_t mask = sys_block_signals();

		write_name(t, row);
		sys_restore_signals(mask);
		set_mode(row, CALL_RECORD);
	}
	__atomic_store_n(&cell->named, t->session, __ATOMIC_RELAXED);
	return t;
}

/*
 * A signal handler jumped out of the stores of a record (siglongjmp), and the
 * stack is back above them: then they will not go on. A handler's call comes
 * from below a signal's frame, 1 KiB at least; on an alternate stack nothing
 * can be told. What was not committed yet is dropped with its call, which has
 * never returned.
 */
static bool stores_abandoned(struct thread_state *t)
{
	const uintptr_t here = (uintptr_t)__builtin_frame_address(0);
	const uintptr_t frames_of_ours = 768;
	uint32_t i = t->depth ? t->depth - 1 : 0;
	stack_t stack;

	if (i >= INGERO_INFLIGHT_DEPTH)
		i = INGERO_INFLIGHT_DEPTH - 1;
	if (here + frames_of_ours < t->frame[i] ||
	    SYS4(SYS_sigaltstack, 0, &stack, 0, 0) != 0 || stack.ss_flags & SS_ONSTACK)
		return false;
	t->cursor = t->slot->cursor;
	return true;
}

struct thread_state *ingero_enter_slow(unsigned row, struct cell *cell)
{
	struct thread_state *t = ingero_tls.state;
	uint64_t mask;

	if (!ingero_process_ready())
		return NULL;
	if (mode_of(row) == CALL_SKIP) {
		skip(t);
		return NULL;
	}
	if (ingero_tls.busy || (t->slot && !t->open && !stores_abandoned(t))) {
		ingero_count_loss(INGERO_LOSS_REENTRANT, 1);
		return NULL;
	}
	/* A handler could jump out of what follows, and leave it half done. */
	mask = sys_block_signals();
	ingero_tls.busy++;
	if (t->slot)
		call_close(t);
	t = enter(row, cell);
	if (ingero_tls.state->slot)
		call_open(ingero_tls.state);
	ingero_tls.busy--;
	sys_restore_signals(mask);
	return t;
}

/* SIGKILL's bit, which no mask holds: signals were not blocked. */
#define NOT_BLOCKED (1ULL << 8)

/*
 * For records that are no calls (NVTX), up to a quarter of a slot in all. As in
 * a call, a handler that makes CUDA calls meanwhile is counted, not recorded.
 */
struct thread_state *ingero_record_begin(uint64_t *signals)
{
	struct thread_state *t = ingero_tls.state;
	uint64_t now;

	if (!ingero_process_ready() || !ingero_process->header)
		return NULL;
	if (ingero_tls.busy || (t->slot && !t->open)) {
		ingero_count_loss(INGERO_LOSS_REENTRANT, 1);
		return NULL;
	}
	ingero_tls.busy++;
	*signals = NOT_BLOCKED;
	if (t->slot)
		call_close(t);
	if (t->slot && t->pos < SLOT_BYTES / 4 * 3)
		return t;
	*signals = sys_block_signals();
	if (t->slot) {
		write_out(t);
		return t;
	}
	now = ingero_ticks();
	t = now >= __atomic_load_n(&retry_at, __ATOMIC_RELAXED) ? attach() : NULL;
	if (!t) {
		ingero_count_loss(INGERO_LOSS_NO_SLOT, 1);
		sys_restore_signals(*signals);
		ingero_tls.busy--;
	}
	return t;
}

void ingero_record_end(struct thread_state *t, uint64_t signals)
{
	call_open(t);
	if (signals != NOT_BLOCKED)
		sys_restore_signals(signals);
	ingero_tls.busy--;
}

struct thread_state *ingero_make_room(struct thread_state *t, unsigned row, uint32_t depth)
{
	uint64_t mask;

	if (!ingero_process_ready())
		return NULL;
	mask = sys_block_signals();
	ingero_tls.busy++;
	if (!t->slot)
		t = attach(); /* a fork happened inside the call */
	if (t) {
		if (t->pos >= SLOT_LIMIT)
			write_out(t);
		if (ingero_ticks() >= t->next_cold)
			sample(t);
		if (mode_of(row) == CALL_UNSEEN) {
			write_name(t, row);
			set_mode(row, CALL_RECORD);
		}
		if (t->pos >= SLOT_LIMIT)
			write_out(t);
		t->depth = depth;
	} else {
		ingero_count_loss(INGERO_LOSS_NO_SLOT, 1);
	}
	ingero_tls.busy--;
	sys_restore_signals(mask);
	return t;
}

/*
 * A signal handler on a stack of its own may look as if the call it interrupted
 * were gone; that call puts its depth back when it ends.
 */
uint32_t ingero_calls_around(struct thread_state *t, uintptr_t frame)
{
	uint32_t depth = t->depth;

	while (depth) {
		uint32_t i = (depth < INGERO_INFLIGHT_DEPTH ? depth : INGERO_INFLIGHT_DEPTH) - 1;

		if (t->frame[i] > frame)
			break;
		__atomic_store_n(&t->slot->inflight[i].func, 0, __ATOMIC_RELAXED);
		depth = i;
	}
	return depth;
}

/* At exit: other threads may still run, so only what is safe from here. */
void ingero_retire_all(void)
{
	ingero_lock();
	for (struct thread_state *t = ingero_process->all; t; t = t->next_all)
		ingero_fold_skipped(t);
	ingero_unlock();
}
