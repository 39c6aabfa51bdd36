// A connected pair of verbs links: over two fake adapters that the test controls, or over one real one.
#pragma once

#include <atomic>
#include <gtest/gtest.h>
#include <memory>
#include <string>

#include "../harness.h"
#include "fake/fake_verbs.h"
#include "transport/verbs/verbs_options.h"
#include "transport/verbs/verbs_transport.h"

namespace stagewire::testing_support {

struct VerbsSetup {
  VerbsOptions reader;
  VerbsOptions writer;
  bool attach = true;  ///< announce the pool to the reader at once
};

class VerbsHarness final : public TransportHarness {
 public:
  VerbsHarness(std::uint64_t pool_size, std::shared_ptr<VerbsApi> api, const VerbsSetup& setup);
  ~VerbsHarness() override;

  static std::unique_ptr<VerbsHarness> over_fake(std::uint64_t pool_size);
  static std::unique_ptr<VerbsHarness> over_device(std::uint64_t pool_size, const std::string& device);
  bool has_views() const override { return false; }

  VerbsTransport& reader_transport() noexcept { return *reading_; }
  VerbsTransport& writer_transport() noexcept { return *writing_; }
  TestChannel& reader_channel() noexcept { return reader_channel_; }
  Metrics& metrics() noexcept { return metrics_; }
  /// Announces the pool to the reader, on the loop.
  void attach();
  /// While false, what the reader's link sends is dropped.
  void connect_channels(bool on) { channels_on_ = on; }
  /// What the reader's link says of host memory now.
  Viability viability();
  /// Waits until viability() is as wanted. False if it is not within a minute.
  bool wait_viable(bool wanted);
  /// Waits until the reader's link has queue pairs, by reading a byte.
  void wait_connected();

 private:
  VerbsTransport* reading_ = nullptr;
  VerbsTransport* writing_ = nullptr;
  std::atomic<bool> channels_on_{true};
};

/// Two RoCE adapters, "fake0" (10.9.0.1) for the reader and "fake1" for the writer.
std::vector<FakeDevice> two_fake_devices();
VerbsSetup fake_setup();

}  // namespace stagewire::testing_support
