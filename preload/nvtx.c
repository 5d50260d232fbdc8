/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranges that the program marks with NVTX. NVTX is a header in the program: it
 * loads the library that NVTX_INJECTION64_PATH names, calls its
 * InitializeInjectionNvtx2() and lets it put callbacks into its function
 * tables. Each module that contains the header does so by itself.
 *
 * A range is written twice, when it begins and when it ends: what a killed
 * process was in shows. Before the first CUDA call there is no stream, and a
 * process without any leaves no file: until then ranges are kept in a table,
 * which the thread that opens the stream writes out.
 *
 * Threads: callbacks from any. Names are found and the table is filled without
 *          a lock; open ranges of push and pop lie in memory of their thread.
 * Fork:    names that were written, the table and open ranges are wiped;
 *          registered strings and domains stay.
 * Limits:  NAMES distinct names of NAME_BYTES, then "(more names)"; DEEP nested
 *          ranges per thread and OPEN started ones at once; before the first
 *          CUDA call EARLY_OPEN open ones, EARLY_ENDED ended ones and names of
 *          EARLY_NAME_BYTES. The rest is counted.
 */
#include <string.h>
#include <sys/mman.h>
#include <wchar.h>

#include "preload/syscalls.h"
#include "preload/traced_call.h"

enum {
	NAME_SLOTS = 1 << 15,
	NAMES = NAME_SLOTS / 4 * 3,
	MORE_NAMES = NAME_SLOTS + 1, /* the id for the rest */
	NAME_BYTES = 256,
	DEEP = 64,
	OPEN = 1 << 10,
	ARENA_BYTES = 1 << 16,
	EARLY_OPEN = 256,
	EARLY_ENDED = 768,
	EARLY_NAME_BYTES = 104,
};

/* ---- what NVTX declares -------------------------------------------------- */

struct attributes {
	uint16_t version, size;
	uint32_t category;
	int32_t color_type;
	uint32_t color;
	int32_t payload_type, reserved;
	uint64_t payload;
	int32_t message_type;
	int32_t reserved1;
	const void *message;
};
enum message { MESSAGE_ASCII = 1, MESSAGE_UNICODE = 2, MESSAGE_REGISTERED = 3 };

struct callbacks {
	size_t struct_size;
	int (*module_functions)(int module, void ***table, unsigned *size);
};

/* Registered strings and domains: handles of the program point to these. */
struct text {
	char bytes[1];
};

/* ---- texts --------------------------------------------------------------- */

static struct text *keep_text(const char *bytes)
{
	static char *arena;
	static size_t left;
	size_t n = strlen(bytes) + 1;
	struct text *kept = NULL;

	ingero_lock();
	if (left < n) {
		arena = sys_mmap(ARENA_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
				 -1, 0);
		left = arena ? ARENA_BYTES : 0;
	}
	if (left >= n) {
		kept = (struct text *)memcpy(arena, bytes, n);
		arena += n;
		left -= n;
	} else {
		ingero_count_loss(INGERO_LOSS_NAMES, 1);
	}
	ingero_unlock();
	return kept;
}

/* At most NAME_BYTES - 1 bytes. */
static const char *from_ascii(const char *from, char *to)
{
	size_t n = from ? strnlen(from, NAME_BYTES - 1) : 0;

	memcpy(to, from ? from : "", n);
	to[n] = 0;
	if (n == NAME_BYTES - 1 && from[n])
		ingero_count_loss(INGERO_LOSS_NAMES, 1);
	return to;
}

