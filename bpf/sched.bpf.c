// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Who ran, who waited, for what, and who ended the wait.
 *
 * Budget: on_sched_switch and on_sched_waking together at most 1.6x of a bare
 * 48-byte ring record per switch (bench/kernel_bench.cc).
 */
#include "emit.bpf.h"

static __always_inline u32 task_state(struct task_struct *task)
{
	if (bpf_core_field_exists(struct task_struct___state, __state))
		return ((struct task_struct___state *)task)->__state;
	return ((struct task_struct___old_state *)task)->state;
}

/*
 * ns for which the cgroup's threads on this CPU have been out of quota so far,
 * the current stretch included; it grows only while they are. READ(pointer,
 * member): how memory is read, since a pointer that a map kept is a number to
 * the verifier.
 */
#define THROTTLED_NS(cfs_rq, READ) ({					      \
	struct rq *rq = READ(cfs_rq, rq);				      \
	u64 sum = 0, since = 0, clock = 0;				      \
									      \
	if (config.throttle_clock == INGERO_THROTTLE_SELF) {		      \
		struct cfs_rq___self *q = (void *)(cfs_rq);		      \
									      \
		sum = READ(q, throttled_clock_self_time);		      \
		since = READ(q, throttled_clock_self);			      \
		if (since)						      \
			clock = READ(rq, clock);			      \
	} else if (config.throttle_clock == INGERO_THROTTLE_PELT) {	      \
		struct cfs_rq___pelt *q = (void *)(cfs_rq);		      \
									      \
		sum = READ(q, throttled_clock_pelt_time);		      \
		if (READ(q, throttle_count)) {				      \
			since = READ(q, throttled_clock_pelt);		      \
			clock = READ(rq, clock_pelt) -			      \
				READ(rq, lost_idle_time);		      \
		}							      \
	} else if (config.throttle_clock == INGERO_THROTTLE_TASK) {	      \
		struct cfs_rq___task *q = (void *)(cfs_rq);		      \
									      \
		sum = READ(q, throttled_clock_task_time);		      \
		if (READ(q, throttle_count)) {				      \
			since = READ(q, throttled_clock_task);		      \
			clock = READ(rq, clock_task);			      \
		}							      \
	}								      \
	clock > since ? sum + (clock - since) : sum;			      \
})
#define READ_TYPED(pointer, member) ((pointer)->member)
#define READ_NUMBER(pointer, member) BPF_CORE_READ(pointer, member)

/* `task` becomes runnable: from now on throttled time is its. */
static __always_inline void note_throttle(struct ingero_task_state *s,
					  struct task_struct *task)
{
	struct cfs_rq *queue;

	s->throttle_rq = 0;
	if (config.throttle_clock == INGERO_THROTTLE_NONE ||
	    task->prio < MAX_RT_PRIO)
		return;
	queue = task->se.cfs_rq;
	s->throttle_base_ns = THROTTLED_NS(queue, READ_TYPED);
	s->throttle_rq = (u64)queue;
}

/* Of the time since note_throttle(), what the quota took. */
static __always_inline u64 throttled_since(struct ingero_task_state *s,
					   struct task_struct *task)
{
	u64 base = s->throttle_base_ns, left = s->throttle_rq, sum;
	struct cfs_rq *queue;

	if (config.throttle_clock == INGERO_THROTTLE_NONE || !left)
		return 0;
	s->throttle_rq = 0;
	queue = task->se.cfs_rq;
	if ((u64)queue == left) {
		sum = THROTTLED_NS(queue, READ_TYPED);
	} else {
		/*
		 * It came to this CPU since: what it waited for, it waited for
		 * on the other one. Not if it changed its cgroup meanwhile.
		 */
		struct cfs_rq *old = (struct cfs_rq *)left;

		if (BPF_CORE_READ(old, tg) != queue->tg)
			return 0;
		sum = THROTTLED_NS(old, READ_NUMBER);
	}
	return sum > base ? sum - base : 0;
}

