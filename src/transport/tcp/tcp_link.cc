// See tcp_link.h.
#include "transport/tcp/tcp_link.h"

#include <limits>
#include <string>
#include <sys/socket.h>
#include <utility>

#include "transport/ranges.h"
#include "transport/tcp/data_server.h"

namespace stagewire {

namespace {
constexpr std::string_view kName = "tcp";
}

bool UsedIndices::use(std::uint64_t index) noexcept {
  constexpr std::uint64_t kWindow = 64;
  if (index == std::numeric_limits<std::uint64_t>::max()) return false;  // next_ could not be above it
  if (index >= next_) {
    const std::uint64_t ahead = index - next_ + 1;
    seen_ = ahead >= kWindow ? 0 : seen_ << ahead;
    seen_ |= 1U;
    next_ = index + 1;
    return true;
  }
  const std::uint64_t behind = next_ - 1 - index;
  if (behind >= kWindow) return false;
  const std::uint64_t bit = 1ULL << behind;
  if ((seen_ & bit) != 0) return false;
  seen_ |= bit;
  return true;
}

TcpLink::TcpLink(const TcpOptions& options, DataThreads& threads, SourceAccess& source, LinkChannel& channel,
                 std::vector<SocketAddress> addresses, std::shared_ptr<ServedConnections> all_served)
    : options_(options),
      threads_(threads),
      source_(source),
      channel_(channel),
      dialable_(!addresses.empty()),
      reads_(std::make_shared<PeerReads>(options, threads, std::move(addresses), channel.peer().brief())),
      live_(std::make_shared<std::atomic<std::size_t>>(0)),
      all_served_(std::move(all_served)) {}

Viability TcpLink::viability(MemoryKind source, MemoryKind destination) const {
  if (!source.is_host() || !destination.is_host()) {
    return {false, "not viable, because it moves host memory only, not " + to_string(source) + " to " +
                       to_string(destination)};
  }
  if (!dialable_) {
    return {false,
            "not viable, because the peer listens on no TCP address that can be dialled from here (give it a "
            "listening address other than loopback)"};
  }
  return {true, "the peer listens on a TCP address"};
}

Status TcpLink::attach(ImportedMemory memory) {
  if (!memory.kind.is_host()) {
    return Error(ErrorKind::protocol, "tcp memory was announced as " + to_string(memory.kind));
  }
  if (!memory.token.empty() || !memory.descriptors.empty()) {
    return Error(ErrorKind::protocol, "tcp memory " + std::to_string(memory.memory) +
                                          " came with a token or descriptors; expected none");
  }
  if (memories_.size() >= kMaxTcpMemories) {
    return Error(ErrorKind::busy,
                 "the peer announced more than " + std::to_string(kMaxTcpMemories) + " memories");
  }
  if (!memories_.emplace(memory.memory, memory.size).second) {
    return Error(ErrorKind::protocol, "memory " + std::to_string(memory.memory) + " was announced twice");
  }
  return {};
}

Status TcpLink::on_message(std::string_view /*message*/) {
  return Error(ErrorKind::protocol, "the tcp transport has no messages");
}

Result<Link::View> TcpLink::view(std::span<const RemoteRange> /*from*/) {
  return Error(ErrorKind::not_viable, "tcp cannot hand out a peer's memory; read it into a destination");
}

ReadId TcpLink::read(ReadRequest request, ReadDone done) {
  auto total = check_request(request);
  if (!total.ok()) return reads_->refuse(std::move(total).error(), std::move(done));
  for (const RemoteRange& range : request.from) {
    const auto found = memories_.find(range.memory);
    if (found == memories_.end()) return reads_->refuse(unknown_memory(range.memory, kName), std::move(done));
    auto within = check_within(range, found->second);
    if (!within.ok()) return reads_->refuse(std::move(within).error(), std::move(done));
  }
  while (!closed_ && reads_->hellos_in_stock() < options_.connections + options_.retries) {
    reads_->stock_hello(channel_.data_hello(next_hello_++));
  }
  return reads_->start(std::move(request), *total, std::move(done));
}

void TcpLink::abort(ReadId id, std::function<void()> settled) {
  reads_->abort(id, std::move(settled));
}

Status TcpLink::adopt(Fd connection, std::uint64_t index) {
  const auto refuse = [&](ErrorKind kind, std::string why) -> Status {
    const char verdict = data_wire::refusal(kind);
    // A courtesy: a socket that cannot take one byte now is closed without it.
    static_cast<void>(::send(connection.get(), &verdict, 1, MSG_DONTWAIT | MSG_NOSIGNAL));
    return Error(kind, std::move(why));
  };
  if (closed_) return refuse(ErrorKind::closed, "the link to the peer is closed");
  if (!used_.use(index)) {
    return refuse(ErrorKind::protocol,
                  "data connection " + std::to_string(index) + " of this session was opened before");
  }
  if (live_->load() >= kMaxServedConnections) {
    return refuse(ErrorKind::busy, "the peer has " + std::to_string(kMaxServedConnections) +
                                       " data connections open, which is the most there may be");
  }
  if (const Status configured = configure_socket(connection.get(), options_); !configured.ok()) {
    return refuse(configured.error().kind(), configured.error().message());
  }
  for (ServedConnections* served : {&served_, all_served_.get()})
    std::erase_if(*served, [](const auto& each) { return each.expired(); });
  const auto serve = std::make_shared<ServeConnection>(std::move(connection), threads_.at(threads_.next()),
                                                       threads_, source_, channel_.peer(), live_);
  served_.push_back(serve);
  all_served_->push_back(serve);
  serve->start();
  return {};
}

void TcpLink::close(std::function<void()> closed) {
  closed_ = true;
  // Runs `closed` when the last connection, in either direction, and the last read let go of it.
  const std::shared_ptr<void> barrier(nullptr, [closed = std::move(closed)](void*) { closed(); });
  for (const auto& each : served_) {
    if (const auto serve = each.lock()) serve->shut(barrier);
  }
  served_.clear();
  reads_->close([barrier] {});
}

}  // namespace stagewire
