"""Checks that the folder tree is the architecture: an include may go to its own layer or one below it, never up,
and public headers name no third-party library. Rules that the compiler can't see, run by ./test.
"""

import pathlib
import re

from project_files import ROOT, project_files

# From the lowest up. The binding and the tools stand on top and may use everything.
LAYERS = ("base", "memory", "payload", "transport", "session", "node", "connector")

# First components (or whole names) of the headers of the libraries in docs/dependencies.md.
THIRD_PARTY = {"asio", "asio.hpp", "boost", "benchmark", "CLI", "cuda.h", "fmt", "gmock", "gtest", "infiniband", "msgpack",
               "msgpack.h", "msgpack.hpp", "nanobind", "sodium", "sodium.h", "spdlog", "yaml-cpp", "yaml.h", "Python.h"}

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)


def layer_of_file(parts: tuple[str, ...]) -> str | None:
    """The layer a source file belongs to; None where no rule holds (tests, tools, binding, …)."""
    if parts[0] == "src" and len(parts) > 2:
        return parts[1]
    if parts[:2] == ("include", "stagewire") and len(parts) > 3:
        return parts[2]
    if parts[0] in ("src", "include"):
        return ""
    return None


def layer_of_include(name: str) -> str | None:
    """The layer an included header belongs to; None where it is none of this project's."""
    parts = name.split("/")
    if parts[0] == "stagewire":
        return parts[1] if len(parts) > 2 else ""
    return parts[0] if len(parts) > 1 and parts[0] in LAYERS else None


def check_text(path: str, text: str) -> list[str]:
    """What is wrong with the includes of one file, each as "path:line: message"."""
    parts = pathlib.PurePosixPath(path).parts
    layer = layer_of_file(parts)
    if layer is None:
        return []
    if layer not in LAYERS:
        return [f"{path}:1: not in the folder of a layer ({', '.join(LAYERS)})"]
    public = parts[0] == "include"
    problems = []
    for match in INCLUDE.finditer(text):
        bracket, name = match.groups()
        where = f"{path}:{text.count(chr(10), 0, match.start(1)) + 1}"
        target = layer_of_include(name)
        if ".." in name.split("/"):
            problems.append(f"{where}: '{name}': write an include from the source root, not with '..'")
        elif target is None:
            if public and name.split("/")[0] in THIRD_PARTY:
                problems.append(f"{where}: '{name}': no third-party library may stand in a public header")
            elif public and bracket == '"':
                problems.append(f'{where}: "{name}": a public header includes only <stagewire/…> and system headers')
        elif target not in LAYERS:
            problems.append(f"{where}: '{name}': names no layer ({', '.join(LAYERS)})")
        elif LAYERS.index(target) > LAYERS.index(layer):
            problems.append(f"{where}: '{name}': '{layer}' lies below '{target}' and must not use it")
        elif public and bracket == '"':
            problems.append(f'{where}: "{name}": a public header must not include an internal one')
    return problems


def check_tree(root: pathlib.Path = ROOT) -> tuple[list[str], int]:
    """The problems of the whole tree, and how many files were looked at."""
    files = [name for name in project_files(root, ("*.h", "*.cc")) if name.split("/")[0] in ("src", "include")]
    problems = []
    for name in files:
        problems += check_text(name, (root / name).read_text(encoding="utf-8"))
    return problems, len(files)
