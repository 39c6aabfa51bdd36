# The warnings that every target of the project compiles without.
add_library(stagewire_warnings INTERFACE)
target_compile_options(stagewire_warnings INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion)
if(STAGEWIRE_WERROR)
  target_compile_options(stagewire_warnings INTERFACE -Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 sees an overlap in the inlined append of "literal" + std::string&& that is not there (GCC bug 105651).
  target_compile_options(stagewire_warnings INTERFACE -Wno-restrict)
endif()
