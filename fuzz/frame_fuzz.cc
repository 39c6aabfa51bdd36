// libFuzzer target: the frame header and body decoders. Input: one byte of settings, then a frame as on the
// stream. What is taken must be encodable again, to bytes that decode to the same.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "session/wire.h"

namespace {

using namespace stagewire;

void require(bool condition) {
  if (!condition) std::abort();
}

void check_body(wire::FrameType type, std::string_view body) {
  const Result<wire::Frame> frame = wire::decode_body(type, body);
  if (!frame.ok()) {
    require(frame.error().kind() == ErrorKind::protocol);
    require(wire::printable(frame.error().message(), 4096) == frame.error().message());
    return;
  }
  require(wire::type_of(*frame) == type);
  const bool with_descriptor = type == wire::FrameType::lifeline;
  std::string bytes;
  const Status status = wire::encode(*frame, with_descriptor, 0, bytes);
  // Only a welcome whose parts are within their bounds can be too large as a whole: the stream's limit, which
  // decode_body does not know, would have stopped it.
  require(status.ok() || type == wire::FrameType::welcome);
  if (!status.ok()) return;
  const std::string_view again = std::string_view(bytes).substr(wire::kFrameHeaderSize);
  const Result<wire::Frame> second = wire::decode_body(type, again);
  require(second.ok());
  std::string second_bytes;
  require(wire::encode(*second, with_descriptor, 0, second_bytes).ok());
  require(bytes == second_bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  if (input.size() < 1 + wire::kFrameHeaderSize) return 0;
  const std::size_t tag_size = (data[0] & 1U) != 0 ? wire::kTagSize : 0;
  const std::string_view header_bytes = input.substr(1, wire::kFrameHeaderSize);
  const std::string_view body = input.substr(1 + wire::kFrameHeaderSize);
  const Result<wire::FrameHeader> header = wire::decode_frame_header(header_bytes, tag_size);
  if (header.ok()) {
    require(header->length >= 4 + tag_size && header->length <= wire::kMaxFrame);
  } else {
    require(header.error().kind() == ErrorKind::protocol);
  }
  // The body is decoded as the type says, whatever the length claims: a fuzzer rarely gets both right.
  check_body(static_cast<wire::FrameType>(header_bytes[4]), body);
  return 0;
}
