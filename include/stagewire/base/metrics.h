// Metrics: counters, gauges and histograms with labels, printed as Prometheus text. Updating one is a relaxed
// atomic operation; creating one takes a lock. Thread-safe. Owned by the node; references stay valid as long
// as the registry.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace stagewire {

using MetricLabels = std::vector<std::pair<std::string, std::string>>;

/// Only goes up.
class Counter {
 public:
  void add(std::uint64_t n = 1) noexcept { value_.fetch_add(n, std::memory_order_relaxed); }
  std::uint64_t value() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

/// Goes up and down.
class Gauge {
 public:
  void set(std::int64_t v) noexcept { value_.store(v, std::memory_order_relaxed); }
  void add(std::int64_t n) noexcept { value_.fetch_add(n, std::memory_order_relaxed); }
  std::int64_t value() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::int64_t> value_{0};
};

/// Counts observations in fixed buckets. Seconds or bytes, as its name says.
class Histogram {
 public:
  explicit Histogram(std::span<const double> upper_bounds);
  void observe(double value) noexcept;
  std::uint64_t count() const noexcept { return count_.load(std::memory_order_relaxed); }
  double sum() const noexcept { return sum_.load(std::memory_order_relaxed); }
  const std::vector<double>& bounds() const noexcept { return bounds_; }
  /// Observations at or below bounds()[i], cumulative.
  std::uint64_t cumulative(std::size_t i) const noexcept;

 private:
  std::vector<double> bounds_;
  std::vector<std::atomic<std::uint64_t>> buckets_;
  std::atomic<std::uint64_t> count_{0};
  std::atomic<double> sum_{0};
};

/// Powers of 4 from 1 µs to ~67 s: enough to tell a control round trip, a 195 MB copy and a stuck peer apart.
std::span<const double> latency_buckets() noexcept;

class Metrics {
 public:
  Metrics();
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  /// The metric of this name and labels, made on first use. A name's kind and help are fixed by its first
  /// use; using it as another kind returns a detached metric and is reported in the text as a comment. Names
  /// follow Prometheus: stagewire_…_total and so on.
  Counter& counter(std::string_view name, std::string_view help, const MetricLabels& labels = {});
  Gauge& gauge(std::string_view name, std::string_view help, const MetricLabels& labels = {});
  Histogram& histogram(std::string_view name, std::string_view help, std::span<const double> bounds,
                       const MetricLabels& labels = {});

  /// Sets every series of a gauge to 0, before those that still stand for something are set again.
  void zero_gauges(std::string_view name);

  /// Prometheus text exposition format 0.0.4.
  std::string text() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace stagewire
