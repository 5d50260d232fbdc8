/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernel names, first launches, and streams under capture.
 *
 * Names come from __cudaRegisterFunction (the string stays in its program:
 * only the pointer is kept, until the module is unregistered) and from the
 * calls that look a kernel up by name (copied). PyTorch registers tens of
 * thousands at start-up: an insertion is one probe of a table, no copy.
 *
 * The name table is plain memory and survives fork; which kernels a stream
 * has named already is process state and starts anew in a child.
 */
#include <string.h>
#include <sys/mman.h>

#include "preload/shim.h"
#include "preload/syscalls.h"

/* ---- names --------------------------------------------------------------- */

enum { NAME_BYTES_MAX = 16384 }; /* longer ones are cut; fits any slot */

struct entry {
	uint64_t kernel; /* host function, CUfunction or CUkernel; 0 = unused */
	const char *name;
	uint32_t module; /* 1-based index; 0: the name is ours */
	uint32_t length; /* of a copied name */
};

static struct entry *table;
static uint32_t table_size, table_used;

/* Registered fat binaries; a dead one's names must not be read any more. */
static struct {
	void *handle;
	bool alive;
} *modules;
static uint32_t module_count, module_size;

static char *arena;
static size_t arena_left;

static uint32_t slot_of(uint64_t kernel, uint32_t size)
{
	return (uint32_t)((kernel * 0x9e3779b97f4a7c15ULL) >> 32) & (size - 1);
}

