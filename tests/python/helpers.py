"""What several files of tests share beside the fixtures."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np

import stagewire

MIB = 1 << 20
# How long anything may take before it counts as hung.
HANG = 60.0
# The transport of regions: that of the RDMA device of a guest where one runs the tests (scripts/rxe/python-regions).
ROUTE = os.environ.get("STAGEWIRE_TEST_ROUTE", "tcp")
# Options of the nodes in scripts.
SMALL = 'publish_pool_size="16 MiB", receive_pool_size="16 MiB", log_level="error", insecure=True'


def wait_for(condition: Any, seconds: float = 30.0) -> None:
    """Until something that another thread or process does has been done."""
    event = threading.Event()
    for _ in range(int(seconds / 0.005)):
        if condition():
            return
        event.wait(0.005)
    raise AssertionError("it did not happen")


def used(node: Any) -> int:
    return int(node.stats()["publish_pool"]["used"])


def filled(node: Any, count: int = 100_000, first: int = 0) -> tuple[stagewire.Buffer, Any]:
    """A buffer with `count` numbers that count up, and the array over it."""
    buffer = node.allocate(4 * count)
    numbers = np.frombuffer(buffer, np.int32)
    numbers[:] = np.arange(first, first + count)
    return buffer, numbers


def numbers_from(first: int, count: int = 100_000) -> Any:
    """Numbers that count up, in memory of the test's own."""
    return np.arange(first, first + count, dtype=np.int32)


# The reading process: for each line "HOW TICKET" prints the sum, the last number and the text of the payload.
READER = f"""
import sys, numpy as np, stagewire
node = stagewire.Node({SMALL}, routes=sys.argv[1:])
held = []
for line in sys.stdin:
    how, ticket = line.split()
    if how == "drop":
        held.clear()
        print("dropped")
        continue
    into = np.zeros(stagewire.Ticket.parse(ticket).size // 4, np.int32)
    options = {{"copy": {{}}, "view": {{"view": True}}, "hold": {{"view": True}}, "into": {{"into": into}}}}[how]
    got = node.get(ticket, timeout=60, details=True, **options)
    numbers = got.value["numbers"]
    if how == "into":
        assert np.shares_memory(numbers, into)
    print(numbers.sum(dtype=np.int64), numbers[-1], got.value["text"], got.transport, got.view)
    if how == "hold":
        held.append(numbers)
    del got, numbers
"""


class Reader:
    """A process that reads payloads of the form {"numbers": array, "text": str}."""

    def __init__(self, process: Any) -> None:
        self.process = process

    def read(self, how: str, ticket: stagewire.Ticket | str) -> tuple[int, int, str, str, bool]:
        self.process.say(f"{how} {ticket}")
        total, last, text, transport, view = self.process.hear().split()
        return int(total), int(last), text, transport, view == "True"

    def drop(self) -> None:
        self.process.say("drop it")
        assert self.process.hear() == "dropped"
