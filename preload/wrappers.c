/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The wrappers: one expansion of cuda_api.def per group, compiled four times.
 * GROUP 0 is the driver (exported without version); 11, 12 and 13 are runtime
 * majors, each exported under the version node of its own library, so that a
 * process with two runtimes reaches the right one from each caller.
 */
#include <string.h>

#include "preload/api_macros.h"
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

/* ---- the words of the table ---------------------------------------------- */

#define OUT(p) (ok && (p) ? *(const __u64 *)(uintptr_t)(p) : 0)
#define FIELD(p, offset) (ok && (p) ? *(const __u64 *)((uintptr_t)(p) + (offset)) : 0)
#define FIELD32(p, offset) (ok && (p) ? *(const __u32 *)((uintptr_t)(p) + (offset)) : 0)
#define PART(a, offset) part_of(&(a), offset)
#define GRID(p) grid_blocks(ok, p)
#define SUM(p, n) sum_of(ok, p, n)
#define PLACE(p, offset) place_of(ok, p, offset)
#define PER_THREAD(s) ((s) ? (__u64)(uintptr_t)(s) : 2)

/* No group uses all of them. */
#define HELPER static inline __attribute__((unused))

#define UNKNOWN INGERO_COPY_UNKNOWN
#define H2D INGERO_COPY_H2D
#define D2H INGERO_COPY_D2H
#define D2D INGERO_COPY_D2D
#define PEER INGERO_COPY_PEER
#define DEFAULT INGERO_COPY_DEFAULT
#define KIND(k) direction_of_kind((unsigned)(k))
#define SPACES(p, from, to) direction_of_spaces(FIELD32(p, from), FIELD32(p, to))

HELPER __u64 part_of(const void *p, unsigned offset)
{
	__u64 part;

	memcpy(&part, (const char *)p + offset, sizeof(part));
	return part;
}

HELPER __u64 grid_blocks(bool ok, const void *p)
{
	const __u32 *d = p;

	return ok && d ? (__u64)d[0] * d[1] * d[2] : 0;
}

HELPER __u64 sum_of(bool ok, const void *p, __u64 n)
{
	const __u64 *sizes = p;
	__u64 sum = 0;

	if (ok && sizes)
		for (__u64 i = 0; i < n; i++)
			sum += sizes[i];
	return sum;
}

/* A memory type (1 = host), then, at +8, the host and device addresses. */
HELPER __u64 place_of(bool ok, const void *p, unsigned offset)
{
	if (FIELD32(p, offset) == 3)
		return 0; /* an array has no address */
	return FIELD32(p, offset) == 1 ? FIELD(p, offset + 8) : FIELD(p, offset + 16);
}

HELPER unsigned direction_of_kind(unsigned kind)
{
	static const __u8 of[] = { INGERO_COPY_H2H, INGERO_COPY_H2D, INGERO_COPY_D2H,
				   INGERO_COPY_D2D, INGERO_COPY_DEFAULT };

	return kind < sizeof(of) ? of[kind] : UNKNOWN;
}

HELPER unsigned direction_of_spaces(unsigned from, unsigned to)
{
	if (from == 0 || to == 0)
		return UNKNOWN;
	if (from == 4 || to == 4)
		return DEFAULT;
	if (from == 1)
		return to == 1 ? INGERO_COPY_H2H : H2D;
	return to == 1 ? D2H : D2D;
}

/* ---- what the shim learns ------------------------------------------------ */

#define NOTHING (void)0
#define KERNEL_NAME(out, name) ingero_kernel_named(OUT(out), name)
#define KERNEL_ALIAS(out, known) ingero_kernel_alias(OUT(out), (uintptr_t)(known))
#define PROC_ADDRESS(name, out) ingero_map_proc_address(THIS_GROUP, name, out)
#define CAPTURE_BEGIN(s) ingero_capture_begin((uintptr_t)(s))
#define CAPTURE_END(s) ingero_capture_end((uintptr_t)(s))
#define REGISTER_FUNCTION(module, host, name) ingero_kernel_registered(module, host, name)
#define UNREGISTER(module) ingero_kernels_unregister(module)

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
		/* span is written last and read first. */                             \
		uintptr_t span = __atomic_load_n(&cell->span, __ATOMIC_ACQUIRE);       \
		if (unlikely(caller - cell->low >= span)) {                            \
			real = ingero_resolve(THIS_GROUP, row, cell, caller);          \
			if (!real)                                                     \
				NO_REAL_##ret;                                         \
		} else {                                                               \
			real = cell->real;                                             \
		}                                                                      \
		if (INGERO_CLASS_##cls != INGERO_CLASS_REGISTER) {                     \
			t = call_enter(row);                                           \
			if (likely(t != NULL))                                         \
				start = call_begin(t, row, FRAME(), &depth);           \
		}                                                                      \
		RESULT_##ret(real(PASS##n));                                           \
		const bool ok = status == 0;                                           \
		if (likely(t != NULL)) {                                               \
			const __u64 word[] = { EXPRS##nw words };                      \
			unsigned flags = (dir) << INGERO_CALL_DIRECTION_SHIFT;         \
                                                                                       \
			if (nw && unlikely(ingero_process->captures))                  \
				/* Its own array: `word` then needs no memory. */      \
				flags |= ingero_captured(                              \
					row, (const __u64[]){ EXPRS##nw words }, nw);  \
			call_end(t, row, INGERO_CLASS_##cls, depth, start, status,     \
				 flags, nw, word);                                     \
		}                                                                      \
		if (ok)                                                                \
			then;                                                          \
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
