/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shim's buffer under ThreadSanitizer: thread_log.c and the hot path of
 * traced_call.h, with threads that come and go (slots are handed on) and fill
 * many blocks (write-outs), while a reader in the same process follows every
 * slot's cursor with acquire. Each record proves itself: its words are
 * functions of its number. What is not under test (clock, folder, kernels) is
 * replaced below by its simplest form.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "preload/syscalls.h"
#include "preload/traced_call.h"

#define CHECK(c)                                                              \
	do {                                                                  \
		if (!(c)) {                                                   \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #c); \
			abort();                                              \
		}                                                             \
	} while (0)

/* ---- stand-ins ----------------------------------------------------------- */

enum { ROW, ROWS, THREADS = 4, ROUNDS = 40, CALLS = 3000, BLOCKS = 4096 };

const struct api_row ingero_api[] = {
	{ "cudaMalloc", 2, INGERO_CLASS_ALLOC, { INGERO_WORD_BYTES, INGERO_WORD_ADDRESS } },
};
struct api_row ingero_library_rows[LIBRARY_ROWS_MAX];
const unsigned ingero_api_rows = ROWS, ingero_api_driver_rows = 0;
static struct process process;
struct process *ingero_process = &process;
bool ingero_use_tsc = true;
static int file;
static unsigned char *pages; /* the file, as the reader sees it */

uint64_t ingero_monotonic_ns(void) { return __rdtsc(); }
bool ingero_process_ready(void) { return true; }
void ingero_complain(const char *what, const char *why)
{
	fprintf(stderr, "%s: %s\n", what, why);
	abort();
}
void ingero_complain_of_space(void) { abort(); }
bool ingero_wants(unsigned c) { return c != INGERO_CLASS_GETTER; }
bool ingero_session_begin(struct thread_state *t)
{
	__atomic_store_n(&process.session, 1, __ATOMIC_RELAXED);
	return t != NULL;
}
/* TSan follows file descriptors and takes kernel order for none. */
int ingero_stream_open(void) { return (int)SYS4(SYS_dup, file, 0, 0, 0); }
bool ingero_may_write(uint64_t end) { return end <= (uint64_t)BLOCKS * INGERO_BLOCK_BYTES; }
bool ingero_reserve_space(int fd, uint64_t offset, uint64_t bytes)
{
	return fd >= 0 && ingero_may_write(offset + bytes);
}
void *ingero_wiped_memory(size_t bytes) { return calloc(1, bytes); }
void ingero_emit_start_records(struct thread_state *t) { t->next_cold = ~0ULL; }
void ingero_emit_coverage(struct thread_state *t) { (void)t; }
void ingero_resend_coverage(void) {}
bool ingero_nvtx_is_open(const struct ingero_nvtx_begin *b) { (void)b; return false; }
void ingero_knot(struct thread_state *t) { t->next_cold = ~0ULL; }
unsigned ingero_kernel_seen(struct thread_state *t, uint64_t k, uint32_t depth)
{
	(void)t, (void)k, (void)depth;
	return 0;
}
void *ingero_libc_symbol(const char *name)
{
	return strcmp(name, "pthread_key_create") == 0 ? (void *)pthread_key_create :
							 (void *)pthread_setspecific;
}

/* ---- self-verifying records ---------------------------------------------- */

static uint64_t seal(uint64_t number) { return number * 0x9e3779b97f4a7c15ULL ^ 0x5bd1e995; }

static __attribute__((noinline)) void record(uint64_t number)
{
	static struct cell cell;
	struct thread_state *t = call_enter(ROW, &cell);
	__u64 words[2] = { number, seal(number) };
	uint64_t start;
	uint32_t depth;

	CHECK(t);
	start = call_begin(t, ROW, (uintptr_t)__builtin_frame_address(0), &depth);
	call_close(t);
	call_end(t, ROW, INGERO_CLASS_ALLOC, depth, start, ingero_ticks(), 0, 0,
		 2, words);
}

static void *writer(void *from)
{
	for (uint64_t i = 0; i < CALLS; i++)
		record((uint64_t)(uintptr_t)from + i);
	return NULL;
}

/* Returns the calls in `bytes` of records; marks each in `seen`. */
static unsigned check_records(const unsigned char *at, uint32_t bytes, unsigned char *seen)
{
	unsigned calls = 0;

	for (uint32_t i = 0, size; i < bytes; i += size) {
		const struct ingero_call *c = (const void *)(at + i);
		const __u64 *words = (const void *)(c + 1);

		size = c->r.size8 * 8u;
		CHECK(size && i + size <= bytes);
		if (c->r.kind != INGERO_RECORD_CALL)
			continue;
		CHECK(size == sizeof(*c) + 16 && c->func == ROW + 1 && c->depth == 0);
		CHECK(words[1] == seal(words[0]));
		if (seen)
			CHECK(!seen[words[0]]++);
		calls++;
	}
	return calls;
}

