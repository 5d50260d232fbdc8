/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Maps, counting of losses, and task records: what all programs share.
 *
 * Every object declares all maps; the companion creates each once and hands
 * the same one to all objects (kernel_probe/loader.cc).
 *
 * Task storage is created in process context (on_task_newtask and the iterator
 * dump_tasks). The programs under sched_switch and sched_waking hold scheduler
 * locks; there an allocation could wake kswapd and deadlock before Linux 6.4,
 * so they create only where it is safe, and count what they do not find.
 */
#ifndef INGERO_BPF_EMIT_H
#define INGERO_BPF_EMIT_H

#include "kernel_types.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#include "probe_state.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

const volatile struct ingero_probe_config config SEC(".rodata.config");

enum stall { STALL_RECLAIM, STALL_COMPACTION, STALL_KINDS };

/* Per thread. Zero on creation. */
struct ingero_task_state {
	u64 wake_ns;
	u32 waker_tid;
	u32 waker_tgid;
	u16 wake_flags;	  /* INGERO_WAKE_* */
	u8 left_runnable; /* off the CPU: preempted or yielded */
	u8 kept;	  /* `counts` holds what no record has told yet */
	u16 in_tree;	  /* of a tree that --tree names */
	u16 waits_for;	  /* of the tree: runnable, for this CPU plus 1 */
	/* When it became runnable: its cgroup's runqueue, 0 = not looked at, and
	 * what throttled_ns() said of that. */
	u64 throttle_rq;
	u64 throttle_base_ns;
	struct ingero_counts counts;
	/* By enum stall: since when it is in one, 0 = it is not; what no event
	 * has told yet. */
	u64 stall_begin_ns[STALL_KINDS];
	u64 stall_ns[STALL_KINDS];
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct ingero_task_state);
} task_states SEC(".maps");

/* Mapped by the companion. max_entries: possible CPUs, set while loading. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ingero_cpu_state);
} cpu_states SEC(".maps");

/*
 * Switches, mapped by the companion: config.ring_slots of each CPU in a row.
 * One ring per CPU, since a shared one costs 345 ns a switch at 2 CPUs and 3.9
 * us at 15; and not the kernel's ring buffer, whose lock and two atomic
 * operations cost 40 ns a record: sched_switch holds the runqueue's lock with
 * interrupts off, so a CPU has one writer at a time. max_entries: set while
 * loading.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ingero_ring_switch);
} switch_slots SEC(".maps");

/* By CPU, with raw_pages only: allocations, which interrupts make too. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, u32);
	__array(values, struct {
		__uint(type, BPF_MAP_TYPE_RINGBUF);
		__uint(max_entries, 4096);
	});
} page_rings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} task_ring SEC(".maps");

static __always_inline struct ingero_cpu_state *this_cpu_state(void)
{
	u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&cpu_states, &cpu);
}

/* Rare: an atomic add, since interrupts may nest. */
static __always_inline void count_loss(struct ingero_cpu_state *cpu, int slot,
				       u64 t_ns)
{
	struct ingero_loss_counter *c;

	if (!cpu)
		return;
	c = &cpu->lost[slot];
	if (c->count == c->reported)
		c->first_ns = t_ns;
	c->last_ns = t_ns;
	__sync_fetch_and_add(&c->count, 1);
}

/* Storage of a task, from a program that may hold any lock. */
static __always_inline struct ingero_task_state *
task_storage(struct task_struct *task)
{
	struct ingero_task_state *s;
	u64 create = 0;

	if (bpf_core_field_exists(struct bpf_local_storage_map___selem_ma,
				  selem_ma) ||
	    bpf_core_field_exists(struct bpf_local_storage_map___nolock,
				  use_kmalloc_nolock))
		create = BPF_LOCAL_STORAGE_GET_F_CREATE;
	s = bpf_task_storage_get(&task_states, task, 0, create);
	if (!s)
		count_loss(this_cpu_state(), INGERO_CPU_LOST_STORAGE,
			   bpf_ktime_get_ns());
	return s;
}

/*
 * --tree: a thread's flag is set at start (dump_tasks), by its birth, or as its
 * process takes a name. A CPU counts the threads of the tree that wait for it:
 * the kernel tells each change under the lock of that CPU's runqueue.
 */
