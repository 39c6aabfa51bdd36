// UTF-8 validation of text on its way into and out of a header: Python's strings refuse what is not valid, so
// it must not get that far. Stateless; any thread.
#pragma once

#include <string_view>

namespace stagewire {

/// Whether `text` is well-formed UTF-8 as in table 3-7 of the Unicode standard: no overlong forms, no
/// surrogates, nothing above U+10FFFF. NUL is allowed.
bool is_utf8(std::string_view text) noexcept;

}  // namespace stagewire
