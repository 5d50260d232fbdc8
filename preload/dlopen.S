/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dlopen, only to note RTLD_DEEPBIND, and to clear it on request. The loader searches the RUNPATH of the
 * module that its return address lies in, so this jumps and never calls.
 */
	.text

	.globl	dlopen
	.type	dlopen, @function
	.p2align 4
dlopen:
	.cfi_startproc
	endbr64
	movq	ingero_real_dlopen(%rip), %rax
	testq	%rax, %rax
	je	1f
	testl	$8, %esi		/* RTLD_DEEPBIND */
	jne	1f
	jmp	*%rax
1:	pushq	%rdi
	.cfi_adjust_cfa_offset 8
	subq	$16, %rsp
	.cfi_adjust_cfa_offset 16
	call	ingero_dlopen_mode	/* (file, mode) */
	movl	%eax, %esi
	addq	$16, %rsp
	.cfi_adjust_cfa_offset -16
	popq	%rdi
	.cfi_adjust_cfa_offset -8
	movq	ingero_real_dlopen(%rip), %rax
	testq	%rax, %rax
	je	2f
	jmp	*%rax
2:	xorl	%eax, %eax		/* no dlopen in this process */
	ret
	.cfi_endproc
	.size	dlopen, . - dlopen

	.section .note.GNU-stack, "", @progbits
