// See publication_object.h.
#include "publication_object.h"

#include <nanobind/stl/string.h>

namespace nb = nanobind;

namespace stagewire::python {

void bind_publication(nb::module_& m) {
  nb::class_<PublicationObject>(m, "Publication", "A payload that was published where it lies.")
      .def_ro("ticket", &PublicationObject::ticket, "Its ticket.")
      .def_ro("released", &PublicationObject::released,
              "Completes when its memory may be written again: a Released.")
      .def("__repr__", [](const PublicationObject& publication) {
        return "<stagewire.Publication " + std::string(nb::str(publication.ticket).c_str()) + ">";
      });
}

}  // namespace stagewire::python
