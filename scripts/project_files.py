"""Lists the project's own files: tracked by git, or new and not ignored. Used by the checks of ./test.

    /usr/bin/python3 scripts/project_files.py [PATTERN...]

A pattern is a file name pattern ("*.cc"); without one, every file is listed.
"""

import fnmatch
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def project_files(root: pathlib.Path = ROOT, patterns: tuple[str, ...] = ()) -> list[str]:
    """Paths relative to `root`, sorted; only files whose name matches one of `patterns`."""
    listing = subprocess.run(
        ["git", "-c", f"safe.directory={root}", "-C", str(root), "ls-files", "-z", "--cached", "--others",
         "--exclude-standard", "--deduplicate"],
        check=True, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL,
    ).stdout.decode()
    names = [name for name in listing.split("\0") if name and (root / name).is_file()]
    if patterns:
        names = [name for name in names
                 if any(fnmatch.fnmatchcase(pathlib.PurePath(name).name, pattern) for pattern in patterns)]
    return sorted(names)


def report(problems: list[str], checked: str) -> int:
    """Prints what a check found and returns its exit status."""
    for problem in problems:
        print(f"error: {problem}")
    print(f"{checked}: {len(problems)} problems" if problems else f"{checked}: nothing wrong")
    return 1 if problems else 0


if __name__ == "__main__":
    print(*project_files(patterns=tuple(sys.argv[1:])), sep="\n")
