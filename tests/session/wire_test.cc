// The wire format: golden bytes, round trips with extremes, bounds of the encoder, frame headers and
// printable texts.
#include "session/wire.h"

#include <cstdint>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <set>
#include <string>

#include "session/wire_examples.h"

namespace stagewire::wire {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kU64 = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint32_t kU32 = std::numeric_limits<std::uint32_t>::max();

std::string hex(std::string_view bytes) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string out;
  for (const char c : bytes) {
    out += digits[static_cast<unsigned char>(c) >> 4U];
    out += digits[static_cast<unsigned char>(c) & 0xFU];
  }
  return out;
}

std::string from_hex(std::string_view text) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::string out;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    out += static_cast<char>(digit(text[i]) << 4 | digit(text[i + 1]));
  }
  return out;
}

/// Encodes, decodes header and body, and gives the decoded frame.
Frame round_trip(const Frame& frame) {
  const std::string bytes = encoded(frame);
  const FrameHeader header =
      decode_frame_header(std::string_view(bytes).substr(0, kFrameHeaderSize), 0).value();
  EXPECT_EQ(header.type, type_of(frame));
  EXPECT_EQ(header.length, bytes.size() - 4);
  EXPECT_EQ(header.with_descriptor, carries_descriptor(frame));
  return decode_body(header.type, std::string_view(bytes).substr(kFrameHeaderSize)).value();
}

template <typename F>
F round_trip_as(const F& frame) {
  return std::get<F>(round_trip(Frame(frame)));
}

std::string encode_problem(const Frame& frame) {
  std::string out = "before";
  const Status status = encode(frame, carries_descriptor(frame), 0, out);
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(out, "before");
  if (status.ok()) return {};
  EXPECT_EQ(status.error().kind(), ErrorKind::internal);
  return status.error().message();
}

// The bytes of protocol version 1. A change here is a change of the protocol.
const char* const kGolden[] = {
    // welcome
    "6c00000001000000"
    "9b01c410a0a1a2a3a4a5a6a7a8a9aaabacadaeafa77468696e6b6572a3622d31a2737792ae313237"
    "2e302e302e313a37303030aa5b3a3a315d3a3730303003cd03e8cd271094a373686dc4026869a374"
    "6370c40200ffc41030313233343536373839616263646566",
    // heartbeat
    "0c00000002000000"
    "93ce3b9aca070305",
    // heartbeat_ack
    "0b00000003000000"
    "92ce3b9aca0704",
    // claim
    "2300000004000000"
    "9a07a27230a437303030a26172a3646974a57265712d31cd012ccd75300105",
    // cancel_claim
    "0600000005000000"
    "9107",
    // grant
    "3200000006000000"
    "9a07ce00011170cd012c0302c403484452cd03009601cd0100cd020002cf000000012a05f200cd01"
    "00920101c400",
    // grant
    "1a00000006000000"
    "9a0809010301c4034844520490920000c40401020004",
    // refuse
    "1300000007000000"
    "930704ab61206e65776572206f6e65",
    // consumed
    "0b00000008000000"
    "9207ce00011170",
    // release
    "0700000009000000"
    "920809",
    // settled
    "060000000a000000"
    "9107",
    // memory
    "170000000b000000"
    "9502ce40000000920000a373686dc403746f6b",
    // transport_message
    "0f0000000c000000"
    "92a3746370c404006d7367",
    // lifeline
    "050000000d010000"
    "90",
    // goodbye
    "0a0000000e000000"
    "9214a3627965",
    // memory_gone
    "0a0000000f000000"
    "91ce00011170",
};

TEST(WireGolden, EveryFrameHasTheBytesOfVersion1) {
  const std::vector<Frame> frames = example_frames();
  ASSERT_EQ(frames.size(), std::size(kGolden));
  for (std::size_t i = 0; i < frames.size(); ++i) {
    EXPECT_EQ(hex(encoded(frames[i])), kGolden[i]) << i << " " << to_string(type_of(frames[i]));
  }
}

