// What libibverbs' numbers mean to an operator: completion statuses, errno of registration and of queue-pair
// calls. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <stagewire/base/error.h>

#include "transport/verbs/verbs_api.h"

namespace stagewire {

/// Which reads a failed completion takes with it.
enum class Blame : std::uint8_t {
  read,        ///< the read that was posted wrongly or refused, alone
  connection,  ///< every read on the queue pair: the peer or the path is gone
  nobody,      ///< flushed with another's failure: to be posted again
};
Blame blame_of(ibv_wc_status status) noexcept;

/// The Error of a failed completion, with the vendor's number.
Error completion_error(const ibv_wc& completion);
/// A short, stable name for metrics: "retry_exceeded", "remote_access", …
std::string_view status_name(ibv_wc_status status) noexcept;

/// A failed ibv_reg_mr of `length` bytes: io, with the number, the limit and the command that raises it.
Error registration_error(int error_number, std::uint64_t length, std::string_view what);
/// A failed call about a queue pair or device, e.g. "ibv_create_qp".
Error call_error(int error_number, std::string_view call);

}  // namespace stagewire
