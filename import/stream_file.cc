// SPDX-License-Identifier: Apache-2.0
#include "import/stream_file.h"

#include <fcntl.h>

#include <utility>

#include "base/stream_check.h"

namespace ingero::import {

Result<StreamFile> StreamFile::Create(const std::string& path,
                                      ingero_stream_header header) {
  INGERO_ASSIGN_OR_RETURN(Fd file,
                          OpenFile(path, O_WRONLY | O_CREAT | O_EXCL, 0600));
  header.magic = INGERO_MAGIC_CUDA;
  header.major = INGERO_WIRE_MAJOR;
  header.minor = INGERO_WIRE_MINOR;
  header.header_bytes = INGERO_HEADER_BYTES;
  header.clock = INGERO_CLOCK_MONOTONIC;
  header.block_bytes = INGERO_BLOCK_BYTES;
  header.exited = 1;
  CopyText(header.tool_version, INGERO_VERSION);
  return StreamFile(std::move(file), header);
}

Status StreamFile::Append(uint32_t tid, ingero_record_kind kind, uint8_t flags,
                          std::string bytes) {
  bytes.resize((bytes.size() + 7) / 8 * 8);
  ingero_record r;
  r.kind = kind;
  r.flags = flags;
  r.size8 = static_cast<uint16_t>(bytes.size() / 8);
  // The framing is what each record begins with; what follows it stays.
  std::memcpy(bytes.data(), &r, sizeof(r));
  Slot& slot = slots_[tid];
  // Slots are known by a block's number; none of these is ever live.
  if (slot.number == 0) slot.number = static_cast<uint32_t>(slots_.size());
  if (slot.records.size() + bytes.size() >
      INGERO_BLOCK_BYTES - sizeof(ingero_block_header))
    INGERO_RETURN_IF_ERROR(WriteOut(tid, &slot));
  slot.records += bytes;
  return {};
}

Status StreamFile::WriteOut(uint32_t tid, Slot* slot) {
  if (slot->records.empty()) return {};
  auto b = Zeroed<ingero_block_header>();
  b.magic = INGERO_MAGIC_BLOCK;
  b.type = INGERO_BLOCK_DATA;
  b.slot = slot->number;
  b.tid = tid;
  b.cursor = uint64_t{slot->sequence++} << 32 | slot->records.size();
  SealBlockHeader(&b, slot->records);
  std::string block(reinterpret_cast<const char*>(&b), sizeof(b));
  block += slot->records;
  block.resize(INGERO_BLOCK_BYTES);
  slot->records.clear();
  return WriteAllAt(file_.get(), block, blocks_++ * INGERO_BLOCK_BYTES);
}

Status StreamFile::Finish() {
  for (auto& [tid, slot] : slots_) INGERO_RETURN_IF_ERROR(WriteOut(tid, &slot));
  header_.blocks_reserved = blocks_;
  SealStreamHeader(&header_);
  std::string block(reinterpret_cast<const char*>(&header_), sizeof(header_));
  block.resize(INGERO_BLOCK_BYTES);
  return WriteAllAt(file_.get(), block, 0);
}

}  // namespace ingero::import
