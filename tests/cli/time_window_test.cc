// SPDX-License-Identifier: Apache-2.0
#include "cli/time_window.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>

namespace ingero::cli {
namespace {

void UseZone(const char* zone) {
  setenv("TZ", zone, 1);
  tzset();
}

// Begins Sun 2026-11-29 22:00:35 UTC, lasts 43.3 s.
constexpr RecordingClock kClock{{Ns(1'000'000'000'000), Ns(1'043'300'000'000)},
                                1'795'989'635'000'000'000};

Ns Offset(const Interval& i) { return i.begin - kClock.span.begin; }

Result<Interval> Resolve(WindowOptions options, RecordingClock clock = kClock) {
  auto spec = ParseWindow(options);
  if (!spec.ok()) return spec.status();
  return ResolveWindow(*spec, clock);
}

TEST(ParseDurationTest, TakesUnitsFractionsAndSums) {
  const std::pair<const char*, int64_t> cases[] = {{"60s", 60'000'000'000},
                                                   {"5m", 300'000'000'000},
                                                   {"5min", 300'000'000'000},
                                                   {"1h", 3'600'000'000'000},
                                                   {"1h30m", 5'400'000'000'000},
                                                   {"12.5s", 12'500'000'000},
                                                   {"250ms", 250'000'000},
                                                   {"0.000000001s", 1},
                                                   {"7us", 7'000},
                                                   {"9ns", 9},
                                                   {"1d", 86'400'000'000'000},
                                                   {"0s", 0}};
  for (auto [text, ns] : cases) {
    auto parsed = ParseDuration(text);
    ASSERT_TRUE(parsed.ok()) << text;
    EXPECT_EQ(parsed->value, ns) << text;
  }
}

TEST(ParseDurationTest, RefusesTheRestAndSaysWhatToWrite) {
  for (const char* text :
       {"", "60", "s", "-5s", "5 s", "5x", "1.s", ".5s", "1e3s", "5s5", "h1",
        "99999999999s", "999999999d", "60S", "12:30"}) {
    auto parsed = ParseDuration(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_NE(parsed.status().message().find("60s"), std::string::npos);
  }
}

TEST(ParseTimeTest, RefusesWhatIsNoTime) {
  for (const char* text :
       {"", "noon", "12", "-5s", "24:00", "12:60", "12:30:61", "1:30", "12:3",
        "2026-02-30T12:00", "2026-13-01T12:00", "2026-11-29", "12:30x",
        "2026-11-29T12:00+25:00", "2026-11-29T12:00+", "++5s"}) {
    EXPECT_FALSE(ParseTime(text).ok()) << text;
  }
}

TEST(WindowTest, SinceCountsBackFromTheLastEvent) {
  auto window = Resolve({.since = "10s"});
  ASSERT_TRUE(window.ok());
  EXPECT_EQ(window->end, kClock.span.end);
  EXPECT_EQ(window->length(), kSecond * 10);
  // More than there is: all of it.
  window = Resolve({.since = "5m"});
  ASSERT_TRUE(window.ok());
  EXPECT_EQ(*window, kClock.span);
}

TEST(WindowTest, OffsetsCountFromTheStart) {
  for (const char* from : {"12.5s", "+12.5s"}) {
    auto window = Resolve({.from = from, .to = "20s"});
    ASSERT_TRUE(window.ok()) << from;
    EXPECT_EQ(Offset(*window), kMillisecond * 12'500);
    EXPECT_EQ(window->length(), kMillisecond * 7'500);
  }
}

TEST(WindowTest, TimesOfDayAreLocalAndOnTheRecordingsDay) {
  UseZone("UTC");
  auto window = Resolve({.from = "22:00:45", .to = "22:01"});
  ASSERT_TRUE(window.ok()) << window.status().message();
  EXPECT_EQ(Offset(*window), kSecond * 10);
  EXPECT_EQ(window->length(), kSecond * 15);
  UseZone("Asia/Tokyo");  // 07:00:35 on the next day
  window = Resolve({.from = "07:00:45.25"});
  ASSERT_TRUE(window.ok()) << window.status().message();
  EXPECT_EQ(Offset(*window), kMillisecond * 10'250);
  UseZone("UTC");
}

TEST(WindowTest, ATimeAfterMidnightIsFoundInARecordingOverMidnight) {
  UseZone("UTC");
  RecordingClock clock = kClock;  // 22:00:35 to 02:00:35
  clock.span.end = clock.span.begin + kSecond * 4 * 3600;
  auto window = Resolve({.from = "23:00", .to = "00:30"}, clock);
  ASSERT_TRUE(window.ok()) << window.status().message();
  EXPECT_EQ(window->length(), kSecond * 90 * 60);
}

TEST(WindowTest, IsoTimesTakeAZoneOrTheLocalOne) {
  UseZone("UTC");
  for (const char* from : {"2026-11-29T22:00:45Z", "2026-11-29T23:00:45+01:00",
                           "2026-11-29T17:00:45-0500", "2026-11-29 22:00:45",
                           "2026-11-29T22:00:45.000"}) {
    auto window = Resolve({.from = from});
    ASSERT_TRUE(window.ok()) << from << window.status().message();
    EXPECT_EQ(Offset(*window), kSecond * 10) << from;
  }
}

TEST(WindowTest, AnEmptyWindowSaysWhatIsCovered) {
  UseZone("UTC");
  for (WindowOptions options :
       {WindowOptions{.from = "60s"}, WindowOptions{.to = "2020-01-01T00:00"},
        WindowOptions{.from = "23:00", .to = "23:30"},
        WindowOptions{.from = "22:01", .to = "22:00:40"}}) {
    auto window = Resolve(options);
    ASSERT_FALSE(window.ok());
    EXPECT_NE(window.status().message().find(
                  "covers +0 s to +43.300 s (2026-11-29 22:00:35 to 22:01:18 "
                  "UTC)"),
              std::string::npos)
        << window.status().message();
  }
}

TEST(WindowTest, AnEmptyWindowSaysWhichSideIsMissed) {
  EXPECT_TRUE(Resolve({.from = "60s"})
                  .status()
                  .message()
                  .starts_with("nothing was recorded after +60.000 s"));
  EXPECT_TRUE(Resolve({.from = "60s", .to = "70s"})
                  .status()
                  .message()
                  .starts_with("nothing was recorded between +60.000 s and "
                               "+70.000 s"));
}

TEST(WindowTest, WithoutAWallClockOnlyOffsetsWork) {
  RecordingClock clock = kClock;
  clock.realtime_at_begin_ns = 0;
  EXPECT_TRUE(Resolve({.from = "1s"}, clock).ok());
  auto window = Resolve({.from = "22:00:45"}, clock);
  ASSERT_FALSE(window.ok());
  EXPECT_NE(window.status().message().find("--from 12.5s"), std::string::npos);
}

TEST(WindowTest, NoOptionIsTheWholeSpan) {
  auto spec = ParseWindow({});
  ASSERT_TRUE(spec.ok());
  EXPECT_TRUE(spec->empty());
  auto window = ResolveWindow(*spec, kClock);
  ASSERT_TRUE(window.ok());
  EXPECT_EQ(*window, kClock.span);
}

}  // namespace
}  // namespace ingero::cli
