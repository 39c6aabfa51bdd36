// Errors of the core become exceptions of stagewire.errors here, and nowhere else. With the interpreter lock
// held.
#pragma once

#include <nanobind/nanobind.h>
#include <string>

#include <stagewire/base/result.h>

namespace stagewire::python {

/// The exception object of `error`, its cause included.
nanobind::object exception_of(const Error& error);
/// Throws it.
[[noreturn]] void raise(const Error& error);
/// Throws an invalid_argument error of `operation`.
[[noreturn]] void raise_invalid(const char* operation, std::string message);

/// The value, or throws the error.
template <typename T>
T value_or_raise(Result<T> result) {
  if (!result.ok()) raise(result.error());
  return std::move(result).value();
}

}  // namespace stagewire::python
