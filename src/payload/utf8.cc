// UTF-8 validation. Stateless; any thread.
#include "payload/utf8.h"

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace stagewire {
namespace {

/// Length of the well-formed sequence that starts with the non-ASCII byte at `p`, or 0. `left` bytes are
/// there.
std::size_t sequence_length(const unsigned char* p, std::size_t left) noexcept {
  const unsigned lead = *p;
  std::size_t length = 0;
  // The second byte's range excludes overlong forms (E0, F0), surrogates (ED) and values above U+10FFFF (F4).
  unsigned low = 0x80;
  unsigned high = 0xBF;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  }
  if (length == 0 || length > left || p[1] < low || p[1] > high) return 0;
  for (std::size_t i = 2; i < length; ++i) {
    if (p[i] < 0x80 || p[i] > 0xBF) return 0;
  }
  return length;
}

}  // namespace

bool is_utf8(std::string_view text) noexcept {
  const auto* p = reinterpret_cast<const unsigned char*>(text.data());
  std::size_t left = text.size();
  while (left > 0) {
    if (left >= 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, p, 8);
      if ((word & 0x8080808080808080ULL) == 0) {
        p += 8;
        left -= 8;
        continue;
      }
    }
    const std::size_t step = *p < 0x80 ? 1 : sequence_length(p, left);
    if (step == 0) return false;
    p += step;
    left -= step;
  }
  return true;
}

}  // namespace stagewire
