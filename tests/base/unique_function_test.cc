// UniqueFunction: move-only captures, ownership, arguments.
#include "base/unique_function.h"

#include <gtest/gtest.h>
#include <memory>
#include <string>

namespace stagewire {
namespace {

TEST(UniqueFunctionTest, AnEmptyOneIsFalse) {
  EXPECT_FALSE(UniqueFunction<void()>());
  EXPECT_FALSE(UniqueFunction<void()>(nullptr));
}

TEST(UniqueFunctionTest, OwnsMoveOnlyCaptures) {
  auto owned = std::make_unique<int>(3);
  UniqueFunction<int(int)> add([owned = std::move(owned)](int n) { return *owned += n; });
  ASSERT_TRUE(add);
  EXPECT_EQ(add(2), 5);
  UniqueFunction<int(int)> moved = std::move(add);
  EXPECT_EQ(moved(1), 6);
}

TEST(UniqueFunctionTest, FreesItsCapturesOnceItIsReplaced) {
  auto owned = std::make_shared<int>(0);
  const std::weak_ptr<int> watch = owned;
  UniqueFunction<void()> function([owned = std::move(owned)] {});
  EXPECT_FALSE(watch.expired());
  function = nullptr;
  EXPECT_TRUE(watch.expired());
  EXPECT_FALSE(function);
}

TEST(UniqueFunctionTest, PassesReferencesAndMoveOnlyArguments) {
  UniqueFunction<std::string(std::string&, std::unique_ptr<int>)> function(
      [](std::string& text, std::unique_ptr<int> number) { return text += std::to_string(*number); });
  std::string text = "a";
  EXPECT_EQ(function(text, std::make_unique<int>(7)), "a7");
  EXPECT_EQ(text, "a7");
}

}  // namespace
}  // namespace stagewire
