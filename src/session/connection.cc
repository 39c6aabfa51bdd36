// Framing, queueing and descriptor passing over a stream socket. See connection.h for the threads.
#include "session/connection.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

namespace stagewire {

namespace {

// One read takes up to this much: several small frames, or a good piece of a large one.
constexpr std::size_t kReadSize = std::size_t{64} << 10U;
// Reads per wake-up, so that one busy peer cannot keep the loop from the others.
constexpr int kReadsPerWake = 16;
// Such wakes of a drain: more than any socket's buffer holds.
constexpr int kMostDrained = 64;
// A frame carries at most one descriptor; room for more only serves to close them properly when a peer breaks
// that rule.
constexpr std::size_t kMaxDescriptorsPerRead = 4;
constexpr std::size_t kMaxWaitingDescriptors = 16;

Error lost(int error) {
  return Error(ErrorKind::peer_lost, "the connection broke: " + Error::from_errno(error, "socket").message());
}

}  // namespace

Connection::Connection(EventLoop& loop, Fd socket, Options options)
    : loop_(loop), socket_(std::move(socket)), options_(std::move(options)) {}

Connection::~Connection() = default;

void Connection::start(Callbacks callbacks) {
  callbacks_ = std::make_shared<Callbacks>(std::move(callbacks));
  if (watch_) {
    // Taken over from another owner: what has been received is waiting in the buffer, where no readiness
    // event shows it.
    watch_->want_read(true);
    loop_.post([weak = weak_from_this()] {
      if (const auto self = weak.lock(); self && !self->closed_) self->on_readable();
    });
    return;
  }
  watch_ = loop_.watch(
      socket_.get(), [this] { on_readable(); },
      [weak = weak_from_this()] {
        if (const auto self = weak.lock()) {
          const std::lock_guard lock(self->send_mutex_);
          self->waiting_for_writable_ = false;
          self->flush_locked();
        }
      });
}

void Connection::detach() {
  callbacks_.reset();
  watch_->want_read(false);
}

void Connection::close() {
  if (closed_) return;
  closed_ = true;
  loop_.cancel(std::exchange(lazy_timer_, 0));
  {
    // Also in the middle of a batch: what is queued is sent now or never.
    const std::lock_guard lock(send_mutex_);
    flush_locked();
  }
  watch_.reset();
  const std::lock_guard lock(send_mutex_);
  broken_ = true;
  queue_.clear();
  socket_.reset();
}

void Connection::drain() {
  const auto self = shared_from_this();
  for (int i = 0; i < kMostDrained && !closed_; ++i) {
    pollfd waiting{.fd = socket_.get(), .events = POLLIN, .revents = 0};
    if (::poll(&waiting, 1, 0) <= 0) return;
    on_readable();
  }
}

void Connection::fail(Error error) {
  if (closed_) return;
  if (!callbacks_) {
    error_without_owner_ = std::move(error);
    return;
  }
  close();
  if (const auto callbacks = callbacks_) callbacks->on_closed(std::move(error));
}

Status Connection::enqueue(const wire::Frame& frame, int descriptor) {
  if (broken_) return Error(ErrorKind::peer_lost, "the session is closed");
  scratch_.clear();
  const std::size_t tag_size = options_.outgoing ? wire::kTagSize : 0;
  STAGEWIRE_TRY(wire::encode(frame, descriptor >= 0, tag_size, scratch_));
  if (options_.outgoing) options_.outgoing->seal(scratch_);
  if (queued_bytes_ + scratch_.size() > options_.max_queued) {
    broken_ = true;
    Error error(ErrorKind::peer_lost, "the peer has stopped reading: " + std::to_string(queued_bytes_) +
                                          " bytes of control frames wait for it");
    loop_.post([weak = weak_from_this(), error] {
      if (const auto self = weak.lock()) self->fail(error);
    });
    return error;
  }
  if (descriptor >= 0) {
    const int copy = ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
    if (copy < 0) return Error::from_errno(errno, "cannot duplicate a descriptor to pass it");
    queue_.push_back(Chunk{.bytes = scratch_, .sent = 0, .descriptor = Fd(copy)});
  } else if (!queue_.empty() && !queue_.back().descriptor) {
    queue_.back().bytes += scratch_;
  } else {
    queue_.push_back(Chunk{.bytes = scratch_, .sent = 0, .descriptor = Fd()});
  }
  queued_bytes_ += scratch_.size();
  return {};
}

Status Connection::send(const wire::Frame& frame, int descriptor) {
  const std::lock_guard lock(send_mutex_);
  STAGEWIRE_TRY(enqueue(frame, descriptor));
  flush_unless_held();
  return {};
}

void Connection::send_lazily(const wire::Frame& frame) {
  const bool on_loop = loop_.on_loop_thread();
  {
    const std::lock_guard lock(send_mutex_);
    if (!enqueue(frame, -1).ok() || !on_loop) return;
    lazy_pending_ = true;
    if (held_) return;
  }
  see_to_lazy_frames();
}

// A timer that finds everything sent costs less than moving it with each frame.
void Connection::see_to_lazy_frames() {
  if (lazy_timer_ != 0 || closed_) return;
  lazy_timer_ = loop_.call_at(Deadline::in(kLazyFlush), [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self) return;
    self->lazy_timer_ = 0;
    self->flush();
  });
}

