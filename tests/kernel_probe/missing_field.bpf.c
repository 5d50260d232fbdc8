// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* A probe that reads a field which no kernel has. */
#include "bpf/emit.bpf.h"

struct task_struct___missing {
	u64 ingero_no_such_field;
} __attribute__((preserve_access_index));

SEC("tp_btf/sched_process_free")
int BPF_PROG(on_missing_field, struct task_struct *task)
{
	struct task_struct___missing *t = (void *)task;

	return BPF_CORE_READ(t, ingero_no_such_field) & 1;
}
