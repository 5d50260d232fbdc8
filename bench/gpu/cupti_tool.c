/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a tool on CUPTI costs: the least that one can do and still have a record
 * of each runtime call. Loaded by the driver (CUDA_INJECTION64_PATH).
 *
 *   BENCH_CUPTI         path of libcupti
 *   BENCH_CUPTI_MODE    callbacks | runtime | kernels
 *   BENCH_RESULT        file; at exit "records=N dropped=N version=N reason=..."
 *
 * callbacks: a subscriber to the runtime domain, which takes two time stamps
 * and stores a record in a ring of its thread. runtime, kernels: activity
 * records of runtime calls, and of kernels beside them; buffers of 8 MiB, as
 * PyTorch's profiler has, are walked on CUPTI's own thread.
 */
#include <cupti.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <x86intrin.h>

#define BUFFER_BYTES (8u << 20)
#define RING_RECORDS (1u << 14)
#define MAX_THREADS 1024

struct record {
	uint64_t begin, end;
	uint32_t function, correlation, result, unused;
};
struct ring {
	uint64_t count;
	struct record records[RING_RECORDS];
};

#define FUNCTIONS(X)                                                                               \
	X(cuptiSubscribe)                                                                          \
	X(cuptiEnableDomain)                                                                       \
	X(cuptiActivityRegisterCallbacks)                                                          \
	X(cuptiActivityEnable)                                                                     \
	X(cuptiActivityFlushAll)                                                                   \
	X(cuptiActivityGetNextRecord)                                                              \
	X(cuptiActivityGetNumDroppedRecords)                                                       \
	X(cuptiGetVersion)
#define X(name) static __typeof__(name) *p_##name;
FUNCTIONS(X)
#undef X

static struct ring *rings[MAX_THREADS];
static unsigned ring_count;
static __thread struct ring *own_ring;
static uint64_t records, dropped;
static uint32_t version;
static const char *reason = "";
static int has_activity;

static struct ring *new_ring(void)
{
	const unsigned i = __atomic_fetch_add(&ring_count, 1, __ATOMIC_RELAXED);

	if (i >= MAX_THREADS)
		return NULL;
	return rings[i] = own_ring = calloc(1, sizeof(struct ring));
}

static void CUPTIAPI on_call(void *user, CUpti_CallbackDomain domain, CUpti_CallbackId id,
			     const void *raw)
{
	const CUpti_CallbackData *data = raw;
	struct ring *ring;
	struct record *record;

	(void)user, (void)domain;
	if (data->callbackSite == CUPTI_API_ENTER) {
		*data->correlationData = __rdtsc();
		return;
	}
	ring = own_ring ? own_ring : new_ring();
	if (!ring)
		return;
	record = &ring->records[ring->count++ % RING_RECORDS];
	record->begin = *data->correlationData;
	record->end = __rdtsc();
	record->function = id;
	record->correlation = data->correlationId;
	record->result = *(const uint32_t *)data->functionReturnValue;
}

static void CUPTIAPI on_request(uint8_t **buffer, size_t *bytes, size_t *max_records)
{
	*buffer = aligned_alloc(8, BUFFER_BYTES);
	*bytes = *buffer ? BUFFER_BYTES : 0;
	*max_records = 0;
}

static void CUPTIAPI on_complete(CUcontext context, uint32_t stream, uint8_t *buffer, size_t bytes,
				 size_t valid_bytes)
{
	CUpti_Activity *record = NULL;
	uint64_t n = 0;
	size_t lost = 0;

	(void)bytes;
	while (p_cuptiActivityGetNextRecord(buffer, valid_bytes, &record) == CUPTI_SUCCESS)
		n += record->kind == CUPTI_ACTIVITY_KIND_RUNTIME;
	__atomic_fetch_add(&records, n, __ATOMIC_RELAXED);
	if (p_cuptiActivityGetNumDroppedRecords(context, stream, &lost) == CUPTI_SUCCESS)
		__atomic_fetch_add(&dropped, lost, __ATOMIC_RELAXED);
	free(buffer);
}

static void report(void)
{
	const char *path = getenv("BENCH_RESULT");
	FILE *file = path ? fopen(path, "w") : NULL;

	if (has_activity)
		p_cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
	for (unsigned i = 0; i < MAX_THREADS && rings[i]; i++)
		records += rings[i]->count;
	if (!file)
		return;
	fprintf(file, "records=%llu dropped=%llu version=%u built_for=%u reason=%s\n",
		(unsigned long long)records, (unsigned long long)dropped, version,
		(unsigned)CUPTI_API_VERSION, reason);
	fclose(file);
}

static const char *start(const char *mode)
{
	CUpti_SubscriberHandle subscriber;
	void *cupti = dlopen(getenv("BENCH_CUPTI"), RTLD_NOW);

	if (!cupti)
		return dlerror();
#define X(name)                                                                                    \
	*(void **)&p_##name = dlsym(cupti, #name);                                                 \
	if (!p_##name)                                                                             \
		return #name " is missing";
	FUNCTIONS(X)
#undef X
	p_cuptiGetVersion(&version);
	if (strcmp(mode, "callbacks") == 0) {
		if (p_cuptiSubscribe(&subscriber, on_call, NULL) != CUPTI_SUCCESS)
			return "cuptiSubscribe failed";
		if (p_cuptiEnableDomain(1, subscriber, CUPTI_CB_DOMAIN_RUNTIME_API) !=
		    CUPTI_SUCCESS)
			return "cuptiEnableDomain failed";
		return "";
	}
	if (p_cuptiActivityRegisterCallbacks(on_request, on_complete) != CUPTI_SUCCESS)
		return "cuptiActivityRegisterCallbacks failed";
	if (p_cuptiActivityEnable(CUPTI_ACTIVITY_KIND_RUNTIME) != CUPTI_SUCCESS ||
	    (strcmp(mode, "kernels") == 0 &&
	     p_cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) != CUPTI_SUCCESS))
		return "cuptiActivityEnable failed";
	has_activity = 1;
	return "";
}

__attribute__((visibility("default"))) int InitializeInjection(void)
{
	const char *mode = getenv("BENCH_CUPTI_MODE");

	reason = mode && getenv("BENCH_CUPTI") ? start(mode) : "BENCH_CUPTI is not set";
	atexit(report);
	return 1;
}
