// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What kernel_bench compares our programs with. */
#include "bpf/kernel_types.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16 << 20);
} ring SEC(".maps");

SEC("tp_btf/sched_switch")
int empty(u64 *ctx)
{
	return 0;
}

/* One bare 48-byte record without wake-up. */
SEC("tp_btf/sched_switch")
int BPF_PROG(bare, bool preempt, struct task_struct *prev,
	     struct task_struct *next)
{
	u64 *e = bpf_ringbuf_reserve(&ring, 48, 0);

	if (!e)
		return 0;
	e[0] = bpf_ktime_get_ns();
	e[1] = bpf_get_smp_processor_id();
	e[2] = (u64)prev->pid << 32 | (u32)prev->tgid;
	e[3] = (u64)next->pid << 32 | (u32)next->tgid;
	e[4] = preempt;
	e[5] = 0;
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
	return 0;
}

/* With the one above: the least that telling wakers apart costs. */
u64 woken_ns;

SEC("tp_btf/sched_waking")
int clock_only(u64 *ctx)
{
	woken_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/mm_page_alloc")
int empty_page(u64 *ctx)
{
	return 0;
}
