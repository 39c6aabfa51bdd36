// The getting calls. Where a session is up the caller opens its claim and writes it to the socket itself, and
// then waits, spinning briefly first: that is the whole of the latency path on this side. See core.h.
#include <utility>

#include "node/core.h"
#include "node/on_loop.h"

namespace stagewire {

namespace {

Status check_source(const Source& source, const GetOptions& options) {
  for (const std::string* part : {&source.key.name_space, &source.key.from_stage, &source.key.to_stage,
                                  &source.key.key, &options.reader}) {
    if (part->size() <= wire::kMaxName) continue;
    return Error(ErrorKind::invalid_argument, "a part of the key or the reader's name has " +
                                                  std::to_string(part->size()) + " bytes; at most " +
                                                  std::to_string(wire::kMaxName) + " are allowed");
  }
  return {};
}

Error described(Error error, const Source& source) {
  error.with_operation("get").with_key(source.key.to_string());
  return error;
}

}  // namespace

NodeCore::BegunGet NodeCore::begin_get(const Source& source, GetOptions options, bool flush) {
  BegunGet begun;
  Oneshot<Result<Got>> oneshot = Oneshot<Result<Got>>::make();
  begun.state = std::make_shared<GetHandle::State>();
  begun.state->future = std::move(oneshot.future);
  Status status = check_usable();
  if (status.ok()) status = check_source(source, options);
  if (!status.ok()) {
    oneshot.promise.set(described(std::move(status).error(), source));
    return begun;
  }
  auto get = std::make_shared<GetOperation>(source, std::move(options), std::move(oneshot.promise));
  begun.state->operation = get;
  begun.state->mailbox = mailbox_;
  begun.state->reader = reader_.get();
  if (const std::shared_ptr<Session> session = directory_.find(source)) {
    // A closed book drops the operation, and with it the promise: the future then says `closed`.
    std::optional<wire::Claim> claim = book_.open(session->peer(), get);
    if (!claim) return begun;
    begun.session = session;
    begun.get = get;
    if (!flush) {
      session->send_lazily(std::move(*claim));
    } else if (!session->send(std::move(*claim)).ok()) {
      mailbox_->post([this, get] { reader_->on_claim_unsent(get); });
    }
    return begun;
  }
  mailbox_->post([this, get = std::move(get)] { reader_->start(get); });
  return begun;
}

Result<Got> NodeCore::get(const Source& source, GetOptions options) {
  const OnSignal on_signal = options.interruptible ? OnSignal::give_up : OnSignal::keep_waiting;
  const Deadline deadline = options.deadline;
  const bool wait = options.wait;
  BegunGet begun = begin_get(source, std::move(options), true);
  begun.get.reset();  // only the node's side may keep the operation alive
  const std::shared_ptr<GetHandle::State> state = begun.state;
  Status waited = state->future.wait(wait ? deadline : deadline.earlier(Deadline::in(Reader::kAnswerTime)),
                                     spin_, on_signal);
  if (!wait && !waited.ok() && waited.error().kind() == ErrorKind::deadline_exceeded) {
    mailbox_->post([this, which = state->operation] {
      if (const GetPtr running = which.lock()) reader_->give_up_unanswered(running);
    });
    waited = state->future.wait(deadline, std::chrono::nanoseconds(0), on_signal);
  }
  if (!waited.ok() && waited.error().kind() != ErrorKind::closed) {
    state->give_up(waited.error());
    // By then the read is over, or the outcome says that its destination is held; the rest guards against a
    // bug.
    waited = state->future.wait(Deadline::in(config_.abort_grace + std::chrono::seconds(5)));
  }
  if (std::optional<Result<Got>> outcome = state->future.try_take()) return std::move(*outcome);
  if (waited.ok()) return described(Error(ErrorKind::internal, "the get ended without an outcome"), source);
  if (waited.error().kind() == ErrorKind::closed) {
    return described(Error(ErrorKind::closed, "the node was closed"), source);
  }
  return described(std::move(waited).error(), source);
}

std::vector<GetHandle> NodeCore::get_async(const std::vector<Source>& sources,
                                           const std::vector<GetOptions>& options) {
  std::vector<GetHandle> handles;
  handles.reserve(sources.size());
  std::vector<std::pair<GetPtr, std::shared_ptr<Session>>> claimed;
  std::set<std::shared_ptr<Session>> sessions;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    BegunGet begun = begin_get(sources[i], options[i], false);
    if (begun.session) sessions.insert(begun.session);
    if (begun.get) claimed.emplace_back(std::move(begun.get), std::move(begun.session));
    handles.emplace_back(std::move(begun.state));
  }
  for (const auto& session : sessions) session->flush();
  if (claimed.empty()) return handles;
  // Their deadlines are the loop's, since nobody may be waiting; also finds claims whose session broke before
  // the flush.
  mailbox_->post([this, claimed = std::move(claimed)] {
    for (const auto& [get, session] : claimed) {
      reader_->arm_deadline(get);
      if (get->stage == GetStage::claiming && sessions_->find(get->peer) != session)
        reader_->on_claim_unsent(get);
    }
  });
  return handles;
}

void NodeCore::start_connecting(const std::string& address, std::function<void(const Status&)> done) {
  if (const Status usable = check_usable(); !usable.ok()) {
    if (done) done(usable);
    return;
  }
  mailbox_->post([this, address, done = std::move(done)] {
    if (is_own_address(address)) {
      if (done) done({});
      return;
    }
    connect(address, [this, address, done](const Result<std::shared_ptr<Session>>& session) {
      if (!session.ok()) log_->debug("connecting to " + address + ": " + session.error().to_string());
      if (done) done(session.ok() ? Status() : Status(session.error()));
    });
  });
}

// --- GetHandle.

void GetHandle::State::give_up(Error error) const {
  if (!mailbox) return;
  mailbox->post([to = reader, which = operation, error = std::move(error)]() mutable {
    const GetPtr running = which.lock();
    if (!running) return;
    if (error.kind() == ErrorKind::deadline_exceeded) return to->expire(running);
    to->fail(running, std::move(error));
  });
}

bool GetHandle::done() const noexcept {
  return state_ != nullptr && state_->future.finished();
}

Status GetHandle::wait(Deadline until, bool interruptible) const {
  if (!state_) return Error(ErrorKind::invalid_argument, "this handle belongs to no get");
  Status waited = state_->future.wait(until, std::chrono::nanoseconds(0),
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
  if (state_) state_->give_up(Error(ErrorKind::cancelled, "the get was cancelled by its caller"));
}

}  // namespace stagewire
