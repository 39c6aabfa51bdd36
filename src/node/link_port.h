// LinkPort: what a transport's link may use of the session to its peer. Holds the session's facts by value,
// so that a link that is closing may still ask for them. Loop thread only.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "session/session.h"
#include "transport/transport.h"

namespace stagewire {

class LinkPort final : public LinkChannel {
 public:
  /// `changed` runs when the link says that its viability has changed.
  LinkPort(const NodeId& self, std::string transport, std::shared_ptr<Session> session,
           std::function<void()> changed)
      : self_(self),
        transport_(std::move(transport)),
        session_(std::move(session)),
        changed_(std::move(changed)) {}

  const NodeId& self() const override { return self_; }
  const NodeId& peer() const override { return session_->peer(); }
  bool same_host() const override { return session_->same_host(); }
  const std::string& peer_ip() const override { return session_->peer_ip(); }
  std::array<std::byte, 32> derive_key(std::string_view label, std::uint64_t index) const override {
    return stagewire::derive_key(session_->key(), label, index);
  }
  std::array<std::byte, 16> session_id() const override { return session_->tag(); }
  std::string data_hello(std::uint64_t index) override {
    return make_data_hello(session_->tag(), index, session_->key());
  }
  void send(std::string message) override {
    // A session that is gone is reported by its own end; the message has lost its meaning with it.
    static_cast<void>(
        session_->send(wire::TransportMessage{.transport = transport_, .message = std::move(message)}));
  }
  void viability_changed() override { changed_(); }

 private:
  NodeId self_;
  std::string transport_;
  std::shared_ptr<Session> session_;
  std::function<void()> changed_;
};

/// The port of this node's link to itself (transport "local").
class SelfPort final : public LinkChannel {
 public:
  explicit SelfPort(const NodeId& self) : self_(self) {}
  const NodeId& self() const override { return self_; }
  const NodeId& peer() const override { return self_; }
  bool same_host() const override { return true; }
  const std::string& peer_ip() const override { return no_ip_; }
  std::array<std::byte, 32> derive_key(std::string_view /*label*/, std::uint64_t /*index*/) const override {
    return {};
  }
  std::array<std::byte, 16> session_id() const override { return {}; }
  std::string data_hello(std::uint64_t /*index*/) override { return {}; }
  void send(std::string /*message*/) override {}

 private:
  NodeId self_;
  std::string no_ip_;
};

}  // namespace stagewire
