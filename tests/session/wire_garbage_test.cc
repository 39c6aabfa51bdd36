// The frame decoder against hostile bodies: cut off, mutated, every field out of range, counts that lie.
#include <cstdint>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "session/wire.h"
#include "session/wire_examples.h"

namespace stagewire::wire {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::uint64_t kU64 = std::numeric_limits<std::uint64_t>::max();

// A msgpack writer that is independent of the one under test, and that can lie.
std::string big_endian(std::uint64_t value, int bytes) {
  std::string out;
  for (int i = bytes - 1; i >= 0; --i) out += static_cast<char>(value >> (8 * i) & 0xFFU);
  return out;
}
std::string num(std::uint64_t value) {
  return "\xCF" + big_endian(value, 8);
}
std::string arr(std::uint64_t count) {
  return "\xDD" + big_endian(count, 4);
}
std::string str(std::string_view value) {
  return "\xDB" + big_endian(value.size(), 4) + std::string(value);
}
std::string bin(std::string_view value) {
  return "\xC6" + big_endian(value.size(), 4) + std::string(value);
}
const std::string kNil = "\xC0";

/// A body from fields that are encoded already.
std::string body(const std::vector<std::string>& fields) {
  std::string out = arr(fields.size());
  for (const std::string& field : fields) out += field;
  return out;
}

/// The fields of a valid frame, for tests that change one of them.
using Fields = std::vector<std::pair<std::string, std::string>>;
Fields fields_of(FrameType type) {
  switch (type) {
    case FrameType::welcome:
      return {{"version", num(1)},      {"node", bin(std::string(16, 'n'))},
              {"name", str("a")},       {"boot_id", str("b")},
              {"unix_name", str("u")},  {"addresses", arr(1) + str("h:1")},
              {"lease_epoch", num(1)},  {"heartbeat_ms", num(1000)},
              {"lease_ms", num(1000)},  {"transports", arr(2) + str("tcp") + bin("x")},
              {"last_session", bin("")}};
    case FrameType::heartbeat:
      return {{"sent_ns", num(1)}, {"lease_epoch", num(1)}, {"settled_below", num(1)}};
    case FrameType::heartbeat_ack:
      return {{"sent_ns", num(1)}, {"lease_epoch", num(1)}};
    case FrameType::claim:
      return {{"claim", num(1)},        {"reader", str("r")},   {"name_space", str("n")},
              {"from_stage", str("f")}, {"to_stage", str("t")}, {"key", str("k")},
              {"generation", num(1)},   {"wait_ms", num(1)},    {"flags", num(1)},
              {"settled_below", num(1)}};
    case FrameType::grant:
      return {{"claim", num(1)},
              {"lease", num(1)},
              {"generation", num(1)},
              {"lease_epoch", num(1)},
              {"flags", num(0)},
              {"header", bin("h")},
              {"body_size", num(9)},
              {"ranges", arr(3) + num(1) + num(0) + num(9)},
              {"kind", arr(2) + num(0) + num(0)},
              {"inline_body", bin("")}};
    case FrameType::refuse:
      return {{"claim", num(1)}, {"kind", num(1)}, {"message", str("m")}};
    case FrameType::consumed:
    case FrameType::release:
      return {{"claim", num(1)}, {"lease", num(1)}};
    case FrameType::cancel_claim:
    case FrameType::settled:
      return {{"claim", num(1)}};
    case FrameType::memory:
      return {{"memory", num(1)},
              {"size", num(1)},
              {"kind", arr(2) + num(1) + num(3)},
              {"transport", str("shm")},
              {"token", bin("t")}};
    case FrameType::transport_message:
      return {{"transport", str("tcp")}, {"message", bin("m")}};
    case FrameType::lifeline:
      return {};
    case FrameType::goodbye:
      return {{"kind", num(1)}, {"message", str("m")}};
    case FrameType::memory_gone:
      return {{"memory", num(1)}};
  }
  return {};
}

std::string join(const Fields& fields) {
  std::vector<std::string> values;
  for (const auto& field : fields) values.push_back(field.second);
  return body(values);
}

std::vector<FrameType> all_types() {
  std::vector<FrameType> out;
  for (int type = 1; type <= static_cast<int>(kLastFrameType); ++type)
    out.push_back(static_cast<FrameType>(type));
  return out;
}

/// Replaces one field of a valid frame and gives the error text; checks that it is a protocol error that
/// names the frame type and the field.
std::string problem_with(FrameType type, const std::string& field, const std::string& value) {
  Fields fields = fields_of(type);
  bool found = false;
  for (auto& [name, bytes] : fields) {
    if (name != field) continue;
    bytes = value;
    found = true;
  }
  EXPECT_TRUE(found) << field;
  const Result<Frame> frame = decode_body(type, join(fields));
  EXPECT_FALSE(frame.ok()) << to_string(type) << "." << field << " was taken";
  if (frame.ok()) return {};
  EXPECT_EQ(frame.error().kind(), ErrorKind::protocol);
  EXPECT_THAT(frame.error().message(), AllOf(HasSubstr("bad " + std::string(to_string(type)) + " frame: "),
                                             HasSubstr("'" + field + "'")));
  return frame.error().message();
}

TEST(WireGarbage, TheHandMadeFramesAreValid) {
  for (const FrameType type : all_types()) {
    const Result<Frame> frame = decode_body(type, join(fields_of(type)));
    ASSERT_TRUE(frame.ok()) << frame.error();
    EXPECT_EQ(type_of(*frame), type);
  }
}

TEST(WireGarbage, EveryTruncationIsAnError) {
  for (const Frame& frame : example_frames()) {
    const std::string bytes = encoded_body(frame);
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      // A copy of exactly this size, so that AddressSanitizer sees a read beyond it.
      const std::vector<char> cut(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
      const Result<Frame> out = decode_body(type_of(frame), {cut.data(), cut.size()});
      ASSERT_FALSE(out.ok()) << to_string(type_of(frame)) << " cut at " << size;
      EXPECT_EQ(out.error().kind(), ErrorKind::protocol);
    }
  }
}

TEST(WireGarbage, TrailingBytesAreAnError) {
  for (const Frame& frame : example_frames()) {
    const Result<Frame> out = decode_body(type_of(frame), encoded_body(frame) + kNil);
    ASSERT_FALSE(out.ok()) << to_string(type_of(frame));
    EXPECT_THAT(out.error().message(), HasSubstr("1 bytes follow its body's array"));
  }
}

TEST(WireGarbage, MutationsNeverCrashAndWhatIsTakenCanBeSentAgain) {
  std::mt19937 random(20240601);
  int taken = 0;
  int refused = 0;
  for (const Frame& frame : example_frames()) {
    const std::string original = encoded_body(frame);
    for (int round = 0; round < 3000; ++round) {
      std::string bytes = original;
      const int changes = 1 + static_cast<int>(random() % 3);
      for (int i = 0; i < changes; ++i) {
        switch (random() % 3) {
          case 0:
            bytes[random() % bytes.size()] = static_cast<char>(random());
            break;
          case 1:
            bytes.insert(random() % (bytes.size() + 1), 1, static_cast<char>(random()));
            break;
          default:
            if (bytes.size() > 1) bytes.erase(random() % bytes.size(), 1);
            break;
        }
      }
      const Result<Frame> out = decode_body(type_of(frame), bytes);
      if (out.ok()) {
        ++taken;
        std::string again;
        const Status status = encode(*out, carries_descriptor(*out), 0, again);
        ASSERT_TRUE(status.ok()) << status.error();
      } else {
        ++refused;
        ASSERT_EQ(out.error().kind(), ErrorKind::protocol);
        ASSERT_EQ(printable(out.error().message(), 4096), out.error().message());
        ASSERT_LE(out.error().message().size(), 512U);
      }
    }
  }
  EXPECT_GT(taken, 100);
  EXPECT_GT(refused, 10'000);
}

TEST(WireGarbage, RandomBytesAsEveryType) {
  std::mt19937 random(7);
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes(random() % 40, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    for (const FrameType type : all_types()) {
      const Result<Frame> out = decode_body(type, bytes);
      if (!out.ok()) {
        ASSERT_EQ(out.error().kind(), ErrorKind::protocol);
      }
    }
  }
}

TEST(WireGarbage, MissingFieldsAreNamed) {
  for (const FrameType type : all_types()) {
    const Fields fields = fields_of(type);
    for (std::size_t keep = 0; keep < fields.size(); ++keep) {
      const Fields some(fields.begin(), fields.begin() + static_cast<std::ptrdiff_t>(keep));
      const Result<Frame> out = decode_body(type, join(some));
      ASSERT_FALSE(out.ok());
      EXPECT_THAT(out.error().message(), AllOf(HasSubstr("bad " + std::string(to_string(type)) + " frame"),
                                               HasSubstr("field '" + fields[keep].first + "' is missing")));
    }
  }
}

TEST(WireGarbage, UnknownTrailingFieldsAreIgnored) {
  const std::string extras[] = {kNil,
                                "\xC3",
                                num(kU64),
                                "\xD0\x80",
                                "\xCA" + std::string(4, '\0'),
                                "\xCB" + std::string(8, '\0'),
                                str("text"),
                                bin("bytes"),
                                "\xD4\x01\x02",
                                "\x82" + str("k") + arr(2) + num(1) + kNil + str("l") + "\x80",
                                arr(0),
                                arr(2) + arr(1) + str("deep") + bin(""),
                                arr(100'000) + std::string(100'000, '\0')};
  for (const FrameType type : all_types()) {
    Fields fields = fields_of(type);
    for (const std::string& extra : extras) fields.emplace_back("extra", extra);
    const Result<Frame> out = decode_body(type, join(fields));
    ASSERT_TRUE(out.ok()) << out.error();
    EXPECT_EQ(encoded(*out), encoded(decode_body(type, join(fields_of(type))).value()));
  }
}

TEST(WireGarbage, UnknownTrailingFieldsAreBoundedInDepthAndNumber) {
  Fields fields = fields_of(FrameType::settled);
  fields.emplace_back("extra", std::string(7, '\x91') + kNil);
  EXPECT_TRUE(decode_body(FrameType::settled, join(fields)).ok());
  fields.back().second = std::string(8, '\x91') + kNil;
  EXPECT_THAT(decode_body(FrameType::settled, join(fields)).error().message(),
              HasSubstr("nests deeper than 8 levels"));
  // A megabyte of openings must neither recurse nor keep a stack of that size.
  fields.back().second = std::string(1U << 20U, '\x91');
  EXPECT_FALSE(decode_body(FrameType::settled, join(fields)).ok());
  fields.back().second = std::string(1U << 20U, '\x81');
  EXPECT_FALSE(decode_body(FrameType::settled, join(fields)).ok());
  fields = fields_of(FrameType::settled);
  while (fields.size() < 64) fields.emplace_back("extra", kNil);
  EXPECT_TRUE(decode_body(FrameType::settled, join(fields)).ok());
  fields.emplace_back("extra", kNil);
  EXPECT_THAT(decode_body(FrameType::settled, join(fields)).error().message(),
              HasSubstr("65 fields; expected at most 64"));
}

TEST(WireGarbage, TheBodyMustBeAnArray) {
  for (const std::string& bytes :
       {kNil, std::string("\xC2"), num(1), std::string("\xFF"), str("x"), bin("x"), std::string("\x80"),
        std::string("\x81\x01\x01"), std::string("\xD4\x01\x02"), std::string("\xCA\0\0\0\0", 5)}) {
    for (const FrameType type : all_types()) {
      const Result<Frame> out = decode_body(type, bytes);
      ASSERT_FALSE(out.ok());
      EXPECT_EQ(out.error().kind(), ErrorKind::protocol);
      EXPECT_THAT(out.error().message(), HasSubstr("expected an array"));
    }
  }
  EXPECT_THAT(decode_body(FrameType::settled, "").error().message(), HasSubstr("its body is empty"));
  EXPECT_THAT(decode_body(FrameType::settled, "\xC1").error().message(), HasSubstr("not msgpack"));
  EXPECT_EQ(decode_body(static_cast<FrameType>(0), "\x90").error().kind(), ErrorKind::protocol);
  EXPECT_EQ(decode_body(static_cast<FrameType>(16), "\x90").error().kind(), ErrorKind::protocol);
}

TEST(WireGarbage, EveryFieldRefusesEveryWrongShape) {
  const std::pair<std::string, std::string> shapes[] = {{"nil", kNil},
                                                        {"bool", "\xC3"},
                                                        {"negative", "\xFF"},
                                                        {"negative64", "\xD3" + big_endian(kU64, 8)},
                                                        {"float", "\xCB" + std::string(8, '\0')},
                                                        {"ext", "\xD4\x01\x02"},
                                                        {"map", "\x80"},
                                                        {"map of one", "\x81\x01\x01"},
                                                        {"number", num(1)},
                                                        {"text", str("0123456789abcdef")},
                                                        {"bytes", bin("0123456789abcdef")},
                                                        {"list", arr(1) + kNil},
                                                        {"list of lists", arr(6) + std::string(6, '\x90')}};
  for (const FrameType type : all_types()) {
    for (const auto& [field, valid] : fields_of(type)) {
      for (const auto& [shape, bytes] : shapes) {
        const bool same = (shape == "number" && valid[0] == num(1)[0]) ||
                          (shape == "text" && valid[0] == str("")[0]) ||
                          (shape == "bytes" && valid[0] == bin("")[0]);
        // A grant's inline body and size are bound to each other and tested below.
        if (same) continue;
        problem_with(type, field, bytes);
      }
    }
  }
}

TEST(WireGarbage, SmallNumbersInSignedEncodingsAreTaken) {
  // Other msgpack writers may encode a positive number as a signed integer.
  const Result<Frame> out = decode_body(FrameType::settled, arr(1) + "\xD3" + big_endian(5, 8));
  ASSERT_TRUE(out.ok()) << out.error();
  EXPECT_EQ(std::get<Settled>(*out).claim, 5U);
}

TEST(WireGarbage, NumbersOutOfRange) {
  EXPECT_THAT(problem_with(FrameType::welcome, "version", num(0)), HasSubstr("0; expected 1 to 65535"));
  EXPECT_THAT(problem_with(FrameType::welcome, "version", num(0x10000)), HasSubstr("65536"));
  for (const char* field : {"heartbeat_ms", "lease_ms"}) {
    EXPECT_THAT(problem_with(FrameType::welcome, field, num(0)), HasSubstr("expected 1 to 86400000"));
    problem_with(FrameType::welcome, field, num(kMaxPeriodMs + 1));
    problem_with(FrameType::welcome, field, num(kU64));
  }
  problem_with(FrameType::claim, "wait_ms", num(std::uint64_t{1} << 32U));
  EXPECT_THAT(problem_with(FrameType::claim, "flags", num(2)),
              HasSubstr("is or contains 2; expected 0 to 1"));
  problem_with(FrameType::claim, "flags", num(0x101));
  EXPECT_THAT(problem_with(FrameType::grant, "flags", num(8)), HasSubstr("expected 0 to 7"));
  problem_with(FrameType::memory, "memory", num(std::uint64_t{1} << 32U));
  problem_with(FrameType::grant, "ranges", arr(3) + num(std::uint64_t{1} << 32U) + num(0) + num(9));
}

TEST(WireGarbage, MemoryKindsOutOfRange) {
  for (const FrameType type : {FrameType::grant, FrameType::memory}) {
    EXPECT_THAT(problem_with(type, "kind", arr(2) + num(2) + num(0)), HasSubstr("2; expected 0 to 1"));
    problem_with(type, "kind", arr(2) + num(0) + num(1));  // host memory has no device
    problem_with(type, "kind", arr(2) + num(1) + num(0x10000));
    EXPECT_THAT(problem_with(type, "kind", arr(1) + num(0)), HasSubstr("has 1 elements; expected 2"));
    problem_with(type, "kind", arr(0));
    problem_with(type, "kind", arr(3) + num(0) + num(0) + num(0));
    problem_with(type, "kind", arr(2) + num(0) + str("0"));
  }
}

TEST(WireGarbage, StringsOutOfRange) {
  const auto too_long = [](std::size_t max) { return std::string(max + 1, 'x'); };
  problem_with(FrameType::welcome, "node", bin(std::string(15, 'n')));
  problem_with(FrameType::welcome, "node", bin(std::string(17, 'n')));
  EXPECT_THAT(problem_with(FrameType::welcome, "node", bin(std::string(16, '\0'))), HasSubstr("all zeros"));
  problem_with(FrameType::welcome, "name", str(too_long(kMaxName)));
  problem_with(FrameType::welcome, "boot_id", str(too_long(kMaxName)));
  EXPECT_THAT(problem_with(FrameType::welcome, "boot_id", str("a\nb")), HasSubstr("'a\\x0ab'"));
  problem_with(FrameType::welcome, "boot_id", str("a b"));
  problem_with(FrameType::welcome, "unix_name", str(too_long(kMaxUnixName)));
  problem_with(FrameType::welcome, "unix_name", str(std::string_view("a\0b", 3)));
  problem_with(FrameType::welcome, "last_session", bin(std::string(15, 's')));
  problem_with(FrameType::welcome, "last_session", bin(std::string(17, 's')));
  for (const char* field : {"reader", "name_space", "from_stage", "to_stage", "key"}) {
    EXPECT_THAT(problem_with(FrameType::claim, field, str(too_long(kMaxName))),
                HasSubstr("is 1025 bytes long; expected 0 to 1024"));
  }
  problem_with(FrameType::grant, "header", bin(too_long(kMaxHeader)));
  problem_with(FrameType::grant, "inline_body", bin(too_long(kMaxInline)));
  problem_with(FrameType::refuse, "message", str(too_long(kMaxErrorText)));
  problem_with(FrameType::goodbye, "message", str(too_long(kMaxErrorText)));
  for (const FrameType type : {FrameType::memory, FrameType::transport_message}) {
    problem_with(type, "transport", str(too_long(kMaxTransportName)));
    problem_with(type, "transport", str(""));
    problem_with(type, "transport", str("\xFF"));
  }
  problem_with(FrameType::memory, "token", bin(too_long(kMaxTokenSize)));
  problem_with(FrameType::transport_message, "message", bin(too_long(kMaxMessage)));
}

TEST(WireGarbage, ListsOutOfRange) {
  std::string addresses = arr(kMaxAddresses + 1);
  for (std::size_t i = 0; i <= kMaxAddresses; ++i) addresses += str("h:1");
  EXPECT_THAT(problem_with(FrameType::welcome, "addresses", addresses), HasSubstr("17 elements"));
  problem_with(FrameType::welcome, "addresses", arr(1) + str(""));
  problem_with(FrameType::welcome, "addresses", arr(1) + str("h\x1b:1"));
  problem_with(FrameType::welcome, "addresses", arr(1) + str(std::string(kMaxName + 1, 'h')));
  problem_with(FrameType::welcome, "addresses", arr(1) + bin("h:1"));
  problem_with(FrameType::welcome, "addresses", arr(1) + num(1));

  std::string transports = arr(2 * (kMaxTransports + 1));
  for (std::size_t i = 0; i <= kMaxTransports; ++i) transports += str("t" + std::to_string(i)) + bin("");
  problem_with(FrameType::welcome, "transports", transports);
  problem_with(FrameType::welcome, "transports", arr(1) + str("tcp"));
  problem_with(FrameType::welcome, "transports", arr(2) + bin("tcp") + bin(""));
  problem_with(FrameType::welcome, "transports", arr(2) + str("tcp") + str(""));
  problem_with(FrameType::welcome, "transports", arr(2) + str("tcp") + num(1));
  problem_with(FrameType::welcome, "transports", arr(2) + str("") + bin(""));
  problem_with(FrameType::welcome, "transports", arr(2) + str(std::string(65, 't')) + bin(""));
  problem_with(FrameType::welcome, "transports",
               arr(2) + str("tcp") + bin(std::string(kMaxTokenSize + 1, 't')));
  problem_with(FrameType::welcome, "transports", arr(4) + str("tcp") + bin("") + str("tcp") + bin(""));

  problem_with(FrameType::grant, "ranges", arr(2) + num(1) + num(0));
  problem_with(FrameType::grant, "ranges", arr(4) + num(1) + num(0) + num(9) + num(1));
  problem_with(FrameType::grant, "ranges", arr(3) + num(1) + str("0") + num(9));
  problem_with(FrameType::grant, "ranges", arr(3) + num(1) + arr(0) + num(9));
}

TEST(WireGarbage, CountsThatLieReserveNothing) {
  // The claimed ranges would take 1.5 MiB; the body has 30 bytes.
  EXPECT_THAT(problem_with(FrameType::grant, "ranges", arr(3 * kMaxRanges)),
              HasSubstr("more elements than the body has bytes"));
  EXPECT_THAT(problem_with(FrameType::grant, "ranges", arr(3 * kMaxRanges + 3)),
              HasSubstr("expected at most 196608, a multiple of 3"));
  problem_with(FrameType::grant, "ranges", arr(0xFFFFFFFF));
  problem_with(FrameType::welcome, "addresses", arr(0xFFFFFFFF));
  // Lengths of strings and counts of fields beyond the end of the body.
  EXPECT_FALSE(decode_body(FrameType::grant, arr(0xFFFFFFFF)).ok());
  for (const char* header : {"\xDB\xFF\xFF\xFF\xFF", "\xC6\xFF\xFF\xFF\xFF", "\xC9\xFF\xFF\xFF\xFF\x01",
                             "\xDD\xFF\xFF\xFF\xFF", "\xDF\xFF\xFF\xFF\xFF"}) {
    EXPECT_FALSE(decode_body(FrameType::settled, arr(2) + num(1) + header).ok());
    EXPECT_FALSE(decode_body(FrameType::transport_message, arr(2) + header).ok());
  }
}

TEST(WireGarbage, GrantsMustAddUp) {
  const auto problem = [](std::uint64_t flags, std::uint64_t body_size, const std::string& ranges,
                          const std::string& inline_body) {
    Fields fields = fields_of(FrameType::grant);
    fields[4].second = num(flags);
    fields[6].second = num(body_size);
    fields[7].second = ranges;
    fields[9].second = bin(inline_body);
    const Result<Frame> out = decode_body(FrameType::grant, join(fields));
    if (out.ok()) return std::string();
    EXPECT_EQ(out.error().kind(), ErrorKind::protocol);
    return out.error().message();
  };
  const auto range = [](std::uint64_t offset, std::uint64_t length) {
    return num(1) + num(offset) + num(length);
  };
  EXPECT_EQ(problem(0, 9, arr(3) + range(0, 9), ""), "");
  EXPECT_EQ(problem(0, 0, arr(0), ""), "");
  EXPECT_EQ(problem(1, 0, arr(0), ""), "");
  EXPECT_EQ(problem(1, 3, arr(0), "abc"), "");
  EXPECT_EQ(problem(0, kU64, arr(6) + range(0, kU64 - 5) + range(7, 5), ""), "");
  EXPECT_THAT(problem(0, 8, arr(3) + range(0, 9), ""), HasSubstr("range 0 of field 'ranges' goes beyond"));
  EXPECT_THAT(problem(0, 10, arr(3) + range(0, 9), ""), HasSubstr("covers 9 bytes; expected body_size = 10"));
  EXPECT_THAT(problem(0, 9, arr(0), ""), HasSubstr("covers 0 bytes"));
  EXPECT_THAT(problem(0, 9, arr(6) + range(0, 9) + range(9, 0), ""),
              HasSubstr("range 1 of field 'ranges' is empty"));
  EXPECT_THAT(problem(0, 9, arr(3) + range(kU64 - 8, 9), ""), HasSubstr("ends above 2^64"));
  EXPECT_EQ(problem(0, 9, arr(3) + range(kU64 - 9, 9), ""), "");
  // The sum of the lengths wraps around to 9.
  EXPECT_THAT(problem(0, 9, arr(6) + range(0, kU64) + range(0, 10), ""),
              HasSubstr("goes beyond body_size = 9"));
  EXPECT_THAT(problem(0, 9, arr(3) + range(0, 9), "123456789"), HasSubstr("'inline_body' is not empty"));
  EXPECT_THAT(problem(1, 9, arr(3) + range(0, 9), "123456789"), HasSubstr("'ranges' is not empty"));
  EXPECT_THAT(problem(1, 9, arr(0), "12345678"),
              HasSubstr("'inline_body' has 8 bytes; expected body_size = 9"));
  EXPECT_THAT(problem(1, kU64, arr(0), ""), HasSubstr("'inline_body' has 0 bytes"));
}

TEST(WireGarbage, UnknownErrorKindsBecomeInternalWithTheirText) {
  for (const std::uint64_t kind : {std::uint64_t{25}, std::uint64_t{255}, std::uint64_t{256}, kU64}) {
    const Result<Frame> refuse =
        decode_body(FrameType::refuse, body({num(1), num(kind), str("newer trouble")}));
    ASSERT_TRUE(refuse.ok()) << refuse.error();
    EXPECT_EQ(std::get<Refuse>(*refuse).kind, ErrorKind::internal);
    EXPECT_EQ(std::get<Refuse>(*refuse).message, "newer trouble");
    const Result<Frame> goodbye = decode_body(FrameType::goodbye, body({num(kind), str("newer trouble")}));
    ASSERT_TRUE(goodbye.ok()) << goodbye.error();
    EXPECT_EQ(std::get<Goodbye>(*goodbye).kind, ErrorKind::internal);
    EXPECT_EQ(std::get<Goodbye>(*goodbye).message, "newer trouble");
  }
}

}  // namespace
}  // namespace stagewire::wire
