/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process's stream: whether and where it is written, its file and header,
 * its clock samples, and its end. Begins at the first recorded CUDA call, so
 * a process without one leaves no file.
 *
 * The folder's rules are those of base/trace_dir.h, without malloc.
 *
 * Settings (docs/environment.md):
 *   INGERO_DISABLE=1   wrappers only pass on
 *   INGERO_DIR         folder for streams
 *   INGERO_APIS        classes to record, separated by commas: "all", "default"
 *                      (all but getter and libraries), names as in wire.h,
 *                      "-name" leaves out. Libraries come on top of the rest
 *   INGERO_CLOCK       "monotonic": time stamps from clock_gettime, not the TSC
 *   INGERO_CLEAR_DEEPBIND=1  take RTLD_DEEPBIND from dlopen
 *   INGERO_RUN         set by `ingero run`: which one this process is of
 */
#include <cpuid.h>
#include <errno.h>
#include <stdlib.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>

#include "preload/coverage.h"
#include "preload/crc32c.h"
#include "preload/loader.h"
#include "preload/syscalls.h"
#include "preload/traced_call.h"

extern char **environ;

static struct process no_process;
struct process *ingero_process = &no_process;
bool ingero_use_tsc;

static bool disabled;
static bool clears_deepbind;
static bool wants_monotonic;
static uint64_t wanted_classes; /* bit per enum ingero_class */
static uint64_t tsc_hz;

/* ---- small text tools ---------------------------------------------------- */

struct text {
	char *at, *end;
	bool full;
};

static void add(struct text *t, const char *s)
{
	size_t n = strlen(s);

	if (t->full || n >= (size_t)(t->end - t->at)) {
		t->full = true;
		return;
	}
	memcpy(t->at, s, n + 1);
	t->at += n;
}

static void add_number(struct text *t, uint64_t n)
{
	char digits[24], *d = digits + sizeof(digits) - 1;

	*d = 0;
	do {
		*--d = (char)('0' + n % 10);
		n /= 10;
	} while (n);
	add(t, d);
}

static const char *env(const char *name)
{
	size_t n = strlen(name);

	if (environ)
		for (char **e = environ; *e; e++)
			if (strncmp(*e, name, n) == 0 && (*e)[n] == '=')
				return *e + n + 1;
	return NULL;
}

/* Reads at most size - 1 bytes; always ends the text. */
static size_t read_file(const char *path, char *to, size_t size)
{
	int fd = sys_open(path, O_RDONLY, 0);
	size_t have = 0;

	if (fd >= 0) {
		long n;

		while (have < size - 1 && (n = sys_read(fd, to + have, size - 1 - have)) > 0)
			have += (size_t)n;
		sys_close(fd);
	}
	to[have] = 0;
	return have;
}

static uint64_t to_number(const char *s)
{
	uint64_t n = 0;

	while (*s >= '0' && *s <= '9')
		n = n * 10 + (uint64_t)(*s++ - '0');
	return n;
}

static uint64_t stderr_at_load[2]; /* device and inode */

static void stderr_identity(uint64_t *to)
{
	struct stat st;

	to[0] = to[1] = 0;
	if (SYS4(SYS_fstat, 2, &st, 0, 0) == 0) {
		to[0] = st.st_dev;
		to[1] = st.st_ino;
	}
}

/*
 * One line on stderr, once per process: something the user must set right. A
 * reader that has gone or does not read must not stop the program (SIGPIPE, a
 * full pipe), and descriptor 2 may have become a file of the program's.
 */
static void say(const char *start, const char *what, const char *why)
{
	static uint32_t said;
	char line[768];
	struct text t = { line, line + sizeof(line), false };
	struct pollfd fd = { .fd = 2, .events = POLLOUT };
	const uint64_t broken_pipe = 1ULL << (SIGPIPE - 1);
	const struct timespec at_once = { 0, 0 };
	uint64_t is[2], mask, pending = 0;

	if (__atomic_exchange_n(&said, 1, __ATOMIC_RELAXED))
		return;
	stderr_identity(is);
	if (memcmp(is, stderr_at_load, sizeof(is)) != 0 ||
	    SYS4(SYS_poll, &fd, 1, 0, 0) != 1 || fd.revents != POLLOUT)
		return;
	add(&t, start);
	add(&t, what);
	add(&t, ": ");
	add(&t, why);
	add(&t, "\n");
	mask = sys_block_signals();
	SYS4(SYS_rt_sigpending, &pending, sizeof(pending), 0, 0);
	if (SYS4(SYS_write, 2, line, t.at - line, 0) == -EPIPE && !(pending & broken_pipe))
		SYS4(SYS_rt_sigtimedwait, &broken_pipe, 0, &at_once, sizeof(broken_pipe));
	sys_restore_signals(mask);
}

