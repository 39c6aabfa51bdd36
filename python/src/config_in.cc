// See config_in.h.
#include "config_in.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "errors.h"

namespace nb = nanobind;

namespace stagewire::python {

namespace {

std::string path_text(nb::handle path) {
  nb::object bytes = nb::steal(PyOS_FSPath(path.ptr()));
  if (!bytes.is_valid()) throw nb::python_error();
  if (PyBytes_Check(bytes.ptr()) != 0) return {PyBytes_AS_STRING(bytes.ptr())};
  return nb::cast<std::string>(bytes);
}

ConfigValue value_from(const std::string& name, nb::handle value) {
  PyObject* const o = value.ptr();
  if (PyBool_Check(o)) return o == Py_True;
  if (PyLong_Check(o)) {
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(o, &overflow);
    if (overflow == 0) return std::int64_t{number};
  }
  if (PyFloat_Check(o)) return PyFloat_AS_DOUBLE(o);
  if (PyUnicode_Check(o)) return nb::cast<std::string>(value);
  if (PyObject_HasAttrString(o, "__fspath__") != 0) return path_text(value);
  if (PyList_Check(o) || PyTuple_Check(o)) {
    std::vector<std::string> items;
    if (nb::try_cast(value, items)) return items;
  }
  raise(Error(ErrorKind::config, "option " + name + " is " + nb::repr(value).c_str() +
                                     "; expected a bool, int, float, str or a list of str"));
}

}  // namespace

NodeConfig config_from(const nb::dict& values, nb::handle file, bool environment) {
  ConfigSources sources;
  sources.environment = environment;
  if (!file.is_none()) sources.file = path_text(file);
  for (const auto& [name, value] : values) {
    if (PyUnicode_Check(name.ptr()) == 0) {
      raise(Error(ErrorKind::config,
                  std::string("an option's name is ") + nb::repr(name).c_str() + "; expected a str"));
    }
    auto text = nb::cast<std::string>(name);
    ConfigValue made = value_from(text, value);
    sources.values.emplace_back(std::move(text), std::move(made));
  }
  return value_or_raise(load_config(sources));
}

}  // namespace stagewire::python
