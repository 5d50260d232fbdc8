// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "waking.bpf.h"

extern const struct pcpu_hot pcpu_hot __ksym;

SEC("tp_btf/sched_waking")
int BPF_PROG(on_sched_waking_hot, struct task_struct *task)
{
	struct task_struct *waker = bpf_get_current_task_btf();
	const struct pcpu_hot *hot = bpf_this_cpu_ptr(&pcpu_hot);

	return store_wake(task, waker,
			  context_by_count(waker, hot->preempt_count));
}