static __always_inline void wait_for_cpu(struct ingero_task_state *s,
					 u32 cpu_plus_1)
{
	struct ingero_cpu_state *c;
	u32 cpu;

	if (s->waits_for == cpu_plus_1)
		return;
	if (s->waits_for) {
		cpu = s->waits_for - 1;
		c = bpf_map_lookup_elem(&cpu_states, &cpu);
		if (c)
			__sync_fetch_and_add(&c->tree_waiting, -1);
	}
	s->waits_for = cpu_plus_1;
	if (cpu_plus_1) {
		cpu = cpu_plus_1 - 1;
		c = bpf_map_lookup_elem(&cpu_states, &cpu);
		if (c)
			__sync_fetch_and_add(&c->tree_waiting, 1);
	}
}

static __always_inline u32 task_cpu(struct task_struct *task)
{
	struct task_struct___cpu_in_thread_info *t = (void *)task;

	if (bpf_core_field_exists(struct thread_info___cpu, cpu))
		return t->thread_info.cpu;
	if (bpf_core_field_exists(struct task_struct___cpu, cpu))
		return ((struct task_struct___cpu *)task)->cpu;
	return 0;
}

/* pid of `task` in its innermost namespace. */
static __always_inline u32 innermost_pid(struct task_struct *task, u64 *inode)
{
	struct pid *pid = BPF_CORE_READ(task, thread_pid);
	struct pid_namespace *ns;
	void *upid;
	u32 level;
	int nr = 0;

	if (!pid)
		return 0;
	level = BPF_CORE_READ(pid, level);
	upid = (void *)pid + bpf_core_field_offset(struct pid, numbers) +
	       level * bpf_core_type_size(struct upid);
	bpf_probe_read_kernel(
		&nr, sizeof(nr), upid + bpf_core_field_offset(struct upid, nr));
	if (inode) {
		bpf_probe_read_kernel(
			&ns, sizeof(ns),
			upid + bpf_core_field_offset(struct upid, ns));
		*inode = BPF_CORE_READ(ns, ns.inum);
	}
	return nr;
}

/*
 * The cgroup whose CPU quota governs the task: that of its cpu controller,
 * which is the leaf on v1 and the nearest one with the controller on v2.
 */
static __always_inline u64 cpu_cgroup_id(struct task_struct *task)
{
	struct css_set *set = BPF_CORE_READ(task, cgroups);
	struct cgroup_subsys_state *css = NULL;
	struct cgroup *cgroup = NULL;

	if (bpf_core_enum_value_exists(enum cgroup_subsys_id, cpu_cgrp_id)) {
		void *at = (void *)set +
			   bpf_core_field_offset(struct css_set, subsys) +
			   8 * bpf_core_enum_value(enum cgroup_subsys_id,
						   cpu_cgrp_id);

		bpf_probe_read_kernel(&css, sizeof(css), at);
		cgroup = BPF_CORE_READ(css, cgroup);
	}
	if (!cgroup)
		cgroup = BPF_CORE_READ(set, dfl_cgrp);
	return BPF_CORE_READ(cgroup, kn, id);
}

/*
 * A process's parent is its real parent. A thread's is the thread that made
 * it, which only its birth knows; later, its group leader.
 */
static __always_inline void fill_task(struct ingero_ring_task *e,
				      struct task_struct *task, u16 event,
				      struct task_struct *creator)
{
	struct task_struct *leader = BPF_CORE_READ(task, group_leader);
	struct task_struct *parent;

	e->kind = INGERO_RING_TASK;
	e->event = event;
	e->cpu = bpf_get_smp_processor_id();
	e->t_ns = bpf_ktime_get_ns();
	e->tid = BPF_CORE_READ(task, pid);
	e->tgid = BPF_CORE_READ(task, tgid);
	if (e->tid == e->tgid)
		parent = BPF_CORE_READ(task, real_parent);
	else
		parent = creator ? creator : leader;
	e->parent_tid = BPF_CORE_READ(parent, pid);
	e->parent_tgid = BPF_CORE_READ(parent, tgid);
	e->start_ns = BPF_CORE_READ(leader, start_boottime);
	e->pid_namespace = 0;
	e->ns_tid = innermost_pid(task, &e->pid_namespace);
	e->ns_tgid = innermost_pid(leader, NULL);
	e->cgroup_id = cpu_cgroup_id(task);
	e->code = 0;
	bpf_core_read_str(e->comm, sizeof(e->comm), &task->comm);
}

/* Reserves and counts; NULL where the ring is full. */
static __always_inline struct ingero_ring_task *reserve_task_event(void)
{
	struct ingero_cpu_state *cpu = this_cpu_state();
	struct ingero_ring_task *e;

	if (!cpu)
		return NULL;
	e = bpf_ringbuf_reserve(&task_ring, sizeof(*e), 0);
	if (!e)
		count_loss(cpu, INGERO_CPU_LOST_TASK, bpf_ktime_get_ns());
	return e;
}

#endif /* INGERO_BPF_EMIT_H */
