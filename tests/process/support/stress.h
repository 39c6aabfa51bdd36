// Many threads of one process that put payloads of random sizes and get another process's, checking every
// byte. Blocking; run it in both processes at once.
#pragma once

#include <cstdint>
#include <string>

#include <stagewire/node/node.h>

namespace stagewire::test {

struct Stress {
  std::string other;         ///< the other node's address
  std::string own_prefix;    ///< of the keys put here
  std::string other_prefix;  ///< of the keys put there
  std::uint64_t threads = 8;
  std::uint64_t rounds = 50;  ///< puts and gets of each thread
};

struct StressResult {
  std::uint64_t good = 0;  ///< gets whose bytes were right
  std::string problem;     ///< the last thing that went wrong
};

StressResult run_stress(Node& node, const Stress& stress);

}  // namespace stagewire::test
