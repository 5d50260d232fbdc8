// SPDX-License-Identifier: Apache-2.0
#include "cli/render/words.h"

#include <fmt/format.h>

#include <cmath>
#include <ctime>

namespace ingero::cli {
namespace {

std::string FormatLocal(int64_t realtime_ns, const char* format) {
  time_t seconds = static_cast<time_t>(realtime_ns / 1'000'000'000);
  if (realtime_ns % 1'000'000'000 < 0) --seconds;
  tm local{};
  localtime_r(&seconds, &local);
  char text[64];
  return std::string(text, strftime(text, sizeof text, format, &local));
}

// Code point at the front of valid UTF-8.
char32_t FirstCodePoint(std::string_view text) {
  const size_t bytes = CharacterBytes(text);
  const auto lead = static_cast<uint8_t>(text[0]);
  char32_t code = bytes == 1 ? lead : lead & (0xff >> (bytes + 1));
  for (size_t i = 1; i < bytes; ++i)
    code = code << 6 | (static_cast<uint8_t>(text[i]) & 0x3f);
  return code;
}

struct CodeRange {
  char32_t first, last;
};

// Drawn over the character before.
constexpr CodeRange kCombining[] = {
    {0x300, 0x36f}, {0x483, 0x489},   {0x591, 0x5bd},   {0x610, 0x61a},
    {0x64b, 0x65f}, {0x1ab0, 0x1aff}, {0x1dc0, 0x1dff}, {0x20d0, 0x20ff}};

// East Asian wide and emoji: two columns.
constexpr CodeRange kWide[] = {
    {0x1100, 0x115f}, {0x2e80, 0xa4cf},   {0xac00, 0xd7a3},
    {0xf900, 0xfaff}, {0xfe30, 0xfe6f},   {0xff00, 0xff60},
    {0xffe0, 0xffe6}, {0x1f300, 0x1faff}, {0x20000, 0x3fffd}};

template <size_t N>
bool In(char32_t code, const CodeRange (&ranges)[N]) {
  for (const CodeRange& r : ranges)
    if (r.first <= code && code <= r.last) return true;
  return false;
}

}  // namespace

std::string FormatOffset(Ns offset) {
  const double s = static_cast<double>(offset.value) / 1e9;
  return fmt::format("{:+.{}f} s", s, std::abs(s) >= 100 ? 1 : 3);
}

std::string Percentile(Ns value, uint64_t count, uint64_t least) {
  return count < least ? "-" : FormatDuration(value);
}

std::string FormatCounted(uint64_t count, std::string_view one,
                          std::string_view many) {
  return fmt::format("{} {}", FormatCount(count), count == 1 ? one : many);
}

std::string FormatDateTime(int64_t realtime_ns) {
  return FormatLocal(realtime_ns, "%Y-%m-%d %H:%M:%S");
}
std::string FormatTimeOfDay(int64_t realtime_ns) {
  return FormatLocal(realtime_ns, "%H:%M:%S");
}
std::string FormatTimeZone(int64_t realtime_ns) {
  return FormatLocal(realtime_ns, "%Z");
}

size_t CharacterBytes(std::string_view text) {
  size_t bytes = 1;
  while (bytes < text.size() &&
         (static_cast<uint8_t>(text[bytes]) & 0xc0) == 0x80)
    ++bytes;
  return bytes;
}

int DisplayWidth(std::string_view text) {
  int width = 0;
  while (!text.empty()) {
    const char32_t code = FirstCodePoint(text);
    width += In(code, kCombining) ? 0 : In(code, kWide) ? 2 : 1;
    text.remove_prefix(CharacterBytes(text));
  }
  return width;
}

std::string Ellipsize(std::string_view text, int columns) {
  if (DisplayWidth(text) <= columns) return std::string(text);
  int tail = (columns - 2) / 3;
  int head = columns - 2 - tail;
  std::string out;
  for (std::string_view rest = text; !rest.empty();) {
    std::string_view character = rest.substr(0, CharacterBytes(rest));
    head -= DisplayWidth(character);
    if (head < 0) break;
    out += character;
    rest.remove_prefix(character.size());
  }
  size_t begin = text.size();
  for (size_t i = text.size(); i-- > out.size();) {
    if ((static_cast<uint8_t>(text[i]) & 0xc0) == 0x80) continue;
    if (DisplayWidth(text.substr(i)) > tail) break;
    begin = i;
  }
  return out.append("..").append(text.substr(begin));
}

}  // namespace ingero::cli
