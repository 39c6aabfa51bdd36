# stagewire_hide_symbols(TARGET): lets an extension module export its entry point alone. Two extensions of one process
# must not see each other's copies of a bundled library, and the C++ standard library's templates, which hidden
# visibility doesn't cover, would be exported otherwise.
function(stagewire_hide_symbols target)
  set(script "${PROJECT_SOURCE_DIR}/cmake/python_extension.map")
  target_link_options(${target} PRIVATE "LINKER:--version-script=${script}" "LINKER:--exclude-libs,ALL")
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS "${script}")
endfunction()
