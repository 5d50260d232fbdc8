/* SPDX-License-Identifier: Apache-2.0 */
/* bare_5 of shim_bench_target.c as an entry point of cuDNN. */
#include <stddef.h>

int cudnnBench(void *d, const void *s, size_t n, int k, void *q)
{
	return d == s && n == 1 && k == 77 && !q;
}
