// What the verbs transport counts. References into the node's Metrics; any thread.
#pragma once

#include <stagewire/base/metrics.h>

#include "transport/verbs/verbs_api.h"

namespace stagewire {

class VerbsCounters {
 public:
  explicit VerbsCounters(Metrics& metrics);
  /// A completion that failed, by its status.
  void failed(ibv_wc_status status);

  Counter& reads;
  Counter& bytes;
  Counter& aborts;
  Counter& queue_resets;
  Counter& requests_repeated;
  Counter& connections;

 private:
  Metrics& metrics_;
};

}  // namespace stagewire
