/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loader, as the shim asks it: libc's own dlsym and kin behind the shim's,
 * mapped modules, symbol tables read in place.
 *
 * Threads: all of it from any, and from inside dlopen (a constructor). None of
 * it with the shim's lock held. Errors: NULL or false, never a message that
 * the program's dlerror would find.
 */
#ifndef INGERO_PRELOAD_LOADER_H
#define INGERO_PRELOAD_LOADER_H

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

/*
 * Not libc's: a program with a sanitizer of its own asks dlsym before its
 * versions of these work.
 */
bool ingero_same_text(const char *a, const char *b);
bool ingero_begins_with(const char *text, const char *start);
const char *ingero_base_of(const char *path);

/* False: this process has no dlsym and kin. Before all that follows. */
bool ingero_loader_ready(void);
/* As the program would reach them: perhaps another interposer's. */
extern void *(*ingero_real_dlsym)(void *, const char *);
extern void *(*ingero_real_dlvsym)(void *, const char *, const char *);
extern void *(*ingero_real_dlopen)(const char *, int);
/* libc's own. */
extern void *(*ingero_libc_dlsym)(void *, const char *);

/*
 * A lock of the loader that another thread holds while this one forks stays
 * taken in the child, for ever. So forks wait for the following and those for
 * forks, LOADER_PATIENCE_MS at most (a constructor under dlopen may fork).
 * Forks by bare system calls do not wait. What `look` calls is none of these.
 */
void ingero_loader_watch_forks(void); /* once, at load */
int ingero_walk_modules(int (*look)(struct dl_phdr_info *, size_t, void *), void *to);
void *ingero_look_up(void *handle, const char *name, const char *version);
/* A handle of a loaded module ("": the program), to be closed again. */
void *ingero_open_loaded(const char *name, int flags);
void ingero_close_loaded(void *handle);

struct module {
	uintptr_t address; /* in: any address within */
	uintptr_t low, high;
	char name[512]; /* "" for the program */
	bool found;
};
void ingero_module_range(const struct dl_phdr_info *info, struct module *m);
void ingero_find_module(uintptr_t address, struct module *m);

/* What a module's dynamic section points to; members it lacks are NULL. */
struct elf_tables {
	uintptr_t base;
	const ElfW(Sym) *symbols;
	const char *strings;
	const uint32_t *hash; /* DT_GNU_HASH */
	const ElfW(Rela) *rela, *plt; /* DT_RELA, DT_JMPREL */
	size_t rela_count, plt_count, relative; /* the first of `rela` */
	uint64_t print; /* changes with the contents of the section */
};
void ingero_read_tables(const struct dl_phdr_info *info, struct elf_tables *to);
/* A definition of that name, any version. */
const ElfW(Sym) *ingero_find_symbol(const struct elf_tables *in, const char *name);

#pragma GCC visibility pop

#endif /* INGERO_PRELOAD_LOADER_H */
