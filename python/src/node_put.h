// The publishing methods of Node. With the interpreter lock held, given up while the core copies and waits.
#pragma once

#include <nanobind/nanobind.h>
#include <string>

#include <stagewire/node/ticket.h>

#include "node_object.h"
#include "publication_object.h"

namespace stagewire::python {

/// Copies the payload and publishes it. Throws the core's errors, and what a signal handler raises.
Ticket put(NodeObject& self, std::string key, nanobind::handle payload, std::string from_stage,
           std::string to_stage, std::string name_space, std::int64_t readers, nanobind::handle ttl,
           nanobind::handle max_lifetime, nanobind::handle timeout, nanobind::handle fallback);

/// Publishes a payload whose tensors lie in `memory`, without a copy; never waits. Throws invalid_argument,
/// naming the place of the tensor that does not, and the core's errors.
PublicationObject put_in_place(NodeObject& self, std::string key, nanobind::handle payload,
                               nanobind::handle memory, std::string from_stage, std::string to_stage,
                               std::string name_space, std::int64_t readers, nanobind::handle ttl,
                               nanobind::handle max_lifetime, nanobind::handle fallback);

}  // namespace stagewire::python