/*
 * Said at the first use of CUDA: a process without one is to be left in peace.
 */
static const char *odd_setting, *odd_because;

static void note_odd(const char *setting, const char *because)
{
	odd_setting = setting;
	odd_because = because;
}

/* The first of them; what is no letter of a name is shown as '?'. */
static void note_unknown_class(const char *word, size_t n)
{
	static char because[96];
	static const char start[] = "knows no class '", end[] = "'; see docs/environment.md";
	char *to = because;

	if (n > sizeof(because) - sizeof(start) - sizeof(end))
		n = sizeof(because) - sizeof(start) - sizeof(end);
	memcpy(to, start, sizeof(start) - 1);
	to += sizeof(start) - 1;
	for (size_t i = 0; i < n; i++)
		*to++ = word[i] > ' ' && word[i] < 0x7f ? word[i] : '?';
	memcpy(to, end, sizeof(end));
	note_odd("INGERO_APIS", because);
}

void ingero_complain(const char *what, const char *why)
{
	say("ingero: CUDA calls are not recorded: ", what, why);
}

/* ---- choice -------------------------------------------------------------- */

static void choose_classes(void)
{
	static const struct {
		const char *name;
		unsigned value;
	} classes[] = {
#define X(id, value, name) { name, value },
		INGERO_CLASSES(X)
#undef X
	};
	const char *list = env("INGERO_APIS");
	const uint64_t libraries = 0xfULL << INGERO_CLASS_NCCL;
	const uint64_t usual = ~(1ULL << INGERO_CLASS_GETTER | libraries);
	uint64_t wanted = usual;
	bool chosen = false;

	while (list && *list) {
		bool without = *list == '-';
		const char *word = list + without;
		size_t n = strcspn(word, ",");
		uint64_t bits = 0;

		if (n == 3 && strncmp(word, "all", 3) == 0)
			bits = ~0ULL;
		else if (n == 7 && strncmp(word, "default", 7) == 0)
			bits = usual;
		for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++)
			if (strlen(classes[i].name) == n && strncmp(word, classes[i].name, n) == 0)
				bits = 1ULL << classes[i].value;
		if (!bits && n && !odd_setting)
			note_unknown_class(word, n);
		/* The first that is named takes the place of the usual ones. */
		if (bits & ~libraries && !chosen) {
			chosen = true;
			if (!without)
				wanted &= libraries;
		}
		wanted = without ? wanted & ~bits : wanted | bits;
		list = word + n + (word[n] == ',');
	}
	wanted_classes = wanted;
	ingero_libraries = (uint32_t)((wanted & libraries) >> INGERO_CLASS_NCCL);
}

bool ingero_wants(unsigned func_class)
{
	return wanted_classes >> func_class & 1;
}

/* ---- memory and clock ---------------------------------------------------- */

void *ingero_wiped_memory(size_t bytes)
{
	void *p = sys_mmap(bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p && SYS4(SYS_madvise, p, bytes, 18 /* MADV_WIPEONFORK */, 0) != 0) {
		SYS4(SYS_munmap, p, bytes, 0, 0);
		p = NULL;
	}
	return p;
}