static const char *from_wide(const wchar_t *from, char *to)
{
	size_t n = 0;

	for (; from && *from && n + 5 < NAME_BYTES; from++) {
		uint32_t c = (uint32_t)*from;

		if (c < 0x80) {
			to[n++] = (char)c;
		} else if (c < 0x800) {
			to[n++] = (char)(0xc0 | c >> 6);
			to[n++] = (char)(0x80 | (c & 0x3f));
		} else if (c < 0x10000) {
			to[n++] = (char)(0xe0 | c >> 12);
			to[n++] = (char)(0x80 | (c >> 6 & 0x3f));
			to[n++] = (char)(0x80 | (c & 0x3f));
		} else {
			to[n++] = (char)(0xf0 | (c >> 18 & 7));
			to[n++] = (char)(0x80 | (c >> 12 & 0x3f));
			to[n++] = (char)(0x80 | (c >> 6 & 0x3f));
			to[n++] = (char)(0x80 | (c & 0x3f));
		}
	}
	to[n] = 0;
	if (from && *from)
		ingero_count_loss(INGERO_LOSS_NAMES, 1);
	return to;
}

static const char *from_attributes(const struct attributes *a, char *to)
{
	to[0] = 0;
	if (!a || a->size < sizeof(*a) || !a->message)
		return to;
	switch (a->message_type) {
	case MESSAGE_ASCII:
		return from_ascii(a->message, to);
	case MESSAGE_UNICODE:
		return from_wide(a->message, to);
	case MESSAGE_REGISTERED:
		return ((const struct text *)a->message)->bytes;
	}
	return to;
}

/* ---- state --------------------------------------------------------------- */

enum early_state { EARLY_FREE = 0, EARLY_TAKEN, EARLY_KEPT, EARLY_TOLD };

/*
 * A range of before there was a stream. It is written by whoever takes it from
 * KEPT: the thread that opens the stream leaves it TOLD, for good.
 */
struct early_range {
	uint32_t state; /* enum early_state */
	uint32_t tid;
	uint64_t start, end;
	const struct text *domain;
	unsigned kind;
	char name[EARLY_NAME_BYTES];
};

struct open_range {
	uint64_t start;
	const struct text *domain;
	uint32_t domain_id, name_id;
	struct early_range *early; /* NULL: it began in the stream */
	bool lost; /* its end is not to be written: counted when it began */
};

struct started {
	uint64_t id; /* 0: free */
	struct open_range range;
};

static struct nvtx_process { /* wiped by a fork */
	uint64_t hashes[NAME_SLOTS];
	uint32_t names;
	uint32_t more_names_written;
	struct started started[OPEN];
	uint32_t early_at;    /* where a free one is likely */
	uint32_t early_count; /* of `early_ended` */
	struct early_range early_open[EARLY_OPEN], early_ended[EARLY_ENDED];
} *nvtx;

static struct nvtx_thread { /* wiped by a fork */
	uint32_t count, beyond;
	uint32_t tid; /* 0: not asked for yet */
	struct open_range range[DEEP];
} no_ranges;
static __thread struct nvtx_thread *ranges
	__attribute__((tls_model("initial-exec")));

static int (*set_specific)(unsigned, const void *);
static unsigned thread_key;

static void end_thread(void *memory)
{
	if (ranges == memory)
		ranges = NULL;
	SYS4(SYS_munmap, memory, sizeof(struct nvtx_thread), 0, 0);
}

static struct nvtx_thread *thread_ranges(void)
{
	if (likely(ranges))
		return ranges;
	ranges = ingero_wiped_memory(sizeof(*ranges));
	if (!ranges)
		return &no_ranges;
	if (set_specific)
		set_specific(thread_key, ranges);
	return ranges;
}

static uint32_t own_tid(void)
{
	struct nvtx_thread *r = thread_ranges();
	uint32_t tid = r->tid;

	if (unlikely(!tid)) {
		tid = (uint32_t)SYS4(SYS_gettid, 0, 0, 0, 0);
		if (r != &no_ranges)
			r->tid = tid;
	}
	return tid;
}