void Connection::flush() {
  const std::lock_guard lock(send_mutex_);
  flush_unless_held();
}

// A caller's frame must not wait for the loop to come to the end of its turn: on one CPU that is a switch
// between the threads, and the caller is who everything here is for.
void Connection::flush_unless_held() {
  urgent_ = true;
  if (!held_ || !loop_.on_loop_thread()) flush_locked();
}

void Connection::hold() {
  const std::lock_guard lock(send_mutex_);
  held_ = true;
}

void Connection::release_hold() {
  {
    const std::lock_guard lock(send_mutex_);
    held_ = false;
    if (urgent_) flush_locked();
    if (!lazy_pending_) return;
  }
  see_to_lazy_frames();
}

void Connection::flush_locked() {
  if (waiting_for_writable_ || broken_) return;
  lazy_pending_ = false;
  urgent_ = false;
  while (!queue_.empty()) {
    Chunk& chunk = queue_.front();
    iovec piece{.iov_base = chunk.bytes.data() + chunk.sent, .iov_len = chunk.bytes.size() - chunk.sent};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
    if (chunk.descriptor && chunk.sent == 0) {
      message.msg_control = control.data();
      message.msg_controllen = control.size();
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(sizeof(int));
      const int fd = chunk.descriptor.get();
      std::memcpy(CMSG_DATA(header), &fd, sizeof(fd));
    }
    const ssize_t sent = ::sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN) {
        waiting_for_writable_ = true;
        loop_.post([weak = weak_from_this()] {
          if (const auto self = weak.lock(); self && self->watch_) self->watch_->want_write();
        });
        return;
      }
      broken_ = true;
      // Received bytes may still explain why (a goodbye): the reader finds the broken connection and reports
      // it.
      loop_.post([weak = weak_from_this(), error = lost(errno)] {
        const auto self = weak.lock();
        if (!self || self->closed_) return;
        self->on_readable();
        self->fail(error);
      });
      return;
    }
    chunk.sent += static_cast<std::size_t>(sent);
    queued_bytes_ -= static_cast<std::size_t>(sent);
    if (chunk.sent == chunk.bytes.size()) {
      queue_.pop_front();
    }
  }
}

