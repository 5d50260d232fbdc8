// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Who ran, who waited, for what, and who ended the wait.
 *
 * Budget: on_sched_switch and on_sched_waking together at most 1.6x of a bare
 * 48-byte ring record per switch (bench/kernel_bench.cc).
 */
#include "waking.bpf.h"

/*
 * Where this CPU's next slot but `ahead` is, or NULL where `ahead` + 1 slots
 * are not free. It is the companion's once publish() has been called: x86
 * keeps the order of stores.
 */
static __always_inline void *free_slot(struct ingero_cpu_state *here, u32 cpu,
				       u32 ahead)
{
	u64 tail = *(volatile u64 *)&here->tail, at = here->head + ahead;
	u32 slots = config.ring_slots, key;

	if (at - tail >= slots)
		return NULL;
	key = cpu * slots + ((u32)at & (slots - 1));
	return bpf_map_lookup_elem(&switch_slots, &key);
}

static __always_inline void publish(struct ingero_cpu_state *here, u32 slots)
{
	asm volatile("" ::: "memory");
	*(volatile u64 *)&here->head += slots;
}

static __always_inline u32 task_state(struct task_struct *task)
{
	if (bpf_core_field_exists(struct task_struct___state, __state))
		return ((struct task_struct___state *)task)->__state;
	return ((struct task_struct___old_state *)task)->state;
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

static __always_inline void take_kept(struct ingero_counts *counts,
				      struct ingero_task_state *s)
{
	*counts = s->counts;
	__builtin_memset(&s->counts, 0, sizeof(s->counts));
	s->kept = 0;
}

static __always_inline void note_faults(struct ingero_counts *counts,
					struct task_struct *task)
{
	counts->has_faults = task->pid != 0;
	counts->min_flt = task->min_flt;
	counts->maj_flt = task->maj_flt;
	counts->stime_ns = task->stime;
}

/* `next` comes; s: its storage, or NULL. */
static __always_inline void begin_counts(struct ingero_counts *counts,
					 struct task_struct *next,
					 struct ingero_task_state *s)
{
	if (s && s->kept) {
		take_kept(counts, s);
		if (counts->has_faults)
			return;
	} else {
		counts->pages = 0;
		counts->large_allocs = 0;
		counts->flushed = 0;
	}
	note_faults(counts, next);
}

/*
 * --tree: must this switch be recorded? Of the tree itself each one is; of
 * others those on a CPU that one of the tree waits for. The last that was left
 * out before is told then, since it brought `prev`, who holds the CPU.
 */
static __always_inline bool in_scope(struct ingero_cpu_state *here,
				     struct task_struct *prev,
				     struct ingero_task_state *n, u32 state,
				     struct ingero_task_state *p, u64 now,
				     u32 cpu, u32 *flags)
{
	struct ingero_ring_switch *e;
	bool was = here->running_in_tree, is = n && n->in_tree;
	bool waited = here->tree_waiting;

	if (here->running != (u64)prev)
		was = p && p->in_tree;
	here->running_in_tree = is;
	if (was && !state && p)
		wait_for_cpu(p, cpu + 1);
	if (is)
		wait_for_cpu(n, 0);
	if (!was && !is && !waited) {
		here->switches_left_out++;
		here->left_out_ns = now;
		return false;
	}
	if (!was)
		*flags |= INGERO_PREV_OUTSIDE;
	if (!is)
		*flags |= INGERO_NEXT_OUTSIDE;
	if (!here->left_out_ns)
		return true;
	here->switches_left_out--;
	e = free_slot(here, cpu, 0);
	if (!e) {
		count_loss(here, INGERO_CPU_LOST_SWITCH, here->left_out_ns);
	} else {
		__builtin_memset(e, 0, sizeof(*e));
		e->kind = INGERO_RING_SWITCH;
		/* Outside also if it joined the tree since: what it did before
		 * is not known. */
		e->flags = INGERO_PREV_OUTSIDE | INGERO_PREV_LEFT_OUT |
			   INGERO_NEXT_OUTSIDE;
		if (prev->flags & PF_KTHREAD)
			e->flags |= INGERO_NEXT_KTHREAD;
		e->prev_syscall = -1;
		e->cpu = cpu;
		e->t_ns = here->left_out_ns;
		e->next_tid = prev->pid;
		e->next_tgid = prev->tgid;
		publish(here, 1);
	}
	here->left_out_ns = 0;
	return true;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_sched_switch, bool preempt, struct task_struct *prev,
	     struct task_struct *next)
{
	u32 cpu = bpf_get_smp_processor_id();
	u64 now = bpf_ktime_get_ns();
	struct ingero_task_state *p = NULL, *n = NULL;
	struct ingero_cpu_state *here;
	struct ingero_counts *counts;
	struct ingero_ring_switch *e;
	u32 min_faults = 0, maj_faults = 0, kernel_us = 0, state, flags = 0;
	u32 slots = 1;
	u64 throttled_ns;
	bool told = true;

	here = bpf_map_lookup_elem(&cpu_states, &cpu);
	if (!here)
		return 0;
	here->switches_seen++;

	/* An involuntary switch leaves the thread runnable whatever it was
	 * about to do. */
	if (preempt)
		state = 0;
	else if (config.switch_has_state)
		state = ctx[3];
	else
		state = task_state(prev);

	counts = &here->counts;
	if (prev->pid && (!state || config.late_stime ||
			  here->running != (u64)prev)) {
		p = task_storage(prev);
		if (p && !state) {
			p->left_runnable = 1;
			note_throttle(p, prev);
		}
	}
	if (here->running != (u64)prev) {
		/* Not seen coming: since when its faults are is not known. */
		__builtin_memset(counts, 0, sizeof(*counts));
		if (p && p->kept)
			take_kept(counts, p);
	}
	if (next->pid)
		n = task_storage(next);
	if (config.tree_roots)
		told = in_scope(here, prev, n, state, p, now, cpu, &flags);
	here->running = (u64)next;
	if (!told) {
		/* Counts of others than the tree's are not kept: only what
		 * they take while they run is told. */
		if (n) {
			n->wake_ns = 0;
			n->left_runnable = 0;
			n->throttle_rq = 0;
			n->kept = 0;
		}
		begin_counts(counts, next, NULL);
		return 0;
	}
	if (counts->has_faults) {
		min_faults = prev->min_flt - counts->min_flt;
		maj_faults = prev->maj_flt - counts->maj_flt;
		kernel_us = (prev->stime - counts->stime_ns) / 1000;
	}
	throttled_ns = n ? throttled_since(n, next) : 0;

	e = free_slot(here, cpu, 0);
	/* large_allocs are among the pages. */
	if (e && (counts->pages | min_faults | maj_faults | kernel_us |
		  throttled_ns)) {
		struct ingero_ring_switch_more *more = free_slot(here, cpu, 1);

		slots = 2;
		if (more) {
			more->prev_pages = counts->pages;
			more->prev_large_allocs = counts->large_allocs;
			more->prev_min_faults = min_faults;
			more->prev_maj_faults = maj_faults;
			more->prev_kernel_us = kernel_us;
			more->next_throttled_ns = throttled_ns;
		} else {
			e = NULL;
		}
	}
	if (!e) {
		count_loss(here, INGERO_CPU_LOST_SWITCH, now);
		if (prev->pid && (p || (p = task_storage(prev)))) {
			p->counts = *counts;
			p->kept = 1;
		}
		if (n) {
			n->wake_ns = 0;
			n->left_runnable = 0;
		}
		begin_counts(counts, next, n);
		return 0;
	}
	if (config.late_stime && p) {
		__builtin_memset(&p->counts, 0, sizeof(p->counts));
		note_faults(&p->counts, prev);
		p->kept = 1;
	}
	begin_counts(counts, next, n);

	e->kind = slots == 1 ? INGERO_RING_SWITCH : INGERO_RING_SWITCH_MORE;
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
	e->wake_ns = 0;
	e->waker_tid = 0;
	e->waker_tgid = 0;
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
		n->left_runnable = 0;
	}
	e->flags = flags;
	/* Nobody is woken, which would cost 1-2 us a switch: the reader polls. */
	publish(here, slots);
	return 0;
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

static __always_inline void tree_thread_wakes(struct task_struct *task)
{
	struct ingero_task_state *s =
		bpf_task_storage_get(&task_states, task, 0, 0);

	if (s && s->in_tree)
		wait_for_cpu(s, task_cpu(task) + 1);
}

/* First run of a new thread: its creator is the waker. */
SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(on_sched_wakeup_new, struct task_struct *task)
{
	if (config.tree_roots)
		tree_thread_wakes(task);
	return store_wake(task, bpf_get_current_task_btf(), INGERO_WAKE_NEW);
}

/* Loaded with --tree only. It wakes on the CPU that was chosen for it. */
SEC("tp_btf/sched_wakeup")
int BPF_PROG(on_sched_wakeup, struct task_struct *task)
{
	if (bpf_core_field_exists(struct task_struct___smp, on_cpu) &&
	    ((struct task_struct___smp *)task)->on_cpu)
		return 0; /* it did not get to sleep */
	tree_thread_wakes(task);
	return 0;
}

/* Likewise. */
SEC("tp_btf/sched_migrate_task")
int BPF_PROG(on_sched_migrate_task, struct task_struct *task, int to)
{
	struct ingero_task_state *s =
		bpf_task_storage_get(&task_states, task, 0, 0);

	if (s && s->waits_for)
		wait_for_cpu(s, to + 1);
	return 0;
}
