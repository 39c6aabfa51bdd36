// Regions between two nodes of this process: publishing memory of the caller's own in place, over each
// transport that can be fenced, and taking it back from readers that are in the middle of it.
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/oneshot.h"
#include "node/two_nodes.h"

namespace stagewire::testing_support {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Key key_of(const std::string& name) {
  return Key{.name_space = {}, .from_stage = "a", .to_stage = "b", .key = name};
}

class RegionOf : public TwoNodes {
 protected:
  std::shared_ptr<Region> make_region(RegionOptions options = {}) {
    auto made = sender_->register_region(bytes_.data(), bytes_.size(), std::move(options));
    EXPECT_TRUE(made.ok()) << made.error();
    return std::move(made).value();
  }
  Payload payload(std::size_t from = 0, std::size_t size = kSize) const {
    Tensor tensor;
    tensor.dtype = DType::u8;
    tensor.shape = {static_cast<std::int64_t>(size)};
    tensor.data = bytes_.data() + from;
    return Payload::of(tensor);
  }
  Ticket lend(const std::shared_ptr<Region>& region, const std::string& key, PutOptions options = {}) {
    auto ticket = sender_->put_in_regions(key_of(key), payload(), {region}, std::move(options));
    EXPECT_TRUE(ticket.ok()) << ticket.error();
    return std::move(ticket).value();
  }
  // What `released` was told, for PutOptions.
  struct Released {
    Oneshot<EndReason> oneshot = Oneshot<EndReason>::make();
    PutOptions options() {
      auto promise = std::make_shared<OneshotPromise<EndReason>>(std::move(oneshot.promise));
      PutOptions options;
      options.released = [promise](EndReason reason) { promise->set(reason); };
      return options;
    }
    std::optional<EndReason> reason() {
      EXPECT_TRUE(oneshot.future.wait(Deadline::in(seconds(30))).ok());
      return oneshot.future.try_take();
    }
  };
};

class RegionOver : public RegionOf, public ::testing::WithParamInterface<std::string> {};

TEST_P(RegionOver, IsPublishedInPlaceAndReadWhole) {
  start({GetParam()});
  const auto region = make_region();
  for (int i = 0; i < 3; ++i) {
    Released released;
    const auto got = get(lend(region, "k" + std::to_string(i), released.options()));
    ASSERT_TRUE(got.ok()) << got.error();
    EXPECT_EQ(got->transport, GetParam());
    EXPECT_TRUE(whole(*got));
    EXPECT_EQ(released.reason(), EndReason::consumed);
  }
  EXPECT_EQ(sender_->stats().publish_pool.used, 0U) << "nothing was copied";
  EXPECT_TRUE(region->close(Deadline::in(seconds(30))).ok());
}

TEST_P(RegionOver, OfManyTensorsInSeveralRegions) {
  start({GetParam()});
  constexpr std::size_t kPiece = 100'003;
  std::vector<std::byte> other(kPiece, std::byte{0x5A});
  const auto first = make_region();
  auto second = sender_->register_region(other.data(), other.size(), {});
  ASSERT_TRUE(second.ok());
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const auto& [name, data] : {std::pair("odd", bytes_.data() + 7), std::pair("other", other.data()),
                                   std::pair("next", bytes_.data() + 7 + kPiece)}) {
    Tensor tensor;
    tensor.dtype = DType::u8;
    tensor.shape = {static_cast<std::int64_t>(kPiece)};
    tensor.data = data;
    tensors.emplace_back(name, tensor);
  }
  const auto ticket = sender_->put_in_regions(key_of("k"), Payload::of(tensors), {first, *second}, {});
  ASSERT_TRUE(ticket.ok()) << ticket.error();
  const auto got = get(*ticket);
  ASSERT_TRUE(got.ok()) << got.error();
  for (const auto& [name, tensor] : tensors) {
    const Tensor* found = got->payload.find(name);
    ASSERT_NE(found, nullptr) << name;
    EXPECT_EQ(std::memcmp(found->data, tensor.data, kPiece), 0) << name;
  }
}

TEST_P(RegionOver, AViewBecomesACopyAndSaysWhy) {
  start({GetParam()});
  const auto region = make_region();
  GetOptions options(Deadline::in(seconds(30)));
  options.placement = Placement::view;
  const auto got = reader_->get(Source::of(lend(region, "k")), std::move(options));
  ASSERT_TRUE(got.ok()) << got.error();
  EXPECT_FALSE(got->view);
  EXPECT_NE(got->placement_note.find("copied"), std::string::npos) << got->placement_note;
  EXPECT_TRUE(whole(*got));
}

