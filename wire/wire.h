/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The contract between the recorders and the readers.
 *
 * Three programs include this file unchanged: the preload shim (C), the BPF
 * programs (C, BPF target) and merge (C++20). Fixed-width types only; explicit
 * padding; little endian (the magic shows it).
 *
 * How to change it
 *   - Enum values and field offsets are on disk: append, never renumber, never
 *     move. Retired values stay as comments.
 *   - A new record kind needs no version: readers skip unknown kinds by size
 *     and count them. A changed layout bumps INGERO_WIRE_MINOR (old readers
 *     still work) or INGERO_WIRE_MAJOR (they must refuse), updates
 *     tests/wire/layout.golden and docs/formats.md in one commit.
 *
 * Vocabulary
 *   stream  one file written by one recorder (a traced process, or the kernel
 *           companion)
 *   block   64 KiB unit of a CUDA stream file; block 0 is the stream header
 *   slot    a block that one thread appends to in place (mapped, shared)
 *   record  what happened, 8-byte aligned, framed by struct ingero_record
 *   ticks   the time stamp counter as read by rdtsc (INGERO_CLOCK_TSC), or
 *           CLOCK_MONOTONIC ns where the TSC is not usable
 *
 * A CUDA stream file
 *
 *     block 0        struct ingero_stream_header, zero-filled to 64 KiB
 *     block 1..n     struct ingero_block_header, then records
 *
 * A thread claims a LIVE block (its slot), appends records to the mapping and
 * publishes each by a release store of `cursor`. When full it writes the
 * records to a fresh DATA block with one pwrite and resets the slot by one
 * release store of `cursor` = (sequence + 1) << 32. So a reader that finds a
 * LIVE block and a DATA block with equal (slot, sequence) has the same records
 * twice and drops the LIVE copy; there is no instant at which a record is in
 * neither. A block that is all zeros was reserved and never written. DATA blocks
 * and the fixed part of the stream header carry CRC-32Cs.
 *
 * A kernel stream file is a struct ingero_stream_header (padded to
 * header_bytes) followed by coded blocks; see base/block_codec.h. So is a code
 * stream file: where Python code was, as seen from outside.
 */
#ifndef INGERO_WIRE_H
#define INGERO_WIRE_H

#ifdef __bpf__
/* kernel_types.h defines __u8 .. __u64 before this file is included. */
#else
#include <linux/types.h>
#endif

#define INGERO_MAGIC_CUDA 0x3141445543474e49ULL   /* "INGCUDA1" */
#define INGERO_MAGIC_KERNEL 0x314e524b47474e49ULL /* "INGGKRN1" */
#define INGERO_MAGIC_CODE 0x3145444f43474e49ULL   /* "INGCODE1" */
#define INGERO_MAGIC_BLOCK 0x4b4c4249U            /* "IBLK" */
#define INGERO_WIRE_MAJOR 1
#define INGERO_WIRE_MINOR 1 /* 1: checks (enum ingero_check) */

#define INGERO_BLOCK_BYTES 65536
#define INGERO_HEADER_BYTES 4096
#define INGERO_INFLIGHT_DEPTH 4
#define INGERO_CALL_WORDS_MAX 4
#define INGERO_COMM_LEN 16

enum ingero_clock {
	INGERO_CLOCK_TSC = 1,       /* ticks are rdtsc; KNOT records map them */
	INGERO_CLOCK_MONOTONIC = 2, /* ticks are CLOCK_MONOTONIC ns */
};

/* ---- losses ------------------------------------------------------------ */

/*
 * Every way in which data can be missing. The ids are on disk. The text says
 * what happened and what to change; reports print it.
 * X(id, value, kebab-id, severity, text)   severity: 2 data lost, 1 notice
 */
