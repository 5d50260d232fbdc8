/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/loader.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

#include "preload/shim.h"
#include "preload/syscalls.h"

bool ingero_same_text(const char *a, const char *b)
{
	while (*a && *a == *b) {
		a++;
		b++;
	}
	return *a == *b;
}

bool ingero_begins_with(const char *text, const char *start)
{
	while (*start && *text == *start) {
		text++;
		start++;
	}
	return !*start;
}

const char *ingero_base_of(const char *path)
{
	const char *base = path;

	for (; *path; path++)
		if (*path == '/')
			base = path + 1;
	return base;
}

/* ---- symbol tables ------------------------------------------------------- */

/* The loader has relocated most dynamic sections, and not the vdso's. */
static const void *relocated(uintptr_t base, uint64_t p)
{
	return (const void *)(p < base ? base + p : p);
}

static void read_dynamic(uintptr_t base, const ElfW(Dyn) *dyn, struct elf_tables *to)
{
	/* By hand: no memset on the way of a foreign dlsym. */
	to->base = base;
	to->symbols = NULL;
	to->strings = NULL;
	to->hash = NULL;
	to->rela = to->plt = NULL;
	to->rela_count = to->plt_count = to->relative = 0;
	to->print = 0xcbf29ce484222325;
	for (; dyn && dyn->d_tag != DT_NULL; dyn++) {
		const uint64_t value = dyn->d_un.d_val;

		switch (dyn->d_tag) {
		case DT_GNU_HASH:
			to->hash = relocated(base, value);
			break;
		case DT_SYMTAB:
			to->symbols = relocated(base, value);
			break;
		case DT_STRTAB:
			to->strings = relocated(base, value);
			break;
		case DT_RELA:
			to->rela = relocated(base, value);
			break;
		case DT_JMPREL:
			to->plt = relocated(base, value);
			break;
		case DT_RELASZ:
			to->rela_count = value / sizeof(ElfW(Rela));
			break;
		case DT_RELACOUNT:
			to->relative = value;
			break;
		case DT_PLTRELSZ:
			to->plt_count = value / sizeof(ElfW(Rela));
			break;
		case DT_DEBUG: /* a debugger's word */
			continue;
		}
		to->print = (to->print ^ value ^ (uint64_t)dyn->d_tag << 32) * 0x100000001b3;
	}
}

void ingero_read_tables(const struct dl_phdr_info *info, struct elf_tables *to)
{
	const ElfW(Dyn) *dyn = NULL;

	for (int p = 0; p < info->dlpi_phnum; p++)
		if (info->dlpi_phdr[p].p_type == PT_DYNAMIC)
			dyn = (const void *)(info->dlpi_addr + info->dlpi_phdr[p].p_vaddr);
	read_dynamic(info->dlpi_addr, dyn, to);
}

static uint32_t gnu_hash(const char *s)
{
	uint32_t h = 5381;

	while (*s)
		h = h * 33 + (unsigned char)*s++;
	return h;
}

const ElfW(Sym) *ingero_find_symbol(const struct elf_tables *in, const char *name)
{
	const uint32_t *hash = in->hash;
	uint32_t want = gnu_hash(name), i;

	if (!hash || !in->symbols || !in->strings || !hash[0])
		return NULL;
	/* nbuckets, first symbol, bloom words (8 bytes each), shift, ... */
	const uint32_t *buckets = hash + 4 + 2 * hash[2];
	const uint32_t *chain = buckets + hash[0];

	i = buckets[want % hash[0]];
	if (i < hash[1])
		return NULL;
	for (;; i++) {
		uint32_t h = chain[i - hash[1]];

		if ((h | 1) == (want | 1) && in->symbols[i].st_shndx != SHN_UNDEF &&
		    ingero_same_text(in->strings + in->symbols[i].st_name, name))
			return &in->symbols[i];
		if (h & 1)
			return NULL;
	}
}

