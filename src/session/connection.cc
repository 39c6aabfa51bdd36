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
// Frames that need not hurry are not added to every answer, but so many at a time, or when they are due.
constexpr std::size_t kLazyBatch = 16;
constexpr std::size_t kMostLazyFrames = 64;
// Memory of what was sent that is kept for the next frames.
constexpr std::size_t kMostSpare = std::size_t{16} << 10U;

bool is_acknowledgement(wire::FrameType type) {
  return type == wire::FrameType::consumed || type == wire::FrameType::release ||
         type == wire::FrameType::settled;
}

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
    enqueue_lazy_frames();
    flush_locked();
  }
  watch_.reset();
  const std::lock_guard lock(send_mutex_);
  broken_ = true;
  queue_.clear();
  lazy_.clear();
  lazy_due_.reset();
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
  Fd copy;
  if (descriptor >= 0) {
    // Before the frame is sealed: one that is sealed and not sent would end the session.
    copy = Fd(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
    if (!copy) return Error::from_errno(errno, "cannot duplicate a descriptor to pass it");
  }
  const bool alone = copy || queue_.empty() || queue_.back().descriptor;
  if (alone) queue_.push_back({.bytes = std::exchange(spare_, {}), .sent = 0, .descriptor = std::move(copy)});
  std::string& bytes = queue_.back().bytes;
  const std::size_t start = bytes.size();
  const std::size_t tag_size = options_.outgoing ? wire::kTagSize : 0;
  if (Status encoded = wire::encode(frame, descriptor >= 0, tag_size, bytes); !encoded.ok()) {
    if (alone) queue_.pop_back();
    return encoded;
  }
  if (options_.outgoing) options_.outgoing->seal(bytes, start);
  queued_bytes_ += bytes.size() - start;
  if (queued_bytes_ <= options_.max_queued) return {};
  broken_ = true;
  Error error(ErrorKind::peer_lost, "the peer has stopped reading: " + std::to_string(queued_bytes_) +
                                        " bytes of control frames wait for it");
  loop_.post([weak = weak_from_this(), error] {
    if (const auto self = weak.lock()) self->fail(error);
  });
  return error;
}

Status Connection::send(const wire::Frame& frame, int descriptor) {
  const std::lock_guard lock(send_mutex_);
  // Nothing is read after a goodbye.
  if (std::holds_alternative<wire::Goodbye>(frame)) enqueue_lazy_frames();
  STAGEWIRE_TRY(enqueue(frame, descriptor));
  flush_unless_held();
  return {};
}

void Connection::send_lazily(wire::Frame frame, std::chrono::milliseconds within) {
  std::optional<Deadline> due;
  if (loop_.on_loop_thread()) due = Deadline::in(within);
  {
    const std::lock_guard lock(send_mutex_);
    if (broken_) return;
    lazy_.push_back(std::move(frame));
    // Then they count as bytes that wait for a peer that does not read.
    if (lazy_.size() >= kMostLazyFrames) enqueue_lazy_frames();
    if (due) lazy_due_ = lazy_due_ ? lazy_due_->earlier(*due) : *due;
    if (held_ || !due) return;
  }
  see_to_lazy_frames(*due);
}

void Connection::enqueue_lazy_frames() {
  // One that cannot be queued is lost with the connection, which is ending then.
  for (const wire::Frame& frame : lazy_) static_cast<void>(enqueue(frame, -1));
  lazy_.clear();
  lazy_due_.reset();
}

void Connection::see_to_lazy_frames(Deadline due) {
  // A timer that finds everything sent costs less than moving it with each frame.
  if (closed_ || (lazy_timer_ != 0 && lazy_timer_due_.at() <= due.at())) return;
  loop_.cancel(lazy_timer_);
  lazy_timer_due_ = due;
  lazy_timer_ = loop_.call_at(due, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self) return;
    self->lazy_timer_ = 0;
    std::optional<Deadline> next;
    {
      const std::lock_guard lock(self->send_mutex_);
      if (self->lazy_due_ && self->lazy_due_->passed()) {
        self->enqueue_lazy_frames();
        self->flush_unless_held();
      }
      next = self->lazy_due_;
    }
    if (next) self->see_to_lazy_frames(*next);
  });
}

