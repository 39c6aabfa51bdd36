// The serving side of one data connection: reads bounded requests and answers each with bytes sent straight
// from published memory, pinned for as long as its chunk is being sent. Lives on one data thread; kept alive
// by its own pending callbacks.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include <stagewire/base/node_id.h>

#include "base/event_loop.h"
#include "base/fd.h"
#include "transport/tcp/data_threads.h"
#include "transport/tcp/data_wire.h"
#include "transport/transport.h"

namespace stagewire {

class ServeConnection : public std::enable_shared_from_this<ServeConnection> {
 public:
  /// `source` outlives the transport. `live` counts the peer's connections; this one counts until it is
  /// closed.
  ServeConnection(Fd connection, EventLoop& loop, DataThreads& threads, SourceAccess& source,
                  const NodeId& reader, std::shared_ptr<std::atomic<std::size_t>> live);

  // Any thread; each posts to the connection's own.

  /// Accepts: sends the verdict and begins to serve.
  void start();
  /// Closes and lets go of every pin; `barrier` is let go once that is done.
  void shut(std::shared_ptr<void> barrier);
  /// Nothing of `memory` is pinned any more: lets go of a chunk of it that is being sent, by closing if its
  /// reader does not take it within kFenceGrace. A reader that is alive asks for the rest over another
  /// connection.
  void fence(std::uint32_t memory);

 private:
  struct Request {
    std::uint64_t read = 0;
    std::uint64_t lease = 0;
    std::uint32_t chunk = 0;
    std::vector<RemoteRange> ranges;
  };

  void begin();
  void receive();
  Status parse();
  void serve();
  void begin_response(const Request& request);
  Status pin_all(const Request& request);
  void advance(std::size_t sent);
  bool sends_from(std::uint32_t memory) const;
  void close(const Error* error);

  EventLoop& loop_;
  DataThreads& threads_;
  SourceAccess& source_;
  const NodeId reader_;
  const std::shared_ptr<std::atomic<std::size_t>> live_;
  bool closed_ = false;
  Fd fd_;
  std::unique_ptr<FdWatch> watch_;  // after fd_: goes first

  std::array<char, 8192> in_{};  // several requests of the largest size (1,568 bytes) fit
  std::size_t in_size_ = 0;
  std::deque<Request> queue_;  // ≤ kMaxQueuedRequests
  bool blocked_ = false;       // waits for the socket to take more

  // The response that is being sent: `head_`, then the pinned pieces.
  bool sending_ = false;
  std::string head_;
  std::size_t head_sent_ = 0;
  struct Piece {
    SourcePin pin;
    std::uint32_t memory = 0;
    std::uint64_t length = 0;
  };
  std::vector<Piece> pieces_;
  std::size_t piece_ = 0;         // the piece that is next
  std::uint64_t piece_sent_ = 0;  // bytes of it that the kernel has
};

}  // namespace stagewire