/* ---- forks --------------------------------------------------------------- */

#define LOADER_PATIENCE_MS 200
#define LOADER_PAUSE_NS 20000

/* In both directions the word of the other side is read after the own is set. */
static bool wait_for(const uint32_t *none)
{
	const struct timespec pause = { 0, LOADER_PAUSE_NS };

	for (unsigned i = 0; i < LOADER_PATIENCE_MS * 1000000u / LOADER_PAUSE_NS; i++) {
		if (!__atomic_load_n(none, __ATOMIC_SEQ_CST))
			return true;
		SYS4(SYS_nanosleep, &pause, 0, 0, 0);
	}
	return false;
}

/* What to leave: a load in between makes ingero_process another. */
static struct process *enter(void)
{
	struct process *p = ingero_process;
	bool over = true;

	__atomic_add_fetch(&p->in_loader, 1, __ATOMIC_SEQ_CST);
	while (unlikely(over && __atomic_load_n(&p->forks, __ATOMIC_SEQ_CST))) {
		__atomic_sub_fetch(&p->in_loader, 1, __ATOMIC_SEQ_CST);
		over = wait_for(&p->forks);
		__atomic_add_fetch(&p->in_loader, 1, __ATOMIC_SEQ_CST);
	}
	return p;
}

static void leave(struct process *p)
{
	__atomic_sub_fetch(&p->in_loader, 1, __ATOMIC_SEQ_CST);
}

static void before_fork(void)
{
	__atomic_add_fetch(&ingero_process->forks, 1, __ATOMIC_SEQ_CST);
	wait_for(&ingero_process->in_loader);
}

/* The child's words are wiped. */
static void after_fork_in_parent(void)
{
	__atomic_sub_fetch(&ingero_process->forks, 1, __ATOMIC_SEQ_CST);
}

void ingero_loader_watch_forks(void)
{
	pthread_atfork(before_fork, after_fork_in_parent, NULL);
}

int ingero_walk_modules(int (*look)(struct dl_phdr_info *, size_t, void *), void *to)
{
	struct process *in = enter();
	int ret;

	ret = dl_iterate_phdr(look, to);
	leave(in);
	return ret;
}

/* ---- libc's own dlsym ---------------------------------------------------- */

/*
 * dlsym moved between libraries at glibc 2.34 and is interposed here, so it
 * can be neither linked nor asked for: read libc's symbol table.
 */
static void *in_libc(const char *path, const struct elf_tables *tables, const char *name)
{
	const char *base = path ? ingero_base_of(path) : "";
	const ElfW(Sym) *symbol;

	if (!ingero_same_text(base, "libc.so.6") && !ingero_same_text(base, "libdl.so.2") &&
	    !ingero_same_text(base, "libpthread.so.0"))
		return NULL;
	symbol = ingero_find_symbol(tables, name);
	return symbol ? (void *)(tables->base + symbol->st_value) : NULL;
}

/*
 * Without the loader's locks and functions, for which an interposer may call
 * dlsym: what was loaded at the start comes first in the list and stays there.
 */
static void *symbol_at_start(const char *name)
{
	const struct link_map *m = _r_debug.r_map;
	struct elf_tables tables;
	void *found = NULL;

	for (; m && !found; m = m->l_next) {
		read_dynamic(m->l_addr, m->l_ld, &tables);
		found = in_libc(m->l_name, &tables, name);
	}
	return found;
}

struct wanted {
	const char *name;
	void *found;
};

static int look_in_libc(struct dl_phdr_info *info, size_t size, void *to)
{
	struct wanted *w = to;
	struct elf_tables tables;

	(void)size;
	ingero_read_tables(info, &tables);
	w->found = in_libc(info->dlpi_name, &tables, w->name);
	return w->found != NULL;
}

void *ingero_libc_symbol(const char *name)
{
	struct wanted w = { name, NULL };

	ingero_walk_modules(look_in_libc, &w);
	return w.found;
}

