/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a waking leaves with the task that is woken. */
#ifndef INGERO_BPF_WAKING_H
#define INGERO_BPF_WAKING_H

#include "emit.bpf.h"

/*
 * ns for which the cgroup's threads on this CPU have been out of quota so far,
 * the current stretch included; it grows only while they are. READ(pointer,
 * member): how memory is read, since a pointer that a map kept is a number to
 * the verifier.
 */
#define THROTTLED_NS(cfs_rq, READ) ({					      \
	struct rq *rq;							      \
	u64 sum = 0, since = 0, clock = 0;				      \
									      \
	if (config.throttle_clock == INGERO_THROTTLE_SELF) {		      \
		struct cfs_rq___self *q = (void *)(cfs_rq);		      \
									      \
		sum = READ(q, throttled_clock_self_time);		      \
		since = READ(q, throttled_clock_self);			      \
		if (since) {						      \
			rq = READ(cfs_rq, rq);				      \
			clock = READ(rq, clock);			      \
		}							      \
	} else if (config.throttle_clock == INGERO_THROTTLE_PELT) {	      \
		struct cfs_rq___pelt *q = (void *)(cfs_rq);		      \
									      \
		sum = READ(q, throttled_clock_pelt_time);		      \
		if (READ(q, throttle_count)) {				      \
			since = READ(q, throttled_clock_pelt);		      \
			rq = READ(cfs_rq, rq);				      \
			clock = READ(rq, clock_pelt) -			      \
				READ(rq, lost_idle_time);		      \
		}							      \
	} else if (config.throttle_clock == INGERO_THROTTLE_TASK) {	      \
		struct cfs_rq___task *q = (void *)(cfs_rq);		      \
									      \
		sum = READ(q, throttled_clock_task_time);		      \
		if (READ(q, throttle_count)) {				      \
			since = READ(q, throttled_clock_task);		      \
			rq = READ(cfs_rq, rq);				      \
			clock = READ(rq, clock_task);			      \
		}							      \
	}								      \
	clock > since ? sum + (clock - since) : sum;			      \
})
#define READ_TYPED(pointer, member) ((pointer)->member)
#define READ_NUMBER(pointer, member) BPF_CORE_READ(pointer, member)

/*
 * `task` becomes runnable: from now on throttled time is its. The root group,
 * whose entities have no parent, never has a quota. Below it none can be ruled
 * out at less cost than looking: one set higher up holds its children too, and
 * nothing in the child tells.
 */
static __always_inline void note_throttle(struct ingero_task_state *s,
					  struct task_struct *task)
{
	struct cfs_rq *queue;

	s->throttle_rq = 0;
	if (config.throttle_clock == INGERO_THROTTLE_NONE ||
	    !task->se.parent || task->prio < MAX_RT_PRIO)
		return;
	queue = task->se.cfs_rq;
	s->throttle_base_ns = THROTTLED_NS(queue, READ_TYPED);
	s->throttle_rq = (u64)queue;
}

static __always_inline int store_wake(struct task_struct *task,
				      struct task_struct *waker, u16 flags)
{
	struct ingero_task_state *s = task_storage(task);

	if (!s)
		return 0;
	s->wake_ns = bpf_ktime_get_ns();
	s->wake_flags = flags;
	/* A wake that finds it runnable, or running, begins no wait. */
	if (!s->left_runnable)
		note_throttle(s, task);
	if (flags & (INGERO_WAKE_IRQ | INGERO_WAKE_UNKNOWN)) {
		s->waker_tid = 0;
		s->waker_tgid = 0;
	} else {
		s->waker_tid = waker->pid;
		s->waker_tgid = waker->tgid;
	}
	return 0;
}

/*
 * Who wakes? In an interrupt `current` is whoever happened to run there and
 * must not be named. Three ways to know, by what the kernel offers; the
 * companion loads the first that works:
 *   the per-CPU preemption count (needs its address, CONFIG_KALLSYMS_ALL),
 *   as its own variable or within pcpu_hot. Each in an object of its own: for
 *   a variable that the kernel lacks libbpf searches its modules, which wants
 *   CAP_SYS_ADMIN, and fails without;
 *   else the stack: interrupts that come while in the kernel run on a stack of
 *   their own. One that comes from user mode runs on the task's stack, and so
 *   does a page fault; both leave orig_ax -1, and no claim is made.
 */
/*
 * Kernel threads that do nothing but carry interrupts: whom they wake, a
 * device or a timer woke. The count tells of softirqs in ksoftirqd, but not
 * with PREEMPT_RT; the stack tells of none of these.
 */
#define COMM4(a, b, c, d) \
	((u32)(a) | (u32)(b) << 8 | (u32)(c) << 16 | (u32)(d) << 24)
#define COMM8(s) \
	(COMM4(s[0], s[1], s[2], s[3]) | \
	 (u64)COMM4(s[4], s[5], s[6], s[7]) << 32)

static __always_inline bool carries_interrupts(struct task_struct *waker)
{
	union {
		char text[8];
		u32 half;
		u64 word;
	} comm;

	if (!(waker->flags & PF_KTHREAD) ||
	    bpf_core_read(comm.text, sizeof(comm.text), &waker->comm))
		return false;
	return comm.half == COMM4('i', 'r', 'q', '/') ||
	       comm.word == COMM8("ksoftirq") || comm.word == COMM8("ktimers/");
}

static __always_inline u16 context_by_count(struct task_struct *waker,
					    int count)
{
	if (!waker->pid || (count & (PREEMPT_HARDIRQ_NMI | PREEMPT_SOFTIRQ)) ||
	    carries_interrupts(waker))
		return INGERO_WAKE_IRQ;
	return 0;
}

#endif /* INGERO_BPF_WAKING_H */
