// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * What memory costs each thread.
 *
 * Pages that each thread allocates, counted and carried away by its next
 * switch. Budget: 30 ns a page (an event each costs 131).
 */
#include "emit.bpf.h"

#define LARGE_ORDER 4 /* 64 KiB and more: may compact */

static __always_inline void tell_allocation(struct ingero_cpu_state *here,
					    struct task_struct *task, u32 order)
{
	u32 cpu = bpf_get_smp_processor_id();
	void *ring = bpf_map_lookup_elem(&page_rings, &cpu);
	u64 now = bpf_ktime_get_ns();
	struct ingero_ring_pages *e;

	__sync_fetch_and_add(&here->pages_seen, 1); /* interrupts allocate too */
	e = ring ? bpf_ringbuf_reserve(ring, sizeof(*e), 0) : NULL;
	if (!e) {
		count_loss(here, INGERO_CPU_LOST_PAGES, now);
		return;
	}
	e->kind = INGERO_RING_PAGES;
	e->order = order;
	e->cpu = cpu;
	e->tid = task->pid;
	e->t_ns = now;
	e->tgid = task->tgid;
	e->reserved = 0;
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
}

SEC("tp_btf/mm_page_alloc")
int BPF_PROG(on_mm_page_alloc, struct page *page, unsigned int order)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct ingero_cpu_state *cpu = this_cpu_state();
	struct ingero_counts *counts;
	struct ingero_ring_task *e;

	if (!page || !cpu)
		return 0;
	if (config.raw_pages)
		tell_allocation(cpu, task, order);
	if (!task->pid)
		return 0;
	if (cpu->running == (u64)task) {
		counts = &cpu->counts;
	} else {
		/* It came before recording began, or unseen. */
		struct ingero_task_state *s = task_storage(task);

		if (!s)
			return 0;
		s->kept = 1;
		counts = &s->counts;
	}
	counts->pages += 1U << (order & 31);
	if (order >= LARGE_ORDER)
		counts->large_allocs++;
	if (counts->pages - counts->flushed < INGERO_PAGES_FLUSH)
		return 0;

	/* Many pages without a switch: report them where they happen. The
	 * switch tells them once more, for whom the running time matters: where
	 * there is no room nothing is lost, and the next page tries again. */
	e = bpf_ringbuf_reserve(&task_ring, sizeof(*e), 0);
	if (!e)
		return 0;
	fill_task(e, task, INGERO_TASK_EVENT_PAGES, NULL);
	e->code = counts->pages - counts->flushed;
	counts->flushed = counts->pages;
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
	return 0;
}

/*
 * Time in which a thread had to find memory itself before it got some. An
 * event once it is worth one: reclaim within a cgroup goes in steps of a few
 * microseconds, up to 100,000 a second.
 */
static __always_inline int begin_stall(enum stall kind)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct ingero_task_state *s;

	if (task->flags & PF_KTHREAD) /* kswapd, kcompactd: nobody waits */
		return 0;
	s = task_storage(task);
	if (s)
		s->stall_begin_ns[kind] = bpf_ktime_get_ns();
	return 0;
}

static __always_inline int end_stall(enum stall kind, u16 event)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct ingero_task_state *s;
	struct ingero_ring_task *e;

	if (task->flags & PF_KTHREAD)
		return 0;
	s = task_storage(task);
	if (!s || !s->stall_begin_ns[kind])
		return 0;
	s->stall_ns[kind] += bpf_ktime_get_ns() - s->stall_begin_ns[kind];
	s->stall_begin_ns[kind] = 0;
	if (s->stall_ns[kind] < INGERO_STALL_TOLD_NS)
		return 0;
	e = reserve_task_event();
	if (!e)
		return 0; /* it stays for the next event */
	fill_task(e, task, event, NULL);
	e->code = s->stall_ns[kind];
	s->stall_ns[kind] = 0;
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
	return 0;
}

SEC("tp_btf/mm_vmscan_direct_reclaim_begin")
int on_direct_reclaim_begin(u64 *ctx)
{
	return begin_stall(STALL_RECLAIM);
}

SEC("tp_btf/mm_vmscan_direct_reclaim_end")
int on_direct_reclaim_end(u64 *ctx)
{
	return end_stall(STALL_RECLAIM, INGERO_TASK_EVENT_RECLAIM);
}

/* Its cgroup has a memory limit and reached it. */
SEC("tp_btf/mm_vmscan_memcg_reclaim_begin")
int on_memcg_reclaim_begin(u64 *ctx)
{
	return begin_stall(STALL_RECLAIM);
}

SEC("tp_btf/mm_vmscan_memcg_reclaim_end")
int on_memcg_reclaim_end(u64 *ctx)
{
	return end_stall(STALL_RECLAIM, INGERO_TASK_EVENT_RECLAIM);
}

SEC("tp_btf/mm_compaction_begin")
int on_compaction_begin(u64 *ctx)
{
	return begin_stall(STALL_COMPACTION);
}

SEC("tp_btf/mm_compaction_end")
int on_compaction_end(u64 *ctx)
{
	return end_stall(STALL_COMPACTION, INGERO_TASK_EVENT_COMPACTION);
}
