// SPDX-License-Identifier: Apache-2.0
// Times and widths as people read them, beside what base/text.h has. Every
// number leaves with its unit. The machine form (json.cc) uses none of this.
#ifndef INGERO_CLI_RENDER_WORDS_H_
#define INGERO_CLI_RENDER_WORDS_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "base/text.h"
#include "base/units.h"

namespace ingero::cli {

// A point in time, from the start of the recording: "+12.345 s".
std::string FormatOffset(Ns offset);
// "1 page", "1,204 pages".
std::string FormatCounted(uint64_t count, std::string_view one,
                          std::string_view many);

// A percentile of `count` values says nothing of fewer than these: "-".
inline constexpr uint64_t kLeastForP95 = 20, kLeastForP99 = 100;
std::string Percentile(Ns value, uint64_t count, uint64_t least);

// CLOCK_REALTIME in the local time zone: "2026-11-29 22:00:35", "22:00:35",
// "CET".
std::string FormatDateTime(int64_t realtime_ns);
std::string FormatTimeOfDay(int64_t realtime_ns);
std::string FormatTimeZone(int64_t realtime_ns);

// Columns that sanitised text takes on a terminal.
int DisplayWidth(std::string_view text);
// Bytes of the character that `text` begins with.
// REQUIRES: !text.empty()
size_t CharacterBytes(std::string_view text);
// At most `columns` wide: "cudaMemcpy2DTo..nc". Keeps both ends, because
// names of functions differ at either. REQUIRES: columns >= 4
std::string Ellipsize(std::string_view text, int columns);

}  // namespace ingero::cli

#endif  // INGERO_CLI_RENDER_WORDS_H_
