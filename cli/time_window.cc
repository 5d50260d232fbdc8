// SPDX-License-Identifier: Apache-2.0
#include "cli/time_window.h"

#include <fmt/format.h>

#include <cstdlib>
#include <ctime>
#include <limits>

#include "cli/render/words.h"

namespace ingero::cli {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kDayNs = 86'400 * kSecondNs;
// Ten years: more than any recording, and far from overflow.
constexpr int64_t kLongestNs = 3650 * kDayNs;

// Takes characters off the front of what is left to read.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : rest_(text) {}

  bool AtEnd() const { return rest_.empty(); }
  bool Take(char c) {
    if (rest_.empty() || rest_[0] != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  // `digits` digits; 0 = one to nine.
  std::optional<int64_t> Digits(size_t digits = 0) {
    size_t n = 0;
    int64_t value = 0;
    while (n < rest_.size() && rest_[n] >= '0' && rest_[n] <= '9' &&
           n < (digits > 0 ? digits : 9))
      value = value * 10 + (rest_[n++] - '0');
    if (n == 0 || (digits > 0 && n != digits)) return std::nullopt;
    rest_.remove_prefix(n);
    return value;
  }
  // What follows a decimal point, in billionths.
  std::optional<int64_t> Fraction() {
    int64_t value = 0, scale = kSecondNs;
    bool any = false;
    while (!rest_.empty() && rest_[0] >= '0' && rest_[0] <= '9') {
      any = true;
      scale /= 10;
      value += (rest_[0] - '0') * scale;
      rest_.remove_prefix(1);
    }
    if (!any) return std::nullopt;
    return value;
  }
  std::string_view Letters() {
    size_t n = 0;
    while (n < rest_.size() && rest_[n] >= 'a' && rest_[n] <= 'z') ++n;
    std::string_view letters = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return letters;
  }

 private:
  std::string_view rest_;
};

int64_t UnitNs(std::string_view unit) {
  if (unit == "ns") return 1;
  if (unit == "us") return 1'000;
  if (unit == "ms") return 1'000'000;
  if (unit == "s") return kSecondNs;
  if (unit == "m" || unit == "min") return 60 * kSecondNs;
  if (unit == "h") return 3600 * kSecondNs;
  if (unit == "d") return kDayNs;
  return 0;
}

// "HH:MM[:SS[.f]]" into ns since midnight.
std::optional<int64_t> ScanTimeOfDay(Scanner* s) {
  auto hour = s->Digits(2);
  if (!hour || !s->Take(':')) return std::nullopt;
  auto minute = s->Digits(2);
  if (!minute || *hour > 23 || *minute > 59) return std::nullopt;
  int64_t ns = (*hour * 60 + *minute) * 60 * kSecondNs;
  if (!s->Take(':')) return ns;
  auto second = s->Digits(2);
  if (!second || *second > 60) return std::nullopt;
  ns += *second * kSecondNs;
  if (!s->Take('.')) return ns;
  auto fraction = s->Fraction();
  if (!fraction) return std::nullopt;
  return ns + *fraction;
}

// Midnight of a local day, plus ns into it as the wall clock shows them.
std::optional<int64_t> LocalToRealtime(int year, int month, int day,
                                       int64_t ns_of_day) {
  tm local{};
  local.tm_year = year - 1900;
  local.tm_mon = month - 1;
  local.tm_mday = day;
  local.tm_hour = static_cast<int>(ns_of_day / (3600 * kSecondNs));
  local.tm_min = static_cast<int>(ns_of_day / (60 * kSecondNs) % 60);
  local.tm_sec = static_cast<int>(ns_of_day / kSecondNs % 60);
  local.tm_isdst = -1;
  time_t seconds = mktime(&local);
  if (seconds == -1) return std::nullopt;
  return static_cast<int64_t>(seconds) * kSecondNs + ns_of_day % kSecondNs;
}

bool IsDate(int64_t year, int64_t month, int64_t day) {
  static constexpr int kDays[] = {31, 28, 31, 30, 31, 30,
                                  31, 31, 30, 31, 30, 31};
  if (year < 1971 || year > 2261 || month < 1 || month > 12) return false;
  bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
  return day >= 1 && day <= kDays[month - 1] + (leap && month == 2);
}

std::optional<int64_t> ScanIso(Scanner* s) {
  auto year = s->Digits(4);
  if (!year || !s->Take('-')) return std::nullopt;
  auto month = s->Digits(2);
  if (!month || !s->Take('-')) return std::nullopt;
  auto day = s->Digits(2);
  if (!day || !IsDate(*year, *month, *day)) return std::nullopt;
  if (!s->Take('T') && !s->Take(' ')) return std::nullopt;
  auto of_day = ScanTimeOfDay(s);
  if (!of_day) return std::nullopt;

  int64_t zone_ns = 0;
  if (s->AtEnd())
    return LocalToRealtime(static_cast<int>(*year), static_cast<int>(*month),
                           static_cast<int>(*day), *of_day);
  if (!s->Take('Z')) {
    int sign = s->Take('+') ? 1 : s->Take('-') ? -1 : 0;
    auto hours = s->Digits(2);
    s->Take(':');
    auto minutes = s->Digits(2);
    if (sign == 0 || !hours || !minutes || *hours > 23 || *minutes > 59)
      return std::nullopt;
    zone_ns = sign * (*hours * 60 + *minutes) * 60 * kSecondNs;
  }
  tm utc{};
  utc.tm_year = static_cast<int>(*year) - 1900;
  utc.tm_mon = static_cast<int>(*month) - 1;
  utc.tm_mday = static_cast<int>(*day);
  return static_cast<int64_t>(timegm(&utc)) * kSecondNs + *of_day - zone_ns;
}

// CLOCK_REALTIME of a time of day: of the days that the recording touches
// (and their neighbours), the one at which it is nearest to the recording.
std::optional<int64_t> NearestDay(int64_t ns_of_day, int64_t begin_real_ns,
                                  int64_t end_real_ns) {
  std::optional<int64_t> best;
  int64_t best_distance = std::numeric_limits<int64_t>::max();
  for (int64_t t = begin_real_ns; t <= end_real_ns + kDayNs; t += kDayNs) {
    time_t seconds = static_cast<time_t>(t / kSecondNs);
    tm local{};
    localtime_r(&seconds, &local);
    auto candidate = LocalToRealtime(local.tm_year + 1900, local.tm_mon + 1,
                                     local.tm_mday, ns_of_day);
    if (!candidate) continue;
    int64_t distance = *candidate < begin_real_ns
                           ? begin_real_ns - *candidate
                           : std::max<int64_t>(*candidate - end_real_ns, 0);
    if (distance >= best_distance) continue;
    best = candidate;
    best_distance = distance;
  }
  return best;
}

std::string Covered(const RecordingClock& clock) {
  std::string text = fmt::format("the recording covers +0 s to {}",
                                 FormatOffset(clock.span.length()));
  int64_t real = clock.realtime_at_begin_ns;
  if (real != 0)
    text += fmt::format(" ({} to {} {})", FormatDateTime(real),
                        FormatTimeOfDay(real + clock.span.length().value),
                        FormatTimeZone(real));
  return text;
}

// On the recording's clock.
Result<Ns> ResolveTime(const TimeSpec& spec, const RecordingClock& clock) {
  if (spec.kind == TimeSpec::Kind::kOffset)
    return clock.span.begin + spec.value;
  const int64_t begin_real = clock.realtime_at_begin_ns;
  if (begin_real == 0)
    return Status::Error(
        "this recording does not know the time of day; give offsets from its "
        "start, for example --from 12.5s");
  int64_t real = spec.value.value;
  if (spec.kind == TimeSpec::Kind::kTimeOfDay) {
    auto found = NearestDay(spec.value.value, begin_real,
                            begin_real + clock.span.length().value);
    if (!found) return Status::Error("this time of day does not exist");
    real = *found;
  }
  return clock.span.begin + Ns(real - begin_real);
}

}  // namespace

Result<Ns> ParseDuration(std::string_view text) {
  const auto bad = [&](std::string_view why) {
    return Status::Error(fmt::format(
        "'{}' is not a duration{}; write for example 60s, 5m or 1h30m", text,
        why));
  };
  Scanner s(text);
  if (s.AtEnd()) return bad("");
  int64_t total = 0;
  while (!s.AtEnd()) {
    auto whole = s.Digits();
    if (!whole) return bad("");
    int64_t fraction = 0;
    if (s.Take('.')) {
      auto digits = s.Fraction();
      if (!digits) return bad("");
      fraction = *digits;
    }
    std::string_view name = s.Letters();
    if (name.empty()) return bad(s.AtEnd() ? " (the unit is missing)" : "");
    const int64_t unit = UnitNs(name);
    if (unit == 0) return bad(" (units: ns us ms s m h d)");
    if (*whole > kLongestNs / unit) return bad(" (too long)");
    // unit * fraction / 1e9, without overflow: both are under 1e14.
    total += *whole * unit + static_cast<int64_t>(static_cast<__int128>(unit) *
                                                  fraction / kSecondNs);
    if (total > kLongestNs) return bad(" (too long)");
  }
  return Ns(total);
}

Result<TimeSpec> ParseTime(std::string_view text) {
  if (text.find(':') == std::string_view::npos &&
      (text.size() < 5 || text[4] != '-')) {
    if (text.starts_with("-"))
      return Status::Error(fmt::format(
          "'{}' lies before the start of the recording; offsets count from "
          "its start, --since counts back from its end",
          text));
    auto offset = ParseDuration(text.starts_with("+") ? text.substr(1) : text);
    if (offset.ok()) return TimeSpec{TimeSpec::Kind::kOffset, *offset};
  } else {
    Scanner s(text);
    if (auto of_day = ScanTimeOfDay(&s); of_day && s.AtEnd())
      return TimeSpec{TimeSpec::Kind::kTimeOfDay, Ns(*of_day)};
    s = Scanner(text);
    if (auto real = ScanIso(&s); real && s.AtEnd())
      return TimeSpec{TimeSpec::Kind::kRealtime, Ns(*real)};
  }
  return Status::Error(fmt::format(
      "'{}' is not a time; write an offset like 12.5s, a time of day like "
      "22:01:30, or 2026-11-29T22:01:30",
      text));
}

Result<WindowSpec> ParseWindow(const WindowOptions& options) {
  WindowSpec spec;
  if (!options.since.empty() && (!options.from.empty() || !options.to.empty()))
    return Status::Error(
        "--since and --from/--to exclude each other; give one or the other");
  if (!options.since.empty()) {
    auto since = ParseDuration(options.since);
    if (!since.ok()) return Status(since.status()).In("--since");
    if (since->value == 0)
      return Status::Error("--since: must be longer than 0, for example 60s");
    spec.since = *since;
  }
  if (!options.from.empty()) {
    auto from = ParseTime(options.from);
    if (!from.ok()) return Status(from.status()).In("--from");
    spec.from = *from;
  }
  if (!options.to.empty()) {
    auto to = ParseTime(options.to);
    if (!to.ok()) return Status(to.status()).In("--to");
    spec.to = *to;
  }
  if (spec.from && spec.to && spec.from->kind == spec.to->kind &&
      spec.from->kind != TimeSpec::Kind::kTimeOfDay &&
      spec.to->value <= spec.from->value)
    return Status::Error(fmt::format(
        "--to {} is not after --from {}; swap them or widen the window",
        options.to, options.from));
  return spec;
}

Result<Interval> ResolveWindow(const WindowSpec& spec,
                               const RecordingClock& clock) {
  Interval asked = clock.span;
  if (spec.since) asked.begin = asked.end - *spec.since;
  if (spec.from) {
    INGERO_ASSIGN_OR_RETURN(asked.begin, ResolveTime(*spec.from, clock));
  }
  if (spec.to) {
    INGERO_ASSIGN_OR_RETURN(asked.end, ResolveTime(*spec.to, clock));
  }
  const std::string begin = FormatOffset(asked.begin - clock.span.begin);
  const std::string end = FormatOffset(asked.end - clock.span.begin);
  if (spec.from && spec.to && asked.empty())
    return Status::Error(
        fmt::format("the window ends ({}) before it begins ({}); {}", end,
                    begin, Covered(clock)));
  const Interval window = asked.Clip(clock.span);
  if (window.empty()) {
    const std::string when = !spec.to     ? "after " + begin
                             : !spec.from ? "before " + end
                                          : "between " + begin + " and " + end;
    return Status::Error(
        fmt::format("nothing was recorded {}; {}", when, Covered(clock)));
  }
  return window;
}

}  // namespace ingero::cli
