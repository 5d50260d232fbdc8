// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "waking.bpf.h"

extern const int __preempt_count __ksym;

SEC("tp_btf/sched_waking")
int BPF_PROG(on_sched_waking_count, struct task_struct *task)
{
	struct task_struct *waker = bpf_get_current_task_btf();
	const int *count = bpf_this_cpu_ptr(&__preempt_count);

	return store_wake(task, waker, context_by_count(waker, *count));
}