/* The id of a text; *is_new: its NVTX_NAME record is due. */
static uint32_t name_id(const char *text, bool *is_new)
{
	uint64_t hash = 0xcbf29ce484222325;
	uint32_t i;

	*is_new = false;
	if (!*text)
		return 0;
	for (const char *c = text; *c; c++)
		hash = (hash ^ (unsigned char)*c) * 0x100000001b3;
	hash |= 1;
	for (i = (uint32_t)(hash >> 20); ; i++) {
		uint64_t *slot = &nvtx->hashes[i % NAME_SLOTS];
		uint64_t there = __atomic_load_n(slot, __ATOMIC_RELAXED);

		if (there == hash)
			break;
		if (there)
			continue;
		if (__atomic_load_n(&nvtx->names, __ATOMIC_RELAXED) >= NAMES) {
			*is_new = !__atomic_exchange_n(&nvtx->more_names_written, 1,
						       __ATOMIC_RELAXED);
			ingero_count_loss(INGERO_LOSS_NAMES, 1);
			return MORE_NAMES;
		}
		if (__atomic_compare_exchange_n(slot, &there, hash, false, __ATOMIC_RELAXED,
						__ATOMIC_RELAXED)) {
			__atomic_fetch_add(&nvtx->names, 1, __ATOMIC_RELAXED);
			*is_new = true;
			break;
		}
		if (there == hash)
			break;
	}
	return i % NAME_SLOTS + 1;
}

/* ---- recording ----------------------------------------------------------- */

static void write_name(struct thread_state *t, uint32_t id, const char *text)
{
	size_t n = strlen(text) + 1;
	struct ingero_nvtx_name *name =
		ingero_reserve(t, INGERO_RECORD_NVTX_NAME, sizeof(*name) + n);

	name->id = id;
	memcpy(name + 1, text, n);
	ingero_commit(t);
}

static void find_ids(struct open_range *range, const char *name, bool *new_domain, bool *new_name)
{
	range->domain_id = name_id(range->domain ? range->domain->bytes : "", new_domain);
	range->name_id = name_id(name, new_name);
}

static void write_names(struct thread_state *t, const struct open_range *range, const char *name,
			bool new_domain, bool new_name)
{
	if (new_domain)
		write_name(t, range->domain_id,
			   range->domain_id == MORE_NAMES ? "(more names)" :
							    range->domain->bytes);
	if (new_name)
		write_name(t, range->name_id,
			   range->name_id == MORE_NAMES ? "(more names)" : name);
}

/*
 * As ingero_record_begin, after finding the range's ids; writes the names that
 * are new.
 */
static struct thread_state *begin_named(struct open_range *range, const char *name,
					uint64_t *signals)
{
	struct thread_state *t;
	bool new_domain, new_name;

	find_ids(range, name, &new_domain, &new_name);
	t = ingero_record_begin(signals);
	if (t)
		write_names(t, range, name, new_domain, new_name);
	return t;
}

static void write_begin(struct thread_state *t, const struct open_range *range, unsigned kind,
			uint32_t tid)
{
	struct ingero_nvtx_begin *n = ingero_reserve(t, INGERO_RECORD_NVTX_BEGIN, sizeof(*n));

	n->r.flags = (__u8)kind;
	n->name = range->name_id;
	n->domain = range->domain_id;
	n->tid = tid;
	n->start_ticks = range->start;
	ingero_commit(t);
}

static void write_range(struct thread_state *t, const struct open_range *range, unsigned kind,
			uint64_t end, uint32_t tid)
{
	struct ingero_nvtx *n = ingero_reserve(t, INGERO_RECORD_NVTX, sizeof(*n));

	n->r.flags = (__u8)kind;
	n->name = range->name_id;
	n->start_ticks = range->start;
	n->duration_ticks = end - range->start;
	n->domain = range->domain_id;
	n->tid = tid;
	ingero_commit(t);
}

/* ---- before the first CUDA call ------------------------------------------ */

static bool has_stream(void)
{
	return __atomic_load_n(&ingero_process->header, __ATOMIC_ACQUIRE) != NULL;
}