#define INGERO_LOSSES(X)                                                                             \
	X(LOSS_WRITE_FAILED, 1, "write-failed", 2,                                                   \
	  "a full buffer could not be written out; free disk space or set INGERO_DIR elsewhere")     \
	X(LOSS_NO_SLOT, 2, "no-slot", 2,                                                             \
	  "a thread got no buffer (no space or no memory); its calls were not recorded")             \
	X(LOSS_REENTRANT, 3, "reentrant", 2,                                                         \
	  "a call was made from inside the recorder (signal handler or allocator hook)")             \
	X(LOSS_UNRESOLVED, 4, "unresolved", 1,                                                       \
	  "a function was called through a pointer that was resolved before the shim saw it")        \
	X(LOSS_RING_OVERWRITTEN, 5, "ring-overwritten", 1,                                           \
	  "INGERO_BUFFER=ring kept only the newest data, as asked")                                  \
	X(LOSS_NAMES, 6, "names-dropped", 2,                                                         \
	  "names of functions, kernels or ranges were cut or given up (too long, too many, or no "   \
	  "space or memory); what they name is recorded without")                                    \
	X(LOSS_RANGES, 7, "ranges-dropped", 2,                                                       \
	  "NVTX ranges were not recorded: over 64 within each other, over 1,024 at once by start "   \
	  "and end, over 256 open or 768 ended before the first CUDA call, no space or memory, or "  \
	  "whether they ended is in data that was lost")                                             \
	X(LOSS_CAPTURES, 8, "captures-dropped", 2,                                                   \
	  "more streams or events were captured at once than ingero follows (32, 64); some "         \
	  "captured calls are shown as executed")                                                    \
	X(LOSS_DELETED, 9, "stream-deleted", 2,                                                      \
	  "a process's trace file was deleted while it ran; the count is its 64 KiB blocks, of up "  \
	  "to 2,700 calls each")                                                                     \
	X(LOSS_SWITCH_RING_FULL, 16, "switch-ring-full", 2,                                          \
	  "context switches came faster than ingero-kprobe could read; use a larger --buffer")       \
	X(LOSS_TASK_RING_FULL, 17, "task-ring-full", 2,                                              \
	  "fork/exec/exit records did not fit; use a larger --buffer")                               \
	X(LOSS_TASK_STORAGE, 18, "task-storage", 2,                                                  \
	  "no task storage for a thread; its waker, page counts and wake time are missing")          \
	X(LOSS_WRITER_BEHIND, 19, "writer-behind", 2,                                                \
	  "the disk was slower than the kernel events; the queue bound was reached")                 \
	X(LOSS_BPF_MISSED, 20, "bpf-missed", 2,                                                      \
	  "the kernel skipped a BPF program (recursion); that event is missing")                     \
	X(LOSS_SWITCH_UNSEEN, 21, "switch-unseen", 1,                                                \
	  "the kernel did not show a context switch to BPF (a protected or hidden task); thread "    \
	  "states around it are unknown")                                                            \
	X(LOSS_PAGE_RING_FULL, 22, "page-ring-full", 2,                                              \
	  "page allocations (--pages raw) came faster than ingero-kprobe could read; use a larger "  \
	  "--buffer, or --pages counts")                                                             \
	X(LOSS_CODE_SAMPLES, 23, "code-samples", 1,                                                   \
	  "where Python code was could not be told: its memory changed while it was read; these "     \
	  "samples were left out")                                                                   \
	X(LOSS_CODE_PROCESS, 24, "code-process", 1,                                                  \
	  "Python processes whose code was not looked at; `ingero run --where` said why")            \
	X(LOSS_DAMAGED_BLOCK, 32, "damaged-block", 2,                                                \
	  "a block of a stream failed its check and was skipped")                                    \
	X(LOSS_TORN_TAIL, 33, "torn-tail", 1,                                                        \
	  "a stream's end is missing (its writer was killed, or the file was cut)")                  \
	X(LOSS_UNKNOWN_KIND, 34, "unknown-kind", 1,                                                  \
	  "records of a newer ingero were skipped; merge with that version")                         \
	X(LOSS_NO_CLOCK, 35, "no-clock", 2,                                                          \
	  "a stream holds no usable clock samples; its calls could not be placed in time")           \
	X(LOSS_NOT_IMPORTED, 36, "not-imported", 2,                                                  \
	  "events of the scheduler are not in what was imported: perf lost them (record with "       \
	  "larger buffers: perf record -m 16M), its text was cut, or the kernel did not show them")

enum ingero_loss {
#define X(id, value, kebab, severity, text) INGERO_##id = value,
	INGERO_LOSSES(X)
#undef X
	INGERO_LOSS_MAX = 64
};

/* ---- stream header ------------------------------------------------------ */

/*
 * Whether a header carries CRC-32Cs. Of many bits, so that a damaged one is
 * neither value.
 */
enum ingero_check {
	INGERO_CHECK_NONE = 0, /* written by version 1.0, or a LIVE block */
	INGERO_CHECK_CRC32C = 0x43435243, /* "CRCC" */
};

/*
 * First bytes of every stream file. Written once by the recorder before any
 * block, except the fields under "live", which the recorder updates in place
 * (naturally aligned 8-byte stores) while it runs.
 */
