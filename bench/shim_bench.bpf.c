// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What tracing a function from the kernel costs: entry, return, one record. */
#include "bpf/kernel_types.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} ring SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, u64);
	__type(value, u64);
} begun SEC(".maps");

SEC("uprobe")
int enter(void *regs)
{
	u64 thread = bpf_get_current_pid_tgid(), now = bpf_ktime_get_ns();

	bpf_map_update_elem(&begun, &thread, &now, BPF_ANY);
	return 0;
}

SEC("uretprobe")
int leave(void *regs)
{
	u64 thread = bpf_get_current_pid_tgid(), now = bpf_ktime_get_ns();
	u64 *from = bpf_map_lookup_elem(&begun, &thread);
	u64 *e = from ? bpf_ringbuf_reserve(&ring, 48, 0) : NULL;

	if (!e)
		return 0;
	e[0] = *from;
	e[1] = now;
	e[2] = thread;
	e[3] = e[4] = e[5] = 0;
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
	return 0;
}
