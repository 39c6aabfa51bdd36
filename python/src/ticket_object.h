// Tickets as Python objects, and the places a get can be told to get from. With the interpreter lock held.
#pragma once

#include <nanobind/nanobind.h>
#include <string>

#include <stagewire/node/options.h>

namespace stagewire::python {

/// The source that the arguments of a get name: a Ticket, its text, or an address with the other arguments.
Source source_from(nanobind::handle source, nanobind::handle key, std::string from_stage,
                   std::string to_stage, std::string name_space);
/// An entry of get_many: a Ticket, its text, or a tuple (address, key[, from_stage[, to_stage[,
/// namespace]]]).
Source source_from_entry(nanobind::handle entry);

void bind_ticket(nanobind::module_& m);

}  // namespace stagewire::python
