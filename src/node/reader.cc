// The stages of a get from its grant on. See reader.h; connecting and reconnecting are in reader_connect.cc,
// what is delivered in reader_deliver.cc.
#include "node/reader.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/fault_points.h"
#include "base/units.h"

namespace stagewire {

namespace {
Error no_route_error(const Route& route) {
  std::string text = "no transport can move these bytes";
  for (const RouteCandidate& candidate : route.considered)
    text += "; " + candidate.transport + ": " + candidate.reason;
  return Error(ErrorKind::not_viable, std::move(text));
}
}  // namespace

Reader::Reader(EventLoop& loop, const NodeConfig& config, Peers& peers, ClaimBook& book,
               std::shared_ptr<Pool> pool, std::shared_ptr<Mailbox> mailbox, ReaderOutput& output,
               Metrics& metrics, std::shared_ptr<Logger> log)
    : loop_(loop),
      config_(config),
      peers_(peers),
      book_(book),
      pool_(std::move(pool)),
      mailbox_(std::move(mailbox)),
      output_(output),
      metrics_(metrics),
      log_(std::move(log)) {}

Reader::~Reader() = default;

void Reader::start(const GetPtr& get) {
  // Its caller found the node open just before it was closed.
  if (closing_) return fail(get, *closing_);
  running_.insert(get);
  arm_deadline(get);
  connect_next(get);
}

void Reader::arm_deadline(const GetPtr& get) {
  if (get->stage == GetStage::done || get->deadline_timer != 0) return;
  if (closing_) return fail(get, *closing_);
  running_.insert(get);
  get->deadline_timer = loop_.call_at(get->options.deadline, [this, get] {
    get->deadline_timer = 0;
    fail(get, deadline_error(get));
  });
  const Deadline answer = Deadline::in(kAnswerTime);
  if (get->options.wait || get->options.deadline < answer) return;
  get->answer_timer = loop_.call_at(answer, [this, get] {
    get->answer_timer = 0;
    give_up_unanswered(get);
  });
}

void Reader::give_up_unanswered(const GetPtr& get) {
  if (get->stage == GetStage::connecting) return fail(get, deadline_error(get));
  if (get->stage != GetStage::claiming) return;
  fail(get, Error(ErrorKind::deadline_exceeded, "the sender did not answer the claim within a second"));
}

Status Reader::on_grant(const NodeId& lender, wire::Grant grant) {
  const GetPtr get = book_.find(lender, grant.claim);
  if (!get) {
    // A grant that crossed our last word needs no answer; one of a claim we know nothing of is given back.
    if (!book_.known(lender, grant.claim)) {
      const wire::Release release{.claim = grant.claim, .lease = grant.lease};
      book_.close_with(lender, grant.claim, release);
      output_.send_to_lender(lender, release);
    }
    return {};
  }
  if (get->stage != GetStage::claiming) return {};  // repeated after a reconnect
  get->grant = std::move(grant);
  get->session = peers_.of(lender).session;
  get->stage = GetStage::granted;  // granted: from here on a failure gives the lease back
  if (closing_) {
    fail(get, *closing_);
    return {};
  }
  Result<DecodedHeader> decoded = decode_header(get->grant.header);
  std::uint64_t packed = 0;
  if (decoded.ok()) {
    for (const Segment& segment : decoded->segments)
      packed += segment.length;  // bounded by the header's own limits
    if (packed != get->grant.body_size) {
      decoded = Error(ErrorKind::protocol, "a grant of " + std::to_string(get->grant.body_size) +
                                               " bytes has a header for " + std::to_string(packed));
    }
  }
  if (!decoded.ok()) {
    fail(get, decoded.error());
    return std::move(decoded).error();
  }
  get->decoded = std::move(decoded).value();
  on_granted(get);
  return {};
}

void Reader::on_refuse(const NodeId& lender, const wire::Refuse& refuse) {
  const GetPtr get = book_.find(lender, refuse.claim);
  book_.settle(lender, refuse.claim);
  if (!get || get->stage != GetStage::claiming) return;
  get->claim = 0;
  fail(get, Error(refuse.kind, refuse.message));
}

void Reader::on_settled(const NodeId& lender, const wire::Settled& settled) {
  book_.settle(lender, settled.claim);
}

void Reader::on_memory_gone(const NodeId& lender, std::uint32_t memory) {
  std::vector<GetPtr> affected;
  for (const GetPtr& get : running_) {
    const bool granted = get->stage == GetStage::granted || get->stage == GetStage::allocating ||
                         get->stage == GetStage::reading;
    const bool uses = std::any_of(get->grant.ranges.begin(), get->grant.ranges.end(),
                                  [memory](const RemoteRange& range) { return range.memory == memory; });
    if (granted && uses && get->peer == lender) affected.push_back(get);
  }
  for (const GetPtr& get : affected)
    fail(get, Error(ErrorKind::lease_lost, "the sender took the region back that the payload lies in"));
}

// Into the caller's memory, or else the receive pool.
RoutePair Reader::route_pair(const GetOperation& get) const {
  const bool into = get.options.placement == Placement::into && !get.options.into.empty();
  return {.source = get.grant.kind,
          .destination = into ? get.options.into.front().kind : pool_->kind(),
          .region = (get.grant.flags & wire::Grant::kRegion) != 0};
}

void Reader::on_granted(const GetPtr& get) {
  if ((get->grant.flags & wire::Grant::kInline) != 0) {
    get->transport = "inline";
    return deliver_inline(get);
  }
  running_.insert(get);
  Peer& peer = peers_.of(get->peer);
  const Route& route = peers_.route(peer, route_pair(*get));
  if (get->grant.body_size == 0) {
    get->transport = "inline";
    return deliver_inline(get);
  }
  if (route.link == nullptr) return fail(get, no_route_error(route));
  get->transport = route.transport;
  if (get->options.placement == Placement::view && try_view(get, peer, route)) return;
  if (get->options.placement != Placement::into) return allocate(get);
  if (Status planned = plan_into(get); !planned.ok()) return fail(get, std::move(planned).error());
  start_read(get);
}

void Reader::allocate(const GetPtr& get) {
  get->stage = GetStage::allocating;
  const std::string label = "get " + get->source.key.to_string();
  const Pool::AllocationId id = pool_->allocate_async(
      get->decoded.body_size, label, [this, get, mailbox = mailbox_](Result<Buffer> buffer) {
        // Runs on whichever thread freed the memory. If the node has closed, the buffer goes back by itself.
        auto shared = std::make_shared<Result<Buffer>>(std::move(buffer));
        mailbox->post([this, get, shared] { on_allocated(get, std::move(*shared)); });
      });
  get->allocation = id;
}

void Reader::on_allocated(const GetPtr& get, Result<Buffer> buffer) {
  if (get->stage != GetStage::allocating)
    return;  // failed meanwhile; a buffer that came too late goes back here
  get->allocation = 0;
  if (!buffer.ok()) return fail(get, std::move(buffer).error());
  // The session may have been replaced meanwhile, and the memories not be announced on the new one yet.
  const Peer& peer = peers_.of(get->peer);
  if (peer.session && get->session.lock() != peer.session) return claim_again(get);
  get->buffer = std::make_shared<Buffer>(std::move(buffer).value());
  get->to.clear();
  for (const Segment& segment : get->decoded.segments) {
    if (segment.length == 0) continue;
    std::byte* data = get->buffer->data() + segment.offset;
    if (!get->to.empty() && get->to.back().data + get->to.back().length == data) {
      get->to.back().length += segment.length;
    } else {
      get->to.push_back({.data = data, .length = segment.length, .kind = pool_->kind()});
    }
  }
  start_read(get);
}

Route Reader::route_of(Peer& peer, const GetOperation& get) {
  if (get.failed_routes.empty()) return peers_.route(peer, route_pair(get));
  return peers_.route_without(peer, route_pair(get), get.failed_routes);
}

void Reader::start_read(const GetPtr& get) {
  Peer& peer = peers_.of(get->peer);
  const Route route = route_of(peer, *get);
  if (route.link == nullptr) {
    get->stage = GetStage::granted;
    if (peer.session || peer.is_self) return fail(get, no_route_error(route));
    // The session went between the grant and here; on_peer_up comes back to this.
    return reconnect(get);
  }
  get->transport = route.transport;
  get->stage = GetStage::reading;
  get->link = route.link;
  // The number of the read is not known yet when a small one completes at once: the completion looks it up
  // then.
  const ReadId id =
      route.link->read(ReadRequest{.lease = get->grant.lease, .from = get->grant.ranges, .to = get->to},
                       [this, get, mailbox = mailbox_, link = route.link](Status status) {
                         mailbox->post([this, get, link, status = std::move(status)]() mutable {
                           if (get->link == link) on_read_done(get, get->read, std::move(status));
                         });
                       });
  get->read = id;
  loop_.reach(fault_point::kReadStarted);
}

void Reader::on_read_done(const GetPtr& get, ReadId /*read*/, Status status) {
  if (get->stage != GetStage::reading) return;  // being aborted: its settling decides
  Link* const link = std::exchange(get->link, nullptr);
  if (status.ok()) {
    loop_.reach(fault_point::kReadDone);
    if (!lease_holds(get)) {
      return fail(
          get,
          Error(ErrorKind::lease_lost,
                "the read was complete only when the lease could no longer be relied on: no heartbeat was "
                "acknowledged for too long"));
    }
    if (get->options.placement == Placement::into) {
      return deliver(get, nullptr, get->options.into_hold, false);
    }
    return deliver(get, get->buffer->data(), get->buffer, false);
  }
  if (fall_back(get, link, status.error())) return;
  const bool session_broke = status.error().kind() == ErrorKind::peer_lost;
  Peer* peer = peers_.find(get->peer);
  if (session_broke && peer != nullptr && !get->options.deadline.passed()) {
    get->stage = GetStage::granted;
    if (peer->session && get->claim != 0) {
      // The session that the read belonged to went, and the next one was up before the read had ended.
      if (get->session.lock() != peer->session) return claim_again(get);
      // The data path alone broke. Try again over what is there now, but not in a circle; if nothing is, the
      // failure itself is the outcome: it says what has happened, and that another get may well succeed.
      const bool again = !std::exchange(get->retried_read, true) && route_of(*peer, *get).link != nullptr;
      if (!again) return fail(get, std::move(status).error());
      return start_read(get);
    }
    return reconnect(get);
  }
  fail(get, std::move(status).error());
}

bool Reader::lease_holds(const GetPtr& get) {
  const Peer* peer = peers_.find(get->peer);
  if (peer == nullptr) return false;
  if (peer->is_self || (peer->session && peer->session->same_host()) || peer->pidfd_watch) return true;
  return peer->as_reader.holds(get->grant.lease_epoch, boottime_now());
}

void Reader::fail(const GetPtr& get, Error error) {
  switch (get->stage) {
    case GetStage::done:
    case GetStage::aborting:
      return;
    case GetStage::connecting:
      break;
    case GetStage::claiming:
      if (get->claim != 0) last_word(get, wire::CancelClaim{.claim = get->claim});
      break;
    case GetStage::allocating:
      get->stage = GetStage::granted;  // what the pool's callback brings is no longer wanted
      pool_->cancel(std::exchange(get->allocation, 0));
      [[fallthrough]];
    case GetStage::granted:
      last_word(get, wire::Release{.claim = get->claim, .lease = get->grant.lease});
      break;
    case GetStage::reading:
      if (get->link != nullptr) return abort_read(get, std::move(error));
      last_word(get, wire::Release{.claim = get->claim, .lease = get->grant.lease});
      break;
  }
  finish(get, describe(get, std::move(error)));
}

void Reader::abort_read(const GetPtr& get, Error error) {
  get->stage = GetStage::aborting;
  get->pending_error = describe(get, std::move(error));
  get->grace_timer = loop_.call_at(Deadline::in(config_.abort_grace), [this, get] {
    get->grace_timer = 0;
    Error held(ErrorKind::destination_held,
               "the read could not be proven over within " + format_duration(config_.abort_grace) +
                   " (abort_grace); its destination stays untouched by stagewire's allocator until it is");
    held.with_cause(*get->pending_error);
    log_->error(describe(get, held).to_string());
    quarantine_.insert(get);
    finish(get, describe(get, std::move(held)));
    get->stage = GetStage::aborting;
  });
  get->link->abort(
      get->read, [this, get, mailbox = mailbox_] { mailbox->post([this, get] { on_abort_settled(get); }); });
}

void Reader::on_abort_settled(const GetPtr& get) {
  if (get->stage != GetStage::aborting) return;
  get->link = nullptr;
  get->buffer.reset();
  last_word(get, wire::Release{.claim = get->claim, .lease = get->grant.lease});
  if (quarantine_.erase(get) != 0) {
    get->stage = GetStage::done;
    get->options.into_hold.reset();
  } else {
    finish(get, std::move(*get->pending_error));
  }
  forget_if_settled();
}

void Reader::last_word(const GetPtr& get, wire::Frame frame) {
  if (get->claim == 0) return;
  if (peers_.find(get->peer) == nullptr) {
    book_.settle(get->peer, get->claim);  // nobody is left to be told
    return;
  }
  book_.close_with(get->peer, get->claim, frame);
  output_.send_to_lender_lazily(get->peer, std::move(frame));
  see_to_last_words(get->peer);
}

void Reader::finish(const GetPtr& get, Result<Got> outcome) {
  loop_.cancel(std::exchange(get->deadline_timer, 0));
  loop_.cancel(std::exchange(get->answer_timer, 0));
  loop_.cancel(std::exchange(get->retry_timer, 0));
  loop_.cancel(std::exchange(get->grace_timer, 0));
  get->stage = GetStage::done;
  running_.erase(get);
  count(*get, outcome);
  get->promise.set(std::move(outcome));
  forget_if_settled();
}

void Reader::count(const GetOperation& get, const Result<Got>& outcome) {
  if (!outcome.ok()) {
    metrics_
        .counter("stagewire_get_errors_total", "Gets that failed, by kind of error",
                 {{"kind", std::string(to_string(outcome.error().kind()))}})
        .add();
    return;
  }
  GetMetrics& by_transport = get_metrics_[get.transport];
  if (by_transport.gets == nullptr) {
    const MetricLabels labels{{"transport", get.transport}};
    by_transport.gets =
        &metrics_.counter("stagewire_gets_total", "Gets that succeeded, by transport", labels);
    by_transport.bytes =
        &metrics_.counter("stagewire_get_bytes_total", "Tensor bytes received, by transport", labels);
    by_transport.seconds = &metrics_.histogram("stagewire_get_seconds",
                                               "Time from the call of a get to its outcome, by transport",
                                               latency_buckets(), labels);
  }
  by_transport.gets->add();
  by_transport.bytes->add(outcome->size);
  by_transport.seconds->observe(std::chrono::duration<double>(Deadline::Clock::now() - get.started).count());
}

Error Reader::describe(const GetPtr& get, Error error) const {
  error.with_operation("get").with_key(get->source.key.to_string()).with_transport(get->transport);
  const Peer* peer = peers_.find(get->peer);
  if (peer != nullptr && !get->peer.is_nil()) {
    error.with_peer(peer->label);
  } else if (!get->source.addresses.empty()) {
    error.with_peer(get->source.addresses.front());
  }
  return error;
}

Error Reader::deadline_error(const GetPtr& get) const {
  switch (get->stage) {
    case GetStage::connecting: {
      if (!get->connect_error)
        return Error(ErrorKind::deadline_exceeded, "no session to the sender was up in time");
      Error error(ErrorKind::unreachable, "no node could be reached in time");
      error.with_cause(*get->connect_error);
      return error;
    }
    case GetStage::claiming:
      return Error(ErrorKind::deadline_exceeded,
                   "the payload was not published, or every read of it that is owed was lent to others, "
                   "until the deadline");
    case GetStage::allocating:
      return Error(ErrorKind::deadline_exceeded, "the receive pool had no " +
                                                     format_size(get->decoded.body_size) +
                                                     " free before the deadline (receive_pool_size)");
    case GetStage::granted:
      return Error(ErrorKind::deadline_exceeded,
                   "the session broke in the read and was not back before the deadline");
    case GetStage::reading:
    case GetStage::aborting:
    case GetStage::done:
      break;
  }
  return Error(ErrorKind::deadline_exceeded, "the deadline passed while the bytes were being read");
}

void Reader::forget_if_settled() {
  if (!all_settled_ || !running_.empty() || !quarantine_.empty()) return;
  std::exchange(all_settled_, nullptr)();
}

void Reader::close(const Error& error, std::function<void()> settled) {
  closing_ = error;
  all_settled_ = std::move(settled);
  const std::set<GetPtr> running = running_;
  for (const GetPtr& get : running) fail(get, error);
  // Gets of callers that wait, whose claims are open but unknown to the loop.
  for (const NodeId& lender : book_.lenders()) {
    for (const ClaimBook::Entry& entry : book_.entries(lender)) {
      if (entry.get) fail(entry.get, error);
    }
  }
  forget_if_settled();
}

}  // namespace stagewire
