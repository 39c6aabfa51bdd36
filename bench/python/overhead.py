#!/usr/bin/env python3
"""What Python costs on top of C++, per get: the same payload of one process, got by a C++ program and by this one in turn.

    build/venv/bin/python bench/python/overhead.py [--rounds N] [--gets N] [PROGRAM]

PROGRAM is bench_node_get (default: that of build/release). Two payloads: one tensor of 4 KiB, and a dict of 57 tensors
of 64 bytes, which differ by 56 tensors. Both clients run on one CPU, the sender on another. Prints the medians over the
rounds, each the median of its gets, and the medians of the rounds' differences.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import time

import stagewire

ROOT = pathlib.Path(__file__).resolve().parents[2]
READERS = 1_000_000
POOLS = {"publish_pool_size": 64 << 20, "receive_pool_size": 64 << 20}

SENDER = f"""
import sys, numpy as np, stagewire
node = stagewire.Node(**{POOLS})
one = np.zeros(4096, np.uint8)
many = {{f"t{{i}}": np.zeros(64, np.uint8) for i in range(57)}}
for key, payload in (("one", one), ("many", many)):
    print(node.put(key, payload, readers={READERS}), flush=True)
sys.stdin.read()
"""


def on_cpu(index: int) -> None:
    """Binds the calling process to the CPU of this number among those it may use, if there are several."""
    cpus = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cpus[index % len(cpus)]})


def start(command: list[str], cpu: int) -> subprocess.Popen[str]:
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                            preexec_fn=lambda: on_cpu(cpu))


class PythonClient:
    def __init__(self) -> None:
        self.node = stagewire.Node(**POOLS)
        self.serial = 0

    def median(self, ticket: str, gets: int) -> float:
        """Microseconds."""
        times = []
        for _ in range(gets):
            self.serial += 1
            reader = f"python {self.serial}"
            began = time.perf_counter_ns()
            got = self.node.get(ticket, timeout=30, reader=reader)
            times.append(time.perf_counter_ns() - began)
            del got
        return statistics.median(times) / 1e3


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=21, help="interleaved pairs (default: 21)")
    parser.add_argument("--gets", type=int, default=200, help="gets of each client in a round (default: 200)")
    parser.add_argument("program", nargs="?", default=str(ROOT / "build/release/bench/bench_node_get"))
    options = parser.parse_args()
    with start([sys.executable, "-c", SENDER], 1) as sender, start([options.program], 0) as cpp:
        assert sender.stdin and sender.stdout and cpp.stdin and cpp.stdout
        tickets = {"one tensor": sender.stdout.readline().strip(), "57 tensors": sender.stdout.readline().strip()}
        on_cpu(0)
        python = PythonClient()
        extra: dict[str, list[float]] = {}
        for name, ticket in tickets.items():
            rows: list[tuple[float, float]] = []
            for index in range(options.rounds + 2):
                cpp.stdin.write(f"{options.gets} {ticket}\n")
                cpp.stdin.flush()
                native = float(cpp.stdout.readline()) / 1e3
                rows.append((native, python.median(ticket, options.gets)))
                if index < 2:
                    rows.clear()  # warm-up
            extra[name] = [there - here for here, there in rows]
            print(f"{name:>11}: C++ {statistics.median(row[0] for row in rows):6.1f} µs, "
                  f"Python {statistics.median(row[1] for row in rows):6.1f} µs, "
                  f"difference {statistics.median(extra[name]):5.1f} µs")
        each = (statistics.median(extra["57 tensors"]) - statistics.median(extra["one tensor"])) / 56
        print(f"each further tensor of a tree: {each:.2f} µs more than in C++")
        python.node.close()
        cpp.stdin.close()
        sender.stdin.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
