/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Entry points of NCCL, cuBLAS, cuBLASLt and cuDNN, where INGERO_APIS asks for
 * them: by name, duration and status. Without that nothing here runs.
 *
 * The shim exports none of these names: programs and the libraries themselves
 * would bind to them. What a loaded module refers to is found in its
 * relocations instead, and the pointer that the loader put there is replaced by
 * one to a thunk (library_thunks.S); dlsym hands out the same thunks.
 *
 * When: as soon as the shim is loaded; then at the next dlsym, and at the next
 * CUDA call that is resolved, after the loader's count of modules changed. So
 * calls from a plug-in's constructors, and those between dlopen and the next of
 * these, are not seen. Never inside dlopen: its return address is the caller's
 * business (RUNPATH).
 *
 * What is replaced: JUMP_SLOT, GLOB_DAT and plain 64-bit relocations of a
 * symbol with one of the prefixes, whose pointer leads to a function of that
 * name in a file named as that library; not those of the library's own files.
 * A lazily bound reference that was not called yet is bound here, where only
 * one loaded library defines the name and the caller would find it. Either way
 * it is looked at again at the next CUDA call that is resolved: the loader may
 * have been binding it for another thread, and its store came last. Calls until
 * then were not seen; such a reference is told as escaped.
 *
 * Lifetimes: a library with a thunk is pinned (RTLD_NODELETE), as is one of
 * CUDA (resolver.c). A calling module goes with its own pointers; it is held
 * open while they are written, which also means that the loader is done with
 * it. Thunks are never given back: LIBRARY_ROWS_MAX functions, and what comes
 * after is told as escaped.
 *
 * Threads: one sweep at a time; a second one is left out, not waited for (it
 * may be inside dlopen, which the first one waits for). Pointers are stored
 * atomically.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "preload/coverage.h"
#include "preload/loader.h"
#include "preload/syscalls.h"
#include "preload/traced_call.h"

enum {
	MODULES_MAX = 2048,
	AT_ONCE = 8, /* modules held open in one pass */
	PASSES = 512,
	BUCKETS = 1024,
	PINNED_MAX = 64,
	THUNK_BYTES = 16,
	/*
	 * What is copied of the stack: the longest call of cuDNN 9, with 33
	 * arguments, has 27 words there, ncclCommInitRank a struct of 16.
	 */
	STACK_BYTES = 512,
	PAGE = 4096,
};

/* The longer prefix first. */
static const struct library {
	const char *symbol, *file;
	unsigned func_class;
} libraries[] = {
	{ "nccl", "libnccl", INGERO_CLASS_NCCL },
	{ "cublasLt", "libcublasLt", INGERO_CLASS_CUBLASLT },
	{ "cublas", "libcublas", INGERO_CLASS_CUBLAS },
	{ "cudnn", "libcudnn", INGERO_CLASS_CUDNN },
};

uint32_t ingero_libraries = LIBRARIES_UNKNOWN;
struct api_row ingero_library_rows[LIBRARY_ROWS_MAX];

static bool asked(unsigned func_class)
{
	return ingero_libraries >> (func_class - INGERO_CLASS_NCCL) & 1;
}

static const struct library *library_of_symbol(const char *name)
{
	for (size_t i = 0; i < sizeof(libraries) / sizeof(libraries[0]); i++) {
		const char *c = name, *prefix = libraries[i].symbol;

		for (; *prefix && *c == *prefix; c++)
			prefix++;
		if (!*prefix && *c >= 'A' && *c <= 'Z')
			return &libraries[i];
	}
	return NULL;
}

static bool is_file_of(const struct library *library, const char *path)
{
	const char *base = ingero_base_of(path);
	size_t n = 0;

	for (; library->file[n]; n++)
		if (base[n] != library->file[n])
			return false;
	return !(base[n] >= 'A' && base[n] <= 'Z') && !(base[n] >= 'a' && base[n] <= 'z');
}

/*
 * Not a status, so 0 is recorded: texts, versions, and the calls of cuBLAS's
 * first interface, whose successors carry a _v2.
 */
