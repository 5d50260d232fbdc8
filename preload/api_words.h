/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the expressions of cuda_api.def mean inside a wrapper: the words that a
 * record gets and the direction of a copy.
 *
 * Memory of the caller is read after the real function returned, and only
 * where it reported success (`ok`): then it has read its inputs and written
 * its outputs itself, so they are there. NULL is an address that it may have
 * taken for "not wanted". Nothing beyond the structs that the headers declare
 * is read (tests/preload/api_coverage_test.py).
 */
#ifndef INGERO_PRELOAD_API_WORDS_H
#define INGERO_PRELOAD_API_WORDS_H

#include <stdbool.h>
#include <string.h>

#include "preload/api_macros.h"
#include "wire/wire.h"

/* No group of wrappers uses all of them. */
#define HELPER static inline __attribute__((unused))

/* Argument structs are aligned, but not to what their bytes are read as. */
typedef __u64 any_u64 __attribute__((may_alias));
typedef __u32 any_u32 __attribute__((may_alias));

#define OUT(p) FIELD(p, 0)
#define OUT32(p) FIELD32(p, 0)
#define FIELD(p, offset) \
	(ok && (p) ? *(const any_u64 *)((uintptr_t)(p) + (offset)) : 0)
#define FIELD32(p, offset) \
	(ok && (p) ? (__u64)*(const any_u32 *)((uintptr_t)(p) + (offset)) : 0)
#define PART(a, offset) part_of(&(a), offset, 8)
#define PART32(a, offset) part_of(&(a), offset, 4)
#define GRID(p) grid_blocks(ok, p)
#define SUM(p, n) sum_of(ok, p, n)
#define VOLUME(p, from, to, offset) \
	(FIELD(p, from) || FIELD(p, to) ? 0 : volume_at(ok, p, offset))
#define VOLUMES(p, n, stride, from, to, offset) volumes_of(ok, p, n, stride, from, to, offset)
#define FIRST(p, n, offset) ((n) ? FIELD(p, offset) : 0)
#define PLACE(p, offset) place_of(ok, p, offset)
#define PER_THREAD(s) ((s) ? (__u64)(uintptr_t)(s) : 2)

#define UNKNOWN INGERO_COPY_UNKNOWN
#define H2D INGERO_COPY_H2D
#define D2H INGERO_COPY_D2H
#define D2D INGERO_COPY_D2D
#define PEER INGERO_COPY_PEER
#define DEFAULT INGERO_COPY_DEFAULT
#define KIND(k) direction_of_kind((unsigned)(k))
#define SPACES(p, from, to) \
	direction_of_spaces((unsigned)FIELD32(p, from), (unsigned)FIELD32(p, to))
#define PEER_SPACES(p, from, to) direction_of_peers(SPACES(p, from, to))

HELPER __u64 part_of(const void *p, unsigned offset, unsigned bytes)
{
	__u64 part = 0;

	memcpy(&part, (const char *)p + offset, bytes);
	return part;
}

HELPER __u64 grid_blocks(bool ok, const void *p)
{
	const any_u32 *d = p;

	return ok && d ? (__u64)d[0] * d[1] * d[2] : 0;
}

HELPER __u64 sum_of(bool ok, const void *p, __u64 n)
{
	const any_u64 *sizes = p;
	__u64 sum = 0;

	if (ok && sizes)
		for (__u64 i = 0; i < n; i++)
			sum += sizes[i];
	return sum;
}

HELPER __u64 volume_at(bool ok, const void *p, unsigned offset)
{
	return FIELD(p, offset) * FIELD(p, offset + 8) * FIELD(p, offset + 16);
}

/* Of `n` structs. One with an array leaves the sum unknown. */
HELPER __u64 volumes_of(bool ok, const char *p, __u64 n, unsigned stride, unsigned from,
			unsigned to, unsigned offset)
{
	const __u64 array = 2; /* cudaMemcpyOperandTypeArray */
	__u64 sum = 0;

	for (__u64 i = 0; ok && p && i < n; i++, p += stride) {
		if (FIELD32(p, from) == array || FIELD32(p, to) == array)
			return 0;
		sum += volume_at(ok, p, offset);
	}
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

/* A copy between contexts may have host memory on one side. */
HELPER unsigned direction_of_peers(unsigned direction)
{
	return direction == D2D || direction == DEFAULT ? PEER : direction;
}

#endif /* INGERO_PRELOAD_API_WORDS_H */
