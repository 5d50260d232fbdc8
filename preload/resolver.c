/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which real function a wrapper calls, and which pointers are handed out
 * wrapped.
 *
 * The real function belongs to the caller, as the loader would have bound it
 * without the shim: the global scope first (RTLD_NEXT, under the group's
 * version node), then the caller's own dependencies (a plug-in loaded
 * RTLD_LOCAL, Python's normal case), then, for callers that reach a wrapper
 * through a pointer, the copy whose function that pointer stood for. The
 * decision is made once per calling module and group. A wrapper remembers the
 * address range of the first module that called it, so the common case is a
 * compare; other modules are found in a table. The global scope is asked per
 * function: another interposer behind the shim may define only some.
 *
 * A copy (one mapped library that provides a group) is pinned with
 * RTLD_NODELETE, so a remembered pointer cannot dangle. A call that its caller
 * made as a tail call shows the wrong caller; with two copies of one group in
 * a process it may go to the other one.
 *
 * Tables are append-only and read without a lock. The loader is never called
 * with a lock held.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "preload/coverage.h"
#include "preload/loader.h"
#include "preload/syscalls.h"

static const char *const nodes[GROUPS] = {
	[GROUP_RT11] = "libcudart.so.11.0",
	[GROUP_RT12] = "libcudart.so.12",
	[GROUP_RT13] = "libcudart.so.13",
};

static void *const *wrappers_of(enum group group)
{
	switch (group) {
	case GROUP_RT11:
		return ingero_wrappers_11;
	case GROUP_RT12:
		return ingero_wrappers_12;
	case GROUP_RT13:
		return ingero_wrappers_13;
	default:
		return ingero_wrappers_0;
	}
}

/* ---- modules, copies, callers -------------------------------------------- */

struct copy {
	uintptr_t low, high;
	void *handle;
	enum group group;
	void *real[API_ROWS_MAX];
	uint16_t by_address[4096]; /* open addressing: row + 1 */
	uint32_t reversed;         /* by_address is filled */
};

enum { COPIES_MAX = 16, CALLERS_MAX = 512 };
static struct copy *copies[COPIES_MAX];
static uint32_t copy_count;
/* The first copy of each group; wrapped pointers stand for its functions. */
static struct copy *first_copy[GROUPS];
/* What RTLD_NEXT finds: no library of its own, `real` is a cache by row. */
static struct copy global_scope[GROUPS];

struct caller {
	uintptr_t low, high;
	struct copy *copy[GROUPS];
};
static struct caller callers[CALLERS_MAX];
static uint32_t caller_count;

static struct copy *known_copy(enum group group, uintptr_t address)
{
	uint32_t n = __atomic_load_n(&copy_count, __ATOMIC_ACQUIRE);

	for (uint32_t i = 0; i < n; i++)
		if (copies[i]->group == group && address >= copies[i]->low &&
		    address < copies[i]->high)
			return copies[i];
	return NULL;
}

/* The copy that holds `address`, made known if it is new. */
static struct copy *copy_of(enum group group, void *address)
{
	struct copy *copy = known_copy(group, (uintptr_t)address), *other;
	struct module m;

