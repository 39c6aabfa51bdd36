"""Runs the built stagewire command and looks at what it prints, where it prints it, and its exit codes.

usage: command_test.py PATH-OF-STAGEWIRE [TEST…]. Nothing here asserts how fast anything is.
"""

import json
import os
import pathlib
import re
import signal
import stat
import subprocess
import sys
import tempfile
import unittest

HANG_GUARD = 300
OK, FAILED, USAGE, RUNTIME = 0, 1, 2, 3
SUBCOMMANDS = ("demo", "bench", "doctor", "explain", "keygen")
CASES = ("view", "into", "put", "dict", "tcp", "oneway", "scale", "concurrent", "faults")
command = ""


def clean_environment() -> dict[str, str]:
    """The caller's environment without options of a node, which would change what is tested."""
    return {name: value for name, value in os.environ.items() if not name.startswith("STAGEWIRE_")}


def run(*arguments: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess:
    return subprocess.run([command, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                          timeout=HANG_GUARD, env={**clean_environment(), **(environment or {})})


class CommandTest(unittest.TestCase):
    def expect(self, code: int, *arguments: str, environment: dict[str, str] | None = None):
        done = run(*arguments, environment=environment)
        self.assertEqual(done.returncode, code, f"{arguments}\nstdout: {done.stdout}\nstderr: {done.stderr}")
        return done

    def expect_json(self, code: int, *arguments: str):
        done = self.expect(code, *arguments)
        return json.loads(done.stdout)


class BasicsTest(CommandTest):
    def test_help_names_every_subcommand(self):
        done = self.expect(OK, "--help")
        for name in SUBCOMMANDS:
            self.assertIn(name, done.stdout)
        self.assertNotIn("bench-peer", done.stdout)
        self.assertEqual(done.stderr, "")

    def test_every_subcommand_has_help(self):
        for words in [*((name,) for name in SUBCOMMANDS), ("bench", "serve"), ("bench", "run"), ("bench", "faults")]:
            with self.subTest(words):
                done = self.expect(OK, *words, "--help")
                self.assertIn("Usage:", done.stdout)
                self.assertIn("--json" if words != ("bench", "serve") else "--seconds", done.stdout)

    def test_version_tells_what_it_was_built_from(self):
        done = self.expect(OK, "--version")
        self.assertRegex(done.stdout.splitlines()[0], r"^stagewire \d+\.\d+\.\d+$")
        for fact in ("source", "compiler", "build type", "libsodium", "asio", "msgpack"):
            self.assertRegex(done.stdout, rf"(?m)^  {fact} +\S")
        facts = self.expect_json(OK, "--version", "--json")
        self.assertRegex(facts["version"], r"^\d+\.\d+\.\d+$")
        self.assertRegex(facts["compiler"], r"^(GNU|Clang) \d+")

    def test_no_subcommand_is_wrong_usage(self):
        done = self.expect(USAGE)
        self.assertEqual(done.stdout, "")
        self.assertIn("--help", done.stderr)

    def test_wrong_usage(self):
        for words in (["nonsense"], ["bench", "--nonsense"], ["bench", "--rounds", "many"], ["bench", "run"],
                      ["bench", "--idle-seconds", "0"], ["bench", "--case", "nonsense"], ["demo", "--rounds", "0"],
                      ["bench", "run", "--peer", "127.0.0.1:1", "--mode", "sideways"]):
            with self.subTest(words):
                done = self.expect(USAGE, *words)
                self.assertEqual(done.stdout, "")
                self.assertNotEqual(done.stderr, "")


class KeygenTest(CommandTest):
    def test_prints_a_new_secret_each_time(self):
        secrets = {self.expect(OK, "keygen").stdout.strip() for _ in range(3)}
        self.assertEqual(len(secrets), 3)
        for secret in secrets:
            self.assertRegex(secret, r"^[0-9a-f]{64}$")
        self.assertRegex(self.expect_json(OK, "keygen", "--json")["secret"], r"^[0-9a-f]{64}$")

    def test_writes_a_file_for_its_owner_alone(self):
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory, "secret")
            old = os.umask(0)
            try:
                done = self.expect(OK, "keygen", "--output", str(path))
            finally:
                os.umask(old)
            self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600)
            secret = path.read_text()
            self.assertRegex(secret, r"^[0-9a-f]{64}\n$")
            self.assertNotIn(secret.strip(), done.stdout + done.stderr)
            # The file is one that a node takes.
            self.expect(OK, "explain", "--set", f"secret_file={path}")

    def test_never_overwrites(self):
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory, "secret")
            path.write_text("in use")
            done = self.expect(USAGE, "keygen", "--output", str(path))
            self.assertIn("exists already", done.stderr)
            self.assertEqual(path.read_text(), "in use")

    def test_a_directory_that_is_not_there(self):
        done = self.expect(RUNTIME, "keygen", "--output", "/nonexistent/secret")
        self.assertIn("/nonexistent/secret", done.stderr)


