/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What shim_bench calls: functions under CUDA's names, which the shim records,
 * and the same under none. Each looks at every argument.
 */
#include <stddef.h>

struct grid {
	unsigned x, y, z;
};

#define LOOK_5 d == s && n == 1 && k == 77 && !q
#define LOOK_11 !f && x + y + z + a + b + c + m == 77 && !q && p == e

int cudaMemcpyAsync(void *d, const void *s, size_t n, int k, void *q)
{
	return LOOK_5;
}

int bare_5(void *d, const void *s, size_t n, int k, void *q)
{
	return LOOK_5;
}

/* Has probes on it once it was asked for (shim_bench.bpf.c). */
int probed_5(void *d, const void *s, size_t n, int k, void *q)
{
	return LOOK_5;
}

/* Interposition and nothing else: one jump through a pointer. */
int (*volatile plt_5_real)(void *, const void *, size_t, int, void *) = bare_5;
int plt_5(void *d, const void *s, size_t n, int k, void *q)
{
	return plt_5_real(d, s, n, k, q);
}

int cuLaunchKernel(void *f, unsigned x, unsigned y, unsigned z, unsigned a, unsigned b, unsigned c,
		   unsigned m, void *q, void **p, void **e)
{
	return LOOK_11;
}

int bare_11(void *f, unsigned x, unsigned y, unsigned z, unsigned a, unsigned b, unsigned c,
	    unsigned m, void *q, void **p, void **e)
{
	return LOOK_11;
}

/* A runtime's call, with the driver's inside. */
int cudaLaunchKernel(const void *f, struct grid g, struct grid b, void **p, size_t m, void *q)
{
	return cuLaunchKernel((void *)f, g.x, g.y, g.z, b.x, b.y, b.z, (unsigned)m, q, p, NULL);
}

int bare_nested(const void *f, struct grid g, struct grid b, void **p, size_t m, void *q)
{
	return bare_11((void *)f, g.x, g.y, g.z, b.x, b.y, b.z, (unsigned)m, q, p, NULL);
}

/* A getter, which is left out by default. */
int cudaGetLastError(void)
{
	return 0;
}

int bare_0(void)
{
	return 0;
}

/* Calls from another module than the first that called the function. */
int from_other_module(int (*call)(void *, const void *, size_t, int, void *), int n)
{
	int sum = 0;
	static char host[64], device[64];

	while (n--)
		sum += call(device, host, 64, 1, NULL);
	return sum;
}
