// See ranges.h.
#include "transport/ranges.h"

#include <limits>
#include <string>

namespace stagewire {

Result<std::uint64_t> total_length(std::span<const RemoteRange> ranges) {
  std::uint64_t total = 0;
  for (const RemoteRange& range : ranges) {
    if (range.length > std::numeric_limits<std::uint64_t>::max() - total) {
      return Error(ErrorKind::protocol, "the source ranges' lengths add up to more than 2^64 bytes");
    }
    total += range.length;
  }
  return total;
}

Result<std::uint64_t> check_request(const ReadRequest& request) {
  STAGEWIRE_ASSIGN(const std::uint64_t source, total_length(request.from));
  std::uint64_t destination = 0;
  for (const LocalRange& range : request.to) {
    if (!range.kind.is_host()) {
      return Error(ErrorKind::not_viable, "the destination is " + to_string(range.kind) +
                                              " memory; this transport reads into host memory only");
    }
    if (range.data == nullptr && range.length != 0) {
      return Error(ErrorKind::invalid_argument,
                   "a destination range of " + std::to_string(range.length) + " bytes has a null address");
    }
    if (range.length > std::numeric_limits<std::uint64_t>::max() - destination) {
      return Error(ErrorKind::invalid_argument,
                   "the destination ranges' lengths add up to more than 2^64 bytes");
    }
    destination += range.length;
  }
  if (source != destination) {
    return Error(ErrorKind::invalid_argument, "the source ranges hold " + std::to_string(source) +
                                                  " bytes and the destination ranges " +
                                                  std::to_string(destination) + "; they must be equal");
  }
  return source;
}

Status check_within(const RemoteRange& range, std::uint64_t memory_size) {
  // Written so that offset + length, which a peer chose, is never computed.
  if (range.offset <= memory_size && range.length <= memory_size - range.offset) return {};
  return Error(ErrorKind::protocol, "a source range of " + std::to_string(range.length) +
                                        " bytes at offset " + std::to_string(range.offset) +
                                        " lies outside memory " + std::to_string(range.memory) + " of " +
                                        std::to_string(memory_size) + " bytes");
}

Error unknown_memory(std::uint32_t memory, std::string_view transport) {
  return std::move(Error(ErrorKind::not_viable, "memory " + std::to_string(memory) +
                                                    " of the peer is not attached over this transport; "
                                                    "use another route")
                       .with_transport(transport));
}

}  // namespace stagewire
