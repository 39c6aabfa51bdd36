// Connection: frames over one stream socket, after the handshake. Sending is thread-safe (one mutex, a
// try-send, the rest to the loop), so that a caller's claim costs no thread hop; receiving and closing belong
// to the loop thread. Owned by its Session through shared_ptr; other threads may hold it too and find it
// closed.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <sys/socket.h>
#include <vector>

#include <stagewire/base/result.h>

#include "base/event_loop.h"
#include "base/fd.h"
#include "base/unique_function.h"
#include "session/handshake.h"
#include "session/wire.h"

namespace stagewire {

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  struct Options {
    bool unix_socket = false;           ///< descriptors may be passed
    std::optional<FrameAuth> outgoing;  ///< empty: frames carry no tag (same-user Unix sessions)
    std::optional<FrameAuth> incoming;
    /// Bytes that may wait for a peer that does not read; more ends the connection.
    std::size_t max_queued = std::size_t{64} << 20U;
  };
  /// on_frame may take what is in the frame. An Error from it ends the connection with it. on_closed runs
  /// once, unless close() was called first.
  struct Callbacks {
    UniqueFunction<Status(wire::Frame& frame, Fd descriptor)> on_frame;
    UniqueFunction<void(Error error)> on_closed;
  };

  Connection(EventLoop& loop, Fd socket, Options options);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  /// Loop thread. Starts receiving.
  void start(Callbacks callbacks);
  /// Loop thread, from within on_frame. No more callbacks until start() is called again, which also takes the
  /// frames that have already been received; for handing the connection from one owner to the next.
  void detach();
  /// Loop thread. Closes the socket without calling on_closed; what is queued and fits the socket buffer was
  /// sent already.
  void close();
  /// Loop thread. Handles what the peer had sent by now, as when the socket becomes readable; may end the
  /// connection.
  void drain();

  /// Any thread. Sends after what is queued. `descriptor` (or -1) is duplicated if it has to wait. Errors:
  /// peer_lost, internal.
  Status send(const wire::Frame& frame, int descriptor = -1);
  /// Any thread. Keeps the frame until there is something to ride with: it goes after the frames of the next
  /// send() or flush(), in the same call; one that may wait for longer than kLazyFlush may wait for more of
  /// its kind. What the loop thread keeps leaves by itself after `within`; other threads see to a flush
  /// themselves. Lost if the connection ends before.
  void send_lazily(wire::Frame frame, std::chrono::milliseconds within = kLazyFlush);
  /// Any thread. Sends what is queued and kept.
  void flush();
  /// Loop thread. Between hold() and release_hold() what the loop thread sends is only queued, so that the
  /// answers to a batch leave in one call. Other threads' frames don't wait for that.
  void hold();
  void release_hold();

  /// DESIGN: an acknowledgement that finds no frame to ride on leaves by itself within 1 ms.
  static constexpr std::chrono::milliseconds kLazyFlush{1};

  bool unix_socket() const noexcept { return options_.unix_socket; }
  /// The socket, for SO_PEERCRED and the like; valid until closed. Loop thread.
  int fd() const noexcept { return socket_.get(); }

 private:
  struct Chunk {
    std::string bytes;
    std::size_t sent = 0;
    Fd descriptor;
  };
  Status enqueue(const wire::Frame& frame, int descriptor);
  ssize_t send_rest(const Chunk& chunk) const;
  void flush_locked();
  void flush_unless_held();
  void flush_answers();
  bool check_tag(std::string_view frame, std::string_view tag);
  void enqueue_lazy_frames();
  void see_to_lazy_frames(Deadline due);
  void on_readable();
  Status receive_some(bool& more);
  /// As recvmsg(2) into the buffer; `status` says what was wrong with descriptors that came.
  ssize_t receive_with_descriptors(Status& status);
  Status take_frames();
  Status take_descriptors(const msghdr& message);
  void fail(Error error);

  EventLoop& loop_;
  Fd socket_;
  Options options_;

  std::mutex send_mutex_;  // guards the members up to the blank line
  std::deque<Chunk> queue_;
  std::size_t queued_bytes_ = 0;
  std::string spare_;                 // empty, with the memory of what was sent last
  std::vector<wire::Frame> lazy_;     // not sealed yet, so that others may leave before them
  std::optional<Deadline> lazy_due_;  // of what the loop thread keeps
  bool urgent_ = false;               // something waits for the end of a hold
  bool held_ = false;
  bool waiting_for_writable_ = false;
  bool broken_ = false;

  std::mutex incoming_mutex_;  // guards options_.incoming; taken last

  EventLoop::TimerId lazy_timer_ = 0;
  Deadline lazy_timer_due_ = Deadline::in(std::chrono::nanoseconds(0));
  std::shared_ptr<Callbacks> callbacks_;  // shared, so that an owner may replace them from within one
  std::unique_ptr<FdWatch> watch_;
  std::vector<char> buffer_;  // received bytes are [begin_, end_) of it
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::deque<Fd> descriptors_;
  std::optional<Error> error_without_owner_;  // the end came between two owners
  bool closed_ = false;
};

}  // namespace stagewire
