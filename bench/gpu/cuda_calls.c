/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes CUDA calls in blocks, on request: cuda_calls SOCKET LIBCUDART
 *
 * Connects to the Unix socket, says "ready PID" and obeys, a line each:
 *
 *   pin 1,2,3      this thread stays on these CPUs; answer "ok"
 *   launch N       N launches of an empty kernel, synchronised every 200
 *   copy N         N times cudaMemcpyAsync of 64 bytes, likewise
 *   query N        N times cudaStreamQuery of an idle stream
 *                  answer: "ns NANOSECONDS"
 *   quit           answer: "made FUNCTION=COUNT ...", and a normal exit
 *
 * Before each timed block come some calls that are not timed. Linked with no
 * CUDA: the library is opened as given, so one binary runs anywhere, and every
 * function is looked up by name as plug-ins do.
 */
#include <dlfcn.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define SYNC_EVERY 200
#define WARM_CALLS 200
#define BYTES 64

struct grid {
	unsigned x, y, z;
};

/* X(name, parameters), as in CUDA 13's headers. */
#define FUNCTIONS(X)                                                                               \
	X(cudaFree, (void *))                                                                      \
	X(cudaMalloc, (void **, size_t))                                                           \
	X(cudaMallocHost, (void **, size_t))                                                       \
	X(cudaStreamCreate, (void **))                                                             \
	X(cudaLibraryLoadData,                                                                     \
	  (void **, const void *, void *, void **, unsigned, void *, void **, unsigned))           \
	X(cudaLibraryGetKernel, (void **, void *, const char *))                                   \
	X(cudaLaunchKernel, (const void *, struct grid, struct grid, void **, size_t, void *))     \
	X(cudaMemcpyAsync, (void *, const void *, size_t, int, void *))                            \
	X(cudaStreamQuery, (void *))                                                               \
	X(cudaStreamSynchronize, (void *))

#define X(name, parameters)                                                                        \
	static int(*p_##name) parameters;                                                          \
	static uint64_t n_##name;
FUNCTIONS(X)
#undef X
#define CALL(name, ...) (++n_##name, check(p_##name(__VA_ARGS__), #name))

static const char null_kernel[] = ".version 7.8\n.target sm_75\n.address_size 64\n"
				  ".visible .entry null_kernel() { ret; }\n";

static FILE *line_in, *line_out;
static void *stream, *device_memory, *host_memory;
static const void *kernel;
static uint64_t kernel_ns = 1000; /* of the simulated one */
static void *kernel_arguments[] = {&kernel_ns};

static void fail(const char *what, const char *why)
{
	fprintf(line_out ? line_out : stderr, "error %s: %s\n", what, why);
	if (line_out)
		fflush(line_out);
	exit(1);
}

static void check(int status, const char *function)
{
	char text[32];

	if (__builtin_expect(status != 0, 0)) {
		snprintf(text, sizeof(text), "status %d", status);
		fail(function, text);
	}
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void launch(long n)
{
	const struct grid one = {1, 1, 1};

	for (long i = 1; i <= n; i++) {
		CALL(cudaLaunchKernel, kernel, one, one, kernel_arguments, 0, stream);
		if (i % SYNC_EVERY == 0 || i == n)
			CALL(cudaStreamSynchronize, stream);
	}
}

static void copy(long n)
{
	for (long i = 1; i <= n; i++) {
		CALL(cudaMemcpyAsync, device_memory, host_memory, BYTES, 1, stream);
		if (i % SYNC_EVERY == 0 || i == n)
			CALL(cudaStreamSynchronize, stream);
	}
}

static void query(long n)
{
	for (long i = 0; i < n; i++)
		CALL(cudaStreamQuery, stream);
}

static void prepare(const char *path)
{
	void *cudart = dlopen(path, RTLD_NOW), *library = NULL;

	if (!cudart)
		fail(path, dlerror());
#define X(name, parameters)                                                                        \
	*(void **)&p_##name = dlsym(cudart, #name);                                                \
	if (!p_##name)                                                                             \
		fail(path, "has no " #name);
	FUNCTIONS(X)
#undef X
	CALL(cudaFree, NULL);
	CALL(cudaMalloc, &device_memory, BYTES);
	CALL(cudaMallocHost, &host_memory, BYTES);
	CALL(cudaStreamCreate, &stream);
	/* The simulated runtime compiles nothing and brings a kernel. */
	kernel = dlsym(cudart, "fake_kernel_ns");
	if (!kernel) {
		CALL(cudaLibraryLoadData, &library, null_kernel, NULL, NULL, 0, NULL, NULL, 0);
		CALL(cudaLibraryGetKernel, (void **)&kernel, library, "null_kernel");
	}
}

static void connect_to(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	strncpy(address.sun_path, path, sizeof(address.sun_path) - 1);
	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
		perror("cuda_calls: socket");
		exit(1);
	}
	line_in = fdopen(fd, "r");
	line_out = fdopen(dup(fd), "w");
	if (!line_in || !line_out)
		exit(1);
}

static void pin(char *list)
{
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	for (char *word = strtok(list, ","); word; word = strtok(NULL, ","))
		CPU_SET(atoi(word), &cpus);
	if (sched_setaffinity(0, sizeof(cpus), &cpus) != 0)
		fail("sched_setaffinity", "refused");
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(long n);
	} workloads[] = {{"launch ", launch}, {"copy ", copy}, {"query ", query}};
	char line[256];

	if (argc != 3) {
		fprintf(stderr, "usage: cuda_calls SOCKET LIBCUDART\n");
		return 2;
	}
	connect_to(argv[1]);
	prepare(argv[2]);
	fprintf(line_out, "ready %d\n", (int)getpid());
	fflush(line_out);
	while (fgets(line, sizeof(line), line_in)) {
		if (strncmp(line, "quit", 4) == 0) {
			fprintf(line_out, "made");
#define X(name, parameters) fprintf(line_out, " " #name "=%llu", (unsigned long long)n_##name);
			FUNCTIONS(X)
#undef X
			fprintf(line_out, "\n");
			fflush(line_out);
			return 0;
		}
		if (strncmp(line, "pin ", 4) == 0) {
			pin(line + 4);
			fprintf(line_out, "ok\n");
		}
		for (size_t i = 0; i < sizeof(workloads) / sizeof(*workloads); i++) {
			const size_t length = strlen(workloads[i].name);
			uint64_t begin;

			if (strncmp(line, workloads[i].name, length) != 0)
				continue;
			workloads[i].run(WARM_CALLS);
			begin = now_ns();
			workloads[i].run(atol(line + length));
			fprintf(line_out, "ns %llu\n", (unsigned long long)(now_ns() - begin));
		}
		fflush(line_out);
	}
	return 1; /* compare.py is gone */
}
