// gather(): the sender's one pass from the caller's tensors into the body. Runs on the publishing caller's
// thread, which also takes part in the engine's copies.
#include <cstring>

#include "payload/codec.h"
#include "payload/strided.h"

namespace stagewire {
namespace {

/// Runs from this length on are listed for the engine. A list entry takes 24 bytes, so lists stay below 0.6 %
/// of the bytes they describe; shorter runs are not worth handing to another thread one by one.
constexpr std::size_t kMinListedRun = 4096;

}  // namespace

void gather(const Payload& payload, const EncodedPayload& layout, std::byte* body, CopyEngine& engine) {
  std::vector<CopyRange> ranges;
  ranges.reserve(layout.segments.size());
  std::uint64_t end = 0;
  for (std::size_t i = 0; i < layout.segments.size(); ++i) {
    const Segment& segment = layout.segments[i];
    const Tensor& tensor = payload.tensors()[i];
    if (segment.offset > end) std::memset(body + end, 0, segment.offset - end);
    end = segment.offset + segment.length;
    if (segment.length == 0) continue;

    const auto* from = static_cast<const std::byte*>(tensor.data);
    std::byte* to = body + segment.offset;
    if (tensor.contiguous()) {
      ranges.push_back(CopyRange{from, to, segment.length});
      continue;
    }
    const StridedShape shape = collapse(tensor);
    if (shape.unit >= kMinListedRun) {
      append_runs(shape, from, to, ranges);
    } else {
      copy_strided(shape, from, to);
    }
  }
  if (!ranges.empty()) engine.copy(ranges);
}

}  // namespace stagewire
