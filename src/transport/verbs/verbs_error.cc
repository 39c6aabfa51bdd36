// See verbs_error.h. What each status means is from the ibv_poll_cq(3) page and the InfiniBand Architecture
// Specification, volume 1, section 11.6.2.
#include "transport/verbs/verbs_error.h"

#include <cerrno>
#include <sys/resource.h>

#include "base/units.h"

namespace stagewire {

namespace {

struct Meaning {
  std::string_view name;
  ErrorKind kind;
  Blame blame;
  std::string_view text;
};

Meaning meaning_of(ibv_wc_status status) noexcept {
  switch (status) {
    case IBV_WC_SUCCESS:
      return {"success", ErrorKind::internal, Blame::nobody, "no failure"};
    case IBV_WC_LOC_LEN_ERR:
      return {"local_length", ErrorKind::internal, Blame::read,
              "the read was longer than the adapter takes (local length error)"};
    case IBV_WC_LOC_QP_OP_ERR:
      // What is posted here is well-formed. Soft-RoCE (Linux 6.1) reports this when it cannot send: the link
      // is down, or the network device is going away.
      return {"local_queue_pair", ErrorKind::io, Blame::connection,
              "the adapter could not carry out the request (local queue-pair operation error): its link is "
              "down, or it is being removed; 'rdma link' and this host's kernel log say more"};
    case IBV_WC_LOC_PROT_ERR:
      return {"local_protection", ErrorKind::internal, Blame::read,
              "the destination is not, or no longer, registered with the adapter (local protection error)"};
    case IBV_WC_WR_FLUSH_ERR:
      return {"flushed", ErrorKind::peer_lost, Blame::nobody,
              "the queue pair was stopped before the read was carried out (flushed)"};
    case IBV_WC_REM_INV_REQ_ERR:
      return {"remote_invalid_request", ErrorKind::protocol, Blame::read,
              "the peer's adapter refused the request (remote invalid request): its queue pair allows no "
              "reads, or the read is too long for it"};
    case IBV_WC_REM_ACCESS_ERR:
      return {"remote_access", ErrorKind::lease_lost, Blame::read,
              "the peer's adapter refused access to the memory (remote access error): the sender has "
              "withdrawn its registration, or announced a wrong one"};
    case IBV_WC_REM_OP_ERR:
      return {"remote_operation", ErrorKind::peer_lost, Blame::connection,
              "the peer's adapter could not carry out the read (remote operational error); see the peer's "
              "kernel log"};
    case IBV_WC_RETRY_EXC_ERR:
      return {"retry_exceeded", ErrorKind::peer_lost, Blame::connection,
              "the peer's adapter does not answer (retry count exceeded): the peer has ended, or the network "
              "between the adapters drops its packets; try ib_read_bw between the two hosts with the same "
              "device and GID index"};
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return {"rnr_retry_exceeded", ErrorKind::peer_lost, Blame::connection,
              "the peer's adapter stayed busy for too long (receiver not ready)"};
    case IBV_WC_RESP_TIMEOUT_ERR:
      return {"response_timeout", ErrorKind::peer_lost, Blame::connection,
              "the peer's adapter did not answer in time (response timeout)"};
    case IBV_WC_FATAL_ERR:
      return {"fatal", ErrorKind::io, Blame::connection,
              "the adapter has failed (fatal error); see this host's kernel log"};
    default:
      return {"other", ErrorKind::io, Blame::connection, "the adapter reported an unexpected failure"};
  }
}

}  // namespace

Blame blame_of(ibv_wc_status status) noexcept {
  return meaning_of(status).blame;
}

std::string_view status_name(ibv_wc_status status) noexcept {
  return meaning_of(status).name;
}

Error completion_error(const ibv_wc& completion) {
  const Meaning meaning = meaning_of(completion.status);
  Error error(meaning.kind, std::string(meaning.text) + "; status " +
                                std::to_string(static_cast<int>(completion.status)) + ", vendor error " +
                                std::to_string(completion.vendor_err));
  error.with_transport("verbs");
  return error;
}

Error registration_error(int error_number, std::uint64_t length, std::string_view what) {
  std::string text =
      "registering " + format_size(length) + " of " + std::string(what) + " with the adapter failed";
  rlimit limit{};
  if (error_number == ENOMEM && ::getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    text += ": this process may lock " + format_size(limit.rlim_cur) +
            " (RLIMIT_MEMLOCK); 'ulimit -l unlimited' before the start, LimitMEMLOCK=infinity in its systemd "
            "unit or --ulimit memlock=-1 for its container raises that";
  } else if (error_number == ENOMEM) {
    text +=
        ": the adapter or the kernel has no room for another registration; 'rdma resource show mr' lists "
        "who has them";
  } else if (error_number == EPERM || error_number == EACCES) {
    text += ": permission denied; a container needs the IPC_LOCK capability and /dev/infiniband/uverbs*";
  }
  return std::move(Error::from_errno(error_number, text).with_transport("verbs"));
}

Error call_error(int error_number, std::string_view call) {
  std::string text(call);
  if (error_number == ETIMEDOUT || error_number == EHOSTUNREACH || error_number == ENETUNREACH) {
    // Moving a RoCE queue pair to RTR resolves the peer's address to its MAC.
    text += ": the peer's GID could not be resolved; 'ip neigh' and a ping over the same interface show why";
  } else if (error_number == ENOMEM || error_number == ENOSPC) {
    text += ": the adapter has no room for another queue pair; 'rdma resource show qp' lists who has them";
  }
  return std::move(Error::from_errno(error_number, text).with_transport("verbs"));
}

}  // namespace stagewire