	if (copy)
		return copy;
	ingero_find_module((uintptr_t)address, &m);
	if (!m.found)
		return NULL;
	copy = sys_mmap(sizeof(*copy), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (!copy)
		return NULL;
	copy->low = m.low;
	copy->high = m.high;
	copy->group = group;
	copy->handle = ingero_open_loaded(m.name, RTLD_NODELETE);
	ingero_lock();
	other = known_copy(group, (uintptr_t)address);
	if (!other && copy_count < COPIES_MAX) {
		copies[copy_count] = copy;
		if (!first_copy[group])
			first_copy[group] = copy;
		__atomic_store_n(&copy_count, copy_count + 1, __ATOMIC_RELEASE);
		other = copy;
	}
	ingero_unlock();
	if (other != copy)
		SYS4(SYS_munmap, copy, sizeof(*copy), 0, 0);
	return other;
}

static bool is_ours(const void *p)
{
	static uintptr_t low, high;

	if (unlikely(!high)) {
		struct module m;

		ingero_find_module((uintptr_t)&copies, &m);
		low = m.low;
		__atomic_store_n(&high, m.high, __ATOMIC_RELEASE);
	}
	return (uintptr_t)p >= low && (uintptr_t)p < high;
}

/* Does the library that holds `p` define `name` itself? */
static bool module_exports(void *p, const char *name)
{
	struct module m;
	void *handle, *found;

	ingero_find_module((uintptr_t)p, &m);
	handle = m.found ? ingero_open_loaded(m.name, 0) : NULL;
	if (!handle)
		return false;
	found = ingero_look_up(handle, name, NULL);
	ingero_close_loaded(handle);
	return (uintptr_t)found >= m.low && (uintptr_t)found < m.high;
}

/*
 * What a reference under `node` binds to behind the shim. The loader takes an
 * interposer's definition without version for it; dlvsym does not.
 */
static void *next_of(const char *name, const char *node)
{
	void *p = ingero_look_up(RTLD_NEXT, name, node), *plain, *handle;
	struct module m;

	if (!node)
		return p;
	plain = ingero_look_up(RTLD_NEXT, name, NULL);
	if (!plain || plain == p)
		return p;
	ingero_find_module((uintptr_t)plain, &m);
	handle = m.found ? ingero_open_loaded(m.name, 0) : NULL;
	if (!handle)
		return p;
	for (enum group g = GROUP_RT11; g < GROUPS; g++)
		if (ingero_look_up(handle, name, nodes[g]) == plain)
			plain = p; /* another major's, or reached through its library */
	ingero_close_loaded(handle);
	return plain;
}

/* The library of a remembered function stays loaded. */
static void pin(enum group group, void *p)
{
	struct module m;

	if (known_copy(group, (uintptr_t)p))
		return;
	ingero_find_module((uintptr_t)p, &m);
	if (m.found)
		ingero_open_loaded(m.name, RTLD_NODELETE);
}

static void *real_of(struct copy *copy, unsigned row)
{
	void *p = __atomic_load_n(&copy->real[row], __ATOMIC_ACQUIRE);
	const char *name = ingero_api[row].name;

	if (p || !copy->handle)
		return p;
	if (copy->handle == RTLD_NEXT)
		p = next_of(name, nodes[copy->group]);
	else if (nodes[copy->group])
		p = ingero_look_up(copy->handle, name, nodes[copy->group]);
	if (!p)
		p = ingero_look_up(copy->handle, name, NULL);
	if (p && is_ours(p))
		p = NULL;
	if (p && copy->handle == RTLD_NEXT) {
		/* Without its version the name may have met another major's library. */
		for (enum group g = GROUP_RT11; nodes[copy->group] && g < GROUPS; g++)
			if (g != copy->group && known_copy(g, (uintptr_t)p))
				return NULL;
		pin(copy->group, p);
	}
	if (p)
		__atomic_store_n(&copy->real[row], p, __ATOMIC_RELEASE);
	return p;
}

/* ---- wrapper to real ----------------------------------------------------- */

static struct caller *known_caller(uintptr_t address)
{
	uint32_t n = __atomic_load_n(&caller_count, __ATOMIC_ACQUIRE);

	for (uint32_t i = 0; i < n; i++)
		if (address - callers[i].low < callers[i].high - callers[i].low)
			return &callers[i];
	return NULL;
}

/*
 * A function by which a library is told from another interposer, which rarely
 * defines it.
 */
static const char *anchor_of(enum group group)
{
	return group == GROUP_DRIVER ? "cuDriverGetVersion" : "cudaRuntimeGetVersion";
}

/* What the loader would have bound this caller to; `global` where it matters not. */
static struct copy *choose_copy(enum group group, unsigned row, const struct module *m, bool global)
{
	const char *name = ingero_api[row].name, *node = nodes[group];
	void *handle = NULL, *p = global ? next_of(name, node) : NULL;
	struct copy *copy = NULL;

