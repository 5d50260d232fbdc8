/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/loader.h"

#include <string.h>

#include "preload/shim.h"

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
static const void *relocated(const struct dl_phdr_info *info, uint64_t p)
{
	return (const void *)(p < info->dlpi_addr ? info->dlpi_addr + p : p);
}

void ingero_read_tables(const struct dl_phdr_info *info, struct elf_tables *to)
{
	const ElfW(Dyn) *dyn = NULL;

	/* By hand: no memset on the way of a foreign dlsym. */
	to->base = info->dlpi_addr;
	to->symbols = NULL;
	to->strings = NULL;
	to->hash = NULL;
	to->rela = to->plt = NULL;
	to->rela_count = to->plt_count = to->relative = 0;
	to->print = 0xcbf29ce484222325;
	for (int p = 0; p < info->dlpi_phnum; p++)
		if (info->dlpi_phdr[p].p_type == PT_DYNAMIC)
			dyn = (const void *)(info->dlpi_addr + info->dlpi_phdr[p].p_vaddr);
	for (; dyn && dyn->d_tag != DT_NULL; dyn++) {
		const uint64_t value = dyn->d_un.d_val;

		switch (dyn->d_tag) {
		case DT_GNU_HASH:
			to->hash = relocated(info, value);
			break;
		case DT_SYMTAB:
			to->symbols = relocated(info, value);
			break;
		case DT_STRTAB:
			to->strings = relocated(info, value);
			break;
		case DT_RELA:
			to->rela = relocated(info, value);
			break;
		case DT_JMPREL:
			to->plt = relocated(info, value);
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

/* ---- libc's own dlsym ---------------------------------------------------- */

/*
 * dlsym moved between libraries at glibc 2.34 and is interposed here, so it
 * can be neither linked nor asked for: read libc's symbol table.
 */
struct wanted {
	const char *name;
	void *found;
};

static int look_in_libc(struct dl_phdr_info *info, size_t size, void *to)
{
	struct wanted *w = to;
	const char *base = info->dlpi_name ? ingero_base_of(info->dlpi_name) : "";
	struct elf_tables tables;
	const ElfW(Sym) *symbol;

	(void)size;
	if (!ingero_same_text(base, "libc.so.6") && !ingero_same_text(base, "libdl.so.2") &&
	    !ingero_same_text(base, "libpthread.so.0"))
		return 0;
	ingero_read_tables(info, &tables);
	symbol = ingero_find_symbol(&tables, w->name);
	w->found = symbol ? (void *)(tables.base + symbol->st_value) : NULL;
	return w->found != NULL;
}

void *ingero_libc_symbol(const char *name)
{
	struct wanted w = { name, NULL };

	dl_iterate_phdr(look_in_libc, &w);
	return w.found;
}

void *(*ingero_real_dlsym)(void *, const char *);
void *(*ingero_real_dlvsym)(void *, const char *, const char *);
void *(*ingero_real_dlopen)(const char *, int);
void *(*ingero_libc_dlsym)(void *, const char *);
int (*ingero_dlclose)(void *);
static void *(*real_dlopen)(const char *, int);
static char *(*real_dlerror)(void);

bool ingero_loader_ready(void)
{
	static bool ready;
	void *next;

	if (likely(__atomic_load_n(&ready, __ATOMIC_ACQUIRE)))
		return true;
	real_dlopen = (void *(*)(const char *, int))ingero_libc_symbol("dlopen");
	ingero_dlclose = (int (*)(void *))ingero_libc_symbol("dlclose");
	real_dlerror = (char *(*)(void))ingero_libc_symbol("dlerror");
	ingero_real_dlvsym = (void *(*)(void *, const char *, const char *))ingero_libc_symbol(
		"dlvsym");
	ingero_libc_dlsym = (void *(*)(void *, const char *))ingero_libc_symbol("dlsym");
	ingero_real_dlsym = ingero_libc_dlsym;
	if (!real_dlopen || !ingero_dlclose || !real_dlerror || !ingero_real_dlvsym ||
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
	void *p = version ? ingero_real_dlvsym(handle, name, version) :
			    ingero_libc_dlsym(handle, name);

	if (!p)
		real_dlerror();
	return p;
}

void *ingero_open_loaded(const char *name, int flags)
{
	void *handle = real_dlopen(name[0] ? name : NULL, RTLD_LAZY | RTLD_NOLOAD | flags);

	if (!handle)
		real_dlerror();
	return handle;
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
	dl_iterate_phdr(look_for_module, m);
}
