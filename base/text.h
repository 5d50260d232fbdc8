// SPDX-License-Identifier: Apache-2.0
// Numbers and names as people read them. Pure functions.
#ifndef INGERO_BASE_TEXT_H_
#define INGERO_BASE_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/units.h"

namespace ingero {

// Three significant digits: "12.5 us", "301 ms", "31.2 s"; from 10 minutes on
// "12 min 5 s", from 2 hours on "2 h 15 min".
std::string FormatDuration(Ns duration);
// "812 B", "24 KiB", "1.5 GiB".
std::string FormatBytes(uint64_t bytes);
// "1,234,567".
std::string FormatCount(uint64_t count);
// "61 %", "3.2 %"; "<0.1 %" where it is not 0 and ">99.9 %" where it is not
// all, so that rounding never says none or everything.
std::string FormatPercent(double ratio);
template <typename Tag>
std::string FormatPercent(Quantity<Tag> part, Quantity<Tag> whole) {
  return FormatPercent(Ratio(part, whole));
}

// Insertions, deletions, substitutions and swaps of neighbours.
size_t EditDistance(std::string_view a, std::string_view b);
// The candidate to offer as "did you mean", if one is near enough.
std::optional<std::string_view> ClosestMatch(
    std::string_view word, std::span<const std::string_view> candidates);

// Text that a traced program chose (names, command lines, paths), made safe to
// print: no control, bidirectional or zero-width characters (white space
// becomes a blank), bytes that are not UTF-8 become '?', and what goes beyond
// max_bytes is cut and shown as "...".
std::string SanitizeForTerminal(std::string_view text, size_t max_bytes = 4096);

// "" stays ""; no trailing or leading blanks, tabs or newlines.
std::string_view TrimWhitespace(std::string_view text);

}  // namespace ingero

#endif  // INGERO_BASE_TEXT_H_
