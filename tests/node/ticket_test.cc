// The text form of tickets: what is written can be read, and nothing else is taken for one.
#include <gtest/gtest.h>
#include <random>

#include <stagewire/node/ticket.h>

#include "node/lender_fixture.h"

namespace stagewire::test {
namespace {

Ticket example() {
  Ticket ticket;
  ticket.addresses = {"10.0.0.1:4711", "[::1]:9", "unix:@stagewire-node-x"};
  ticket.node = node_named(0xab);
  ticket.key = Key{.name_space = "50051", .from_stage = "thinker", .to_stage = "talker", .key = "req-1"};
  ticket.generation = 42;
  ticket.size = 195'000'000;
  return ticket;
}

TEST(Ticket, TextRoundTrip) {
  const std::string text = example().to_text();
  for (const char c : text) EXPECT_TRUE(c > ' ' && c <= '~') << text;
  const Result<Ticket> back = Ticket::parse(text);
  ASSERT_TRUE(back.ok()) << back.error();
  EXPECT_EQ(*back, example());
}

TEST(Ticket, KeysOfAnyBytesSurvive) {
  Ticket ticket = example();
  std::string every;
  for (int i = 0; i < 256; ++i) every += static_cast<char>(i);
  ticket.key = Key{.name_space = "a|b", .from_stage = "", .to_stage = "%41,|\n", .key = every};
  ticket.addresses = {"unix:/tmp/with space,comma|bar"};
  const Result<Ticket> back = Ticket::parse(ticket.to_text());
  ASSERT_TRUE(back.ok()) << back.error();
  EXPECT_EQ(*back, ticket);
}

TEST(Ticket, LimitsAreReachable) {
  Ticket ticket = example();
  ticket.generation = UINT64_MAX;
  ticket.size = UINT64_MAX;
  ticket.addresses.assign(16, "h:1");
  const std::string longest(1024, '\xff');
  ticket.key = Key{.name_space = longest, .from_stage = longest, .to_stage = longest, .key = longest};
  const Result<Ticket> back = Ticket::parse(ticket.to_text());
  ASSERT_TRUE(back.ok()) << back.error();
  EXPECT_EQ(*back, ticket);
}

TEST(Ticket, HostileTextIsRefusedWithTheFieldNamed) {
  const std::string id = node_named(1).hex();
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "form"},
      {"swt1", "form"},
      {"swt2|" + id + "|1|2|a:1|n|f|t|k", "form"},
      {"swt1|" + id + "|1|2|a:1|n|f|t|k|more", "form"},
      {"swt1|" + id + "|0|2|a:1|n|f|t|k", "generation"},
      {"swt1|" + id + "|-1|2|a:1|n|f|t|k", "generation"},
      {"swt1|" + id + "|18446744073709551616|2|a:1|n|f|t|k", "generation"},
      {"swt1|" + id + "|1|2x|a:1|n|f|t|k", "size"},
      {"swt1|" + id + "|1||a:1|n|f|t|k", "size"},
      {"swt1|" + id + "|1|2|a b|n|f|t|k", "address"},
      {"swt1|" + id + "|1|2|a:1|%|f|t|k", "namespace"},
      {"swt1|" + id + "|1|2|a:1|%4|f|t|k", "namespace"},
      {"swt1|" + id + "|1|2|a:1|n|%zz|t|k", "from_stage"},
      {"swt1|" + id + "|1|2|a:1|n|f|%-1|k", "to_stage"},
      {"swt1|" + id + "|1|2|a:1|n|f|t|\n", "key"},
      {"swt1|" + id + "|1|2|a:1|n|f|t|" + std::string(1025, 'k'), "key"},
      {"swt1|" + id + "|1|2|a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a|n|f|t|k", "addresses"},
      {std::string(1 << 20, '|'), "64 KiB"},
      {"swt1|xyz|1|2|a:1|n|f|t|k", ""},
  };
  for (const auto& [text, field] : cases) {
    const Result<Ticket> ticket = Ticket::parse(text);
    ASSERT_FALSE(ticket.ok()) << text.substr(0, 100);
    EXPECT_EQ(ticket.error().kind(), ErrorKind::invalid_argument);
    EXPECT_NE(ticket.error().message().find(field), std::string::npos)
        << text.substr(0, 100) << ": " << ticket.error().message();
  }
}

TEST(Ticket, MutatedTextNeverMisbehaves) {
  std::mt19937 random(7);
  const std::string text = example().to_text();
  for (int i = 0; i < 20'000; ++i) {
    std::string mutated = text;
    for (int edits = 1 + static_cast<int>(random() % 3); edits > 0; --edits)
      mutated[random() % mutated.size()] = static_cast<char>(random());
    if (random() % 4 == 0) mutated.resize(random() % mutated.size());
    if (const Result<Ticket> ticket = Ticket::parse(mutated); ticket.ok()) {
      const Result<Ticket> again = Ticket::parse(ticket->to_text());
      ASSERT_TRUE(again.ok());
      EXPECT_EQ(*again, *ticket);
    }
  }
}

TEST(Key, PrintsItsParts) {
  EXPECT_EQ((Key{.name_space = "", .from_stage = "", .to_stage = "", .key = "k"}.to_string()), "k");
  const std::string whole =
      Key{.name_space = "n", .from_stage = "f", .to_stage = "t", .key = "k"}.to_string();
  for (const char* part : {"n", "f", "t", "k"}) EXPECT_NE(whole.find(part), std::string::npos);
}

}  // namespace
}  // namespace stagewire::test
