// Metrics: identity of a metric, the text form, escaping, histograms, and names used as two kinds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <thread>

#include <stagewire/base/metrics.h>

namespace stagewire {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(MetricsTest, PrintsPrometheusText) {
  Metrics metrics;
  metrics.counter("stagewire_gets_total", "Gets by result.", {{"result", "ok"}}).add(3);
  metrics.counter("stagewire_gets_total", "ignored", {{"result", "failed"}}).add();
  metrics.gauge("stagewire_pool_bytes", "Bytes in use.").set(-5);
  EXPECT_EQ(metrics.text(),
            "# HELP stagewire_gets_total Gets by result.\n"
            "# TYPE stagewire_gets_total counter\n"
            "stagewire_gets_total{result=\"failed\"} 1\n"
            "stagewire_gets_total{result=\"ok\"} 3\n"
            "# HELP stagewire_pool_bytes Bytes in use.\n"
            "# TYPE stagewire_pool_bytes gauge\n"
            "stagewire_pool_bytes -5\n");
}

TEST(MetricsTest, AnEmptyRegistryPrintsNothing) {
  EXPECT_EQ(Metrics().text(), "");
}

TEST(MetricsTest, TheSameNameAndLabelsAreTheSameMetric) {
  Metrics metrics;
  Counter& first = metrics.counter("c_total", "h", {{"a", "1"}, {"b", "2"}});
  EXPECT_EQ(&first, &metrics.counter("c_total", "h", {{"b", "2"}, {"a", "1"}}));
  EXPECT_NE(&first, &metrics.counter("c_total", "h", {{"a", "1"}, {"b", "3"}}));
  EXPECT_NE(&first, &metrics.counter("d_total", "h", {{"a", "1"}, {"b", "2"}}));
}

TEST(MetricsTest, EscapesHelpAndLabelValues) {
  Metrics metrics;
  metrics.gauge("g", "back\\slash \"quoted\"\nnext", {{"key", "a\"b\\c\nd"}}).set(1);
  EXPECT_THAT(metrics.text(), HasSubstr("# HELP g back\\\\slash \"quoted\"\\nnext\n"));
  EXPECT_THAT(metrics.text(), HasSubstr("g{key=\"a\\\"b\\\\c\\nd\"} 1\n"));
}

TEST(MetricsTest, ReplacesCharactersThatNamesMayNotHave) {
  Metrics metrics;
  metrics.gauge("9 bad-name:x", "h", {{"la:bel", "v"}}).set(1);
  EXPECT_THAT(metrics.text(), HasSubstr("\n__bad_name:x{la_bel=\"v\"} 1\n"));
}

TEST(MetricsTest, HistogramsAreCumulativeWithSumAndCount) {
  Metrics metrics;
  const double bounds[] = {0.5, 1, 2.5};
  Histogram& histogram = metrics.histogram("h_seconds", "h", bounds, {{"r", "shm"}});
  for (const double value : {0.25, 0.5, 0.75, 100.0}) histogram.observe(value);
  EXPECT_EQ(histogram.count(), 4U);
  EXPECT_DOUBLE_EQ(histogram.sum(), 101.5);
  EXPECT_EQ(histogram.cumulative(0), 2U);
  EXPECT_EQ(histogram.cumulative(2), 3U);
  EXPECT_EQ(histogram.cumulative(3), 4U);
  EXPECT_EQ(metrics.text(),
            "# HELP h_seconds h\n"
            "# TYPE h_seconds histogram\n"
            "h_seconds_bucket{r=\"shm\",le=\"0.5\"} 2\n"
            "h_seconds_bucket{r=\"shm\",le=\"1\"} 3\n"
            "h_seconds_bucket{r=\"shm\",le=\"2.5\"} 3\n"
            "h_seconds_bucket{r=\"shm\",le=\"+Inf\"} 4\n"
            "h_seconds_sum{r=\"shm\"} 101.5\n"
            "h_seconds_count{r=\"shm\"} 4\n");
}

TEST(MetricsTest, HistogramsWithoutLabelsHaveOnlyLe) {
  Metrics metrics;
  const double bounds[] = {1};
  metrics.histogram("h", "h", bounds).observe(2);
  EXPECT_THAT(metrics.text(),
              HasSubstr("h_bucket{le=\"1\"} 0\nh_bucket{le=\"+Inf\"} 1\nh_sum 2\nh_count 1\n"));
}

TEST(HistogramTest, BoundsAreSortedAndFinite) {
  const double bounds[] = {2, std::numeric_limits<double>::infinity(), 1, 2,
                           std::numeric_limits<double>::quiet_NaN()};
  Histogram histogram(bounds);
  EXPECT_THAT(histogram.bounds(), testing::ElementsAre(1, 2));
  histogram.observe(std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(histogram.count(), 0U);
  histogram.observe(std::numeric_limits<double>::infinity());
  EXPECT_EQ(histogram.cumulative(1), 0U);
  EXPECT_EQ(histogram.cumulative(2), 1U);
}

TEST(HistogramTest, LatencyBucketsReachFromAMicrosecondToAMinute) {
  const auto buckets = latency_buckets();
  ASSERT_EQ(buckets.size(), 14U);
  EXPECT_DOUBLE_EQ(buckets.front(), 1e-6);
  EXPECT_DOUBLE_EQ(buckets.back(), 67.108864);
  for (std::size_t i = 1; i < buckets.size(); ++i) EXPECT_DOUBLE_EQ(buckets[i], 4 * buckets[i - 1]);
}

TEST(MetricsTest, ANameUsedAsTwoKindsIsReportedAndDoesNotSpoilTheFirst) {
  Metrics metrics;
  metrics.counter("x", "h").add(2);
  Gauge& detached = metrics.gauge("x", "h");
  detached.set(77);
  EXPECT_EQ(&detached, &metrics.gauge("x", "h"));
  EXPECT_THAT(metrics.text(), HasSubstr("# TYPE x counter\nx 2\n"));
  EXPECT_THAT(metrics.text(), HasSubstr("# x is a counter but was also used as a gauge"));
  EXPECT_THAT(metrics.text(), Not(HasSubstr("77")));
}

TEST(MetricsTest, AGaugesSeriesAreSetToZeroTogether) {
  Metrics metrics;
  metrics.gauge("g", "h", {{"peer", "a"}}).set(5);
  metrics.gauge("g", "h", {{"peer", "b"}}).set(6);
  metrics.gauge("other", "h").set(7);
  metrics.zero_gauges("g");
  metrics.zero_gauges("unknown");
  EXPECT_THAT(metrics.text(), HasSubstr("g{peer=\"a\"} 0\ng{peer=\"b\"} 0\n"));
  EXPECT_THAT(metrics.text(), HasSubstr("other 7\n"));
}

TEST(MetricsTest, SeriesOfOneNameAreBounded) {
  Metrics metrics;
  for (int peer = 0; peer < 5000; ++peer) {
    metrics.counter("c_total", "h", {{"peer", std::to_string(peer)}}).add();
  }
  EXPECT_THAT(metrics.text(), HasSubstr("c_total{overflow=\"true\"} 904\n"));
  metrics.counter("c_total", "h", {{"peer", "0"}}).add();
  EXPECT_THAT(metrics.text(), HasSubstr("c_total{peer=\"0\"} 2\n"));
}

TEST(MetricsTest, ThreadsCountTogether) {
  Metrics metrics;
  const double bounds[] = {1};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&metrics, &bounds] {
      for (int i = 0; i < 1000; ++i) {
        metrics.counter("c_total", "h", {{"n", std::to_string(i % 3)}}).add();
        metrics.histogram("h", "h", bounds).observe(0.5);
      }
      static_cast<void>(metrics.text());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(metrics.text(), HasSubstr("h_sum 2000\nh_count 4000\n"));
  EXPECT_THAT(metrics.text(), HasSubstr("c_total{n=\"0\"} 1336\n"));
}

}  // namespace
}  // namespace stagewire
