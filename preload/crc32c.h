/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CRC-32C (Castagnoli), as base/crc32c.h has it for the readers. No state, no
 * libc; any thread, any time.
 */
#ifndef INGERO_PRELOAD_CRC32C_H
#define INGERO_PRELOAD_CRC32C_H

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

/* Of what `crc` covers followed by `bytes`; 0 to begin. */
uint32_t ingero_crc32c(const void *bytes, size_t count, uint32_t crc);

/* As struct ingero_block_header's records_crc. count is a multiple of 8. */
uint32_t ingero_records_crc(const void *records, size_t count);

/* The version for CPUs without the instruction, for tests. */
uint32_t ingero_crc32c_portable(const void *bytes, size_t count, uint32_t crc);

#pragma GCC visibility pop

#endif /* INGERO_PRELOAD_CRC32C_H */