TEST_P(RegionOver, ClosingWithdrawsWhatLiesInIt) {
  start({GetParam()});
  const auto region = make_region();
  ASSERT_TRUE(get(lend(region, "before")).ok());
  Released released;
  const Ticket ticket = lend(region, "k", released.options());
  ASSERT_TRUE(region->close(Deadline::in(seconds(30))).ok());
  EXPECT_TRUE(region->closed());
  EXPECT_EQ(released.reason(), EndReason::cancelled);
  const auto got = get(ticket);
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.error().kind(), ErrorKind::cancelled);
  const auto refused = sender_->put_in_regions(key_of("after"), payload(), {region}, {});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind(), ErrorKind::closed);
  EXPECT_TRUE(region->close(Deadline::now()).ok()) << "closing again is harmless";
  // The session and other memory are none the worse for it.
  EXPECT_TRUE(get(put("pool")).ok());
  const auto again = make_region();
  EXPECT_TRUE(get(lend(again, "again")).ok());
}

TEST_P(RegionOver, ManyComeAndGoOnOneSession) {
  start({GetParam()});
  for (int i = 0; i < 300; ++i) {  // more than may be there at once
    const auto region = make_region();
    if (i % 50 == 0) {
      ASSERT_TRUE(get(lend(region, "k")).ok()) << i;
    }
    ASSERT_TRUE(region->close(Deadline::in(seconds(30))).ok()) << i;
  }
  EXPECT_EQ(sender_->stats().regions, 0U);
}

INSTANTIATE_TEST_SUITE_P(Routes, RegionOver, ::testing::Values("verbs", "tcp"),
                         [](const auto& test) { return test.param; });

TEST_F(RegionOf, ItsOwnNodeGetsACopy) {
  start({"auto"});
  const auto region = make_region();
  GetOptions options(Deadline::in(seconds(30)));
  options.placement = Placement::view;
  const auto got = sender_->get(Source::of(lend(region, "k")), std::move(options));
  ASSERT_TRUE(got.ok()) << got.error();
  EXPECT_EQ(got->transport, "local");
  EXPECT_FALSE(got->view);
  EXPECT_TRUE(whole(*got));
  EXPECT_TRUE(region->close(Deadline::in(seconds(30))).ok());
}

TEST_F(RegionOf, IsNeverReadThroughSharedMemory) {
  start({"auto"});
  const auto region = make_region();
  ASSERT_EQ(get(put("pool"))->transport, "shm");
  const auto got = get(lend(region, "k"));
  ASSERT_TRUE(got.ok()) << got.error();
  EXPECT_EQ(got->transport, "verbs");
  EXPECT_TRUE(whole(*got));
}

TEST_F(RegionOf, WithoutARouteThatCanBeFencedTheErrorNamesTheReasons) {
  start({"shm"});
  const auto region = make_region();
  const auto got = get(lend(region, "k"));
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.error().kind(), ErrorKind::not_viable);
  EXPECT_NE(got.error().message().find("shm: not viable, because the owner of a region"), std::string::npos)
      << got.error();
}

TEST_F(RegionOf, BadArgumentsAreNamed) {
  start({"tcp"});
  const auto region = make_region();
  const auto kind = [](const auto& result) {
    return result.ok() ? ErrorKind::internal : result.error().kind();
  };
  EXPECT_EQ(kind(sender_->register_region(nullptr, 1, {})), ErrorKind::invalid_argument);
  EXPECT_EQ(kind(sender_->register_region(bytes_.data(), 0, {})), ErrorKind::invalid_argument);
  RegionOptions device;
  device.kind = MemoryKind{MemoryKind::Type::cuda, 0};
  EXPECT_EQ(kind(sender_->register_region(bytes_.data(), 1, device)), ErrorKind::not_viable);
  EXPECT_EQ(kind(sender_->put_in_regions(key_of("k"), payload(), {}, {})), ErrorKind::invalid_argument);
  EXPECT_EQ(kind(sender_->put_in_regions(key_of("k"), payload(), {nullptr}, {})),
            ErrorKind::invalid_argument);
  EXPECT_EQ(kind(reader_->put_in_regions(key_of("k"), payload(), {region}, {})), ErrorKind::invalid_argument);

  // One byte beyond its end, and one before its beginning.
  std::vector<std::byte> outer(300);
  auto inner = sender_->register_region(outer.data() + 100, 100, {});
  ASSERT_TRUE(inner.ok());
  for (const std::size_t from : {std::size_t{99}, std::size_t{101}}) {
    Tensor tensor;
    tensor.dtype = DType::u8;
    tensor.shape = {100};
    tensor.data = outer.data() + from;
    const auto put = sender_->put_in_regions(key_of("k"), Payload::of(tensor), {*inner}, {});
    ASSERT_FALSE(put.ok()) << from;
    EXPECT_EQ(put.error().kind(), ErrorKind::invalid_argument);
    EXPECT_NE(put.error().message().find("does not lie in any of the regions"), std::string::npos);
  }
}

