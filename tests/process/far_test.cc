// What only the network between two machines can do in the middle of a read: its cable, the RDMA device or
// the whole card goes, at either end; the other machine freezes. A get ends with a typed error or the right
// bytes, its destination is left alone from then on, and what comes back works again. Runs where Far is
// there.
#include "process/support/far.h"

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "process/support/progress.h"
#include "process/support/two_nodes.h"

namespace stagewire::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const std::set<ErrorKind> kBroken = {ErrorKind::peer_lost,  ErrorKind::unreachable,
                                     ErrorKind::lease_lost, ErrorKind::deadline_exceeded,
                                     ErrorKind::io,         ErrorKind::not_viable};

enum class End : std::uint8_t { here, there };
enum class Outcome : std::uint8_t { whole, typed_error, either };

class FarNodes : public TwoNodes {
 protected:
  const Pattern large{.seed = 77, .size = 60 * kMegabyte, .parts = 3};
  const Pattern small{.seed = 78, .size = 200'000, .parts = 2};

  void TearDown() override {
    if (broken_) restore();
    TwoNodes::TearDown();
  }

  void fault(End end, const std::string& words) {
    broken_ = true;
    if (end == End::here) {
      Far::get()->fault_here(words);
    } else {
      Far::get()->fault_there(words);
    }
    over_before_fault_ = running_.done();
  }
  void freeze() {
    Far::get()->freeze();
    over_before_fault_ = running_.done();
  }
  void restore() {
    Far::get()->fault_here("restore");
    Far::get()->fault_there("restore");
    broken_ = false;
  }

  /// A get of "large" that is in the middle of its read, which takes 6 s from now on.
  void begin_read(std::chrono::nanoseconds timeout) {
    broken_ = true;
    Far::get()->fault_there("slow 80mbit");
    peer->expect_ok(put_command("large", large));
    destination_ = std::make_shared<std::vector<std::byte>>(large.size + 4096);
    GetOptions how = by(timeout, Placement::into);
    how.into = {DestinationRange{.data = destination_->data(), .size = destination_->size()}};
    how.into_hold = destination_;
    running_ = node->get_async(from_peer("large"), std::move(how));
    EXPECT_TRUE(eventually([&] { return has_begun(destination_->data(), destination_->size()); }));
  }

  /// How the read ended: whole, or with a typed error.
  Result<Got> end_of_read() {
    if (!running_.wait(Deadline::in(kHangGuard)).ok()) {
      ADD_FAILURE() << "the read did not end";
      return Error(ErrorKind::internal, "hung");
    }
    Result<Got> got = running_.take();
    RecordProperty("ended", got.ok() ? "whole" : std::string(to_string(got.error().kind())));
    if (got.ok()) {
      EXPECT_FALSE(over_before_fault_) << "the fault came too late to mean anything";
      expect_whole(got, large);
    } else {
      expect_kind(got, kBroken);
    }
    return got;
  }

  /// The read ends; if it fails, nothing is written to its destination any more, whatever `mend` brings back,
  /// and the payload is still to be had.
  void expect_end(Outcome outcome, const std::function<void()>& mend) {
    Result<Got> got = end_of_read();
    if (outcome != Outcome::either) {
      EXPECT_EQ(got.ok(), outcome == Outcome::whole) << (got.ok() ? "no error" : got.error().to_string());
    }
    if (got.ok()) {
      got = Error(ErrorKind::closed, "dropped");
      mend();
    } else {
      std::fill(destination_->begin(), destination_->end(), kPoison);
      mend();
      expect_get("large", large);
      const auto touched = std::find_if(destination_->begin(), destination_->end(),
                                        [](std::byte byte) { return byte != kPoison; });
      EXPECT_EQ(touched, destination_->end())
          << "written after its release at " << touched - destination_->begin();
    }
    peer->expect_ok(put_command("k", small));
    expect_get("k", small);
    expect_idle();
    expect_peer_idle(*peer);
  }

  /// A get that works. Until the session, the device and its connections are back, gets may end with what
  /// broke them.
  void expect_get(const std::string& key, const Pattern& pattern) {
    Result<Got> got = Error(ErrorKind::internal, "never asked");
    EXPECT_TRUE(eventually([&] {
      got = node->get(from_peer(key), by(seconds(20)));
      return got.ok() || kBroken.count(got.error().kind()) == 0;
    }));
    expect_whole(got, pattern);
  }

 private:
  static constexpr std::byte kPoison{0xcc};
  std::shared_ptr<std::vector<std::byte>> destination_;
  GetHandle running_;
  bool broken_ = false;
  bool over_before_fault_ = false;
};

class FarFault : public FarNodes {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(FarFault);
INSTANTIATE_TEST_SUITE_P(Routes, FarFault, ::testing::ValuesIn(far_routes()), route_name);

TEST_P(FarFault, TheLinkIsDownForFiveSecondsHere) {
  start_both();
  begin_read(seconds(40));
  fault(End::here, "link-down 5");
  expect_end(Outcome::either, [this] { restore(); });
}

TEST_P(FarFault, TheLinkIsDownForFiveSecondsThere) {
  start_both();
  begin_read(seconds(40));
  fault(End::there, "link-down 5");
  expect_end(Outcome::either, [this] { restore(); });
}

// Longer than any transport tries again, shorter than the lease: the deadline has to end it.
TEST_P(FarFault, TheLinkIsDownUntilAfterTheDeadline) {
  start_both(Line().with("lease", "60 s"));
  begin_read(seconds(3));
  fault(End::there, "link-down 20");
  expect_end(Outcome::typed_error, [this] { restore(); });
}

TEST_P(FarFault, TheCardIsTakenOutHere) {
  start_both();
  begin_read(seconds(20));
  fault(End::here, "card-remove");
  expect_end(Outcome::typed_error, [this] { restore(); });
}

TEST_P(FarFault, TheCardIsTakenOutThere) {
  start_both();
  begin_read(seconds(20));
  fault(End::there, "card-remove");
  expect_end(Outcome::typed_error, [this] { restore(); });
}

TEST_P(FarFault, TheSenderFreezesAndGoesOnAfterTheDeadline) {
  start_both(Line().with("lease", "60 s"));
  begin_read(seconds(3));
  freeze();
  expect_end(Outcome::typed_error, [this] {
    Far::get()->thaw();
    restore();
  });
}

TEST_P(FarFault, TheSenderFreezesUntilItsLeaseIsOver) {
  start_both();
  begin_read(seconds(30));
  freeze();
  expect_end(Outcome::typed_error, [this] {
    Far::get()->thaw();
    restore();
  });
}

TEST_P(FarFault, AKvCacheIsHandedOver) {
  // 28 layers × K and V × 4 heads × 128 × 3,400 tokens of bf16.
  const Pattern cache{.seed = 5, .size = 194'969'600, .parts = 56};
  // Heartbeats share an emulated card and CPU with the read: this is not about their times.
  start_both(
      Line().with("publish_pool_size", "200 MB").with("receive_pool_size", "200 MB").with("lease", "30 s"));
  const Source source = of_ticket(peer->expect_ok(put_command("cache", cache)));
  Result<Got> got = node->get(source, by(seconds(50)));
  expect_whole(got, cache);
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->transport, transport_of(GetParam()));
  got = Error(ErrorKind::closed, "dropped");
  expect_idle();
  expect_peer_idle(*peer);
}

class FarDevice : public FarNodes {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(FarDevice);
INSTANTIATE_TEST_SUITE_P(Routes, FarDevice, ::testing::ValuesIn(far_verbs_routes()), route_name);

// Linux carries a removal out when nobody has the device open, and tells nobody before: a read may still end
// whole, and a node that has closed must not have the device.
TEST_P(FarDevice, IsRemovedWhenTheNodesHaveClosed) {
  start_both();
  begin_read(seconds(20));
  fault(End::here, "rdma-remove");
  fault(End::there, "rdma-remove");
  static_cast<void>(end_of_read());
  node.reset();
  peer.reset();
  restore();
  start_both();
  peer->expect_ok(put_command("k", small));
  expect_get("k", small);
}

TEST_P(FarDevice, WhosePacketsAreLostHere) {
  start_both();
  begin_read(seconds(40));
  fault(End::here, "rdma-drop");
  expect_end(Outcome::typed_error, [this] { restore(); });
}

TEST_P(FarDevice, WhosePacketsAreLostThere) {
  start_both();
  begin_read(seconds(40));
  fault(End::there, "rdma-drop");
  expect_end(Outcome::typed_error, [this] { restore(); });
}

// With tcp to fall back to, the get does not fail at all.
TEST_P(FarDevice, WhosePacketsAreLostAndTcpGoesOn) {
  start_both(Line().with("routes", "verbs,tcp"));
  begin_read(seconds(50));
  fault(End::there, "rdma-drop");
  expect_end(Outcome::whole, [this] { restore(); });
}

}  // namespace
}  // namespace stagewire::test