static bool early_moves(struct early_range *e, uint32_t from, uint32_t to)
{
	return __atomic_compare_exchange_n(&e->state, &from, to, false, __ATOMIC_ACQ_REL,
					   __ATOMIC_ACQUIRE);
}

static void fill_early(struct early_range *e, unsigned kind, const struct text *domain,
		       const char *name)
{
	size_t n = strnlen(name, sizeof(e->name) - 1);

	memcpy(e->name, name, n);
	e->name[n] = 0;
	if (name[n])
		ingero_count_loss(INGERO_LOSS_NAMES, 1);
	e->tid = own_tid();
	e->domain = domain;
	e->kind = kind;
}

/* False: there is a stream by now, or no room. */
static bool keep_early_begin(struct open_range *range, unsigned kind, const char *name)
{
	uint32_t at = __atomic_load_n(&nvtx->early_at, __ATOMIC_RELAXED);

	for (uint32_t i = 0; i < EARLY_OPEN; i++) {
		struct early_range *e = &nvtx->early_open[(at + i) % EARLY_OPEN];

		if (!early_moves(e, EARLY_FREE, EARLY_TAKEN))
			continue;
		__atomic_store_n(&nvtx->early_at, (at + i + 1) % EARLY_OPEN, __ATOMIC_RELAXED);
		fill_early(e, kind, range->domain, name);
		range->early = e;
		e->start = range->start = ingero_ticks();
		return early_moves(e, EARLY_TAKEN, EARLY_KEPT);
	}
	return false;
}

/* False: there is a stream by now, or no room. */
static bool keep_early_end(const struct early_range *from, uint64_t end)
{
	uint32_t i = __atomic_load_n(&nvtx->early_count, __ATOMIC_RELAXED);
	struct early_range *e;

	if (i < EARLY_ENDED)
		i = __atomic_fetch_add(&nvtx->early_count, 1, __ATOMIC_ACQ_REL);
	if (i >= EARLY_ENDED)
		return false;
	e = &nvtx->early_ended[i];
	if (!early_moves(e, EARLY_FREE, EARLY_TAKEN))
		return false;
	e->tid = from->tid;
	e->start = from->start;
	e->end = end;
	e->domain = from->domain;
	e->kind = from->kind;
	memcpy(e->name, from->name, sizeof(e->name));
	return early_moves(e, EARLY_TAKEN, EARLY_KEPT);
}

static void write_named_range(struct open_range *range, unsigned kind, const char *name,
			      uint64_t end)
{
	uint64_t signals;
	struct thread_state *t = begin_named(range, name, &signals);

	if (!t)
		return; /* counted there */
	write_range(t, range, kind, end, 0);
	ingero_record_end(t, signals);
}

static COLD void end_early(struct open_range *range, unsigned kind, uint64_t end)
{
	struct early_range *e = range->early;
	const bool mine = early_moves(e, EARLY_KEPT, EARLY_TAKEN);

	if (!mine || has_stream() || !keep_early_end(e, end)) {
		if (has_stream())
			write_named_range(range, kind, e->name, end);
		else
			ingero_count_loss(INGERO_LOSS_RANGES, 1);
	}
	if (mine && early_moves(e, EARLY_TAKEN, EARLY_FREE))
		__atomic_store_n(&nvtx->early_at, (uint32_t)(e - nvtx->early_open),
				 __ATOMIC_RELAXED);
}

static void tell(struct thread_state *t, struct early_range *e, bool ended)
{
	struct open_range range = { .start = e->start, .domain = e->domain };
	bool new_domain, new_name;

	find_ids(&range, e->name, &new_domain, &new_name);
	write_names(t, &range, e->name, new_domain, new_name);
	if (ended)
		write_range(t, &range, e->kind, e->end, e->tid);
	else
		write_begin(t, &range, e->kind, e->tid);
}

