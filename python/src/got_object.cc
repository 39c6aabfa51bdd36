// See got_object.h.
#include "got_object.h"

#include <nanobind/stl/string.h>

namespace nb = nanobind;

namespace stagewire::python {

void bind_got(nb::module_& m) {
  nb::class_<GotObject>(m, "Got", "A payload that has arrived, and how it came.")
      .def_ro("value", &GotObject::value, "The payload.")
      .def_ro("generation", &GotObject::generation, "The generation of the key that this is.")
      .def_ro("size", &GotObject::size, "Bytes of its tensors.")
      .def_ro("transport", &GotObject::transport, "\"inline\", \"local\", \"shm\" or \"tcp\".")
      .def_ro("view", &GotObject::view, "Whether the tensors lie in the sender's memory.")
      .def_ro("placement_note", &GotObject::placement_note,
              "Why a view that was asked for became a copy; else empty.")
      .def("__repr__", [](const GotObject& got) {
        return "<stagewire.Got generation=" + std::to_string(got.generation) +
               " size=" + std::to_string(got.size) + " transport=" + got.transport +
               (got.view ? " view" : "") + ">";
      });
}

}  // namespace stagewire::python
