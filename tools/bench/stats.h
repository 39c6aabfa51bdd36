// Samples and what is said about them: medians, percentiles, ratios of interleaved pairs. Values; any thread.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "common/json.h"

namespace stagewire::tools {

/// Seconds, or ratios; in the order measured.
using Samples = std::vector<double>;

/// The value below which `part` (0…1) of the samples lie, by the nearest rank; 0 without samples.
double percentile(Samples samples, double part);
inline double median(Samples samples) {
  return percentile(std::move(samples), 0.5);
}

/// Element by element: a[i] / b[i].
Samples ratios(const Samples& a, const Samples& b);

/// Count, minimum, p50, p90, p99 and maximum of times, in microseconds.
Json times_json(const Samples& seconds);
/// The same of plain numbers.
Json numbers_json(const Samples& values);

/// "15.5 µs", "17.3 ms", three digits.
std::string time_text(double seconds);
/// "11.2 GB/s" (1 GB = 10^9 bytes).
std::string rate_text(double bytes, double seconds);

/// Seconds on the steady clock that `work` takes.
template <typename Work>
double seconds_of(const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace stagewire::tools
