# `cmake --install`: the public headers, one static library of all layers, the command, and the CMake package that
# find_package(stagewire) finds. The wheel has install rules of its own (python/CMakeLists.txt).
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

foreach(_layer base memory payload transport session node connector)
  list(APPEND _objects "$<TARGET_OBJECTS:stagewire_${_layer}>")
endforeach()
add_library(stagewire STATIC ${_objects})
set_target_properties(stagewire PROPERTIES LINKER_LANGUAGE CXX)
target_compile_features(stagewire INTERFACE cxx_std_20)
target_include_directories(stagewire INTERFACE "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
target_link_libraries(stagewire INTERFACE
  "$<INSTALL_INTERFACE:Threads::Threads;stagewire::sodium;stagewire::yaml;${CMAKE_DL_LIBS}>")

set(_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/stagewire")
install(TARGETS stagewire EXPORT stagewire_targets ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(EXPORT stagewire_targets NAMESPACE stagewire:: FILE stagewireTargets.cmake DESTINATION "${_package_dir}")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/stagewire" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
  FILES_MATCHING PATTERN "*.h")
if(TARGET stagewire_cli)
  install(TARGETS stagewire_cli RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
endif()

configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/stagewireConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/stagewireConfig.cmake" INSTALL_DESTINATION "${_package_dir}")
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/stagewireConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/stagewireConfig.cmake" "${PROJECT_BINARY_DIR}/stagewireConfigVersion.cmake"
  DESTINATION "${_package_dir}")
