// A Lender with a fake output and a clock that the test moves. Header only; the test's thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "node/lender.h"

namespace stagewire::test {

inline Key key_named(std::string key) {
  Key result;
  result.key = std::move(key);
  return result;
}

inline NodeId node_named(std::uint8_t number) {
  NodeId id;
  id.bytes.fill(number);
  return id;
}

class FakeOutput final : public LenderOutput {
 public:
  struct Sent {
    NodeId reader;
    wire::Frame frame;
    bool lazy = false;
  };
  void send(const NodeId& reader, wire::Frame frame) override {
    sent.push_back({.reader = reader, .frame = std::move(frame), .lazy = false});
  }
  void send_lazily(const NodeId& reader, wire::Frame frame) override {
    sent.push_back({.reader = reader, .frame = std::move(frame), .lazy = true});
  }
  void on_lease(LeaseId lease, const NodeId& /*reader*/, const Publication& /*publication*/) override {
    EXPECT_TRUE(leases.insert(lease).second) << "a lease number was used twice";
  }
  void on_lease_end(LeaseId lease) override { EXPECT_EQ(leases.erase(lease), 1U) << "a lease ended twice"; }
  std::uint64_t lease_epoch_for(const NodeId& /*reader*/) override { return epoch; }

  std::deque<Sent> sent;
  std::set<LeaseId> leases;
  std::uint64_t epoch = 7;
};

/// What a test publishes.
struct PublishHow {
  std::string key = "k";
  std::uint32_t readers = 1;
  Time ttl = std::chrono::seconds(300);
  Time max_lifetime = std::chrono::minutes(30);
  std::string inline_bytes = {};
  std::uint64_t generation = 0;  ///< 0: the next
};

class LenderTest : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kSize = 1000;

  std::uint64_t publish(PublishHow how = {}) {
    PublicationFacts facts;
    facts.key.key = how.key;
    facts.generation = how.generation != 0 ? how.generation : next_generation++;
    facts.header = "header of " + std::to_string(facts.generation);
    facts.size = kSize;
    facts.readers = how.readers;
    facts.ttl = how.ttl;
    facts.max_lifetime = how.max_lifetime;
    facts.body = std::make_shared<SourceBody>();
    facts.body->released = [this, generation = facts.generation](EndReason reason) {
      released.emplace_back(generation, reason);
    };
    if (how.inline_bytes.empty()) {
      facts.ranges = {RemoteRange{.memory = 1, .offset = 256, .length = kSize}};
    } else {
      facts.is_inline = true;
      facts.size = how.inline_bytes.size();
      facts.body->inline_bytes = BlockCache::make()->take(how.inline_bytes.size());
      std::memcpy(facts.body->inline_bytes.data(), how.inline_bytes.data(), how.inline_bytes.size());
    }
    const std::uint64_t generation = facts.generation;
    lender.publish(std::move(facts), now);
    return generation;
  }

  wire::Claim claim_of(std::uint64_t number, std::uint64_t generation = 0, std::uint32_t wait_ms = 1000) {
    wire::Claim claim;
    claim.claim = number;
    claim.key = "k";
    claim.generation = generation;
    claim.wait_ms = wait_ms;
    return claim;
  }
  void claim(const NodeId& reader, std::uint64_t number, std::uint64_t generation = 0,
             std::uint32_t wait_ms = 1000) {
    lender.on_claim(reader, claim_of(number, generation, wait_ms), now);
  }
  void consume(const NodeId& reader, const wire::Grant& grant) {
    lender.on_consumed(reader, {.claim = grant.claim, .lease = grant.lease}, now);
  }
  void release(const NodeId& reader, const wire::Grant& grant) {
    lender.on_release(reader, {.claim = grant.claim, .lease = grant.lease}, now);
  }

  /// The oldest frame for `reader` not looked at yet, which must be a T.
  template <typename T>
  T sent_to(const NodeId& reader) {
    const auto first =
        std::find_if(output.sent.begin(), output.sent.end(),
                     [&reader](const FakeOutput::Sent& sent) { return sent.reader == reader; });
    if (first == output.sent.end()) {
      ADD_FAILURE() << "nothing was sent to this reader";
      return {};
    }
    const FakeOutput::Sent sent = std::move(*first);
    output.sent.erase(first);
    const T* frame = std::get_if<T>(&sent.frame);
    if (frame == nullptr) {
      std::string told(wire::to_string(wire::type_of(sent.frame)));
      if (const auto* refuse = std::get_if<wire::Refuse>(&sent.frame)) told += ": " + refuse->message;
      ADD_FAILURE() << "sent was " << told;
      return {};
    }
    return *frame;
  }
  void expect_refused(const NodeId& reader, std::uint64_t number, ErrorKind kind) {
    const auto refuse = sent_to<wire::Refuse>(reader);
    EXPECT_EQ(refuse.claim, number);
    EXPECT_EQ(to_string(refuse.kind), to_string(kind)) << refuse.message;
    EXPECT_FALSE(refuse.message.empty());
  }
  void expect_silence() {
    for (const auto& sent : output.sent)
      ADD_FAILURE() << "sent: " << wire::to_string(wire::type_of(sent.frame));
    output.sent.clear();
  }
  void expect_released(std::uint64_t generation, EndReason reason) {
    EXPECT_TRUE(std::find(released.begin(), released.end(), std::pair(generation, reason)) != released.end())
        << "generation " << generation << " was not released as " << to_string(reason);
  }
  /// Moves the clock on and runs what is due, as the node's timer does.
  void pass(Time time) {
    now += time;
    lender.on_time(now);
  }

  const NodeId a = node_named(1);
  const NodeId b = node_named(2);
  const NodeId c = node_named(3);
  FakeOutput output;
  std::vector<std::pair<std::uint64_t, EndReason>> released;
  Time now = std::chrono::hours(1);
  std::uint64_t next_generation = 1;
  LenderLimits limits{.max_waiting_claims = 3, .max_view_bytes = 2 * kSize};
  Lender lender{output, limits};
};

}  // namespace stagewire::test
