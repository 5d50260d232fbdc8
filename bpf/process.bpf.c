// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Births, programs, names, cgroups and ends of tasks. */
#include "emit.bpf.h"

#define MAX_TREE_DEPTH 64

union comm {
	char text[INGERO_COMM_LEN];
	u64 words[2];
};

/* Is the process of `leader`, called `name`, the root of a tree? */
static __always_inline bool is_root(struct task_struct *leader,
				    const union comm *name)
{
	u64 pid_namespace = 0;
	u32 pid = innermost_pid(leader, &pid_namespace);
	u32 i;

	for (i = 0; i < INGERO_MAX_TREE_ROOTS; i++) {
		if (i >= config.tree_roots)
			break;
		if (config.tree_root[i].pid) {
			if (config.tree_root[i].pid == pid &&
			    config.tree_root[i].pid_namespace == pid_namespace)
				return true;
			continue;
		}
		if (config.tree_root[i].comm[0] == name->words[0] &&
		    config.tree_root[i].comm[1] == name->words[1])
			return true;
	}
	return false;
}

static __always_inline void name_of(union comm *name, struct task_struct *task)
{
	/* Behind its end the kernel may keep a part of an older one. */
	name->words[0] = name->words[1] = 0;
	bpf_core_read_str(name->text, sizeof(name->text), &task->comm);
}

static __always_inline bool has_root_above(struct task_struct *task)
{
	struct task_struct *leader = BPF_CORE_READ(task, group_leader);
	u32 depth;

	for (depth = 0; depth < MAX_TREE_DEPTH; depth++) {
		struct task_struct *parent;
		union comm name;

		if (!BPF_CORE_READ(leader, tgid))
			return false;
		name_of(&name, leader);
		if (is_root(leader, &name))
			return true;
		parent = BPF_CORE_READ(leader, real_parent);
		leader = BPF_CORE_READ(parent, group_leader);
	}
	return false;
}

/* The current task becomes a root's. */
static __always_inline void join_tree(struct task_struct *task)
{
	struct ingero_task_state *s = task_storage(task);
	struct ingero_cpu_state *cpu = this_cpu_state();

	if (s)
		s->in_tree = 1;
	if (s && cpu && cpu->running == (u64)task)
		cpu->running_in_tree = 1;
}

/*
 * Unlike sched_process_fork it covers the workers that the kernel makes for a
 * process, and comes before the new task first runs: its storage is there by
 * then.
 */
SEC("tp_btf/task_newtask")
int BPF_PROG(on_task_newtask, struct task_struct *task)
{
	struct task_struct *creator = bpf_get_current_task_btf();
	struct ingero_task_state *s, *of_creator;
	struct ingero_ring_task *e;

	s = bpf_task_storage_get(&task_states, task, 0,
				 BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (config.tree_roots && s) {
		of_creator = bpf_task_storage_get(&task_states, creator, 0, 0);
		if (of_creator)
			s->in_tree = of_creator->in_tree;
	}
	e = reserve_task_event();
	if (!e)
		return 0;
	fill_task(e, task, INGERO_TASK_EVENT_FORK, creator);
	e->code = s && s->in_tree;
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
	return 0;
}

/* code: the tid that the thread had before it became the leader. */
SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_sched_process_exec, struct task_struct *task, int old_tid)
{
	struct ingero_ring_task *e;

	if (config.tree_roots) {
		union comm name;

		name_of(&name, task);
		if (is_root(task, &name))
			join_tree(task);
	}
	e = reserve_task_event();
	if (!e)
		return 0;
	fill_task(e, task, INGERO_TASK_EVENT_EXEC, NULL);
	e->code = old_tid;
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_sched_process_exit, struct task_struct *task)
{
	struct ingero_ring_task *e = reserve_task_event();

	if (!e)
		return 0;
	fill_task(e, task, INGERO_TASK_EVENT_EXIT, NULL);
	e->code = BPF_CORE_READ(task, exit_code);
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
	return 0;
}

SEC("tp_btf/task_rename")
int BPF_PROG(on_task_rename, struct task_struct *task, const char *comm)
{
	struct ingero_ring_task *e;

	/* The EXEC record that follows carries the name. */
	if (BPF_CORE_READ_BITFIELD(task, in_execve))
		return 0;
	if (config.tree_roots && task == bpf_get_current_task_btf() &&
	    task->pid == task->tgid) {
		union comm name = {};

		bpf_probe_read_kernel_str(name.text, sizeof(name.text), comm);
		if (is_root(task, &name))
			join_tree(task);
	}
	e = reserve_task_event();
	if (!e)
		return 0;
	fill_task(e, task, INGERO_TASK_EVENT_RENAME, NULL);
	bpf_probe_read_kernel_str(e->comm, sizeof(e->comm), comm);
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
	return 0;
}

/* code: 1 where all threads of its process moved with it. */
SEC("tp_btf/cgroup_attach_task")
int BPF_PROG(on_cgroup_attach_task, struct cgroup *cgroup, const char *path,
	     struct task_struct *task, bool threadgroup)
{
	struct ingero_ring_task *e = reserve_task_event();

	if (!e)
		return 0;
	fill_task(e, task, INGERO_TASK_EVENT_CGROUP, NULL);
	e->code = threadgroup;
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
	return 0;
}

SEC("tp_btf/mark_victim")
int on_mark_victim(u64 *ctx)
{
	struct ingero_ring_task *e = reserve_task_event();

	if (!e)
		return 0;
	if (config.victim_is_task) {
		fill_task(e, (struct task_struct *)ctx[0],
			  INGERO_TASK_EVENT_OOM_KILL, NULL);
	} else {
		__builtin_memset(e, 0, sizeof(*e));
		e->kind = INGERO_RING_TASK;
		e->event = INGERO_TASK_EVENT_OOM_KILL;
		e->cpu = bpf_get_smp_processor_id();
		e->t_ns = bpf_ktime_get_ns();
		e->tid = ctx[0];
		e->tgid = ctx[0];
	}
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
	return 0;
}

/* Run once at start: what exists already, and its storage. */
SEC("iter/task")
int dump_tasks(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct ingero_ring_task e = {};
	struct ingero_task_state *s;

	if (!task)
		return 0;
	s = bpf_task_storage_get(&task_states, task, 0,
				 BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (config.tree_roots && s && has_root_above(task))
		s->in_tree = 1;
	fill_task(&e, task, INGERO_TASK_EVENT_EXISTING, NULL);
	e.code = s && s->in_tree;
	bpf_seq_write(ctx->meta->seq, &e, sizeof(e));
	return 0;
}
