// Result<T>: a value or an Error. The return type of everything that can fail. Using the wrong alternative is
// a programming error and aborts with the Error's text, in every build type.
#pragma once

#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

#include <stagewire/base/error.h>

namespace stagewire {

namespace detail {
/// Prints `error` (or that there is none) and aborts: a Result was used as what it is not.
[[noreturn]] void bad_result_access(const Error* error) noexcept;
}  // namespace detail

/// A T or an Error. Thread-compatible; moved-from Results may only be destroyed or assigned.
template <typename T>
class [[nodiscard]] Result {
  static_assert(!std::is_same_v<std::remove_cv_t<T>, Error>, "Result<Error> is ambiguous");

 public:
  Result(T value)
      : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT(google-explicit-constructor)
  Result(Error error)
      : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const noexcept { return state_.index() == 0; }
  explicit operator bool() const noexcept { return ok(); }

  T& value() & {
    if (!ok()) detail::bad_result_access(std::get_if<1>(&state_));
    return *std::get_if<0>(&state_);
  }
  const T& value() const& {
    if (!ok()) detail::bad_result_access(std::get_if<1>(&state_));
    return *std::get_if<0>(&state_);
  }
  T&& value() && { return std::move(value()); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(value()); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  Error& error() & {
    if (ok()) detail::bad_result_access(nullptr);
    return *std::get_if<1>(&state_);
  }
  const Error& error() const& {
    if (ok()) detail::bad_result_access(nullptr);
    return *std::get_if<1>(&state_);
  }
  Error&& error() && { return std::move(error()); }

 private:
  std::variant<T, Error> state_;
};

/// Success without a value, or an Error.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const noexcept { return !error_.has_value(); }
  explicit operator bool() const noexcept { return ok(); }
  void value() const {
    if (error_) detail::bad_result_access(&*error_);
  }
  Error& error() & {
    if (!error_) detail::bad_result_access(nullptr);
    return *error_;
  }
  const Error& error() const& {
    if (!error_) detail::bad_result_access(nullptr);
    return *error_;
  }
  Error&& error() && { return std::move(error()); }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

}  // namespace stagewire

#define STAGEWIRE_CONCAT_INNER(a, b) a##b
#define STAGEWIRE_CONCAT(a, b) STAGEWIRE_CONCAT_INNER(a, b)

/// Evaluates a Result<void> expression and returns its Error from the enclosing function if it failed.
#define STAGEWIRE_TRY(expr)                                                         \
  do {                                                                              \
    auto stagewire_try_result = (expr);                                             \
    if (!stagewire_try_result.ok()) return std::move(stagewire_try_result).error(); \
  } while (false)

/// Declares or assigns `lhs` from a Result<T> expression, or returns its Error from the enclosing function.
#define STAGEWIRE_ASSIGN(lhs, expr) \
  STAGEWIRE_ASSIGN_INNER(STAGEWIRE_CONCAT(stagewire_result_, __LINE__), lhs, expr)
#define STAGEWIRE_ASSIGN_INNER(name, lhs, expr)   \
  auto name = (expr);                             \
  if (!name.ok()) return std::move(name).error(); \
  lhs = std::move(name).value()
