// Sizes and durations, read and printed.
#include "base/units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>

namespace stagewire {
namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::nanoseconds;
using std::chrono::seconds;
using testing::HasSubstr;

constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();

TEST(ParseSizeTest, UnderstandsWhatPeopleWrite) {
  const std::pair<std::string_view, std::uint64_t> cases[] = {{"4 GiB", 4ULL << 30},
                                                              {"512MiB", 512ULL << 20},
                                                              {"1.5 GB", 1'500'000'000},
                                                              {"65536", 65536},
                                                              {"0", 0},
                                                              {"7 B", 7},
                                                              {"2k", 2000},
                                                              {"2 K", 2000},
                                                              {"2Ki", 2048},
                                                              {"2 kib", 2048},
                                                              {"3 M", 3'000'000},
                                                              {"3mb", 3'000'000},
                                                              {"3 Mi", 3ULL << 20},
                                                              {"1T", 1'000'000'000'000},
                                                              {"1 TB", 1'000'000'000'000},
                                                              {"16 TiB", 16ULL << 40},
                                                              {"1 Ti", 1ULL << 40},
                                                              {"0.5 KiB", 512},
                                                              {"  8 KiB\t", 8192},
                                                              {"1.1 KiB", 1126},
                                                              {"1.0", 1},
                                                              {"0.25 GiB", 1ULL << 28},
                                                              {"0.9999999999 TB", 999'999'999'000}};
  for (const auto& [text, bytes] : cases) {
    const auto parsed = parse_size(text);
    ASSERT_TRUE(parsed) << text << ": " << parsed.error();
    EXPECT_EQ(*parsed, bytes) << text;
  }
}

TEST(ParseSizeTest, RefusesEverythingElse) {
  for (const std::string_view text :
       {"", " ", "GiB", "-1", "+1", "1e3", "0x10", "4 GiBs", "4 Gi B", "1..5 GB", "1. GB", ".5 GB", "1,5 GB",
        "4 PiB", "nan", "inf", "1 2", "4 GiB 1"}) {
    const auto parsed = parse_size(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().kind(), ErrorKind::invalid_argument);
    EXPECT_THAT(parsed.error().message(), HasSubstr("expected a size such as")) << text;
  }
  EXPECT_THAT(parse_size("1.5 B").error().message(), HasSubstr("fraction of a byte"));
  EXPECT_THAT(parse_size("1.5").error().message(), HasSubstr("fraction of a byte"));
}

TEST(ParseSizeTest, SeesOverflow) {
  EXPECT_EQ(parse_size("18446744073709551615").value(), kMax);
  EXPECT_THAT(parse_size("18446744073709551616").error().message(), HasSubstr("too large"));
  EXPECT_THAT(parse_size("99999999999999999999999 GiB").error().message(), HasSubstr("too large"));
  EXPECT_EQ(parse_size("16777215 TiB").value(), 16777215ULL << 40);
  EXPECT_EQ(parse_size("16777215.999 TiB").value() >> 40, 16777215ULL);
  EXPECT_THAT(parse_size("16777216 TiB").error().message(), HasSubstr("too large"));
}

TEST(ParseSizeTest, KeepsTheBoundsAndNamesThem) {
  EXPECT_EQ(parse_size("1 MiB", 1U << 20, 1U << 20).value(), 1U << 20);
  EXPECT_THAT(parse_size("1023 KiB", 1U << 20).error().message(), HasSubstr("at least 1 MiB"));
  EXPECT_THAT(parse_size("2 KiB", 0, 1024).error().message(), HasSubstr("at most 1 KiB"));
}

TEST(ParseSizeTest, LongInputIsShortenedInTheError) {
  EXPECT_LT(parse_size(std::string(100'000, 'x')).error().message().size(), 250U);
  EXPECT_LT(parse_size(std::string(100'000, '9')).error().message().size(), 250U);
}

TEST(ParseDurationTest, UnderstandsWhatPeopleWrite) {
  const std::pair<std::string_view, nanoseconds> cases[] = {{"30 s", seconds(30)},
                                                            {"250ms", milliseconds(250)},
                                                            {"5 min", minutes(5)},
                                                            {"1h", hours(1)},
                                                            {"20 us", microseconds(20)},
                                                            {"20 \u00b5s", microseconds(20)},
                                                            {"20\u03bcs", microseconds(20)},
                                                            {"7 ns", nanoseconds(7)},
                                                            {"0", nanoseconds(0)},
                                                            {"0 s", nanoseconds(0)},
                                                            {"1.5 s", milliseconds(1500)},
                                                            {"2 d", hours(48)},
                                                            {"1 day", hours(24)},
                                                            {"10 days", hours(240)},
                                                            {"3 hours", hours(3)},
                                                            {"1 minute", minutes(1)},
                                                            {"2 minutes", minutes(2)},
                                                            {"2 m", minutes(2)},
                                                            {"1 sec", seconds(1)},
                                                            {"4 seconds", seconds(4)},
                                                            {"0.000000001 s", nanoseconds(1)},
                                                            {" 0.5 h ", minutes(30)},
                                                            {"100 d", hours(2400)}};
  for (const auto& [text, duration] : cases) {
    const auto parsed = parse_duration(text);
    ASSERT_TRUE(parsed) << text << ": " << parsed.error();
    EXPECT_EQ(*parsed, duration) << text;
  }
}

TEST(ParseDurationTest, RefusesEverythingElse) {
  for (const std::string_view text :
       {"", "s", "-1 s", "1e3 s", "5 M", "5 weeks", "1 s 5 ms", "inf", "1:30", "5 S"}) {
    const auto parsed = parse_duration(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_THAT(parsed.error().message(), HasSubstr("expected a duration such as")) << text;
  }
}

TEST(ParseDurationTest, AsksForTheUnit) {
  EXPECT_THAT(parse_duration("300").error().message(), HasSubstr("write '300 s' for seconds"));
}

TEST(ParseDurationTest, KeepsTheBoundsAndSeesOverflow) {
  EXPECT_THAT(parse_duration("101 d").error().message(), HasSubstr("at most 100 d"));
  EXPECT_THAT(parse_duration("99999999999999999999 ns").error().message(), HasSubstr("too long"));
  EXPECT_THAT(parse_duration("18446744073709551615 d").error().message(), HasSubstr("too long"));
  EXPECT_THAT(parse_duration("9 ms", milliseconds(10)).error().message(), HasSubstr("at least 10 ms"));
  EXPECT_EQ(parse_duration("10 ms", milliseconds(10), milliseconds(10)).value(), milliseconds(10));
}

TEST(FormatTest, SizesForPeople) {
  EXPECT_EQ(format_size(0), "0 B");
  EXPECT_EQ(format_size(999), "999 B");
  EXPECT_EQ(format_size(1000), "1 kB");
  EXPECT_EQ(format_size(1024), "1 KiB");
  EXPECT_EQ(format_size(1536), "1.5 KiB");
  EXPECT_EQ(format_size(1280), "1.25 KiB");
  EXPECT_EQ(format_size(194'969'600), "195 MB");
  EXPECT_EQ(format_size(1'610'612'736), "1.5 GiB");
  EXPECT_EQ(format_size(1'230'000), "1.23 MB");
  EXPECT_EQ(format_size(999'600), "1 MB");
  EXPECT_EQ(format_size(99'960), "100 kB");
  EXPECT_EQ(format_size(9'999), "10 kB");
  EXPECT_EQ(format_size(16ULL << 40), "16 TiB");
  EXPECT_EQ(format_size(kMax), "18446744 TB");
}

TEST(FormatTest, DurationsForPeople) {
  EXPECT_EQ(format_duration(nanoseconds(0)), "0 ns");
  EXPECT_EQ(format_duration(nanoseconds(12'345)), "12.3 \u00b5s");
  EXPECT_EQ(format_duration(nanoseconds(999'700)), "1 ms");
  EXPECT_EQ(format_duration(milliseconds(250)), "250 ms");
  EXPECT_EQ(format_duration(seconds(90)), "90 s");
  EXPECT_EQ(format_duration(minutes(30)), "30 min");
  EXPECT_EQ(format_duration(hours(36)), "36 h");
  EXPECT_EQ(format_duration(hours(24 * 5)), "5 d");
  EXPECT_EQ(format_duration(-milliseconds(2)), "-2 ms");
  EXPECT_FALSE(format_duration(nanoseconds::max()).empty());
  EXPECT_FALSE(format_duration(nanoseconds::min()).empty());
}

TEST(FormatTest, ExactFormsAreReadBackUnchanged) {
  EXPECT_EQ(exact_size(1ULL << 30), "1 GiB");
  EXPECT_EQ(exact_size(1'500'000'000), "1500 MB");
  EXPECT_EQ(exact_size(65'537), "65537");
  EXPECT_EQ(exact_duration(milliseconds(1500)), "1500 ms");
  EXPECT_EQ(exact_duration(seconds(300)), "5 min");
  EXPECT_EQ(exact_duration(-seconds(1)), "-1 s");
  for (const std::uint64_t bytes :
       {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1000}, std::uint64_t{1024}, std::uint64_t{65'537},
        std::uint64_t{1} << 44, kMax, kMax - 1}) {
    EXPECT_EQ(parse_size(exact_size(bytes)).value(), bytes);
  }
  for (const nanoseconds duration : {nanoseconds(0), nanoseconds(1), nanoseconds(1001),
                                     nanoseconds(hours(720)), nanoseconds(milliseconds(61'001))}) {
    EXPECT_EQ(parse_duration(exact_duration(duration)).value(), duration);
  }
}

}  // namespace
}  // namespace stagewire