void Connection::flush() {
  const std::lock_guard lock(send_mutex_);
  enqueue_lazy_frames();
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
  std::optional<Deadline> due;
  {
    const std::lock_guard lock(send_mutex_);
    held_ = false;
    if (urgent_) flush_locked();
    due = lazy_due_;
  }
  if (due) see_to_lazy_frames(*due);
}

// What somebody waits for does not wait for the handling of acknowledgements, which ride after it.
void Connection::flush_answers() {
  const std::lock_guard lock(send_mutex_);
  if (urgent_) flush_locked();
}

ssize_t Connection::send_rest(const Chunk& chunk) const {
  constexpr int kFlags = MSG_DONTWAIT | MSG_NOSIGNAL;
  iovec piece{.iov_base = const_cast<char*>(chunk.bytes.data()) + chunk.sent,
              .iov_len = chunk.bytes.size() - chunk.sent};
  if (!chunk.descriptor || chunk.sent != 0)
    return ::send(socket_.get(), piece.iov_base, piece.iov_len, kFlags);
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  const int fd = chunk.descriptor.get();
  std::memcpy(CMSG_DATA(header), &fd, sizeof(fd));
  return ::sendmsg(socket_.get(), &message, kFlags);
}

void Connection::flush_locked() {
  if (waiting_for_writable_ || broken_) return;
  const bool hurry = lazy_due_ && lazy_due_->left() <= kLazyFlush;
  if (hurry || lazy_.size() >= kLazyBatch) enqueue_lazy_frames();
  urgent_ = false;
  while (!queue_.empty()) {
    Chunk& chunk = queue_.front();
    const ssize_t sent = send_rest(chunk);
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
      spare_ = std::move(chunk.bytes);
      spare_.clear();
      if (spare_.capacity() > kMostSpare) spare_ = {};
      queue_.pop_front();
    }
  }
  if (options_.outgoing) options_.outgoing->prepare();
  // Now, while the peer works on its answer, and not when the answer is there.
  if (!options_.incoming) return;
  const std::lock_guard lock(incoming_mutex_);
  options_.incoming->prepare();
}

bool Connection::check_tag(std::string_view frame, std::string_view tag) {
  const std::lock_guard lock(incoming_mutex_);
  return options_.incoming->check(frame, tag);
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

ssize_t Connection::receive_with_descriptors(Status& status) {
  iovec piece{.iov_base = buffer_.data() + end_, .iov_len = kReadSize};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMaxDescriptorsPerRead)> control;
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t got = ::recvmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got >= 0) status = take_descriptors(message);
  return got;
}

Status Connection::receive_some(bool& more) {
  Status status;
  if (begin_ == end_) begin_ = end_ = 0;
  if (buffer_.size() - end_ < kReadSize) {
    // Room is made for what arrives, never for what a frame announces: a hostile length costs nothing.
    std::copy(buffer_.begin() + static_cast<std::ptrdiff_t>(begin_),
              buffer_.begin() + static_cast<std::ptrdiff_t>(end_), buffer_.begin());
    end_ -= begin_;
    begin_ = 0;
    if (buffer_.size() - end_ < kReadSize) buffer_.resize(std::max(2 * buffer_.size(), end_ + kReadSize));
  }
  ssize_t got = 0;
  do {
    got = options_.unix_socket ? receive_with_descriptors(status)
                               : ::recv(socket_.get(), buffer_.data() + end_, kReadSize, MSG_DONTWAIT);
  } while (got < 0 && errno == EINTR);
  if (got < 0) {
    more = false;
    if (errno == EAGAIN) return {};
    return lost(errno);
  }
  end_ += static_cast<std::size_t>(got);
  STAGEWIRE_TRY(status);
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
    if (is_acknowledgement(header.type)) flush_answers();
    const std::string_view frame = rest.substr(0, whole - tag_size);
    if (options_.incoming && !check_tag(frame, rest.substr(whole - tag_size, tag_size))) {
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
    Result<wire::Frame> decoded = wire::decode_body(header.type, frame.substr(wire::kFrameHeaderSize));
    if (!decoded.ok()) return std::move(decoded).error();
    begin_ += whole;
    STAGEWIRE_TRY(callbacks->on_frame(*decoded, std::move(descriptor)));
  }
  return {};
}

}  // namespace stagewire
