/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dlsym and dlvsym. The loader looks at its return address to know who asks
 * (RTLD_NEXT, RTLD_DEFAULT, namespaces), so what is not answered here goes on
 * by a tail jump. ingero_dlsym(handle, name, version, caller) answers, or
 * returns 1 for "jump".
 */
	.text

	.globl	dlsym
	.type	dlsym, @function
	.p2align 4
dlsym:
	.cfi_startproc
	endbr64
	pushq	%rdi
	.cfi_adjust_cfa_offset 8
	pushq	%rsi
	.cfi_adjust_cfa_offset 8
	subq	$8, %rsp
	.cfi_adjust_cfa_offset 8
	xorl	%edx, %edx
	movq	24(%rsp), %rcx
	call	ingero_dlsym
	addq	$8, %rsp
	.cfi_adjust_cfa_offset -8
	popq	%rsi
	.cfi_adjust_cfa_offset -8
	popq	%rdi
	.cfi_adjust_cfa_offset -8
	cmpq	$1, %rax
	je	1f
	ret
1:	jmp	*ingero_real_dlsym(%rip)
	.cfi_endproc
	.size	dlsym, . - dlsym

	.globl	dlvsym
	.type	dlvsym, @function
	.p2align 4
dlvsym:
	.cfi_startproc
	endbr64
	pushq	%rdi
	.cfi_adjust_cfa_offset 8
	pushq	%rsi
	.cfi_adjust_cfa_offset 8
	pushq	%rdx
	.cfi_adjust_cfa_offset 8
	movq	24(%rsp), %rcx
	call	ingero_dlsym
	popq	%rdx
	.cfi_adjust_cfa_offset -8
	popq	%rsi
	.cfi_adjust_cfa_offset -8
	popq	%rdi
	.cfi_adjust_cfa_offset -8
	cmpq	$1, %rax
	je	1f
	ret
1:	jmp	*ingero_real_dlvsym(%rip)
	.cfi_endproc
	.size	dlvsym, . - dlvsym

	.section .note.GNU-stack, "", @progbits
