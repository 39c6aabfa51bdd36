// See hosts.h.
#include "bench/hosts.h"

#include <charconv>
#include <utility>

#include "base/units.h"
#include "bench/bench_node.h"

namespace stagewire::tools {

namespace {

Dict tickets_to_dict(const std::map<std::uint64_t, Ticket>& tickets) {
  Dict dict;
  for (const auto& [size, ticket] : tickets)
    dict.items.emplace_back(static_cast<std::int64_t>(size), ticket.to_text());
  return dict;
}

Error not_a_catalog() {
  return Error(ErrorKind::protocol,
               "the peer's catalog can't be read: is it a `bench serve` of this version?");
}

Result<std::map<std::uint64_t, Ticket>> tickets_of(const Value* value) {
  const Dict* dict = value == nullptr ? nullptr : value->get_if<Dict>();
  if (dict == nullptr) return not_a_catalog();
  std::map<std::uint64_t, Ticket> tickets;
  for (const auto& [key, text] : dict->items) {
    const auto* size = std::get_if<std::int64_t>(&key);
    const auto* ticket = text.get_if<std::string>();
    if (size == nullptr || ticket == nullptr || *size < 0 ||
        static_cast<std::uint64_t>(*size) > kLargestServed) {
      return not_a_catalog();
    }
    STAGEWIRE_ASSIGN(tickets[static_cast<std::uint64_t>(*size)], Ticket::parse(*ticket));
  }
  return tickets;
}

}  // namespace

Key catalog_key() {
  return bench_key("catalog");
}

Payload Catalog::to_payload() const {
  Dict dict;
  dict.items.emplace_back("flat", tickets_to_dict(flat));
  dict.items.emplace_back("object", tickets_to_dict(object));
  dict.items.emplace_back("inline", tickets_to_dict(inlined));
  dict.items.emplace_back("echo_port", std::int64_t{echo_port});
  return Payload(Value(std::move(dict)), {});
}

Result<Catalog> Catalog::parse(const Payload& payload) {
  const Dict* dict = payload.root().get_if<Dict>();
  if (dict == nullptr) return not_a_catalog();
  Catalog catalog;
  STAGEWIRE_ASSIGN(catalog.flat, tickets_of(dict->find("flat")));
  STAGEWIRE_ASSIGN(catalog.object, tickets_of(dict->find("object")));
  STAGEWIRE_ASSIGN(catalog.inlined, tickets_of(dict->find("inline")));
  const Value* port = dict->find("echo_port");
  const auto* number = port == nullptr ? nullptr : port->get_if<std::int64_t>();
  if (number == nullptr || *number < 0 || *number > 0xffff) return not_a_catalog();
  catalog.echo_port = static_cast<std::uint16_t>(*number);
  return catalog;
}

std::string Catalog::sizes_text() const {
  std::string text;
  for (const auto& [size, ticket] : flat) text += (text.empty() ? "" : ", ") + format_size(size);
  return text;
}

}  // namespace stagewire::tools
