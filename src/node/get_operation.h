// GetOperation: one get from its start to its outcome. The caller's thread makes it and waits on it;
// everything between belongs to the loop thread, except that the caller may open its first claim itself
// (claim_book.h), before the loop knows of it.
#pragma once

#include <functional>
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

/// Where a get stands. Each stage ends in the next, or in aborting or done.
enum class GetStage : std::uint8_t {
  connecting,  ///< no session to an owner yet
  claiming,    ///< the claim is with the lender
  allocating,  ///< granted; waiting for receive memory
  reading,     ///< a transport is moving bytes
  away,        ///< granted; the session broke in the read, which goes on when it is back
  aborting,    ///< the outcome is known; the read is being made safe
  done,
};

struct GetHandle::State : std::enable_shared_from_this<GetHandle::State> {
  State(Source from, GetOptions how, std::shared_ptr<Mailbox> box)
      : source(std::move(from)), options(std::move(how)), mailbox(std::move(box)) {
    Oneshot<Result<Got>> oneshot = Oneshot<Result<Got>>::make();
    promise = std::move(oneshot.promise);
    future = std::move(oneshot.future);
  }

  // Constant once started.
  Source source;
  GetOptions options;
  std::shared_ptr<Mailbox> mailbox;
  OneshotFuture<Result<Got>> future;
  /// Ends the operation on the loop; set by the node that runs it.
  std::function<void(std::shared_ptr<State>, Error)> give_up;

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
  EventLoop::TimerId grace_timer = 0;

  wire::Grant grant;
  DecodedHeader decoded;
  std::string transport;
  std::string placement_note;
  std::shared_ptr<Buffer> buffer;  ///< receive memory, for Placement::copy
  Pool::AllocationId allocation = 0;
  std::vector<LocalRange> to;
  Link* link = nullptr;
  ReadId read = 0;
  bool retried_read = false;           ///< the read was started again once, after its data path broke
  std::optional<Error> pending_error;  ///< the outcome once the abort has settled
};

using GetOperation = GetHandle::State;
using GetPtr = std::shared_ptr<GetOperation>;

}  // namespace stagewire