struct ingero_stream_header {
	__u64 magic;        /* INGERO_MAGIC_* */
	__u16 major;        /* INGERO_WIRE_MAJOR */
	__u16 minor;
	__u32 header_bytes; /* INGERO_HEADER_BYTES */
	__u64 features;     /* reserved, 0 */
	__u32 clock;        /* enum ingero_clock */
	__u32 block_bytes;  /* INGERO_BLOCK_BYTES; 0 in a kernel stream */
	__u64 stream_id;    /* random, never 0 */
	__u8 boot_id[16];   /* /proc/sys/kernel/random/boot_id, binary */
	__u64 created_mono_ns; /* CLOCK_MONOTONIC of the recorder's own time namespace */
	__u64 created_real_ns; /* CLOCK_REALTIME at the same moment */
	__s64 monotonic_offset_ns; /* own CLOCK_MONOTONIC minus the host's (time namespace) */
	__u64 tsc_hz;       /* nominal, 0 = unknown; never used where knots exist */
	__u32 pid;          /* recorder's process, as it sees itself */
	__u32 uid;
	__u64 start_clock_ticks; /* field 22 of /proc/self/stat: process start since boot */
	__u32 clock_ticks_per_s; /* sysconf(_SC_CLK_TCK), 100 on Linux */
	__u32 parent_pid;
	__u64 pid_namespace; /* inode of /proc/self/ns/pid */
	char comm[INGERO_COMM_LEN];
	char host[64];
	char tool_version[32];
	__u64 cpus_allowed; /* of the process (sched_getaffinity); 0 = not known */
	__u32 check;        /* enum ingero_check */
	__u32 check_crc;    /* of what lies before `blocks_reserved`, this as 0 */
	__u64 run_id;       /* INGERO_RUN: the `ingero run` that it is of; 0 = none */
	__u64 reserved[17];

	/* live */
	__u64 blocks_reserved;  /* blocks handed out so far, block 0 included; code streams: coded
				 * blocks in all, once it has ended (0 before) */
	__u64 calls_skipped;    /* calls left out (INGERO_APIS), total */
	__u64 exited;           /* 1 once the exit handler ran */
	__u64 lost[INGERO_LOSS_MAX]; /* by enum ingero_loss; kernel: those that no row tells */
};

enum ingero_block_type {
	INGERO_BLOCK_LIVE = 1, /* a slot; `cursor` tells what is valid */
	INGERO_BLOCK_DATA = 2, /* written out; `cursor` is final */
};

enum ingero_slot_state {
	INGERO_SLOT_FREE = 0,
	INGERO_SLOT_OWNED = 1,   /* a live thread appends */
	INGERO_SLOT_RETIRED = 2, /* its thread ended; contents still valid */
};

/* A call that has been entered and has not returned. func 0 = none. */
struct ingero_inflight {
	__u64 start_ticks;
	__u32 func;
	__u32 reserved;
};

struct ingero_block_header {
	__u32 magic;   /* INGERO_MAGIC_BLOCK */
	__u16 type;    /* enum ingero_block_type */
	__u16 state;   /* enum ingero_slot_state (LIVE) */
	__u32 slot;    /* block index of the LIVE block these records came through */
	__u32 tid;     /* owner at the time of writing, as it sees itself */
	/*
	 * low 32 bits: record bytes committed after this header;
	 * high 32 bits: sequence number, unique per slot. Release-stored.
	 */
	__u64 cursor;
	__u64 first_ticks; /* DATA: smallest start_ticks within; 0 = unknown */
	__u64 last_ticks;  /* DATA: ticks at write-out */
	__u32 check;       /* enum ingero_check; DATA only: a slot moves on */
	__u32 header_crc;  /* of this header, this as 0 */
	/*
	 * Of the records, which lie in four parts of bytes / 32 words each, the
	 * last with what is left over: the CRC of the parts' four CRCs. The
	 * instruction takes 3 cycles and starts one each cycle.
	 */
	__u32 records_crc;
	__u32 reserved[3];
	struct ingero_inflight inflight[INGERO_INFLIGHT_DEPTH]; /* LIVE, by depth */
};

/* ---- records ------------------------------------------------------------ */

/*
 * Kinds on disk: append, never renumber or reuse. STACK is reserved now so
 * that readers of this version skip it knowingly.
 */
