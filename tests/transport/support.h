// What the transport tests share: an in-memory session channel, a source whose leases and pins the test
// controls, and ways to wait for callbacks. Waits have generous guards against hangs; none asserts speed.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <stagewire/memory/pool.h>

#include "base/event_loop.h"
#include "base/fd.h"
#include "transport/transport.h"

namespace stagewire::testing_support {

/// How long a wait may take before the test is declared hung.
inline constexpr std::chrono::seconds kHangGuard{60};

/// Something that happens once, on any thread.
template <typename T>
class Once {
 public:
  void set(T value) {
    const std::lock_guard lock(mutex_);
    ++times_;
    value_.emplace(std::move(value));
    changed_.notify_all();
  }
  /// The value; aborts the test program if it does not come.
  T wait() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, kHangGuard, [&] { return value_.has_value(); })) std::abort();
    return *value_;
  }
  bool happened() const {
    const std::lock_guard lock(mutex_);
    return value_.has_value();
  }
  int times() const {
    const std::lock_guard lock(mutex_);
    return times_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<T> value_;
  int times_ = 0;
};

using Outcome = std::shared_ptr<Once<Status>>;
inline Outcome make_outcome() {
  return std::make_shared<Once<Status>>();
}
inline ReadDone fill(const Outcome& outcome) {
  return [outcome](Status status) { outcome->set(std::move(status)); };
}
/// "ok", or the name of the error's kind.
std::string kind_name(const Status& status);

/// Runs `function` on the loop and waits for it.
void run_on(EventLoop& loop, std::function<void()> function);

/// Deterministic bytes: byte i of the stream named by `seed`.
void fill_pattern(std::byte* data, std::size_t size, std::uint64_t seed);

class TestChannel final : public LinkChannel {
 public:
  NodeId self_id = NodeId::random();
  NodeId peer_id = NodeId::random();
  bool on_same_host = true;
  std::string ip = "127.0.0.1";
  std::uint64_t hellos = 0;  ///< how many data_hello() were asked for
  /// What becomes of a message that the link sends; dropped if not set.
  std::function<void(std::string)> on_send;
  std::atomic<int> changes{0};  ///< of viability, as the link told

  const NodeId& self() const override { return self_id; }
  const NodeId& peer() const override { return peer_id; }
  bool same_host() const override { return on_same_host; }
  const std::string& peer_ip() const override { return ip; }
  std::array<std::byte, 32> derive_key(std::string_view, std::uint64_t) const override { return {}; }
  std::array<std::byte, 16> session_id() const override { return {}; }
  std::string data_hello(std::uint64_t index) override;
  void send(std::string message) override {
    if (on_send) on_send(std::move(message));
  }
  void viability_changed() override { ++changes; }
};
inline constexpr std::size_t kDataHelloSize = 128;
/// The index in a hello made by TestChannel.
std::uint64_t hello_index(const std::string& hello);

/// Published memory under leases that the test grants and takes away. Thread-safe.
class TestSource final : public SourceAccess {
 public:
  void add(std::uint32_t memory, std::shared_ptr<Pool> pool);
  void grant(std::uint64_t lease);
  /// While the gate is shut, pin() does not return: the serving node looks frozen.
  void shut_gate();
  void open_gate();
  /// Waits until `count` calls of pin() have begun.
  void wait_for_pins(std::uint64_t count);
  /// Takes the lease away once `count` more calls of pin() have succeeded.
  void revoke_after(std::uint64_t lease, std::uint64_t count);
  std::int64_t pinned() const { return *pinned_; }

  Result<SourcePin> pin(const NodeId& reader, std::uint64_t lease, const RemoteRange& range) override;

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::uint32_t, std::shared_ptr<Pool>> pools_;
  std::set<std::uint64_t> leases_;
  std::map<std::uint64_t, std::uint64_t> revoke_after_;
  bool open_ = true;
  std::uint64_t begun_ = 0;
  std::shared_ptr<std::atomic<std::int64_t>> pinned_ = std::make_shared<std::atomic<std::int64_t>>(0);
};

/// A listening TCP socket on 127.0.0.1.
class Listener {
 public:
  Listener();
  int fd() const noexcept { return fd_.get(); }
  std::uint16_t port() const noexcept { return port_; }
  /// Accepts one connection; aborts if none comes. Blocking descriptor.
  Fd accept() const;
  void stop_listening() { fd_.reset(); }

 private:
  Fd fd_;
  std::uint16_t port_ = 0;
};

/// Connects to a port of 127.0.0.1. Blocking descriptor.
Fd dial(std::uint16_t port);
/// Reads exactly `size` bytes; fewer if the connection ends first. Aborts the test program on a hang.
std::string read_exactly(int fd, std::size_t size);
/// Writes all of it; false if the other side is gone.
bool write_all(int fd, std::string_view bytes);
/// True once the other side has closed the connection. Discards what it sent before.
bool wait_for_close(int fd);
void set_non_blocking(int fd);

}  // namespace stagewire::testing_support
