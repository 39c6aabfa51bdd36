// The address of this host under which others see it. Stateless; any thread.
#pragma once

#include <string>

namespace stagewire {

/// The local address of the route to the outside, or 127.0.0.1 where there is none. Sends nothing.
std::string outward_address();

}  // namespace stagewire
