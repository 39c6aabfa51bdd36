"""Checks that the tree can stand alone: no paths of one machine, no loose ends without an issue, no overlong
files. Run by ./test.
"""

import pathlib
import re

from project_files import ROOT, project_files

MOST_LINES = 500
LONG_FILES = "scripts/long-files.txt"
CODE = (".cc", ".h", ".py", ".pyi", ".sh", ".cmake", ".txt", "")  # "": the scripts without an extension

# An absolute path of a work place or of a user's home. Not in the middle of a path or an address.
MACHINE_PATH = re.compile(r"(?<![\w.~$}*/-])/(?:work|root|farm|home/[a-z]\w*)(?:/|\b(?=[\s\"'`]))")
LOOSE_END = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b(?!\(#\d+\))")
CONFLICT = re.compile(r"^(<{7}|>{7}) ", re.MULTILINE)


def line_of(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def check_text(path: str, text: str) -> list[str]:
    """What is wrong with the text of one file, its length aside."""
    problems = []
    for match in MACHINE_PATH.finditer(text):
        problems.append(f"{path}:{line_of(text, match.start())}: '{match.group()}': a path of one machine")
    for match in LOOSE_END.finditer(text):
        word = match.group(1)
        problems.append(f"{path}:{line_of(text, match.start())}: {word} without an issue: finish it, or write {word}(#12)")
    for match in CONFLICT.finditer(text):
        problems.append(f"{path}:{line_of(text, match.start())}: a conflict marker of a merge")
    if text and not text.endswith("\n"):
        problems.append(f"{path}:{line_of(text, len(text))}: no newline at the end")
    return problems


def read_long_files(text: str) -> tuple[dict[str, str], list[str]]:
    """The files that may be long, each with its reason, and what is wrong with the list."""
    reasons: dict[str, str] = {}
    problems = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, _, reason = line.partition(":")
        if not reason.strip():
            problems.append(f"{LONG_FILES}:{number}: write 'path: reason'")
        reasons[name.strip()] = reason.strip()
    return reasons, problems


def check_lengths(lengths: dict[str, int], list_text: str) -> list[str]:
    """Files over the limit that the list doesn't name, and entries of the list that nothing needs any more."""
    reasons, problems = read_long_files(list_text)
    for name, length in lengths.items():
        if length > MOST_LINES and name not in reasons:
            problems.append(f"{name}: {length} lines; split it by concern (at most {MOST_LINES}), "
                            f"or give the reason in {LONG_FILES}")
    for name in reasons:
        if lengths.get(name, 0) <= MOST_LINES:
            problems.append(f"{LONG_FILES}: '{name}' is not over {MOST_LINES} lines; remove the entry")
    return problems


def check_tree(root: pathlib.Path = ROOT) -> tuple[list[str], int]:
    """The problems of the whole tree, and how many text files were looked at."""
    problems, lengths = [], {}
    for name in project_files(root):
        data = (root / name).read_bytes()
        if b"\0" in data or "/corpus/" in name or name == "LICENSE":
            continue
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            problems.append(f"{name}: neither UTF-8 text nor binary")
            continue
        problems += check_text(name, text)
        if pathlib.PurePosixPath(name).suffix in CODE:
            lengths[name] = text.count("\n")
    list_path = root / LONG_FILES
    problems += check_lengths(lengths, list_path.read_text(encoding="utf-8") if list_path.exists() else "")
    return problems, len(lengths)
