/* SPDX-License-Identifier: Apache-2.0
 * What LTTng-UST would record of a call: its begin with four words, its end.
 */
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER ingero_bench
#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "bench/lttng_provider.h"
#if !defined(INGERO_BENCH_LTTNG_PROVIDER_H_) || \
    defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define INGERO_BENCH_LTTNG_PROVIDER_H_
#include <lttng/tracepoint.h>
#include <stdint.h>
LTTNG_UST_TRACEPOINT_EVENT(
    ingero_bench, begin,
    LTTNG_UST_TP_ARGS(uint64_t, to, uint64_t, from, uint64_t, bytes, int, kind),
    LTTNG_UST_TP_FIELDS(lttng_ust_field_integer(uint64_t, to, to)
                            lttng_ust_field_integer(uint64_t, from, from)
                                lttng_ust_field_integer(uint64_t, bytes, bytes)
                                    lttng_ust_field_integer(int, kind, kind)))
LTTNG_UST_TRACEPOINT_EVENT(ingero_bench, end, LTTNG_UST_TP_ARGS(int, result),
                           LTTNG_UST_TP_FIELDS(lttng_ust_field_integer(
                               int, result, result)))
#endif
#include <lttng/tracepoint-event.h>
