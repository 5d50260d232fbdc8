// SPDX-License-Identifier: Apache-2.0
#include "merge/stream.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace ingero::merge {
namespace {

constexpr char kCopyAgain[] =
    "; copy the file again from where it was recorded, or check that disk";

}  // namespace

std::string BootIdText(const __u8 (&boot_id)[16]) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string text;
  for (__u8 b : boot_id) {
    text += kHex[b >> 4];
    text += kHex[b & 15];
  }
  return text;
}

std::string FileName(const std::string& path) {
  return path.substr(path.find_last_of('/') + 1);
}

void DamageLines::Add(const std::string& path, uint64_t offset,
                      uint64_t bytes) {
  const bool first = places_++ == 0;
  first_place_ = first ? offset : std::min(first_place_, offset);
  place_bytes_ += bytes;
  if (first) {
    place_line_ = lines_.size();
    lines_.emplace_back();
  }
  lines_[place_line_] =
      FileName(path) + ": " +
      (places_ == 1
           ? fmt::format("{} bytes at offset {} are damaged and were left out",
                         FormatCount(bytes), offset)
           : fmt::format("{} bytes in {} places are damaged and were left out "
                         "(the first at offset {})",
                         FormatCount(place_bytes_), FormatCount(places_),
                         first_place_)) +
      ", the rest was read" + kCopyAgain;
}

void DamageLines::Add(const std::string& path, const std::string& what) {
  constexpr size_t kMost = 8;
  if (lines_.size() < kMost)
    lines_.push_back(FileName(path) + ": " + what + kCopyAgain);
  else if (lines_.size() == kMost)
    lines_.push_back(FileName(path) + ": and more places like these");
}

Result<OpenStream> OpenStreamFile(const std::string& path) {
  auto file = InputFile::Open(path);
  if (!file.ok()) return file.status();
  OpenStream stream{std::move(*file), {}, 0};
  INGERO_ASSIGN_OR_RETURN(stream.bytes, stream.file.Size());
  ingero_stream_header& h = stream.header;
  INGERO_ASSIGN_OR_RETURN(const size_t got,
                          stream.file.ReadAt(0, &h, sizeof(h)));
  if (got < sizeof(h))
    return Status::Error(path + ": shorter than a stream header (" +
                         std::to_string(got) + " bytes)");
  if (h.magic != INGERO_MAGIC_CUDA && !stream.coded())
    return Status::Error(path + ": not an ingero stream");
  if (h.major != INGERO_WIRE_MAJOR)
    return Status::Error(path + ": stream version " + std::to_string(h.major) +
                         "." + std::to_string(h.minor) +
                         ", this ingero reads version " +
                         std::to_string(INGERO_WIRE_MAJOR) +
                         "; use the ingero that recorded it");
  if (CheckStreamHeader(h) == Checked::kDamaged)
    return Status::Error(path +
                         ": its header is damaged: whose events these are is "
                         "not known" + kCopyAgain);
  const bool sizes_fit =
      h.header_bytes >= sizeof(h) && h.header_bytes <= (1u << 20) &&
      (stream.coded() ||
       (h.block_bytes >= 4096 && h.block_bytes <= (1u << 24) &&
        h.block_bytes % 8 == 0));
  if (!sizes_fit)
    return Status::Error(path + ": its header holds impossible sizes");
  if (h.clock != INGERO_CLOCK_TSC && h.clock != INGERO_CLOCK_MONOTONIC &&
      h.magic == INGERO_MAGIC_CUDA)
    return Status::Error(path + ": unknown clock " + std::to_string(h.clock));
  return stream;
}

const LossInfo* FindLoss(uint64_t value) {
  static constexpr LossInfo kLosses[] = {
#define X(id, value, kebab, severity, text) {value, kebab, severity, text},
      INGERO_LOSSES(X)
#undef X
  };
  for (const LossInfo& loss : kLosses)
    if (loss.value == value) return &loss;
  return nullptr;
}

}  // namespace ingero::merge
