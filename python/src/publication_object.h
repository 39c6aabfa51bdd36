// Publication: what put_in_place returns, as a Python object. With the interpreter lock held.
#pragma once

#include <nanobind/nanobind.h>

namespace stagewire::python {

/// Dropping it ends nothing: the payload stays published.
struct PublicationObject {
  nanobind::object ticket;    ///< a Ticket
  nanobind::object released;  ///< a Released
};

void bind_publication(nanobind::module_& m);

}  // namespace stagewire::python