TEST_F(RegionOf, TooManyAreRefusedUntilSomeAreClosed) {
  start({"tcp"});
  std::vector<std::shared_ptr<Region>> regions;
  for (;;) {
    auto made = sender_->register_region(bytes_.data(), bytes_.size(), {});
    if (!made.ok()) {
      EXPECT_EQ(made.error().kind(), ErrorKind::busy) << made.error();
      break;
    }
    regions.push_back(std::move(made).value());
    ASSERT_LE(regions.size(), 256U);
  }
  EXPECT_EQ(sender_->stats().regions, regions.size());
  EXPECT_EQ(sender_->stats().region_bytes, regions.size() * kSize);
  ASSERT_TRUE(regions.front()->close(Deadline::in(seconds(30))).ok());
  EXPECT_TRUE(sender_->register_region(bytes_.data(), bytes_.size(), {}).ok());
}

// --- Taking it back.

class RegionTakenBack : public RegionOf, public ::testing::WithParamInterface<std::vector<std::string>> {};

TEST_P(RegionTakenBack, FromAReaderInTheMiddleOfItNeverGivesWrongBytes) {
  start(GetParam());
  const auto region = make_region();
  ASSERT_EQ(get(lend(region, "first"))->transport, "verbs");
  fake_->hold();
  const Ticket ticket = lend(region, "k");
  auto handles = reader_->get_async({Source::of(ticket)}, {GetOptions(Deadline::in(seconds(30)))});
  ASSERT_TRUE(fake_->wait_for_requests(1));
  ASSERT_TRUE(fake_->step(1));
  const Status closed = region->close(Deadline::in(seconds(30)));
  ASSERT_TRUE(closed.ok()) << closed.error();
  std::memset(bytes_.data(), 0xEE, bytes_.size());
  fake_->release();
  ASSERT_TRUE(handles.front().wait(Deadline::in(seconds(30))).ok());
  const auto got = handles.front().take();
  ASSERT_FALSE(got.ok()) << "a success after the memory was given back";
  EXPECT_EQ(got.error().kind(), ErrorKind::lease_lost) << got.error();
  EXPECT_EQ(reader_->stats().receive_pool.used, 0U);
  EXPECT_EQ(sender_->stats().leases, 0U);
  fill();
  EXPECT_TRUE(get(put("pool")).ok());
}

INSTANTIATE_TEST_SUITE_P(Routes, RegionTakenBack,
                         ::testing::Values(std::vector<std::string>{"verbs"},
                                           std::vector<std::string>{"verbs", "tcp"}),
                         [](const auto& test) { return test.param.size() == 1 ? "alone" : "with_tcp"; });

TEST_F(RegionOf, CloseThatCannotBeProvenSaysSoAndCanBeRepeated) {
  start({"verbs"});
  ASSERT_TRUE(get(put("first")).ok());
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> alive = held;
  fake_->shut_registrations();
  const auto region = make_region({.name = "kv cache", .kind = MemoryKind::host(), .hold = std::move(held)});
  ASSERT_TRUE(fake_->wait_at_gate());
  const Status closed = region->close(Deadline::in(milliseconds(100)));
  ASSERT_FALSE(closed.ok());
  EXPECT_EQ(closed.error().kind(), ErrorKind::deadline_exceeded);
  EXPECT_NE(closed.error().message().find("'kv cache' may still be read"), std::string::npos);
  EXPECT_FALSE(alive.expired()) << "the memory's owner was let go before it was safe";
  fake_->open_gates();
  EXPECT_TRUE(region->close(Deadline::in(seconds(30))).ok());
  EXPECT_TRUE(alive.expired());
}

