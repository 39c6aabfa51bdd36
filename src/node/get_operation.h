// GetOperation: one get from its start to its outcome. The caller's thread makes it and waits on it;
// everything between belongs to the loop thread, except that the caller may open its first claim itself
// (claim_book.h), before the loop knows of it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <stagewire/node/got.h>
#include <stagewire/node/options.h>

#include "base/event_loop.h"
#include "base/oneshot.h"
#include "node/mailbox.h"
#include "payload/codec.h"
#include "session/wire.h"
#include "transport/transport.h"

namespace stagewire {

class Reader;
class Session;

/// Where a get stands. Each stage ends in the next, or in aborting or done.
enum class GetStage : std::uint8_t {
  connecting,  ///< no session to an owner yet
  claiming,    ///< the claim is with the lender
  granted,  ///< the lease is held and no read runs: for a moment, or until a session that broke in the read
            ///< is back
  allocating,  ///< granted; waiting for receive memory
  reading,     ///< a transport is moving bytes
  aborting,    ///< the outcome is known; the read is being made safe
  done,
};

struct GetOperation {
  GetOperation(Source from, GetOptions how, OneshotPromise<Result<Got>> outcome)
      : source(std::move(from)), options(std::move(how)), promise(std::move(outcome)) {}

  const Source source;
  const Deadline::Clock::time_point started = Deadline::Clock::now();
  GetOptions options;

  // The loop's (peer and claim are written once by whoever opens the claim).
  OneshotPromise<Result<Got>> promise;
  GetStage stage = GetStage::connecting;
  NodeId peer;
  std::uint64_t claim = 0;
  std::size_t next_address = 0;
  std::optional<Error> connect_error;
  std::chrono::nanoseconds retry_delay{0};
  EventLoop::TimerId retry_timer = 0;
  EventLoop::TimerId deadline_timer = 0;
  EventLoop::TimerId answer_timer = 0;  // of one that does not wait for its payload
  EventLoop::TimerId grace_timer = 0;

  wire::Grant grant;
  std::weak_ptr<Session> session;  // over which the grant came; empty for this node's own
  DecodedHeader decoded;
  std::string transport;
  std::string placement_note;
  std::shared_ptr<Buffer> buffer;  ///< receive memory, for Placement::copy
  Pool::AllocationId allocation = 0;
  std::vector<LocalRange> to;
  Link* link = nullptr;
  ReadId read = 0;
  std::vector<std::string> failed_routes;  ///< transports over which the read failed and was tried elsewhere
  bool retried_read = false;               ///< the read was started again once, after its data path broke
  std::optional<Error> pending_error;      ///< the outcome once the abort has settled
};

using GetPtr = std::shared_ptr<GetOperation>;

/// What the caller of a get holds: the outcome, and a way to give up. Not the operation itself: if the node
/// drops that, the future ends with `closed` instead of waiting for ever.
struct GetHandle::State {
  OneshotFuture<Result<Got>> future;
  std::weak_ptr<GetOperation> operation;
  std::shared_ptr<Mailbox> mailbox;  ///< null: the get did not begin
  Reader* reader = nullptr;          ///< touched on the loop alone, which the mailbox guards

  /// Ends the get with `error`, on the loop. Any thread.
  void give_up(Error error) const;
};

}  // namespace stagewire
