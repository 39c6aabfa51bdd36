// See buffer_object.h.
#include "buffer_object.h"

#include <limits>
#include <nanobind/stl/string.h>

#include "base/oneshot.h"
#include "call.h"
#include "errors.h"
#include "process.h"

namespace nb = nanobind;

namespace stagewire::python {

namespace {

constexpr const char* kOperation = "allocate";

Error described(Error error) {
  return std::move(error.with_operation(kOperation));
}

std::size_t byte_count(nb::handle nbytes) {
  const auto refuse = [nbytes] {
    raise_invalid(kOperation, "nbytes is " + std::string(nb::repr(nbytes).c_str()) +
                                  "; expected a number of bytes, 0 or more");
  };
  if (PyIndex_Check(nbytes.ptr()) == 0 || PyBool_Check(nbytes.ptr())) refuse();
  const nb::object number = nb::steal(PyNumber_Index(nbytes.ptr()));
  if (!number.is_valid()) throw nb::python_error();
  int overflow = 0;
  const long long size = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  if (overflow < 0 || (overflow == 0 && size < 0)) refuse();
  // That no pool can be so large is for the pool to say.
  return overflow > 0 ? std::numeric_limits<std::size_t>::max() : static_cast<std::size_t>(size);
}

void check_alive(const BufferObject& object) {
  if (const Status alive = object.made_in.check(); !alive.ok()) {
    Error error = alive.error();
    raise(error.with_operation("buffer"));
  }
}

// Called by the interpreter, so nothing may be thrown out of it.
int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  view->obj = nullptr;
  if (!nb::inst_ready(self)) {
    PyErr_SetString(PyExc_BufferError, "the Buffer was never made; use Node.allocate()");
    return -1;
  }
  const auto* object = nb::inst_ptr<BufferObject>(self);
  try {
    check_alive(*object);
  } catch (nb::python_error& error) {
    error.restore();
    return -1;
  }
  return PyBuffer_FillInfo(view, self, object->buffer->data(),
                           static_cast<Py_ssize_t>(object->buffer->size()), 0, flags);
}

PyType_Slot g_buffer_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(&get_buffer)}, {0, nullptr}};

}  // namespace

BufferObject allocate_buffer(const std::shared_ptr<Node>& node, nb::handle nbytes, nb::handle timeout) {
  const std::size_t size = byte_count(nbytes);
  const Deadline deadline =
      Deadline::in(optional_seconds(timeout, kOperation, "timeout").value_or(node->config().put_wait));
  Oneshot<Result<Buffer>> oneshot = Oneshot<Result<Buffer>>::make();
  const auto promise = std::make_shared<OneshotPromise<Result<Buffer>>>(std::move(oneshot.promise));
  const std::shared_ptr<Pool> pool = node->publish_pool();
  // One request over the whole wait, so that signals which are handled meanwhile don't cost its place in
  // line.
  const Pool::AllocationId id = pool->allocate_async(
      size, "allocate", [promise](Result<Buffer> buffer) { promise->set(std::move(buffer)); });
  try {
    static_cast<void>(wait_interruptibly(oneshot.future, deadline));
  } catch (nb::python_error&) {
    pool->cancel(id);
    throw;
  }
  pool->cancel(id);  // of one that still waits the answer is in place when this returns
  std::optional<Result<Buffer>> buffer = oneshot.future.try_take();
  if (!buffer) raise(described(Error(ErrorKind::internal, "the pool gave no answer")));
  if (!buffer->ok()) raise(described(std::move(*buffer).error()));
  return {.buffer = std::make_shared<Buffer>(std::move(*buffer).value()), .made_in = {}};
}

void bind_buffer(nb::module_& m) {
  nb::class_<BufferObject>(m, "Buffer", nb::type_slots(g_buffer_slots), nb::is_final(),
                           "Memory of the publish pool, writable (buffer protocol): made by Node.allocate(), "
                           "published by Node.put_in_place().")
      .def_prop_ro(
          "nbytes", [](const BufferObject& object) { return object.buffer->size(); }, "Its size in bytes.")
      .def_prop_ro(
          "address",
          [](const BufferObject& object) { return reinterpret_cast<std::uintptr_t>(object.buffer->data()); },
          "Where it lies in this process; a multiple of 256.")
      .def("__repr__", [](const BufferObject& object) {
        return "<stagewire.Buffer of " + std::to_string(object.buffer->size()) + " bytes>";
      });
}

}  // namespace stagewire::python
