// See data_server.h.
#include "transport/tcp/data_server.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <sys/socket.h>
#include <sys/uio.h>
#include <utility>

#include "transport/tcp/endpoints.h"
#include "transport/tcp/tcp_options.h"

namespace stagewire {

namespace {

// One turn of a connection sends at most about this much before others on its thread have theirs.
constexpr std::size_t kTurnBytes = 1U << 20U;
// As an aborted read over verbs has (rdma_abort_fence): a chunk is 1 MiB or so, and nearly always through by
// then.
constexpr std::chrono::milliseconds kFenceGrace{50};

}  // namespace

ServeConnection::ServeConnection(Fd connection, EventLoop& loop, DataThreads& threads, SourceAccess& source,
                                 const NodeId& reader, std::shared_ptr<std::atomic<std::size_t>> live)
    : loop_(loop),
      threads_(threads),
      source_(source),
      reader_(reader),
      live_(std::move(live)),
      fd_(std::move(connection)) {
  live_->fetch_add(1);
}

void ServeConnection::start() {
  loop_.post([self = shared_from_this()] { self->begin(); });
}

void ServeConnection::shut(std::shared_ptr<void> barrier) {
  loop_.post([self = shared_from_this(), barrier = std::move(barrier)] { self->close(nullptr); });
}

void ServeConnection::fence(std::uint32_t memory) {
  loop_.post([self = shared_from_this(), memory] {
    if (!self->sends_from(memory)) return;
    self->loop_.call_at(Deadline::in(kFenceGrace), [self, memory] {
      if (!self->sends_from(memory)) return;
      const Error taken(ErrorKind::lease_lost,
                        "the reader did not take the rest of a chunk whose memory was taken back");
      self->close(&taken);
    });
  });
}

bool ServeConnection::sends_from(std::uint32_t memory) const {
  return std::any_of(pieces_.begin(), pieces_.end(),
                     [memory](const Piece& piece) { return piece.memory == memory; });
}

void ServeConnection::begin() {
  if (closed_) return;
  try {
    watch_ = loop_.watch(
        fd_.get(), [self = shared_from_this()] { self->receive(); },
        [self = shared_from_this()] {
          self->blocked_ = false;
          self->serve();
        });
  } catch (const std::exception& error) {
    const Error failed(ErrorKind::io, std::string("cannot watch a data connection: ") + error.what());
    return close(&failed);
  }
  head_.assign(1, data_wire::kAccepted);
  head_sent_ = 0;
  sending_ = true;
  serve();
}

void ServeConnection::receive() {
  if (closed_) return;
  const auto self = shared_from_this();
  const ssize_t n = ::recv(fd_.get(), in_.data() + in_size_, in_.size() - in_size_, MSG_DONTWAIT);
  if (n < 0 && would_block(errno)) return;
  if (n <= 0) return close(nullptr);  // the reader closed it, or died
  in_size_ += static_cast<std::size_t>(n);
  if (const Status parsed = parse(); !parsed.ok()) return close(&parsed.error());
  if (!blocked_) serve();
}

// Takes every whole request out of in_. Afterwards there is room in it, because one always fits.
Status ServeConnection::parse() {
  std::size_t at = 0;
  while (in_size_ - at >= data_wire::kRequestHeaderSize) {
    const std::string_view bytes(in_.data() + at, in_size_ - at);
    STAGEWIRE_ASSIGN(const auto header,
                     data_wire::decode_request_header(bytes.substr(0, data_wire::kRequestHeaderSize)));
    const std::size_t ranges = header.ranges * data_wire::kRangeSize;
    if (bytes.size() < data_wire::kRequestHeaderSize + ranges) break;
    if (queue_.size() >= kMaxQueuedRequests) {
      return Error(ErrorKind::protocol, "data connection: the reader has more than " +
                                            std::to_string(kMaxQueuedRequests) + " requests outstanding");
    }
    Request request{header.read, header.lease, header.chunk, {}};
    STAGEWIRE_TRY(
        data_wire::decode_ranges(bytes.substr(data_wire::kRequestHeaderSize, ranges), request.ranges));
    queue_.push_back(std::move(request));
    at += data_wire::kRequestHeaderSize + ranges;
  }
  in_size_ -= at;
  if (at != 0 && in_size_ != 0) std::memmove(in_.data(), in_.data() + at, in_size_);
  return {};
}

void ServeConnection::serve() {
  const auto self = shared_from_this();
  for (std::size_t turn = 0; !closed_;) {
    if (!sending_) {
      if (queue_.empty()) return;
      const Request request = std::move(queue_.front());
      queue_.pop_front();
      begin_response(request);
    }
    if (turn >= kTurnBytes) {
      blocked_ = true;  // not really: comes back at once, after the thread's other connections
      watch_->want_write();
      return;
    }
    std::array<iovec, kMaxChunkRanges + 1> iov;
    std::size_t count = 0;
    std::size_t wanted = head_.size() - head_sent_;
    if (wanted != 0) iov[count++] = {head_.data() + head_sent_, wanted};
    for (std::size_t i = piece_; i < pieces_.size(); ++i) {
      const std::uint64_t skip = i == piece_ ? piece_sent_ : 0;
      // sendmsg only reads; iovec has no const form.
      iov[count++] = {const_cast<std::byte*>(pieces_[i].pin.data) + skip, pieces_[i].length - skip};
      wanted += pieces_[i].length - skip;
    }
    msghdr message{};
    message.msg_iov = iov.data();
    message.msg_iovlen = count;
    const ssize_t n = ::sendmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && !would_block(errno)) return close(nullptr);
    if (n > 0) {
      turn += static_cast<std::size_t>(n);
      advance(static_cast<std::size_t>(n));
    }
    if (n < 0 || static_cast<std::size_t>(n) < wanted) {
      blocked_ = true;
      watch_->want_write();
      return;
    }
  }
}