TEST(WireGolden, TheBytesOfVersion1AreUnderstood) {
  const std::vector<Frame> frames = example_frames();
  std::set<FrameType> seen;
  for (std::size_t i = 0; i < frames.size(); ++i) {
    const std::string bytes = from_hex(kGolden[i]);
    const Result<FrameHeader> header =
        decode_frame_header(std::string_view(bytes).substr(0, kFrameHeaderSize), 0);
    ASSERT_TRUE(header.ok()) << header.error();
    seen.insert(header->type);
    const Result<Frame> frame = decode_body(header->type, std::string_view(bytes).substr(kFrameHeaderSize));
    ASSERT_TRUE(frame.ok()) << frame.error();
    EXPECT_EQ(frame->index(), frames[i].index());
    EXPECT_EQ(encoded(*frame), bytes);
  }
  EXPECT_EQ(seen.size(), std::variant_size_v<Frame>);
}

TEST(WireGolden, ErrorKindsKeepTheirNumbers) {
  const ErrorKind in_order[] = {
      ErrorKind::invalid_argument, ErrorKind::config,      ErrorKind::deadline_exceeded,
      ErrorKind::cancelled,        ErrorKind::replaced,    ErrorKind::expired,
      ErrorKind::consumed,         ErrorKind::not_found,   ErrorKind::peer_restarted,
      ErrorKind::peer_lost,        ErrorKind::lease_lost,  ErrorKind::unreachable,
      ErrorKind::auth_failed,      ErrorKind::protocol,    ErrorKind::version_mismatch,
      ErrorKind::pool_exhausted,   ErrorKind::too_large,   ErrorKind::destination_held,
      ErrorKind::not_viable,       ErrorKind::busy,        ErrorKind::closed,
      ErrorKind::forked,           ErrorKind::interrupted, ErrorKind::io,
      ErrorKind::internal};
  for (std::size_t i = 0; i < std::size(in_order); ++i) {
    EXPECT_EQ(encoded_body(Goodbye{in_order[i], ""}), std::string("\x92") + static_cast<char>(i) + "\xA0");
    EXPECT_EQ(round_trip_as(Goodbye{in_order[i], ""}).kind, in_order[i]);
  }
}

TEST(WireRoundTrip, WelcomeKeepsEveryField) {
  const Welcome in = example_welcome();
  const Welcome out = round_trip_as(in);
  EXPECT_EQ(out.version, in.version);
  EXPECT_EQ(out.node, in.node);
  EXPECT_EQ(out.name, in.name);
  EXPECT_EQ(out.boot_id, in.boot_id);
  EXPECT_EQ(out.unix_name, in.unix_name);
  EXPECT_EQ(out.addresses, in.addresses);
  EXPECT_EQ(out.lease_epoch, in.lease_epoch);
  EXPECT_EQ(out.heartbeat_ms, in.heartbeat_ms);
  EXPECT_EQ(out.lease_ms, in.lease_ms);
  EXPECT_EQ(out.transports, in.transports);
  EXPECT_EQ(out.last_session, in.last_session);
}

TEST(WireRoundTrip, WelcomeAtItsBounds) {
  Welcome in = example_welcome();
  in.version = 0xFFFF;
  in.name = std::string(kMaxName, 'n');
  in.boot_id = std::string(kMaxName, 'b');
  in.unix_name = "/" + std::string(kMaxUnixName - 1, '\xE9');
  in.addresses.assign(kMaxAddresses, std::string(kMaxName, 'a'));
  in.lease_epoch = kU64;
  in.heartbeat_ms = kMaxPeriodMs;
  in.lease_ms = 1;
  in.transports.clear();
  for (std::size_t i = 0; i < kMaxTransports; ++i) {
    in.transports.emplace_back(std::string(kMaxTransportName - 1, 't') + static_cast<char>('a' + i),
                               std::string(2000, '\0'));
  }
  const Welcome out = round_trip_as(in);
  EXPECT_EQ(out.version, in.version);
  EXPECT_EQ(out.name, in.name);
  EXPECT_EQ(out.boot_id, in.boot_id);
  EXPECT_EQ(out.unix_name, in.unix_name);
  EXPECT_EQ(out.addresses, in.addresses);
  EXPECT_EQ(out.lease_epoch, in.lease_epoch);
  EXPECT_EQ(out.heartbeat_ms, in.heartbeat_ms);
  EXPECT_EQ(out.lease_ms, in.lease_ms);
  EXPECT_EQ(out.transports, in.transports);

  // Each part is within its bound, but not all together.
  for (auto& transport : in.transports) transport.second.resize(kMaxTokenSize);
  EXPECT_THAT(encode_problem(in), HasSubstr("expected at most 65536"));
}

