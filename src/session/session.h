// Session: the control connection between two nodes, from the exchange of welcomes until it breaks. Sends
// heartbeats, answers them, and notices silence. There is at most one per pair of nodes (sessions.h sees to
// that). State belongs to the loop thread; send() and its relatives may be called by any thread that holds
// the session.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include <stagewire/base/node_id.h>
#include <stagewire/base/result.h>

#include "base/event_loop.h"
#include "session/beat_schedule.h"
#include "session/connection.h"
#include "session/opening.h"
#include "session/wire.h"

namespace stagewire {

class Session;

/// What a session tells its owner, always on the loop thread.
class SessionHandler {
 public:
  virtual ~SessionHandler() = default;
  virtual void on_up(const std::shared_ptr<Session>& session) = 0;
  /// Any frame but welcome, heartbeat, heartbeat_ack and goodbye. An Error ends the session with it.
  virtual Status on_frame(Session& session, wire::Frame& frame, Fd descriptor) = 0;
  /// The lender acknowledged what we sent at `sent`.
  virtual void on_acknowledged(Session& session, std::chrono::nanoseconds sent,
                               std::uint64_t lease_epoch) = 0;
  /// After this the session does nothing any more.
  virtual void on_down(const std::shared_ptr<Session>& session, const Error& error) = 0;
  /// A data connection proved to belong to this session.
  virtual Status on_data(Session& session, Fd socket, std::uint64_t index) = 0;

  /// What this node tells `peer` as a lender and as a reader.
  virtual std::uint64_t lease_epoch_for(const NodeId& peer) = 0;
  virtual std::uint64_t known_epoch_of(const NodeId& peer) = 0;
  virtual std::uint64_t settled_below(const NodeId& peer) = 0;
};

struct SessionTimes {
  std::chrono::nanoseconds heartbeat = std::chrono::seconds(1);
  std::chrono::nanoseconds lease = std::chrono::seconds(10);
};

class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(EventLoop& loop, std::shared_ptr<Connection> connection, const HandshakeResult& auth,
          bool initiator, std::chrono::nanoseconds started, wire::Welcome peer_welcome, std::string peer_ip,
          std::string route_note, const SessionTimes& times, SessionHandler& handler);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Any thread; constant after construction.
  const NodeId& peer() const noexcept { return auth_.peer; }
  const wire::Welcome& peer_welcome() const noexcept { return peer_welcome_; }
  bool same_host() const noexcept { return connection_->unix_socket(); }
  bool initiator() const noexcept { return initiator_; }
  const std::string& peer_ip() const noexcept { return peer_ip_; }
  const SessionTag& tag() const noexcept { return auth_.session; }
  const SessionKey& key() const noexcept { return auth_.key; }
  /// "peer-name (1a2b3c4d)", for errors and logs.
  const std::string& peer_label() const noexcept { return peer_label_; }
  /// Why the session runs over this kind of socket.
  const std::string& route_note() const noexcept { return route_note_; }
  /// When this side began to be heard by the peer, at the latest (CLOCK_BOOTTIME).
  std::chrono::nanoseconds started() const noexcept { return started_; }

  /// Any thread.
  Status send(const wire::Frame& frame, int descriptor = -1) { return connection_->send(frame, descriptor); }
  void send_lazily(wire::Frame frame, std::chrono::milliseconds within = Connection::kLazyFlush) {
    connection_->send_lazily(std::move(frame), within);
  }
  void flush() { connection_->flush(); }
  /// Loop thread: handles what the peer had sent by now. May end the session, with on_down.
  void drain() { connection_->drain(); }

  // Loop thread:
  std::chrono::nanoseconds heard() const noexcept { return heard_; }
  int socket() const noexcept { return connection_->fd(); }
  void start();
  /// Sends a goodbye and ends; on_down runs with `error` before this returns.
  void end(Error error);
  /// As end(), without a goodbye and without on_down: this session gives way to another with the same peer.
  void drop();
  /// Marks a data connection's index as used. False if it was used before or too many were.
  bool use_data_index(std::uint64_t index);

 private:
  Status on_frame(wire::Frame& frame, Fd descriptor);
  void on_closed(Error error);
  void heartbeat(bool with_peers);

  EventLoop& loop_;
  std::shared_ptr<Connection> connection_;
  HandshakeResult auth_;
  bool initiator_;
  std::chrono::nanoseconds started_;
  wire::Welcome peer_welcome_;
  std::string peer_ip_;
  std::string peer_label_;
  std::string route_note_;
  SessionTimes times_;
  BeatSchedule beats_;
  SessionHandler& handler_;

  std::chrono::nanoseconds heard_{0};
  EventLoop::TimerId timer_ = 0;
  std::vector<std::uint64_t> used_indexes_;
  bool up_ = false;
};

}  // namespace stagewire