/* After `header` is there: what comes to the table later finds it closed. */
void ingero_nvtx_flush(struct thread_state *t)
{
	uint32_t ended;

	if (!nvtx)
		return;
	for (uint32_t i = 0; i < EARLY_OPEN; i++) {
		struct early_range *e = &nvtx->early_open[i];

		if (__atomic_exchange_n(&e->state, EARLY_TOLD, __ATOMIC_ACQ_REL) == EARLY_KEPT)
			tell(t, e, false);
	}
	ended = __atomic_exchange_n(&nvtx->early_count, EARLY_ENDED, __ATOMIC_ACQ_REL);
	for (uint32_t i = 0; i < ended && i < EARLY_ENDED; i++) {
		struct early_range *e = &nvtx->early_ended[i];

		if (__atomic_exchange_n(&e->state, EARLY_TOLD, __ATOMIC_ACQ_REL) == EARLY_KEPT)
			tell(t, e, true);
	}
}

/* ---- begin and end ------------------------------------------------------- */

static void begin_range(struct open_range *range, unsigned kind, const struct text *domain,
			const char *name)
{
	struct thread_state *t;
	uint64_t signals;

	range->domain = domain;
	range->early = NULL;
	range->lost = false;
	if (unlikely(!has_stream())) {
		if (keep_early_begin(range, kind, name))
			return;
		range->early = NULL;
		if (!has_stream()) {
			range->lost = true;
			ingero_count_loss(INGERO_LOSS_RANGES, 1);
			return;
		}
	}
	t = begin_named(range, name, &signals);
	if (!t) {
		range->lost = true; /* counted there */
		return;
	}
	range->start = ingero_ticks();
	write_begin(t, range, kind, 0);
	ingero_record_end(t, signals);
}

static void end_range(struct open_range *range, unsigned kind, uint64_t end)
{
	struct thread_state *t;
	uint64_t signals;

	if (unlikely(range->lost))
		return;
	if (unlikely(range->early != NULL)) {
		end_early(range, kind, end);
		return;
	}
	t = ingero_record_begin(&signals);
	if (!t)
		return; /* counted there */
	write_range(t, range, kind, end, 0);
	ingero_record_end(t, signals);
}

bool ingero_nvtx_is_open(const struct ingero_nvtx_begin *begin)
{
	if (begin->r.flags == INGERO_NVTX_NESTED) {
		for (uint32_t i = 0; ranges && i < ranges->count; i++)
			if (ranges->range[i].start == begin->start_ticks)
				return true;
		return begin->tid != 0; /* another thread's: not known here */
	}
	for (unsigned i = 0; i < OPEN; i++) {
		const struct started *s = &nvtx->started[i];

		if (__atomic_load_n(&s->id, __ATOMIC_ACQUIRE) != 0 &&
		    s->range.start == begin->start_ticks)
			return true;
	}
	return false;
}

/* ---- what the callbacks do ----------------------------------------------- */

static int push(const struct text *domain, const char *name)
{
	struct nvtx_thread *r = thread_ranges();
	struct open_range range;
	int depth = 0;

	if (r == &no_ranges || r->count == DEEP) {
		ingero_count_loss(INGERO_LOSS_RANGES, 1);
		r->beyond += r != &no_ranges;
		return (int)(r->count + r->beyond);
	}
	for (uint32_t i = 0; i < r->count; i++)
		depth += r->range[i].domain == domain;
	begin_range(&range, INGERO_NVTX_NESTED, domain, name);
	r->range[r->count++] = range;
	return depth;
}

static int pop(const struct text *domain)
{
	uint64_t end = ingero_ticks();
	struct nvtx_thread *r = thread_ranges();
	int depth = -1;
	uint32_t at = r->count;

	if (r->beyond) {
		r->beyond--;
		return (int)(r->count + r->beyond);
	}
	while (at && r->range[at - 1].domain != domain)
		at--;
	if (!at)
		return -1;
	for (uint32_t i = 0; i < at; i++)
		depth += r->range[i].domain == domain;
	/* Open until that is written: drop_calls keeps its begin. */
	end_range(&r->range[at - 1], INGERO_NVTX_NESTED, end);
	memmove(&r->range[at - 1], &r->range[at], (r->count - at) * sizeof(r->range[0]));
	r->count--;
	return depth;
}

