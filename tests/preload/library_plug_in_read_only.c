/* SPDX-License-Identifier: Apache-2.0 */
/* A pointer among read-only data, which only the loader can write. */
__asm__(
    ".section .rodata.pointer,\"a\",@progbits\n"
    ".p2align 3\n"
    ".globl plug_in_read_only\n"
    ".type plug_in_read_only, @object\n"
    ".size plug_in_read_only, 8\n"
    "plug_in_read_only: .quad ncclGetVersion\n"
    ".previous\n");
