"""Checks that a wheel is self-contained: its extension needs only the C and C++ run-time, exports nothing but
its entry point, and the package is typed. Run by ./test on the wheel it has just built.
"""

import os
import pathlib
import re
import subprocess
import tempfile
import zipfile

from project_files import ROOT

# The dynamic loader's name differs between architectures.
ALLOWED_NEEDED = re.compile(r"^(libc\.so\.6|libm\.so\.6|libstdc\+\+\.so\.6|libgcc_s\.so\.1|ld-linux[-\w]*\.so\.\d)$")
ALLOWED_EXPORT = re.compile(r"^PyInit_\w+$")
ENVIRONMENT = {**os.environ, "LC_ALL": "C"}


def run(*command: str) -> str:
    return subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=ENVIRONMENT
                          ).stdout.decode("utf-8", "replace")


def unwanted_needs(dynamic_section: str) -> list[str]:
    """Libraries that the output of `readelf -d` names as needed, beyond the allowed ones."""
    needed = re.findall(r"\(NEEDED\).*\[(.+?)\]", dynamic_section)
    return [name for name in needed if not ALLOWED_NEEDED.match(name)]


def unwanted_exports(symbols: str) -> list[str]:
    """Symbols that the output of `nm -D --defined-only` lists, beyond the entry point."""
    names = [line.split()[-1].split("@")[0] for line in symbols.splitlines() if line.strip()]
    return [name for name in names if not ALLOWED_EXPORT.match(name)]


def check_extension(path: pathlib.Path) -> list[tuple[str, str]]:
    """(what was checked, what is wrong or "") of one shared object."""
    dynamic = run("readelf", "-d", str(path))
    symbols = run("nm", "-D", "--defined-only", str(path))
    needs, exports = unwanted_needs(dynamic), unwanted_exports(symbols)
    entry = f"PyInit_{path.name.split('.')[0]}"
    search = re.findall(r"\((?:RPATH|RUNPATH)\).*", dynamic)
    tree = str(ROOT).encode() in path.read_bytes()
    return [
        (f"{path.name} needs only the C and C++ run-time", ", ".join(needs)),
        (f"{path.name} exports only its entry point",
         f"{len(exports)} more symbols, such as {', '.join(exports[:5])}" if exports else ""),
        (f"{path.name} has the entry point {entry}", "" if entry in symbols.split() else "it is missing"),
        (f"{path.name} has no library search path of its own", ", ".join(search)),
        (f"{path.name} holds no path of the build machine", "the source tree's path stands in it" if tree else ""),
    ]


def check_wheel(path: pathlib.Path) -> list[tuple[str, str]]:
    """(what was checked, what is wrong or "") of the whole wheel."""
    with zipfile.ZipFile(path) as wheel, tempfile.TemporaryDirectory() as folder:
        names = wheel.namelist()
        wheel.extractall(folder)
        libraries = [name for name in names if re.search(r"\.so(\.\d+)*$", name)]
        checks = [
            ("the wheel holds one shared object", "" if len(libraries) == 1 else f"it holds {libraries}"),
            ("the package is marked as typed", "" if "stagewire/py.typed" in names else "stagewire/py.typed is missing"),
            ("the extension has stubs",
             "" if any(name.endswith(".pyi") for name in names) else "there is no .pyi file"),
            ("the licence is in it", "" if any(name.endswith("LICENSE") for name in names) else "LICENSE is missing"),
            ("nothing lies outside the package",
             ", ".join(n for n in names if not re.match(r"stagewire(/|-[\w.+]+\.(dist-info|data)/)", n))),
        ]
        for name in libraries:
            checks += check_extension(pathlib.Path(folder) / name)
        return checks
