// Sizes and durations as people write them: "4 GiB", "1.5 GB", "30 s", "250ms". Pure functions without state;
// any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include <stagewire/base/result.h>

namespace stagewire {

/// Bytes from a number, a fraction allowed, and a unit: none or B; K, M, G, T (also KB …) are powers of 1000,
/// Ki, Mi, Gi, Ti (also KiB …) powers of 1024. Case does not matter; a fraction of a byte is dropped. Errors:
/// invalid_argument for anything else, and for values outside [minimum, maximum].
Result<std::uint64_t> parse_size(std::string_view text, std::uint64_t minimum = 0,
                                 std::uint64_t maximum = std::numeric_limits<std::uint64_t>::max());

/// The longest duration that parse_duration() takes unless told otherwise: 100 days, as Deadline has it.
inline constexpr std::chrono::nanoseconds kLongestDuration = std::chrono::hours(24 * 100);

/// A duration from a number, a fraction allowed, and a unit: ns, us or µs, ms, s, min or m, h, d (also sec,
/// second, minute, hour, day and their plurals). Only 0 needs no unit. Errors: invalid_argument for anything
/// else, and for values outside [minimum, maximum].
Result<std::chrono::nanoseconds> parse_duration(
    std::string_view text, std::chrono::nanoseconds minimum = std::chrono::nanoseconds(0),
    std::chrono::nanoseconds maximum = kLongestDuration);

/// For people: the binary unit where that is a round number ("1.5 GiB"), else three digits of the decimal one
/// ("195 MB").
std::string format_size(std::uint64_t bytes);
/// For people, three digits: "12.3 µs", "250 ms", "30 min".
std::string format_duration(std::chrono::nanoseconds duration);

/// Without loss: the largest unit that leaves a whole number. parse_size() gives the same value back.
std::string exact_size(std::uint64_t bytes);
/// Without loss: the largest unit that leaves a whole number. parse_duration() gives the same value back.
std::string exact_duration(std::chrono::nanoseconds duration);

}  // namespace stagewire