/* What sched_switch finds out about `prev` besides who it is. */
static __always_inline void fill_prev(struct ingero_ring_switch *e,
				      struct task_struct *prev, u32 state,
				      u32 *flags)
{
	struct pt_regs *regs;
	long nr;

	e->prev_syscall = -1;
	e->prev_arg0 = 0;
	e->prev_arg1 = 0;
	/* TASK_FROZEN, TASK_RTLOCK_WAIT and the like lie beyond the mask. */
	if (state && !(state & INGERO_TASK_STATE_MASK))
		state = INGERO_TASK_UNINTERRUPTIBLE;
	e->prev_state = state & INGERO_TASK_STATE_MASK;
	if (state & TASK_DEAD) {
		*flags |= INGERO_PREV_DEAD;
		return;
	}
	if (state && BPF_CORE_READ_BITFIELD(prev, in_iowait))
		*flags |= INGERO_PREV_IOWAIT;
	if (prev->flags & PF_KTHREAD) {
		*flags |= INGERO_PREV_KTHREAD;
		return;
	}
	regs = (struct pt_regs *)bpf_task_pt_regs(prev);
	nr = regs->orig_ax;
	if (nr < 0 || nr > 0x7ffe || (prev->thread_info.status & TS_COMPAT) ||
	    !regs->ip) /* kernel worker of a user process */
		return;
	if (!state) {
		if (nr == NR_SCHED_YIELD)
			*flags |= INGERO_PREV_YIELDED;
		return;
	}
	e->prev_syscall = nr;
	e->prev_arg0 = regs->di;
	e->prev_arg1 = regs->si;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_sched_switch, bool preempt, struct task_struct *prev,
	     struct task_struct *next)
{
	struct ingero_task_state *p = NULL, *n = NULL;
	u32 cpu = bpf_get_smp_processor_id();
	u64 now = bpf_ktime_get_ns();
	struct ingero_ring_switch *e;
	struct ingero_cpu_state *counters;
	u32 state, flags = 0;
	void *ring;

	counters = bpf_map_lookup_elem(&cpu_states, &cpu);
	if (!counters)
		return 0;
	counters->switches_seen++;

	/* An involuntary switch leaves the thread runnable whatever it was
	 * about to do. */
	if (preempt)
		state = 0;
	else if (config.switch_has_state)
		state = ctx[3];
	else
		state = task_state(prev);

	if (prev->pid) {
		p = task_storage(prev);
		if (p) {
			p->left_runnable = !state;
			if (!state)
				note_throttle(p, prev);
		}
	}
	if (next->pid)
		n = task_storage(next);

	ring = bpf_map_lookup_elem(&switch_rings, &cpu);
	e = ring ? bpf_ringbuf_reserve(ring, sizeof(*e), 0) : NULL;
	if (!e) {
		/* Page and fault counts stay for prev's next record. */
		count_loss(counters, INGERO_CPU_LOST_SWITCH, now);
		if (n)
			n->wake_ns = 0;
		return 0;
	}

	e->kind = INGERO_RING_SWITCH;
	e->cpu = cpu;
	e->t_ns = now;
	e->prev_tid = prev->pid;
	e->prev_tgid = prev->tgid;
	e->next_tid = next->pid;
	e->next_tgid = next->tgid;

	fill_prev(e, prev, state, &flags);
	if (!state && prev->pid &&
	    (preempt || !(flags & INGERO_PREV_YIELDED))) {
		flags &= ~INGERO_PREV_YIELDED;
		flags |= INGERO_PREV_PREEMPTED;
	}
	e->prev_pages = 0;
	e->prev_large_allocs = 0;
	e->prev_min_faults = 0;
	e->prev_maj_faults = 0;
	e->prev_kernel_us = 0;
	if (p) {
		u64 min_flt = prev->min_flt, maj_flt = prev->maj_flt;
		u64 stime_ns = prev->stime;

		e->prev_pages = p->pages;
		e->prev_large_allocs = p->large_allocs;
		p->pages = 0;
		p->flushed = 0;
		p->large_allocs = 0;
		if (p->has_faults) {
			e->prev_min_faults = min_flt - p->min_flt;
			e->prev_maj_faults = maj_flt - p->maj_flt;
			e->prev_kernel_us = (stime_ns - p->stime_ns) / 1000;
		}
		p->has_faults = 1;
		p->min_flt = min_flt;
		p->maj_flt = maj_flt;
		p->stime_ns = stime_ns;
	}