void *(*ingero_real_dlsym)(void *, const char *);
void *(*ingero_real_dlvsym)(void *, const char *, const char *);
void *(*ingero_real_dlopen)(const char *, int);
void *(*ingero_libc_dlsym)(void *, const char *);
static int (*real_dlclose)(void *);
static void *(*real_dlopen)(const char *, int);
static char *(*real_dlerror)(void);

bool ingero_loader_ready(void)
{
	static bool ready;
	void *next;

	if (likely(__atomic_load_n(&ready, __ATOMIC_ACQUIRE)))
		return true;
	real_dlopen = (void *(*)(const char *, int))symbol_at_start("dlopen");
	real_dlclose = (int (*)(void *))symbol_at_start("dlclose");
	real_dlerror = (char *(*)(void))symbol_at_start("dlerror");
	ingero_real_dlvsym = (void *(*)(void *, const char *, const char *))symbol_at_start(
		"dlvsym");
	ingero_libc_dlsym = (void *(*)(void *, const char *))symbol_at_start("dlsym");
	ingero_real_dlsym = ingero_libc_dlsym;
	if (!real_dlopen || !real_dlclose || !real_dlerror || !ingero_real_dlvsym ||
	    !ingero_libc_dlsym)
		return false;
	/* The program's look-ups go on to another interposer behind us; ours do not. */
	next = ingero_libc_dlsym(RTLD_NEXT, "dlsym");
	if (next)
		ingero_real_dlsym = (void *(*)(void *, const char *))next;
	next = ingero_libc_dlsym(RTLD_NEXT, "dlopen");
	ingero_real_dlopen = next ? (void *(*)(const char *, int))next : real_dlopen;
	real_dlerror();
	__atomic_store_n(&ready, true, __ATOMIC_RELEASE);
	return true;
}

void *ingero_look_up(void *handle, const char *name, const char *version)
{
	struct process *in = enter();
	void *p;

	p = version ? ingero_real_dlvsym(handle, name, version) : ingero_libc_dlsym(handle, name);
	if (!p)
		real_dlerror();
	leave(in);
	return p;
}

void *ingero_open_loaded(const char *name, int flags)
{
	struct process *in = enter();
	void *handle;

	handle = real_dlopen(name[0] ? name : NULL, RTLD_LAZY | RTLD_NOLOAD | flags);
	if (!handle)
		real_dlerror();
	leave(in);
	return handle;
}

void ingero_close_loaded(void *handle)
{
	struct process *in = enter();

	real_dlclose(handle);
	leave(in);
}

/* ---- modules ------------------------------------------------------------- */

void ingero_module_range(const struct dl_phdr_info *info, struct module *m)
{
	m->low = UINTPTR_MAX;
	m->high = 0;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *h = &info->dlpi_phdr[i];

		if (h->p_type != PT_LOAD)
			continue;
		if (info->dlpi_addr + h->p_vaddr < m->low)
			m->low = info->dlpi_addr + h->p_vaddr;
		if (info->dlpi_addr + h->p_vaddr + h->p_memsz > m->high)
			m->high = info->dlpi_addr + h->p_vaddr + h->p_memsz;
	}
}

static int look_for_module(struct dl_phdr_info *info, size_t size, void *to)
{
	struct module *m = to, here;

	(void)size;
	ingero_module_range(info, &here);
	if (m->address < here.low || m->address >= here.high)
		return 0;
	m->low = here.low;
	m->high = here.high;
	if (info->dlpi_name && strlen(info->dlpi_name) < sizeof(m->name))
		memcpy(m->name, info->dlpi_name, strlen(info->dlpi_name) + 1);
	m->found = true;
	return 1;
}

void ingero_find_module(uintptr_t address, struct module *m)
{
	m->address = address;
	m->name[0] = 0;
	m->found = false;
	ingero_walk_modules(look_for_module, m);
}
