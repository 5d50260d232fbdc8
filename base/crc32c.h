// SPDX-License-Identifier: Apache-2.0
// CRC-32C (Castagnoli): the one that x86 computes in hardware.
#ifndef INGERO_BASE_CRC32C_H_
#define INGERO_BASE_CRC32C_H_

#include <cstdint>
#include <string_view>

namespace ingero {

// The CRC of what `crc` covers followed by `bytes`; 0 to begin.
uint32_t Crc32c(std::string_view bytes, uint32_t crc = 0);

// The table version, for CPUs without SSE4.2 and for the test that both agree.
uint32_t Crc32cPortable(std::string_view bytes, uint32_t crc = 0);

}  // namespace ingero

#endif  // INGERO_BASE_CRC32C_H_
