/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The wrappers: one expansion of cuda_api.def per group, compiled four times.
 * GROUP 0 is the driver (exported without version); 11, 12 and 13 are runtime
 * majors, each exported under the version node of its own library, so that a
 * process with two runtimes reaches the right one from each caller.
 */
#include "preload/api_words.h"
#include "preload/traced_call.h"

#if GROUP == 0
#define THIS_GROUP GROUP_DRIVER
#define LOCAL(sym) sym
#define EXPORT(sym)
#define VISIBLE __attribute__((visibility("default")))
#else
#define THIS_GROUP CAT(GROUP_RT, GROUP)
#define LOCAL(sym) CAT(CAT(ingero, GROUP), _##sym)
#if GROUP == 11
#define NODE "@libcudart.so.11.0"
#elif GROUP == 12
#define NODE "@libcudart.so.12"
#else
#define NODE "@@libcudart.so.13"
#endif
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
/* "remove": only the versioned name stays in the symbol table. */
#define EXPORT(sym) \
	__asm__(".symver " TEXT(LOCAL(sym)) "," #sym NODE ",remove");
#define VISIBLE __attribute__((visibility("default")))
#endif

/* ---- what the shim learns ------------------------------------------------ */

#define NOTHING (void)ok
#define KERNEL_NAME(out, name) if (ok) ingero_kernel_named(OUT(out), name)
#define KERNEL_ALIAS(out, known) if (ok) ingero_kernel_alias(OUT(out), (uintptr_t)(known))
#define PROC_ADDRESS(name, out) if (ok) ingero_map_proc_address(THIS_GROUP, name, out)
#define CAPTURE_BEGIN(s) if (ok) ingero_capture_begin((uintptr_t)(s))
/* 901 to 907: the capture was no good, and is over. */
#define CAPTURE_END(s) \
	if (ok || (status > 900 && status < 908)) ingero_capture_end((uintptr_t)(s))
#define CAPTURE_EVENT(e, s) \
	if (ok && unlikely(ingero_process->captures)) \
		ingero_capture_event((uintptr_t)(e), (uintptr_t)(s))
#define CAPTURE_JOIN(s, e) \
	if (ok && unlikely(ingero_process->captures)) \
		ingero_capture_join((uintptr_t)(s), (uintptr_t)(e))
#define REGISTER_FUNCTION(module, host, name) \
	if (ok) ingero_kernel_registered(module, host, name)
#define UNREGISTER(module) if (ok) ingero_kernels_unregister(module)

/* ---- the wrapper --------------------------------------------------------- */

/*
 * Kinds of return: a status (i32: 0 is success), an address, nothing, a
 * struct. RESULT_* is what the record holds; NO_REAL_* what the caller gets
 * when there is no real function (500: symbol not found, both layers).
 */
#define RESULT_i32(e) ((result = (e)), status = (unsigned)result)
#define RESULT_ptr(e) (result = (e))
#define RESULT_s20(e) (result = (e))
#define RESULT_void(e) (e)
#define HOLD_i32 i32 result
#define HOLD_ptr ptr result
#define HOLD_s20 s20 result
#define HOLD_void
#define GIVE_i32 return result
#define GIVE_ptr return result
#define GIVE_s20 return result
#define GIVE_void return
#define NO_REAL_i32 return 500
#define NO_REAL_ptr return NULL
#define NO_REAL_s20 return (s20){ { 0 } }
#define NO_REAL_void return

/* Row numbers are positions in the table, rows of other groups included. */
#define DRIVER(sym, ...) row_0_##sym,
#define RUNTIME(tag, bits, sym, ...) row_##tag##_##sym,
enum {
#include "preload/cuda_api.def"
};
#undef DRIVER
#undef RUNTIME

static struct cell cells[API_ROWS_MAX];

/* The stack address just above the return address; below the caller's frame. */
#ifdef __clang__
#define FRAME() ((uintptr_t)__builtin_frame_address(0) + 16)
#else
#define FRAME() ((uintptr_t)__builtin_dwarf_cfa())
#endif

static inline bool called_from(const struct cell *cell, unsigned i, uintptr_t caller)
{
	/* span first: it is written last. */
	uintptr_t span = __atomic_load_n(&cell->of[i].span, __ATOMIC_ACQUIRE);

	return caller - cell->of[i].low < span;
}

#define WRAPPER(tag, sym, ret, n, kinds, cls, dir, nw, words, then)                    \
	static ret wrap_##sym(DECL##n kinds)                                           \
	{                                                                              \
		enum { row = row_##tag##_##sym };                                      \
		uintptr_t caller = (uintptr_t)__builtin_return_address(0);             \
		struct cell *cell = &cells[row];                                       \
		ret (*real)(DECL##n kinds);                                            \
		struct thread_state *t = NULL;                                         \
		uint64_t start = 0;                                                    \
		uint32_t depth = 0;                                                    \
		unsigned status = 0;                                                   \
		HOLD_##ret;                                                            \
                                                                                       \
		if (likely(called_from(cell, 0, caller))) {                            \
			real = cell->of[0].real;                                       \
		} else if (called_from(cell, 1, caller)) {                             \
			real = cell->of[1].real;                                       \
		} else {                                                               \
			real = ingero_resolve(THIS_GROUP, row, cell, caller);          \
			if (!real)                                                     \
				NO_REAL_##ret;                                         \
		}                                                                      \
		if (INGERO_CLASS_##cls != INGERO_CLASS_REGISTER) {                     \
			t = call_enter(row, cell);                                     \
			if (likely(t != NULL))                                         \
				start = call_begin(t, row, FRAME(), &depth);           \
		}                                                                      \
		RESULT_##ret(real(PASS##n));                                           \
		const bool ok = status == 0;                                           \
		if (likely(t != NULL)) {                                               \
			call_close(t);                                                 \
			const uint64_t end = ingero_ticks();                           \
			const __u64 word[] = { EXPRS##nw words };                      \
			unsigned flags = (dir) << INGERO_CALL_DIRECTION_SHIFT;         \
                                                                                       \
			if (unlikely(t->news != __atomic_load_n(&ingero_news, __ATOMIC_RELAXED))) \
				/* Its own array: `word` then needs no memory. */      \
				flags |= ingero_news_flags(                            \
					t, row, depth, nw, (const __u64[]){ EXPRS##nw words }); \
			call_end(t, row, INGERO_CLASS_##cls, depth, start, end, status, \
				 flags, nw, word);                                     \
		}                                                                      \
		then;                                                                  \
		GIVE_##ret;                                                            \
	}                                                                              \
	VISIBLE ret LOCAL(sym)(DECL##n kinds) __attribute__((alias("wrap_" #sym)));    \
	EXPORT(sym)

#define SLOT(tag, sym, ...) [row_##tag##_##sym] = (void *)wrap_##sym,

/* TAKE_<majors> is the expansion for rows of this group, LEAVE for the rest. */
#define LEAVE(...)
#define DRIVER(...) TAKE_0(0, __VA_ARGS__)
#define RUNTIME(tag, bits, ...) TAKE_##tag(tag, __VA_ARGS__)
#if GROUP == 0
#define TAKE_0 TAKE
#define TAKE_11 LEAVE
#define TAKE_12 LEAVE
#define TAKE_13 LEAVE
#define TAKE_11_12 LEAVE
#define TAKE_12_13 LEAVE
#define TAKE_11_12_13 LEAVE
#else
#define TAKE_0 LEAVE
#define TAKE_11_12_13 TAKE
#if GROUP == 11
#define TAKE_11 TAKE
#define TAKE_11_12 TAKE
#define TAKE_12 LEAVE
#define TAKE_13 LEAVE
#define TAKE_12_13 LEAVE
#elif GROUP == 12
#define TAKE_11 LEAVE
#define TAKE_13 LEAVE
#define TAKE_11_12 TAKE
#define TAKE_12 TAKE
#define TAKE_12_13 TAKE
#else
#define TAKE_11 LEAVE
#define TAKE_12 LEAVE
#define TAKE_11_12 LEAVE
#define TAKE_13 TAKE
#define TAKE_12_13 TAKE
#endif
#endif

#define TAKE WRAPPER
#include "preload/cuda_api.def"
#undef TAKE
#define TAKE SLOT
void *const CAT(ingero_wrappers_, GROUP)[API_ROWS_MAX] = {
#include "preload/cuda_api.def"
};
