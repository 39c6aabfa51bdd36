// A connected pair of links over one transport, with an exported pool at the far end, for the conformance
// suite. Links are driven on a loop of the harness, as a node does it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <stagewire/base/metrics.h>
#include <stagewire/memory/pool.h>

#include "base/event_loop.h"
#include "base/log.h"
#include "memory/copy.h"
#include "support.h"
#include "transport/tcp/tcp_options.h"
#include "transport/transport.h"

namespace stagewire::testing_support {

inline constexpr std::uint32_t kMemory = 7;
inline constexpr std::uint64_t kLease = 42;
/// Names a real RDMA device, over which the tests of the verbs transport run as well.
inline constexpr const char* kRdmaDeviceVariable = "STAGEWIRE_TEST_RDMA_DEVICE";

class TransportHarness {
 public:
  explicit TransportHarness(std::uint64_t pool_size);
  virtual ~TransportHarness();
  TransportHarness(const TransportHarness&) = delete;
  TransportHarness& operator=(const TransportHarness&) = delete;

  /// The exported pool; its bytes are the pattern of seed 1.
  Pool& pool() noexcept { return *pool_; }
  TestSource& source() noexcept { return source_; }
  EventLoop& loop() noexcept { return loop_; }
  /// The link that reads. On the loop only; null once closed and destroyed.
  Link* reader() noexcept { return reader_.get(); }
  /// The other end's.
  Link* writer() noexcept { return writer_.get(); }
  virtual bool has_views() const = 0;
  /// Where data connections to the far end are accepted; 0 where there are none. Any opening is adopted.
  virtual std::uint16_t port() const { return 0; }

  // Each runs on the loop and returns when the call has returned.

  ReadId read(ReadRequest request, const Outcome& outcome);
  std::shared_ptr<Once<bool>> abort(ReadId id);
  std::shared_ptr<Once<bool>> close_reader();
  std::shared_ptr<Once<bool>> close_writer();
  /// Reads and waits.
  Status read_now(ReadRequest request);
  /// Closes what is not closed and destroys links and transports.
  void shut_down();

 protected:
  /// Called by the derived class when both links stand.
  void attach_pool(Transport& exporting);
  void stop();

  std::shared_ptr<Logger> log_ = Logger::create("test", LogLevel::off);
  Metrics metrics_;
  CopyEngine engine_{2};
  std::shared_ptr<Pool> pool_;
  TestSource source_;
  TestChannel reader_channel_;
  TestChannel writer_channel_;
  std::unique_ptr<Transport> reader_transport_;
  std::unique_ptr<Transport> writer_transport_;  // null where one transport serves both ends
  std::unique_ptr<Link> reader_;
  std::unique_ptr<Link> writer_;
  std::shared_ptr<Once<bool>> reader_closed_;
  std::shared_ptr<Once<bool>> writer_closed_;
  EventLoop loop_{"test-loop"};
};

/// `name` is local, shm, tcp, verbs (over fake adapters), verbs_device (over the adapter that
/// STAGEWIRE_TEST_RDMA_DEVICE names), or faulty (tcp behind the fault decorator with no fault planned).
std::unique_ptr<TransportHarness> make_harness(const std::string& name, std::uint64_t pool_size);
std::unique_ptr<TransportHarness> make_tcp_harness(const TcpOptions& options, std::uint64_t pool_size);

}  // namespace stagewire::testing_support
