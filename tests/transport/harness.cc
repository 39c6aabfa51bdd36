// See harness.h.
#include "harness.h"

#include <cstdlib>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

#include "faulty_transport.h"
#include "transport/local/local_transport.h"
#include "transport/shm/shm_transport.h"
#include "transport/tcp/tcp_transport.h"
#include "verbs/verbs_harness.h"

namespace stagewire::testing_support {

namespace {

template <typename T>
T must(Result<T> result) {
  return std::move(result).value();  // aborts with the error's text
}

class LocalHarness final : public TransportHarness {
 public:
  explicit LocalHarness(std::uint64_t pool_size) : TransportHarness(pool_size) {
    reader_channel_.peer_id = reader_channel_.self_id;
    run_on(loop_, [this] {
      reader_transport_ = std::make_unique<LocalTransport>(engine_);
      auto token = must(reader_transport_->export_memory(ExportedMemory::of(kMemory, pool_)));
      reader_ = must(reader_transport_->connect(reader_channel_, reader_transport_->hello()));
      reader_->attach({kMemory, pool_->size(), pool_->kind(), token.token, {}}).value();
    });
  }
  ~LocalHarness() override { stop(); }
  bool has_views() const override { return true; }
};

class ShmHarness final : public TransportHarness {
 public:
  explicit ShmHarness(std::uint64_t pool_size) : TransportHarness(pool_size) {
    run_on(loop_, [this] {
      reader_transport_ = std::make_unique<ShmTransport>(engine_);
      writer_transport_ = std::make_unique<ShmTransport>(engine_);
      reader_ = must(reader_transport_->connect(reader_channel_, writer_transport_->hello()));
      writer_ = must(writer_transport_->connect(writer_channel_, reader_transport_->hello()));
      attach_pool(*writer_transport_);
    });
  }
  ~ShmHarness() override { stop(); }
  bool has_views() const override { return true; }
};

class TcpHarness final : public TransportHarness {
 public:
  TcpHarness(std::uint64_t pool_size, const TcpOptions& options, bool decorated)
      : TransportHarness(pool_size) {
    run_on(loop_, [&] {
      reader_transport_ = must(TcpTransport::create(options, source_, log_, metrics_));
      auto writer = must(TcpTransport::create(options, source_, log_, metrics_));
      writer->set_endpoints({{"127.0.0.1", listener_.port()}});
      writer_transport_ = std::move(writer);
      if (decorated) {
        reader_transport_ =
            std::make_unique<FaultyTransport>(std::move(reader_transport_), std::make_shared<FaultPlan>());
      }
      reader_ = must(reader_transport_->connect(reader_channel_, writer_transport_->hello()));
      writer_ = must(writer_transport_->connect(writer_channel_, reader_transport_->hello()));
      attach_pool(*writer_transport_);
      set_non_blocking(listener_.fd());
      watch_ = loop_.watch(listener_.fd(), [this] { accept_one(); }, [] {});
    });
  }
  ~TcpHarness() override {
    run_on(loop_, [this] { watch_.reset(); });
    stop();
  }
  bool has_views() const override { return false; }
  std::uint16_t port() const override { return listener_.port(); }

 private:
  // What a node does with a data connection: its first 128 bytes name the session and index.
  void accept_one() {
    Fd fd(::accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!fd) return;
    const std::string hello = read_exactly(fd.get(), kDataHelloSize);
    set_non_blocking(fd.get());
    if (hello.size() == kDataHelloSize && writer_) {
      static_cast<void>(writer_->adopt(std::move(fd), hello_index(hello)));
    }
  }

  Listener listener_;
  std::unique_ptr<FdWatch> watch_;
};

}  // namespace

TransportHarness::TransportHarness(std::uint64_t pool_size) {
  PoolOptions options;
  options.name = "source";
  options.size = pool_size;
  options.touch_in_background = false;
  pool_ = must(Pool::create(options));
  pool_->set_id(kMemory);
  fill_pattern(pool_->base(), pool_->size(), 1);
  source_.add(kMemory, pool_);
  source_.grant(kLease);
  writer_channel_.self_id = reader_channel_.peer_id;
  writer_channel_.peer_id = reader_channel_.self_id;
}

TransportHarness::~TransportHarness() = default;

void TransportHarness::attach_pool(Transport& exporting) {
  auto token = must(exporting.export_memory(ExportedMemory::of(kMemory, pool_)));
  ImportedMemory memory{kMemory, pool_->size(), pool_->kind(), token.token, {}};
  for (const int fd : token.descriptors) memory.descriptors.emplace_back(::dup(fd));
  reader_->attach(std::move(memory)).value();
}

ReadId TransportHarness::read(ReadRequest request, const Outcome& outcome) {
  ReadId id = 0;
  run_on(loop_, [&] { id = reader_->read(std::move(request), fill(outcome)); });
  return id;
}

Status TransportHarness::read_now(ReadRequest request) {
  const Outcome outcome = make_outcome();
  read(std::move(request), outcome);
  return outcome->wait();
}

std::shared_ptr<Once<bool>> TransportHarness::abort(ReadId id) {
  auto settled = std::make_shared<Once<bool>>();
  run_on(loop_, [&] { reader_->abort(id, [settled] { settled->set(true); }); });
  return settled;
}

std::shared_ptr<Once<bool>> TransportHarness::close_reader() {
  if (!reader_closed_) {
    reader_closed_ = std::make_shared<Once<bool>>();
    run_on(loop_, [&] { reader_->close([closed = reader_closed_] { closed->set(true); }); });
  }
  return reader_closed_;
}

std::shared_ptr<Once<bool>> TransportHarness::close_writer() {
  if (!writer_closed_) {
    writer_closed_ = std::make_shared<Once<bool>>();
    run_on(loop_, [&] { writer_->close([closed = writer_closed_] { closed->set(true); }); });
  }
  return writer_closed_;
}

void TransportHarness::shut_down() {
  if (reader_) close_reader()->wait();
  if (writer_) close_writer()->wait();
  run_on(loop_, [this] {
    reader_.reset();
    writer_.reset();
    if (reader_transport_) reader_transport_->close();
    if (writer_transport_) writer_transport_->close();
    reader_transport_.reset();
    writer_transport_.reset();
  });
}

void TransportHarness::stop() {
  source_.open_gate();
  shut_down();
  loop_.stop();
}

std::unique_ptr<TransportHarness> make_harness(const std::string& name, std::uint64_t pool_size) {
  if (name == "local") return std::make_unique<LocalHarness>(pool_size);
  if (name == "shm") return std::make_unique<ShmHarness>(pool_size);
  if (name == "tcp") return std::make_unique<TcpHarness>(pool_size, TcpOptions(), false);
  if (name == "verbs") return VerbsHarness::over_fake(pool_size);
  if (name == "verbs_device") return VerbsHarness::over_device(pool_size, std::getenv(kRdmaDeviceVariable));
  if (name == "faulty") return std::make_unique<TcpHarness>(pool_size, TcpOptions(), true);
  std::abort();
}

std::unique_ptr<TransportHarness> make_tcp_harness(const TcpOptions& options, std::uint64_t pool_size) {
  return std::make_unique<TcpHarness>(pool_size, options, false);
}

}  // namespace stagewire::testing_support
