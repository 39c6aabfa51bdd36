// Listener: accepts on one address and runs each connection through its opening. Bounds how many may be
// unauthenticated at once, and does not spin when the process is out of descriptors. Loop thread only; owned
// by the node's sessions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>

#include "base/event_loop.h"
#include "base/log.h"
#include "session/opening.h"

namespace stagewire {

/// Shared by all listeners of a node: the bound is on their sum.
struct OpeningLimits {
  std::size_t max_unauthenticated = 64;
  std::chrono::nanoseconds opening_timeout = std::chrono::seconds(2);
  std::size_t unauthenticated = 0;  ///< now
  std::uint64_t refused = 0;        ///< turned away because of the bound
};

class Listener {
 public:
  struct Handlers {
    UniqueFunction<void(OpenedConnection)> on_control;
    UniqueFunction<void(Fd socket, DataHello hello)> on_data;
  };

  /// Errors: io (see listen_on), auth_failed (TCP without secret).
  static Result<std::unique_ptr<Listener>> create(EventLoop& loop, const Address& address,
                                                  const OpeningConfig& config, OpeningLimits& limits,
                                                  std::shared_ptr<Logger> log, Handlers handlers);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  /// Where it listens, with the real port.
  const Address& address() const noexcept { return address_; }

 private:
  Listener(EventLoop& loop, Fd socket, Address address, OpeningConfig config, OpeningLimits& limits,
           std::shared_ptr<Logger> log, Handlers handlers);
  void on_readable();
  void pause_accepting(int error);
  void start_opening(Fd socket);

  struct Attempt {
    std::unique_ptr<Opening> opening;
  };
  void end_attempt(std::list<Attempt>::iterator attempt);

  EventLoop& loop_;
  Fd socket_;
  Address address_;
  OpeningConfig config_;
  OpeningLimits& limits_;
  std::shared_ptr<Logger> log_;
  Handlers handlers_;
  std::list<Attempt> attempts_;
  EventLoop::TimerId resume_timer_ = 0;
  bool said_out_of_descriptors_ = false;
  std::unique_ptr<FdWatch> watch_;
};

}  // namespace stagewire
