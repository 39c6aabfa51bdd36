// Duplicate keys of dicts. Stateless; any thread.
#include "payload/dict_keys.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <vector>

namespace stagewire {
namespace {

/// Up to this many keys, comparing all pairs is quicker than allocating and sorting.
constexpr std::size_t kPairwise = 8;

std::string_view key_bytes(const DictKey& key) noexcept {
  if (const auto* text = std::get_if<std::string>(&key)) return *text;
  if (const auto* bytes = std::get_if<Bytes>(&key)) return bytes->data;
  return {};
}

/// Any total order will do; comparing lengths first decides most pairs without touching the text.
bool before(const DictKey* a, const DictKey* b) noexcept {
  if (a->index() != b->index()) return a->index() < b->index();
  if (const auto* number = std::get_if<std::int64_t>(a)) return *number < *std::get_if<std::int64_t>(b);
  const std::string_view x = key_bytes(*a);
  const std::string_view y = key_bytes(*b);
  if (x.size() != y.size()) return x.size() < y.size();
  return !x.empty() && std::memcmp(x.data(), y.data(), x.size()) < 0;
}

}  // namespace

const DictKey* find_duplicate_key(const Dict& dict) {
  const auto& items = dict.items;
  if (items.size() <= kPairwise) {
    for (std::size_t i = 1; i < items.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        if (items[i].first == items[j].first) return &items[i].first;
      }
    }
    return nullptr;
  }
  std::vector<const DictKey*> keys;
  keys.reserve(items.size());
  for (const auto& item : items) keys.push_back(&item.first);
  std::sort(keys.begin(), keys.end(), before);
  const auto twice = std::adjacent_find(keys.begin(), keys.end(),
                                        [](const DictKey* a, const DictKey* b) { return *a == *b; });
  return twice == keys.end() ? nullptr : *twice;
}

std::string key_text(const DictKey& key) {
  if (const auto* number = std::get_if<std::int64_t>(&key)) return std::to_string(*number);
  constexpr std::size_t kShown = 64;
  const std::string_view bytes = key_bytes(key);
  std::string text = std::holds_alternative<Bytes>(key) ? "b'" : "'";
  for (const char c : bytes.substr(0, kShown)) text += (c >= ' ' && c <= '~') ? c : '?';
  text += bytes.size() > kShown ? "…'" : "'";
  return text;
}

}  // namespace stagewire