static bool stop;
static uint64_t checked;

/*
 * Only what lies between two looks at the cursor of one sequence is checked:
 * a slot that began anew meanwhile has its records in a DATA block.
 */
static void *reader(void *unused)
{
	struct { uint64_t cursor; } known[BLOCKS] = { { 0 } };
	(void)unused;

	while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
		uint64_t blocks = __atomic_load_n(&process.header->blocks_reserved,
						  __ATOMIC_RELAXED);

		for (uint64_t b = 1; b < blocks && b < BLOCKS; b++) {
			struct ingero_block_header *h = (void *)(pages + b * INGERO_BLOCK_BYTES);
			uint64_t cursor;

			if (__atomic_load_n(&h->magic, __ATOMIC_ACQUIRE) != INGERO_MAGIC_BLOCK ||
			    h->type != INGERO_BLOCK_LIVE)
				continue;
			cursor = __atomic_load_n(&h->cursor, __ATOMIC_ACQUIRE);
			/* First sequence: these bytes are never written again
			 * before the cursor's sequence moves on. */
			if (cursor == known[b].cursor)
				continue;
			known[b].cursor = cursor;
			static unsigned char copy[INGERO_BLOCK_BYTES];
			uint32_t bytes = (uint32_t)cursor;

			/* A racing reset is seen by the second look, as a file
			 * reader sees it; the copy itself is no data race to report. */
			for (uint32_t i = 0; i < bytes; i += 8)
				*(__u64 *)(copy + i) = __atomic_load_n(
					(__u64 *)((unsigned char *)(h + 1) + i), __ATOMIC_RELAXED);
			if (__atomic_load_n(&h->cursor, __ATOMIC_ACQUIRE) >> 32 == cursor >> 32)
				checked += check_records(copy, bytes, NULL);
		}
	}
	return NULL;
}

int main(void)
{
	static unsigned char seen[THREADS * ROUNDS * CALLS];
	char path[] = "/tmp/ingero-buffer-XXXXXX";
	unsigned data = 0, live = 0, calls = 0;
	pthread_t r, w[THREADS];

	file = mkstemp(path);
	CHECK(file >= 0 && unlink(path) == 0);
	CHECK(ftruncate(file, (off_t)BLOCKS * INGERO_BLOCK_BYTES) == 0);
	pages = mmap(NULL, (size_t)BLOCKS * INGERO_BLOCK_BYTES, PROT_READ | PROT_WRITE,
		     MAP_SHARED, file, 0);
	CHECK(pages != MAP_FAILED);
	process.header = (void *)pages;
	process.header->blocks_reserved = 1;

	pthread_create(&r, NULL, reader, NULL);
	for (uintptr_t round = 0; round < ROUNDS; round++) {
		for (uintptr_t i = 0; i < THREADS; i++)
			pthread_create(&w[i], NULL, writer,
				       (void *)((round * THREADS + i) * CALLS));
		for (int i = 0; i < THREADS; i++)
			pthread_join(w[i], NULL);
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELEASE);
	pthread_join(r, NULL);

	/* Every record is in the file once: DATA, or LIVE with no DATA of its sequence. */
	for (int pass = 0; pass < 2; pass++)
		for (uint64_t b = 1; b < process.header->blocks_reserved; b++) {
			struct ingero_block_header *h = (void *)(pages + b * INGERO_BLOCK_BYTES);

			CHECK(h->magic == INGERO_MAGIC_BLOCK);
			if ((h->type == INGERO_BLOCK_LIVE) != pass)
				continue;
			calls += check_records((void *)(h + 1), (uint32_t)h->cursor, seen);
			*(pass ? &live : &data) += 1;
		}
	printf("%u calls in %u DATA and %u LIVE blocks; the reader checked %llu\n", calls, data,
	       live, (unsigned long long)checked);
	CHECK(calls == THREADS * ROUNDS * CALLS);
	CHECK(live <= 2 * THREADS && data > THREADS * ROUNDS / 2 && checked > 0);
	for (int i = 0; i < INGERO_LOSS_MAX; i++)
		CHECK(process.header->lost[i] == 0);
	return 0;
}
