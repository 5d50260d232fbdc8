// SPDX-License-Identifier: Apache-2.0
#include "base/ring_size.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <string>

#include "base/text.h"

namespace ingero {

Result<uint64_t> ParseBytes(std::string_view text) {
  double value = 0, unit = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && value > 0 && value <= 1e15) {
    const std::string_view s = text.substr(static_cast<size_t>(end - text.data()));
    if (s.empty() || s == "B") unit = 1;
    else if (s == "K" || s == "KiB" || s == "k") unit = 1 << 10;
    else if (s == "M" || s == "MiB") unit = 1 << 20;
    else if (s == "G" || s == "GiB") unit = 1 << 30;
  }
  if (unit == 0 || value * unit > 9e18 || value * unit < 1)
    return Status::Error("'" + std::string(text) +
                         "' is not a size; use for example 64K, 4M, 1G");
  return static_cast<uint64_t>(value * unit);
}

Result<uint64_t> RingBytes(uint64_t asked) {
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  if (asked > kMaxRingBytes)
    return Status::Error(FormatBytes(asked) + " per CPU is too much; at most " +
                         FormatBytes(kMaxRingBytes));
  return std::bit_ceil(std::max(asked, page));
}

}  // namespace ingero