#define INGERO_RECORDS(X)                     \
	X(CALL, 1, struct ingero_call)        \
	X(THREAD, 2, struct ingero_thread)    \
	X(KNOT, 3, struct ingero_knot)        \
	X(NAME, 4, struct ingero_name)        \
	X(KERNEL, 5, struct ingero_kernel)    \
	X(LOSS, 6, struct ingero_loss_range)  \
	X(SELF, 7, struct ingero_self_cost)   \
	X(PROCESS, 8, struct ingero_process)  \
	X(COVERAGE, 9, struct ingero_coverage) \
	X(NVTX, 32, struct ingero_nvtx)       \
	X(GPU_ACTIVITY, 33, struct ingero_gpu_activity) \
	X(NVTX_NAME, 35, struct ingero_nvtx_name) \
	X(NVTX_BEGIN, 36, struct ingero_nvtx_begin)

enum ingero_record_kind {
#define X(id, value, type) INGERO_RECORD_##id = value,
	INGERO_RECORDS(X)
#undef X
	INGERO_RECORD_STACK = 34,
};

/* Framing: first 4 bytes of each record. size8 counts the whole record. */
struct ingero_record {
	__u8 kind;   /* enum ingero_record_kind; 0 never occurs */
	__u8 flags;  /* per kind */
	__u16 size8; /* size in 8-byte units, framing included; >= 1 */
};

enum ingero_call_flags {
	INGERO_CALL_FIRST_USE = 1 << 0, /* first launch of this kernel in this process */
	INGERO_CALL_CAPTURED = 1 << 1,  /* stream is being captured: recorded, not executed */
	/* Imported copies: what the host's side is. The shim's are judged by merge. */
	INGERO_CALL_HOST_PINNED = 1 << 2,
	INGERO_CALL_HOST_PAGEABLE = 1 << 3,
	/* bits 4..6: enum ingero_copy_direction */
	INGERO_CALL_DIRECTION_SHIFT = 4,
};

enum ingero_copy_direction {
	INGERO_COPY_UNKNOWN = 0,
	INGERO_COPY_H2D = 1,
	INGERO_COPY_D2H = 2,
	INGERO_COPY_D2D = 3,
	INGERO_COPY_H2H = 4,
	INGERO_COPY_PEER = 5,
	INGERO_COPY_DEFAULT = 6, /* the addresses decide */
};

/*
 * One finished CUDA call: 24 bytes plus 0..4 words, whose meaning the NAME
 * record of `func` gives. Written after the call returns, so a nested call
 * precedes the call that contains it.
 */
struct ingero_call {
	struct ingero_record r;
	__u16 func;   /* stream-local id; its NAME record precedes in some block */
	__u16 result; /* cudaError_t or CUresult, saturated at 0xffff; functions
		       * that return no status record 0 */
	__u64 start_ticks;
	__u32 duration_lo; /* ticks, low 32 bits */
	__u16 duration_hi; /* ticks, bits 32..47 */
	__u8 depth;        /* recorded calls of this thread around it */
	__u8 reserved;
	/* __u64 words[0..4] follow */
};

/* The following calls in this slot are made by this thread. */
struct ingero_thread {
	struct ingero_record r;
	__u32 tid; /* as it sees itself */
	__u64 start_ticks;
	char comm[INGERO_COMM_LEN];
};

/* A paired clock sample: the narrowest of many. Midpoint convention. */
struct ingero_knot {
	struct ingero_record r;
	__u32 window_ticks; /* width of the rdtsc pair around the clock read */
	__u64 ticks;        /* midpoint */
	__u64 mono_ns;      /* CLOCK_MONOTONIC, own time namespace */
};

/* What a call word means. On disk. */
enum ingero_word {
	INGERO_WORD_NONE = 0,
	INGERO_WORD_BYTES = 1,
	INGERO_WORD_STREAM = 2,
	INGERO_WORD_KERNEL = 3, /* host function pointer, CUfunction or CUkernel */
	INGERO_WORD_EVENT = 4,
	INGERO_WORD_DST = 5,    /* address */
	INGERO_WORD_SRC = 6,    /* address */
	INGERO_WORD_ADDRESS = 7, /* allocated (after success) or freed */
	INGERO_WORD_DEVICE = 8,
	INGERO_WORD_CONTEXT = 9,
	INGERO_WORD_GRAPH = 10,
	INGERO_WORD_BLOCKS = 11, /* thread blocks of the launch */
	INGERO_WORD_MODULE = 12,
	INGERO_WORD_FLAGS = 13,
	/*
	 * Of imported calls that submit: bits 48..63 the device, bits 0..47 ticks
	 * from the call's start until the GPU had finished all that it gave; 0 =
	 * not known. The shim can't know it.
	 */
	INGERO_WORD_GPU_WORK = 14,
};

#define INGERO_GPU_WORK_DEVICE_SHIFT 48

