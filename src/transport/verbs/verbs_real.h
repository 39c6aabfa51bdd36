// libibverbs as it is installed here, opened at run time, so that one binary runs with and without it. Made
// once by each verbs transport; any thread.
#pragma once

#include <memory>
#include <string>

#include <stagewire/base/result.h>

#include "transport/verbs/verbs_api.h"

namespace stagewire {

/// Opens the library of this name and finds every symbol. Errors: not_viable, saying what is missing and
/// which package has it.
Result<std::shared_ptr<VerbsApi>> open_real_verbs(const std::string& name = "libibverbs.so.1");

}  // namespace stagewire