static bool gives_no_status(const struct elf_tables *in, const char *name)
{
	static const char *const names[] = {
		"cublasGetStatusName", "cublasGetStatusString", "cublasLtGetStatusName",
		"cublasLtGetStatusString", "cublasLtGetVersion", "cublasLtGetCudartVersion",
		"cublasGetCudartVersion", "cublasXerbla", "cudnnGetVersion",
		"cudnnGetMaxDeviceVersion", "cudnnGetCudartVersion", "cudnnGetErrorString",
		"cudnnGetLastErrorString", "ncclGetErrorString", "ncclGetLastError",
		"ncclResetDebugInit", "cublasLtDisableCpuInstructionsSetMask",
	};
	char successor[128];
	size_t n = strlen(name);

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (ingero_same_text(names[i], name))
			return true;
	if (n + sizeof("_v2") > sizeof(successor))
		return false;
	memcpy(successor, name, n);
	memcpy(successor + n, "_v2", sizeof("_v2"));
	return ingero_find_symbol(in, successor) != NULL;
}

/* ---- thunks -------------------------------------------------------------- */

extern const char ingero_library_thunks[] __attribute__((visibility("hidden")));

static struct cell cells[LIBRARY_ROWS_MAX]; /* of[0].real and named */
static bool no_status[LIBRARY_ROWS_MAX];
static uint16_t next_row[LIBRARY_ROWS_MAX], first_row[BUCKETS]; /* row + 1 */
static uint32_t row_count;

static uintptr_t thunk_of(unsigned row)
{
	return (uintptr_t)ingero_library_thunks + row * THUNK_BYTES;
}

static bool is_thunk(uintptr_t p)
{
	return p - (uintptr_t)ingero_library_thunks < LIBRARY_ROWS_MAX * THUNK_BYTES;
}

/* Row of that function, or -1. */
static int find_row(uintptr_t real, const char *name)
{
	for (unsigned i = __atomic_load_n(&first_row[real >> 4 & (BUCKETS - 1)], __ATOMIC_ACQUIRE);
	     i; i = next_row[i - 1])
		if ((uintptr_t)cells[i - 1].of[0].real == real &&
		    ingero_same_text(ingero_library_rows[i - 1].name, name))
			return (int)i - 1;
	return -1;
}

/* A function of a library; its texts are the library's. */
struct definition {
	const struct library *library;
	const char *wanted; /* name */
	uintptr_t within;   /* in: an address in the library that is meant; 0: any */
	unsigned count;     /* libraries that define it */
	uintptr_t address;
	const char *name;
	bool no_status, indirect;
	uintptr_t base;
	char path[512];
};

static int look_for_definition(struct dl_phdr_info *info, size_t size, void *to)
{
	struct definition *d = to;
	struct elf_tables tables;
	const ElfW(Sym) *symbol;
	struct module m;
	unsigned type;

	(void)size;
	if (!info->dlpi_name || !is_file_of(d->library, info->dlpi_name) ||
	    strlen(info->dlpi_name) >= sizeof(d->path))
		return 0;
	if (d->within) {
		ingero_module_range(info, &m);
		if (d->within < m.low || d->within >= m.high)
			return 0;
	}
	ingero_read_tables(info, &tables);
	symbol = ingero_find_symbol(&tables, d->wanted);
	type = symbol ? ELF64_ST_TYPE(symbol->st_info) : STT_NOTYPE;
	if (type != STT_FUNC && type != STT_GNU_IFUNC)
		return 0;
	d->count++;
	d->base = info->dlpi_addr;
	d->address = info->dlpi_addr + symbol->st_value;
	d->name = tables.strings + symbol->st_name;
	d->indirect = type == STT_GNU_IFUNC;
	d->no_status = gives_no_status(&tables, d->name);
	memcpy(d->path, info->dlpi_name, strlen(info->dlpi_name) + 1);
	return 0;
}

static bool define(const struct library *library, const char *name, uintptr_t within,
		   struct definition *d)
{
	d->library = library;
	d->wanted = name;
	d->within = within;
	d->count = 0;
	ingero_walk_modules(look_for_definition, d);
	return d->count > 0;
}