/*
 * What a function does, as far as the analysis cares. On disk: append only.
 * X(id, value, name)
 */
#define INGERO_CLASSES(X)                                                          \
	X(OTHER, 0, "other")                                                       \
	X(LAUNCH, 1, "launch")             /* kernel: submits to WORD_STREAM */    \
	X(GRAPH_LAUNCH, 2, "graph-launch") /* submits */                           \
	X(COPY, 3, "copy")                 /* host waits (documented sync) */      \
	X(COPY_ASYNC, 4, "copy-async")     /* submits */                           \
	X(MEMSET, 5, "memset")                                                     \
	X(MEMSET_ASYNC, 6, "memset-async")                                         \
	X(ALLOC, 7, "alloc")               /* device memory */                     \
	X(ALLOC_ASYNC, 8, "alloc-async")                                           \
	X(ALLOC_HOST, 9, "alloc-host")     /* pinned or registered host memory */  \
	X(ALLOC_MANAGED, 10, "alloc-managed")                                      \
	X(FREE, 11, "free")                /* implicit device sync */              \
	X(FREE_ASYNC, 12, "free-async")                                            \
	X(FREE_HOST, 13, "free-host")                                              \
	X(SYNC_DEVICE, 14, "sync-device")  /* device or context */                 \
	X(SYNC_STREAM, 15, "sync-stream")                                          \
	X(SYNC_EVENT, 16, "sync-event")                                            \
	X(QUERY_STREAM, 17, "query-stream") /* success = drained */                \
	X(QUERY_EVENT, 18, "query-event")                                          \
	X(EVENT_RECORD, 19, "event-record")                                        \
	X(STREAM_WAIT_EVENT, 20, "stream-wait-event")                              \
	X(CONTEXT, 21, "context")          /* create, set, push, primary */        \
	X(DEVICE, 22, "device")            /* cudaSetDevice and kin */             \
	X(MODULE, 23, "module")            /* module/library load, get function */ \
	X(HOST_FUNC, 24, "host-func")                                              \
	X(CAPTURE, 25, "capture")                                                  \
	X(GRAPH, 26, "graph")                                                      \
	X(RESOLVE, 27, "resolve")          /* cuGetProcAddress and kin */          \
	X(GETTER, 28, "getter")            /* trivial; left out by default */      \
	X(STREAM, 29, "stream")            /* create, destroy */                   \
	X(EVENT, 30, "event")              /* create, destroy, elapsed */          \
	X(PREFETCH, 31, "prefetch")                                                \
	X(REGISTER, 32, "register")        /* fat binary and function tables */    \
	/* Entry points of libraries, LAYER_LIBRARY: recorded on request. */       \
	X(NCCL, 33, "nccl")                                                        \
	X(CUBLAS, 34, "cublas")                                                    \
	X(CUBLASLT, 35, "cublaslt")                                                \
	X(CUDNN, 36, "cudnn")

enum ingero_class {
#define X(id, value, name) INGERO_CLASS_##id = value,
	INGERO_CLASSES(X)
#undef X
	INGERO_CLASS_MAX = 64
};

enum ingero_layer {
	INGERO_LAYER_RUNTIME = 1,
	INGERO_LAYER_DRIVER = 2,
	INGERO_LAYER_LIBRARY = 3, /* NCCL, cuBLAS, ... */
};

/* Row of the stream's id-to-name table. Precedes or follows its calls. */
struct ingero_name {
	struct ingero_record r;
	__u16 func;
	__u8 layer;      /* enum ingero_layer */
	__u8 func_class; /* enum ingero_class */
	__u8 words[INGERO_CALL_WORDS_MAX]; /* enum ingero_word of each word */
	__u32 reserved;
	/* name, NUL-terminated, padded to 8: exact entry point */
};

/* A kernel's name, once per kernel before or soon after its first launch. */
struct ingero_kernel {
	struct ingero_record r;
	__u32 reserved;
	__u64 kernel; /* the word that launches carry */
	/* mangled name, NUL-terminated, padded to 8 */
};

/* In a CUDA stream times are ticks; see base/tables.h for kernel streams. */
struct ingero_loss_range {
	struct ingero_record r;
	__u32 loss; /* enum ingero_loss */
	__u64 count;
	__u64 first_ticks;
	__u64 last_ticks;
};

/* Time the recorder itself took on this thread (write-outs, set-up). */
struct ingero_self_cost {
	struct ingero_record r;
	__u32 bytes; /* written */
	__u64 start_ticks;
	__u64 duration_ticks;
};

