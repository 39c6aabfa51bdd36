"""What is installed: typed, self-contained, and with its names in order."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import stagewire
from stagewire import _core, errors

PACKAGE = Path(str(importlib.util.find_spec("stagewire").submodule_search_locations[0]))  # type: ignore[union-attr,index]
ALLOWED = re.compile(r"^(libc|libm|libstdc\+\+|libgcc_s|ld-linux[-\w]*)\.so\.\d+$")


def output_of(*command: str) -> str:
    if shutil.which(command[0]) is None:
        pytest.fail(f"{command[0]} is missing: apt-get install -y binutils")
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_the_extension_exports_its_entry_point_alone() -> None:
    names = {line.split()[-1] for line in output_of("nm", "-D", "--defined-only", _core.__file__).splitlines()}
    assert names == {"PyInit__core"}


def test_the_extension_needs_the_run_time_alone() -> None:
    needed = re.findall(r"\(NEEDED\).*\[(.+)\]", output_of("readelf", "-d", _core.__file__))
    assert needed and all(ALLOWED.match(name) for name in needed), needed


def test_the_package_is_typed() -> None:
    assert (PACKAGE / "py.typed").is_file()
    stubs = (PACKAGE / "_core.pyi").read_text()
    public = {name for name in dir(_core) if not name.startswith("_")}
    assert {name for name in public if not re.search(rf"^(class|def) {name}\b", stubs, re.M)} == set()
    for cls in [value for value in vars(_core).values() if isinstance(value, type)]:
        body = re.split(rf"^class {cls.__name__}\b", stubs, flags=re.M)[1].split("\nclass ")[0]
        for name in dir(cls):
            if not name.startswith("_"):
                assert re.search(rf"def {name}\b", body), f"{cls.__name__}.{name} has no stub"


def test_every_kind_of_error_has_its_class() -> None:
    classes = {cls.kind: cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, errors.Error)}
    # ErrorKind of the core; a kind that is not here would become an InternalError.
    kinds = """invalid_argument config deadline_exceeded cancelled replaced expired consumed not_found peer_restarted
        peer_lost lease_lost unreachable auth_failed protocol version_mismatch pool_exhausted too_large
        destination_held not_viable busy closed forked interrupted io internal""".split()
    assert set(kinds) == set(errors._CLASSES)
    assert all(getattr(stagewire, cls.__name__) is cls for cls in classes.values())


def test_all_names_are_there() -> None:
    assert sorted(stagewire.__all__, key=str.lower) == sorted(set(stagewire.__all__), key=str.lower)
    assert all(hasattr(stagewire, name) for name in stagewire.__all__)
    assert re.fullmatch(r"\d+\.\d+\.\d+", stagewire.__version__)
