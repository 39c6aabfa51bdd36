// What this binary was built from and with. Constants filled in by CMake (version.cc.in); any thread.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace stagewire::tools {

/// "0.1.0".
std::string version_number();
/// Name and value of each fact: version, git, compiler, build type, flags, libraries.
std::vector<std::pair<std::string, std::string>> build_facts();

}  // namespace stagewire::tools