/* Facts of the process; a text follows: exe NUL cmdline (args by 0x1f) NUL. */
struct ingero_process {
	struct ingero_record r;
	__u32 text_bytes;
	__u64 ticks;
};

enum ingero_coverage_way {
	INGERO_WAY_MAPPED = 1,   /* a CUDA library is mapped: text = its real path */
	INGERO_WAY_LINKED = 2,   /* reached through the PLT */
	INGERO_WAY_DLSYM = 3,
	INGERO_WAY_PROC_ADDRESS = 4,
	INGERO_WAY_ESCAPED = 5,  /* handed out unwrapped: text = name, detail = why */
	INGERO_WAY_DRIVER_ENTRY = 6, /* by cudaGetDriverEntryPoint and kin */
	/* A module that took cuGetProcAddress by dlsym, as a runtime does: text =
	 * its path. One that is no libcudart has a runtime linked in. */
	INGERO_WAY_ASKED_BY = 7,
	/* Opened with RTLD_DEEPBIND: text = the file. detail 0: the shim cleared
	 * the bit; 1: it was kept, and the library's own CUDA calls go unseen. */
	INGERO_WAY_DEEPBIND = 8,
	/* Functions that were resolved by the way in detail: text = names,
	 * separated by blanks; count = how many. */
	INGERO_WAY_ENTRIES = 9,
	/* Not of the shim: what the companion saw of a process that has a CUDA
	 * library mapped. text = its path, count = enum ingero_cuda_process. */
	INGERO_WAY_PROCESS = 10,
	/* INGERO_APIS was set: text = its value, detail = bit per class of a
	 * library that it asks for, INGERO_CLASS_NCCL first. */
	INGERO_WAY_CHOICE = 11,
	/* A library whose functions are recorded by name: text = its path,
	 * detail = its class, count = functions. */
	INGERO_WAY_LIBRARY = 12,
	/* Not recorded by ingero: text = where from, detail = 1: what the GPU did
	 * is known, too. */
	INGERO_WAY_IMPORTED = 13,
};

enum ingero_escape_reason {
	INGERO_ESCAPE_UNKNOWN = 0, /* no wrapper for that name or address */
	INGERO_ESCAPE_COPY = 1,    /* of a second copy of its library */
	INGERO_ESCAPE_NO_THUNK = 2,  /* of a library: its bound is reached */
	INGERO_ESCAPE_NEXT = 3,      /* of a library: asked for with RTLD_NEXT */
	INGERO_ESCAPE_READ_ONLY = 4, /* of a library: the reference cannot be written */
	INGERO_ESCAPE_LATE = 5,      /* of a library: the loader bound the reference
				      * behind the shim's back; calls until that was
				      * found went unseen */
	INGERO_ESCAPE_MODULE = 6,    /* what a module (the text) calls of libraries: it
				      * is not looked into (its path is too long, or
				      * there are too many modules) */
};

/* A process with a CUDA library, as the companion sees it from outside. */
enum ingero_cuda_process {
	INGERO_CUDA_SHIM_MAPPED = 1 << 0,
	INGERO_CUDA_SHIM_ASKED = 1 << 1,    /* LD_PRELOAD names the shim */
	INGERO_CUDA_SECURE = 1 << 2,        /* AT_SECURE: setuid and kin */
	INGERO_CUDA_STATIC = 1 << 3,        /* no dynamic loader */
	INGERO_CUDA_DISABLED = 1 << 4,      /* INGERO_DISABLE is set */
	INGERO_CUDA_CLEAR_DEEPBIND = 1 << 5, /* INGERO_CLEAR_DEEPBIND is set */
	INGERO_CUDA_NO_ENVIRON = 1 << 6,    /* its environment could not be read */
};

/*
 * Counts are totals so far: a later record of the same way, detail and text
 * replaces an earlier one.
 */
struct ingero_coverage {
	struct ingero_record r;
	__u16 way;    /* enum ingero_coverage_way */
	__u16 detail; /* by way; ESCAPED: enum ingero_escape_reason */
	__u64 count;
	/* text, NUL-terminated, padded to 8 */
};

enum ingero_nvtx_kind {
	INGERO_NVTX_NESTED = 1,  /* push and pop: ends on its thread, in order */
	INGERO_NVTX_PROCESS = 2, /* start and end: may end on another thread */
	INGERO_NVTX_MARK = 3,    /* a moment: duration 0 */
};

