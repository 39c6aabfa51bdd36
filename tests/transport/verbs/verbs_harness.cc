// See verbs_harness.h.
#include "verbs_harness.h"

#include <thread>
#include <utility>

#include "transport/verbs/verbs_real.h"

namespace stagewire::testing_support {

std::vector<FakeDevice> two_fake_devices() {
  return {fake_roce("fake0", 1), fake_roce("fake1", 2)};
}

VerbsSetup fake_setup() {
  VerbsSetup setup;
  setup.reader.device = "fake0";
  setup.writer.device = "fake1";
  return setup;
}

VerbsHarness::VerbsHarness(std::uint64_t pool_size, std::shared_ptr<VerbsApi> api, const VerbsSetup& setup)
    : TransportHarness(pool_size) {
  // Between hosts connecting does not wait for the first read.
  reader_channel_.on_same_host = writer_channel_.on_same_host = false;
  run_on(loop_, [&] {
    const auto make = [&](const VerbsOptions& options) {
      auto made = VerbsTransport::create(
          options, loop_,
          [this](EventLoop::Task task) {
            loop_.post(std::move(task));
            return true;
          },
          log_, metrics_, [&]() -> Result<std::shared_ptr<VerbsApi>> { return api; });
      return std::move(made).value();
    };
    auto reading = make(setup.reader);
    auto writing = make(setup.writer);
    reading_ = reading.get();
    writing_ = writing.get();
    reader_transport_ = std::move(reading);
    writer_transport_ = std::move(writing);
    reader_ = reader_transport_->connect(reader_channel_, writer_transport_->hello()).value();
    writer_ = writer_transport_->connect(writer_channel_, reader_transport_->hello()).value();
    // Messages take a turn of the loop, as they do over a session.
    reader_channel_.on_send = [this](std::string message) {
      if (!channels_on_) return;
      loop_.post([this, message = std::move(message)] {
        if (!writer_) return;
        EXPECT_EQ(kind_name(writer_->on_message(message)), "ok");
      });
    };
    writer_channel_.on_send = [this](std::string message) {
      loop_.post([this, message = std::move(message)] {
        if (!reader_) return;
        EXPECT_EQ(kind_name(reader_->on_message(message)), "ok");
      });
    };
  });
  if (setup.attach) attach();
}

VerbsHarness::~VerbsHarness() {
  stop();
}

void VerbsHarness::attach() {
  run_on(loop_, [this] { attach_pool(*writer_transport_); });
}

Viability VerbsHarness::viability() {
  Viability viability;
  run_on(loop_, [&] { viability = reader_->viability(MemoryKind::host(), MemoryKind::host()); });
  return viability;
}

bool VerbsHarness::wait_viable(bool wanted) {
  const Deadline deadline = Deadline::in(kHangGuard);
  while (viability().viable != wanted) {
    if (deadline.passed()) return false;
    std::this_thread::yield();
  }
  return true;
}

void VerbsHarness::wait_connected() {
  std::byte byte{};
  EXPECT_EQ(kind_name(read_now({kLease, {{kMemory, 0, 1}}, {{&byte, 1}}})), "ok");
}

std::unique_ptr<VerbsHarness> VerbsHarness::over_fake(std::uint64_t pool_size) {
  return std::make_unique<VerbsHarness>(pool_size, std::make_shared<FakeVerbs>(two_fake_devices()),
                                        fake_setup());
}

std::unique_ptr<VerbsHarness> VerbsHarness::over_device(std::uint64_t pool_size, const std::string& device) {
  VerbsSetup setup;
  setup.reader.device = device;
  setup.writer.device = device;
  return std::make_unique<VerbsHarness>(pool_size, open_real_verbs().value(), setup);
}

}  // namespace stagewire::testing_support
