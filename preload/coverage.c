/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/coverage.h"

#include <link.h>
#include <string.h>
#include <sys/mman.h>

#include "preload/loader.h"
#include "preload/syscalls.h"

enum {
	WAYS = INGERO_WAY_DRIVER_ENTRY + 1, /* those that are counted by function */
	FACTS_MAX = 256,
	LIBRARIES_MAX = 64,
	NAMES_PER_RECORD = 128,
	TEXT_MAX = 1024,
};

static uint64_t way_counts[WAYS];
static uint8_t row_ways[API_ROWS_MAX]; /* bit per way */

/* Facts that carry a text. The last one stands for all that did not fit. */
static struct fact {
	uint16_t way, detail;
	uint64_t count;
	char text[256];
} facts[FACTS_MAX];
static uint32_t fact_count;

static uint32_t changes;

/* What this process has written; wiped by a fork. */
struct sent {
	uint64_t way_counts[WAYS];
	uint8_t row_ways[API_ROWS_MAX];
	uint64_t facts[FACTS_MAX];
	uintptr_t libraries[LIBRARIES_MAX];
	uint32_t library_count;
	uint32_t busy;
};
static struct sent *sent;
static uint32_t sent_is_gone;

static void changed(void)
{
	__atomic_fetch_add(&changes, 1, __ATOMIC_RELAXED);
}

/* ---- counting ------------------------------------------------------------ */

void ingero_cover_module(void)
{
	__atomic_fetch_add(&way_counts[INGERO_WAY_LINKED], 1, __ATOMIC_RELAXED);
	changed();
}

void ingero_cover_linked(unsigned row)
{
	if (__atomic_load_n(&row_ways[row], __ATOMIC_RELAXED))
		return;
	__atomic_fetch_or(&row_ways[row], 1 << INGERO_WAY_LINKED, __ATOMIC_RELAXED);
	changed();
}

void ingero_cover_pointer(enum ingero_coverage_way way, unsigned row)
{
	__atomic_fetch_add(&way_counts[way], 1, __ATOMIC_RELAXED);
	__atomic_fetch_or(&row_ways[row], (uint8_t)(1u << way), __ATOMIC_RELAXED);
	changed();
}

static void count_fact(enum ingero_coverage_way way, unsigned detail, const char *text)
{
	const size_t room = sizeof(facts[0].text) - 1;
	size_t length = strlen(text);
	uint32_t i;

	if (length > room) { /* of a path the end tells more */
		text += length - room;
		length = room;
	}
	ingero_lock();
	for (i = 0; i < fact_count; i++)
		if (facts[i].way == way && facts[i].detail == detail &&
		    strcmp(facts[i].text, text) == 0)
			break;
	if (i == FACTS_MAX) {
		i = FACTS_MAX - 1;
		facts[i].way = INGERO_WAY_ESCAPED;
		facts[i].detail = INGERO_ESCAPE_UNKNOWN;
		memcpy(facts[i].text, "(others)", 9);
	} else if (i == fact_count) {
		facts[i].way = (uint16_t)way;
		facts[i].detail = (uint16_t)detail;
		memcpy(facts[i].text, text, length + 1);
		__atomic_store_n(&fact_count, i + 1, __ATOMIC_RELEASE);
	}
	facts[i].count++;
	ingero_unlock();
	changed();
}

void ingero_cover_escape(const char *name, enum ingero_escape_reason why)
{
	count_fact(INGERO_WAY_ESCAPED, why, name);
}

void ingero_cover_asked_by(const char *path)
{
	count_fact(INGERO_WAY_ASKED_BY, 0, path);
}

void ingero_cover_deepbind(const char *file, bool kept)
{
	count_fact(INGERO_WAY_DEEPBIND, kept, file);
}

void ingero_cover_choice(const char *apis, uint32_t libraries)
{
	count_fact(INGERO_WAY_CHOICE, libraries, apis);
}

void ingero_cover_library(const char *path, unsigned func_class)
{
	count_fact(INGERO_WAY_LIBRARY, func_class, path);
}

/* ---- writing ------------------------------------------------------------- */

static void emit(struct thread_state *t, unsigned way, unsigned detail, uint64_t count,
		 const char *text)
{
	size_t n = strnlen(text, TEXT_MAX);
	struct ingero_coverage *c =
		ingero_reserve(t, INGERO_RECORD_COVERAGE, sizeof(*c) + n + 1);

	c->way = (__u16)way;
	c->detail = (__u16)detail;
	c->count = count;
	memcpy(c + 1, text, n);
	ingero_commit(t);
}

/* The file behind a path, links followed: its name holds the full version. */
static const char *real_path(const char *path, char *to, size_t size)
{
	char link[48] = "/proc/self/fd/", digits[12];
	int fd = sys_open(*path ? path : "/proc/self/exe", O_PATH, 0);
	size_t n = sizeof(digits), at = strlen(link);
	long got;

	if (fd < 0)
		return path;
	for (int i = fd; n == sizeof(digits) || i; i /= 10)
		digits[--n] = (char)('0' + i % 10);
	memcpy(link + at, digits + n, sizeof(digits) - n);
	link[at + sizeof(digits) - n] = 0;
	got = SYS4(SYS_readlink, link, to, size - 1, 0);
	sys_close(fd);
	if (got <= 0)
		return path;
	to[got] = 0;
	return to;
}