static uint64_t start(const struct text *domain, const char *name)
{
	static uint64_t serial;
	uint64_t n = __atomic_add_fetch(&serial, 1, __ATOMIC_RELAXED);

	for (unsigned i = 0; i < OPEN; i++) {
		struct started *s = &nvtx->started[(n + i) % OPEN];
		uint64_t id = n * OPEN + (n + i) % OPEN, none = 0;

		/* All ones: being filled. */
		if (!__atomic_compare_exchange_n(&s->id, &none, ~0ULL, false, __ATOMIC_ACQUIRE,
						 __ATOMIC_RELAXED))
			continue;
		begin_range(&s->range, INGERO_NVTX_PROCESS, domain, name);
		__atomic_store_n(&s->id, id, __ATOMIC_RELEASE);
		return id;
	}
	ingero_count_loss(INGERO_LOSS_RANGES, 1);
	return n * OPEN + n % OPEN; /* its end finds nothing */
}

static void end(uint64_t id)
{
	uint64_t now = ingero_ticks();
	struct started *s = &nvtx->started[id % OPEN];
	struct open_range range;

	if (!id || !__atomic_compare_exchange_n(&s->id, &id, ~0ULL, false, __ATOMIC_ACQUIRE,
						__ATOMIC_RELAXED))
		return;
	range = s->range;
	__atomic_store_n(&s->id, 0, __ATOMIC_RELEASE);
	end_range(&range, INGERO_NVTX_PROCESS, now);
}

static void mark(const struct text *domain, const char *name)
{
	struct open_range range = { .start = ingero_ticks(), .domain = domain };

	if (unlikely(!has_stream())) {
		struct early_range early = { .start = range.start };

		fill_early(&early, INGERO_NVTX_MARK, domain, name);
		if (keep_early_end(&early, range.start))
			return;
		if (!has_stream()) {
			ingero_count_loss(INGERO_LOSS_RANGES, 1);
			return;
		}
	}
	write_named_range(&range, INGERO_NVTX_MARK, name, range.start);
}

/* ---- callbacks ----------------------------------------------------------- */

/* A callback that takes a message, in one of NVTX's forms. */
#define WITH_NAME(result, callback, type, how, what) \
	static result callback(type message) \
	{ \
		char buffer[NAME_BYTES]; \
		const char *name = how(message, buffer); \
		what; \
	}
#define IN_DOMAIN(result, callback, type, how, what) \
	static result callback(const struct text *domain, type message) \
	{ \
		char buffer[NAME_BYTES]; \
		const char *name = how(message, buffer); \
		(void)domain; \
		what; \
	}
#define ASCII const char *, from_ascii
#define WIDE const wchar_t *, from_wide
#define ATTRIBUTES const struct attributes *, from_attributes
/* A form is two arguments. */
#define FORM(kind, ...) kind(__VA_ARGS__)

FORM(WITH_NAME, int, push_ascii, ASCII, return push(NULL, name))
FORM(WITH_NAME, int, push_wide, WIDE, return push(NULL, name))
FORM(WITH_NAME, int, push_attributes, ATTRIBUTES, return push(NULL, name))
FORM(IN_DOMAIN, int, domain_push, ATTRIBUTES, return push(domain, name))
FORM(WITH_NAME, uint64_t, start_ascii, ASCII, return start(NULL, name))
FORM(WITH_NAME, uint64_t, start_wide, WIDE, return start(NULL, name))
FORM(WITH_NAME, uint64_t, start_attributes, ATTRIBUTES, return start(NULL, name))
FORM(IN_DOMAIN, uint64_t, domain_start, ATTRIBUTES, return start(domain, name))
FORM(WITH_NAME, void, mark_ascii, ASCII, mark(NULL, name))
FORM(WITH_NAME, void, mark_wide, WIDE, mark(NULL, name))
FORM(WITH_NAME, void, mark_attributes, ATTRIBUTES, mark(NULL, name))
FORM(IN_DOMAIN, void, domain_mark, ATTRIBUTES, mark(domain, name))
FORM(WITH_NAME, struct text *, keep_ascii, ASCII, return keep_text(name))
FORM(WITH_NAME, struct text *, keep_wide, WIDE, return keep_text(name))
FORM(IN_DOMAIN, struct text *, register_ascii, ASCII, return keep_text(name))
FORM(IN_DOMAIN, struct text *, register_wide, WIDE, return keep_text(name))

