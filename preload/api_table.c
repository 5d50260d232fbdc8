/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_api.def as data: names, classes and words by row. */
#include <string.h>

#include "preload/api_macros.h"
#include "preload/shim.h"

#define DRIVER(sym, ret, n, kinds, cls, dir, nw, words, then) \
	{ #sym, 1 << GROUP_DRIVER, INGERO_CLASS_##cls, { WORDS##nw words } },
#define RUNTIME(tag, bits, sym, ret, n, kinds, cls, dir, nw, words, then) \
	{ #sym, bits, INGERO_CLASS_##cls, { WORDS##nw words } },
const struct api_row ingero_api[] = {
#include "preload/cuda_api.def"
};
#undef DRIVER
#undef RUNTIME

#define DRIVER(...) +1
#define RUNTIME(...)
const unsigned ingero_api_driver_rows = 0
#include "preload/cuda_api.def"
	;
const unsigned ingero_api_rows = sizeof(ingero_api) / sizeof(ingero_api[0]);
_Static_assert(sizeof(ingero_api) / sizeof(ingero_api[0]) <= API_ROWS_MAX, "raise API_ROWS_MAX");

int ingero_find_row(const char *name, enum group group)
{
	unsigned low = group == GROUP_DRIVER ? 0 : ingero_api_driver_rows;
	unsigned end = group == GROUP_DRIVER ? ingero_api_driver_rows : ingero_api_rows;
	unsigned high = end;

	while (low < high) { /* the first row of that name */
		unsigned mid = (low + high) / 2;

		if (strcmp(ingero_api[mid].name, name) < 0)
			low = mid + 1;
		else
			high = mid;
	}
	for (; low < end && strcmp(ingero_api[low].name, name) == 0; low++)
		if (ingero_api[low].groups & 1 << group)
			return (int)low;
	return -1;
}
