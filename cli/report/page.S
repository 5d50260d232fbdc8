/* SPDX-License-Identifier: Apache-2.0 */
/* page.html as bytes; declared in cmd_report.cc. */
	.section .rodata
	.globl ingero_report_page, ingero_report_page_end
	.hidden ingero_report_page, ingero_report_page_end
ingero_report_page:
	.incbin "cli/report/page.html"
ingero_report_page_end:
	.byte 0

	.section .note.GNU-stack, "", @progbits
