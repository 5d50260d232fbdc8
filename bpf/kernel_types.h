/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The kernel fields that our programs read, and no others. Offsets come from
 * the running kernel's BTF (CO-RE), so order and size here mean nothing; names
 * do. tests/bpf checks that each of them exists in the running kernel.
 *
 * A field that only some kernels have goes into a flavour (struct x___why),
 * which that test skips, and is guarded by bpf_core_field_exists().
 */
#ifndef INGERO_BPF_KERNEL_TYPES_H
#define INGERO_BPF_KERNEL_TYPES_H

#include <linux/bpf.h>

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s64 s64;
#ifndef __cplusplus
typedef _Bool bool;
#define true 1
#define false 0
#endif
#define NULL ((void *)0)

#pragma clang attribute push(__attribute__((preserve_access_index)), \
			     apply_to = record)

struct ns_common {
	unsigned int inum;
};

struct pid_namespace {
	struct ns_common ns;
};

struct upid {
	int nr;
	struct pid_namespace *ns;
};

struct pid {
	unsigned int level;
	struct upid numbers[1];
};

struct kernfs_node {
	u64 id;
};

struct cgroup {
	struct kernfs_node *kn;
};

struct cgroup_subsys_state {
	struct cgroup *cgroup;
};

struct css_set {
	struct cgroup_subsys_state *subsys[1];
	struct cgroup *dfl_cgrp;
};

/* Saved user registers, x86-64. */
struct pt_regs {
	unsigned long si;
	unsigned long di;
	unsigned long orig_ax; /* system call; -1: interrupt or exception */
	unsigned long ip;
};

struct thread_info {
	u32 status;
};

/* What is runnable of one cgroup on one CPU. */
struct task_group;

struct rq {
	u64 clock;
	u64 clock_task;
	u64 clock_pelt;
	u64 lost_idle_time;
};

struct cfs_rq {
	struct rq *rq;
	struct task_group *tg;
};

/* See enum ingero_throttle_clock. */
struct cfs_rq___self {
	u64 throttled_clock_self;
	u64 throttled_clock_self_time;
};

struct cfs_rq___pelt {
	int throttle_count;
	u64 throttled_clock_pelt;
	u64 throttled_clock_pelt_time;
};

struct cfs_rq___task {
	int throttle_count;
	u64 throttled_clock_task;
	u64 throttled_clock_task_time;
};

struct sched_entity {
	struct sched_entity *parent; /* NULL in the root group */
	struct cfs_rq *cfs_rq;
};

struct task_struct {
	struct thread_info thread_info;
	void *stack;
	unsigned int flags;
	unsigned in_execve : 1;
	unsigned in_iowait : 1;
	int exit_code;
	int pid;
	int tgid;
	int prio;
	struct sched_entity se;
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	struct pid *thread_pid;
	u64 start_boottime;
	u64 stime;
	unsigned long min_flt;
	unsigned long maj_flt;
	char comm[16];
	struct css_set *cgroups;
};

/* Linux 5.14 renamed task->state (2f064a59a11f). */
struct task_struct___state {
	unsigned int __state;
};

struct task_struct___old_state {
	long state;
};

/* 5.16 moved it (bcf9033e5449). */
struct thread_info___cpu {
	u32 cpu;
};

struct task_struct___cpu_in_thread_info {
	struct thread_info___cpu thread_info;
};

struct task_struct___cpu {
	unsigned int cpu;
};

/* Runs right now; only kernels for several CPUs have it. */
struct task_struct___smp {
	int on_cpu;
};

/* x86 kept the preemption count in pcpu_hot from 6.2 to 6.14. */
struct pcpu_hot {
	int preempt_count;
};

enum cgroup_subsys_id {
	cpu_cgrp_id = 1, /* the real value comes from BTF */
};

/* 6.4 gave task storage an allocator that is safe under any lock
 * (08a7ce384e33); newer kernels have another one. */
struct bpf_mem_alloc___any {
	char any;
};

struct bpf_local_storage_map___selem_ma {
	struct bpf_mem_alloc___any selem_ma;
};

struct bpf_local_storage_map___nolock {
	bool use_kmalloc_nolock;
};

struct page;
struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

#pragma clang attribute pop

/* Values of the kernel's own that no BTF carries. */
#define PF_KTHREAD 0x00200000
#define TASK_DEAD 0x80
#define TS_COMPAT 0x2	    /* thread_info.status: in a 32-bit system call */
#define THREAD_SIZE 16384   /* x86-64 */
#define NR_SCHED_YIELD 24   /* x86-64 */
#define MAX_RT_PRIO 100	    /* task_struct.prio below: no quota holds it */
#define PREEMPT_HARDIRQ_NMI 0x00ff0000
#define PREEMPT_SOFTIRQ 0x00000100 /* serving one, not just disabled */

#endif /* INGERO_BPF_KERNEL_TYPES_H */