	e->wake_ns = 0;
	e->waker_tid = 0;
	e->waker_tgid = 0;
	e->next_throttled_ns = n ? throttled_since(n, next) : 0;
	if (next->flags & PF_KTHREAD)
		flags |= INGERO_NEXT_KTHREAD;
	/*
	 * A thread that left the CPU runnable was not woken, whatever
	 * sched_waking saw meanwhile. A wake that came just before the sleeper
	 * left the CPU counts: nothing but a wake ends a sleep, so a stale one
	 * is always overwritten.
	 */
	if (n) {
		if (!n->left_runnable && n->wake_ns) {
			e->wake_ns = n->wake_ns;
			e->waker_tid = n->waker_tid;
			e->waker_tgid = n->waker_tgid;
			flags |= n->wake_flags;
		}
		n->wake_ns = 0;
	}
	e->flags = flags;
	/* A wake-up of the reader costs 1-2 us a switch; it polls. */
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
	return 0;
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
 *   as its own variable or within pcpu_hot;
 *   else the stack: interrupts that come while in the kernel run on a stack of
 *   their own. One that comes from user mode runs on the task's stack, and so
 *   does a page fault; both leave orig_ax -1, and no claim is made.
 */
extern const int __preempt_count __ksym __weak;
extern const struct pcpu_hot pcpu_hot __ksym __weak;

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

SEC("tp_btf/sched_waking")
int BPF_PROG(on_sched_waking_count, struct task_struct *task)
{
	struct task_struct *waker = bpf_get_current_task_btf();
	const int *count = bpf_this_cpu_ptr(&__preempt_count);

	return store_wake(task, waker, context_by_count(waker, *count));
}

SEC("tp_btf/sched_waking")
int BPF_PROG(on_sched_waking_hot, struct task_struct *task)
{
	struct task_struct *waker = bpf_get_current_task_btf();
	const struct pcpu_hot *hot = bpf_this_cpu_ptr(&pcpu_hot);

	return store_wake(task, waker,
			  context_by_count(waker, hot->preempt_count));
}

/*
 * Bytes from the base of the current task's stack to this program's frame.
 * INVARIANT: the caller's frame stays under 64 bytes; from there on newer
 * kernels give a program a private stack.
 */
static __always_inline u64 stack_depth(struct task_struct *current)
{
	u64 frame_minus_task;

	/* Pointer minus pointer is how the verifier yields a number. */
	asm volatile("%[d] = r10\n\t%[d] -= %[task]"
		     : [d] "=&r"(frame_minus_task)
		     : [task] "r"(current));
	return frame_minus_task + bpf_get_current_task() -
	       (u64)current->stack;
}

static __always_inline u16 context_by_stack(struct task_struct *waker)
{
	struct pt_regs *regs;

	if (!waker->pid || stack_depth(waker) >= THREAD_SIZE ||
	    carries_interrupts(waker))
		return INGERO_WAKE_IRQ;
	if (waker->flags & PF_KTHREAD)
		return 0;
	regs = (struct pt_regs *)bpf_task_pt_regs(waker);
	return (long)regs->orig_ax == -1 ? INGERO_WAKE_UNKNOWN : 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(on_sched_waking_stack, struct task_struct *task)
{
	struct task_struct *waker = bpf_get_current_task_btf();

	return store_wake(task, waker, context_by_stack(waker));
}

/* First run of a new thread: its creator is the waker. */
SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(on_sched_wakeup_new, struct task_struct *task)
{
	return store_wake(task, bpf_get_current_task_btf(), INGERO_WAKE_NEW);
}