TEST_F(RegionOf, IsNotOverWhileTheAdapterKeepsItsRegistration) {
  start({"verbs"});
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> alive = held;
  const auto region = make_region({.name = "kv cache", .kind = MemoryKind::host(), .hold = std::move(held)});
  ASSERT_EQ(get(lend(region, "first"))->transport, "verbs");
  fake_->fail_deregistrations(EBUSY, 1);
  const Status closed = region->close(Deadline::in(milliseconds(100)));
  ASSERT_FALSE(closed.ok());
  EXPECT_EQ(closed.error().kind(), ErrorKind::deadline_exceeded);
  EXPECT_FALSE(alive.expired()) << "the memory's owner was let go before it was safe";
  sender_.reset();  // which closes the device
  EXPECT_TRUE(region->close(Deadline::in(seconds(30))).ok());
  EXPECT_TRUE(alive.expired());
}

TEST_F(RegionOf, WhatTheAdapterDoesNotRegisterIsReadOverTcp) {
  start({"verbs", "tcp"});
  ASSERT_EQ(get(put("first"))->transport, "verbs");
  fake_->fail_registrations(ENOMEM, 1);
  const auto region = make_region();
  const auto got = get(lend(region, "k"));
  ASSERT_TRUE(got.ok()) << got.error();
  EXPECT_EQ(got->transport, "tcp");
  EXPECT_NE(got->placement_note.find("after verbs had failed"), std::string::npos) << got->placement_note;
  EXPECT_TRUE(whole(*got));
  EXPECT_EQ(get(put("pool"))->transport, "verbs") << "other memory still goes over the adapter";
}

TEST_F(RegionOf, DroppingItTakesTheMemoryBack) {
  start({"tcp"});
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> alive = held;
  auto region = make_region({.name = "r", .kind = MemoryKind::host(), .hold = std::move(held)});
  const Ticket ticket = lend(region, "k");
  EXPECT_FALSE(alive.expired());
  region.reset();
  EXPECT_TRUE(alive.expired());
  EXPECT_EQ(get(ticket).error().kind(), ErrorKind::cancelled);
}

TEST_F(RegionOf, ItsNodesEndGivesItBack) {
  start({"verbs", "tcp"});
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> alive = held;
  const auto region = make_region({.name = "r", .kind = MemoryKind::host(), .hold = std::move(held)});
  ASSERT_TRUE(get(lend(region, "k")).ok());
  Released released;
  static_cast<void>(lend(region, "unread", released.options()));
  sender_->close();
  EXPECT_TRUE(region->closed());
  EXPECT_EQ(released.reason(), EndReason::closed);
  sender_.reset();
  EXPECT_TRUE(region->close(Deadline::in(seconds(30))).ok());
  EXPECT_TRUE(alive.expired());
}

TEST_F(RegionOf, OfANodeThatIsGoneIsRefusedByTheNextOneInItsPlace) {
  start({"tcp"});
  bool same_place = false;
  for (int i = 0; i < 20 && !same_place; ++i) {
    const auto old = make_region();
    const auto place = reinterpret_cast<std::uintptr_t>(sender_.get());
    sender_.reset();
    start({"tcp"});
    same_place = reinterpret_cast<std::uintptr_t>(sender_.get()) == place;
    const std::vector<std::byte> other(kSize);
    const auto next =
        sender_->register_region(other.data(), other.size(), {});  // has the number of the old one
    ASSERT_TRUE(next.ok()) << next.error();
    const auto put = sender_->put_in_regions(key_of("k"), payload(), {old}, {});
    ASSERT_FALSE(put.ok()) << "other memory than the payload's was published";
    EXPECT_EQ(put.error().kind(), ErrorKind::invalid_argument) << put.error();
    EXPECT_TRUE((*next)->close(Deadline::in(seconds(30))).ok());
  }
}

TEST_F(RegionOf, ExplainAndMetricsNameIt) {
  start({"tcp"});
  const auto region = make_region({.name = "weights", .kind = MemoryKind::host(), .hold = {}});
  EXPECT_NE(sender_->explain().find("region weights: "), std::string::npos) << sender_->explain();
  EXPECT_NE(sender_->metrics_text().find("stagewire_regions 1"), std::string::npos);
  EXPECT_NE(sender_->metrics_text().find("stagewire_region_bytes " + std::to_string(kSize)),
            std::string::npos);
}

}  // namespace
}  // namespace stagewire::testing_support