static uint64_t now_ns(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

uint64_t ingero_monotonic_ns(void)
{
	return now_ns(CLOCK_MONOTONIC);
}

static void choose_clock(void)
{
	unsigned a, b, c, d;
	char source[32];

	if (wants_monotonic)
		return;
	if (!__get_cpuid(0x80000007, &a, &b, &c, &d) || !(d & 1u << 8))
		return; /* the TSC is not invariant */
	read_file("/sys/devices/system/clocksource/clocksource0/current_clocksource", source,
		  sizeof(source));
	if (strcmp(source, "tsc\n") != 0)
		return;
	ingero_use_tsc = true;
	if (__get_cpuid(0x15, &a, &b, &c, &d) && a && b && c)
		tsc_hz = (uint64_t)c * b / a;
	else if (__get_cpuid(1, &a, &b, &c, &d) && c & 1u << 31) {
		__cpuid(0x40000000, a, b, c, d);
		if (a >= 0x40000010) { /* hypervisor timing leaf: kHz */
			__cpuid(0x40000010, a, b, c, d);
			tsc_hz = (uint64_t)a * 1000;
		}
	}
}

/* The narrowest of 20 windows: a reader in the middle of it is 20-40 ns off. */
void ingero_knot(struct thread_state *t)
{
	struct process *p = ingero_process;
	struct ingero_knot *knot;
	uint64_t width = ~0ULL, ticks = 0, ns = 0, now;

	for (int i = 0; i < 20; i++) {
		struct timespec ts;
		unsigned aux;
		uint64_t before, after, mono;

		before = ingero_use_tsc ? __rdtscp(&aux) : 0;
		clock_gettime(CLOCK_MONOTONIC, &ts);
		after = ingero_use_tsc ? __rdtscp(&aux) : 0;
		mono = (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
		if (!ingero_use_tsc)
			before = after = mono;
		if (after - before < width) {
			width = after - before;
			ticks = before + width / 2;
			ns = mono;
		}
	}
	knot = ingero_reserve(t, INGERO_RECORD_KNOT, sizeof(*knot));
	knot->window_ticks = (__u32)width;
	knot->ticks = ticks;
	knot->mono_ns = ns;
	ingero_commit(t);

	now = ingero_ticks();
	if (!p->first_knot_ticks) {
		p->first_knot_ticks = ticks;
		p->first_knot_ns = ns;
	}
	/* Close together at first, for short processes; then every 100 ms. */
	p->knots++;
	if (ns - p->first_knot_ns > 1000000)
		p->cold_interval_ticks =
			(uint64_t)((double)(ticks - p->first_knot_ticks) * 1e8 /
				   (double)(ns - p->first_knot_ns));
	if (p->knots < 4)
		t->next_cold = now + (1ULL << (17 + 3 * p->knots));
	else
		t->next_cold = now + (p->cold_interval_ticks ? p->cold_interval_ticks : 1u << 28);
}

/* ---- folder -------------------------------------------------------------- */

/* Home of a user from /etc/passwd, or false. */
static bool home_of(uint64_t uid, char *to, size_t size)
{
	char chunk[4096], line[1024];
	size_t used = 0;
	long n;
	int fd = sys_open("/etc/passwd", O_RDONLY, 0);
	bool found = false;

	while (fd >= 0 && !found && (n = sys_read(fd, chunk, sizeof(chunk))) > 0)
		for (long i = 0; i < n && !found; i++) {
			char *field[7] = { line };
			int fields = 1;

			if (chunk[i] != '\n') {
				if (used < sizeof(line) - 1)
					line[used++] = chunk[i];
				continue;
			}
			line[used] = 0;
			used = 0;
			for (char *c = line; *c && fields < 7; c++)
				if (*c == ':') {
					*c = 0;
					field[fields++] = c + 1;
				}
			if (fields >= 6 && *field[2] && to_number(field[2]) == uid &&
			    field[5][0] == '/' && strlen(field[5]) < size) {
				memcpy(to, field[5], strlen(field[5]) + 1);
				found = true;
			}
		}
	if (fd >= 0)
		sys_close(fd);
	return found;
}

/* True where mapped files are not coherent, or slow, or both. */
static bool on_network(const char *path)
{
	static const uint32_t types[] = {
		0x6969 /* nfs */,      0x517b /* smb */,     0xff534d42 /* cifs */,
		0xfe534d42 /* smb2 */, 0x01021997 /* 9p */,  0x0bd00bd0 /* lustre */,
		0x47504653 /* gpfs */, 0x00c36400 /* ceph */, 0x5346414f /* afs */,
		0x19830326 /* beegfs */, 0xaad7aaea /* panfs */, 0x65735546 /* fuse */,
	};
	char at[512];
	uint64_t buffer[32];

	if (strlen(path) >= sizeof(at))
		return false;
	memcpy(at, path, strlen(path) + 1);
	/* The nearest folder that exists decides. */
	for (;;) {
		char *slash;

		if (SYS4(SYS_statfs, at, buffer, 0, 0) == 0)
			break;
		slash = strrchr(at, '/');
		if (!slash || slash == at)
			return false;
		*slash = 0;
	}
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if ((uint32_t)buffer[0] == types[i])
			return true;
	return false;
}

struct folder {
	char path[384];
	int64_t uid, gid; /* owner to give, -1: leave */
};

static void choose_folder(struct folder *f)
{
	struct text t = { f->path, f->path + sizeof(f->path), false };
	uint64_t uid = (uint64_t)SYS4(SYS_geteuid, 0, 0, 0, 0);
	const char *dir = env("INGERO_DIR"), *sudo = env("SUDO_UID"), *base;
	char home[256];

	f->uid = f->gid = -1;
	if (uid == 0 && sudo && *sudo) {
		const char *group = env("SUDO_GID");

		f->uid = (int64_t)to_number(sudo);
		f->gid = group ? (int64_t)to_number(group) : f->uid;
	}
	if (dir && *dir) {
		if (*dir != '/') {
			char here[256];

			if (SYS4(SYS_getcwd, here, sizeof(here), 0, 0) > 0) {
				add(&t, here);
				add(&t, "/");
			}
		}
		add(&t, dir);
		return;
	}
	if (f->uid > 0) {
		if (home_of((uint64_t)f->uid, home, sizeof(home))) {
			add(&t, home);
			add(&t, "/.local/state/ingero");
		}
	} else if ((base = env("XDG_STATE_HOME")) && *base == '/') {
		add(&t, base);
		add(&t, "/ingero");
	} else if ((base = env("HOME")) && *base == '/') {
		add(&t, base);
		add(&t, "/.local/state/ingero");
	} else if (home_of(uid, home, sizeof(home))) {
		add(&t, home);
		add(&t, "/.local/state/ingero");
	}
	if (t.at == f->path || t.full || on_network(f->path)) {
		t = (struct text){ f->path, f->path + sizeof(f->path), false };
		add(&t, "/tmp/ingero-");
		add_number(&t, f->uid > 0 ? (uint64_t)f->uid : uid);
	}
}

/* mkdir -p, 0700. False where the last component is a link or another's. */
static bool make_folder(const struct folder *f)
{
	char at[sizeof(f->path)];
	struct stat st;
	uint64_t uid = (uint64_t)SYS4(SYS_geteuid, 0, 0, 0, 0);

	memcpy(at, f->path, sizeof(at));
	for (char *c = at + 1;; c++) {
		char was = *c;

		if (was && was != '/')
			continue;
		*c = 0;
		if (SYS4(SYS_mkdir, at, 0700, 0, 0) == 0 && f->uid >= 0)
			SYS4(SYS_lchown, at, f->uid, f->gid, 0);
		*c = was;
		if (!was)
			break;
	}
	if (SYS4(SYS_lstat, at, &st, 0, 0) != 0 || !S_ISDIR(st.st_mode))
		return false;
	return st.st_uid == uid || uid == 0;
}

/* ---- file ---------------------------------------------------------------- */

/* -1 unless it is still the file that this process made. */
int ingero_stream_open(void)
{
	struct process *p = ingero_process;
	struct stat st;
	int fd = sys_open(p->path, O_RDWR | O_NOFOLLOW, 0);

	if (fd < 0)
		return -1;
	if (SYS4(SYS_fstat, fd, &st, 0, 0) == 0 && st.st_dev == p->dev && st.st_ino == p->ino)
		return fd;
	sys_close(fd);
	return -1;
}

/* Beyond RLIMIT_FSIZE the kernel would send SIGXFSZ, which ends the program. */
bool ingero_may_write(uint64_t end)
{
	uint64_t limit[2];

	return SYS4(SYS_prlimit64, 0, 1 /* RLIMIT_FSIZE */, 0, limit) != 0 || end <= limit[0];
}

bool ingero_reserve_space(int fd, uint64_t offset, uint64_t bytes)
{
	static const char zeros[4096];
	long error;

	if (!ingero_may_write(offset + bytes))
		return false;
	error = SYS4(SYS_fallocate, fd, 0, offset, bytes);
	if (error == 0)
		return true;
	if (error != -EOPNOTSUPP && error != -ENOSYS)
		return false;
	for (uint64_t at = 0; at < bytes; at += sizeof(zeros))
		if (sys_pwrite(fd, zeros, sizeof(zeros), offset + at) != (long)sizeof(zeros))
			return false;
	return true;
}

static void fill_boot_id(__u8 *to)
{
	char text[64];
	unsigned digits = 0;

	read_file("/proc/sys/kernel/random/boot_id", text, sizeof(text));
	for (const char *c = text; *c && digits < 32; c++) {
		int v = *c >= '0' && *c <= '9' ? *c - '0' :
			*c >= 'a' && *c <= 'f' ? *c - 'a' + 10 : -1;

		if (v < 0)
			continue;
		to[digits / 2] = (__u8)(to[digits / 2] << 4 | v);
		digits++;
	}
}

/* "monotonic SECONDS NANOSECONDS": own clock minus the host's. */
static int64_t monotonic_offset(void)
{
	char text[256], *at;
	int64_t sign = 1, seconds;

	read_file("/proc/self/timens_offsets", text, sizeof(text));
	at = strstr(text, "monotonic");
	if (!at)
		return 0;
	at += strlen("monotonic");
	at += strspn(at, " \t");
	if (*at == '-') {
		sign = -1;
		at++;
	}
	seconds = sign * (int64_t)to_number(at);
	at += strcspn(at, " \t");
	at += strspn(at, " \t");
	return seconds * 1000000000 + (int64_t)to_number(at);
}

static uint64_t start_clock_ticks(void)
{
	char text[1024], *at;

	read_file("/proc/self/stat", text, sizeof(text));
	at = strrchr(text, ')'); /* field 2 may hold anything */
	for (int field = 2; at && field < 22; field++) {
		at = strchr(at, ' ');
		if (at)
			at++;
	}
	return at ? to_number(at) : 0;
}

static uint64_t cpus_allowed(void)
{
	uint64_t mask[128], count = 0; /* room for 8,192 CPUs */
	long bytes = SYS4(SYS_sched_getaffinity, SYS4(SYS_getpid, 0, 0, 0, 0),
			  sizeof(mask), mask, 0);

	for (long i = 0; i < bytes / 8; i++)
		count += (uint64_t)__builtin_popcountll(mask[i]);
	return count;
}

/* As it will be once its magic is there. */
static void seal_header(struct ingero_stream_header *h)
{
	const uint64_t magic = INGERO_MAGIC_CUDA;
	const size_t fixed = offsetof(struct ingero_stream_header, blocks_reserved);

	h->check = INGERO_CHECK_CRC32C;
	h->check_crc = ingero_crc32c((const char *)h + sizeof(magic), fixed - sizeof(magic),
				     ingero_crc32c(&magic, sizeof(magic), 0));
}

static void fill_header(struct ingero_stream_header *h)
{
	const char *run = env("INGERO_RUN");
	struct utsname host;
	struct stat st;
	size_t n;

	h->major = INGERO_WIRE_MAJOR;
	h->minor = INGERO_WIRE_MINOR;
	h->header_bytes = INGERO_HEADER_BYTES;
	h->clock = ingero_use_tsc ? INGERO_CLOCK_TSC : INGERO_CLOCK_MONOTONIC;
	h->block_bytes = INGERO_BLOCK_BYTES;
	if (SYS4(SYS_getrandom, &h->stream_id, sizeof(h->stream_id), 1 /* GRND_NONBLOCK */, 0) !=
	    (long)sizeof(h->stream_id))
		h->stream_id = __rdtsc() ^ (uint64_t)SYS4(SYS_getpid, 0, 0, 0, 0) << 40;
	h->stream_id |= 1;
	fill_boot_id(h->boot_id);
	h->created_mono_ns = now_ns(CLOCK_MONOTONIC);
	h->created_real_ns = now_ns(CLOCK_REALTIME);
	h->monotonic_offset_ns = monotonic_offset();
	h->tsc_hz = tsc_hz;
	h->pid = (__u32)SYS4(SYS_getpid, 0, 0, 0, 0);
	h->uid = (__u32)SYS4(SYS_getuid, 0, 0, 0, 0);
	h->start_clock_ticks = start_clock_ticks();
	h->clock_ticks_per_s = 100;
	h->cpus_allowed = cpus_allowed();
	h->parent_pid = (__u32)SYS4(SYS_getppid, 0, 0, 0, 0);
	if (run)
		h->run_id = to_number(run);
	if (SYS4(SYS_stat, "/proc/self/ns/pid", &st, 0, 0) == 0)
		h->pid_namespace = st.st_ino;
	/* Its last byte alone is not of the name, which may hold any. */
	n = read_file("/proc/self/comm", h->comm, sizeof(h->comm));
	if (n > 0 && h->comm[n - 1] == '\n')
		h->comm[n - 1] = 0;
	if (SYS4(SYS_uname, &host, 0, 0, 0) == 0) {
		n = strnlen(host.nodename, sizeof(h->host) - 1);
		memcpy(h->host, host.nodename, n);
	}
	memcpy(h->tool_version, INGERO_VERSION, sizeof(INGERO_VERSION));
	h->blocks_reserved = 1;
	seal_header(h);
}

/* Why a file could not be made, and what to do. */
static const char *reason(long error)
{
	switch (-error) {
	case EROFS:
	case EACCES:
		return "not writable; set INGERO_DIR";
	case EMFILE:
	case ENFILE:
		return "too many open files; raise ulimit -n";
	case ENOSPC:
	case EDQUOT:
		return "no space left (disk, quota or ulimit -f); free some or set INGERO_DIR";
	default:
		return "cannot create this file; set INGERO_DIR";
	}
}

void ingero_complain_of_space(void)
{
	ingero_complain(ingero_process->path, reason(-ENOSPC));
}

/* What the next attempt may find changed. */
static bool will_pass(long error)
{
	return error == -EMFILE || error == -ENFILE || error == -ENOMEM || error == -EINTR ||
	       error == -ENOSPC || error == -EDQUOT;
}

enum begun { NOT_BEGUN = 0, RUNS = 1, FAILED = 2 };

/* `again`: in the same folder, and without a word if that cannot be. */
static enum begun begin_session(struct process *p, bool again)
{
	struct folder folder;
	struct text t = { p->path, p->path + sizeof(p->path), false };
	struct ingero_stream_header *h = NULL;
	struct stat st;
	int fd;

	choose_folder(&folder);
	if (again) {
		const size_t n = (size_t)(strrchr(p->path, '/') - p->path);

		memcpy(folder.path, p->path, n);
		folder.path[n] = 0;
	}
	if (!make_folder(&folder)) {
		if (again)
			return FAILED;
		ingero_complain(folder.path, "cannot use this folder (missing, a link or "
					     "another user's); set INGERO_DIR");
		return FAILED;
	}
	add(&t, folder.path);
	add(&t, "/cuda-");
	add_number(&t, (uint64_t)SYS4(SYS_getpid, 0, 0, 0, 0));
	add(&t, "-");
	add_number(&t, now_ns(CLOCK_MONOTONIC));
	add(&t, ".ingero");
	fd = t.full ? -ENAMETOOLONG : sys_open(p->path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
	if (fd < 0) {
		if (again)
			return FAILED;
		ingero_complain(p->path, reason(fd));
		return will_pass(fd) ? NOT_BEGUN : FAILED;
	}
	if (SYS4(SYS_fstat, fd, &st, 0, 0) == 0 &&
	    ingero_reserve_space(fd, 0, INGERO_BLOCK_BYTES))
		h = sys_mmap(INGERO_BLOCK_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (!h) {
		if (!again)
			ingero_complain(folder.path, reason(-ENOSPC));
		SYS4(SYS_unlink, p->path, 0, 0, 0);
		sys_close(fd);
		return NOT_BEGUN;
	}
	if (folder.uid >= 0)
		SYS4(SYS_fchown, fd, folder.uid, folder.gid, 0);
	sys_close(fd);
	fill_header(h);
	h->calls_skipped = p->early_skips;
	memcpy(h->lost, p->early_lost, sizeof(h->lost));
	__atomic_store_n(&h->magic, INGERO_MAGIC_CUDA, __ATOMIC_RELEASE);
	__atomic_store_n(&p->header, h, __ATOMIC_RELEASE);
	p->dev = st.st_dev;
	/* Last: who can open the file finds its header and session. */
	__atomic_store_n(&p->ino, st.st_ino, __ATOMIC_RELEASE);
	return RUNS;
}

/* Plain memory: a forked child counts on from its parent's. */
static uint32_t sessions;

bool ingero_session_begin(struct thread_state *t)
{
	struct process *p = ingero_process;

	(void)t;
	ingero_lock();
	if (!p->begun) {
		__atomic_store_n(&p->session, ++sessions, __ATOMIC_RELAXED);
		p->begun = begin_session(p, false);
	}
	ingero_unlock();
	return p->begun == RUNS;
}

/*
 * Whether the file was unlinked, wherever its path may lead now (another root,
 * a folder that was moved): what the kernel says of its mapping. A line of the
 * list of mappings begins with the address and ends with the path.
 */
static bool is_deleted(const void *mapping)
{
	static const char mark[] = " (deleted)";
	char chunk[4096], end[sizeof(mark) - 1] = "";
	uint64_t address = 0;
	bool in_address = true, deleted = false;
	int fd = sys_open("/proc/self/maps", O_RDONLY, 0);
	long n;

	while (fd >= 0 && !deleted && (n = sys_read(fd, chunk, sizeof(chunk))) > 0)
		for (long i = 0; i < n && !deleted; i++) {
			const char c = chunk[i];

			if (c == '\n') {
				deleted = address == (uintptr_t)mapping &&
					  memcmp(end, mark, sizeof(end)) == 0;
				address = 0;
				in_address = true;
				continue;
			}
			in_address = in_address && c != '-';
			if (in_address)
				address = address << 4 | (uint64_t)(c <= '9' ? c - '0' : c - 'a' + 10);
			memmove(end, end + 1, sizeof(end) - 1);
			end[sizeof(end) - 1] = c;
		}
	if (fd >= 0)
		sys_close(fd);
	return deleted;
}

/*
 * At exit, where the stream was deleted while the process ran: one that says so,
 * in the same place, with all that was counted as lost. Threads that still run
 * keep their slots in the deleted file (write_block). False: nothing to do, or
 * it cannot be done.
 */
static bool begin_anew(struct process *p)
{
	struct ingero_stream_header *old = p->header;
	int fd = ingero_stream_open();
	enum begun begun;

	if (fd >= 0)
		sys_close(fd);
	if (fd >= 0 || !is_deleted(old))
		return false;
	ingero_lock();
	memcpy(p->early_lost, old->lost, sizeof(old->lost));
	p->early_lost[INGERO_LOSS_DELETED] += old->blocks_reserved - 1;
	p->early_skips = old->calls_skipped;
	__atomic_store_n(&p->session, ++sessions, __ATOMIC_RELEASE);
	p->knots = 0;
	p->first_knot_ticks = 0;
	for (unsigned row = 0; row < ROWS_MAX; row++)
		if (p->mode[row] == CALL_RECORD)
			p->mode[row] = CALL_UNSEEN;
	begun = begin_session(p, true);
	ingero_unlock();
	ingero_resend_coverage();
	return begun == RUNS;
}

/* ---- facts about the process --------------------------------------------- */

static void emit_process(struct thread_state *t)
{
	static char text[12288]; /* once per process; guarded by the caller */
	struct ingero_process *process;
	size_t exe = 0, line;
	long n = SYS4(SYS_readlink, "/proc/self/exe", text, 4095, 0);

	if (n > 0)
		exe = (size_t)n;
	text[exe++] = 0;
	line = read_file("/proc/self/cmdline", text + exe, sizeof(text) - exe - 1);
	while (line && text[exe + line - 1] == 0)
		line--;
	for (size_t i = 0; i < line; i++)
		if (text[exe + i] == 0)
			text[exe + i] = 0x1f;
	text[exe + line] = 0;
	process = ingero_reserve(t, INGERO_RECORD_PROCESS, sizeof(*process) + exe + line + 1);
	process->text_bytes = (__u32)(exe + line + 1);
	process->ticks = ingero_ticks();
	memcpy(process + 1, text, exe + line + 1);
	ingero_commit(t);
}

/* The first thread of a session describes the process. */
void ingero_emit_start_records(struct thread_state *t)
{
	struct process *p = ingero_process;
	uint64_t begin = ingero_ticks(), end;
	struct ingero_self_cost *self;
	bool first;

	ingero_lock();
	first = p->knots == 0;
	if (first)
		p->knots = 1;
	ingero_unlock();
	ingero_knot(t);
	if (!first)
		return;
	emit_process(t);
	ingero_emit_all_coverage(t);
	ingero_nvtx_flush(t);
	ingero_knot(t);
	end = ingero_ticks();
	self = ingero_reserve(t, INGERO_RECORD_SELF, sizeof(*self));
	self->start_ticks = begin;
	self->duration_ticks = end - begin;
	ingero_commit(t);
}

/* ---- load and exit ------------------------------------------------------- */

static bool is_set(const char *name)
{
	const char *value = env(name);

	return value && *value && strcmp(value, "0") != 0;
}

/* At load, while there is one thread, or before: a library's constructor. */
static void load(void)
{
	const char *clock = env("INGERO_CLOCK"), *apis = env("INGERO_APIS");
	struct process *p;

	ingero_libraries = 0;
	stderr_identity(stderr_at_load);
	disabled = is_set("INGERO_DISABLE");
	clears_deepbind = is_set("INGERO_CLEAR_DEEPBIND");
	if (disabled)
		return;
	p = ingero_wiped_memory(sizeof(*p));
	if (!p) {
		disabled = true;
		note_odd("MADV_WIPEONFORK", "needs Linux 4.14 or later");
		return;
	}
	wants_monotonic = clock && strcmp(clock, "monotonic") == 0;
	if (clock && *clock && !wants_monotonic && strcmp(clock, "tsc") != 0)
		note_odd("INGERO_CLOCK", "is neither \"tsc\" nor \"monotonic\"");
	choose_classes();
	/* Whoever holds its lock must give back the same one: never changes again. */
	ingero_process = p;
	ingero_loader_watch_forks();
	if (apis && *apis)
		ingero_cover_choice(apis, ingero_libraries);
}

bool ingero_once_begin(uint32_t *done, enum once_id id)
{
	uint32_t *being_done = &ingero_process->being_done[id];

	while (!__atomic_load_n(done, __ATOMIC_ACQUIRE)) {
		if (__atomic_exchange_n(being_done, 1, __ATOMIC_ACQUIRE)) {
			SYS4(SYS_sched_yield, 0, 0, 0, 0);
			continue;
		}
		if (!__atomic_load_n(done, __ATOMIC_ACQUIRE))
			return true;
		__atomic_store_n(being_done, 0, __ATOMIC_RELEASE);
	}
	return false;
}

void ingero_once_end(uint32_t *done, enum once_id id)
{
	__atomic_store_n(done, 1, __ATOMIC_RELEASE);
	__atomic_store_n(&ingero_process->being_done[id], 0, __ATOMIC_RELEASE);
}

/*
 * From the shim's constructor, or from a library's that runs before it and
 * looks something up: there is one thread, and no other way to be early.
 */
static void load_once(void)
{
	static bool loaded;

	if (likely(loaded))
		return;
	loaded = true;
	load();
}

bool ingero_keeps_deepbind(void)
{
	load_once();
	return disabled || !clears_deepbind;
}

/* The clock at the first use of CUDA: no process without is to pay for it. */
static bool ready(void)
{
	static uint32_t clock_chosen;

	load_once();
	if (disabled)
		return false;
	if (unlikely(!__atomic_load_n(&clock_chosen, __ATOMIC_ACQUIRE))) {
		/* No handler may wait for the thread that it interrupts. */
		uint64_t mask = sys_block_signals();

		if (ingero_once_begin(&clock_chosen, ONCE_CLOCK)) {
			choose_clock();
			ingero_once_end(&clock_chosen, ONCE_CLOCK);
		}
		sys_restore_signals(mask);
	}
	return ingero_process->begun != FAILED;
}

bool ingero_process_ready(void)
{
	bool is_ready = ready();
	const char *odd = odd_setting;

	if (unlikely(odd != NULL)) {
		odd_setting = NULL;
		if (is_ready)
			say("ingero: ", odd, odd_because);
		else
			ingero_complain(odd, odd_because);
	}
	return is_ready;
}

__attribute__((constructor)) static void at_load(void)
{
	load_once();
	ingero_libraries_sweep();
}

/* Calls of later exit handlers are still recorded. */
__attribute__((destructor)) static void at_exit(void)
{
	struct process *p = ingero_process;
	struct thread_state *t = ingero_tls.state;

	if (!p->header || ingero_tls.busy)
		return;
	ingero_tls.busy++;
	if (begin_anew(p)) {
		t = ingero_attach_anew();
		if (t)
			call_open(t);
	}
	if (t && t->slot && t->open) {
		call_close(t);
		ingero_knot(t);
		ingero_emit_all_coverage(t); /* libraries come without a change */
		call_open(t);
	}
	ingero_retire_all();
	__atomic_store_n(&p->header->exited, 1, __ATOMIC_RELEASE);
	ingero_tls.busy--;
}
