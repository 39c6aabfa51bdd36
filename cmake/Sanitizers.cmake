# STAGEWIRE_SANITIZE=address|thread instruments the whole build. -O1 and line tables keep build and
# suite quick, with stacks that name files and lines.
if(STAGEWIRE_SANITIZE STREQUAL "address")
  # Without vptr: that check reads an object's type through a pipe and calls it an error where it gets none, as in the
  # tests of a process that has no descriptors left.
  add_compile_options(-fsanitize=address,undefined -fno-sanitize=vptr -fno-sanitize-recover=all -fno-omit-frame-pointer -O1 -gline-tables-only)
  add_link_options(-fsanitize=address,undefined)
elseif(STAGEWIRE_SANITIZE STREQUAL "thread")
  # Asio's fenced blocks use std::atomic_thread_fence, which ThreadSanitizer does not model.
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer -O1 -gline-tables-only)
  add_compile_definitions(ASIO_DISABLE_FENCED_BLOCK)
  add_link_options(-fsanitize=thread)
elseif(NOT STAGEWIRE_SANITIZE STREQUAL "")
  message(FATAL_ERROR "STAGEWIRE_SANITIZE is '${STAGEWIRE_SANITIZE}'; expected 'address', 'thread' or nothing")
endif()
