// Connectors of the peer's node, under names. See peer.h.
#include <string>
#include <utility>

#include "process/peer/peer.h"

namespace stagewire::test {

namespace {

Line open_connector(Peer& peer, const Line& line) {
  ConnectorOptions options;
  Result<ConnectorRole> role = parse_connector_role(line.text("role"));
  if (!role.ok()) return failed(role.error());
  options.role = *role;
  if (line.has("host")) options.host = line.text("host");
  options.port = static_cast<std::uint16_t>(line.number("port"));
  options.name_space = line.text("space");
  Result<std::shared_ptr<Connector>> connector = Connector::create(peer.node, options, nullptr);
  if (!connector.ok()) return failed(connector.error());
  peer.connectors[line.text("name")] = *connector;
  return Line("ok").with("host", (*connector)->host()).with("port", (*connector)->port());
}

Line put(Peer& peer, const Line& line) {
  const ConnectorPut done = peer.connectors[line.text("name")]->put(
      line.text("from"), line.text("to"), line.text("key"), make_payload(pattern_of(line)));
  Line answer("ok");
  answer.with("put", std::uint64_t{done.ok}).with("size", done.size);
  if (done.metadata) {
    answer.with("host", done.metadata->source_host).with("port", done.metadata->source_port);
    if (done.metadata->ticket) answer.with("ticket", *done.metadata->ticket);
    if (done.metadata->data_size) answer.with("data_size", *done.metadata->data_size);
  }
  return answer;
}

Line cleanup(Peer& peer, const Line& line) {
  std::optional<std::string> from;
  std::optional<std::string> to;
  if (line.has("from")) from = line.text("from");
  if (line.has("to")) to = line.text("to");
  return Line("ok").with(
      "found", std::uint64_t{peer.connectors[line.text("name")]->cleanup(line.text("key"), from, to)});
}

}  // namespace

void add_connector_commands(Commands& commands) {
  commands["connector"] = open_connector;
  commands["connector_put"] = put;
  commands["connector_cleanup"] = cleanup;
  commands["connector_close"] = [](Peer& peer, const Line& line) {
    peer.connectors[line.text("name")]->close();
    return Line("ok");
  };
  commands["connector_health"] = [](Peer& peer, const Line& line) {
    const ConnectorHealth health = peer.connectors[line.text("name")]->health();
    return Line("ok")
        .with("healthy", std::uint64_t{health.healthy})
        .with("puts", health.puts)
        .with("put_failures", health.put_failures)
        .with("last_error", health.last_error)
        .with("problem", health.problem);
  };
}

}  // namespace stagewire::test
