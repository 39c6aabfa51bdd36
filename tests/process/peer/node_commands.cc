// What the peer does with its node when told: start, put, get, report. See peer.h.
#include <memory>
#include <string>
#include <utility>

#include "node/node_maker.h"
#include "process/peer/peer.h"
#include "process/support/process_state.h"
#include "process/support/progress.h"
#include "transport/verbs/verbs_real.h"

namespace stagewire::test {

namespace {

Deadline deadline_of(const Line& line) {
  return Deadline::in(std::chrono::milliseconds(line.number("deadline", 30'000)));
}

Line start(Peer& peer, const Line& line) {
  NodeConfig config;
  for (const auto& [name, value] : line.values) {
    if (name == FakeRdma::kFabric || name == FakeRdma::kNumber) continue;
    if (const Status set = set_option(config, name, value); !set.ok()) return failed(set.error());
  }
  if (line.has(FakeRdma::kFabric))
    peer.rdma = std::make_unique<FakeRdma>(line.text(FakeRdma::kFabric), line.number(FakeRdma::kNumber));
  const EventLoop::Reached reached = [&peer](std::string_view point) { peer.trigger.at(point); };
  Result<std::shared_ptr<Node>> node =
      peer.rdma ? peer.rdma->create_node(std::move(config), reached)
                : NodeMaker::make(std::move(config),
                                  {.open_verbs = [] { return open_real_verbs(); }, .reached = reached});
  if (!node.ok()) return failed(node.error());
  peer.node = std::move(node).value();
  const std::vector<std::string> addresses = peer.node->addresses();
  return Line("ok")
      .with("address", addresses.front())
      .with("last", addresses.back())
      .with("id", peer.node->id().hex());
}

Line put(Peer& peer, const Line& line) {
  const Pattern pattern = pattern_of(line);
  PutOptions options;
  options.readers = static_cast<std::uint32_t>(line.number("readers", 1));
  if (line.has("ttl")) options.ttl = std::chrono::milliseconds(line.number("ttl"));
  if (line.has("max_lifetime")) options.max_lifetime = std::chrono::milliseconds(line.number("max_lifetime"));
  if (line.has("wait")) options.deadline = Deadline::in(std::chrono::milliseconds(line.number("wait")));
  Result<Ticket> ticket = Error(ErrorKind::internal, "unset");
  if (line.number("in_place") != 0) {
    Result<Buffer> buffer = peer.node->publish_pool()->allocate(
        pattern.size + 256 * pattern.parts, "in place", Deadline::in(std::chrono::seconds(10)));
    if (!buffer.ok()) return failed(buffer.error());
    const auto shared = std::make_shared<Buffer>(std::move(buffer).value());
    ticket = peer.node->put_in_place(key_of(line), make_payload_in(pattern, shared->data()), {shared},
                                     std::move(options));
  } else {
    ticket = peer.node->put(key_of(line), make_payload(pattern), std::move(options));
  }
  if (!ticket.ok()) return failed(ticket.error());
  return Line("ok").with("ticket", ticket->to_text()).with("generation", ticket->generation);
}

Line withdraw(Peer& peer, const Line& line) {
  return Line("ok").with("found",
                         std::uint64_t{peer.node->withdraw(key_of(line), line.number("generation"))});
}

Line get(Peer& peer, const Line& line) {
  Source source;
  if (line.has("ticket")) {
    Result<Ticket> ticket = Ticket::parse(line.text("ticket"));
    if (!ticket.ok()) return failed(ticket.error());
    source = Source::of(*ticket);
  } else {
    source = Source::at(line.text("address"), key_of(line));
  }
  GetOptions options(deadline_of(line));
  NamedGet named;
  if (line.text("placement") == "view") options.placement = Placement::view;
  if (line.text("placement") == "into") {
    options.placement = Placement::into;
    named.destination =
        std::make_shared<std::vector<std::byte>>(line.number("size") + 256 * line.number("parts", 1));
    options.into = {DestinationRange{.data = named.destination->data(), .size = named.destination->size()}};
    options.into_hold = named.destination;
  }
  options.reader = line.text("reader");
  options.wait = line.number("patient", 1) != 0;
  named.handle = peer.node->get_async(source, std::move(options));
  peer.gets[line.text("name")] = std::move(named);
  return Line("ok");
}

Line wait(Peer& peer, const Line& line) {
  NamedGet& named = peer.gets[line.text("name")];
  const Status waited = named.handle.wait(deadline_of(line));
  if (!waited.ok()) return failed(waited.error());
  Result<Got> got = named.handle.take();
  if (!got.ok()) return failed(got.error());
  named.got = std::move(got).value();
  const std::string wrong = mismatch(named.got.payload, pattern_of(line));
  if (!wrong.empty()) return Line("error").with("kind", "wrong_bytes").with("text", wrong);
  return Line("ok")
      .with("view", std::uint64_t{named.got.view})
      .with("transport", named.got.transport)
      .with("generation", named.got.generation)
      .with("note", named.got.placement_note);
}

Line verify(Peer& peer, const Line& line) {
  const std::string wrong = mismatch(peer.gets[line.text("name")].got.payload, pattern_of(line));
  return wrong.empty() ? Line("ok") : Line("error").with("kind", "wrong_bytes").with("text", wrong);
}

Line progress(Peer& peer, const Line& line) {
  const NamedGet& named = peer.gets[line.text("name")];
  return Line("ok")
      .with("begun", std::uint64_t{has_begun(named.destination->data(), named.destination->size())})
      .with("done", std::uint64_t{named.handle.done()});
}

Line stats(Peer& peer, const Line& /*line*/) {
  const NodeStats stats = peer.node->stats();
  return Line("ok")
      .with("published", stats.published)
      .with("leases", stats.leases)
      .with("waiting", stats.waiting_claims)
      .with("gets", stats.running_gets)
      .with("sessions", stats.sessions)
      .with("views", stats.views)
      .with("quarantined", stats.quarantined)
      .with("published_bytes", stats.publish_pool.used)
      .with("received_bytes", stats.receive_pool.used)
      .with("bad_releases", stats.publish_pool.bad_releases + stats.receive_pool.bad_releases)
      .with("descriptors", std::uint64_t{open_descriptors()});
}

}  // namespace

Line failed(const Error& error) {
  return Line("error").with("kind", std::string(to_string(error.kind()))).with("text", error.to_string());
}

Pattern pattern_of(const Line& line) {
  return Pattern{
      .seed = line.number("seed", 1), .size = line.number("size"), .parts = line.number("parts", 1)};
}

Key key_of(const Line& line) {
  return Key{.name_space = line.text("space"),
             .from_stage = line.text("from"),
             .to_stage = line.text("to"),
             .key = line.text("key")};
}

void add_node_commands(Commands& commands) {
  commands["start"] = start;
  commands["put"] = put;
  commands["withdraw"] = withdraw;
  commands["get"] = get;
  commands["wait"] = wait;
  commands["verify"] = verify;
  commands["progress"] = progress;
  commands["stats"] = stats;
  commands["drop"] = [](Peer& peer, const Line& line) {
    peer.gets.erase(line.text("name"));
    return Line("ok");
  };
  commands["cancel"] = [](Peer& peer, const Line& line) {
    peer.gets[line.text("name")].handle.cancel();
    return Line("ok");
  };
  commands["connect"] = [](Peer& peer, const Line& line) {
    peer.node->connect(line.text("address"));
    return Line("ok");
  };
  commands["explain"] = [](Peer& peer, const Line& /*line*/) {
    return Line("ok").with("text", peer.node->explain());
  };
  commands["close"] = [](Peer& peer, const Line& /*line*/) {
    peer.node->close();
    return Line("ok");
  };
  commands["destroy"] = [](Peer& peer, const Line& /*line*/) {
    peer.gets.clear();
    peer.connectors.clear();
    peer.node.reset();
    if (peer.rdma && !peer.rdma->leaks().empty())
      return Line("error").with("text", "not given back: " + peer.rdma->leaks());
    return Line("ok").with("new_descriptors", std::uint64_t{open_descriptors()} - peer.descriptors_at_start);
  };
}

}  // namespace stagewire::test
