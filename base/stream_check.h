// SPDX-License-Identifier: Apache-2.0
// The CRC-32Cs of stream and block headers and of a block's records
// (wire/wire.h). Streams of version 1.0 have none. Pure functions.
#ifndef INGERO_BASE_STREAM_CHECK_H_
#define INGERO_BASE_STREAM_CHECK_H_

#include <cstdint>
#include <string_view>

#include "wire/wire.h"

namespace ingero {

enum class Checked {
  kNone,  // it carries no check
  kWhole,
  kDamaged,
};

Checked CheckStreamHeader(const ingero_stream_header& header);
Checked CheckBlockHeader(const ingero_block_header& header);
uint32_t RecordsCrc(std::string_view records);

// Fill in the members that hold the check: last of all.
void SealStreamHeader(ingero_stream_header* header);
void SealBlockHeader(ingero_block_header* header, std::string_view records);

}  // namespace ingero

#endif  // INGERO_BASE_STREAM_CHECK_H_
