// See ticket_object.h.
#include "ticket_object.h"

#include <nanobind/operators.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "errors.h"
#include "process.h"

namespace nb = nanobind;

namespace stagewire::python {

namespace {

constexpr const char* kTicketPrefix = "swt1|";  // of Ticket::to_text()

std::string text_argument(nb::handle value, const char* name) {
  if (PyUnicode_Check(value.ptr()) == 0) {
    raise_invalid("get", std::string(name) + " is " + nb::repr(value).c_str() + "; expected a str");
  }
  return nb::cast<std::string>(value);
}

}  // namespace

Source source_from(nb::handle source, nb::handle key, std::string from_stage, std::string to_stage,
                   std::string name_space) {
  const bool named = !key.is_none() || !from_stage.empty() || !to_stage.empty() || !name_space.empty();
  const auto refuse_named = [named] {
    if (named) raise_invalid("get", "a ticket names its key, edge and namespace; give it alone");
  };
  if (nb::isinstance<Ticket>(source)) {
    refuse_named();
    return Source::of(*nb::inst_ptr<Ticket>(source));
  }
  if (PyUnicode_Check(source.ptr()) == 0) {
    if (PyTuple_Check(source.ptr()) != 0 && !named) return source_from_entry(source);
    raise_invalid("get", "the source is of type " + std::string(nb::type_name(source.type()).c_str()) +
                             "; expected a Ticket, the text of one, or an address");
  }
  auto text = nb::cast<std::string>(source);
  if (text.starts_with(kTicketPrefix)) {
    refuse_named();
    return Source::of(value_or_raise(Ticket::parse(text)));
  }
  if (key.is_none()) raise_invalid("get", "the address '" + text + "' needs a key beside it");
  return Source::at(std::move(text), Key{.name_space = std::move(name_space),
                                         .from_stage = std::move(from_stage),
                                         .to_stage = std::move(to_stage),
                                         .key = text_argument(key, "key")});
}

Source source_from_entry(nb::handle entry) {
  if (PyTuple_Check(entry.ptr()) == 0) return source_from(entry, nb::none(), {}, {}, {});
  const auto size = static_cast<std::size_t>(PyTuple_GET_SIZE(entry.ptr()));
  if (size < 2 || size > 5) {
    raise_invalid("get", "a source is a tuple of " + std::to_string(size) +
                             "; expected (address, key[, from_stage[, to_stage[, namespace]]])");
  }
  const auto part = [entry, size](std::size_t i, const char* name) {
    return i < size ? text_argument(PyTuple_GET_ITEM(entry.ptr(), static_cast<Py_ssize_t>(i)), name)
                    : std::string();
  };
  return Source::at(part(0, "address"), Key{.name_space = part(4, "namespace"),
                                            .from_stage = part(2, "from_stage"),
                                            .to_stage = part(3, "to_stage"),
                                            .key = part(1, "key")});
}

void bind_ticket(nb::module_& m) {
  nb::class_<Ticket>(m, "Ticket", "Names one published payload; str(ticket) travels with the request.")
      .def_static(
          "parse", [](const std::string& text) { return value_or_raise(Ticket::parse(text)); },
          nb::arg("text"), "The ticket that str(ticket) printed. Raises InvalidArgument.", Guard())
      .def_ro("addresses", &Ticket::addresses, "Where the owner listens.")
      .def_prop_ro(
          "node", [](const Ticket& ticket) { return ticket.node.hex(); }, "The owner's id.", Guard())
      .def_prop_ro(
          "namespace", [](const Ticket& ticket) { return ticket.key.name_space; }, Guard())
      .def_prop_ro(
          "from_stage", [](const Ticket& ticket) { return ticket.key.from_stage; }, Guard())
      .def_prop_ro(
          "to_stage", [](const Ticket& ticket) { return ticket.key.to_stage; }, Guard())
      .def_prop_ro(
          "key", [](const Ticket& ticket) { return ticket.key.key; }, Guard())
      .def_ro("generation", &Ticket::generation, "Which publish of the key.")
      .def_ro("size", &Ticket::size, "Bytes of its tensors.")
      .def("__str__", &Ticket::to_text, Guard())
      .def(
          "__repr__", [](const Ticket& ticket) { return "<stagewire.Ticket " + ticket.to_text() + ">"; },
          Guard())
      .def(
          "__hash__", [](const Ticket& ticket) { return std::hash<std::string>()(ticket.to_text()); },
          Guard())
      .def(
          "__eq__",
          [](const Ticket& a, nb::handle b) {
            return nb::isinstance<Ticket>(b) && a == *nb::inst_ptr<Ticket>(b);
          },
          nb::arg().none(), Guard())
      .def("__getstate__", &Ticket::to_text, Guard())
      .def(
          "__setstate__",
          [](Ticket& self, const std::string& text) {
            Ticket parsed = value_or_raise(Ticket::parse(text));
            new (&self) Ticket(std::move(parsed));
          },
          Guard());
}

}  // namespace stagewire::python
