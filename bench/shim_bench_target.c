/* SPDX-License-Identifier: Apache-2.0 */
/* What shim_bench calls: two functions under CUDA's names, two under none. */
#include <stddef.h>

int cudaMemcpyAsync(void *d, const void *s, size_t n, int k, void *q)
{
	return d == s && n == 1 && k == 77 && !q;
}

int cuLaunchKernel(void *f, unsigned x, unsigned y, unsigned z, unsigned a, unsigned b, unsigned c,
		   unsigned m, void *q, void **p, void **e)
{
	return !f && x + y + z + a + b + c + m == 77 && !q && p == e;
}

int bare_5(void *d, const void *s, size_t n, int k, void *q)
{
	return d == s && n == 1 && k == 77 && !q;
}

int bare_11(void *f, unsigned x, unsigned y, unsigned z, unsigned a, unsigned b, unsigned c,
	    unsigned m, void *q, void **p, void **e)
{
	return !f && x + y + z + a + b + c + m == 77 && !q && p == e;
}
