// Making and reading the shared secret. Stateless; any thread.
#include <algorithm>
#include <bitset>
#include <cctype>
#include <optional>
#include <sodium.h>
#include <string>

#include "session/crypto.h"
#include "session/handshake.h"

namespace stagewire {

namespace {

/// No secret is longer; a longer text is the wrong file.
constexpr std::size_t kMaxSecretText = 4096;
/// 32 random bytes have about 30 different values; fewer than 8 do not happen (probability < 2^-100).
constexpr std::size_t kMinDistinctBytes = 8;

constexpr std::string_view kWhatToDo = "; `stagewire keygen` makes a good one";

Error bad_secret(const std::string& what) {
  return Error(ErrorKind::config, "the secret " + what + std::string(kWhatToDo));
}

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

std::optional<std::string> from_hex(std::string_view text) {
  std::string out(text.size() / 2, '\0');
  std::size_t size = 0;
  const char* end = nullptr;
  if (sodium_hex2bin(reinterpret_cast<unsigned char*>(out.data()), out.size(), text.data(), text.size(),
                     nullptr, &size, &end) != 0 ||
      end != text.data() + text.size()) {
    return std::nullopt;
  }
  return out;
}

std::optional<std::string> from_base64(std::string_view text) {
  // libsodium 1.0.18 takes some bytes above 0x7F for digits where char is signed.
  constexpr std::string_view alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_=";
  if (text.find_first_not_of(alphabet) != std::string_view::npos) return std::nullopt;
  for (const int variant : {sodium_base64_VARIANT_ORIGINAL, sodium_base64_VARIANT_ORIGINAL_NO_PADDING,
                            sodium_base64_VARIANT_URLSAFE, sodium_base64_VARIANT_URLSAFE_NO_PADDING}) {
    std::string out(text.size(), '\0');
    std::size_t size = 0;
    const char* end = nullptr;
    if (sodium_base642bin(reinterpret_cast<unsigned char*>(out.data()), out.size(), text.data(), text.size(),
                          nullptr, &size, &end, variant) == 0 &&
        end == text.data() + text.size()) {
      out.resize(size);
      return out;
    }
  }
  return std::nullopt;
}

Result<std::string> checked(std::string secret) {
  if (secret.size() < kMinSecretSize) {
    return bad_secret("has " + std::to_string(secret.size()) + " bytes; expected at least " +
                      std::to_string(kMinSecretSize) + " random bytes (64 hex digits)");
  }
  std::bitset<256> seen;
  for (const char c : secret) seen.set(static_cast<unsigned char>(c));
  if (seen.count() < kMinDistinctBytes) {
    return bad_secret("consists of " + std::to_string(seen.count()) +
                      " different byte values; expected random bytes");
  }
  return secret;
}

}  // namespace

std::string generate_secret() {
  crypto::Key secret;
  crypto::fill_random(secret);
  std::string out(2 * secret.size() + 1, '\0');
  sodium_bin2hex(out.data(), out.size(), reinterpret_cast<const unsigned char*>(secret.data()),
                 secret.size());
  crypto::wipe(secret);
  out.pop_back();
  return out;
}

Result<std::string> parse_secret(std::string_view text) {
  crypto::ensure_sodium();
  if (text.size() > kMaxSecretText) {
    return bad_secret("has " + std::to_string(text.size()) + " bytes; expected at most " +
                      std::to_string(kMaxSecretText));
  }
  const std::string_view word = trim(text);
  if (word.empty()) return bad_secret("is empty; expected at least 64 hex digits");
  const auto is_hex = [](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; };
  if (std::all_of(word.begin(), word.end(), is_hex)) {
    std::optional<std::string> hex = from_hex(word);
    if (!hex) return bad_secret("has an odd number of hex digits (" + std::to_string(word.size()) + ")");
    return checked(std::move(*hex));
  }
  if (std::optional<std::string> base64 = from_base64(word)) return checked(std::move(*base64));
  const auto is_text = [](char c) { return (c >= 0x20 && c < 0x7F) || is_space(c); };
  if (std::all_of(text.begin(), text.end(), is_text)) {
    return bad_secret(
        "is text, but neither hex nor base64; passphrases can be guessed, so at least 64 hex digits, base64 "
        "or "
        "a file of random bytes is expected");
  }
  // Raw bytes are taken as they are: a byte that looks like a line end may be one of the random ones.
  return checked(std::string(text));
}

}  // namespace stagewire
