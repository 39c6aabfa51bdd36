// See stats.h.
#include "bench/stats.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace stagewire::tools {

double percentile(Samples samples, double part) {
  if (samples.empty()) return 0;
  const auto rank = static_cast<std::size_t>(std::ceil(part * static_cast<double>(samples.size())));
  const std::size_t index = std::clamp<std::size_t>(rank, 1, samples.size()) - 1;
  std::nth_element(samples.begin(), samples.begin() + static_cast<std::ptrdiff_t>(index), samples.end());
  return samples[index];
}

Samples ratios(const Samples& a, const Samples& b) {
  Samples result;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) result.push_back(a[i] / b[i]);
  return result;
}

namespace {
Json summary(const Samples& values, double scale, const std::string& suffix) {
  Json json = Json::object();
  json.set("count", static_cast<std::uint64_t>(values.size()));
  constexpr std::array<std::pair<const char*, double>, 5> kParts{
      {{"min", 0.0}, {"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"max", 1.0}}};
  for (const auto& [name, part] : kParts) json.set(name + suffix, percentile(values, part) * scale);
  return json;
}

std::string three_digits(double value) {
  char text[40];
  const int decimals = value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  return text;
}
}  // namespace

Json times_json(const Samples& seconds) {
  return summary(seconds, 1e6, "_us");
}

Json numbers_json(const Samples& values) {
  return summary(values, 1, "");
}

std::string time_text(double seconds) {
  if (seconds < 1e-3) return three_digits(seconds * 1e6) + " µs";
  if (seconds < 1) return three_digits(seconds * 1e3) + " ms";
  return three_digits(seconds) + " s";
}

std::string rate_text(double bytes, double seconds) {
  return three_digits(seconds > 0 ? bytes / seconds / 1e9 : 0) + " GB/s";
}

}  // namespace stagewire::tools
