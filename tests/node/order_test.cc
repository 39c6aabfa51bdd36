// What has returned counts for whatever is asked later: two nodes of this process, whose loops race with
// their callers.
#include <thread>

#include "node/two_nodes.h"

namespace stagewire::testing_support {
namespace {

using OrderOf = TwoNodes;

TEST_F(OrderOf, AClaimOfWhatAReturnedPutHasReplacedIsNeverGranted) {
  start({"auto"});
  ASSERT_TRUE(get(put("first")).ok());
  bytes_.resize(64);
  const auto put_small = [this] {
    Tensor tensor;
    tensor.dtype = DType::u8;
    tensor.shape = {64};
    tensor.data = bytes_.data();
    return sender_
        ->put(Key{.name_space = {}, .from_stage = "a", .to_stage = "b", .key = "k"}, Payload::of(tensor), {})
        .value();
  };
  // Others keep the processors busy, so that the sender's loop is often late.
  std::atomic<bool> over{false};
  std::vector<std::thread> busy;
  for (unsigned i = 0; i < std::thread::hardware_concurrency(); ++i) {
    busy.emplace_back([&over] {
      while (!over) std::this_thread::yield();
    });
  }
  for (int i = 0; i < 2000; ++i) {
    const Ticket old = put_small();
    const Ticket newer = put_small();
    const auto got = get(old);
    EXPECT_FALSE(got.ok()) << "round " << i;
    if (!got.ok()) {
      EXPECT_EQ(got.error().kind(), ErrorKind::replaced) << got.error();
    }
    EXPECT_TRUE(get(newer).ok()) << "round " << i;
  }
  over = true;
  for (std::thread& thread : busy) thread.join();
}

}  // namespace
}  // namespace stagewire::testing_support
