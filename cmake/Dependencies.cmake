# Finds the libraries the project builds on (docs/dependencies.md says what each is for). A missing one stops the
# configuration with the package to install. Static archives are used where Debian's are position-independent, so
# that the Python wheel needs nothing but the C and C++ runtime.
set(_missing "")

function(stagewire_find_header variable header package)
  find_path(${variable} ${header})
  if(NOT ${variable})
    set(_missing "${_missing} ${package}" PARENT_SCOPE)
  endif()
endfunction()

function(stagewire_find_archive variable archive package)
  find_library(${variable} NAMES ${archive})
  if(NOT ${variable})
    set(_missing "${_missing} ${package}" PARENT_SCOPE)
  endif()
endfunction()

find_package(Threads REQUIRED)
stagewire_find_header(STAGEWIRE_ASIO_INCLUDE asio.hpp libasio-dev)
stagewire_find_header(STAGEWIRE_MSGPACK_INCLUDE msgpack.hpp libmsgpack-cxx-dev)
stagewire_find_header(STAGEWIRE_SPDLOG_INCLUDE spdlog/spdlog.h libspdlog-dev)
stagewire_find_header(STAGEWIRE_FMT_INCLUDE fmt/format.h libfmt-dev)
stagewire_find_header(STAGEWIRE_SODIUM_INCLUDE sodium.h libsodium-dev)
stagewire_find_archive(STAGEWIRE_SODIUM_ARCHIVE libsodium.a libsodium-dev)
stagewire_find_header(STAGEWIRE_YAML_INCLUDE yaml.h libyaml-dev)
stagewire_find_archive(STAGEWIRE_YAML_ARCHIVE libyaml.a libyaml-dev)
# Types and inline functions alone: nothing is linked, the library is opened at run time.
stagewire_find_header(STAGEWIRE_VERBS_INCLUDE infiniband/verbs.h libibverbs-dev)
if(STAGEWIRE_TOOLS)
  stagewire_find_header(STAGEWIRE_CLI11_INCLUDE CLI/CLI.hpp libcli11-dev)
endif()
if(STAGEWIRE_TESTS)
  stagewire_find_header(STAGEWIRE_GMOCK_INCLUDE gmock/gmock.h libgmock-dev)
  find_package(GTest QUIET)
  if(NOT GTest_FOUND)
    string(APPEND _missing " libgtest-dev")
  endif()
endif()
if(STAGEWIRE_BENCH)
  find_package(benchmark QUIET)
  if(NOT benchmark_FOUND)
    string(APPEND _missing " libbenchmark-dev")
  endif()
endif()
if(STAGEWIRE_PYTHON)
  # scikit-build-core chooses the interpreter (Python_EXECUTABLE); nanobind reads the same Python_… variables.
  find_package(Python 3.10 QUIET COMPONENTS Interpreter OPTIONAL_COMPONENTS Development.Module)
  if(NOT Python_Interpreter_FOUND)
    string(APPEND _missing " python3")
  elseif(NOT Python_Development.Module_FOUND)
    string(APPEND _missing " python3-dev")
  endif()
endif()
if(NOT _missing STREQUAL "")
  string(REGEX MATCHALL "[^ ]+" _missing "${_missing}")
  list(REMOVE_DUPLICATES _missing)
  list(JOIN _missing " " _missing)
  message(FATAL_ERROR "stagewire needs libraries that are not installed. Run:\n  apt-get install -y ${_missing}\n")
endif()

# spdlog and fmt header-only: Debian's fmt archive would do, but spdlog's is built against the shared fmt.
add_library(stagewire_spdlog INTERFACE)
target_include_directories(stagewire_spdlog SYSTEM INTERFACE ${STAGEWIRE_SPDLOG_INCLUDE} ${STAGEWIRE_FMT_INCLUDE})
target_compile_definitions(stagewire_spdlog INTERFACE SPDLOG_FMT_EXTERNAL FMT_HEADER_ONLY)

add_library(stagewire_msgpack INTERFACE)
target_include_directories(stagewire_msgpack SYSTEM INTERFACE ${STAGEWIRE_MSGPACK_INCLUDE})
target_compile_definitions(stagewire_msgpack INTERFACE MSGPACK_NO_BOOST)

add_library(stagewire_sodium INTERFACE)
target_include_directories(stagewire_sodium SYSTEM INTERFACE ${STAGEWIRE_SODIUM_INCLUDE})
target_link_libraries(stagewire_sodium INTERFACE ${STAGEWIRE_SODIUM_ARCHIVE})

add_library(stagewire_yaml INTERFACE)
target_include_directories(stagewire_yaml SYSTEM INTERFACE ${STAGEWIRE_YAML_INCLUDE})
target_link_libraries(stagewire_yaml INTERFACE ${STAGEWIRE_YAML_ARCHIVE})

# Asio compiled once (src/base/asio_impl.cc). Clang 19 with libstdc++ needs the two coroutine macros said aloud.
add_library(stagewire_asio INTERFACE)
target_include_directories(stagewire_asio SYSTEM INTERFACE ${STAGEWIRE_ASIO_INCLUDE})
# Whether Asio uses aligned_alloc would otherwise depend on what each file includes before it, and memory would be
# allocated one way and freed the other.
target_compile_definitions(stagewire_asio INTERFACE ASIO_STANDALONE ASIO_SEPARATE_COMPILATION ASIO_NO_DEPRECATED
  ASIO_DISABLE_STD_ALIGNED_ALLOC
  $<$<CXX_COMPILER_ID:Clang>:ASIO_HAS_CO_AWAIT ASIO_HAS_STD_COROUTINE>)
target_link_libraries(stagewire_asio INTERFACE Threads::Threads)

# nanobind comes from PyPI with its CMake files: a build requirement in pyproject.toml, or installed by hand.
if(STAGEWIRE_PYTHON)
  execute_process(COMMAND "${Python_EXECUTABLE}" -m nanobind --cmake_dir OUTPUT_VARIABLE nanobind_ROOT
    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE _nanobind_status)
  if(NOT _nanobind_status EQUAL 0)
    message(FATAL_ERROR "${Python_EXECUTABLE} has no nanobind. Build the package with:\n  pip install .\n"
      "or install nanobind for this interpreter:\n  ${Python_EXECUTABLE} -m pip install nanobind\n")
  endif()
  find_package(nanobind CONFIG REQUIRED)
endif()
