// Fuzzes the payload header's decoder with the bytes of a header, then assembles what it accepted. Beyond not
// crashing: tensors lie inside the body, and whatever the decoder accepts, the encoder can say again.
#include <cstdlib>
#include <iostream>
#include <vector>

#include "payload/codec.h"
#include "payload/limits.h"

namespace {

void require(bool condition, const char* what) {
  if (condition) return;
  std::cerr << "broken: " << what << '\n';
  std::abort();
}

/// Bodies up to this size are really allocated and read.
constexpr std::uint64_t kRealBody = 1U << 20U;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stagewire;
  auto decoded = decode_header({reinterpret_cast<const char*>(data), size});
  if (!decoded.ok()) {
    require(decoded.error().kind() == ErrorKind::protocol, "a bad header is a protocol error");
    return 0;
  }
  const std::uint64_t body_size = decoded->body_size;
  require(body_size <= kMaxBodySize, "the body is bounded");
  if (body_size > kRealBody) {
    const std::vector<std::byte> small(kRealBody);
    require(!assemble(*std::move(decoded), small, true, nullptr).ok(), "a body that is too small is refused");
    return 0;
  }
  // Exactly the body's size, so that the sanitizer sees any read behind it.
  const std::vector<std::byte> body(body_size, std::byte{7});
  auto payload = assemble(*std::move(decoded), body, true, nullptr);
  require(payload.ok(), "a whole body is assembled");
  std::uint64_t sum = 0;
  for (const Tensor& tensor : payload->tensors()) {
    const auto* bytes = static_cast<const std::byte*>(tensor.data);
    for (std::uint64_t i = 0; i < tensor.bytes(); ++i) sum += std::to_integer<std::uint64_t>(bytes[i]);
  }
  require(sum == 7 * payload->tensor_bytes(), "every tensor is readable");

  const auto encoded = encode(*payload);
  require(encoded.ok(), "what was decoded can be encoded");
  require(encoded->body_size == body_size, "both sides compute the same layout");
  auto again = decode_header(encoded->header);
  require(again.ok(), "what was encoded can be decoded");
  const auto payload_again = assemble(*std::move(again), body, true, nullptr);
  require(payload_again.ok() && encode(*payload_again)->header == encoded->header, "the encoding is stable");
  return 0;
}