static bool pin(const struct definition *d)
{
	static uintptr_t pinned[PINNED_MAX]; /* bases, which stay theirs */
	static uint32_t count;
	uint32_t n = __atomic_load_n(&count, __ATOMIC_ACQUIRE);
	struct definition again;

	for (uint32_t i = 0; i < n; i++)
		if (pinned[i] == d->base)
			return true;
	if (!ingero_open_loaded(d->path, RTLD_NODELETE))
		return false;
	/* The file of that name is still the one that was looked at. */
	if (!define(d->library, d->wanted, d->address, &again) || again.name != d->name)
		return false;
	ingero_lock();
	if (count < PINNED_MAX) {
		pinned[count] = d->base;
		__atomic_store_n(&count, count + 1, __ATOMIC_RELEASE);
	}
	ingero_unlock();
	return true;
}

/* The thunk that stands for `real`; 0: there is none. */
static uintptr_t thunk_for(uintptr_t real, const struct definition *d)
{
	int row = find_row(real, d->name);
	bool is_new = false;
	uint16_t *bucket = &first_row[real >> 4 & (BUCKETS - 1)];

	if (row >= 0)
		return thunk_of((unsigned)row);
	if (!pin(d))
		return 0;
	ingero_lock();
	row = find_row(real, d->name);
	if (row < 0 && row_count < LIBRARY_ROWS_MAX) {
		row = (int)row_count++;
		is_new = true;
		cells[row].of[0].real = (void *)real;
		no_status[row] = d->no_status;
		ingero_library_rows[row].name = d->name;
		ingero_library_rows[row].func_class = (uint8_t)d->library->func_class;
		next_row[row] = *bucket;
		__atomic_store_n(bucket, (uint16_t)(row + 1), __ATOMIC_RELEASE);
	}
	ingero_unlock();
	if (row < 0) {
		ingero_cover_escape(d->name, INGERO_ESCAPE_NO_THUNK);
		return 0;
	}
	if (is_new)
		ingero_cover_library(d->path, d->library->func_class);
	return thunk_of((unsigned)row);
}

/* ---- a call -------------------------------------------------------------- */

struct library_call { /* on the thunk's stack; library_thunks.S knows its size */
	void *real;   /* first */
	void *outer;
	struct thread_state *t;
	uint64_t start;
	uint32_t row, depth;
};
_Static_assert(sizeof(struct library_call) <= 48 && offsetof(struct library_call, real) == 0,
	       "library_thunks.S");

/* The function that this thread is in, by thunk. */
static __thread void *current __attribute__((tls_model("initial-exec")));

extern const char ingero_library_frame[] __attribute__((visibility("hidden")));

/*
 * A library's call that was its last act, and compiled to a jump, returns to
 * the thunk.
 */
uintptr_t ingero_true_caller(uintptr_t address)
{
	if (address - (uintptr_t)ingero_library_frame <
	    (uintptr_t)ingero_library_thunks - (uintptr_t)ingero_library_frame)
		return (uintptr_t)current;
	return address;
}

/*
 * The kernel reads the 8 bytes before it looks at the first argument, which is
 * none of the three: nothing changes.
 */
static bool is_readable(uintptr_t p)
{
	return SYS4(SYS_rt_sigprocmask, -1, p, 0, 8) != -EFAULT;
}

/*
 * How much of the stack above `frame` to copy: arguments cannot lie where
 * nothing can be read. A call near the end of a page asks the kernel; others
 * know.
 */
static size_t stack_bytes(uintptr_t frame)
{
	/* The end of the page of the return address, which is below `frame`. */
	const uintptr_t next = ((frame - 1) | (PAGE - 1)) + 1;

	if (likely(frame + STACK_BYTES <= next) || is_readable(next))
		return STACK_BYTES;
	return next - frame;
}

__attribute__((visibility("hidden"))) size_t ingero_library_enter(struct library_call *call,
								  unsigned row, uintptr_t frame);
