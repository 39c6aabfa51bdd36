// The extension module stagewire._core. Everything a user sees is re-exported by the package.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "buffer_object.h"
#include "connector_object.h"
#include "frameworks.h"
#include "future_object.h"
#include "got_object.h"
#include "memory_object.h"
#include "node_object.h"
#include "process.h"
#include "publication_object.h"
#include "region_object.h"
#include "released_object.h"
#include "releases.h"
#include "ticket_object.h"

namespace nb = nanobind;

NB_MODULE(_core, m) {
  namespace binding = stagewire::python;
  // A program may end while it holds views: nothing to complain about.
  nb::set_leak_warnings(false);
  m.attr("__version__") = STAGEWIRE_VERSION;
  binding::bind_memory(m);
  binding::bind_got(m);
  binding::bind_ticket(m);
  binding::bind_future(m);
  binding::bind_buffer(m);
  binding::bind_region(m);
  binding::bind_released(m);
  binding::bind_publication(m);
  binding::bind_node(m);
  binding::bind_connector(m);
  m.def("reap_once", &binding::reap_once, binding::Guard(), "The reaper thread's body.");
  m.def("close_process", &binding::close_process, "For atexit.");
  m.def("forget_after_fork", &binding::forget_after_fork, "For os.register_at_fork.");
  m.def("torch_loaded", [] { return binding::torch() != nullptr; }, "Whether the caller has imported torch.");
}
