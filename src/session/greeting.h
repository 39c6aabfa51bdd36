// Greeting: an authenticated connection whose two ends exchange welcomes. The initiator decides by sending
// its welcome that the connection becomes the session; closing instead leaves no trace. Loop thread only.
#pragma once

#include <memory>

#include "base/event_loop.h"
#include "session/connection.h"
#include "session/opening.h"
#include "session/wire.h"

namespace stagewire {

/// A connection with the peer's welcome.
struct GreetedConnection {
  std::shared_ptr<Connection> connection;
  HandshakeResult auth;
  bool initiator = false;
  std::chrono::nanoseconds started{0};
  wire::Welcome welcome;
  std::string peer_ip;  ///< empty for Unix sockets
};

class Greeting {
 public:
  using Greeted = UniqueFunction<void(Result<GreetedConnection>)>;

  /// Waits for the peer's welcome until the deadline. A responder passes its own welcome to be sent at once.
  /// Destroying the greeting closes the connection without a word. `greeted` runs once, or never if destroyed
  /// first.
  Greeting(EventLoop& loop, OpenedConnection opened, const wire::Welcome* own_welcome, Deadline deadline,
           Greeted greeted);
  ~Greeting();
  Greeting(const Greeting&) = delete;
  Greeting& operator=(const Greeting&) = delete;

 private:
  Status on_frame(wire::Frame& frame);
  void finish(Result<GreetedConnection> result);

  EventLoop& loop_;
  GreetedConnection greeted_connection_;
  Greeted greeted_;
  EventLoop::TimerId timer_ = 0;
};

}  // namespace stagewire
