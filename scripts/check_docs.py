"""Checks the documentation: links between pages resolve, and the parts that a program prints are current.

A generated part stands between two marker lines, and its content is what the named command of this project prints:

    <!-- generated: stagewire config --markdown -->
    …
    <!-- /generated -->
"""

import pathlib
import re
import shlex
import subprocess

from project_files import ROOT, project_files

FENCE = re.compile(r"^(```|~~~).*?^\1[ \t]*$", re.MULTILINE | re.DOTALL)
CODE_SPAN = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)")
LINK = re.compile(r"!?\[[^\]]*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
REFERENCE = re.compile(r"^\[[^\]]+\]:\s+<?(\S+?)>?\s*$", re.MULTILINE)
HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*\s*$", re.MULTILINE)
HTML_ANCHOR = re.compile(r"<a\s+(?:id|name)=\"([^\"]+)\"")
GENERATED = re.compile(r"^<!-- generated: (.+?) -->\n(.*?)^<!-- /generated -->$", re.MULTILINE | re.DOTALL)
COMMAND_PATH = ROOT / "build" / "release" / "tools" / "stagewire"
COMMAND_SECONDS = 60


def anchors(text: str) -> set[str]:
    """The anchors a page offers, by the rule of the usual Markdown viewers."""
    text = FENCE.sub("", text)
    found = set(HTML_ANCHOR.findall(text))
    seen: dict[str, int] = {}
    for heading in HEADING.findall(text):
        plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        count = seen.get(slug, 0)
        seen[slug] = count + 1
        found.add(f"{slug}-{count}" if count else slug)
    return found


def links(text: str) -> list[str]:
    """The targets of a page's links, code left out."""
    text = CODE_SPAN.sub("", FENCE.sub("", text))
    return LINK.findall(text) + REFERENCE.findall(text)


def check_links(root: pathlib.Path, pages: list[str]) -> list[str]:
    """Links that lead nowhere. Addresses outside the tree are not followed."""
    problems = []
    for page in pages:
        path = root / page
        for target in links(path.read_text(encoding="utf-8")):
            if re.match(r"[a-z][a-z0-9+.-]*:", target):
                continue
            name, _, anchor = target.partition("#")
            aim = (path.parent / name).resolve() if name else path
            if not aim.exists():
                problems.append(f"{page}: the link '{target}' leads nowhere")
            elif not aim.is_relative_to(root):
                problems.append(f"{page}: the link '{target}' leads out of the tree")
            elif anchor and aim.suffix == ".md" and anchor not in anchors(aim.read_text(encoding="utf-8")):
                problems.append(f"{page}: the link '{target}' names a heading that is not there")
    return problems


def output_of(command: str) -> str:
    """What a generated part has to hold. Raises ValueError with the reason when it can't be had."""
    words = shlex.split(command)
    if words[0] != "stagewire":
        raise ValueError("only the stagewire command can generate a part")
    if not COMMAND_PATH.exists():
        raise ValueError("build/release/tools/stagewire is not built")
    done = subprocess.run([COMMAND_PATH, *words[1:]], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=COMMAND_SECONDS, check=False)
    text = done.stdout.decode("utf-8", "replace")
    if done.returncode != 0:
        raise ValueError(f"it ended with status {done.returncode}: {text.strip()[:300]}")
    return text if text.endswith("\n") else text + "\n"


def check_generated(root: pathlib.Path, pages: list[str], update: bool) -> list[str]:
    """Generated parts that are not what their command prints; with `update`, they are written anew instead."""
    problems = []
    for page in pages:
        text = (root / page).read_text(encoding="utf-8")
        if len(GENERATED.findall(text)) != len(re.findall(r"^<!-- generated:", text, re.MULTILINE)):
            problems.append(f"{page}: a generated part is not closed by '<!-- /generated -->'")
            continue

        def renew(match: re.Match, page: str = page) -> str:
            command, content = match.groups()
            try:
                wanted = output_of(command)
            except (OSError, ValueError, subprocess.TimeoutExpired) as error:
                problems.append(f"{page}: '{command}': {error}")
                return match.group()
            if wanted == content:
                return match.group()
            if not update:
                problems.append(f"{page}: what '{command}' prints has changed; scripts/check-docs --update renews it")
            return f"<!-- generated: {command} -->\n{wanted}<!-- /generated -->"

        renewed = GENERATED.sub(renew, text)
        if update and renewed != text:
            (root / page).write_text(renewed, encoding="utf-8")
            print(f"renewed {page}")
    return problems


def check_tree(root: pathlib.Path = ROOT, update: bool = False) -> tuple[list[str], int]:
    """The problems of every page, and how many pages were looked at."""
    pages = project_files(root, ("*.md",))
    problems = check_links(root, pages) + check_generated(root, pages, update)
    configuration = root / "docs" / "configuration.md"
    if configuration.exists() and not GENERATED.search(configuration.read_text(encoding="utf-8")):
        problems.append("docs/configuration.md: has no generated part, so that nothing keeps it current")
    return problems, len(pages)
