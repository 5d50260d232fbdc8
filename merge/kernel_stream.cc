// SPDX-License-Identifier: Apache-2.0
#include "merge/kernel_stream.h"

#include <algorithm>
#include <cstring>

namespace ingero::merge {
namespace {

constexpr Ns kMaxTrustedStep{60'000'000'000};

}  // namespace

Result<std::unique_ptr<KernelStream>> KernelStream::Open(
    const std::string& path, bool verify) {
  INGERO_ASSIGN_OR_RETURN(OpenStream stream, OpenStreamFile(path));
  if (!stream.coded())
    return Status::Error(path + ": not a stream of coded blocks");
  std::unique_ptr<KernelStream> kernel(new KernelStream(std::move(stream)));
  INGERO_RETURN_IF_ERROR(kernel->Index(verify));
  return kernel;
}

Result<uint64_t> KernelStream::FindBlock(uint64_t offset) const {
  constexpr size_t kWindow = 1 << 20;
  std::string window, block;
  while (offset + sizeof(BlockPreamble) <= stream_.bytes) {
    INGERO_RETURN_IF_ERROR(stream_.file.ReadAt(offset, kWindow, &window));
    if (window.size() < sizeof(BlockPreamble)) break;
    const uint32_t magic = kBlockMagic;
    const std::string_view needle(reinterpret_cast<const char*>(&magic), 4);
    for (size_t at = window.find(needle); at != std::string::npos;
         at = window.find(needle, at + 1)) {
      INGERO_RETURN_IF_ERROR(stream_.file.ReadAt(
          offset + at, sizeof(BlockPreamble), &block));
      auto preamble = ReadPreamble(block);
      if (!preamble.ok()) continue;
      INGERO_RETURN_IF_ERROR(
          stream_.file.ReadAt(offset + at, BlockBytes(*preamble), &block));
      if (CheckBlock(block).ok()) return offset + at;
    }
    offset += window.size() - (needle.size() - 1);
  }
  return stream_.bytes;
}

void KernelStream::Skip(uint64_t* at, uint64_t next) {
  damage_.Add(path(), *at, next - *at);
  skipped_ += next - *at;
  ++places_;
  *at = next;
}

Status KernelStream::Index(bool verify) {
  span_.begin = span_.end = Ns(stream_.created_ns());
  uint64_t at = stream_.header.header_bytes;
  std::string head, block;
  while (at < stream_.bytes) {
    INGERO_RETURN_IF_ERROR(
        stream_.file.ReadAt(at, sizeof(BlockPreamble), &head));
    auto preamble = ReadPreamble(head);
    const bool cut = head.size() < sizeof(BlockPreamble);
    if (cut || (preamble.ok() && at + BlockBytes(*preamble) > stream_.bytes)) {
      // The end of a killed or still running writer, unless whole blocks
      // follow: then these sizes are damage.
      INGERO_ASSIGN_OR_RETURN(const uint64_t next, FindBlock(at + 1));
      if (next >= stream_.bytes) {
        torn_ = true;
        break;
      }
      Skip(&at, next);
      continue;
    }
    bool damaged = !preamble.ok();
    // A damaged time must not stretch the recording over those after it.
    const bool odd =
        !damaged && Ns(preamble->last_ns) > span_.end + kMaxTrustedStep;
    if (!damaged && (verify || odd)) {
      INGERO_RETURN_IF_ERROR(
          stream_.file.ReadAt(at, BlockBytes(*preamble), &block));
      damaged = !CheckBlock(block).ok();
    }
    if (damaged) {
      INGERO_ASSIGN_OR_RETURN(const uint64_t next, FindBlock(at + 1));
      Skip(&at, next);
      continue;
    }
    BlockRef ref;
    ref.table = preamble->table;
    ref.owner = preamble->owner;
    ref.first_ns = preamble->first_ns;
    ref.last_ns = preamble->last_ns;
    ref.sequence = static_cast<uint32_t>(blocks_.size());
    ref.bytes = static_cast<uint32_t>(BlockBytes(*preamble));
    ref.offset = at;
    blocks_.push_back(ref);
    rows_ += preamble->rows;
    span_.end = std::max(span_.end, Ns(ref.last_ns));
    at += ref.bytes;
  }
  // Cut between two blocks.
  torn_ |= stream_.header.exited != 0 &&
           blocks_.size() + places_ < stream_.header.blocks_reserved;
  return {};
}

Status KernelStream::Read(const BlockRef& ref, std::string* bytes) const {
  INGERO_RETURN_IF_ERROR(stream_.file.ReadAt(ref.offset, ref.bytes, bytes));
  if (bytes->size() != ref.bytes)
    return Status::Error(path() + ": was cut while being read");
  return {};
}

}  // namespace ingero::merge
