// SPDX-License-Identifier: Apache-2.0
#include "base/stream_check.h"

#include <cstddef>

#include "base/crc32c.h"

namespace ingero {
namespace {

uint32_t CrcOf(ingero_stream_header header) {
  header.check_crc = 0;
  return Crc32c({reinterpret_cast<const char*>(&header),
                 offsetof(ingero_stream_header, blocks_reserved)});
}

uint32_t CrcOf(ingero_block_header header) {
  header.header_crc = 0;
  return Crc32c({reinterpret_cast<const char*>(&header), sizeof(header)});
}

}  // namespace

Checked CheckStreamHeader(const ingero_stream_header& header) {
  if (header.check == INGERO_CHECK_NONE && header.check_crc == 0)
    return Checked::kNone;
  return header.check == INGERO_CHECK_CRC32C &&
                 header.check_crc == CrcOf(header)
             ? Checked::kWhole
             : Checked::kDamaged;
}

Checked CheckBlockHeader(const ingero_block_header& header) {
  if (header.check == INGERO_CHECK_NONE && header.header_crc == 0 &&
      header.records_crc == 0)
    return Checked::kNone;
  return header.check == INGERO_CHECK_CRC32C &&
                 header.header_crc == CrcOf(header)
             ? Checked::kWhole
             : Checked::kDamaged;
}

uint32_t RecordsCrc(std::string_view records) {
  const size_t part = records.size() / 32 * 8;
  uint32_t crcs[4];
  for (size_t i = 0; i < 4; ++i)
    crcs[i] = Crc32c(records.substr(i * part, i < 3 ? part : records.npos));
  return Crc32c({reinterpret_cast<const char*>(crcs), sizeof(crcs)});
}

void SealStreamHeader(ingero_stream_header* header) {
  header->check = INGERO_CHECK_CRC32C;
  header->check_crc = CrcOf(*header);
}

void SealBlockHeader(ingero_block_header* header, std::string_view records) {
  header->check = INGERO_CHECK_CRC32C;
  header->records_crc = RecordsCrc(records);
  header->header_crc = CrcOf(*header);
}

}  // namespace ingero