__attribute__((visibility("hidden"))) void ingero_library_leave(struct library_call *call,
								unsigned result);

size_t ingero_library_enter(struct library_call *call, unsigned row, uintptr_t frame)
{
	const size_t bytes = stack_bytes(frame);
	struct cell *cell = &cells[row];

	call->real = cell->of[0].real;
	call->outer = current;
	current = cell->of[0].real;
	call->row = row;
	call->t = call_enter(LIBRARY_ROW + row, cell);
	if (likely(call->t != NULL))
		call->start = call_begin(call->t, LIBRARY_ROW + row, frame, &call->depth);
	return bytes;
}

void ingero_library_leave(struct library_call *call, unsigned result)
{
	struct thread_state *t = call->t;
	const __u64 none[] = { 0 };

	current = call->outer;
	if (unlikely(!t))
		return;
	call_close(t);
	call_end(t, LIBRARY_ROW + call->row, INGERO_CLASS_OTHER, call->depth, call->start,
		 ingero_ticks(), no_status[call->row] ? 0 : result, 0, 0, none);
}

/* ---- modules ------------------------------------------------------------- */

/* A module that was looked at. */
struct known {
	uintptr_t base;
	uint64_t print;
	const uintptr_t *slot; /* one of its pointers to a thunk, if any */
	uint64_t unloads;      /* of all modules, when it was looked at */
	uint32_t sweep;        /* the last that looked at it */
	bool done;             /* nothing was left for later */
};
static struct known known[MODULES_MAX];
static uint32_t known_count;
static bool some_left; /* a known one is not done */
static struct counts {
	unsigned long long adds, subs;
} seen; /* modules that came and went, at the last sweep */
static uint32_t sweeps;

static struct known *find_known(uintptr_t base)
{
	for (uint32_t i = 0; i < known_count; i++)
		if (known[i].base == base)
			return &known[i];
	return NULL;
}

static void remember(uintptr_t base, uint64_t print, const uintptr_t *slot, bool done)
{
	struct known *k = find_known(base);

	if (!k && known_count < MODULES_MAX)
		k = &known[known_count++];
	if (k)
		*k = (struct known){ base, print, slot, seen.subs, sweeps, done };
	if (!done)
		__atomic_store_n(&some_left, true, __ATOMIC_RELAXED);
}

/* One to be looked into. */
struct candidate {
	uintptr_t base;
	uint64_t print;
	char name[512];
	/* while it is held open */
	void *handle;
	const ElfW(Phdr) *segments;
	unsigned segment_count;
	uintptr_t low, high;
	bool protected_open; /* the RELRO pages are writable just now */
	bool left;           /* something is to be done later */
	bool again;          /* the same module was looked at before */
	const uintptr_t *slot;
};

/* The library that a relocation means, if it is asked for; else NULL. */
static const struct library *library_of(const struct elf_tables *in, const ElfW(Rela) *r,
					const char *path, const char **name)
{
	const unsigned type = ELF64_R_TYPE(r->r_info);
	const ElfW(Sym) *symbol = &in->symbols[ELF64_R_SYM(r->r_info)];
	const struct library *library;

	if ((type != R_X86_64_JUMP_SLOT && type != R_X86_64_GLOB_DAT && type != R_X86_64_64) ||
	    !ELF64_R_SYM(r->r_info) || r->r_addend)
		return NULL;
	*name = in->strings + symbol->st_name;
	if (**name != 'c' && **name != 'n')
		return NULL;
	library = library_of_symbol(*name);
	if (!library || !asked(library->func_class) || is_file_of(library, path))
		return NULL;
	return ELF64_ST_TYPE(symbol->st_info) == STT_OBJECT ? NULL : library;
}

static const ElfW(Rela) *next_relocation(const struct elf_tables *in, size_t *at)
{
	const size_t plain = in->rela && in->rela_count > in->relative ?
				     in->rela_count - in->relative : 0;
	const size_t i = (*at)++;

	if (i < plain)
		return &in->rela[in->relative + i];
	return in->plt && i - plain < in->plt_count ? &in->plt[i - plain] : NULL;
}

