// UTF-8 validation, at every alignment to the word-wise fast path.
#include "payload/utf8.h"

#include <gtest/gtest.h>
#include <string>

namespace stagewire {
namespace {

TEST(Utf8, AcceptsWhatIsWellFormed) {
  for (const std::string text : {"", "a", "\x7f", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf",
                                 "\xee\x80\x80", "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    for (std::size_t before = 0; before < 17; ++before) {
      for (std::size_t after = 0; after < 9; ++after) {
        EXPECT_TRUE(is_utf8(std::string(before, 'x') + text + std::string(after, 'y')))
            << before << ' ' << after;
      }
    }
  }
  EXPECT_TRUE(is_utf8(std::string("a\0b", 3)));
}

TEST(Utf8, RefusesWhatIsNot) {
  for (const std::string text :
       {"\x80", "\xbf", "\xc0\x80", "\xc1\xbf", "\xc2", "\xc2\x41", "\xe0\x9f\xbf", "\xe0\xa0", "\xe1\x80",
        "\xe1\x80\x41", "\xed\xa0\x80", "\xed\xbf\xbf", "\xf0\x8f\xbf\xbf", "\xf0\x90\x80",
        "\xf0\x90\x80\x41", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", "\xfe"}) {
    for (std::size_t before = 0; before < 17; ++before) {
      EXPECT_FALSE(is_utf8(std::string(before, 'x') + text)) << before;
      EXPECT_FALSE(is_utf8(std::string(before, 'x') + text + "zzzzzzzzz")) << before;
    }
  }
}

}  // namespace
}  // namespace stagewire