/* A range that the program marked, written when it ends. r.flags = kind. */
struct ingero_nvtx {
	struct ingero_record r;
	__u32 name;   /* id of an NVTX_NAME record; 0 = no name */
	__u64 start_ticks;
	__u64 duration_ticks;
	__u32 domain; /* id of an NVTX_NAME record; 0 = the default domain */
	__u32 tid;    /* that ended it before the process had a stream; 0 = the slot's */
};

/*
 * Written when a range begins, not for marks; r.flags = kind. Without an NVTX
 * record of the same start, kind, name and domain (and thread, if NESTED) the
 * range was open when the stream ended. Streams of before have none.
 */
struct ingero_nvtx_begin {
	struct ingero_record r;
	__u32 name, domain; /* as in its NVTX record */
	__u32 tid;          /* that began it before the process had a stream; 0 = the slot's */
	__u64 start_ticks;
};

enum ingero_gpu_kind {
	INGERO_GPU_KERNEL = 1,
	INGERO_GPU_COPY = 2,
	INGERO_GPU_MEMSET = 3,
};

/* What a GPU did for the process (imported). r.flags = enum ingero_gpu_kind. */
struct ingero_gpu_activity {
	struct ingero_record r;
	__u16 device;
	__u16 direction; /* of a copy: enum ingero_copy_direction */
	__u64 start_ticks;
	__u64 duration_ticks;
	__u64 stream; /* as in the words of calls */
	__u64 kernel; /* that a KERNEL record names; 0 = none */
	__u64 bytes;
	__u64 call_ticks; /* start of the call that submitted it; 0 = not known */
};

/* A text of NVTX records, once per stream, before or after its first use. */
struct ingero_nvtx_name {
	struct ingero_record r;
	__u32 id;
	/* text, NUL-terminated, padded to 8 */
};

/* ---- kernel events (BPF to companion through rings, never on disk) ------ */

enum ingero_ring_kind {
	INGERO_RING_SWITCH = 1,
	INGERO_RING_TASK = 2,
	INGERO_RING_SWITCH_MORE = 3,
	INGERO_RING_PAGES = 4,
};

/* prev_flags */
enum ingero_switch_flags {
	INGERO_PREV_PREEMPTED = 1 << 0, /* state 0 and not in sched_yield */
	INGERO_PREV_YIELDED = 1 << 1,   /* state 0 inside sched_yield */
	INGERO_PREV_IOWAIT = 1 << 2,    /* task->in_iowait */
	INGERO_PREV_DEAD = 1 << 3,      /* last switch of an exiting task */
	INGERO_PREV_KTHREAD = 1 << 4,
	INGERO_NEXT_KTHREAD = 1 << 5,
	/* With --tree: it is not of the tree. When it comes or goes elsewhere
	 * is not told, only what it does here while one of the tree waits. */
	INGERO_PREV_OUTSIDE = 1 << 6,
	INGERO_NEXT_OUTSIDE = 1 << 7,
	INGERO_WAKE_IRQ = 1 << 8,       /* woken from interrupt: nobody to name */
	INGERO_WAKE_UNKNOWN = 1 << 9,   /* context of the waking not known */
	INGERO_WAKE_NEW = 1 << 10,      /* first run after fork */
	/* With --tree: this is the last of switches of this CPU that were left
	 * out. Who left is not told (tid 0 is not the idle task). */
	INGERO_PREV_LEFT_OUT = 1 << 11,
};

/* task->__state, masked to these bits (kernel's own values). */
#define INGERO_TASK_RUNNING 0x0
#define INGERO_TASK_INTERRUPTIBLE 0x1
#define INGERO_TASK_UNINTERRUPTIBLE 0x2
#define INGERO_TASK_STOPPED 0x4
#define INGERO_TASK_TRACED 0x8
#define INGERO_TASK_STATE_MASK 0xff

/*
 * One context switch: who left and why, who came and since when it was
 * runnable. pids are those of the root namespace; "tgid" is the process.
 */
struct ingero_ring_switch {
	__u8 kind;	    /* INGERO_RING_SWITCH, or _MORE */
	__u8 prev_state;    /* masked __state */
	__u16 flags;	    /* enum ingero_switch_flags */
	__s16 prev_syscall; /* number while asleep; -1 = none (page fault, kthread) */
	__u16 cpu;
	__u64 t_ns; /* CLOCK_MONOTONIC (bpf_ktime_get_ns) */
	__u32 prev_tid;
	__u32 prev_tgid;
	__u32 next_tid; /* 0 = idle */
	__u32 next_tgid;
	__u64 wake_ns; /* when next was woken; 0 = it was not asleep or unknown */
	__u32 waker_tid; /* meaningful without WAKE_IRQ / WAKE_UNKNOWN */
	__u32 waker_tgid;
	__u64 prev_arg0; /* first two syscall arguments */
	__u64 prev_arg1;
};

