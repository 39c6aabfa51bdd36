// How a get finds its lender, and finds it again: dialling, retrying, moving to a restarted process. See
// reader.h.
#include <algorithm>
#include <utility>

#include "base/fault_points.h"
#include "node/reader.h"

namespace stagewire {

namespace {
// A claim by address may wait for a stage that has not started yet: quick at first, then twice a second.
constexpr std::chrono::milliseconds kFirstRetry{20};
constexpr std::chrono::milliseconds kLongestRetry{500};

// The end of one connection and the welcome on another were sent together, and arrive in any order.
constexpr std::chrono::milliseconds kSuccessorGrace{100};

// Failures that trying again cannot change.
bool is_final(ErrorKind kind) {
  return kind != ErrorKind::unreachable && kind != ErrorKind::deadline_exceeded &&
         kind != ErrorKind::peer_lost && kind != ErrorKind::busy && kind != ErrorKind::io;
}
}  // namespace

void Reader::connect_next(const GetPtr& get) {
  if (get->stage == GetStage::done || get->stage == GetStage::aborting) return;
  const Source& source = get->source;
  if (!source.node.is_nil()) {
    const Peer* peer = peers_.find(source.node);
    if (peer != nullptr && (peer->session || peer->is_self)) return claim_at(source.node, get);
  }
  if (get->next_address >= source.addresses.size()) {
    get->next_address = 0;
    if (source.addresses.empty()) {
      return fail(get,
                  Error(ErrorKind::invalid_argument,
                        "the source has no address, and no session to its node is up; expected host:port"));
    }
  }
  const std::string address = source.addresses[get->next_address];
  if (output_.is_own_address(address)) {
    if (!source.node.is_nil() && source.node != peers_.self().id) {
      return fail(get, Error(ErrorKind::peer_restarted, "the ticket names a process that listened at " +
                                                            address + " before; now this one does"));
    }
    return claim_at(peers_.self().id, get);
  }
  output_.connect(address,
                  [this, get, address, claim = get->claim](Result<std::shared_ptr<Session>> connected) {
                    on_connected(get, claim, address, std::move(connected));
                  });
}

void Reader::on_connected(const GetPtr& get, std::uint64_t claim_before, const std::string& address,
                          Result<std::shared_ptr<Session>> connected) {
  const bool waiting = get->stage == GetStage::connecting || get->stage == GetStage::claiming ||
                       get->stage == GetStage::granted;
  if (!waiting || get->claim != claim_before)
    return;  // it has its outcome, or has found another way meanwhile
  if (!connected.ok()) return on_connect_failed(get, std::move(connected).error());
  const NodeId node = (*connected)->peer();
  if (!get->source.node.is_nil() && node != get->source.node) {
    return on_connect_failed(
        get, Error(ErrorKind::peer_restarted, "the node at " + address +
                                                  " is not the one that the ticket names: it was "
                                                  "restarted, or another took its port"));
  }
  if (get->stage != GetStage::connecting) {
    if (node == get->peer) return;  // on_peer_up has repeated what was open
    if (get->stage == GetStage::granted) {
      return fail(get, Error(ErrorKind::peer_lost, "the sender was restarted in the middle of the read"));
    }
    book_.settle(get->peer, get->claim);
  }
  claim_at(node, get);
}

void Reader::on_connect_failed(const GetPtr& get, Error error) {
  const bool tried_all = ++get->next_address >= get->source.addresses.size();
  // Of several addresses' failures the most telling one is kept: a restart beats an unreachable address.
  if (!get->connect_error || is_final(error.kind())) get->connect_error = std::move(error);
  if (!tried_all) return connect_next(get);
  get->next_address = 0;
  Error telling = *get->connect_error;
  const bool had_session = get->stage != GetStage::connecting;
  if (is_final(telling.kind())) return fail(get, std::move(telling));
  if (!get->source.node.is_nil() && telling.kind() == ErrorKind::unreachable) {
    // Nobody listens where the ticket's owner did. A payload does not outlive its owner, so waiting is of no
    // use.
    if (!had_session) return fail(get, std::move(telling));
    Error lost(ErrorKind::peer_lost, "the session broke and the sender's address does not answer any more");
    lost.with_cause(std::move(telling));
    return fail(get, std::move(lost));
  }
  get->retry_delay = std::clamp<std::chrono::nanoseconds>(2 * get->retry_delay, kFirstRetry, kLongestRetry);
  if (get->options.deadline.passed()) return fail(get, deadline_error(get));
  loop_.cancel(get->retry_timer);
  get->retry_timer =
      loop_.call_at(Deadline::in(get->retry_delay).earlier(get->options.deadline), [this, get] {
        get->retry_timer = 0;
        if (get->options.deadline.passed()) return fail(get, deadline_error(get));
        get->connect_error.reset();
        connect_next(get);
      });
}

void Reader::claim_at(const NodeId& lender, const GetPtr& get) {
  loop_.cancel(std::exchange(get->retry_timer, 0));
  if (get->stage == GetStage::claiming && get->peer == lender && get->claim != 0) {
    return output_.send_to_lender(lender, book_.frame_of(*get));
  }
  const auto claim = book_.open(lender, get);
  if (!claim) return;
  output_.send_to_lender(lender, *claim);
  loop_.reach(fault_point::kClaimSent);
}

void Reader::on_claim_unsent(const GetPtr& get) {
  if (get->stage != GetStage::claiming) return;
  if (closing_) return fail(get, *closing_);
  running_.insert(get);
  reconnect(get);
}

void Reader::reconnect(const GetPtr& get) {
  const Peer* peer = peers_.find(get->peer);
  if (get->stage == GetStage::claiming && peer != nullptr && peer->session) {
    return output_.send_to_lender(get->peer, book_.frame_of(*get));
  }
  get->next_address = 0;
  get->connect_error.reset();
  get->retry_delay = std::chrono::nanoseconds(0);
  connect_next(get);
}

bool Reader::fall_back(const GetPtr& get, Link* link, const Error& error) {
  Peer* peer = peers_.find(get->peer);
  if (peer == nullptr || !peer->session || get->claim == 0 || get->options.deadline.passed()) return false;
  // The link that ended the read may be gone with its session by now; the one that is there is asked then.
  const Link* present = peers_.link(*peer, get->transport);
  if (present == nullptr || present != link || !present->is_of_path(error) || !lease_holds(get)) return false;
  std::vector<std::string> failed = get->failed_routes;
  failed.push_back(get->transport);
  const Route other = peers_.route_without(*peer, route_pair(*get), failed);
  if (other.link == nullptr) return false;
  metrics_
      .counter("stagewire_read_fallbacks_total",
               "Reads that failed over one transport and were made over another",
               {{"from", get->transport}, {"to", other.transport}})
      .add();
  if (peer->announced_fallbacks.insert(get->transport + " " + other.transport).second) {
    log_->warn("a read from " + peer->label + " failed over " + get->transport + " and is made over " +
               other.transport + " under the same lease: " + error.to_string());
  }
  get->placement_note += (get->placement_note.empty() ? "" : "; ") + std::string("read over ") +
                         other.transport + " after " + get->transport + " had failed: " + error.to_string();
  get->failed_routes = std::move(failed);
  start_read(get);
  return true;
}

void Reader::on_peer_up(const NodeId& peer) {
  for (const ClaimBook::Entry& entry : book_.entries(peer)) {
    if (entry.last_word) {
      output_.send_to_lender(peer, *entry.last_word);
      continue;
    }
    const GetPtr& get = entry.get;
    if (!get || (get->stage != GetStage::claiming && get->stage != GetStage::granted)) continue;
    claim_again(get);
  }
}

void Reader::claim_again(const GetPtr& get) {
  // A read that broke begins again with its claim: the lender's "same lease" comes after the memories that
  // the read needs have been announced on the new session.
  get->stage = GetStage::claiming;
  get->buffer.reset();
  loop_.cancel(std::exchange(get->retry_timer, 0));
  output_.send_to_lender(get->peer, book_.frame_of(*get));
}

void Reader::on_peer_away(const NodeId& peer) {
  for (const ClaimBook::Entry& entry : book_.entries(peer)) {
    if (!entry.get || (entry.get->stage != GetStage::claiming && entry.get->stage != GetStage::granted))
      continue;
    running_.insert(entry.get);
    if (entry.get->options.wait) {
      reconnect(entry.get);
      continue;
    }
    // Not at once: a session that gives way to another with the same peer (both had dialled) may end before
    // the other is up, and that one repeats the claim.
    loop_.call_at(Deadline::in(kSuccessorGrace), [this, get = entry.get] {
      const Peer* known = peers_.find(get->peer);
      const bool open = get->stage == GetStage::claiming || get->stage == GetStage::granted;
      if (!open || (known != nullptr && known->session)) return;
      fail(get, Error(ErrorKind::peer_lost, "the session broke before the claim was answered"));
    });
  }
  see_to_last_words(peer);
}

// "consumed is resent until acknowledged": even when no get needs the session any more.
void Reader::see_to_last_words(const NodeId& lender) {
  const Peer* peer = peers_.find(lender);
  if (peer == nullptr || peer->is_self || peer->session || !book_.has_last_words(lender)) return;
  if (reconnecting_.insert(lender).second) try_last_words(lender, 0, kFirstRetry);
}

void Reader::try_last_words(const NodeId& lender, std::size_t address, std::chrono::nanoseconds delay) {
  const Peer* peer = peers_.find(lender);
  // A peer that died or was forgotten for its long silence needs no last word.
  if (peer == nullptr || peer->session || !book_.has_last_words(lender)) {
    reconnecting_.erase(lender);
    return;
  }
  if (address >= peer->addresses.size()) {
    loop_.call_at(Deadline::in(delay), [this, lender, delay] {
      try_last_words(lender, 0, std::min<std::chrono::nanoseconds>(2 * delay, kLongestRetry));
    });
    return;
  }
  output_.connect(peer->addresses[address],
                  [this, lender, address, delay](const Result<std::shared_ptr<Session>>& /*connected*/) {
                    // If it was the lender that answered, on_peer_up has repeated them and this ends; else
                    // the next.
                    try_last_words(lender, address + 1, delay);
                  });
}

void Reader::on_peer_died(const NodeId& peer) {
  for (const ClaimBook::Entry& entry : book_.forget(peer)) {
    const GetPtr& get = entry.get;
    if (!get) continue;
    const bool only_claimed = get->stage == GetStage::claiming;
    if (get->stage == GetStage::reading || get->stage == GetStage::aborting || get->stage == GetStage::done)
      continue;
    if (only_claimed && get->source.node.is_nil()) {
      // A claim by address goes to whoever answers there next.
      running_.insert(get);
      get->stage = GetStage::connecting;
      get->claim = 0;
      get->next_address = 0;
      get->connect_error.reset();
      connect_next(get);
      continue;
    }
    fail(get, Error(ErrorKind::peer_lost, "the sender's process has ended, or its node was closed"));
  }
}

}  // namespace stagewire
