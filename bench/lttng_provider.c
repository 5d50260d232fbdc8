// SPDX-License-Identifier: Apache-2.0
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "bench/lttng_provider.h"

#include "bench/lttng_calls.h"

int lttng_enabled(void) {
  return lttng_ust_tracepoint_enabled(ingero_bench, begin) != 0;
}
void lttng_begin(void* to, const void* from, size_t bytes, int kind) {
  lttng_ust_tracepoint(ingero_bench, begin, (uint64_t)(uintptr_t)to,
                       (uint64_t)(uintptr_t)from, bytes, kind);
}
void lttng_end(int result) {
  lttng_ust_tracepoint(ingero_bench, end, result);
}
