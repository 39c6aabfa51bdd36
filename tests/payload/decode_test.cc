// The receiver's side of the codec against hostile headers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>

#include <stagewire/memory/pool.h>

#include "payload/codec.h"
#include "payload/limits.h"
#include "payload/support.h"

namespace stagewire {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using testing::unhex;

/// The error of a header written in hex digits; it must be a protocol error.
std::string refusal(const std::string& header) {
  auto result = decode_header(header);
  if (result.ok()) return "it was accepted";
  EXPECT_EQ(result.error().kind(), ErrorKind::protocol) << result.error();
  return result.error().message();
}
std::string refusal_hex(std::string_view digits) {
  return refusal(unhex(digits));
}

TEST(DecodeHeader, RefusesEveryTruncation) {
  const std::string header = encode(testing::sample_payload()).value().header;
  ASSERT_TRUE(decode_header(header).ok());
  for (std::size_t size = 0; size < header.size(); ++size) {
    EXPECT_THAT(refusal(header.substr(0, size)),
                AnyOf(HasSubstr("cut short"), HasSubstr("the whole header has")))
        << size;
  }
  EXPECT_THAT(refusal(header + '\0'), HasSubstr("after its end"));
  EXPECT_THAT(refusal(header + header), HasSubstr("after its end"));
}

/// Whatever is accepted must be consistent, so that nothing after the decoder needs to check again.
void expect_consistent(const DecodedHeader& header) {
  std::uint64_t end = 0;
  for (const Segment& segment : header.segments) {
    EXPECT_LT(static_cast<unsigned>(segment.dtype), kDTypeCount);
    EXPECT_EQ(segment.offset % kBufferAlignment, 0U);
    EXPECT_GE(segment.offset, end);
    Tensor t;
    t.dtype = segment.dtype;
    t.shape = segment.shape;
    EXPECT_EQ(t.bytes(), segment.length);
    end = segment.offset + segment.length;
  }
  EXPECT_EQ(header.body_size, end);
  EXPECT_LE(end, kMaxBodySize);
  // What the decoder accepts, the encoder can say again: references, keys, depth and text are in order.
  std::vector<Tensor> tensors;
  for (const Segment& segment : header.segments) {
    Tensor t;
    t.dtype = segment.dtype;
    t.shape = segment.shape;
    t.data = &header;  // never read
    tensors.push_back(t);
  }
  const auto again = encode(Payload(header.root, std::move(tensors)));
  EXPECT_TRUE(again.ok()) << again.error();
}

TEST(DecodeHeader, SurvivesEveryByteReplaced) {
  const std::string header = encode(testing::sample_payload()).value().header;
  std::size_t accepted = 0;
  for (std::size_t at = 0; at < header.size(); ++at) {
    for (unsigned byte = 0; byte < 256; ++byte) {
      std::string mutated = header;
      mutated[at] = static_cast<char>(byte);
      auto result = decode_header(mutated);
      if (result.ok()) {
        ++accepted;
        expect_consistent(*result);
      } else {
        EXPECT_EQ(result.error().kind(), ErrorKind::protocol);
      }
    }
  }
  EXPECT_GE(accepted, header.size());  // the unchanged byte at each place, and other texts and numbers
}

TEST(DecodeHeader, SurvivesRandomMutationsAndNoise) {
  const std::string header = encode(testing::sample_payload()).value().header;
  std::mt19937 generator(20240607);
  for (int round = 0; round < 20000; ++round) {
    std::string mutated = header;
    for (unsigned n = 1 + generator() % 4; n > 0; --n) {
      const std::size_t at = generator() % mutated.size();
      switch (generator() % 3) {
        case 0:
          mutated[at] = static_cast<char>(generator());
          break;
        case 1:
          mutated.insert(at, 1, static_cast<char>(generator()));
          break;
        default:
          mutated.erase(at, 1);
          break;
      }
    }
    if (auto result = decode_header(mutated); result.ok()) expect_consistent(*result);
  }
  for (int round = 0; round < 20000; ++round) {
    std::string noise(generator() % 64, '\0');
    for (char& c : noise) c = static_cast<char>(generator());
    if (auto result = decode_header(noise); result.ok()) expect_consistent(*result);
  }
}

TEST(DecodeHeader, RefusesAnotherFrame) {
  EXPECT_THAT(refusal(""), HasSubstr("cut short"));
  EXPECT_THAT(refusal_hex("c0"), HasSubstr("a scalar"));
  EXPECT_THAT(refusal_hex("05"), HasSubstr("a scalar"));
  EXPECT_THAT(refusal_hex("a161"), HasSubstr("a scalar"));
  EXPECT_THAT(refusal_hex("90"), HasSubstr("an array of 0"));
  EXPECT_THAT(refusal_hex("9201c0"), HasSubstr("an array of 2"));
  EXPECT_THAT(refusal_hex("9401c09090"), HasSubstr("an array of 4"));
  EXPECT_THAT(refusal_hex("9302c090"), HasSubstr("version 2"));
  EXPECT_THAT(refusal_hex("9300c090"), HasSubstr("version 0"));
  EXPECT_THAT(refusal_hex("93ffc090"), HasSubstr("version"));
  EXPECT_THAT(refusal_hex("93c0c090"), HasSubstr("version"));
  EXPECT_THAT(refusal_hex("9391 00 c090"), HasSubstr("version"));
  EXPECT_THAT(refusal_hex("9301c0c0"), HasSubstr("tensor table"));
  EXPECT_THAT(refusal_hex("9301c005"), HasSubstr("tensor table"));
  EXPECT_THAT(refusal_hex("9301c1 90"), HasSubstr("not msgpack"));
  EXPECT_THAT(refusal_hex("82a16101a16202"), HasSubstr("map"));
  EXPECT_THAT(refusal("GET / HTTP/1.1\r\n\r\n"), HasSubstr("scalar"));
}

TEST(DecodeHeader, RefusesWhatTheTreeCannotHold) {
  EXPECT_THAT(refusal_hex("9301 80 90"), HasSubstr("map"));
  EXPECT_THAT(refusal_hex("9301 ca3f800000 90"), HasSubstr("float32"));
  EXPECT_THAT(refusal_hex("9301 d40100 90"), HasSubstr("extension"));
  EXPECT_THAT(refusal_hex("9301 c70001 90"), HasSubstr("extension"));
  EXPECT_THAT(refusal_hex("9301 90 90"), HasSubstr("empty array"));
  EXPECT_THAT(refusal_hex("9301 91c0 90"), HasSubstr("without a tag"));
  EXPECT_THAT(refusal_hex("9301 91ff 90"), HasSubstr("without a tag"));
  EXPECT_THAT(refusal_hex("9301 919100 90"), HasSubstr("without a tag"));
  EXPECT_THAT(refusal_hex("9301 9104 90"), HasSubstr("the tag 4"));
  EXPECT_THAT(refusal_hex("9301 91cfffffffffffffffff 90"), HasSubstr("the tag 18446744073709551615"));
  EXPECT_THAT(refusal_hex("9301 9202a161 90"), HasSubstr("without a value"));
  EXPECT_THAT(refusal_hex("9301 9302c0c0 90"), HasSubstr("dict key"));
  EXPECT_THAT(refusal_hex("9301 9302c3c0 90"), HasSubstr("dict key"));
  EXPECT_THAT(refusal_hex("9301 9302cb3ff8000000000000c0 90"), HasSubstr("dict key"));
  EXPECT_THAT(refusal_hex("9301 93029100c0 90"), HasSubstr("dict key"));
  EXPECT_THAT(refusal_hex("9301 9302cf8000000000000000c0 90"), HasSubstr("2^63-1"));
}

TEST(DecodeHeader, RefusesBadTensorReferences) {
  EXPECT_THAT(refusal_hex("9301 920300 90"), HasSubstr("reference to tensor 0"));
  EXPECT_THAT(refusal_hex("9301 920302 92 92019101 92019101"), HasSubstr("reference to tensor 2"));
  EXPECT_THAT(refusal_hex("9301 9203cfffffffffffffffff 90"), HasSubstr("index"));
  EXPECT_THAT(refusal_hex("9301 9203ff 90"), HasSubstr("index"));
  EXPECT_THAT(refusal_hex("9301 9203a130 90"), HasSubstr("index"));
  EXPECT_THAT(refusal_hex("9301 92039100 90"), HasSubstr("index"));
  EXPECT_THAT(refusal_hex("9301 9103 90"), HasSubstr("tensor reference of 0"));
  EXPECT_THAT(refusal_hex("9301 93030000 90"), HasSubstr("tensor reference of 2"));
}

TEST(DecodeHeader, RefusesBadTensorTables) {
  EXPECT_THAT(refusal_hex("9301c0 91 c0"), HasSubstr("entry that is no array"));
  EXPECT_THAT(refusal_hex("9301c0 91 90"), HasSubstr("an entry of 0"));
  EXPECT_THAT(refusal_hex("9301c0 91 9101"), HasSubstr("an entry of 1"));
  EXPECT_THAT(refusal_hex("9301c0 91 93019000"), HasSubstr("an entry of 3"));
  EXPECT_THAT(refusal_hex("9301c0 91 921190"), HasSubstr("the dtype 17"));
  EXPECT_THAT(refusal_hex("9301c0 91 92cd010190"), HasSubstr("the dtype 257"));
  EXPECT_THAT(refusal_hex("9301c0 91 92ff90"), HasSubstr("dtype"));
  EXPECT_THAT(refusal_hex("9301c0 91 92a2663890"), HasSubstr("dtype"));
  EXPECT_THAT(refusal_hex("9301c0 91 929090"), HasSubstr("dtype"));
  EXPECT_THAT(refusal_hex("9301c0 91 920105"), HasSubstr("dimensions"));
  EXPECT_THAT(refusal_hex("9301c0 91 920191c0"), HasSubstr("dimension"));
  EXPECT_THAT(refusal_hex("9301c0 91 920191ff"), HasSubstr("the dimension -1"));
  EXPECT_THAT(refusal_hex("9301c0 91 92019190"), HasSubstr("dimension"));
  EXPECT_THAT(refusal_hex("9301c0 91 920191cf8000000000000000"),
              HasSubstr("the dimension 9223372036854775808"));
  EXPECT_THAT(refusal_hex("9301c0 91 920191d38000000000000000"),
              HasSubstr("the dimension -9223372036854775808"));
}

TEST(DecodeHeader, RefusesShapesThatOverflowOrAreTooLarge) {
  const std::string max = "cf7fffffffffffffff";
  EXPECT_THAT(refusal_hex("9301c0 91 920191" + max), HasSubstr("body of at most"));
  EXPECT_THAT(refusal_hex("9301c0 91 920192" + max + max), HasSubstr("body of at most"));
  EXPECT_THAT(refusal_hex("9301c0 91 920193" + max + max + "00"), HasSubstr("body of at most"));
  EXPECT_THAT(refusal_hex("9301c0 91 920193 00" + max + max), HasSubstr("body of at most"));
  EXPECT_THAT(refusal_hex("9301c0 91 920192 cf4000000000000000 04"), HasSubstr("body of at most"));
  EXPECT_TRUE(decode_header(unhex("9301c0 91 920191 cf0000800000000000")).ok());  // 2^47
  EXPECT_THAT(refusal_hex("9301c0 91 920191 cf0000800000000001"), HasSubstr("body of at most"));
  EXPECT_THAT(refusal_hex("9301c0 92 920191 cf0000800000000000 92019101"), HasSubstr("entry 1"));
  EXPECT_THAT(refusal_hex("9301c0 91 9201dc0021" + std::string(66, '0')), HasSubstr("33 dimensions"));
}

TEST(DecodeHeader, BelievesNoCount) {
  EXPECT_THAT(refusal_hex("9301 ddffffffff 00"), HasSubstr("4294967295 elements"));
  EXPECT_THAT(refusal_hex("9301 dcffff 00"), HasSubstr("65535 elements"));
  EXPECT_THAT(refusal_hex("9301c0 ddffffffff"), HasSubstr("4294967295 elements"));
  EXPECT_THAT(refusal_hex("9301c0 91 9201 ddffffffff"), HasSubstr("4294967295 elements"));
  EXPECT_THAT(refusal_hex("9301 dbffffffff 61"), HasSubstr("cut short"));
  EXPECT_THAT(refusal_hex("9301 c6ffffffff 61"), HasSubstr("cut short"));
  // As large as the header, but no larger: refused at the table's own bound.
  std::string table = unhex("9301c0 dd000186a1");
  table.resize(200'000, '\0');
  EXPECT_THAT(refusal(table), HasSubstr("100001 tensors"));
}

TEST(DecodeHeader, BoundsTheDepth) {
  std::string deep = unhex("9301");
  for (std::size_t i = 0; i < kMaxPayloadDepth; ++i) deep += unhex("9200");
  EXPECT_TRUE(decode_header(deep + unhex("c0 90")).ok());
  EXPECT_TRUE(decode_header(deep + unhex("920300 91 920190")).ok());  // a tensor nests no deeper
  EXPECT_THAT(refusal(deep + unhex("9100 90")), HasSubstr("at most 64"));
  for (std::size_t i = 0; i < 1'000'000; ++i) deep += unhex("9200");
  EXPECT_THAT(refusal(deep), HasSubstr("at most 64"));
  EXPECT_THAT(refusal(unhex("9301") + std::string(1'000'000, '\x91')), HasSubstr("without a tag"));
}

TEST(DecodeHeader, BoundsTheNumberOfNodes) {
  const auto list_of = [](std::uint32_t items) {
    std::string header = unhex("9301dd");
    for (int shift = 24; shift >= 0; shift -= 8) header += static_cast<char>((items + 1) >> shift & 0xFFU);
    return header + '\0' + std::string(items, '\xc0') + '\x90';
  };
  EXPECT_TRUE(decode_header(list_of(kMaxPayloadNodes - 1)).ok());
  EXPECT_THAT(refusal(list_of(kMaxPayloadNodes)), HasSubstr("too many values"));
  EXPECT_THAT(refusal(std::string(kMaxHeaderSize + 1, '\xc0')), HasSubstr("expected at most 8388608"));
}

TEST(DecodeHeader, RefusesDuplicateKeys) {
  EXPECT_THAT(refusal_hex("9301 9502a16101a16102 90"), HasSubstr("'a' twice"));
  EXPECT_THAT(refusal_hex("9301 95020501 cc0502 90"),
              HasSubstr("5 twice"));  // another encoding of the same int
  EXPECT_THAT(refusal_hex("9301 9502c4016101c4016102 90"), HasSubstr("b'a' twice"));
  EXPECT_TRUE(decode_header(unhex("9301 9502a16101c4016102 90")).ok());
  std::string many = unhex("9301dc00290200");
  many.pop_back();
  for (char c = 0; c < 20; ++c) many += std::string{c == 19 ? '\x03' : c, '\xc0'};
  EXPECT_THAT(refusal(many + '\x90'), HasSubstr("3 twice"));
}

TEST(DecodeHeader, RefusesTextThatIsNotUtf8) {
  EXPECT_THAT(refusal_hex("9301 a1ff 90"), HasSubstr("UTF-8"));
  EXPECT_THAT(refusal_hex("9301 a3eda080 90"), HasSubstr("UTF-8"));
  EXPECT_THAT(refusal_hex("9301 9302a1ffc0 90"), HasSubstr("UTF-8"));
  EXPECT_TRUE(decode_header(unhex("9301 c401ff 90")).ok());
}

TEST(DecodeHeader, AcceptsLongerEncodingsOfTheSameNumbers) {
  const auto header = decode_header(unhex("dd00000003 cc01 d30000000000000005 dc0000")).value();
  EXPECT_EQ(header.root, Value(5));
}

}  // namespace
}  // namespace stagewire