static int pop_default(void)
{
	return pop(NULL);
}
static void domain_end(const struct text *domain, uint64_t id)
{
	(void)domain;
	end(id);
}

/* Numbers of NVTX 3's function tables; what is not here stays a no-op. */
enum { MODULE_CORE = 1, MODULE_CORE2 = 5, EXPORT_CALLBACKS = 1 };

static const struct callback {
	int module;
	unsigned number;
	void *function;
} callbacks[] = {
	{ MODULE_CORE, 1, mark_attributes },   { MODULE_CORE, 2, mark_ascii },
	{ MODULE_CORE, 3, mark_wide },	       { MODULE_CORE, 4, start_attributes },
	{ MODULE_CORE, 5, start_ascii },       { MODULE_CORE, 6, start_wide },
	{ MODULE_CORE, 7, end },	       { MODULE_CORE, 8, push_attributes },
	{ MODULE_CORE, 9, push_ascii },	       { MODULE_CORE, 10, push_wide },
	{ MODULE_CORE, 11, pop_default },      { MODULE_CORE2, 1, domain_mark },
	{ MODULE_CORE2, 2, domain_start },     { MODULE_CORE2, 3, domain_end },
	{ MODULE_CORE2, 4, domain_push },      { MODULE_CORE2, 5, pop },
	{ MODULE_CORE2, 10, register_ascii },  { MODULE_CORE2, 11, register_wide },
	{ MODULE_CORE2, 12, keep_ascii },      { MODULE_CORE2, 13, keep_wide },
};

static bool nvtx_ready(void)
{
	static uint32_t made;

	if (!ingero_process_ready())
		return false;
	if (ingero_once_begin(&made, ONCE_NVTX)) {
		int (*create)(unsigned *, void (*)(void *)) =
			(int (*)(unsigned *, void (*)(void *)))ingero_libc_symbol(
				"pthread_key_create");

		nvtx = ingero_wiped_memory(sizeof(*nvtx));
		if (create && nvtx && create(&thread_key, end_thread) == 0)
			set_specific = (int (*)(unsigned, const void *))ingero_libc_symbol(
				"pthread_setspecific");
		ingero_once_end(&made, ONCE_NVTX);
	}
	return nvtx != NULL;
}

/* NVTX looks this up by name and calls it; 0 makes all of NVTX a no-op. */
__attribute__((visibility("default"))) int
InitializeInjectionNvtx2(const void *(*export_table)(uint32_t));

int InitializeInjectionNvtx2(const void *(*export_table)(uint32_t))
{
	const struct callbacks *with = export_table ? export_table(EXPORT_CALLBACKS) : NULL;
	bool any = false;

	if (!with || with->struct_size < sizeof(*with) || !nvtx_ready())
		return 0;
	for (size_t i = 0; i < sizeof(callbacks) / sizeof(callbacks[0]); i++) {
		void **table = NULL;
		unsigned size = 0;

		if (!with->module_functions(callbacks[i].module, (void ***)&table, &size) ||
		    !table || callbacks[i].number >= size || !table[callbacks[i].number])
			continue;
		*(void **)table[callbacks[i].number] = callbacks[i].function;
		any = true;
	}
	return any;
}