void Connection::on_readable() {
  const auto self = shared_from_this();  // a callback may drop the last owner
  hold();
  Status status;
  bool more = callbacks_ != nullptr;
  // Frames may be waiting from before a change of owner.
  if (more) status = take_frames();
  for (int reads = 0; more && status.ok() && !closed_ && callbacks_ && reads < kReadsPerWake; ++reads) {
    status = receive_some(more);
    // What this process had said before the peer sent this counts for it: a put that has returned replaces
    // what a claim asks for.
    loop_.run_posted();
    // Frames that arrived before the end of the stream are still good.
    const Status taken = take_frames();
    if (!taken.ok()) status = taken;
  }
  release_hold();
  if (callbacks_ && error_without_owner_ && status.ok()) status = *error_without_owner_;
  if (status.ok()) return;
  if (status.error().kind() != ErrorKind::peer_lost) {
    static_cast<void>(
        send(wire::Goodbye{.kind = status.error().kind(), .message = status.error().message()}));
  }
  fail(std::move(status).error());
}

Status Connection::receive_some(bool& more) {
  if (begin_ == end_) begin_ = end_ = 0;
  if (buffer_.size() - end_ < kReadSize) {
    // Room is made for what arrives, never for what a frame announces: a hostile length costs nothing.
    std::copy(buffer_.begin() + static_cast<std::ptrdiff_t>(begin_),
              buffer_.begin() + static_cast<std::ptrdiff_t>(end_), buffer_.begin());
    end_ -= begin_;
    begin_ = 0;
    if (buffer_.size() - end_ < kReadSize) buffer_.resize(std::max(2 * buffer_.size(), end_ + kReadSize));
  }
  iovec piece{.iov_base = buffer_.data() + end_, .iov_len = kReadSize};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMaxDescriptorsPerRead)> control;
  if (options_.unix_socket) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
  }
  ssize_t got = 0;
  do {
    got = ::recvmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got < 0) {
    more = false;
    if (errno == EAGAIN) return {};
    return lost(errno);
  }
  end_ += static_cast<std::size_t>(got);
  STAGEWIRE_TRY(take_descriptors(message));
  if (got == 0) {
    more = false;
    return Error(ErrorKind::peer_lost, "the peer closed the connection");
  }
  more = static_cast<std::size_t>(got) == kReadSize;
  return {};
}

Status Connection::take_descriptors(const msghdr& message) {
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(const_cast<msghdr*>(&message), header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(fd));
      descriptors_.emplace_back(fd);
    }
  }
  if ((message.msg_flags & MSG_CTRUNC) != 0) {
    return Error(ErrorKind::protocol,
                 "descriptors passed by the peer were cut off: it sent too many, or this process has reached "
                 "its limit "
                 "of open files (see ulimit -n)");
  }
  if (descriptors_.size() > kMaxWaitingDescriptors) {
    return Error(ErrorKind::protocol, "the peer passed descriptors that belong to no frame");
  }
  return {};
}

Status Connection::take_frames() {
  const std::size_t tag_size = options_.incoming ? wire::kTagSize : 0;
  while (!closed_) {
    const auto callbacks = callbacks_;
    if (!callbacks) return {};
    const std::string_view rest = std::string_view(buffer_.data() + begin_, end_ - begin_);
    if (rest.size() < wire::kFrameHeaderSize) return {};
    STAGEWIRE_ASSIGN(const wire::FrameHeader header,
                     wire::decode_frame_header(rest.substr(0, wire::kFrameHeaderSize), tag_size));
    const std::size_t whole = sizeof(std::uint32_t) + header.length;
    if (rest.size() < whole) return {};
    const std::string_view frame = rest.substr(0, whole - tag_size);
    if (options_.incoming && !options_.incoming->check(frame, rest.substr(whole - tag_size, tag_size))) {
      return Error(ErrorKind::protocol,
                   "a control frame failed authentication: it was altered or does not belong here");
    }
    Fd descriptor;
    if (header.with_descriptor) {
      if (descriptors_.empty())
        return Error(ErrorKind::protocol, "a frame announced a descriptor that did not come");
      descriptor = std::move(descriptors_.front());
      descriptors_.pop_front();
    }
    STAGEWIRE_ASSIGN(wire::Frame decoded,
                     wire::decode_body(header.type, frame.substr(wire::kFrameHeaderSize)));
    begin_ += whole;
    STAGEWIRE_TRY(callbacks->on_frame(std::move(decoded), std::move(descriptor)));
  }
  return {};
}

}  // namespace stagewire