	/*
	 * An interposer before its library is loaded into the global scope passes
	 * on to nothing: the caller came through a pointer.
	 */
	if (p && first_copy[group] && !known_copy(group, (uintptr_t)p) &&
	    !ingero_look_up(RTLD_NEXT, anchor_of(group), node) && !module_exports(p, anchor_of(group)))
		p = NULL;
	if (!p && m->found && m->name[0]) {
		handle = ingero_open_loaded(m->name, 0);
		if (handle)
			p = ingero_look_up(handle, name, node);
		global = false;
	}
	if (!p && first_copy[group]) {
		copy = first_copy[group];
	} else {
		if (!p && node) {
			p = ingero_look_up(RTLD_NEXT, name, NULL);
			global = p != NULL;
			if (!p && handle)
				p = ingero_look_up(handle, name, NULL);
		}
		if (p && !is_ours(p)) {
			ingero_cover_module();
			if (global) {
				void *anchor = ingero_look_up(RTLD_NEXT, anchor_of(group), node);

				/* So that pointers of this library are known later. */
				copy_of(group, anchor && !is_ours(anchor) ? anchor : p);
				copy = &global_scope[group];
				copy->group = group;
				__atomic_store_n(&copy->handle, RTLD_NEXT, __ATOMIC_RELEASE);
			} else {
				copy = copy_of(group, p);
			}
		}
	}
	if (handle)
		ingero_close_loaded(handle);
	return copy;
}

static void remember_caller(struct cell *cell, const struct caller *caller, void *real)
{
	ingero_lock();
	for (int i = 0; i < CELL_CALLERS; i++) {
		if (cell->of[i].span && cell->of[i].low != caller->low)
			continue; /* another module's */
		if (!cell->of[i].span) {
			cell->of[i].real = real;
			cell->of[i].low = caller->low;
			__atomic_store_n(&cell->of[i].span, caller->high - caller->low, __ATOMIC_RELEASE);
		}
		break;
	}
	ingero_unlock();
}

static void *resolve(enum group group, unsigned row, struct cell *cell, uintptr_t address)
{
	struct caller *caller = known_caller(address);
	struct copy *copy = caller ? __atomic_load_n(&caller->copy[group], __ATOMIC_ACQUIRE) : NULL;
	struct module m;
	void *real;

	if (!ingero_loader_ready())
		return NULL;
	if (!copy) {
		ingero_find_module(address, &m);
		copy = choose_copy(group, row, &m, true);
		if (!copy)
			return NULL;
		if (!m.found) { /* compiled at run time: remember its page */
			m.low = address & ~(uintptr_t)4095;
			m.high = m.low + 4096;
		}
		ingero_lock();
		caller = known_caller(address);
		if (!caller && caller_count < CALLERS_MAX) {
			caller = &callers[caller_count];
			caller->low = m.low;
			caller->high = m.high;
			caller->copy[group] = copy;
			__atomic_store_n(&caller_count, caller_count + 1, __ATOMIC_RELEASE);
		} else if (caller && !caller->copy[group]) {
			__atomic_store_n(&caller->copy[group], copy, __ATOMIC_RELEASE);
		}
		ingero_unlock();
	}
	real = real_of(copy, row);
	if (!real && copy == &global_scope[group]) {
		/* Only some functions are there (an interposer): the caller's own. */
		ingero_find_module(address, &m);
		copy = choose_copy(group, row, &m, false);
		real = copy ? real_of(copy, row) : NULL;
	}
	if (real)
		ingero_cover_linked(row);
	if (real && caller)
		remember_caller(cell, caller, real);
	return real;
}

void *ingero_resolve(enum group group, unsigned row, struct cell *cell, uintptr_t address)
{
	/* The loader allocates, and an allocator may make CUDA calls. */
	static __thread uint8_t nested __attribute__((tls_model("initial-exec")));
	struct caller *caller = known_caller(address = ingero_true_caller(address));
	struct copy *copy = caller ? __atomic_load_n(&caller->copy[group], __ATOMIC_ACQUIRE) : NULL;
	void *real = copy ? __atomic_load_n(&copy->real[row], __ATOMIC_ACQUIRE) : NULL;
	uint64_t mask;
	int saved;

	if (likely(real && cell->of[CELL_CALLERS - 1].span))
		return real; /* more modules call this function than are remembered */
	mask = sys_block_signals();
	saved = errno;
	nested++;
	if (nested == 1) {
		real = resolve(group, row, cell, address);
		ingero_libraries_sweep();
	}
	if (nested == 2 && ingero_loader_ready())
		real = ingero_look_up(RTLD_NEXT, ingero_api[row].name, nodes[group]);
	nested--;
	errno = saved;
	sys_restore_signals(mask);
	return real && !is_ours(real) ? real : NULL;
}

/* ---- real to wrapper ----------------------------------------------------- */

/* The group whose version node `p` carries in its library; GROUPS: none. */
static enum group group_of(const char *name, void *p)
{
	enum group found = GROUPS;
	struct module m;
	void *handle;