class DoctorTest(CommandTest):
    def test_text_names_every_transport(self):
        done = run("doctor", "--set", "insecure=true")
        self.assertIn(done.returncode, (OK, FAILED))
        for part in ("node", "local", "shm", "tcp", "verbs", "cuda_ipc"):
            self.assertRegex(done.stdout, rf"(?m)^\S {part}: \S")
        self.assertIn("not used", done.stdout)
        for line in done.stdout.splitlines():
            self.assertLessEqual(len(line), 100, line)

    def test_json(self):
        report = json.loads(run("doctor", "--json").stdout)
        parts = {part["name"]: part for part in report["parts"]}
        self.assertEqual(list(parts), ["node", "local", "shm", "tcp", "verbs", "cuda_ipc"])
        checks = {check["name"]: check for part in report["parts"] for check in part["checks"]}
        for name in ("sealed memfd", "abstract Unix sockets", "boot id", "pidfd", "copy kernel", "huge pages",
                     "congestion control", "socket buffers", "locked memory", "open files", "CPUs", "free memory"):
            self.assertIn(name, checks)
            self.assertIn(checks[name]["state"], ("works", "limited", "broken", "absent"))
            self.assertNotEqual(checks[name]["finding"], "")
        self.assertIn(checks["RDMA"]["state"], ("works", "absent"))  # as the host has an adapter or not
        self.assertEqual(checks["CUDA"]["state"], "absent")

    def test_what_is_broken_is_said_with_its_fix_and_by_the_exit_code(self):
        report = self.expect_json(FAILED, "doctor", "--json", "--set", "socket_dir=/nonexistent/directory")
        self.assertFalse(report["healthy"])
        broken = [check for part in report["parts"] for check in part["checks"] if check["state"] == "broken"]
        self.assertTrue(any("/nonexistent/directory" in check["finding"] for check in broken))
        self.assertTrue(any("mkdir" in check["fix"] for check in broken))

    def test_a_congestion_control_that_is_not_there(self):
        report = self.expect_json(FAILED, "doctor", "--json", "--set", "tcp_congestion=nonsense")
        checks = {check["name"]: check for part in report["parts"] for check in part["checks"]}
        self.assertEqual(checks["congestion control"]["state"], "broken")
        self.assertIn("nonsense", checks["congestion control"]["finding"])

    def test_wrong_configuration(self):
        done = self.expect(USAGE, "doctor", "--set", "publish_pool=4GiB")
        self.assertIn("publish_pool_size", done.stderr)  # the nearest name


