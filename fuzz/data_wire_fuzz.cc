// libFuzzer target: what a data connection carries after its opening, from either end, and the addresses that
// the transport's hello names. What is accepted must be within its bounds, and messages be encoded to the
// same bytes again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "transport/tcp/data_wire.h"
#include "transport/tcp/endpoints.h"
#include "transport/tcp/tcp_options.h"

namespace {

using namespace stagewire;

void require(bool condition) {
  if (!condition) std::abort();
}

void request(std::string_view input) {
  const std::string_view head = input.substr(0, data_wire::kRequestHeaderSize);
  const Result<data_wire::RequestHeader> header = data_wire::decode_request_header(head);
  if (!header.ok()) {
    require(header.error().kind() == ErrorKind::protocol);
    return;
  }
  const std::size_t length = header->ranges * data_wire::kRangeSize;
  if (input.size() < head.size() + length) return;
  std::vector<RemoteRange> ranges;
  if (!data_wire::decode_ranges(input.substr(head.size(), length), ranges).ok()) return;
  require(ranges.size() == header->ranges);
  std::uint64_t total = 0;
  for (const RemoteRange& range : ranges) {
    require(range.length > 0 && range.length <= kMaxChunkSize);
    total += range.length;
  }
  require(total <= kMaxChunkSize);
  std::string again;
  data_wire::encode_request(*header, ranges, again);
  require(again == input.substr(0, again.size()));
}

void response(std::string_view input) {
  const std::string_view head = input.substr(0, data_wire::kResponseHeaderSize);
  const Result<data_wire::ResponseHeader> header = data_wire::decode_response_header(head);
  if (!header.ok()) {
    require(header.error().kind() == ErrorKind::protocol);
    return;
  }
  if (header->status != 0) {
    require(header->length <= data_wire::kMaxErrorText);
    require(data_wire::status_of(data_wire::kind_of(header->status)) == header->status);
  }
  require(data_wire::encode_response(*header) == head);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  request(input);
  response(input);
  const Result<std::vector<TcpEndpoint>> endpoints = decode_endpoints(input);
  require(endpoints.ok() || endpoints.error().kind() == ErrorKind::protocol);
  if (!input.empty()) require(!data_wire::refused_by_peer(input.front()).message().empty());
  return 0;
}
