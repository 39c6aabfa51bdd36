// Dial: from an address to a greeted connection. Resolves names on the worker, tries each numeric address in
// turn, and moves to the Unix socket of the same node where the peer is on this host (DESIGN: "same host" is
// proven, not guessed). Loop thread only.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/event_loop.h"
#include "base/worker.h"
#include "session/address.h"
#include "session/greeting.h"

namespace stagewire {

struct DialConfig {
  OpeningConfig opening;
  std::string socket_dir;
  std::string boot_id;
  std::chrono::nanoseconds timeout = std::chrono::seconds(5);  ///< for the whole dial
};

struct DialedConnection {
  GreetedConnection greeted;
  std::string route_note;  ///< why it runs over this kind of socket
};

class Dial {
 public:
  using Dialed = UniqueFunction<void(Result<DialedConnection>)>;
  /// True if the node is already connected, so that no second session (nor a move to a Unix socket) is
  /// needed.
  using Known = std::function<bool(const NodeId&)>;

  Dial(EventLoop& loop, Worker& worker, Address address, const DialConfig& config, Known known,
       Dialed dialed);
  ~Dial();
  Dial(const Dial&) = delete;
  Dial& operator=(const Dial&) = delete;

 private:
  void start();
  void try_next();
  void open(const Address& endpoint);
  void greet(OpenedConnection opened);
  void on_greeted(Result<GreetedConnection> greeted);
  void try_unix_upgrade(GreetedConnection over_tcp);
  void keep_tcp(const std::string& why);
  void fail_attempt(Error error);
  void finish(Result<DialedConnection> result);
  void retire_steps();

  EventLoop& loop_;
  Worker& worker_;
  Address address_;
  const DialConfig& config_;
  Known known_;
  Dialed dialed_;
  Deadline deadline_;
  std::vector<Address> candidates_;
  std::size_t next_candidate_ = 0;
  std::string note_;
  std::optional<Error> last_error_;
  std::unique_ptr<Opening> opening_;
  std::unique_ptr<Greeting> greeting_;
  std::optional<GreetedConnection> over_tcp_;  // kept while the Unix socket of the same node is tried
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace stagewire
