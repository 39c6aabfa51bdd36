// The registry behind Metrics and its Prometheus text. The lock guards the tables alone; values are atomics
// that any thread updates. Owned by the node.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <map>
#include <mutex>

#include <stagewire/base/metrics.h>

namespace stagewire {

Histogram::Histogram(std::span<const double> upper_bounds)
    : bounds_(upper_bounds.begin(), upper_bounds.end()) {
  // The +Inf bucket is implied, and bounds out of order would make the cumulative counts meaningless.
  std::erase_if(bounds_, [](double bound) { return !std::isfinite(bound); });
  std::sort(bounds_.begin(), bounds_.end());
  bounds_.erase(std::unique(bounds_.begin(), bounds_.end()), bounds_.end());
  buckets_ = std::vector<std::atomic<std::uint64_t>>(bounds_.size() + 1);
}

void Histogram::observe(double value) noexcept {
  if (std::isnan(value)) return;  // one would turn the sum into NaN for good
  const auto bucket = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  buckets_[static_cast<std::size_t>(bucket)].fetch_add(1, std::memory_order_relaxed);
  count_.fetch_add(1, std::memory_order_relaxed);
  sum_.fetch_add(value, std::memory_order_relaxed);
}

std::uint64_t Histogram::cumulative(std::size_t i) const noexcept {
  std::uint64_t total = 0;
  for (std::size_t bucket = 0; bucket < buckets_.size() && bucket <= i; ++bucket) {
    total += buckets_[bucket].load(std::memory_order_relaxed);
  }
  return total;
}

std::span<const double> latency_buckets() noexcept {
  // Dividing whole numbers gives the doubles nearest to 0.000001, 0.000004 …, which print short.
  static constexpr std::array<double, 14> kBuckets = [] {
    std::array<double, 14> buckets{};
    double microseconds = 1;
    for (double& bucket : buckets) {
      bucket = microseconds / 1e6;
      microseconds *= 4;
    }
    return buckets;
  }();
  return kBuckets;
}

namespace {

enum class Kind : std::uint8_t { counter, gauge, histogram };

std::string_view to_string(Kind kind) noexcept {
  switch (kind) {
    case Kind::counter:
      return "counter";
    case Kind::gauge:
      return "gauge";
    case Kind::histogram:
      break;
  }
  return "histogram";
}

// One name must not grow without bound when a label follows something outside (peers come and go for months);
// further label sets share one series that says so.
constexpr std::size_t kMaxSeries = 4096;
constexpr std::string_view kOverflowLabels = "overflow=\"true\"";

bool may_be_in_name(char c, bool first) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (!first && c >= '0' && c <= '9');
}

// A name that Prometheus would refuse spoils the whole page, so other characters become underscores.
std::string clean_name(std::string_view name, bool colons) {
  std::string clean;
  for (const char c : name) clean += may_be_in_name(c, clean.empty()) || (colons && c == ':') ? c : '_';
  return clean.empty() ? "_" : clean;
}

std::string escape(std::string_view text, bool quotes) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\n') {
      escaped += "\\n";
    } else if (c == '\\' || (quotes && c == '"')) {
      (escaped += '\\') += c;
    } else {
      escaped += c;
    }
  }
  return escaped;
}

// The labels as they are printed, sorted by name, so that their order does not make another series.
std::string label_text(MetricLabels labels) {
  std::sort(labels.begin(), labels.end());
  std::string text;
  for (const auto& [name, value] : labels) {
    if (!text.empty()) text += ',';
    text += clean_name(name, false) + "=\"" + escape(value, true) + '"';
  }
  return text;
}

std::string number(double value) {
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  std::array<char, 32> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr;
  return {buffer.data(), end};
}

void add_line(std::string& text, std::string_view name, std::string_view labels, std::string_view value) {
  text += name;
  if (!labels.empty()) ((text += '{') += labels) += '}';
  ((text += ' ') += value) += '\n';
}

void add_series(std::string& text, const std::string& name, const std::string& labels,
                const Counter& counter) {
  add_line(text, name, labels, std::to_string(counter.value()));
}

void add_series(std::string& text, const std::string& name, const std::string& labels, const Gauge& gauge) {
  add_line(text, name, labels, std::to_string(gauge.value()));
}

