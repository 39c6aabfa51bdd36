#!/usr/bin/python3
"""Tests of the check scripts: each must find what it is for, and leave alone what is fine.

    scripts/checks_test.py [--report FILE]
"""

import argparse
import importlib.machinery
import importlib.util
import pathlib
import subprocess
import sys
import tempfile
import unittest

import check_docs
import check_hygiene
import check_layers
import check_wheel
import project_files

SCRIPTS = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(SCRIPTS / "rxe"))
import image  # noqa: E402 (of scripts/rxe)


class Layers(unittest.TestCase):
    def assert_found(self, path: str, include: str, words: str) -> None:
        found = check_layers.check_text(path, f"#pragma once\n#include {include}\n")
        self.assertEqual(len(found), 1, found)
        self.assertIn(words, found[0])
        self.assertTrue(found[0].startswith(f"{path}:2: "), found)

    def assert_fine(self, path: str, include: str) -> None:
        self.assertEqual(check_layers.check_text(path, f"#include {include}\n"), [])

    def test_upward(self) -> None:
        for index, low in enumerate(check_layers.LAYERS):
            for high in check_layers.LAYERS[index + 1:]:
                self.assert_found(f"src/{low}/a.cc", f'"{high}/b.h"', "lies below")
                self.assert_found(f"src/{low}/deep/a.h", f"<stagewire/{high}/b.h>", "lies below")
                self.assert_found(f"include/stagewire/{low}/a.h", f"<stagewire/{high}/b.h>", "lies below")

    def test_downward(self) -> None:
        for index, high in enumerate(check_layers.LAYERS):
            for low in check_layers.LAYERS[: index + 1]:
                self.assert_fine(f"src/{high}/a.cc", f'"{low}/b.h"')
                self.assert_fine(f"include/stagewire/{high}/a.h", f"<stagewire/{low}/b.h>")

    def test_other_spellings(self) -> None:
        self.assert_found("src/base/a.cc", '"../node/b.h"', "'..'")
        self.assertTrue(check_layers.check_text("src/base/a.cc", '\t#\tinclude   "node/b.h"\n'))

    def test_public_headers(self) -> None:
        for name in ("<spdlog/spdlog.h>", "<fmt/format.h>", "<msgpack.hpp>", "<asio.hpp>", "<asio/post.hpp>", "<yaml.h>",
                     "<CLI/CLI.hpp>", "<sodium.h>", '"sodium/utils.h"'):
            self.assert_found("include/stagewire/base/a.h", name, "third-party")
            self.assert_fine("src/base/a.cc", name)
        self.assert_found("include/stagewire/node/a.h", '"base/fd.h"', "internal")
        self.assert_found("include/stagewire/node/a.h", '"other.h"', "system headers")
        self.assert_fine("include/stagewire/node/a.h", "<vector>")
        self.assert_fine("include/stagewire/node/a.h", "<sys/socket.h>")

    def test_unknown_places(self) -> None:
        self.assertTrue(check_layers.check_text("src/elsewhere/a.cc", ""))
        self.assertTrue(check_layers.check_text("src/a.cc", ""))
        self.assert_found("src/node/a.cc", "<stagewire/elsewhere/b.h>", "names no layer")
        self.assertEqual(check_layers.check_text("tools/main.cc", '#include "connector/x.h"\n#include <CLI/CLI.hpp>\n'), [])