static int emit_library(struct dl_phdr_info *info, size_t size, void *to)
{
	static const char *const parts[] = { "libcuda.so", "libcudart", "libcublas", "libcudnn",
					     "libnccl", "libcufft", "libcusparse", "libcusolver",
					     "libcurand", "libtorch_cuda", "libnvrtc", "libnvJitLink",
					     "libcupti" };
	const char *name = info->dlpi_name ? info->dlpi_name : "";
	const char *base = strrchr(name, '/');
	char path[TEXT_MAX];

	(void)size;
	base = base ? base + 1 : name;
	for (uint32_t i = 0; i < sent->library_count; i++)
		if (sent->libraries[i] == info->dlpi_addr)
			return 0;
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		if (strncmp(base, parts[i], strlen(parts[i])) != 0)
			continue;
		if (sent->library_count < LIBRARIES_MAX)
			sent->libraries[sent->library_count++] = info->dlpi_addr;
		emit(to, INGERO_WAY_MAPPED, 0, 1, real_path(name, path, sizeof(path)));
		break;
	}
	return 0;
}

static void emit_names(struct thread_state *t, unsigned way)
{
	uint16_t rows[NAMES_PER_RECORD];
	unsigned n = 0;
	size_t bytes = 0;

	for (unsigned row = 0; row <= ingero_api_rows; row++) {
		struct ingero_coverage *c;
		char *to;

		if (row < ingero_api_rows) {
			if (!((row_ways[row] & ~sent->row_ways[row]) >> way & 1))
				continue;
			sent->row_ways[row] |= (uint8_t)(1u << way);
			rows[n++] = (uint16_t)row;
			bytes += strlen(ingero_api[row].name) + 1;
		}
		if (!n || (n < NAMES_PER_RECORD && row < ingero_api_rows))
			continue;
		c = ingero_reserve(t, INGERO_RECORD_COVERAGE, sizeof(*c) + bytes);
		c->way = INGERO_WAY_ENTRIES;
		c->detail = (__u16)way;
		c->count = n;
		to = (char *)(c + 1);
		for (unsigned i = 0; i < n; i++) {
			size_t length = strlen(ingero_api[rows[i]].name);

			memcpy(to, ingero_api[rows[i]].name, length);
			to += length;
			*to++ = i + 1 < n ? ' ' : 0;
		}
		ingero_commit(t);
		n = 0;
		bytes = 0;
	}
}

/* One thread at a time; a second one leaves it to the next occasion. */
static bool begin_sending(void)
{
	struct sent *mine, *none = NULL;

	if (!__atomic_load_n(&sent, __ATOMIC_ACQUIRE)) {
		mine = ingero_wiped_memory(sizeof(*mine));
		if (!mine)
			return false;
		if (!__atomic_compare_exchange_n(&sent, &none, mine, false, __ATOMIC_ACQ_REL,
						 __ATOMIC_ACQUIRE))
			SYS4(SYS_munmap, mine, sizeof(*mine), 0, 0);
	}
	return !__atomic_exchange_n(&sent->busy, 1, __ATOMIC_ACQUIRE);
}

void ingero_emit_all_coverage(struct thread_state *t)
{
	uint32_t n = __atomic_load_n(&fact_count, __ATOMIC_ACQUIRE);
	char path[TEXT_MAX];

	if (!begin_sending())
		return;
	if (__atomic_exchange_n(&sent_is_gone, 0, __ATOMIC_ACQUIRE))
		memset(sent, 0, offsetof(struct sent, busy));
	ingero_walk_modules(emit_library, t);
	for (unsigned way = INGERO_WAY_LINKED; way < WAYS; way++) {
		uint64_t count = __atomic_load_n(&way_counts[way], __ATOMIC_RELAXED);

		if (count != sent->way_counts[way])
			emit(t, way, 0, sent->way_counts[way] = count, "");
		emit_names(t, way);
	}
	for (uint32_t i = 0; i < n; i++) {
		uint64_t count = __atomic_load_n(&facts[i].count, __ATOMIC_RELAXED);

		if (count == sent->facts[i])
			continue;
		sent->facts[i] = count;
		emit(t, facts[i].way, facts[i].detail, count,
		     facts[i].way == INGERO_WAY_ASKED_BY || facts[i].way == INGERO_WAY_LIBRARY ?
			     real_path(facts[i].text, path, sizeof(path)) :
			     facts[i].text);
	}
	__atomic_store_n(&sent->busy, 0, __ATOMIC_RELEASE);
}

void ingero_resend_coverage(void)
{
	__atomic_store_n(&sent_is_gone, 1, __ATOMIC_RELEASE);
	changed();
}

void ingero_emit_coverage(struct thread_state *t)
{
	uint32_t now = __atomic_load_n(&changes, __ATOMIC_RELAXED);

	if (__atomic_exchange_n(&ingero_process->coverage_seen, now, __ATOMIC_RELAXED) != now)
		ingero_emit_all_coverage(t);
}