TEST(WireRoundTrip, WelcomeWithEmptyFields) {
  Welcome in;
  in.node = example_node();
  in.heartbeat_ms = 1;
  in.lease_ms = kMaxPeriodMs;
  const Welcome out = round_trip_as(in);
  EXPECT_EQ(out.name, "");
  EXPECT_EQ(out.unix_name, "");
  EXPECT_TRUE(out.addresses.empty());
  EXPECT_TRUE(out.transports.empty());
  EXPECT_EQ(out.last_session, "");
}

TEST(WireRoundTrip, ClaimKeepsEveryField) {
  Claim extreme;
  extreme.claim = kU64;
  extreme.reader = std::string(kMaxName, '\xFF');
  extreme.name_space = std::string(kMaxName, '\0');
  extreme.from_stage = "\n";
  extreme.to_stage = std::string(kMaxName, 'x');
  extreme.key = "schlüssel/鍵";
  extreme.generation = kU64;
  extreme.wait_ms = kU32;
  extreme.flags = Claim::kWantView;
  extreme.settled_below = kU64;
  for (const Claim& in : {example_claim(), Claim{}, extreme}) {
    const Claim out = round_trip_as(in);
    EXPECT_EQ(out.claim, in.claim);
    EXPECT_EQ(out.reader, in.reader);
    EXPECT_EQ(out.name_space, in.name_space);
    EXPECT_EQ(out.from_stage, in.from_stage);
    EXPECT_EQ(out.to_stage, in.to_stage);
    EXPECT_EQ(out.key, in.key);
    EXPECT_EQ(out.generation, in.generation);
    EXPECT_EQ(out.wait_ms, in.wait_ms);
    EXPECT_EQ(out.flags, in.flags);
    EXPECT_EQ(out.settled_below, in.settled_below);
  }
}

void expect_same(const Grant& out, const Grant& in) {
  EXPECT_EQ(out.claim, in.claim);
  EXPECT_EQ(out.lease, in.lease);
  EXPECT_EQ(out.generation, in.generation);
  EXPECT_EQ(out.lease_epoch, in.lease_epoch);
  EXPECT_EQ(out.flags, in.flags);
  EXPECT_EQ(out.header, in.header);
  EXPECT_EQ(out.body_size, in.body_size);
  EXPECT_EQ(out.ranges, in.ranges);
  EXPECT_EQ(out.kind, in.kind);
  EXPECT_EQ(out.inline_body, in.inline_body);
}

TEST(WireRoundTrip, GrantKeepsEveryField) {
  Grant extreme;
  extreme.claim = extreme.lease = extreme.generation = extreme.lease_epoch = kU64;
  extreme.body_size = kU64;
  extreme.ranges = {{kU32, 0, kU64 - 1}, {0, kU64 - 1, 1}};
  extreme.kind = MemoryKind{MemoryKind::Type::cuda, 0xFFFF};
  Grant inline_most;
  inline_most.flags = Grant::kInline | Grant::kCopyOnly;
  inline_most.inline_body = std::string(kMaxInline, '\xC1');
  inline_most.body_size = kMaxInline;
  Grant inline_nothing;
  inline_nothing.flags = Grant::kInline;
  for (const Grant& in :
       {example_grant(), example_inline_grant(), Grant{}, extreme, inline_most, inline_nothing}) {
    expect_same(round_trip_as(in), in);
  }
}

TEST(WireRoundTrip, TheLargestGrantFitsAFrame) {
  Grant in;
  in.header = std::string(kMaxHeader, 'h');
  for (std::size_t i = 0; i < kMaxRanges; ++i) {
    in.ranges.push_back({kU32, std::uint64_t{1} << 63U, std::uint64_t{1} << 40U});
    in.body_size += std::uint64_t{1} << 40U;
  }
  expect_same(round_trip_as(in), in);
  in.ranges.push_back({1, 0, 1});
  in.body_size += 1;
  EXPECT_THAT(encode_problem(in), HasSubstr("field 'ranges' has 65537 entries; expected at most 65536"));
}

