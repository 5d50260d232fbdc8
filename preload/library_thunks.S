/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the entry points of NCCL, cuBLAS, cuBLASLt and cuDNN are replaced by
 * (library.c): one thunk per function, all through one frame, which knows no
 * signature. Between the two calls of library.c the real function is called
 * with the registers of the caller (rdi..r9, xmm0-7, al, r10) and a copy of the
 * stack above the return address; it sees another address of its stack
 * arguments, which no C function can know of. What it returns (rax, rdx, xmm0,
 * xmm1; x87 is not touched) goes back as it is. What is above the low 16 bytes
 * of vector registers is not passed on: only a __m256, a __m512 or a struct of
 * just one lies there, and the libraries' headers, which a C compiler without
 * AVX reads, have none (tests/preload/library_test.py looks for them).
 *
 * The frame is found through rbp, so exceptions, cancellation and backtraces
 * pass. r11 belongs to nobody between a caller and a function.
 *
 *   rbp -   8  rax    -  16  r10    -  24  rdi    -  32  rsi
 *       -  40  rdx    -  48  rcx    -  56  r8     -  64  r9
 *       - 112  struct library_call: the real function first
 *       - 240  xmm0-7
 */
	.text

	.globl	ingero_library_frame
	.hidden	ingero_library_frame
	.p2align 6
	.type	ingero_library_frame, @function
ingero_library_frame:
	.cfi_startproc
	pushq	%rbp
	.cfi_adjust_cfa_offset 8
	.cfi_offset %rbp, -16
	movq	%rsp, %rbp
	.cfi_def_cfa_register %rbp
	subq	$240, %rsp
	movq	%rax, -8(%rbp)
	movq	%r10, -16(%rbp)
	movq	%rdi, -24(%rbp)
	movq	%rsi, -32(%rbp)
	movq	%rdx, -40(%rbp)
	movq	%rcx, -48(%rbp)
	movq	%r8, -56(%rbp)
	movq	%r9, -64(%rbp)
	movups	%xmm0, -240(%rbp)
	movups	%xmm1, -224(%rbp)
	movups	%xmm2, -208(%rbp)
	movups	%xmm3, -192(%rbp)
	movups	%xmm4, -176(%rbp)
	movups	%xmm5, -160(%rbp)
	movups	%xmm6, -144(%rbp)
	movups	%xmm7, -128(%rbp)
	leaq	-112(%rbp), %rdi
	movl	%r11d, %esi
	leaq	16(%rbp), %rdx
	call	ingero_library_enter	/* bytes of stack to copy */
	subq	%rax, %rsp
	movq	%rax, %rcx
	shrq	$3, %rcx
	leaq	16(%rbp), %rsi
	movq	%rsp, %rdi
	rep movsq
	movq	-8(%rbp), %rax
	movq	-16(%rbp), %r10
	movq	-24(%rbp), %rdi
	movq	-32(%rbp), %rsi
	movq	-40(%rbp), %rdx
	movq	-48(%rbp), %rcx
	movq	-56(%rbp), %r8
	movq	-64(%rbp), %r9
	movups	-240(%rbp), %xmm0
	movups	-224(%rbp), %xmm1
	movups	-208(%rbp), %xmm2
	movups	-192(%rbp), %xmm3
	movups	-176(%rbp), %xmm4
	movups	-160(%rbp), %xmm5
	movups	-144(%rbp), %xmm6
	movups	-128(%rbp), %xmm7
	call	*-112(%rbp)
	movq	%rax, -8(%rbp)
	movq	%rdx, -16(%rbp)
	movups	%xmm0, -240(%rbp)
	movups	%xmm1, -224(%rbp)
	leaq	-112(%rbp), %rdi
	movl	%eax, %esi
	call	ingero_library_leave
	movq	-8(%rbp), %rax
	movq	-16(%rbp), %rdx
	movups	-240(%rbp), %xmm0
	movups	-224(%rbp), %xmm1
	leave
	.cfi_def_cfa %rsp, 8
	ret
	.cfi_endproc
	.size	ingero_library_frame, . - ingero_library_frame

	.globl	ingero_library_thunks
	.hidden	ingero_library_thunks
	.type	ingero_library_thunks, @function
	.p2align 4
ingero_library_thunks:
	.cfi_startproc
	.set	index, 0
	.rept	4096			/* LIBRARY_ROWS_MAX of shim.h, 16 bytes each */
	.p2align 4
	endbr64
	movl	$index, %r11d
	jmp	ingero_library_frame
	.set	index, index + 1
	.endr
	.p2align 4
	.cfi_endproc
	.size	ingero_library_thunks, . - ingero_library_thunks

	.section .note.GNU-stack, "", @progbits
