// SPDX-License-Identifier: Apache-2.0
#include "cli/live_calls.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>

#include "merge/stream.h"
#include "wire/wire.h"

namespace ingero::cli {
namespace {

constexpr uint64_t kBytesPerLook = 32 << 20;
constexpr int kDataLoss = 2;  // severity

std::vector<std::string> CudaStreams(const std::string& dir) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator it(dir, error), end;
       !error && it != end; it.increment(error)) {
    std::string name = it->path().filename().string();
    if (name.starts_with("cuda-") && name.ends_with(".ingero"))
      names.push_back(std::move(name));
  }
  return names;
}

uint64_t CallsIn(std::string_view records) {
  uint64_t calls = 0;
  ingero_record r;
  for (size_t at = 0; at + sizeof(r) <= records.size();) {
    std::memcpy(&r, records.data() + at, sizeof(r));
    if (r.kind == 0 || r.size8 == 0) break;
    calls += r.kind == INGERO_RECORD_CALL;
    at += size_t{r.size8} * 8;
  }
  return calls;
}

}  // namespace

LiveCalls::LiveCalls(std::string dir) : dir_(std::move(dir)) {
  for (const std::string& name : CudaStreams(dir_)) {
    Stream stream;
    if (auto open = merge::OpenStreamFile(dir_ + "/" + name); open.ok())
      stream.next_block = open->header.blocks_reserved;
    before_.emplace(name, stream);
  }
}

void LiveCalls::Look() {
  uint64_t budget = kBytesPerLook;
  for (const std::string& name : CudaStreams(dir_)) {
    if (streams_.contains(name)) continue;
    Stream stream;
    if (const auto old = before_.find(name); old != before_.end()) {
      // Of one that is full of older calls only what is added.
      auto open = merge::OpenStreamFile(dir_ + "/" + name);
      if (!open.ok() ||
          open->header.blocks_reserved <= old->second.next_block)
        continue;
      stream.next_block = old->second.next_block;
    }
    streams_.emplace(name, stream);
  }
  uint64_t calls = 0, lost = 0;
  for (auto& [name, stream] : streams_) {
    if (!stream.whole) LookAt(dir_ + "/" + name, &stream, &budget);
    calls += stream.calls;
    lost += stream.lost;
  }
  // A block that is written out between two reads is missed for one look.
  calls_ = std::max(calls_, calls);
  lost_ = std::max(lost_, lost);
}

void LiveCalls::LookAt(const std::string& path, Stream* stream,
                       uint64_t* budget) {
  auto open = merge::OpenStreamFile(path);
  if (!open.ok()) return;
  const ingero_stream_header& h = open->header;
  stream->lost = 0;
  for (uint64_t i = 0; i < INGERO_LOSS_MAX; ++i)
    if (const merge::LossInfo* info = merge::FindLoss(i);
        info != nullptr && info->severity == kDataLoss)
      stream->lost += h.lost[i];

  std::vector<uint64_t> blocks = std::move(stream->open_blocks);
  stream->open_blocks.clear();
  const uint64_t end = std::min<uint64_t>(
      h.blocks_reserved, stream->next_block + *budget / INGERO_BLOCK_BYTES);
  for (; stream->next_block < end; ++stream->next_block)
    blocks.push_back(stream->next_block);
  uint64_t open_calls = 0;
  std::string block;
  for (const uint64_t i : blocks) {
    ingero_block_header b;
    *budget -= std::min<uint64_t>(*budget, INGERO_BLOCK_BYTES);
    if (!open->file.ReadAt(i * INGERO_BLOCK_BYTES, INGERO_BLOCK_BYTES, &block)
             .ok() ||
        block.size() < sizeof(b)) {
      stream->open_blocks.push_back(i);
      continue;
    }
    std::memcpy(&b, block.data(), sizeof(b));
    const bool known = b.magic == INGERO_MAGIC_BLOCK;
    const uint64_t bytes = known ? b.cursor & UINT32_MAX : 0;
    const uint64_t calls =
        CallsIn(std::string_view(block).substr(sizeof(b), bytes));
    if (known && b.type == INGERO_BLOCK_DATA) {
      stream->settled_calls += calls;
    } else {
      open_calls += calls;
      stream->open_blocks.push_back(i);
    }
  }
  stream->calls = stream->settled_calls + open_calls;
  stream->whole = h.exited != 0 && stream->next_block >= h.blocks_reserved;
}

}  // namespace ingero::cli
