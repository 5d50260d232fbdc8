/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the shim sees of a process, and what it does not: which libraries of
 * CUDA are mapped, which functions were resolved by which way, which were
 * handed out unwrapped. Counted where functions are resolved (never in a
 * call's steady state), written as COVERAGE records from the cold path and at
 * exit. enum ingero_coverage_way in wire/wire.h says what each means.
 *
 * Threads: all of it from any. A forked child starts with its parent's
 * counts, since it also inherits the resolved pointers; what was written is
 * kept per process.
 */
#ifndef INGERO_PRELOAD_COVERAGE_H
#define INGERO_PRELOAD_COVERAGE_H

#include "preload/shim.h"

/* A calling module was bound to its library: INGERO_WAY_LINKED. */
void ingero_cover_module(void);
/* The function was called, and no pointer to it was handed out before. */
void ingero_cover_linked(unsigned row);
/* A wrapper was handed out as a pointer. */
void ingero_cover_pointer(enum ingero_coverage_way way, unsigned row);
void ingero_cover_escape(const char *name, enum ingero_escape_reason why);
/* path: as the loader has it, "" for the program. */
void ingero_cover_asked_by(const char *path);
void ingero_cover_deepbind(const char *file, bool kept);
/* INGERO_APIS as it was set; libraries: as ingero_libraries. */
void ingero_cover_choice(const char *apis, uint32_t libraries);
/* One more function of that library is replaced by a thunk. */
void ingero_cover_library(const char *path, unsigned func_class);
/* All that was not written yet, changed or not. */
void ingero_emit_all_coverage(struct thread_state *t);

#endif /* INGERO_PRELOAD_COVERAGE_H */
