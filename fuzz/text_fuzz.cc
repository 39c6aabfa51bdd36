// libFuzzer target: what people and other programs hand over as text: tickets, addresses, and the values and
// files of the configuration. What is accepted must survive being written and read again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include <stagewire/base/config.h>
#include <stagewire/node/ticket.h>

#include "session/address.h"

namespace {

using namespace stagewire;

void require(bool condition) {
  if (!condition) std::abort();
}

void ticket(std::string_view text) {
  const Result<Ticket> parsed = Ticket::parse(text);
  if (!parsed.ok()) {
    require(parsed.error().kind() == ErrorKind::invalid_argument);
    return;
  }
  const Result<Ticket> again = Ticket::parse(parsed->to_text());
  require(again.ok() && *again == *parsed);
}

void address(std::string_view text) {
  const Result<Address> parsed = Address::parse(text);
  if (!parsed.ok()) {
    require(parsed.error().kind() == ErrorKind::invalid_argument);
    return;
  }
  const Result<Address> again = Address::parse(parsed->to_string());
  require(again.ok() && *again == *parsed);
}

void yaml(std::string_view text) {
  NodeConfig config;
  const Status applied = apply_yaml(config, text, "input");
  if (!applied.ok()) require(applied.error().kind() == ErrorKind::config);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 3) {
    case 0:
      ticket(input);
      break;
    case 1:
      address(input);
      break;
    default:
      yaml(input);
      break;
  }
  return 0;
}