class ExplainTest(CommandTest):
    def test_explains_the_node(self):
        done = self.expect(OK, "explain", "--set", "insecure=true", "--set", "publish_pool_size=8MiB")
        self.assertIn("insecure", done.stdout)
        self.assertIn("8 MiB", done.stdout)
        self.assertIn("127.0.0.1:", done.stdout)

    def test_config_table_has_every_option(self):
        table = self.expect(OK, "explain", "--config-table").stdout
        for option in ("publish_pool_size", "secret_file", "tcp_congestion", "log_level"):
            self.assertIn(option, table)
        self.assertIn("|", table)
        help_text = self.expect(OK, "explain", "--help").stdout
        self.assertIn("tcp_congestion", help_text)

    def test_file_environment_and_set_in_this_order(self):
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory, "node.yaml")
            path.write_text("name: from-file\ntcp_window: 5\ntcp_connections: 7\n")
            done = self.expect(OK, "explain", "--show-config", "--config", str(path), "--set", "tcp_connections=3",
                               environment={"STAGEWIRE_TCP_WINDOW": "6", "STAGEWIRE_TCP_CONNECTIONS": "4"})
            self.assertRegex(done.stdout, r"(?m)^name: \"?from-file")
            self.assertRegex(done.stdout, r"(?m)^tcp_window: 6$")
            self.assertRegex(done.stdout, r"(?m)^tcp_connections: 3$")

    def test_secrets_are_not_shown(self):
        secret = self.expect(OK, "keygen").stdout.strip()
        for words in (["explain"], ["explain", "--show-config"], ["explain", "--json"]):
            done = self.expect(OK, *words, "--set", f"secret={secret}")
            self.assertNotIn(secret, done.stdout + done.stderr)

    def test_wrong_options(self):
        for item, expected in (("nonsense", "key=value"), ("=x", "key=value"), ("tcp_windw=3", "tcp_window"),
                               ("publish_pool_size=lots", "publish_pool_size"), ("tcp_window=0", "tcp_window")):
            with self.subTest(item):
                self.assertIn(expected, self.expect(USAGE, "explain", "--set", item).stderr)
        self.expect(USAGE, "explain", "--config", "/nonexistent.yaml")
        self.expect(USAGE, "explain", "--wait", "soon")
        self.expect(USAGE, "explain", "--peer", "")
        # An address of another host, and nothing to know its callers by.
        self.assertIn("keygen", self.expect(USAGE, "explain", "--set", "listen=300.1.1.1:5").stderr)
        self.assertIn("tcp_available_congestion_control",
                      self.expect(USAGE, "explain", "--set", "tcp_congestion=nonsense").stderr)

    def test_tcp_needs_a_secret(self):
        def tcp(*words):
            lines = self.expect(OK, "explain", *words).stdout.splitlines()
            return next(line for line in lines if line.startswith("    tcp:"))

        self.assertIn("not viable, because there is neither a secret", tcp())
        self.assertIn("tcp: viable", tcp("--set", "insecure=true"))

    def test_a_peer_that_is_not_there(self):
        report = self.expect_json(FAILED, "explain", "--json", "--peer", "127.0.0.1:1", "--wait", "300 ms",
                                  "--set", "insecure=true")
        self.assertFalse(report["reached"])
        self.assertIn("127.0.0.1:1", report["error"])
        self.assertIn("refused", report["error"])

    def test_an_address_that_is_none(self):
        said = self.expect(USAGE, "explain", "--peer", "nonsense", "--wait", "300 ms").stderr
        self.assertIn("the port is missing", said)
        self.assertEqual(said.count("expected"), 1, said)


