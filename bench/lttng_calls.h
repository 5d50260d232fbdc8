/* SPDX-License-Identifier: Apache-2.0
 * Tracepoints around a call (lttng_provider.h), and whether a session records
 * them. C.
 */
#ifndef INGERO_BENCH_LTTNG_CALLS_H_
#define INGERO_BENCH_LTTNG_CALLS_H_

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif
int lttng_enabled(void);
void lttng_begin(void* to, const void* from, size_t bytes, int kind);
void lttng_end(int result);
#ifdef __cplusplus
}
#endif

#endif /* INGERO_BENCH_LTTNG_CALLS_H_ */
