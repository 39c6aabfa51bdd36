// The getting calls. Where a session is up the caller opens its claim and writes it to the socket itself, and
// then waits, spinning briefly first: that is the whole of the latency path on this side. See core.h.
#include <utility>

#include "node/core.h"
#include "node/on_loop.h"

namespace stagewire {

// True if the claim is on its way. With `flush` unset it waits in the session's queue for a flush by the
// caller.
Result<bool> NodeCore::begin_get(const GetPtr& get, bool flush) {
  STAGEWIRE_TRY(check_usable());
  for (const std::string* part : {&get->source.key.name_space, &get->source.key.from_stage,
                                  &get->source.key.to_stage, &get->source.key.key, &get->options.reader}) {
    if (part->size() > wire::kMaxName) {
      return Error(ErrorKind::invalid_argument, "a part of the key or the reader's name has " +
                                                    std::to_string(part->size()) + " bytes; at most " +
                                                    std::to_string(wire::kMaxName) + " are allowed");
    }
  }
  get->give_up = [reader = reader_.get()](const GetPtr& which, Error error) {
    const bool posted = which->mailbox->post([reader, which, error] {
      if (error.kind() == ErrorKind::deadline_exceeded) {
        reader->expire(which);
      } else {
        reader->fail(which, error);
      }
    });
    static_cast<void>(posted);  // a closed node has failed all its gets
  };
  const std::shared_ptr<Session> session = directory_.find(get->source);
  if (session) {
    const wire::Claim claim = book_.open(session->peer(), get);
    Status sent;
    if (flush) {
      sent = session->send(claim);
    } else {
      session->send_lazily(claim);
    }
    if (sent.ok()) return true;
    if (mailbox_->post([this, get] { reader_->on_claim_unsent(get); })) return true;
  } else if (mailbox_->post([this, get] { reader_->start(get); })) {
    return false;
  }
  return Error(ErrorKind::closed, "the node is closed");
}

Result<Got> NodeCore::get(const Source& source, GetOptions options) {
  const bool interruptible = options.interruptible;
  const Deadline deadline = options.deadline;
  const auto get = std::make_shared<GetOperation>(source, std::move(options), mailbox_);
  const auto described = [&source](Error error) {
    error.with_operation("get").with_key(source.key.to_string());
    return error;
  };
  if (Result<bool> begun = begin_get(get, true); !begun.ok()) return described(std::move(begun).error());
  Status waited =
      get->future.wait(deadline, spin_, interruptible ? OnSignal::give_up : OnSignal::keep_waiting);
  if (!waited.ok() && waited.error().kind() != ErrorKind::closed) {
    get->give_up(get, waited.error());
    // By then the read is over, or the outcome says that its destination is held; the rest guards against a
    // bug.
    const Deadline grace = Deadline::in(config_.abort_grace + std::chrono::seconds(5));
    waited = get->future.wait(deadline < Deadline::now() ? grace : grace);
  }
  if (std::optional<Result<Got>> outcome = get->future.try_take()) return std::move(*outcome);
  return described(waited.ok() ? Error(ErrorKind::internal, "the get ended without an outcome")
                               : std::move(waited).error());
}

std::vector<GetHandle> NodeCore::get_async(const std::vector<Source>& sources,
                                           const std::vector<GetOptions>& options) {
  std::vector<GetHandle> handles;
  handles.reserve(sources.size());
  std::vector<GetPtr> begun;
  std::set<std::shared_ptr<Session>> sessions;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const auto get = std::make_shared<GetOperation>(sources[i], options[i], mailbox_);
    const std::shared_ptr<Session> session = directory_.find(sources[i]);
    Result<bool> sent = begin_get(get, false);
    if (!sent.ok()) {
      Error error = std::move(sent).error();
      error.with_operation("get").with_key(sources[i].key.to_string());
      get->promise.set(std::move(error));
    } else if (*sent) {
      begun.push_back(get);
      if (session) sessions.insert(session);
    }
    handles.emplace_back(get);
  }
  for (const auto& session : sessions) session->flush();
  if (!begun.empty()) {
    // Their deadlines are the loop's, since nobody may be waiting; also finds claims whose session broke
    // before the flush.
    mailbox_->post([this, begun = std::move(begun)] {
      for (const GetPtr& get : begun) {
        reader_->arm_deadline(get);
        if (get->stage == GetStage::claiming && !sessions_->find(get->peer)) reader_->on_claim_unsent(get);
      }
    });
  }
  return handles;
}

void NodeCore::start_connecting(const std::string& address) {
  if (!check_usable().ok()) return;
  mailbox_->post([this, address] {
    if (is_own_address(address)) return;
    connect(address, [this, address](const Result<std::shared_ptr<Session>>& session) {
      if (!session.ok()) log_->debug("connecting to " + address + ": " + session.error().to_string());
    });
  });
}

// --- GetHandle.

bool GetHandle::done() const noexcept {
  return state_ != nullptr && state_->future.finished();
}

Status GetHandle::wait(Deadline until, bool interruptible) const {
  if (!state_) return Error(ErrorKind::invalid_argument, "this handle belongs to no get");
  const Status waited = state_->future.wait(until, std::chrono::nanoseconds(0),
                                            interruptible ? OnSignal::give_up : OnSignal::keep_waiting);
  if (!waited.ok() && waited.error().kind() == ErrorKind::closed) return {};  // the node went: take() says so
  return waited;
}

Result<Got> GetHandle::take() {
  if (!state_) return Error(ErrorKind::invalid_argument, "this handle belongs to no get");
  if (std::optional<Result<Got>> outcome = state_->future.try_take()) return std::move(*outcome);
  if (state_->future.ready())
    return Error(ErrorKind::invalid_argument, "the outcome of this get was taken before");
  if (state_->future.finished()) return Error(ErrorKind::closed, "the node was closed");
  return Error(ErrorKind::deadline_exceeded, "the get is still running");
}

int GetHandle::fd() const {
  if (!state_) return -1;
  const Result<int> fd = state_->future.event_fd();
  return fd.ok() ? *fd : -1;
}

void GetHandle::cancel() {
  if (state_ && state_->give_up)
    state_->give_up(state_, Error(ErrorKind::cancelled, "the get was cancelled by its caller"));
}

}  // namespace stagewire