static bool refers(const struct elf_tables *in, const char *path)
{
	const ElfW(Rela) *r;
	const char *name;
	size_t at = 0;

	if (!in->symbols || !in->strings)
		return false;
	while ((r = next_relocation(in, &at)))
		if (library_of(in, r, path, &name))
			return true;
	return false;
}

struct pass {
	struct candidate *candidates;
	unsigned count;
	bool more; /* candidates than fit */
};

static bool has_thunk(const struct known *k)
{
	return k->slot && is_thunk(__atomic_load_n(k->slot, __ATOMIC_RELAXED));
}

static int look_at_module(struct dl_phdr_info *info, size_t size, void *to)
{
	struct pass *pass = to;
	const char *name = info->dlpi_name ? info->dlpi_name : "";
	struct elf_tables tables;
	struct candidate *c;
	struct known *k;

	(void)size;
	ingero_read_tables(info, &tables);
	k = find_known(info->dlpi_addr);
	if (k && k->print == tables.print && (k->done || k->sweep == sweeps) &&
	    (!k->slot || has_thunk(k)))
		return 0;
	if (!refers(&tables, name)) {
		remember(info->dlpi_addr, tables.print, NULL, true);
		return 0;
	}
	if (strlen(name) >= sizeof(c->name) || (!k && known_count == MODULES_MAX)) {
		ingero_cover_escape(name, INGERO_ESCAPE_MODULE);
		remember(info->dlpi_addr, tables.print, NULL, true);
		return 0;
	}
	if (pass->count == AT_ONCE) {
		pass->more = true;
		return 1;
	}
	c = &pass->candidates[pass->count++];
	c->base = info->dlpi_addr;
	c->print = tables.print;
	memcpy(c->name, name, strlen(name) + 1);
	/* Not another one that was loaded to the same place. */
	c->again = k && k->print == tables.print && (k->unloads == seen.subs || has_thunk(k));
	return 0;
}

static bool in_relro(const struct candidate *c, uintptr_t p, uintptr_t *low, uintptr_t *high)
{
	for (unsigned i = 0; i < c->segment_count; i++) {
		const ElfW(Phdr) *h = &c->segments[i];

		if (h->p_type != PT_GNU_RELRO)
			continue;
		/* As the loader rounds them. */
		*low = (c->base + h->p_vaddr) & ~(uintptr_t)(PAGE - 1);
		*high = (c->base + h->p_vaddr + h->p_memsz) & ~(uintptr_t)(PAGE - 1);
		if (p >= *low && p < *high)
			return true;
	}
	return false;
}

static bool in_data(const struct candidate *c, uintptr_t p)
{
	for (unsigned i = 0; i < c->segment_count; i++) {
		const ElfW(Phdr) *h = &c->segments[i];

		if (h->p_type == PT_LOAD && h->p_flags & PF_W && p - c->base >= h->p_vaddr &&
		    p + sizeof(p) - c->base <= h->p_vaddr + h->p_memsz)
			return true;
	}
	return false;
}

static bool make_writable(struct candidate *c, uintptr_t p)
{
	uintptr_t low, high;

	if (!in_data(c, p))
		return false;
	if (!c->protected_open && in_relro(c, p, &low, &high))
		c->protected_open = SYS4(SYS_mprotect, low, high - low, PROT_READ | PROT_WRITE,
					 0) == 0;
	return c->protected_open || !in_relro(c, p, &low, &high);
}

static void protect_again(struct candidate *c)
{
	uintptr_t low, high;

	for (unsigned i = 0; c->protected_open && i < c->segment_count; i++)
		if (c->segments[i].p_type == PT_GNU_RELRO &&
		    in_relro(c, c->base + c->segments[i].p_vaddr, &low, &high))
			SYS4(SYS_mprotect, low, high - low, PROT_READ, 0);
}