static void *plain_memory(size_t bytes)
{
	return sys_mmap(bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static struct entry *find(uint64_t kernel)
{
	if (!table)
		return NULL;
	for (uint32_t i = slot_of(kernel, table_size);; i = (i + 1) & (table_size - 1)) {
		if (table[i].kernel == kernel)
			return &table[i];
		if (!table[i].kernel)
			return NULL;
	}
}

static struct entry *find_or_add(uint64_t kernel)
{
	struct entry *e = find(kernel);
	uint32_t i;

	if (e || !kernel)
		return e;
	if (table_used * 4 >= table_size * 3) {
		uint32_t size = table_size ? table_size * 2 : 4096;
		struct entry *bigger = plain_memory(size * sizeof(*bigger)), *old = table;
		uint32_t old_size = table_size;

		if (!bigger) {
			ingero_count_loss(INGERO_LOSS_NAMES, 1);
			return NULL;
		}
		for (uint32_t k = 0; k < old_size; k++) {
			if (!old[k].kernel)
				continue;
			i = slot_of(old[k].kernel, size);
			while (bigger[i].kernel)
				i = (i + 1) & (size - 1);
			bigger[i] = old[k];
		}
		table_size = size;
		table = bigger;
		if (old)
			SYS4(SYS_munmap, old, old_size * sizeof(*old), 0, 0);
	}
	i = slot_of(kernel, table_size);
	while (table[i].kernel)
		i = (i + 1) & (table_size - 1);
	table[i].kernel = kernel;
	table_used++;
	return &table[i];
}

static const char *name_of(const struct entry *e)
{
	return !e || (e->module && !modules[e->module - 1].alive) ? NULL : e->name;
}

static const char *keep(const char *name, size_t length)
{
	char *copy;

	if (arena_left < length + 1) {
		size_t bytes = length + 1 > 65536 ? length + 1 : 65536;

		arena = plain_memory(bytes);
		arena_left = arena ? bytes : 0;
		if (!arena) {
			ingero_count_loss(INGERO_LOSS_NAMES, 1);
			return NULL;
		}
	}
	copy = arena;
	memcpy(copy, name, length);
	copy[length] = 0;
	arena += length + 1;
	arena_left -= length + 1;
	return copy;
}

/* An address that meant another kernel before: all caches start over. */
static void forget(uint64_t kernel);

void ingero_kernel_named(uint64_t kernel, const char *name)
{
	struct entry *e;
	const char *old;

	if (!kernel || !name || !ingero_process_ready())
		return;
	ingero_lock();
	e = find_or_add(kernel);
	old = name_of(e);
	if (e && (!old || strcmp(old, name) != 0)) {
		if (e->name)
			forget(kernel);
		e->name = keep(name, strlen(name));
		e->module = 0;
	}
	ingero_unlock();
}

void ingero_kernel_alias(uint64_t kernel, uint64_t known)
{
	struct entry *e, from = { 0, NULL, 0, 0 };

	if (!kernel || kernel == known || !ingero_process_ready())
		return;
	ingero_lock();
	e = find(known);
	if (name_of(e))
		from = *e;
	if (from.name) {
		const char *old;

		e = find_or_add(kernel);
		old = name_of(e);
		if (e && old != from.name) {
			if (e->name && (!old || strcmp(old, from.name) != 0))
				forget(kernel);
			e->name = from.name;
			e->module = from.module;
		}
	}
	ingero_unlock();
}

void ingero_kernel_registered(void *module, const void *host, const char *name)
{
	static uint32_t last; /* registrations of one module come in a row */
	struct entry *e;
	uint32_t m = last;

	if (!host || !name || !ingero_process_ready())
		return;
	ingero_lock();
	if (m >= module_count || modules[m].handle != module || !modules[m].alive) {
		for (m = 0; m < module_count; m++)
			if (modules[m].handle == module && modules[m].alive)
				break;
		if (m == module_count && module_count == module_size) {
			uint32_t size = module_size ? module_size * 2 : 256;
			void *bigger = plain_memory(size * sizeof(*modules));

			if (!bigger) {
				ingero_count_loss(INGERO_LOSS_NAMES, 1);
				ingero_unlock();
				return;
			}
			if (modules)
				memcpy(bigger, modules, module_count * sizeof(*modules));
			modules = bigger;
			module_size = size;
		}
		if (m == module_count) {
			modules[m].handle = module;
			modules[m].alive = true;
			module_count++;
		}
		last = m;
	}
	e = find_or_add((uintptr_t)host);
	if (e) {
		if (e->name)
			forget((uintptr_t)host);
		e->name = name;
		e->module = m + 1;
	}
	ingero_unlock();
}

void ingero_kernels_unregister(void *module)
{
	if (!ingero_process_ready())
		return;
	ingero_lock();
	for (uint32_t m = 0; m < module_count; m++)
		if (modules[m].handle == module)
			modules[m].alive = false;
	ingero_unlock();
}

/* ---- news ---------------------------------------------------------------- */

uint32_t ingero_news = 1;

static void tell_news(void)
{
	if (__atomic_add_fetch(&ingero_news, 1, __ATOMIC_RELEASE) == 0)
		__atomic_add_fetch(&ingero_news, 1, __ATOMIC_RELEASE);
}

/* ---- first launches ------------------------------------------------------ */

/* Kernels that this process's stream has named. In wiped memory. */
struct kernel_set {
	uint32_t size, used;
	uint64_t kernels[];
};

static bool add_to_set(uint64_t kernel)
{
	struct process *p = ingero_process;
	struct kernel_set *set = p->kernel_set;
	uint32_t i;

	if (!set || set->used * 4 >= set->size * 3) {
		uint32_t size = set ? set->size * 2 : 1024;
		size_t bytes = sizeof(*set) + size * sizeof(uint64_t);
		struct kernel_set *bigger = ingero_wiped_memory(bytes);

		if (!bigger) {
			ingero_count_loss(INGERO_LOSS_NAMES, 1);
			return false;
		}
		bigger->size = size;
		for (uint32_t k = 0; set && k < set->size; k++) {
			if (!set->kernels[k])
				continue;
			i = slot_of(set->kernels[k], size);
			while (bigger->kernels[i])
				i = (i + 1) & (size - 1);
			bigger->kernels[i] = set->kernels[k];
			bigger->used++;
		}
		if (set)
			SYS4(SYS_munmap, set, sizeof(*set) + set->size * sizeof(uint64_t), 0, 0);
		p->kernel_set = set = bigger;
	}
	for (i = slot_of(kernel, set->size); set->kernels[i]; i = (i + 1) & (set->size - 1))
		if (set->kernels[i] == kernel)
			return false;
	set->kernels[i] = kernel;
	set->used++;
	return true;
}

static void forget(uint64_t kernel)
{
	struct process *p = ingero_process;
	struct kernel_set *set = p->kernel_set;

	if (!set)
		return;
	for (uint32_t i = slot_of(kernel, set->size); set->kernels[i];
	     i = (i + 1) & (set->size - 1)) {
		if (set->kernels[i] != kernel)
			continue;
		set->kernels[i] = ~0ULL; /* keeps later ones reachable */
		__atomic_fetch_add(&p->kernel_generation, 1, __ATOMIC_RELEASE);
		tell_news();
		return;
	}
}

/* Length of the kernel's name as recorded; 0: not known. Under the lock. */
static size_t name_length(uint64_t kernel, const char **name)
{
	*name = name_of(find(kernel));
	return *name ? strnlen(*name, NAME_BYTES_MAX) : 0;
}

/* Flags for the launch; writes the kernel's name where it is the first. */
unsigned ingero_kernel_seen(struct thread_state *t, uint64_t kernel, uint32_t depth)
{
	const char *name;
	size_t length = 0, now;
	uint64_t mask;
	bool first;

	if (!kernel)
		return 0;
	mask = sys_block_signals();
	ingero_tls.busy++;
	ingero_lock();
	first = add_to_set(kernel);
	if (first)
		length = name_length(kernel, &name);
	ingero_unlock();
	if (first && depth) {
		t->first_inside = true;
		t->news = 0; /* the outermost call asks */
	}
	t->seen[kernel >> 4 & (SEEN_KERNELS - 1)] = kernel;
	if (length) {
		/* May write the slot out, so not under the lock. */
		struct ingero_kernel *k =
			ingero_reserve(t, INGERO_RECORD_KERNEL, sizeof(*k) + length + 1);

		/* Its module may have gone meanwhile, and the text with it. */
		ingero_lock();
		now = name_length(kernel, &name);
		if (now == NAME_BYTES_MAX && name[now])
			ingero_count_loss(INGERO_LOSS_NAMES, 1);
		if (now)
			memcpy(k + 1, name, now < length ? now : length);
		ingero_unlock();
		k->kernel = kernel;
		ingero_commit(t);
	}
	ingero_tls.busy--;
	sys_restore_signals(mask);
	return first ? INGERO_CALL_FIRST_USE : 0;
}

/* ---- capture ------------------------------------------------------------- */

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* The capture that this is part of (its first stream, plus 1), or 0. */
static uint64_t origin_of(const struct captured *among, unsigned count, uint64_t what)
{
	for (unsigned i = 0; i < count; i++)
		if (among[i].what == what + 1)
			return among[i].origin;
	return 0;
}

/* Runtime and driver both tell of one capture: the second adds nothing. */
static void capture_stream(struct process *p, uint64_t stream, uint64_t origin)
{
	if (origin_of(p->captured, COUNT(p->captured), stream))
		return;
	for (unsigned i = 0; i < COUNT(p->captured); i++)
		if (!p->captured[i].what) {
			/* 0 is a stream, too. */
			p->captured[i] = (struct captured){ stream + 1, origin };
			p->captures++;
			tell_news();
			return;
		}
	ingero_count_loss(INGERO_LOSS_CAPTURES, 1);
}

void ingero_capture_begin(uint64_t stream)
{
	struct process *p = ingero_process;

	if (!ingero_process_ready())
		return;
	ingero_lock();
	capture_stream(p, stream, stream + 1);
	ingero_unlock();
}

void ingero_capture_end(uint64_t stream)
{
	struct process *p = ingero_process;

	if (!p->captures)
		return;
	ingero_lock();
	for (unsigned i = 0; i < COUNT(p->captured); i++)
		if (p->captured[i].origin == stream + 1) {
			p->captured[i] = (struct captured){ 0, 0 };
			p->captures--;
		}
	for (unsigned i = 0; i < COUNT(p->captured_events); i++)
		if (p->captured_events[i].origin == stream + 1)
			p->captured_events[i] = (struct captured){ 0, 0 };
	ingero_unlock();
}

/* An event recorded in a captured stream: who waits for it is captured, too. */
void ingero_capture_event(uint64_t event, uint64_t stream)
{
	struct process *p = ingero_process;
	uint64_t origin;
	unsigned at;

	if (!p->captures || !event)
		return;
	ingero_lock();
	origin = origin_of(p->captured, COUNT(p->captured), stream);
	for (at = 0; at < COUNT(p->captured_events); at++)
		if (p->captured_events[at].what == event + 1)
			break;
	if (at == COUNT(p->captured_events) && origin)
		at = p->next_captured_event++ % COUNT(p->captured_events);
	if (at < COUNT(p->captured_events) && origin && p->captured_events[at].what &&
	    p->captured_events[at].what != event + 1)
		ingero_count_loss(INGERO_LOSS_CAPTURES, 1);
	if (at < COUNT(p->captured_events))
		p->captured_events[at] = (struct captured){ origin ? event + 1 : 0, origin };
	ingero_unlock();
}

void ingero_capture_join(uint64_t stream, uint64_t event)
{
	struct process *p = ingero_process;
	uint64_t origin;

	if (!p->captures)
		return;
	ingero_lock();
	origin = origin_of(p->captured_events, COUNT(p->captured_events), event);
	if (origin)
		capture_stream(p, stream, origin);
	ingero_unlock();
}

static unsigned captured(unsigned row, const __u64 *word, unsigned words)
{
	struct process *p = ingero_process;

	for (unsigned w = 0; w < words; w++)
		if (ingero_api[row].words[w] == INGERO_WORD_STREAM &&
		    origin_of(p->captured, COUNT(p->captured), word[w]))
			return INGERO_CALL_CAPTURED;
	return 0;
}

/* A thread stays behind the news while its calls may have flags. */
unsigned ingero_news_flags(struct thread_state *t, unsigned row, uint32_t depth,
			   unsigned words, const __u64 *word)
{
	struct process *p = ingero_process;
	uint32_t news = __atomic_load_n(&ingero_news, __ATOMIC_ACQUIRE);
	uint32_t generation = __atomic_load_n(&p->kernel_generation, __ATOMIC_ACQUIRE);
	uint32_t captures = __atomic_load_n(&p->captures, __ATOMIC_RELAXED);
	unsigned flags = captures ? captured(row, word, words) : 0;

	if (t->kernel_generation != generation) {
		memset(t->seen, 0, sizeof(t->seen));
		t->kernel_generation = generation;
	}
	if (t->first_inside && !depth) {
		/* The driver's launch inside a runtime's was the first. */
		if (ingero_api[row].func_class == INGERO_CLASS_LAUNCH)
			flags |= INGERO_CALL_FIRST_USE;
		t->first_inside = false;
	}
	t->news = captures || t->first_inside ? 0 : news;
	return flags;
}
