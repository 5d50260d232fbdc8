/* SPDX-License-Identifier: Apache-2.0 */
/* Files of docs/ as bytes; declared in tools.cc. */
.macro document name, file
	.globl ingero_document_\name, ingero_document_\name\()_end
	.hidden ingero_document_\name, ingero_document_\name\()_end
ingero_document_\name:
	.incbin "\file"
ingero_document_\name\()_end:
	.byte 0
.endm

	.section .rodata
	document rules, "docs/rules.md"
	document report_schema, "docs/explain.schema.json"

	.section .note.GNU-stack, "", @progbits
