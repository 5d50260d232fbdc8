// SPDX-License-Identifier: Apache-2.0
#include "code_sampler/line_table.h"

#include <algorithm>
#include <optional>

namespace ingero::code_sampler {
namespace {

// Six bits a byte, the lowest first; bit 6 says that more follow.
std::optional<uint32_t> ReadVarint(std::string_view bytes, size_t* at) {
  uint32_t value = 0;
  for (unsigned shift = 0; shift < 30; shift += 6) {
    if (*at >= bytes.size()) return std::nullopt;
    const auto byte = static_cast<uint8_t>(bytes[(*at)++]);
    value |= uint32_t{byte & 63u} << shift;
    if ((byte & 64) == 0) return value;
  }
  return std::nullopt;
}

std::optional<int64_t> ReadSigned(std::string_view bytes, size_t* at) {
  const auto value = ReadVarint(bytes, at);
  if (!value) return std::nullopt;
  const int64_t half = *value >> 1;
  return (*value & 1) != 0 ? -half : half;
}

}  // namespace

bool LineTable::Parse(std::string_view bytes, uint32_t first_line,
                      uint32_t units) {
  ranges_.clear();
  int64_t line = first_line;
  uint32_t end = 0;
  for (size_t at = 0; at < bytes.size();) {
    const auto head = static_cast<uint8_t>(bytes[at++]);
    if ((head & 128) == 0) return false;
    const unsigned code = (head >> 3) & 15;
    std::optional<int64_t> delta = 0;
    size_t skip = 0;
    if (code <= 9) {  // short form: one byte of columns
      skip = 1;
    } else if (code <= 12) {  // within a line: two of them
      delta = static_cast<int64_t>(code) - 10;
      skip = 2;
    } else if (code == 13) {  // no columns
      delta = ReadSigned(bytes, &at);
    } else if (code == 14) {  // long form
      delta = ReadSigned(bytes, &at);
      for (int i = 0; i < 3; ++i)
        if (!ReadVarint(bytes, &at)) return false;
    }
    if (!delta || bytes.size() - at < skip) return false;
    at += skip;
    line += *delta;
    if (line < 0 || line > INT32_MAX) return false;
    end += (head & 7u) + 1;
    if (end > units) return false;
    const uint32_t of_range = code == 15 ? 0 : static_cast<uint32_t>(line);
    if (!ranges_.empty() && ranges_.back().line == of_range)
      ranges_.back().end = end;
    else
      ranges_.push_back({end, of_range});
  }
  return end == units;
}

uint32_t LineTable::LineOf(uint32_t unit) const {
  const auto range = std::upper_bound(
      ranges_.begin(), ranges_.end(), unit,
      [](uint32_t u, const Range& r) { return u < r.end; });
  return range == ranges_.end() ? 0 : range->line;
}

}  // namespace ingero::code_sampler