void add_series(std::string& text, const std::string& name, const std::string& labels,
                const Histogram& histogram) {
  const std::string prefix = labels.empty() ? "" : labels + ',';
  const auto& bounds = histogram.bounds();
  const double sum = histogram.sum();
  // _count is the last bucket's own figure, so that the two agree while observations go on.
  std::uint64_t total = 0;
  for (std::size_t i = 0; i <= bounds.size(); ++i) {
    const std::string bound = i < bounds.size() ? number(bounds[i]) : "+Inf";
    // An earlier bucket read later may have moved on already; a scraper must never see the counts go down.
    total = std::max(total, histogram.cumulative(i));
    add_line(text, name + "_bucket", prefix + "le=\"" + bound + '"', std::to_string(total));
  }
  add_line(text, name + "_sum", labels, number(sum));
  add_line(text, name + "_count", labels, std::to_string(total));
}

template <typename Metric>
struct Family {
  std::string help;
  std::map<std::string, std::unique_ptr<Metric>> series;

  template <typename... Args>
  Metric& get(std::string labels, const Args&... args) {
    auto found = series.find(labels);
    if (found == series.end()) {
      if (series.size() >= kMaxSeries) labels = kOverflowLabels;
      auto& slot = series[std::move(labels)];
      if (!slot) slot = std::make_unique<Metric>(args...);
      return *slot;
    }
    return *found->second;
  }

  void print(std::string& text, const std::string& name, Kind kind) const {
    text += "# HELP " + name + ' ' + escape(help, false) + '\n';
    ((text += "# TYPE " + name + ' ') += to_string(kind)) += '\n';
    for (const auto& [labels, metric] : series) add_series(text, name, labels, *metric);
  }
};

}  // namespace

struct Metrics::State {
  mutable std::mutex mutex;
  std::map<std::string, Kind> kinds;  // what each name was first used as; the other kinds of it stay detached
  std::map<std::string, Family<Counter>> counters;
  std::map<std::string, Family<Gauge>> gauges;
  std::map<std::string, Family<Histogram>> histograms;

  template <typename Metric, typename... Args>
  Metric& get(std::map<std::string, Family<Metric>>& families, Kind kind, std::string_view name,
              std::string_view help, const MetricLabels& labels, const Args&... args) {
    std::string key = clean_name(name, true);
    std::string label_key = label_text(labels);
    const std::lock_guard lock(mutex);
    kinds.try_emplace(key, kind);
    const auto [family, is_new] = families.try_emplace(std::move(key));
    if (is_new) family->second.help = help;
    return family->second.get(std::move(label_key), args...);
  }
};

Metrics::Metrics() : state_(std::make_unique<State>()) {}
Metrics::~Metrics() = default;

Counter& Metrics::counter(std::string_view name, std::string_view help, const MetricLabels& labels) {
  return state_->get(state_->counters, Kind::counter, name, help, labels);
}

Gauge& Metrics::gauge(std::string_view name, std::string_view help, const MetricLabels& labels) {
  return state_->get(state_->gauges, Kind::gauge, name, help, labels);
}

Histogram& Metrics::histogram(std::string_view name, std::string_view help, std::span<const double> bounds,
                              const MetricLabels& labels) {
  return state_->get(state_->histograms, Kind::histogram, name, help, labels, bounds);
}

void Metrics::zero_gauges(std::string_view name) {
  const std::lock_guard lock(state_->mutex);
  const auto family = state_->gauges.find(clean_name(name, true));
  if (family == state_->gauges.end()) return;
  for (const auto& [labels, gauge] : family->second.series) gauge->set(0);
}

std::string Metrics::text() const {
  const std::lock_guard lock(state_->mutex);
  std::string text;
  for (const auto& entry : state_->kinds) {
    const std::string& name = entry.first;
    const auto print = [&text, &name, first = entry.second](const auto& families, Kind as) {
      const auto found = families.find(name);
      if (found == families.end()) return;
      if (as == first) {
        found->second.print(text, name, as);
      } else {
        text += "# " + name + " is a " + std::string(to_string(first)) + " but was also used as a " +
                std::string(to_string(as)) + "; those values are not shown\n";
      }
    };
    print(state_->counters, Kind::counter);
    print(state_->gauges, Kind::gauge);
    print(state_->histograms, Kind::histogram);
  }
  return text;
}

}  // namespace stagewire