	for (enum group g = GROUP_RT11; g < GROUPS; g++)
		if (known_copy(g, (uintptr_t)p))
			return g;
	ingero_find_module((uintptr_t)p, &m);
	handle = m.found ? ingero_open_loaded(m.name, 0) : NULL;
	if (!handle)
		return GROUPS;
	for (enum group g = GROUP_RT13; g >= GROUP_RT11 && found == GROUPS; g--)
		if (ingero_look_up(handle, name, nodes[g]) == p)
			found = g;
	ingero_close_loaded(handle);
	return found;
}

/* The wrapper that stands for `p`, or `p` itself where that would be wrong. */
static void *wrap(const char *name, void *p)
{
	enum group group = name[2] == 'd' || name[0] == '_' ? group_of(name, p) : GROUP_DRIVER;
	int row = group < GROUPS ? ingero_find_row(name, group) : -1;
	struct copy *copy = row >= 0 ? copy_of(group, p) : NULL;

	if (copy && copy == first_copy[group] && real_of(copy, (unsigned)row) == p) {
		ingero_cover_pointer(INGERO_WAY_DLSYM, (unsigned)row);
		return wrappers_of(group)[row];
	}
	ingero_cover_escape(name, copy && copy != first_copy[group] ? INGERO_ESCAPE_COPY :
								      INGERO_ESCAPE_UNKNOWN);
	return p;
}

/*
 * The program's search met the shim first and `p` is what comes next: another
 * interposer, or the library. The wrapper will ask the global scope for it.
 */
static void *wrap_next(const char *name, void *p)
{
	enum group group = GROUP_DRIVER;
	int row;

	if (name[2] == 'd' || name[0] == '_') {
		void *anchor = ingero_look_up(RTLD_NEXT, anchor_of(GROUP_RT13), NULL);

		group = group_of(name, p);
		if (group == GROUPS && anchor)
			group = group_of(anchor_of(GROUP_RT13), anchor);
	}
	row = group < GROUPS ? ingero_find_row(name, group) : -1;
	if (row < 0) {
		ingero_cover_escape(name, INGERO_ESCAPE_UNKNOWN);
		return p;
	}
	ingero_cover_pointer(INGERO_WAY_DLSYM, (unsigned)row);
	return wrappers_of(group)[row];
}

static void reverse(struct copy *copy)
{
	memset(copy->by_address, 0, sizeof(copy->by_address));
	for (unsigned row = 0; row < ingero_api_driver_rows; row++) {
		uintptr_t p = (uintptr_t)real_of(copy, row);
		unsigned at = (unsigned)(p >> 4);

		if (!p)
			continue;
		while (copy->by_address[at & 4095])
			at++;
		copy->by_address[at & 4095] = (uint16_t)(row + 1);
	}
}

/*
 * A driver function was asked for by name, version and flags; the answer is
 * its address. The wrapper of exactly that address takes its place: which
 * suffix (_v2, _ptsz) the version meant is thus the driver's decision.
 */
void ingero_map_proc_address(enum group asked, const char *name, void **out)
{
	const enum ingero_coverage_way way =
		asked == GROUP_DRIVER ? INGERO_WAY_PROC_ADDRESS : INGERO_WAY_DRIVER_ENTRY;
	void *p = out ? *out : NULL;
	struct copy *copy;
	int best = -1;

	if (!p || !name || !ingero_loader_ready())
		return;
	if (is_ours(p)) { /* the runtime had it from a wrapped cuGetProcAddress */
		for (unsigned row = 0; row < ingero_api_driver_rows; row++)
			if (ingero_wrappers_0[row] == p) {
				ingero_cover_pointer(way, row);
				break;
			}
		return;
	}
	copy = copy_of(GROUP_DRIVER, p);
	if (!copy || copy != first_copy[GROUP_DRIVER]) {
		ingero_cover_escape(name, INGERO_ESCAPE_COPY);
		return;
	}
	if (!__atomic_load_n(&copy->reversed, __ATOMIC_ACQUIRE)) {
		uint64_t mask = sys_block_signals();

		if (ingero_once_begin(&copy->reversed, ONCE_REVERSE)) {
			reverse(copy);
			ingero_once_end(&copy->reversed, ONCE_REVERSE);
		}
		sys_restore_signals(mask);
	}
	/* Names that share an address: the one that was asked for, if any. */
	for (unsigned at = (unsigned)((uintptr_t)p >> 4); copy->by_address[at & 4095]; at++) {
		unsigned row = copy->by_address[at & 4095] - 1u;

		if (copy->real[row] == p &&
		    (best < 0 || strncmp(ingero_api[row].name, name, strlen(name)) == 0))
			best = (int)row;
	}
	if (best < 0) {
		ingero_cover_escape(name, INGERO_ESCAPE_UNKNOWN);
		return;
	}
	ingero_cover_pointer(way, (unsigned)best);
	*out = ingero_wrappers_0[best];
}

/* ---- dlsym --------------------------------------------------------------- */

#define TAIL ((void *)1) /* dlsym.S jumps to the real one */

/* Driver and runtime functions, not cublas and kin. */
static bool is_cuda_name(const char *name)
{
	if (strncmp(name, "__cuda", 6) == 0)
		return true;
	if (strncmp(name, "cuda", 4) == 0)
		name += 2;
	return name[0] == 'c' && name[2] >= 'A' && name[2] <= 'Z';
}

/*
 * For RTLD_DEFAULT and the program's own handle the
 * shim's exports come first in the search; they must not make CUDA look
 * present where it is not.
 */
static void *answer_dlsym(void *handle, const char *name, const char *version, void *caller)
{
	struct module m;
	void *p, *next, *own;
	int saved = errno;

	next = ingero_look_up(RTLD_NEXT, name, version);
	p = version ? ingero_real_dlvsym(handle, name, version) : ingero_real_dlsym(handle, name);
	if (!p && handle != RTLD_DEFAULT)
		return NULL; /* with the loader's own error */
	errno = saved;
	if (p && !is_ours(p)) {
		/* Ahead of the shim, an interposer passes on to it. */
		if (p != next && p == ingero_look_up(RTLD_DEFAULT, name, version))
			return p;
		return wrap(name, p);
	}
	if (next && !is_ours(next))
		return wrap_next(name, next);
	/* RTLD_DEFAULT includes what the caller was linked to. */
	ingero_find_module((uintptr_t)caller, &m);
	own = m.found && m.name[0] ? ingero_open_loaded(m.name, 0) : NULL;
	p = own ? ingero_look_up(own, name, version) : NULL;
	if (own)
		ingero_close_loaded(own);
	errno = saved;
	if (p && !is_ours(p))
		return wrap(name, p);
	/* For the error that the caller may ask for. */
	if (version)
		ingero_real_dlvsym(RTLD_NEXT, name, version);
	else
		ingero_libc_dlsym(RTLD_NEXT, name);
	return NULL;
}

/*
 * RTLD_NEXT and names we do not know go on by a tail jump, so that the loader
 * sees the true caller.
 */
__attribute__((visibility("hidden"))) void *ingero_dlsym(void *handle, const char *name,
							 const char *version, void *caller)
{
	void *p;

	if (!ingero_loader_ready())
		return NULL;
	if (unlikely(ingero_libraries)) {
		caller = (void *)ingero_true_caller((uintptr_t)caller);
		p = ingero_library_dlsym(handle, name, version, caller);
		if (p)
			return p;
	}
	if (handle == RTLD_NEXT || !name ||
	    (!ingero_begins_with(name, "cu") && !ingero_begins_with(name, "__cuda")))
		return TAIL;
	if (ingero_find_row(name, GROUP_DRIVER) < 0 && ingero_find_row(name, GROUP_RT11) < 0 &&
	    ingero_find_row(name, GROUP_RT12) < 0 && ingero_find_row(name, GROUP_RT13) < 0) {
		int saved = errno;

		if (is_cuda_name(name) && ingero_process_ready() &&
		    ingero_look_up(handle, name, version))
			ingero_cover_escape(name, INGERO_ESCAPE_UNKNOWN);
		errno = saved;
		return TAIL;
	}
	ingero_process_ready(); /* before any lock is taken */
	p = answer_dlsym(handle, name, version, caller);
	if (p && strncmp(name, "cuGetProcAddress", 16) == 0) {
		struct module m;

		ingero_find_module((uintptr_t)caller, &m);
		if (m.found)
			ingero_cover_asked_by(m.name);
	}
	return p;
}

/* ---- dlopen -------------------------------------------------------------- */

/*
 * Used by dlopen.S, which jumps on to the real one: the loader then sees the
 * true caller, whose RUNPATH counts. A library bound deeply finds the runtime
 * before the shim, so the bit is cleared.
 */
__attribute__((visibility("hidden"))) int ingero_dlopen_mode(const char *file, int mode)
{
	int saved = errno;
	bool keep;

	ingero_loader_ready();
	if (mode & RTLD_DEEPBIND) {
		keep = ingero_keeps_deepbind();
		if (file && !(mode & RTLD_NOLOAD))
			ingero_cover_deepbind(file, keep);
		if (!keep)
			mode &= ~RTLD_DEEPBIND;
	}
	errno = saved;
	return mode;
}