class Hygiene(unittest.TestCase):
    def test_machine_paths(self) -> None:
        for text in ("see /wo" "rk/x", '"/ro' 'ot/.cache"', "(/ho" "me/anna/x)", "/fa" "rm/a", "'/ro" "ot'"):
            self.assertEqual(len(check_hygiene.check_text("a.md", text + "\n")), 1, text)
        for text in ("https://example.org/work/x", "src/root/x", "the work/rest ratio", "$root/home", "/usr/bin", "/tmp/x",
                     "./home/x", "../root/x", "/dev/shm", "/homes", "client/work/"):
            self.assertEqual(check_hygiene.check_text("a.md", text + "\n"), [], text)

    def test_loose_ends(self) -> None:
        for word in ("TO" "DO", "FIX" "ME"):
            self.assertEqual(len(check_hygiene.check_text("a.cc", f"// {word}: later\n")), 1)
            self.assertEqual(len(check_hygiene.check_text("a.cc", f"// {word}(me) later\n")), 1)
            self.assertEqual(check_hygiene.check_text("a.cc", f"// {word}(#12): later\n"), [])

    def test_conflict_and_end(self) -> None:
        self.assertEqual(len(check_hygiene.check_text("a.cc", "<" * 7 + " ours\n")), 1)
        self.assertEqual(len(check_hygiene.check_text("a.cc", "int a;")), 1)

    def test_lengths(self) -> None:
        limit = check_hygiene.MOST_LINES
        self.assertEqual(check_hygiene.check_lengths({"a.cc": limit}, ""), [])
        self.assertEqual(len(check_hygiene.check_lengths({"a.cc": limit + 1}, "")), 1)
        self.assertEqual(check_hygiene.check_lengths({"a.cc": limit + 1}, "# list\na.cc: a table\n"), [])
        self.assertEqual(len(check_hygiene.check_lengths({"a.cc": limit + 1}, "a.cc:\n")), 1)
        self.assertEqual(len(check_hygiene.check_lengths({"a.cc": limit}, "a.cc: a table\n")), 1)
        self.assertEqual(len(check_hygiene.check_lengths({}, "gone.cc: a table\n")), 1)


