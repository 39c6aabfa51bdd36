// UniqueFunction: a move-only std::function, for callbacks that own descriptors and buffers.
// (std::move_only_function needs a newer standard library than the one this project builds with.)
// Thread-compatible.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

namespace stagewire {

template <typename Signature>
class UniqueFunction;

template <typename R, typename... Args>
class UniqueFunction<R(Args...)> {
 public:
  UniqueFunction() = default;
  UniqueFunction(std::nullptr_t) {}  // NOLINT(google-explicit-constructor): empty, as with std::function
  template <typename F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, UniqueFunction> && std::is_invocable_r_v<R, F&, Args...>)
  UniqueFunction(F&& function)  // NOLINT(google-explicit-constructor): lambdas convert, as with std::function
      : callable_(std::make_unique<Holder<std::remove_cvref_t<F>>>(std::forward<F>(function))) {}

  explicit operator bool() const noexcept { return callable_ != nullptr; }
  R operator()(Args... args) { return callable_->call(std::forward<Args>(args)...); }

 private:
  struct Callable {
    virtual ~Callable() = default;
    virtual R call(Args&&... args) = 0;
  };
  template <typename F>
  struct Holder final : Callable {
    template <typename G>
    explicit Holder(G&& g) : function(std::forward<G>(g)) {}
    R call(Args&&... args) override { return function(std::forward<Args>(args)...); }
    F function;
  };
  std::unique_ptr<Callable> callable_;
};

}  // namespace stagewire
