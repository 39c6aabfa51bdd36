// Checks of a read's two range lists, shared by all transports. Everything in a RemoteRange came from a peer,
// so every sum is checked for overflow. Stateless; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include <stagewire/base/result.h>

#include "transport/transport.h"

namespace stagewire {

/// Sum of the lengths. Errors: protocol if it overflows 64 bits.
Result<std::uint64_t> total_length(std::span<const RemoteRange> ranges);

/// The destination side of a request: host memory, no null pointers, and as many bytes as `from` names in
/// total (which is what this returns). Errors: invalid_argument, not_viable (device memory), protocol.
Result<std::uint64_t> check_request(const ReadRequest& request);

/// That `range` lies within a memory of `memory_size` bytes. Errors: protocol.
Status check_within(const RemoteRange& range, std::uint64_t memory_size);

/// The Error for a range whose memory was never attached over this link.
Error unknown_memory(std::uint32_t memory, std::string_view transport);

}  // namespace stagewire
