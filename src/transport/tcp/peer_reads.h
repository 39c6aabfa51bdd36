// What one reader wants from one peer: the running reads, the chunks still to be asked for, and the data
// connections that ask for them. The loop thread starts and aborts reads; data threads take chunks and report
// what became of them. Thread-safe (one mutex, held for a few hundred nanoseconds per chunk); shared by the
// link and its connections.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/event_loop.h"
#include "transport/read_table.h"
#include "transport/tcp/data_threads.h"
#include "transport/tcp/endpoints.h"
#include "transport/tcp/tcp_options.h"
#include "transport/tcp/tcp_read.h"

namespace stagewire {

class ReadConnection;

/// A chunk that a connection has taken on.
struct ChunkJob {
  std::shared_ptr<TcpRead> read;
  std::uint32_t chunk = 0;
};

class PeerReads : public std::enable_shared_from_this<PeerReads> {
 public:
  PeerReads(TcpOptions options, DataThreads& threads, std::vector<SocketAddress> addresses, std::string peer);

  // Loop thread:

  /// How many openings of data connections are in stock. The link keeps it filled, because only it may ask
  /// the session for them, and connections break at any time.
  std::size_t hellos_in_stock() const;
  void stock_hello(std::string hello);
  /// As Link::read; the request has been checked.
  ReadId start(ReadRequest request, std::uint64_t total, ReadDone done);
  ReadId refuse(Error error, ReadDone done);
  void abort(ReadId id, std::function<void()> settled);
  void close(std::function<void()> closed);

  // Data threads, by the connection in `slot`:

  /// The connection's opening was accepted.
  void opened(unsigned slot);
  /// How many chunks the connection should take now: no more than its window has room for, nor than its share
  /// of what is left. Also ends a wake-up that was on the way to it.
  unsigned budget(unsigned slot);
  bool take(unsigned slot, ChunkJob& job);
  /// A chunk's bytes are in place.
  void complete(unsigned slot, const ChunkJob& job);
  /// The peer answered with an error; the chunk's response is over.
  void refused(unsigned slot, const ChunkJob& job, const Error& error);
  /// The connection let go of the destinations of `count` chunks of `read`; their responses are still due.
  void detached(const std::shared_ptr<TcpRead>& read, std::uint32_t count);
  /// The response of a detached chunk has been thrown away.
  void drained(unsigned slot);
  /// The connection is gone, and with it its claim on `jobs`.
  void lost(unsigned slot, const std::vector<ChunkJob>& jobs, const Error& error);

  const TcpOptions& options() const noexcept { return options_; }
  /// The peer's name in logs.
  const std::string& peer() const noexcept { return peer_; }

 private:
  struct Slot {
    std::shared_ptr<ReadConnection> connection;  // null: none
    bool open = false;
    bool waking = false;  // a wake-up is on its way to the connection
    unsigned outstanding = 0;
    std::chrono::steady_clock::time_point dial_after{};  // not before this while another connection lives
  };
  // What is to be done once the mutex is released.
  struct After {
    std::vector<std::shared_ptr<ReadConnection>> start;
    std::vector<std::shared_ptr<ReadConnection>> wake;
    std::vector<std::pair<std::shared_ptr<ReadConnection>, std::shared_ptr<TcpRead>>> detach;
    std::vector<std::pair<ReadId, Status>> finish;
  };
  void run(const After& after);

  // The mutex is held in all of these:
  void dial(After& after);
  void wake(std::size_t chunks, After& after);
  bool any_connection() const;
  void begin_end(const std::shared_ptr<TcpRead>& read, const Error& error, After& after);
  void end_if_idle(const std::shared_ptr<TcpRead>& read, After& after);
  void fail_stranded(After& after);
  void drop_ready(const std::shared_ptr<TcpRead>& read);

  const TcpOptions options_;
  DataThreads& threads_;
  const std::vector<SocketAddress> addresses_;
  const std::string peer_;
  const std::size_t first_thread_;  // so that peers with few connections share all threads
  ReadTable table_;

  mutable std::mutex mutex_;
  std::unordered_map<ReadId, std::shared_ptr<TcpRead>> reads_;
  std::deque<std::shared_ptr<TcpRead>>
      ready_;                  // reads with chunks to ask for; each gives one and goes to the end
  std::uint64_t unasked_ = 0;  // chunks to ask for, over all of them
  std::vector<Slot> slots_;
  std::deque<std::string> hellos_;
  bool ever_open_ = false;
  std::optional<Error> last_error_;
  bool closing_ = false;
};

}  // namespace stagewire
