# stagewire_fuzz_target(NAME LINK libraries…): the libFuzzer program fuzz_NAME from NAME.cc. Its seed inputs are the
# files of fuzz/corpus/NAME, its dictionary, if it has one, fuzz/NAME.dict. scripts/fuzz runs every such program.
function(stagewire_fuzz_target name)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  add_executable(fuzz_${name} "${CMAKE_CURRENT_SOURCE_DIR}/${name}.cc")
  target_link_libraries(fuzz_${name} PRIVATE ${ARG_LINK} stagewire_warnings)
  target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
endfunction()