class BenchTest(CommandTest):
    def test_list(self):
        names = [line.split()[0] for line in self.expect(OK, "bench", "--list").stdout.splitlines()]
        self.assertEqual(tuple(names), CASES)
        listed = self.expect_json(OK, "bench", "--list", "--json")
        self.assertEqual(tuple(case["case"] for case in listed), CASES)

    def test_a_case_that_breaks_off(self):
        # No room for what the case publishes.
        done = self.expect(RUNTIME, "bench", "--quick", "--case", "dict", "--set", "publish_pool_size=1MiB", "--json")
        report = json.loads(done.stdout)
        self.assertEqual([failure["case"] for failure in report["failures"]], ["dict"])
        self.assertIn("too_large", done.stderr)

    def test_check_makes_the_exit_code(self):
        done = run("bench", "--quick", "--case", "put", "--check", "--json")
        report = json.loads(done.stdout)
        self.assertEqual(done.returncode, FAILED if report["missed"] else OK, done.stderr)

    def test_table(self):
        done = self.expect(OK, "bench", "--quick", "--case", "dict,put", "--no-pin")
        rows = [line for line in done.stdout.splitlines() if line.startswith(("✓", "✗"))]
        self.assertGreaterEqual(len(rows), 2)
        for line in done.stdout.splitlines():
            self.assertLessEqual(len(line), 100, line)
        self.assertIn("--quick", done.stdout)
        self.assertEqual(done.stderr, "")  # progress is for terminals, unless asked for

    def test_progress_goes_to_stderr(self):
        done = self.expect(OK, "bench", "--quick", "--case", "dict", "--json", "--progress")
        json.loads(done.stdout)
        self.assertIn("round", done.stderr)

    def test_every_case(self):
        for case in CASES:
            with self.subTest(case):
                report = self.expect_json(OK, "bench", "--quick", "--case", case, "--json", "--idle-seconds", "0.5")
                self.assertEqual(report["failures"], [])
                self.assertGreaterEqual(len(report["figures"]), 1)
                self.assertEqual(report["missed"], sum(not figure["met"] for figure in report["figures"]))
                for figure in report["figures"]:
                    self.check_figure(case, figure)

    def check_figure(self, case: str, figure: dict):
        self.assertEqual(figure["case"], case)
        self.assertGreater(figure["target"], 0)
        self.assertGreaterEqual(figure["value"], 0)
        at_least = figure["target_is"] == "at least"
        met = figure["value"] >= figure["target"] if at_least else figure["value"] <= figure["target"]
        self.assertEqual(figure["met"], met)
        for text in ("work", "measured", "baseline"):
            self.assertNotEqual(figure[text], "")
        detail = figure["detail"]
        for series in ("stagewire", "baseline", "gets", "times"):
            if series in detail and detail[series]["count"]:
                times = detail[series]
                self.assertGreater(times["min_us"], 0)
                ordered = [times[name] for name in ("min_us", "p50_us", "p90_us", "p99_us", "max_us")]
                self.assertEqual(ordered, sorted(ordered))
        if case == "faults":
            self.assertEqual(sum(detail["outcomes"].values()), detail["kills"])
            self.assertLessEqual(set(detail["outcomes"]), {"peer_lost", "lease_lost", "complete"})

    def test_nothing_is_left_behind(self):
        before = {path.name for path in pathlib.Path("/tmp").glob("stagewire-bench-*")}
        self.expect(OK, "bench", "--quick", "--case", "tcp,faults", "--kills", "2")
        self.assertLessEqual({path.name for path in pathlib.Path("/tmp").glob("stagewire-bench-*")}, before)