void ServeConnection::begin_response(const Request& request) {
  sending_ = true;
  head_sent_ = 0;
  piece_ = 0;
  piece_sent_ = 0;
  const Status pinned = pin_all(request);
  data_wire::ResponseHeader header;
  header.read = request.read;
  header.chunk = request.chunk;
  if (pinned.ok()) {
    for (const RemoteRange& range : request.ranges) header.length += range.length;
    head_ = data_wire::encode_response(header);
    return;
  }
  pieces_.clear();
  const std::string text = pinned.error().message().substr(0, data_wire::kMaxErrorText);
  header.status = data_wire::status_of(pinned.error().kind());
  header.length = text.size();
  head_ = data_wire::encode_response(header) + text;
}

Status ServeConnection::pin_all(const Request& request) {
  for (const RemoteRange& range : request.ranges) {
    STAGEWIRE_ASSIGN(SourcePin pin, source_.pin(reader_, request.lease, range));
    if (!pin.kind.is_host()) {
      return Error(ErrorKind::not_viable,
                   "the source is " + to_string(pin.kind) + " memory, which tcp cannot send");
    }
    pieces_.push_back({.pin = std::move(pin), .memory = range.memory, .length = range.length});
  }
  return {};
}

void ServeConnection::advance(std::size_t sent) {
  const std::size_t head = std::min(sent, head_.size() - head_sent_);
  head_sent_ += head;
  sent -= head;
  threads_.counters().bytes_served.add(sent);
  while (sent != 0) {
    const std::uint64_t size = std::min<std::uint64_t>(sent, pieces_[piece_].length - piece_sent_);
    sent -= size;
    piece_sent_ += size;
    if (piece_sent_ == pieces_[piece_].length) {
      ++piece_;
      piece_sent_ = 0;
    }
  }
  if (head_sent_ == head_.size() && piece_ == pieces_.size()) {
    pieces_.clear();  // the kernel has every byte: the memory may be let go
    sending_ = false;
  }
}

void ServeConnection::close(const Error* error) {
  if (closed_) return;
  closed_ = true;
  const auto self = shared_from_this();
  if (error != nullptr) {
    threads_.log().warn("data connection from " + reader_.brief() + " closed: " + error->to_string());
    if (error->kind() == ErrorKind::protocol) threads_.counters().protocol_errors.add();
  }
  watch_.reset();
  fd_.reset();
  queue_.clear();
  pieces_.clear();
  live_->fetch_sub(1);
}

}  // namespace stagewire
