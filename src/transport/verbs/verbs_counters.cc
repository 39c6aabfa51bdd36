// See verbs_counters.h.
#include "transport/verbs/verbs_counters.h"

#include <string>

#include "transport/verbs/verbs_error.h"

namespace stagewire {

VerbsCounters::VerbsCounters(Metrics& metrics)
    : reads(metrics.counter("stagewire_verbs_reads_total", "Reads over RDMA that succeeded")),
      bytes(metrics.counter("stagewire_verbs_bytes_total", "Bytes of reads over RDMA that succeeded")),
      aborts(metrics.counter("stagewire_verbs_aborts_total",
                             "Reads over RDMA that were stopped before their end")),
      queue_resets(
          metrics.counter("stagewire_verbs_queue_resets_total",
                          "Queue pairs that were stopped and drained, to fence a read or after a failure")),
      requests_repeated(metrics.counter("stagewire_verbs_requests_repeated_total",
                                        "Requests posted again because their queue pair was stopped")),
      connections(
          metrics.counter("stagewire_verbs_connections_total", "Queue pairs connected, to read through")),
      metrics_(metrics) {}

void VerbsCounters::failed(ibv_wc_status status) {
  metrics_
      .counter("stagewire_verbs_completion_errors_total", "Completions that failed, by status",
               {{"status", std::string(status_name(status))}})
      .add();
}

}  // namespace stagewire
