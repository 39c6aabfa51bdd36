// assemble(): the receiver's last step, tensors over a body that has arrived. Runs on the thread that
// completes a get; the payload it returns owns everything it needs through `hold`.
#include "payload/codec.h"

namespace stagewire {

Result<Payload> assemble(DecodedHeader header, std::span<const std::byte> body, bool read_only,
                         const std::shared_ptr<const void>& hold) {
  std::vector<Tensor> tensors;
  tensors.reserve(header.segments.size());
  for (std::size_t i = 0; i < header.segments.size(); ++i) {
    Segment& segment = header.segments[i];
    if (segment.length > 0 &&
        (segment.offset > body.size() || segment.length > body.size() - segment.offset)) {
      return Error(ErrorKind::protocol, "tensor " + std::to_string(i) + " takes bytes " +
                                            std::to_string(segment.offset) + " to " +
                                            std::to_string(segment.offset + segment.length) +
                                            " of a body of " + std::to_string(body.size()));
    }
    Tensor tensor;
    tensor.dtype = segment.dtype;
    tensor.shape = std::move(segment.shape);
    // The offset of an empty tensor may lie behind the end of the body; its pointer must not.
    tensor.data = body.data() + (segment.length > 0 ? segment.offset : 0);
    tensor.read_only = read_only;
    tensor.hold = hold;
    tensors.push_back(std::move(tensor));
  }
  return Payload(std::move(header.root), std::move(tensors));
}

}  // namespace stagewire
