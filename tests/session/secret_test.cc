// Secrets: what keygen makes, and what a configuration may hold.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>

#include "session/handshake.h"

namespace stagewire {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// The same 32 bytes in three ways of writing them.
const char* const kHex = "00fbefbe0405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1eff";
const char* const kBase64 = "APvvvgQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHv8=";
const char* const kUrlSafe = "APvvvgQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHv8";

std::string raw() {
  std::string out;
  for (int i = 0; i < 32; ++i) out += static_cast<char>(i);
  out[1] = '\xFB';
  out[2] = '\xEF';
  out[3] = '\xBE';
  out[31] = '\xFF';
  return out;
}

std::string problem(std::string_view text) {
  const Result<std::string> secret = parse_secret(text);
  EXPECT_FALSE(secret.ok()) << "'" << text << "' was taken";
  if (secret.ok()) return {};
  EXPECT_EQ(secret.error().kind(), ErrorKind::config);
  EXPECT_THAT(secret.error().message(), HasSubstr("stagewire keygen"));
  return secret.error().message();
}

TEST(Secret, GeneratedOnesAreHexAndDifferent) {
  const std::string a = generate_secret();
  const std::string b = generate_secret();
  EXPECT_EQ(a.size(), 64U);
  EXPECT_EQ(a.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_NE(a, b);
  const Result<std::string> parsed = parse_secret(a);
  ASSERT_TRUE(parsed.ok()) << parsed.error();
  EXPECT_EQ(parsed->size(), 32U);
  EXPECT_NE(*parsed, *parse_secret(b));
}

TEST(Secret, HexBase64AndRawBytesGiveTheSame) {
  EXPECT_EQ(parse_secret(kHex).value(), raw());
  EXPECT_EQ(parse_secret("00FBEFBE0405060708090A0B0C0D0E0F101112131415161718191A1B1C1D1EFF").value(), raw());
  EXPECT_EQ(parse_secret(std::string("  ") + kHex + "\r\n").value(), raw());
  EXPECT_EQ(parse_secret(kBase64).value(), raw());
  EXPECT_EQ(parse_secret(kUrlSafe).value(), raw());
  EXPECT_EQ(parse_secret(std::string(kBase64) + "\n").value(), raw());
  EXPECT_EQ(parse_secret(raw()).value(), raw());
}

TEST(Secret, BothBase64AlphabetsAreUnderstood) {
  const std::string plain = "+/v7+/////8AAQIDBAUGBwgJCgsMDQ4PEBESExQVFhc=";
  std::string url = plain;
  for (char& c : url) {
    if (c == '+') c = '-';
    if (c == '/') c = '_';
  }
  EXPECT_EQ(parse_secret(plain).value(), parse_secret(url).value());
  EXPECT_EQ(parse_secret(url.substr(0, url.size() - 1)).value(), parse_secret(url).value());
}

TEST(Secret, RawBytesAreKeptAsTheyAre) {
  const std::string bytes = raw() + "\n ";
  EXPECT_EQ(parse_secret(bytes).value(), bytes);
  EXPECT_EQ(parse_secret(" " + raw()).value(), " " + raw());
}

TEST(Secret, LongerOnesAreTaken) {
  EXPECT_EQ(parse_secret(std::string(kHex) + kHex)->size(), 64U);
  EXPECT_THAT(problem(std::string(5000, 'a')), HasSubstr("has 5000 bytes; expected at most 4096"));
}

TEST(Secret, ShortOnesAreRefused) {
  EXPECT_THAT(problem(""), HasSubstr("is empty"));
  EXPECT_THAT(problem(" \n"), HasSubstr("is empty"));
  EXPECT_THAT(problem(std::string(kHex).substr(0, 62)), HasSubstr("has 31 bytes; expected at least 32"));
  EXPECT_THAT(problem(std::string(kHex).substr(0, 63)), HasSubstr("odd number of hex digits (63)"));
  EXPECT_THAT(problem("AAECAwQFBgcICQoLDA0ODw=="), HasSubstr("has 16 bytes"));
  EXPECT_THAT(problem(raw().substr(0, 31)), HasSubstr("has 31 bytes"));
  EXPECT_THAT(problem("secret"), AllOf(HasSubstr("the secret"), HasSubstr("neither hex nor base64")));
}

TEST(Secret, WhatIsPlainlyNotRandomIsRefused) {
  EXPECT_THAT(problem("correct horse battery staple, and a little more of it"),
              HasSubstr("passphrases can be guessed"));
  EXPECT_THAT(problem(std::string(64, '0')), HasSubstr("1 different byte values"));
  EXPECT_THAT(problem(std::string(64, 'a')), HasSubstr("expected random bytes"));
  EXPECT_THAT(problem(std::string(40, '\xFF')), HasSubstr("expected random bytes"));
}

TEST(Secret, TheErrorNeverContainsIt) {
  EXPECT_EQ(problem("hunter2 hunter2").find("hunter2"), std::string::npos);
  EXPECT_EQ(problem(std::string(kHex).substr(0, 62)).find("00fbef"), std::string::npos);
}

}  // namespace
}  // namespace stagewire
