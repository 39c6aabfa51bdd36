// The reading side of one data connection: dials the peer, proves its session, asks for chunks and receives
// their bytes straight into the destination. Lives on one data thread, which alone writes to destinations on
// its behalf; owned by its slot in PeerReads and by its own pending callbacks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <sys/uio.h>
#include <vector>

#include "base/event_loop.h"
#include "base/fd.h"
#include "transport/tcp/data_wire.h"
#include "transport/tcp/endpoints.h"
#include "transport/tcp/peer_reads.h"

namespace stagewire {

class ReadConnection : public std::enable_shared_from_this<ReadConnection> {
 public:
  /// `addresses` belongs to `reads`. `hello` opens the connection; it is good for one that the peer accepts.
  ReadConnection(std::shared_ptr<PeerReads> reads, unsigned slot, EventLoop& loop, DataThreads& threads,
                 const std::vector<SocketAddress>& addresses, std::string hello);

  // Any thread; each posts to the connection's own.

  void start();
  /// There may be chunks to take.
  void wake();
  /// Stops writing to the destination of `read`; PeerReads::detached is the confirmation.
  void detach(std::shared_ptr<TcpRead> read);
  /// Closes; `barrier` is let go once that is done.
  void shut(std::shared_ptr<void> barrier);

 private:
  enum class State : std::uint8_t { dialling, greeting, open, closed };

  // A chunk that was asked for on this connection and whose response is due.
  struct InFlight {
    ChunkJob job;                // job.read is null once detached
    std::uint64_t read_id = 0;   // names the read also after that
    std::uint32_t length = 0;    // bytes of the chunk
    std::uint32_t to_index = 0;  // where the next byte goes: to[to_index].data + to_offset
    std::uint64_t to_offset = 0;
  };

  void begin();
  void dial_next(Error last);
  void check_connected();
  void on_readable();
  void on_writable();
  void greet();
  void receive_verdict();
  void pump();
  void flush();
  void receive();
  bool take_header();
  std::size_t fill_iov(std::array<iovec, 64>& iov, std::size_t& wanted);
  void advance(std::size_t received);
  void finish_current();
  void fail(const Error& error);

  const std::shared_ptr<PeerReads> reads_;
  const unsigned slot_;
  DataThreads& threads_;
  EventLoop& loop_;
  const std::vector<SocketAddress>& addresses_;

  State state_ = State::dialling;
  std::size_t next_address_ = 0;
  EventLoop::TimerId timer_ = 0;
  Fd fd_;
  std::unique_ptr<FdWatch> watch_;  // after fd_: goes first

  std::string out_;                  // the opening, then encoded requests
  std::size_t sent_ = 0;             // bytes of out_ that the kernel has
  std::vector<RemoteRange> ranges_;  // scratch of pump()

  std::vector<InFlight> in_flight_;  // ≤ window
  std::array<char, data_wire::kResponseHeaderSize> header_{};
  std::size_t header_size_ = 0;  // bytes of it received
  bool in_body_ = false;
  InFlight current_;          // the chunk whose body is arriving
  std::uint16_t status_ = 0;  // of the current response
  std::uint64_t left_ = 0;    // bytes of the body still due
  std::string error_text_;
  std::vector<std::byte> scratch_;  // where discarded bytes go; made when first needed
};

}  // namespace stagewire