TEST(WireRoundTrip, SmallFramesKeepEveryField) {
  const Heartbeat heartbeat = round_trip_as(Heartbeat{kU64, 0x80, 0xFFFF});
  EXPECT_EQ(heartbeat.sent_ns, kU64);
  EXPECT_EQ(heartbeat.lease_epoch, 0x80U);
  EXPECT_EQ(heartbeat.settled_below, 0xFFFFU);
  const HeartbeatAck ack = round_trip_as(HeartbeatAck{0, kU64});
  EXPECT_EQ(ack.sent_ns, 0U);
  EXPECT_EQ(ack.lease_epoch, kU64);
  EXPECT_EQ(round_trip_as(CancelClaim{kU64}).claim, kU64);
  EXPECT_EQ(round_trip_as(Settled{0x7F}).claim, 0x7FU);
  const Consumed consumed = round_trip_as(Consumed{kU64, 1});
  EXPECT_EQ(consumed.claim, kU64);
  EXPECT_EQ(consumed.lease, 1U);
  const Release release = round_trip_as(Release{1, kU64});
  EXPECT_EQ(release.claim, 1U);
  EXPECT_EQ(release.lease, kU64);
  round_trip_as(Lifeline{});
}

TEST(WireRoundTrip, MemoryKeepsEveryField) {
  Memory extreme;
  extreme.memory = kU32;
  extreme.size = kU64;
  extreme.kind = MemoryKind{MemoryKind::Type::cuda, 0xFFFF};
  extreme.transport = std::string(kMaxTransportName, 't');
  extreme.token = std::string(kMaxTokenSize, '\0');
  for (const Memory& in : {example_memory(), extreme}) {
    const Memory out = round_trip_as(in);
    EXPECT_EQ(out.memory, in.memory);
    EXPECT_EQ(out.size, in.size);
    EXPECT_EQ(out.kind, in.kind);
    EXPECT_EQ(out.transport, in.transport);
    EXPECT_EQ(out.token, in.token);
  }
}

TEST(WireRoundTrip, TransportMessageKeepsEveryField) {
  const TransportMessage out =
      round_trip_as(TransportMessage{std::string(kMaxTransportName, '~'), std::string(kMaxMessage, '\xFE')});
  EXPECT_EQ(out.transport, std::string(kMaxTransportName, '~'));
  EXPECT_EQ(out.message, std::string(kMaxMessage, '\xFE'));
}

TEST(WireRoundTrip, TextsForPeopleArrivePrintableAndCut) {
  const Refuse refuse = round_trip_as(Refuse{1, ErrorKind::not_found, "no\nkey\x1b[31m 'ä\xFF'"});
  EXPECT_EQ(refuse.message, "no\\x0akey\\x1b[31m 'ä\\xff'");
  EXPECT_EQ(round_trip_as(Refuse{1, ErrorKind::not_found, refuse.message}).message, refuse.message);
  const Goodbye goodbye = round_trip_as(Goodbye{ErrorKind::closed, std::string(kMaxErrorText + 1, 'x')});
  EXPECT_EQ(goodbye.message, std::string(kMaxErrorText - 3, 'x') + "…");
  // Printable as sent, but longer once escaped: cut on arrival.
  const Goodbye escaped = round_trip_as(Goodbye{ErrorKind::closed, std::string(kMaxErrorText, '\n')});
  EXPECT_LE(escaped.message.size(), kMaxErrorText);
  EXPECT_THAT(escaped.message, testing::EndsWith("\\x0a…"));
}

TEST(WireEncode, AppendsAndCountsTheTag) {
  std::string out = "before";
  ASSERT_TRUE(encode(Settled{1}, false, kTagSize, out).ok());
  EXPECT_EQ(hex(out), hex("before") + "160000000a000000" + "9101");
  ASSERT_TRUE(encode(Lifeline{}, true, 0, out).ok());
  EXPECT_EQ(hex(out), hex("before") + "160000000a000000" + "9101" + "050000000d010000" + "90");
}

