// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Births, programs, names, cgroups and ends of tasks. */
#include "emit.bpf.h"

/*
 * Unlike sched_process_fork it covers the workers that the kernel makes for a
 * process, and comes before the new task first runs: its storage is there by
 * then.
 */
SEC("tp_btf/task_newtask")
int BPF_PROG(on_task_newtask, struct task_struct *task)
{
	struct ingero_ring_task *e;

	bpf_task_storage_get(&task_states, task, 0,
			     BPF_LOCAL_STORAGE_GET_F_CREATE);
	e = reserve_task_event();
	if (!e)
		return 0;
	fill_task(e, task, INGERO_TASK_EVENT_FORK, bpf_get_current_task_btf());
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
	return 0;
}

/* code: the tid that the thread had before it became the leader. */
SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_sched_process_exec, struct task_struct *task, int old_tid)
{
	struct ingero_ring_task *e = reserve_task_event();

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

	if (!task)
		return 0;
	bpf_task_storage_get(&task_states, task, 0,
			     BPF_LOCAL_STORAGE_GET_F_CREATE);
	fill_task(&e, task, INGERO_TASK_EVENT_EXISTING, NULL);
	bpf_seq_write(ctx->meta->seq, &e, sizeof(e));
	return 0;
}
