/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the BPF programs and ingero-kprobe share besides wire/wire.h: the
 * counters of each CPU (mapped by the companion, so reading costs no system
 * call) and the constants that the companion sets before loading.
 */
#ifndef INGERO_BPF_PROBE_STATE_H
#define INGERO_BPF_PROBE_STATE_H

#include "wire/wire.h"

/* Slots of ingero_cpu_state.lost. Not on disk; see kernel_probe/losses.cc. */
enum ingero_cpu_loss {
	INGERO_CPU_LOST_SWITCH, /* LOSS_SWITCH_RING_FULL */
	INGERO_CPU_LOST_TASK,	/* LOSS_TASK_RING_FULL */
	INGERO_CPU_LOST_STORAGE, /* LOSS_TASK_STORAGE */
	INGERO_CPU_LOST_PAGES, /* LOSS_PAGE_RING_FULL */
	INGERO_CPU_LOST_MAX
};

/*
 * The program counts and stamps; the companion copies `count` to `reported`
 * when it has written a row. A loss that finds them equal begins a new range.
 */
struct ingero_loss_counter {
	__u64 count;
	__u64 first_ns;
	__u64 last_ns;
	__u64 reported;
};

/* What a thread's next switch-out will tell. */
struct ingero_counts {
	__u32 pages;
	__u32 large_allocs;
	__u32 flushed; /* part of pages that PAGES events told already */
	__u32 has_faults; /* what follows is valid: values when it came */
	__u64 min_flt;
	__u64 maj_flt;
	__u64 stime_ns;
};

/*
 * One CPU's counters: 256 bytes, so that no two CPUs share a cache line.
 *
 * The counts of the running thread lie here and not in its task storage: a
 * look-up of that is the dearest part of a switch, and a thread that goes to
 * sleep needs none.
 */
struct ingero_cpu_state {
	/* The first cache line is what each switch writes. */
	__u64 switches_seen; /* recorded + lost (+ left out) = seen */
	__u64 head; /* slots of switches filled so far */
	/* The task_struct that the last switch here brought; 0 = none yet. */
	__u64 running;
	struct ingero_counts counts; /* of `running` */
	struct ingero_loss_counter lost[INGERO_CPU_LOST_MAX];
	__u64 tail; /* slots that the companion has taken */
	__u64 pages_seen; /* recorded + lost = seen; with raw_pages */
	/* With --tree: recorded + lost + left out = seen. */
	__u64 switches_left_out;
	/* Of the last switch here, where that was left out; 0 = it was not. */
	__u64 left_out_ns;
	__u32 tree_waiting;    /* threads of the tree that wait for this CPU */
	__u32 running_in_tree; /* `running` is of the tree */
	__u64 reserved[3];
};
INGERO_STATIC_ASSERT(sizeof(struct ingero_cpu_state) == 256, "cpu state");

/*
 * How this kernel accounts for each runqueue of a cgroup how long it was out of
 * quota (on disk: metric cgroup.throttle_clock).
 */
enum ingero_throttle_clock {
	INGERO_THROTTLE_NONE = 0, /* it does not, or in a way unknown to us */
	/* 6.6: while a thread of it wanted to run (677ea015f231). */
	INGERO_THROTTLE_SELF = 1,
	/* 5.19 to 6.5: on the clock of load tracking, which runs slower on a
	 * CPU below its highest frequency (64eaf50731ac). */
	INGERO_THROTTLE_PELT = 2,
	/* Before 5.19: on the clock without interrupt time. */
	INGERO_THROTTLE_TASK = 3,
};

/* A process whose descendants, and itself, are recorded. */
struct ingero_tree_root {
	__u64 comm[INGERO_COMM_LEN / 8]; /* zeros behind its end */
	__u32 pid; /* in its innermost namespace; 0: by name */
	__u32 pid_namespace; /* inode of that */
};
#define INGERO_MAX_TREE_ROOTS 8

/* The only object in section .rodata.config. */
struct ingero_probe_config {
	/* 5.18: sched_switch passes prev_state (fa2c3254d7cf). */
	__u32 switch_has_state;
	/* 6.8: mark_victim passes the task, earlier its pid. */
	__u32 victim_is_task;
	__u32 throttle_clock; /* enum ingero_throttle_clock */
	/*
	 * A thread's stime still grows after sched_switch by what it did before:
	 * with nohz_full CPUs, whose kernel time is measured and not sampled.
	 */
	__u32 late_stime;
	/* Each allocation is a record of its own, besides being counted. */
	__u32 raw_pages;
	/* How many of tree_root are valid; 0 = everybody is recorded. Read
	 * without a cast, which takes the volatile away. */
	__u32 tree_roots;
	/* For switches, of each CPU; a power of two. */
	__u32 ring_slots;
	__u32 reserved;
	struct ingero_tree_root tree_root[INGERO_MAX_TREE_ROOTS];
};

/* A thread whose pages reach this is flushed without waiting for a switch. */
#define INGERO_PAGES_FLUSH 4096

/* A thread's reclaim, or compaction, is told once this much is untold. */
#define INGERO_STALL_TOLD_NS 100000

#endif /* INGERO_BPF_PROBE_STATE_H */