TEST(WireEncode, RefusesDescriptorsWhereNoneBelong) {
  std::string out;
  EXPECT_FALSE(encode(Settled{1}, true, 0, out).ok());
  EXPECT_FALSE(encode(Lifeline{}, false, 0, out).ok());
  EXPECT_TRUE(out.empty());
  EXPECT_TRUE(encode(example_memory(), true, 0, out).ok());
  EXPECT_TRUE(encode(example_memory(), false, 0, out).ok());
}

TEST(WireEncode, RefusesAnOddTagSize) {
  std::string out;
  EXPECT_FALSE(encode(Settled{1}, false, 5, out).ok());
}

TEST(WireEncode, ReportsBrokenBounds) {
  Claim claim = example_claim();
  claim.key = std::string(kMaxName + 1, 'k');
  EXPECT_THAT(encode_problem(claim), HasSubstr("claim frame cannot be sent: field 'key' is 1025 bytes long"));
  claim = example_claim();
  claim.flags = 2;
  EXPECT_THAT(encode_problem(claim), HasSubstr("field 'flags' is 2"));
  Welcome welcome = example_welcome();
  welcome.heartbeat_ms = 0;
  EXPECT_THAT(encode_problem(welcome), HasSubstr("field 'heartbeat_ms' is 0"));
  welcome = example_welcome();
  welcome.node = NodeId{};
  EXPECT_THAT(encode_problem(welcome), HasSubstr("field 'node' is all zeros"));
  welcome = example_welcome();
  welcome.transports = {{"tcp", ""}, {"tcp", ""}};
  EXPECT_THAT(encode_problem(welcome), HasSubstr("names 'tcp' twice"));
  welcome = example_welcome();
  welcome.last_session.pop_back();
  EXPECT_THAT(encode_problem(welcome), HasSubstr("field 'last_session' has 15 bytes; expected 0 or 16"));
  Grant grant = example_grant();
  grant.body_size += 1;
  EXPECT_THAT(encode_problem(grant), HasSubstr("covers 768 bytes; expected body_size = 769"));
  grant = example_grant();
  grant.kind = MemoryKind{MemoryKind::Type::host, 1};
  EXPECT_THAT(encode_problem(grant), HasSubstr("field 'kind' is host memory with a device number"));
  Memory memory = example_memory();
  memory.transport = "";
  EXPECT_THAT(encode_problem(memory), HasSubstr("field 'transport' is 0 bytes long; expected 1 to 64"));
  EXPECT_THAT(encode_problem(TransportMessage{"tcp", std::string(kMaxMessage + 1, 'x')}),
              HasSubstr("field 'message' is 65537 bytes long"));
}

std::string header_problem(std::string_view hex_bytes, std::size_t tag_size = 0,
                           std::uint32_t limit = kMaxFrame) {
  const Result<FrameHeader> header = decode_frame_header(from_hex(hex_bytes), tag_size, limit);
  EXPECT_FALSE(header.ok());
  if (header.ok()) return {};
  EXPECT_EQ(header.error().kind(), ErrorKind::protocol);
  return header.error().message();
}

TEST(WireHeader, BoundsTheLength) {
  EXPECT_EQ(decode_frame_header(from_hex("0400000006000000"), 0)->length, 4U);
  EXPECT_EQ(decode_frame_header(from_hex("1400000006000000"), kTagSize)->length, 20U);
  EXPECT_EQ(decode_frame_header(from_hex("0000000106000000"), 0)->length, kMaxFrame);
  EXPECT_EQ(decode_frame_header(from_hex("0000010001000000"), 0)->length, kMaxWelcome);
  EXPECT_THAT(header_problem("0300000006000000"),
              HasSubstr("bad grant frame: its length is 3; expected 4 to"));
  EXPECT_THAT(header_problem("1300000006000000", kTagSize), HasSubstr("its length is 19; expected 20 to"));
  EXPECT_THAT(header_problem("0100000106000000"), HasSubstr("expected 4 to 16777216"));
  EXPECT_THAT(header_problem("ffffffff06000000"), HasSubstr("its length is 4294967295"));
  EXPECT_THAT(header_problem("0100010001000000"),
              HasSubstr("welcome frame: its length is 65537; expected 4 to 65536"));
  EXPECT_THAT(header_problem("0101000006000000", 0, 256), HasSubstr("expected 4 to 256"));
}