class BenchHostsTest(CommandTest):
    def serve(self, *arguments: str):
        server = subprocess.Popen([command, "bench", "serve", "--max-size", "1 MiB", *arguments],
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, env=clean_environment())
        self.addCleanup(server.stdout.close)
        self.addCleanup(server.wait, HANG_GUARD)
        self.addCleanup(server.kill)
        first = server.stdout.readline()
        match = re.match(r"listening on (\S+)$", first)
        self.assertIsNotNone(match, first)
        for line in server.stdout:
            if line.startswith("serving"):
                break
        return server, match.group(1)

    def secret_file(self) -> str:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        path = str(pathlib.Path(directory.name, "secret"))
        self.expect(OK, "keygen", "-o", path)
        return path

    def test_all_modes_and_explain(self):
        secret = ("--set", f"secret_file={self.secret_file()}")
        server, address = self.serve(*secret)
        report = self.expect_json(OK, "bench", "run", "--peer", address, *secret, "--json", "--gets", "4",
                                  "--size", "4KiB,1MiB", "--depth", "1,4")
        rows = report["rows"]
        self.assertEqual(len(rows), 4 * 2 * 2)
        for row in rows:
            self.assertGreaterEqual(row["times"]["count"], 4)
            self.assertGreater(row["bytes_per_second"], 0)
        transports = {row["mode"]: row["transport"] for row in rows if row["bytes"] > 100_000}
        self.assertEqual(transports, {"view": "shm, view", "into": "shm", "copy": "shm", "object": "shm"})
        tcp = self.expect_json(OK, "bench", "run", "--peer", address, *secret, "--json", "--gets", "4", "--size",
                               "1MiB", "--mode", "into", "--set", "routes=tcp")
        self.assertEqual([row["transport"] for row in tcp["rows"]], ["tcp"])
        text = self.expect(OK, "bench", "run", "--peer", address, *secret, "--gets", "4").stdout
        self.assertIn("1 MiB", text)
        self.assertNotIn("4 MiB", text)  # the server was told to end at 1 MiB

        explained = self.expect(OK, "explain", "--peer", address, *secret).stdout
        self.assertIn("host → host: shm", explained)
        self.assertIn("same host, proven", explained)
        for size in ("5KiB", "4MiB"):
            done = self.expect(USAGE, "bench", "run", "--peer", address, *secret, "--size", size, "--mode", "copy")
            self.assertIn("the peer serves 8 B, 4 KiB", done.stderr)
        done = self.expect(USAGE, "bench", "run", "--peer", address, *secret, "--mode", "ping", "--size", "8B")
        self.assertIn("bench serve --echo", done.stderr)

        wrong = ("--set", f"secret_file={self.secret_file()}")
        self.assertIn("auth_failed", self.expect(FAILED, "explain", "--peer", address, *wrong).stderr)
        self.assertIn("auth_failed", self.expect(USAGE, "bench", "run", "--peer", address, *wrong).stderr)

        server.send_signal(signal.SIGINT)
        self.assertEqual(server.wait(HANG_GUARD), OK)

    def test_serve_ends_by_itself(self):
        done = self.expect(OK, "bench", "serve", "--max-size", "64KiB", "--seconds", "0.2", "--set", "insecure=true")
        self.assertIn("serving 8 B, 4 KiB, 16 KiB, 64 KiB;", done.stdout)

    def test_sizes_pages_and_pings(self):
        server, address = self.serve("--size", "8B,1000000B", "--echo", "--set", "insecure=true",
                                     "--set", "listen=127.0.0.1:0")
        arguments = ("bench", "run", "--peer", address, "--set", "insecure=true", "--json", "--gets", "3", "--warm-up", "2")
        report = self.expect_json(OK, *arguments, "--mode", "pages,object,inline,ping", "--page-size", "4104B")
        self.assertEqual([(row["mode"], row["bytes"]) for row in report["rows"]],
                         [("pages", 8), ("pages", 1_000_000), ("object", 1_000_000 // 448 * 448), ("inline", 8),
                          ("ping", 256)])
        self.assertEqual(report["rows"][3]["transport"], "inline")
        for row in report["rows"]:
            self.assertEqual(row["times"]["count"], 3)

    def test_no_peer(self):
        done = self.expect(RUNTIME, "bench", "run", "--peer", "127.0.0.1:9", "--set", "insecure=true", "--size", "8B")
        self.assertIn("unreachable", done.stderr)

    def test_wrong_size(self):
        self.expect(USAGE, "bench", "serve", "--max-size", "2 GiB")
        self.expect(USAGE, "bench", "serve", "--size", "9B")


class DemoTest(CommandTest):
    def test_every_route(self):
        report = self.expect_json(OK, "demo", "--rounds", "2", "--json")
        rows = {row["route"]: row for row in report["rows"]}
        self.assertEqual(list(rows), ["shm, as a view", "reading all of that view", "shm, into a given destination",
                                      "shm, into the receive pool", "memcpy", "tcp, into a given destination",
                                      "bare sockets"])
        self.assertTrue(report["contents_compared"])
        self.assertIsNone(rows["shm, as a view"]["gigabytes_per_second"])
        self.assertEqual(rows["memcpy"]["of_memcpy"], 1)
        for row in report["rows"]:
            self.assertEqual(row["times"]["count"], 2)

    def test_table(self):
        text = self.expect(OK, "demo", "--rounds", "1").stdout
        self.assertIn("of memcpy", text)
        for line in text.splitlines():
            self.assertLessEqual(len(line), 100, line)


if __name__ == "__main__":
    command = str(pathlib.Path(sys.argv[1]).resolve())
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
