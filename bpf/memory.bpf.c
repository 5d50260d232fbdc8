// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Pages that each thread allocates, counted in task storage and carried away
 * by its next switch. Budget: 30 ns a page (an event each costs 131).
 */
#include "emit.bpf.h"

#define LARGE_ORDER 4 /* 64 KiB and more: may compact */

SEC("tp_btf/mm_page_alloc")
int BPF_PROG(on_mm_page_alloc, struct page *page, unsigned int order)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct ingero_task_state *s;
	struct ingero_ring_task *e;

	if (!page || !task->pid)
		return 0;
	s = task_storage(task);
	if (!s)
		return 0;
	s->pages += 1U << (order & 31);
	if (order >= LARGE_ORDER)
		s->large_allocs++;
	if (s->pages - s->flushed < INGERO_PAGES_FLUSH)
		return 0;

	/* Many pages without a switch: report them where they happen. The
	 * switch tells them once more, for whom the running time matters. */
	e = reserve_task_event();
	if (!e)
		return 0; /* they stay for the next record */
	fill_task(e, task, INGERO_TASK_EVENT_PAGES, NULL);
	e->code = s->pages - s->flushed;
	s->flushed = s->pages;
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
	return 0;
}
