// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace ingero {
namespace {

// Three significant digits, without a fraction of zeros: 1.5, 12.5, 301, 2.
std::string ThreeDigits(double value) {
  const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  std::string text = fmt::format("{:.{}f}", value, decimals);
  if (decimals > 0) {
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
  }
  return text;
}

constexpr uint32_t kInvalid = 0xffffffff;

// The code point at text[*i], which is moved past it; kInvalid, past one byte,
// where there is none (overlong forms and surrogates included).
uint32_t NextCodePoint(std::string_view text, size_t* i) {
  const auto byte = [&](size_t at) {
    return static_cast<uint8_t>(text[at]);
  };
  const uint8_t lead = byte(*i);
  size_t length = 1;
  uint32_t code = lead, smallest = 0;
  if (lead >= 0x80) {
    if (lead >= 0xc2 && lead <= 0xdf) {
      length = 2, code = lead & 0x1f, smallest = 0x80;
    } else if ((lead & 0xf0) == 0xe0) {
      length = 3, code = lead & 0x0f, smallest = 0x800;
    } else if (lead >= 0xf0 && lead <= 0xf4) {
      length = 4, code = lead & 0x07, smallest = 0x10000;
    } else {
      ++*i;
      return kInvalid;
    }
  }
  bool valid = *i + length <= text.size();
  for (size_t k = 1; valid && k < length; ++k) {
    valid = (byte(*i + k) & 0xc0) == 0x80;
    code = (code << 6) | (byte(*i + k) & 0x3f);
  }
  if (!valid || code < smallest || code > 0x10ffff ||
      (code >= 0xd800 && code <= 0xdfff)) {
    ++*i;
    return kInvalid;
  }
  *i += length;
  return code;
}

struct CodeRange {
  uint32_t first, last;
};

// What changes how its neighbours look, or does not show at all.
constexpr CodeRange kHidden[] = {
    {0x0000, 0x001f},   // controls
    {0x007f, 0x009f},   // DEL, C1 controls (8-bit CSI among them)
    {0x00ad, 0x00ad},   // soft hyphen
    {0x034f, 0x034f},   // combining grapheme joiner
    {0x061c, 0x061c},   // Arabic letter mark
    {0x115f, 0x1160},   // Hangul fillers
    {0x17b4, 0x17b5},   // Khmer inherent vowels
    {0x180b, 0x180f},   // Mongolian selectors
    {0x200b, 0x200f},   // zero width, direction marks
    {0x2028, 0x202e},   // separators, embeddings, overrides
    {0x2060, 0x206f},   // joiners, isolates, deprecated formats
    {0x3164, 0x3164},   // Hangul filler
    {0xfe00, 0xfe0f},   // variation selectors
    {0xfeff, 0xfeff},   // byte order mark
    {0xffa0, 0xffa0},   // half-width Hangul filler
    {0xfff0, 0xfffb},   // interlinear annotations
    {0xe0000, 0xe0fff}  // tags, more variation selectors
};

bool IsHidden(uint32_t code) {
  return std::any_of(std::begin(kHidden), std::end(kHidden),
                     [code](const CodeRange& r) {
                       return r.first <= code && code <= r.last;
                     });
}

bool IsSpace(uint32_t code) {
  return (code >= 0x09 && code <= 0x0d) || code == 0x20 || code == 0x85 ||
         code == 0x2028 || code == 0x2029;
}

}  // namespace

std::string FormatDuration(Ns duration) {
  const bool negative = duration.value < 0;
  // Not -value: INT64_MIN has no positive twin.
  const double ns = std::abs(static_cast<double>(duration.value));
  std::string text;
  if (ns < 999.5) {
    text = fmt::format("{:.0f} ns", ns);
  } else if (ns < 999.5e3) {
    text = ThreeDigits(ns / 1e3) + " us";
  } else if (ns < 999.5e6) {
    text = ThreeDigits(ns / 1e6) + " ms";
  } else if (ns < 599.5e9) {
    text = ThreeDigits(ns / 1e9) + " s";
  } else if (ns < 7199.5e9) {
    const uint64_t s = static_cast<uint64_t>(std::llround(ns / 1e9));
    text = fmt::format("{} min {} s", s / 60, s % 60);
  } else {
    const uint64_t min = static_cast<uint64_t>(std::llround(ns / 60e9));
    text = fmt::format("{} h {} min", min / 60, min % 60);
  }
  return negative ? "-" + text : text;
}

std::string FormatBytes(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B",   "KiB", "MiB", "GiB",
                                           "TiB", "PiB", "EiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  // 1023.5 would print as "1024 KiB".
  while (value >= 1023.5 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return ThreeDigits(value) + " " + kUnits[unit];
}

std::string FormatCount(uint64_t count) {
  std::string digits = std::to_string(count);
  for (size_t at = digits.size(); at > 3;) {
    at -= 3;
    digits.insert(at, 1, ',');
  }
  return digits;
}

std::string FormatPercent(double ratio) {
  const double percent = ratio * 100;
  if (percent > 0 && percent < 0.1) return "<0.1 %";
  if (percent < 9.95) return ThreeDigits(std::round(percent * 10) / 10) + " %";
  if (percent >= 99.5 && percent < 100)
    return percent > 99.9 ? ">99.9 %" : fmt::format("{:.1f} %", percent);
  return fmt::format("{:.0f} %", percent);
}

size_t EditDistance(std::string_view a, std::string_view b) {
  // Rows i-2, i-1 and i of the usual table (optimal string alignment).
  std::vector<size_t> before_last(b.size() + 1), last(b.size() + 1),
      current(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    current[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      current[j] = std::min({last[j] + 1, current[j - 1] + 1,
                             last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        current[j] = std::min(current[j], before_last[j - 2] + 1);
    }
    std::swap(before_last, last);
    std::swap(last, current);
  }
  return last[b.size()];
}

std::optional<std::string_view> ClosestMatch(
    std::string_view word, std::span<const std::string_view> candidates) {
  std::optional<std::string_view> best;
  // A third of the word may be wrong; more is a guess, not a typing error.
  size_t best_distance = std::max<size_t>(1, word.size() / 3) + 1;
  for (std::string_view candidate : candidates) {
    const size_t distance = EditDistance(word, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string SanitizeForTerminal(std::string_view text, size_t max_bytes) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t begin = i;
    const uint32_t code = NextCodePoint(text, &i);
    std::string_view shown;
    if (code == kInvalid) {
      shown = "?";
    } else if (IsSpace(code)) {
      shown = " ";
    } else if (!IsHidden(code)) {
      shown = text.substr(begin, i - begin);
    }
    if (out.size() + shown.size() > max_bytes) {
      // Make room for the mark without splitting a character.
      size_t keep = max_bytes < 3 ? 0 : std::min(out.size(), max_bytes - 3);
      while (keep > 0 && keep < out.size() &&
             (static_cast<uint8_t>(out[keep]) & 0xc0) == 0x80)
        --keep;
      out.resize(keep);
      return out.append("...", std::min<size_t>(3, max_bytes));
    }
    out += shown;
  }
  return out;
}

std::string_view TrimWhitespace(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n\v\f";
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

}  // namespace ingero