TEST(WireHeader, RefusesUnknownTypesAndBits) {
  EXPECT_THAT(header_problem("0500000000000000"), HasSubstr("unknown type 0"));
  EXPECT_THAT(header_problem("0500000010000000"), HasSubstr("unknown type 16; expected 1 to 15"));
  EXPECT_THAT(header_problem("05000000ff000000"), HasSubstr("unknown type 255"));
  EXPECT_THAT(header_problem("050000000b020000"), HasSubstr("reserved bits set (flags 2"));
  EXPECT_THAT(header_problem("050000000b800000"), HasSubstr("flags 128"));
  EXPECT_THAT(header_problem("050000000b000100"), HasSubstr("reserved 1"));
  EXPECT_THAT(header_problem("050000000b000001"), HasSubstr("reserved 256"));
}

TEST(WireHeader, DescriptorsBelongToMemoryAndLifelineAlone) {
  for (int type = 1; type <= static_cast<int>(kLastFrameType); ++type) {
    std::string bytes = from_hex("0500000000010000");
    bytes[4] = static_cast<char>(type);
    const bool may =
        type == static_cast<int>(FrameType::memory) || type == static_cast<int>(FrameType::lifeline);
    EXPECT_EQ(decode_frame_header(bytes, 0).ok(), may) << type;
    bytes[5] = 0;
    EXPECT_EQ(decode_frame_header(bytes, 0).ok(), type != static_cast<int>(FrameType::lifeline)) << type;
  }
}

TEST(WireHeader, NeedsExactlyEightBytes) {
  EXPECT_EQ(decode_frame_header("1234567", 0).error().kind(), ErrorKind::internal);
  EXPECT_EQ(decode_frame_header("", 0).error().kind(), ErrorKind::internal);
}

TEST(WireNames, EveryTypeHasItsOwn) {
  std::set<std::string_view> names;
  for (int type = 1; type <= static_cast<int>(kLastFrameType); ++type)
    names.insert(to_string(static_cast<FrameType>(type)));
  EXPECT_EQ(names.size(), static_cast<std::size_t>(kLastFrameType));
  EXPECT_EQ(names.count("unknown"), 0U);
  EXPECT_EQ(to_string(static_cast<FrameType>(16)), "unknown");
}

TEST(Printable, EscapesWhatCouldForgeALog) {
  EXPECT_EQ(printable("plain text, ünïcode, 鍵, 😀"), "plain text, ünïcode, 鍵, 😀");
  EXPECT_EQ(printable(std::string_view("a\0b\tc\x7F", 6)), "a\\x00b\\x09c\\x7f");
  EXPECT_EQ(printable("\xC2\x85"), "\\xc2\\x85");                    // C1 control: next line
  EXPECT_EQ(printable("\xE2\x80\xAE!"), "\\xe2\\x80\\xae!");         // right-to-left override
  EXPECT_EQ(printable("\xE2\x81\xA6"), "\\xe2\\x81\\xa6");           // isolate
  EXPECT_EQ(printable("\xC0\xAF"), "\\xc0\\xaf");                    // overlong
  EXPECT_EQ(printable("\xED\xA0\x80"), "\\xed\\xa0\\x80");           // surrogate
  EXPECT_EQ(printable("\xF4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");  // above U+10FFFF
  EXPECT_EQ(printable("\xE9"), "\\xe9");
  EXPECT_EQ(printable("x\xF0\x9F\x98"), "x\\xf0\\x9f\\x98");  // cut off
}

TEST(Printable, CutsAtCharacters) {
  EXPECT_EQ(printable("abcdef", 6), "abcdef");
  EXPECT_EQ(printable("abcdefg", 6), "abc…");
  EXPECT_EQ(printable("äöüß", 7), "äö…");
  EXPECT_EQ(printable("\n\n\n", 11), "\\x0a\\x0a…");
  EXPECT_EQ(printable("abc", 2), "");
  EXPECT_EQ(printable("abc", 0), "");
  EXPECT_EQ(printable("", 0), "");
}

}  // namespace
}  // namespace stagewire::wire