/*
 * Follows a switch of kind INGERO_RING_SWITCH_MORE, in a slot of its own: what
 * most switches have none of. Counters are what `prev` accrued since its
 * previous switch-out.
 */
struct ingero_ring_switch_more {
	__u32 prev_pages; /* pages allocated (order expanded), with those that
			   * PAGES events told before */
	__u32 prev_large_allocs; /* allocations of order >= 4 */
	__u32 prev_min_faults;
	__u32 prev_maj_faults;
	__u32 prev_kernel_us; /* of its CPU time, in the kernel (tsk->stime: sampled
			       * by the tick unless VIRT_CPU_ACCOUNTING_GEN) */
	__u32 reserved;
	__u64 next_throttled_ns; /* of the time that next was runnable just
				  * now: its cgroup was out of CPU quota */
	__u64 unused[4];
};

/* One allocation of pages, where each is asked for (--pages raw). */
struct ingero_ring_pages {
	__u8 kind; /* INGERO_RING_PAGES */
	__u8 order; /* 2^order pages */
	__u16 cpu;
	__u32 tid;
	__u64 t_ns;
	__u32 tgid;
	__u32 reserved;
};

enum ingero_task_event {
	INGERO_TASK_EVENT_FORK = 1,   /* a new process or thread */
	INGERO_TASK_EVENT_EXEC = 2,
	INGERO_TASK_EVENT_EXIT = 3,   /* a thread ended; code is valid */
	INGERO_TASK_EVENT_RENAME = 4,
	INGERO_TASK_EVENT_OOM_KILL = 5,
	/* 6 was never written: the code of EXIT has the signal. */
	INGERO_TASK_EVENT_EXISTING = 7, /* taken from /proc when recording began */
	INGERO_TASK_EVENT_PAGES = 8,  /* so far, of a thread that has not switched:
				       * code = pages since its last such event */
	INGERO_TASK_EVENT_CGROUP = 9, /* moved to another cgroup; code = 1: its
				       * whole process was */
	/* It had to free memory itself before it got some (direct reclaim, or
	 * within its cgroup's limit), until now; code = ns since its last such
	 * event, told from INGERO_STALL_TOLD_NS on. */
	INGERO_TASK_EVENT_RECLAIM = 10,
	INGERO_TASK_EVENT_COMPACTION = 11, /* likewise: it moved pages together */
};

struct ingero_ring_task {
	__u32 kind;  /* INGERO_RING_TASK */
	__u16 event; /* enum ingero_task_event */
	__u16 cpu;
	__u64 t_ns;
	__u32 tid;
	__u32 tgid;
	__u32 parent_tid;
	__u32 parent_tgid;
	__u64 start_ns; /* of the process (group leader), boot time clock */
	__u32 ns_tid;   /* in the innermost pid namespace */
	__u32 ns_tgid;
	__u64 pid_namespace; /* inode */
	__u64 cgroup_id;
	__s64 code; /* exit code as wait() has it, pages, ns: by event; of FORK and
		     * EXISTING: 1 = of the tree that --tree names */
	char comm[INGERO_COMM_LEN];
};

/* ---- assertions --------------------------------------------------------- */

#ifdef __cplusplus
#define INGERO_STATIC_ASSERT(c, m) static_assert(c, m)
#else
#define INGERO_STATIC_ASSERT(c, m) _Static_assert(c, m)
#endif
#define X(id, value, type) INGERO_STATIC_ASSERT(sizeof(type) % 8 == 0, "8-byte record");
INGERO_RECORDS(X)
#undef X
INGERO_STATIC_ASSERT(sizeof(struct ingero_call) == 24, "call record");
INGERO_STATIC_ASSERT(sizeof(struct ingero_block_header) == 128, "block header");
INGERO_STATIC_ASSERT(sizeof(struct ingero_stream_header) <= INGERO_HEADER_BYTES, "header");
INGERO_STATIC_ASSERT(sizeof(struct ingero_ring_switch) == 64, "ring switch");
INGERO_STATIC_ASSERT(sizeof(struct ingero_ring_switch_more) == 64, "ring switch");
INGERO_STATIC_ASSERT(sizeof(struct ingero_ring_pages) == 24, "ring pages");
INGERO_STATIC_ASSERT(sizeof(struct ingero_ring_task) == 88, "ring task");

#endif /* INGERO_WIRE_H */
