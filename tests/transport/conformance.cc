// See conformance.h. Reads are started on the harness' loop; the test thread waits.
#include "conformance.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <utility>

namespace stagewire::testing_support {

namespace {
constexpr std::byte kCanaryByte{0xA5};
constexpr std::byte kPoisonByte{0x5E};
}  // namespace

TransportConformance::Destination::Destination(std::size_t size) : bytes_(size + 2 * kCanary, kCanaryByte) {}

bool TransportConformance::Destination::intact() const {
  const auto is_canary = [](std::byte b) { return b == kCanaryByte; };
  const auto head = bytes_.begin() + static_cast<std::ptrdiff_t>(kCanary);
  const auto tail = bytes_.end() - static_cast<std::ptrdiff_t>(kCanary);
  return std::all_of(bytes_.begin(), head, is_canary) && std::all_of(tail, bytes_.end(), is_canary);
}

void TransportConformance::Destination::poison() {
  std::fill(bytes_.begin(), bytes_.end(), kPoisonByte);
}

bool TransportConformance::Destination::poisoned() const {
  return std::all_of(bytes_.begin(), bytes_.end(), [](std::byte b) { return b == kPoisonByte; });
}

ReadRequest TransportConformance::request(std::uint64_t offset, Destination& to) {
  return {kLease, {{kMemory, offset, to.size()}}, {{to.data(), to.size()}}};
}

bool TransportConformance::same(std::uint64_t offset, Destination& to) {
  return std::memcmp(harness_->pool().base() + offset, to.data(), to.size()) == 0;
}

TEST_P(TransportConformance, SaysWhyItIsViable) {
  run_on(harness_->loop(), [&] {
    const Viability host = harness_->reader()->viability(MemoryKind::host(), MemoryKind::host());
    EXPECT_TRUE(host.viable);
    EXPECT_FALSE(host.reason.empty());
    const MemoryKind cuda{MemoryKind::Type::cuda, 1};
    for (const auto& [from, to] :
         {std::pair(cuda, MemoryKind::host()), std::pair(MemoryKind::host(), cuda)}) {
      const Viability device = harness_->reader()->viability(from, to);
      EXPECT_FALSE(device.viable);
      EXPECT_NE(device.reason.find("cuda:1"), std::string::npos) << device.reason;
    }
  });
}

TEST_P(TransportConformance, ReadsOneRange) {
  Destination to(1'000'000);
  EXPECT_EQ(kind_name(harness_->read_now(request(4096, to))), "ok");
  EXPECT_TRUE(same(4096, to));
  EXPECT_TRUE(to.intact());
}

TEST_P(TransportConformance, ReadsOddSizesAtOddOffsets) {
  for (const std::size_t size : {1U, 2U, 3U, 7U, 63U, 255U, 257U, 4095U, 4097U, 65537U, 262'143U, 262'145U,
                                 1'048'575U, 1'048'577U, 2'097'153U}) {
    Destination to(size);
    ASSERT_EQ(kind_name(harness_->read_now(request(size % 13, to))), "ok") << size;
    ASSERT_TRUE(same(size % 13, to)) << size;
    ASSERT_TRUE(to.intact()) << size;
  }
}

TEST_P(TransportConformance, ReadsNothing) {
  EXPECT_EQ(kind_name(harness_->read_now({kLease, {}, {}})), "ok");
  Destination to(0);
  EXPECT_EQ(kind_name(harness_->read_now({kLease, {{kMemory, 100, 0}}, {{nullptr, 0}}})), "ok");
  EXPECT_EQ(kind_name(harness_->read_now(request(kPoolSize, to))), "ok");
  EXPECT_TRUE(to.intact());
}

TEST_P(TransportConformance, ReadsTheWholePool) {
  Destination to(kPoolSize);
  ASSERT_EQ(kind_name(harness_->read_now(request(0, to))), "ok");
  EXPECT_TRUE(same(0, to));
  EXPECT_TRUE(to.intact());
}

TEST_P(TransportConformance, ReadsManyRangesCutDifferentlyOnBothSides) {
  std::mt19937 random(20240229);
  for (int round = 0; round < 8; ++round) {
    ReadRequest read{kLease, {}, {}};
    std::vector<std::byte> expected;
    const std::size_t ranges =
        std::array<std::size_t, 4>{1, 7, 200, 3000}[static_cast<std::size_t>(round % 4)];
    for (std::size_t i = 0; i < ranges; ++i) {
      const std::uint64_t length = random() % (round < 4 ? 9000U : 300U);
      const std::uint64_t offset = random() % (kPoolSize - length);
      read.from.push_back({kMemory, offset, length});
      const std::byte* data = harness_->pool().base() + offset;
      expected.insert(expected.end(), data, data + length);
    }
    Destination to(expected.size());
    // Destination pieces in reverse order of address, so that order and not address decides.
    std::vector<std::byte> result;
    std::vector<LocalRange> pieces;
    std::size_t left = expected.size();
    while (left != 0) {
      const std::size_t length = std::min<std::size_t>(left, 1 + random() % 7000U);
      left -= length;
      pieces.push_back({to.data() + left, length});
      if (random() % 5 == 0) pieces.push_back({to.data(), 0});
    }
    read.to = pieces;
    ASSERT_EQ(kind_name(harness_->read_now(std::move(read))), "ok");
    for (const LocalRange& piece : pieces) result.insert(result.end(), piece.data, piece.data + piece.length);
    ASSERT_TRUE(result == expected) << "round " << round;
    ASSERT_TRUE(to.intact());
  }
}

TEST_P(TransportConformance, RunsManyReadsAtOnce) {
  constexpr std::size_t kReads = 32;
  std::vector<Destination> to;
  std::vector<Outcome> outcomes;
  for (std::size_t i = 0; i < kReads; ++i) {
    to.emplace_back(1'500'001 + i * 4099);
    outcomes.push_back(make_outcome());
  }
  run_on(harness_->loop(), [&] {
    for (std::size_t i = 0; i < kReads; ++i)
      harness_->reader()->read(request(i * 977, to[i]), fill(outcomes[i]));
  });
  for (std::size_t i = 0; i < kReads; ++i) {
    ASSERT_EQ(kind_name(outcomes[i]->wait()), "ok") << i;
    ASSERT_TRUE(same(i * 977, to[i])) << i;
    ASSERT_TRUE(to[i].intact()) << i;
    EXPECT_EQ(outcomes[i]->times(), 1);
  }
}

// The ends of small reads that run beside it mark how far the large one has come, from "not begun" on.
TEST_P(TransportConformance, AbortsAtEveryStageAndNeverTouchesTheDestinationAgain) {
  for (const std::size_t stage : {0U, 0U, 1U, 2U, 3U, 5U, 8U, 13U, 21U, 34U}) {
    Destination large(kPoolSize);
    const Outcome outcome = make_outcome();
    const ReadId id = harness_->read(request(0, large), outcome);
    for (std::size_t i = 0; i < stage; ++i) {
      Destination small(300'000);
      ASSERT_EQ(kind_name(harness_->read_now(request(i, small))), "ok");
    }
    const auto settled = harness_->abort(id);
    settled->wait();
    ASSERT_TRUE(outcome->happened()) << "settled before done, stage " << stage;
    const std::string result = kind_name(outcome->wait());
    ASSERT_TRUE(result == "cancelled" || result == "ok") << result;
    ASSERT_TRUE(large.intact());
    large.poison();
    // Everything that was still on the way arrives before what these reads ask for.
    for (int i = 0; i < 4; ++i) {
      Destination after(4'000'000);
      ASSERT_EQ(kind_name(harness_->read_now(request(5, after))), "ok");
      ASSERT_TRUE(same(5, after));
    }
    ASSERT_TRUE(large.poisoned()) << "written after it had settled, stage " << stage;
    EXPECT_EQ(outcome->times(), 1);
    EXPECT_EQ(settled->times(), 1);
  }
}

TEST_P(TransportConformance, AbortOfOneLeavesTheOthersAlone) {
  constexpr std::size_t kReads = 12;
  std::vector<Destination> to;
  std::vector<Outcome> outcomes;
  std::vector<std::shared_ptr<Once<bool>>> settled;
  for (std::size_t i = 0; i < kReads; ++i) {
    to.emplace_back(5'000'000);
    outcomes.push_back(make_outcome());
  }
  run_on(harness_->loop(), [&] {
    std::vector<ReadId> ids;
    for (std::size_t i = 0; i < kReads; ++i) {
      ids.push_back(harness_->reader()->read(request(i * 4096, to[i]), fill(outcomes[i])));
    }
    for (std::size_t i = 0; i < kReads; i += 3) {
      settled.push_back(std::make_shared<Once<bool>>());
      harness_->reader()->abort(ids[i], [last = settled.back()] { last->set(true); });
    }
  });
  for (const auto& each : settled) each->wait();
  for (std::size_t i = 0; i < kReads; i += 3) to[i].poison();
  for (std::size_t i = 0; i < kReads; ++i) {
    const std::string result = kind_name(outcomes[i]->wait());
    if (i % 3 == 0) continue;
    ASSERT_EQ(result, "ok") << i;
    ASSERT_TRUE(same(i * 4096, to[i])) << i;
  }
  for (std::size_t i = 0; i < kReads; i += 3) ASSERT_TRUE(to[i].poisoned()) << i;
}

TEST_P(TransportConformance, AbortOfUnknownAndFinishedReadsSettles) {
  EXPECT_TRUE(harness_->abort(0)->wait());
  EXPECT_TRUE(harness_->abort(123'456'789)->wait());
  Destination to(2'000'000);
  const Outcome outcome = make_outcome();
  const ReadId id = harness_->read(request(0, to), outcome);
  EXPECT_EQ(kind_name(outcome->wait()), "ok");
  EXPECT_TRUE(harness_->abort(id)->wait());
  EXPECT_TRUE(harness_->abort(id)->wait());
  EXPECT_EQ(outcome->times(), 1);
}

TEST_P(TransportConformance, TwoAbortsOfOneReadBothSettle) {
  Destination to(kPoolSize);
  const Outcome outcome = make_outcome();
  const ReadId id = harness_->read(request(0, to), outcome);
  const auto first = harness_->abort(id);
  const auto second = harness_->abort(id);
  EXPECT_TRUE(first->wait());
  EXPECT_TRUE(second->wait());
  EXPECT_EQ(outcome->times(), 1);
}

TEST_P(TransportConformance, RefusesRangesOutsideTheMemory) {
  constexpr std::uint64_t kHuge = std::numeric_limits<std::uint64_t>::max();
  Destination to(4096);
  for (const std::uint64_t offset : {kPoolSize - 4095, kPoolSize, kPoolSize + 1, kHuge - 4095, kHuge}) {
    EXPECT_EQ(kind_name(harness_->read_now(request(offset, to))), "protocol") << offset;
    const RemoteRange range{kMemory, offset, 4096};
    run_on(harness_->loop(), [&] { EXPECT_FALSE(harness_->reader()->view({&range, 1}).ok()); });
  }
  // Lengths that overflow when added up.
  EXPECT_EQ(
      kind_name(harness_->read_now({kLease, {{kMemory, 0, kHuge}, {kMemory, 0, 4097}}, {{to.data(), 4096}}})),
      "protocol");
  EXPECT_TRUE(to.intact());
}

TEST_P(TransportConformance, RefusesMemoryThatWasNeverAttached) {
  Destination to(4096);
  ReadRequest read = request(0, to);
  read.from[0].memory = kMemory + 1;
  EXPECT_EQ(kind_name(harness_->read_now(read)), "not_viable");
  run_on(harness_->loop(), [&] { EXPECT_FALSE(harness_->reader()->view(read.from).ok()); });
}

TEST_P(TransportConformance, RefusesMalformedRequests) {
  Destination to(4096);
  ReadRequest read = request(0, to);
  read.to[0].length = 4095;
  EXPECT_EQ(kind_name(harness_->read_now(read)), "invalid_argument");
  read = request(0, to);
  read.to[0].data = nullptr;
  EXPECT_EQ(kind_name(harness_->read_now(read)), "invalid_argument");
  read = request(0, to);
  read.to[0].kind = MemoryKind{MemoryKind::Type::cuda, 0};
  EXPECT_EQ(kind_name(harness_->read_now(read)), "not_viable");
  EXPECT_TRUE(to.intact());
}

TEST_P(TransportConformance, RefusesMessages) {
  run_on(harness_->loop(), [&] { EXPECT_FALSE(harness_->reader()->on_message("hello").ok()); });
}

TEST_P(TransportConformance, CloseEndsRunningReads) {
  std::vector<Destination> to;
  std::vector<Outcome> outcomes;
  for (std::size_t i = 0; i < 8; ++i) {
    to.emplace_back(20'000'000);
    outcomes.push_back(make_outcome());
    harness_->read(request(i, to[i]), outcomes[i]);
  }
  harness_->close_reader()->wait();
  for (std::size_t i = 0; i < 8; ++i) {
    ASSERT_TRUE(outcomes[i]->happened()) << "closed before a read had ended";
    const std::string result = kind_name(outcomes[i]->wait());
    EXPECT_TRUE(result == "peer_lost" || result == "ok") << result;
    if (result == "ok") {
      EXPECT_TRUE(same(i, to[i]));
    }
    EXPECT_TRUE(to[i].intact());
    to[i].poison();
  }
  Destination late(100);
  EXPECT_EQ(kind_name(harness_->read_now(request(0, late))), "closed");
  harness_->shut_down();
  for (Destination& each : to) EXPECT_TRUE(each.poisoned());
}

TEST_P(TransportConformance, CloseWithoutReadsIsClean) {
  EXPECT_TRUE(harness_->close_reader()->wait());
}

TEST_P(TransportConformance, ViewsStayValidAfterEverythingIsClosed) {
  const std::array<RemoteRange, 3> ranges{
      {{kMemory, 10, 5000}, {kMemory, kPoolSize - 100, 100}, {kMemory, 0, 0}}};
  Link::View view;
  bool has_view = false;
  run_on(harness_->loop(), [&] {
    auto made = harness_->reader()->view(ranges);
    has_view = made.ok();
    if (has_view) {
      view = std::move(*made);
    } else {
      EXPECT_EQ(made.error().kind(), ErrorKind::not_viable);
    }
  });
  ASSERT_EQ(has_view, harness_->has_views());
  if (!has_view) return;
  ASSERT_EQ(view.data.size(), 3U);
  std::vector<std::byte> expected(5000);
  std::memcpy(expected.data(), harness_->pool().base() + 10, expected.size());
  std::vector<std::byte> tail(100);
  std::memcpy(tail.data(), harness_->pool().base() + kPoolSize - 100, tail.size());
  harness_.reset();  // link, transport, node and pool are gone; the view's hold is all that is left
  EXPECT_EQ(std::memcmp(view.data[0], expected.data(), expected.size()), 0);
  EXPECT_EQ(std::memcmp(view.data[1], tail.data(), tail.size()), 0);
}

INSTANTIATE_TEST_SUITE_P(Transports, TransportConformance, ::testing::ValuesIn([] {
                           std::vector<ConformanceCase> cases;
                           std::vector<std::string> names{"local", "shm", "tcp", "verbs", "faulty"};
                           if (std::getenv(kRdmaDeviceVariable) != nullptr)
                             names.emplace_back("verbs_device");
                           for (const std::string& name : names) {
                             cases.push_back(
                                 {name, [name](std::uint64_t size) { return make_harness(name, size); }});
                           }
                           return cases;
                         }()),
                         [](const auto& each) { return each.param.name; });

}  // namespace stagewire::testing_support