/* What a reference that the loader has not bound yet will lead to; 0: not known. */
static uintptr_t bind(struct candidate *c, const struct definition *d)
{
	void *p;

	if (d->count != 1)
		return 0;
	/* Not RTLD_DEFAULT: a program at a fixed address has its PLT found there. */
	p = ingero_look_up(RTLD_NEXT, d->wanted, NULL);
	if (!p)
		p = ingero_look_up(c->handle, d->wanted, NULL);
	if (d->indirect) {
		struct module m;

		ingero_find_module((uintptr_t)p, &m);
		return m.found && ingero_same_text(m.name, d->path) ? (uintptr_t)p : 0;
	}
	return (uintptr_t)p == d->address ? d->address : 0;
}

static void replace(struct candidate *c, const struct library *library, const char *name,
		    const ElfW(Rela) *r)
{
	uintptr_t *slot = (uintptr_t *)(c->base + r->r_offset);
	const unsigned type = ELF64_R_TYPE(r->r_info);
	struct definition d;

	if ((uintptr_t)slot % sizeof(*slot)) {
		ingero_cover_escape(name, INGERO_ESCAPE_READ_ONLY);
		return;
	}
	/* Bound by another thread meanwhile: once more. */
	for (int tries = 0; tries < 3; tries++) {
		uintptr_t is = __atomic_load_n(slot, __ATOMIC_RELAXED), real = is, thunk;
		bool unbound = type == R_X86_64_JUMP_SLOT && is >= c->low && is < c->high;
		int row = unbound ? -1 : find_row(is, name);

		if (is_thunk(is)) {
			c->slot = slot;
			return;
		}
		if (row >= 0) {
			thunk = thunk_of((unsigned)row);
		} else {
			if (!is || !define(library, name, unbound ? 0 : is, &d))
				return; /* another interposer's, or nobody's */
			if (unbound)
				real = bind(c, &d);
			else if (type == R_X86_64_64 && !d.indirect && is != d.address)
				return; /* the program has put something else there */
			if (!real) {
				c->left = true;
				return;
			}
			thunk = thunk_for(real, &d);
			if (!thunk)
				return; /* counted */
		}
		if (!make_writable(c, (uintptr_t)slot)) {
			ingero_cover_escape(name, INGERO_ESCAPE_READ_ONLY);
			return;
		}
		if (__atomic_compare_exchange_n(slot, &is, thunk, false, __ATOMIC_RELEASE,
						__ATOMIC_RELAXED)) {
			c->slot = slot;
			c->left |= unbound;
			if (c->again && type == R_X86_64_JUMP_SLOT && !unbound)
				ingero_cover_escape(name, INGERO_ESCAPE_LATE);
			return;
		}
	}
	c->left = true;
}

static int take_segments(struct dl_phdr_info *info, size_t size, void *to)
{
	struct candidate *c = to;
	struct elf_tables tables;
	struct module m;

	(void)size;
	if (info->dlpi_addr != c->base || !info->dlpi_name ||
	    !ingero_same_text(info->dlpi_name, c->name))
		return 0;
	ingero_read_tables(info, &tables);
	if (tables.print != c->print)
		return 1;
	ingero_module_range(info, &m);
	c->segments = info->dlpi_phdr;
	c->segment_count = info->dlpi_phnum;
	c->low = m.low;
	c->high = m.high;
	return 1;
}

/*
 * Held open, the module is there to stay and its relocations are done: dlopen
 * waits for another thread's that is loading it.
 */
static void sweep_module(struct candidate *c)
{
	struct dl_phdr_info info = { 0 };
	struct elf_tables tables;
	const struct library *library;
	const ElfW(Rela) *r;
	const char *name;
	size_t at = 0;

	c->segments = NULL;
	c->protected_open = c->left = false;
	c->slot = NULL;
	c->handle = ingero_open_loaded(c->name, 0);
	/* In glibc the handle is the module's link_map. */
	if (c->handle && ((const struct link_map *)c->handle)->l_addr == c->base)
		ingero_walk_modules(take_segments, c);
	if (c->segments) {
		info.dlpi_addr = c->base;
		info.dlpi_phdr = c->segments;
		info.dlpi_phnum = (ElfW(Half))c->segment_count;
		ingero_read_tables(&info, &tables);
		while ((r = next_relocation(&tables, &at))) {
			library = library_of(&tables, r, c->name, &name);
			if (library)
				replace(c, library, name, r);
		}
		protect_again(c);
	}
	remember(c->base, c->print, c->slot, c->segments && !c->left);
	if (c->handle)
		ingero_close_loaded(c->handle);
}

