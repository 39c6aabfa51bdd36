// See data_wire.h.
#include "transport/tcp/data_wire.h"

#include <string>

#include "transport/bytes.h"
#include "transport/tcp/tcp_options.h"

namespace stagewire::data_wire {

namespace {

constexpr std::uint32_t kRequestMagic = 0x71727773U;   // "swrq"
constexpr std::uint32_t kResponseMagic = 0x73727773U;  // "swrs"

Error bad(std::string what) {
  return Error(ErrorKind::protocol, "data connection: " + std::move(what));
}

}  // namespace

void encode_request(const RequestHeader& header, std::span<const RemoteRange> ranges, std::string& out) {
  bytes::put(out, kRequestMagic);
  bytes::put(out, header.ranges);
  bytes::put(out, std::uint16_t{0});
  bytes::put(out, header.read);
  bytes::put(out, header.lease);
  bytes::put(out, header.chunk);
  bytes::put(out, std::uint32_t{0});
  for (const RemoteRange& range : ranges) {
    bytes::put(out, range.memory);
    bytes::put(out, std::uint32_t{0});
    bytes::put(out, range.offset);
    bytes::put(out, range.length);
  }
}

Result<RequestHeader> decode_request_header(std::string_view bytes) {
  if (bytes.size() != kRequestHeaderSize) return bad("a request header is cut short");
  if (bytes::get<std::uint32_t>(bytes.data()) != kRequestMagic) {
    return bad("the peer sent something that is no request");
  }
  RequestHeader header;
  header.ranges = bytes::get<std::uint16_t>(bytes.data() + 4);
  header.read = bytes::get<std::uint64_t>(bytes.data() + 8);
  header.lease = bytes::get<std::uint64_t>(bytes.data() + 16);
  header.chunk = bytes::get<std::uint32_t>(bytes.data() + 24);
  if (bytes::get<std::uint16_t>(bytes.data() + 6) != 0 || bytes::get<std::uint32_t>(bytes.data() + 28) != 0) {
    return bad("a request's reserved bits are set");
  }
  if (header.ranges == 0 || header.ranges > kMaxChunkRanges) {
    return bad("a request names " + std::to_string(header.ranges) + " ranges; expected 1 to " +
               std::to_string(kMaxChunkRanges));
  }
  return header;
}

Status decode_ranges(std::string_view bytes, std::vector<RemoteRange>& out) {
  out.clear();
  std::uint64_t total = 0;
  for (; bytes.size() >= kRangeSize; bytes.remove_prefix(kRangeSize)) {
    RemoteRange range;
    range.memory = bytes::get<std::uint32_t>(bytes.data());
    range.offset = bytes::get<std::uint64_t>(bytes.data() + 8);
    range.length = bytes::get<std::uint64_t>(bytes.data() + 16);
    if (bytes::get<std::uint32_t>(bytes.data() + 4) != 0) return bad("a range's reserved bits are set");
    // Each addend is checked against what is left, so the sum cannot overflow.
    if (range.length == 0 || range.length > kMaxChunkSize - total) {
      return bad("a request's range has " + std::to_string(range.length) + " bytes, " +
                 std::to_string(total) + " come before it; expected 1 to " + std::to_string(kMaxChunkSize) +
                 " bytes all");
    }
    total += range.length;
    out.push_back(range);
  }
  return {};
}

std::string encode_response(const ResponseHeader& header) {
  std::string out;
  out.reserve(kResponseHeaderSize);
  bytes::put(out, kResponseMagic);
  bytes::put(out, header.status);
  bytes::put(out, std::uint16_t{0});
  bytes::put(out, header.read);
  bytes::put(out, header.chunk);
  bytes::put(out, std::uint32_t{0});
  bytes::put(out, header.length);
  return out;
}

Result<ResponseHeader> decode_response_header(std::string_view bytes) {
  if (bytes.size() != kResponseHeaderSize) return bad("a response header is cut short");
  if (bytes::get<std::uint32_t>(bytes.data()) != kResponseMagic) {
    return bad("the peer sent something that is no response");
  }
  ResponseHeader header;
  header.status = bytes::get<std::uint16_t>(bytes.data() + 4);
  header.read = bytes::get<std::uint64_t>(bytes.data() + 8);
  header.chunk = bytes::get<std::uint32_t>(bytes.data() + 16);
  header.length = bytes::get<std::uint64_t>(bytes.data() + 24);
  if (bytes::get<std::uint16_t>(bytes.data() + 6) != 0 || bytes::get<std::uint32_t>(bytes.data() + 20) != 0) {
    return bad("a response's reserved bits are set");
  }
  if (header.status > status_of(ErrorKind::internal)) {
    return bad("a response has the unknown status " + std::to_string(header.status));
  }
  if (header.status != 0 && header.length > kMaxErrorText) {
    return bad("a response's error text has " + std::to_string(header.length) + " bytes; at most " +
               std::to_string(kMaxErrorText) + " are allowed");
  }
  return header;
}

std::uint16_t status_of(ErrorKind kind) noexcept {
  return static_cast<std::uint16_t>(static_cast<unsigned>(kind) + 1U);
}

ErrorKind kind_of(std::uint16_t status) noexcept {
  return static_cast<ErrorKind>(status - 1U);
}

char refusal(ErrorKind kind) noexcept {
  return static_cast<char>(status_of(kind));
}

Error refused_by_peer(char verdict) {
  const auto status = static_cast<unsigned char>(verdict);
  const bool known = status != 0 && status <= status_of(ErrorKind::internal);
  const ErrorKind kind = known ? kind_of(status) : ErrorKind::auth_failed;
  // The peer's end of this session is over, which is not the same as this node being closed.
  if (kind == ErrorKind::closed)
    return Error(ErrorKind::peer_lost, "the peer has closed its end of the session");
  return Error(kind,
               "the peer refused a data connection of this session (" + std::string(to_string(kind)) + ")");
}

}  // namespace stagewire::data_wire
