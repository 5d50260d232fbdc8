// SPDX-License-Identifier: Apache-2.0
#include "import/stream_file.h"

#include <fcntl.h>

#include <utility>

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
  return StreamFile(path, std::move(file), header);
}

Status StreamFile::Append(uint32_t tid, const std::string& record) {
  Slot& slot = slots_[tid];
  // Slots are known by a block's number; none of these is ever live.
  if (slot.number == 0) slot.number = static_cast<uint32_t>(slots_.size());
  if (slot.records.size() + record.size() > kMostRecordBytesOfBlock)
    INGERO_RETURN_IF_ERROR(WriteOut(tid, &slot));
  slot.records += record;
  return {};
}

Status StreamFile::WriteOut(uint32_t tid, Slot* slot) {
  if (slot->records.empty()) return {};
  const std::string block =
      FrameDataBlock(slot->number, slot->sequence++, tid, slot->records);
  slot->records.clear();
  return WriteBlock(blocks_++, block);
}

Status StreamFile::WriteBlock(uint64_t index, const std::string& block) {
  return WriteAllAt(file_.get(), block, index * INGERO_BLOCK_BYTES).In(path_);
}

Status StreamFile::Finish() {
  for (auto& [tid, slot] : slots_) INGERO_RETURN_IF_ERROR(WriteOut(tid, &slot));
  header_.blocks_reserved = blocks_;
  SealStreamHeader(&header_);
  std::string block = BytesOf(header_);
  block.resize(INGERO_BLOCK_BYTES);
  return WriteBlock(0, block);
}

}  // namespace ingero::import
