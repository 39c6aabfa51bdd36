// Sessions: all of a node's listeners, dials and sessions, at most one session per pair of nodes however many
// threads, ports and simultaneous dials there are. Loop thread only, but for nothing. Owned by the node.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/event_loop.h"
#include "base/log.h"
#include "base/worker.h"
#include "session/dialer.h"
#include "session/listener.h"
#include "session/session.h"

namespace stagewire {

struct SessionsConfig {
  DialConfig dial;
  std::string name;       ///< told to peers, for people
  std::string unix_name;  ///< told to peers: where this node listens on a Unix socket
  SessionTimes times;
  std::size_t max_sessions = 4096;
  OpeningLimits limits;
  std::vector<std::pair<std::string, std::string>> transports;  ///< name and hello, told to peers
};

class Sessions {
 public:
  using Connected = UniqueFunction<void(Result<std::shared_ptr<Session>>)>;

  Sessions(EventLoop& loop, Worker& worker, SessionsConfig config, SessionHandler& handler,
           std::shared_ptr<Logger> log);
  ~Sessions();
  Sessions(const Sessions&) = delete;
  Sessions& operator=(const Sessions&) = delete;

  /// Listens on one more address. Errors as Listener::create.
  Result<Address> listen(const Address& address);
  /// False if it was not listening there. Sessions made through it stay.
  bool unlisten(const Address& address);
  const std::vector<std::unique_ptr<Listener>>& listeners() const noexcept { return listeners_; }
  /// What later welcomes tell about the transports.
  void set_transports(std::vector<std::pair<std::string, std::string>> transports) {
    config_.transports = std::move(transports);
  }

  /// A session with the node at `address`: the one there is, or the outcome of a dial, which all who ask
  /// meanwhile share. The callback may run before this returns.
  void connect(const Address& address, Connected connected);
  /// The node that was last found at `address`, if a session to it is up.
  std::shared_ptr<Session> at(const Address& address) const;
  std::shared_ptr<Session> find(const NodeId& peer) const;
  std::vector<std::shared_ptr<Session>> all() const;

  /// To be called by the handler's on_down: forgets the session.
  void forget(const Session& session);
  /// Sends what waits to be sent, now.
  void flush();
  /// Says goodbye to all, stops listening and dialling. Nothing is called back after it.
  void close(const std::string& reason);

 private:
  struct Dialing {
    std::unique_ptr<Dial> dial;
    std::vector<Connected> waiting;
  };
  wire::Welcome own_welcome(const NodeId& peer);
  void on_control(OpenedConnection opened);
  void on_data(Fd socket, const DataHello& hello);
  void on_dialed(const std::string& address, Result<DialedConnection> dialed);
  void on_accepted(std::list<std::unique_ptr<Greeting>>::iterator greeting,
                   Result<GreetedConnection> greeted);
  Result<std::shared_ptr<Session>> establish(GreetedConnection greeted, std::string route_note);
  bool incoming_wins(const Session& existing, const GreetedConnection& incoming) const;

  EventLoop& loop_;
  Worker& worker_;
  SessionsConfig config_;
  SessionHandler& handler_;
  std::shared_ptr<Logger> log_;
  std::vector<std::unique_ptr<Listener>> listeners_;
  std::map<std::string, Dialing> dialing_;
  std::list<std::unique_ptr<Greeting>> greetings_;
  std::unordered_map<NodeId, std::shared_ptr<Session>> sessions_;
  std::unordered_map<NodeId, SessionTag> last_tags_;  // of the sessions that ended, by peer; bounded
  std::map<std::string, NodeId> found_at_;            // address → node of a session that is up
  bool closed_ = false;
};

}  // namespace stagewire
