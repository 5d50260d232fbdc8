// SPDX-License-Identifier: Apache-2.0
#include "cli/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "cli/render/words.h"

namespace ingero::cli {
namespace {

constexpr int kBarColumns = 24;

Ns Now() {
  return Ns(std::chrono::duration_cast<std::chrono::nanoseconds>(
                std::chrono::steady_clock::now().time_since_epoch())
                .count());
}

// "1.2 M", "870 k", "12".
std::string Rate(double per_second) {
  if (per_second >= 1e6) return fmt::format("{:.1f} M", per_second / 1e6);
  if (per_second >= 1e3) return fmt::format("{:.0f} k", per_second / 1e3);
  return fmt::format("{:.0f}", per_second);
}

}  // namespace

std::string ProgressLine(const std::string& stage, double fraction,
                         uint64_t events, Ns elapsed, int columns) {
  fraction = std::clamp(fraction, 0.0, 1.0);
  const int full = static_cast<int>(fraction * kBarColumns);
  std::string bar(static_cast<size_t>(full), '=');
  if (full < kBarColumns) bar += '>';
  bar.resize(kBarColumns, ' ');
  const double seconds = static_cast<double>(elapsed.value) / 1e9;

  std::string line = SanitizeForTerminal(stage);
  std::string percent = fmt::format("  {:3.0f} %", fraction * 100);
  std::string rate, left;
  if (events > 0 && seconds >= 0.2)
    rate = fmt::format("  {} events/s",
                       Rate(static_cast<double>(events) / seconds));
  if (fraction >= 0.02 && fraction < 1 && seconds >= 0.5)
    left = fmt::format("  {:.0f} s left",
                       std::max(1.0, seconds * (1 - fraction) / fraction));
  bar = fmt::format("  [{}]", bar);
  // What matters least goes first where the terminal is narrow.
  const int room = columns - DisplayWidth(line);
  const auto width = [&] {
    return static_cast<int>(bar.size() + percent.size() + rate.size() +
                            left.size());
  };
  if (width() > room) bar.clear();
  if (width() > room) rate.clear();
  if (width() > room) left.clear();
  return Ellipsize(line + bar + percent + rate + left, std::max(columns, 8));
}

void Progress::Update(const std::string& stage, double fraction,
                      uint64_t events) {
  if (!io_.err_is_terminal) return;
  const Ns now = Now();
  if (stage != stage_) {
    stage_ = stage;
    stage_begin_ = now;
  } else if (drawn_ && now - last_drawn_ < kMillisecond * 100) {
    return;
  }
  last_drawn_ = now;
  drawn_ = true;
  // The last column stays free: some terminals wrap when it is written.
  Write(io_.err,
        "\r\x1b[K" + ProgressLine(stage, fraction, events, now - stage_begin_,
                                  io_.columns - 1));
  std::fflush(io_.err);
}

void Progress::Finish() {
  if (!drawn_) return;
  Write(io_.err, "\r\x1b[K");
  std::fflush(io_.err);
  drawn_ = false;
}

}  // namespace ingero::cli