/* ---- occasions ----------------------------------------------------------- */

static int take_counts(struct dl_phdr_info *info, size_t size, void *to)
{
	struct counts *c = to;

	if (size >= offsetof(struct dl_phdr_info, dlpi_subs) + sizeof(info->dlpi_subs)) {
		c->adds = info->dlpi_adds;
		c->subs = info->dlpi_subs;
	}
	return 1;
}

static void sweep(bool again)
{
	static struct candidate candidates[AT_ONCE];
	struct counts now = { 0 };
	uint32_t *busy = &ingero_process->being_done[ONCE_SWEEP];
	struct pass pass;
	uint64_t mask;
	int saved;

	if (!ingero_loader_ready())
		return;
	ingero_walk_modules(take_counts, &now);
	if (now.adds == __atomic_load_n(&seen.adds, __ATOMIC_RELAXED) &&
	    now.subs == __atomic_load_n(&seen.subs, __ATOMIC_RELAXED) && !again)
		return;
	mask = sys_block_signals();
	saved = errno;
	if (!__atomic_exchange_n(busy, 1, __ATOMIC_ACQUIRE)) {
		__atomic_store_n(&seen.adds, now.adds, __ATOMIC_RELAXED);
		__atomic_store_n(&seen.subs, now.subs, __ATOMIC_RELAXED);
		__atomic_store_n(&some_left, false, __ATOMIC_RELAXED);
		sweeps++;
		for (unsigned i = 0; i < PASSES; i++) {
			pass = (struct pass){ candidates, 0, false };
			ingero_walk_modules(look_at_module, &pass);
			for (unsigned c = 0; c < pass.count; c++)
				sweep_module(&candidates[c]);
			if (!pass.more)
				break;
		}
		__atomic_store_n(busy, 0, __ATOMIC_RELEASE);
	}
	errno = saved;
	sys_restore_signals(mask);
}

void ingero_libraries_sweep(void)
{
	if (ingero_libraries & ~LIBRARIES_UNKNOWN)
		sweep(__atomic_load_n(&some_left, __ATOMIC_RELAXED));
}

void *ingero_library_dlsym(void *handle, const char *name, const char *version, void *caller)
{
	const struct library *library = name ? library_of_symbol(name) : NULL;
	struct definition d;
	struct module m;
	uintptr_t thunk;
	void *p;
	int saved;

	if (ingero_libraries == LIBRARIES_UNKNOWN) {
		/* Before the shim's own constructor. */
		if (!library || !ingero_process_ready())
			return NULL;
	}
	if (!(ingero_libraries & ~LIBRARIES_UNKNOWN))
		return NULL;
	sweep(false);
	if (!library || !asked(library->func_class))
		return NULL;
	ingero_find_module((uintptr_t)caller, &m);
	if (m.found && is_file_of(library, m.name))
		return NULL; /* its own parts */
	if (handle == RTLD_NEXT) {
		ingero_cover_escape(name, INGERO_ESCAPE_NEXT);
		return NULL;
	}
	saved = errno;
	p = version ? ingero_real_dlvsym(handle, name, version) : ingero_real_dlsym(handle, name);
	if (!p && handle == RTLD_DEFAULT && m.found) {
		/* The caller's own scope comes after the global one. */
		void *own = ingero_open_loaded(m.name, 0);

		p = own ? ingero_look_up(own, name, version) : NULL;
		if (own)
			ingero_close_loaded(own);
	}
	errno = saved;
	if (!p || !define(library, name, (uintptr_t)p, &d))
		return NULL; /* not there, or another's: as the loader answers */
	thunk = thunk_for((uintptr_t)p, &d);
	return thunk ? (void *)thunk : p;
}
