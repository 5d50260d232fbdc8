/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The compiled BPF objects as bytes; declared in objects.h. */
.macro object name, file
	.balign 16
	.globl ingero_bpf_\name, ingero_bpf_\name\()_end
	.hidden ingero_bpf_\name, ingero_bpf_\name\()_end
ingero_bpf_\name:
	.incbin "\file"
ingero_bpf_\name\()_end:
	.byte 0
.endm

	.section .rodata
	object sched, "sched.bpf.o"
	object waking_count, "waking_count.bpf.o"
	object waking_hot, "waking_hot.bpf.o"
	object process, "process.bpf.o"
	object memory, "memory.bpf.o"

	.section .note.GNU-stack, "", @progbits