class Docs(unittest.TestCase):
    def check(self, text: str) -> list[str]:
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder).resolve()
            (root / "other.md").write_text("# A heading, *here*\n# Twice\n# Twice\n", encoding="utf-8")
            (root / "page.md").write_text(text, encoding="utf-8")
            return check_docs.check_links(root, ["page.md"])

    def test_links(self) -> None:
        for text in ("[a](other.md)", "[a](other.md#a-heading-here)", "[a](other.md#twice-1)", "[a](https://example.org/x)",
                     "# Me\n[a](#me)", "`[a](gone.md)`", "```\n[a](gone.md)\n```", "[a]: other.md"):
            self.assertEqual(self.check(text + "\n"), [], text)
        for text in ("[a](gone.md)", "[a](other.md#gone)", "[a](#gone)", "[a](../../etc)", "![a](gone.png)", "[a]: gone.md"):
            self.assertEqual(len(self.check(text + "\n")), 1, text)

    def test_generated(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            page = root / "page.md"
            original = check_docs.COMMAND_PATH
            check_docs.COMMAND_PATH = pathlib.Path("/bin/echo")
            self.addCleanup(setattr, check_docs, "COMMAND_PATH", original)
            good = "a\n<!-- generated: stagewire 'x  y' -->\nx  y\n<!-- /generated -->\nb\n"
            page.write_text(good, encoding="utf-8")
            self.assertEqual(check_docs.check_generated(root, ["page.md"], False), [])
            page.write_text(good.replace("\nx  y\n", "\nold\n"), encoding="utf-8")
            self.assertEqual(len(check_docs.check_generated(root, ["page.md"], False)), 1)
            self.assertEqual(check_docs.check_generated(root, ["page.md"], True), [])
            self.assertEqual(page.read_text(encoding="utf-8"), good)
            for bad in ("<!-- generated: stagewire x -->\nx\n", "<!-- generated: ls -->\nx\n<!-- /generated -->\n"):
                page.write_text(bad, encoding="utf-8")
                self.assertEqual(len(check_docs.check_generated(root, ["page.md"], False)), 1, bad)
            check_docs.COMMAND_PATH = pathlib.Path("/bin/false")
            page.write_text(good, encoding="utf-8")
            self.assertEqual(len(check_docs.check_generated(root, ["page.md"], False)), 1)


class Wheel(unittest.TestCase):
    def test_needs(self) -> None:
        line = " 0x0000000000000001 (NEEDED)             Shared library: [{}]\n"
        fine = "".join(line.format(name) for name in ("libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1",
                                                      "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"))
        self.assertEqual(check_wheel.unwanted_needs(fine), [])
        for name in ("libsodium.so.23", "libpython3.11.so.1.0", "libyaml-0.so.2", "libfmt.so.9", "libpthread.so.0"):
            self.assertEqual(check_wheel.unwanted_needs(fine + line.format(name)), [name])

    def test_exports(self) -> None:
        self.assertEqual(check_wheel.unwanted_exports("0000000000001139 T PyInit__core\n"), [])
        bad = "0000000000001139 T PyInit__core\n000000000000113b T sodium_init\n000000000000113c W _ZNSt6vectorIiE@@V1\n"
        self.assertEqual(check_wheel.unwanted_exports(bad), ["sodium_init", "_ZNSt6vectorIiE"])


class Files(unittest.TestCase):
    def test_new_ones_count_and_ignored_ones_do_not(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder).resolve()
            subprocess.run(["git", "init", "-q", root], check=True)
            (root / ".gitignore").write_text("/build/\n", encoding="utf-8")
            (root / "build").mkdir()
            for name in ("a.cc", "b c.cc", "build/d.cc", "e.py"):
                (root / name).touch()
            self.assertEqual(project_files.project_files(root, ("*.cc",)), ["a.cc", "b c.cc"])
            self.assertEqual(project_files.project_files(root), [".gitignore", "a.cc", "b c.cc", "e.py"])


class Guests(unittest.TestCase):
    """What scripts/rxe does where it can't boot a guest; ./test's stage `rxe` boots them."""

    def test_the_newest_kernel(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            boot = pathlib.Path(folder)
            with self.assertRaisesRegex(image.NotThere, "linux-image-amd64"):
                image.newest_kernel(boot)
            for name in ("vmlinuz-6.1.0-9-amd64", "vmlinuz-6.1.0-57-amd64", "config-7"):
                (boot / name).touch()
            self.assertEqual(image.newest_kernel(boot).name, "vmlinuz-6.1.0-57-amd64")

    def test_no_emulator_is_not_run(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([SCRIPTS / "rxe" / "guests", "--out", folder, "true"], env={"PATH": folder},
                                  stdout=subprocess.PIPE, text=True, check=False)
            self.assertEqual(done.returncode, 69)
            self.assertEqual(done.stdout, "NOT RUN: no qemu-system-x86_64: install qemu-system-x86\n")

    def test_what_perftest_prints(self) -> None:
        text = " local address: LID 0000\n #bytes     #iterations    BW peak[MB/sec]\n 1048576    20    34.17   34.17  0.000034\n---\n"
        loader = importlib.machinery.SourceFileLoader("rxe_bench", str(SCRIPTS / "rxe" / "bench"))
        bench = importlib.util.module_from_spec(importlib.util.spec_from_loader("rxe_bench", loader))
        sys.dont_write_bytecode = True
        loader.exec_module(bench)
        self.assertEqual(bench.perftest_figures(text), [1048576, 20, 34.17, 34.17, 0.000034])
        with self.assertRaises(ValueError):
            bench.perftest_figures("Couldn't connect to 10.9.0.1:18515\n")


class Counts(unittest.TestCase):
    def test_reports(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            report = pathlib.Path(folder, "r.xml")
            report.write_text(
                '<testsuite><testcase status="run"/><testcase/><testcase status="fail"><failure/></testcase>'
                '<testcase><error/></testcase><testcase status="notrun"><skipped message="Unable to find"/></testcase>'
                '<testcase status="notrun"><skipped message="SKIP_RETURN_CODE=4"/></testcase><testcase><skipped/></testcase><testcase status="disabled"/></testsuite>', encoding="utf-8")
            done = subprocess.run([SCRIPTS / "count-tests", report, f"{folder}/gone.xml"], check=True,
                                  stdout=subprocess.PIPE)
            self.assertEqual(done.stdout.decode().split(), ["2", "4", "3"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--report", type=pathlib.Path, help="file for 'passed failed skipped'")
    options = parser.parse_args()
    outcome = unittest.main(argv=[sys.argv[0]], exit=False, verbosity=2).result
    bad = len(outcome.failures) + len(outcome.errors)
    if options.report:
        options.report.write_text(f"{outcome.testsRun - bad} {bad} 0\n", encoding="ascii")
    sys.exit(1 if bad else 0)
