// See data_client.h.
#include "transport/tcp/data_client.h"

#include <algorithm>
#include <cerrno>
#include <exception>
#include <sys/socket.h>
#include <utility>

namespace stagewire {

namespace {

// One turn of a connection takes at most about this much before others on its thread have theirs.
constexpr std::size_t kTurnBytes = 1U << 20U;
constexpr std::size_t kScratchSize = 64U << 10U;

// A peer's text goes into our errors and logs: printable ASCII alone.
std::string printable(std::string text) {
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return text;
}

Error lost_error(int error_number, const char* what) {
  return Error(ErrorKind::peer_lost, Error::from_errno(error_number, what).message());
}

}  // namespace

ReadConnection::ReadConnection(std::shared_ptr<PeerReads> reads, unsigned slot, EventLoop& loop,
                               DataThreads& threads, const std::vector<SocketAddress>& addresses,
                               std::string hello)
    : reads_(std::move(reads)),
      slot_(slot),
      threads_(threads),
      loop_(loop),
      addresses_(addresses),
      out_(std::move(hello)) {}

void ReadConnection::start() {
  loop_.post([self = shared_from_this()] { self->begin(); });
}

void ReadConnection::wake() {
  loop_.post([self = shared_from_this()] { self->pump(); });
}

void ReadConnection::detach(std::shared_ptr<TcpRead> read) {
  loop_.post([self = shared_from_this(), read = std::move(read)] {
    std::uint32_t count = 0;
    const auto let_go = [&](InFlight& entry) {
      if (entry.job.read != read) return;
      entry.job.read = nullptr;
      ++count;
    };
    for (InFlight& entry : self->in_flight_) let_go(entry);
    if (self->in_body_) let_go(self->current_);
    if (count != 0) self->reads_->detached(read, count);
  });
}

void ReadConnection::shut(std::shared_ptr<void> barrier) {
  loop_.post([self = shared_from_this(), barrier = std::move(barrier)] {
    self->fail(Error(ErrorKind::closed, "the link was closed"));
  });
}

void ReadConnection::begin() {
  if (state_ != State::dialling) return;
  timer_ = loop_.call_at(Deadline::in(reads_->options().connect_timeout), [self = shared_from_this()] {
    self->timer_ = 0;
    self->fail(
        Error(ErrorKind::unreachable, "no data connection was accepted within " +
                                          std::to_string(self->reads_->options().connect_timeout.count()) +
                                          " ms; is the peer's port reachable from here?"));
  });
  dial_next(Error(ErrorKind::unreachable, "the peer announced no address that can be dialled from here"));
}

void ReadConnection::dial_next(Error last) {
  watch_.reset();
  fd_.reset();
  while (next_address_ < addresses_.size()) {
    const SocketAddress& address = addresses_[next_address_++];
    auto socket = make_socket(address, reads_->options());
    if (!socket.ok()) {
      last = std::move(socket).error();
      continue;
    }
    if (::connect(socket->get(), reinterpret_cast<const sockaddr*>(&address.storage), address.length) != 0 &&
        errno != EINPROGRESS) {
      last = Error(ErrorKind::unreachable,
                   Error::from_errno(errno, "cannot connect to " + address.text).message());
      continue;
    }
    fd_ = std::move(*socket);
    try {
      watch_ = loop_.watch(
          fd_.get(), [self = shared_from_this()] { self->on_readable(); },
          [self = shared_from_this()] { self->on_writable(); });
    } catch (const std::exception& error) {
      last = Error(ErrorKind::io, std::string("cannot watch a data connection: ") + error.what());
      fd_.reset();
      continue;
    }
    watch_->want_read(false);  // nothing to read before it is connected
    watch_->want_write();
    return;
  }
  fail(last);
}

void ReadConnection::on_readable() {
  const auto self = shared_from_this();
  if (state_ == State::greeting) receive_verdict();
  if (state_ == State::open) receive();
}

void ReadConnection::on_writable() {
  const auto self = shared_from_this();
  if (state_ == State::dialling) {
    check_connected();
  } else if (state_ != State::closed) {
    flush();
  }
}

void ReadConnection::check_connected() {
  int error = 0;
  socklen_t size = sizeof error;
  if (::getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  if (error != 0) {
    dial_next(
        Error(ErrorKind::unreachable,
              Error::from_errno(error, "cannot connect to " + addresses_[next_address_ - 1].text).message()));
    return;
  }
  state_ = State::greeting;
  watch_->want_read(true);
  flush();
}

void ReadConnection::receive_verdict() {
  char verdict = data_wire::kAccepted;
  const ssize_t n = ::recv(fd_.get(), &verdict, 1, MSG_DONTWAIT);
  if (n < 0 && would_block(errno)) return;
  if (n < 0) return fail(lost_error(errno, "a data connection broke before the peer accepted it"));
  if (n == 0)
    return fail(Error(ErrorKind::peer_lost, "the peer closed a data connection without accepting it"));
  if (verdict != data_wire::kAccepted) return fail(data_wire::refused_by_peer(verdict));
  loop_.cancel(timer_);
  timer_ = 0;
  state_ = State::open;
  reads_->opened(slot_);
  pump();
}

void ReadConnection::pump() {
  if (state_ != State::open) return;
  ChunkJob job;
  for (unsigned n = reads_->budget(slot_); n != 0 && reads_->take(slot_, job); --n) {
    const Chunk& chunk = job.read->chunks[job.chunk];
    chunk_ranges(*job.read, chunk, ranges_);
    data_wire::encode_request(
        {static_cast<std::uint16_t>(ranges_.size()), job.read->id, job.read->lease, job.chunk}, ranges_,
        out_);
    InFlight entry;
    entry.read_id = job.read->id;
    entry.length = chunk.length;
    entry.to_index = chunk.to_index;
    entry.to_offset = chunk.to_offset;
    entry.job = std::move(job);
    in_flight_.push_back(std::move(entry));
  }
  flush();
}

void ReadConnection::flush() {
  while (sent_ < out_.size()) {
    const ssize_t n =
        ::send(fd_.get(), out_.data() + sent_, out_.size() - sent_, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && would_block(errno)) {
      watch_->want_write();
      return;
    }
    if (n < 0) return fail(lost_error(errno, "a data connection broke"));
    sent_ += static_cast<std::size_t>(n);
  }
  out_.clear();
  sent_ = 0;
}

void ReadConnection::receive() {
  for (std::size_t turn = 0; turn < kTurnBytes && state_ == State::open;) {
    std::array<iovec, 64> iov;
    std::size_t wanted = 0;
    const std::size_t count = fill_iov(iov, wanted);
    msghdr message{};
    message.msg_iov = iov.data();
    message.msg_iovlen = count;
    const ssize_t n = ::recvmsg(fd_.get(), &message, MSG_DONTWAIT);
    if (n < 0 && would_block(errno)) return;
    if (n < 0) return fail(lost_error(errno, "a data connection broke"));
    if (n == 0) return fail(Error(ErrorKind::peer_lost, "the peer closed a data connection"));
    const auto received = static_cast<std::size_t>(n);
    turn += received;
    advance(received);
    if (received < wanted) return;
  }
}

// Where the next bytes go: the rest of the current body, and behind it the next header, so that a stream of
// chunks needs no system call of its own for its headers.
std::size_t ReadConnection::fill_iov(std::array<iovec, 64>& iov, std::size_t& wanted) {
  std::size_t count = 0;
  wanted = 0;
  const auto add = [&](void* data, std::size_t size) {
    iov[count++] = {data, size};
    wanted += size;
  };
  if (!in_body_) {
    add(header_.data() + header_size_, header_.size() - header_size_);
    return count;
  }
  if (status_ != 0) {
    const std::size_t have = error_text_.size() - left_;
    add(error_text_.data() + have, left_);
    return count;
  }
  std::uint64_t body = left_;
  if (current_.job.read == nullptr) {
    if (scratch_.empty()) scratch_.resize(kScratchSize);
    add(scratch_.data(), std::min<std::uint64_t>(body, scratch_.size()));
    body -= wanted;
  } else {
    const std::vector<LocalRange>& to = current_.job.read->to;
    std::uint64_t offset = current_.to_offset;
    for (std::size_t i = current_.to_index; body != 0 && count < iov.size() - 1; ++i) {
      const std::uint64_t size = std::min(to[i].length - offset, body);
      add(to[i].data + offset, size);
      body -= size;
      offset = 0;
    }
  }
  if (body == 0) add(header_.data(), header_.size());
  return count;
}

void ReadConnection::advance(std::size_t received) {
  if (in_body_) {
    const auto body = std::min<std::uint64_t>(received, left_);
    left_ -= body;
    received -= body;
    if (current_.job.read != nullptr && status_ == 0) {
      const std::vector<LocalRange>& to = current_.job.read->to;
      for (std::uint64_t skip = body; skip != 0;) {
        const std::uint64_t size = std::min(to[current_.to_index].length - current_.to_offset, skip);
        skip -= size;
        current_.to_offset += size;
        if (current_.to_offset == to[current_.to_index].length) {
          ++current_.to_index;
          current_.to_offset = 0;
        }
      }
    }
    if (left_ != 0) return;
    finish_current();
    if (state_ != State::open) return;
  }
  header_size_ += received;
  if (header_size_ == header_.size() && take_header() && left_ == 0) finish_current();
}

bool ReadConnection::take_header() {
  header_size_ = 0;
  auto header = data_wire::decode_response_header({header_.data(), header_.size()});
  if (!header.ok()) {
    fail(header.error());
    return false;
  }
  const auto found = std::find_if(in_flight_.begin(), in_flight_.end(), [&](const InFlight& entry) {
    return entry.read_id == header->read && entry.job.chunk == header->chunk;
  });
  if (found == in_flight_.end()) {
    fail(Error(ErrorKind::protocol, "data connection: the peer sent chunk " + std::to_string(header->chunk) +
                                        " of read " + std::to_string(header->read) +
                                        ", which is not asked for here (or not any more)"));
    return false;
  }
  if (header->status == 0 && header->length != found->length) {
    fail(Error(ErrorKind::protocol, "data connection: the peer sent a chunk of " +
                                        std::to_string(header->length) + " bytes; " +
                                        std::to_string(found->length) + " were asked for"));
    return false;
  }
  current_ = std::move(*found);
  in_flight_.erase(found);
  in_body_ = true;
  status_ = header->status;
  left_ = header->length;
  if (status_ != 0) error_text_.assign(left_, '\0');
  return true;
}

void ReadConnection::finish_current() {
  in_body_ = false;
  InFlight entry = std::move(current_);
  current_ = {};
  TcpCounters& counters = threads_.counters();
  if (entry.job.read == nullptr) {
    if (status_ == 0) counters.bytes_discarded.add(entry.length);
    reads_->drained(slot_);
  } else if (status_ == 0) {
    counters.bytes_read.add(entry.length);
    reads_->complete(slot_, entry.job);
  } else {
    reads_->refused(slot_, entry.job, Error(data_wire::kind_of(status_), printable(error_text_)));
  }
  pump();
}

void ReadConnection::fail(const Error& error) {
  if (state_ == State::closed) return;
  state_ = State::closed;
  const auto self = shared_from_this();
  loop_.cancel(timer_);
  // Counted before the peer can see the end of the connection.
  if (error.kind() != ErrorKind::closed) threads_.counters().connections_broken.add();
  if (error.kind() == ErrorKind::protocol) {
    threads_.counters().protocol_errors.add();
    threads_.log().warn("data connection to " + reads_->peer() + " closed: " + error.to_string());
  }
  watch_.reset();
  fd_.reset();
  std::vector<ChunkJob> jobs;
  if (in_body_ && current_.job.read != nullptr) jobs.push_back(std::move(current_.job));
  for (InFlight& entry : in_flight_) {
    if (entry.job.read != nullptr) jobs.push_back(std::move(entry.job));
  }
  in_flight_.clear();
  in_body_ = false;
  reads_->lost(slot_, jobs, error);
}

}  // namespace stagewire
