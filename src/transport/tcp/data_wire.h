// The bytes of a data connection after its opening: requests from the reader, responses from the server, all
// integers little-endian. This file defines them, data_wire.cc writes and reads them with bounds. Stateless.
//
//   request   u32 magic "swrq"  u16 ranges  u16 zero  u64 read  u64 lease  u32 chunk  u32 zero
//             then per range: u32 memory  u32 zero  u64 offset  u64 length
//   response  u32 magic "swrs"  u16 status  u16 zero  u64 read  u32 chunk  u32 zero  u64 length
//             then `length` bytes: the chunk's, in the order of its ranges, or (status ≠ 0) a text
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <stagewire/base/result.h>

#include "transport/transport.h"

namespace stagewire::data_wire {

inline constexpr std::size_t kRequestHeaderSize = 32;
inline constexpr std::size_t kRangeSize = 24;
inline constexpr std::size_t kResponseHeaderSize = 32;
inline constexpr std::size_t kMaxErrorText = 512;
/// The verdict byte that answers a data connection's opening: this, or status_of() the reason for refusing
/// it.
inline constexpr char kAccepted = 0;

struct RequestHeader {
  std::uint16_t ranges = 0;
  std::uint64_t read = 0;
  std::uint64_t lease = 0;
  std::uint32_t chunk = 0;
};
struct ResponseHeader {
  std::uint16_t status = 0;  ///< 0, or 1 + an ErrorKind
  std::uint64_t read = 0;
  std::uint32_t chunk = 0;
  std::uint64_t length = 0;  ///< bytes that follow
};

void encode_request(const RequestHeader& header, std::span<const RemoteRange> ranges, std::string& out);
/// Reads kRequestHeaderSize bytes. Errors: protocol (magic, reserved bits, 0 or more than kMaxChunkRanges
/// ranges).
Result<RequestHeader> decode_request_header(std::string_view bytes);
/// Reads header.ranges × kRangeSize bytes. Errors: protocol (reserved bits, more than kMaxChunkSize bytes in
/// all, empty ranges).
Status decode_ranges(std::string_view bytes, std::vector<RemoteRange>& out);

std::string encode_response(const ResponseHeader& header);
/// Reads kResponseHeaderSize bytes. Errors: protocol (magic, reserved bits, unknown status, an error text
/// longer than kMaxErrorText). That the response was asked for is the caller's check.
Result<ResponseHeader> decode_response_header(std::string_view bytes);

std::uint16_t status_of(ErrorKind kind) noexcept;
/// The kind in a non-zero, decoded status.
ErrorKind kind_of(std::uint16_t status) noexcept;
/// The byte that refuses an opening because of `kind`.
char refusal(ErrorKind kind) noexcept;
/// What the dialling side makes of a verdict other than kAccepted.
Error refused_by_peer(char verdict);

}  // namespace stagewire::data_wire
