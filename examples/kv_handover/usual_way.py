"""The same payload moved by stagewire and the usual way, pickle over a socket, interleaved in one run.

As a module it is the sending process. Times are from before the put (or the pickling) until the receiver has the dict, on
CLOCK_MONOTONIC, which the processes of one host share. Main thread only.
"""

from __future__ import annotations

import math
import os
import pickle
import socket
import statistics
import struct
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import stagewire

from .stage_pipe import Stage, hear, tell

LAYERS, TOKENS, HEADS, WIDTH = 28, 3400, 4, 128


def kv_cache(seed: int) -> dict[str, np.ndarray[Any, np.dtype[np.uint16]]]:
    """56 tensors with the bits of bf16 values: the shape of BAGEL's KV cache for a prompt of 3,400 tokens."""
    random = np.random.default_rng(seed)
    return {
        f"layer{layer}.{part}": random.integers(0, 1 << 16, (TOKENS, HEADS, WIDTH), dtype=np.uint16)
        for layer in range(LAYERS)
        for part in ("k", "v")
    }


def receive_pickle(connection: socket.socket) -> Any:
    """One length-prefixed pickle from the example's own peer (never unpickle what a stranger sent)."""
    (size,) = struct.unpack("<Q", connection.recv(8, socket.MSG_WAITALL))
    buffer = bytearray(size)
    view = memoryview(buffer)
    while view:
        view = view[connection.recv_into(view) :]
    return pickle.loads(buffer)


def percentile(values: list[float], share: float) -> float:
    """The smallest of `values` that this share of them does not exceed."""
    return sorted(values)[math.ceil(share * len(values)) - 1]


def compare(rounds: int) -> None:
    """Starts the sending process and prints the table."""
    times: dict[str, list[float]] = {"pickle": [], "copy": [], "view": []}
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
        path = str(Path(folder) / "usual-way")
        listener.bind(path)
        listener.listen(1)
        with Stage("kv_handover.usual_way", [path]) as sender, stagewire.Node(name="receiver") as node:
            connection, _ = listener.accept()
            expected = kv_cache(0)
            for number in range(rounds + 2):
                for way in times:
                    sender.tell(way=way)
                    if way == "pickle":
                        value = receive_pickle(connection)
                        ended = time.monotonic()
                        began = sender.hear()["began"]
                    else:
                        said = sender.hear()
                        began = said["began"]
                        value = node.get(stagewire.Ticket.parse(said["ticket"]), view=way == "view")
                        ended = time.monotonic()
                    if not all(np.array_equal(value[name], array) for name, array in expected.items()):
                        raise RuntimeError(f"the payload that came by '{way}' is not the one that was sent")
                    del value
                    if number >= 2:  # the first rounds touch memory for the first time
                        times[way].append(ended - began)
            connection.close()
    size = sum(array.nbytes for array in expected.values())
    base = statistics.median(times["pickle"])
    print(f"  {'way':<44}{'median ms':>10}{'p99 ms':>10}{'GB/s':>8}{'faster':>9}")
    for way, name in (
        ("pickle", "pickle over a Unix socket (the usual way)"),
        ("copy", "stagewire: put, get into arrays of one's own"),
        ("view", "stagewire: put, get as a view"),
    ):
        middle = statistics.median(times[way])
        print(
            f"  {name:<44}{middle * 1e3:>10.1f}{percentile(times[way], 0.99) * 1e3:>10.1f}{size / middle / 1e9:>8.2f}{base / middle:>8.1f}×"
        )
    print(f"\n  put to dict in hand, {size / 1e6:.0f} MB, {rounds} rounds interleaved; every byte compared (not timed)")


def main() -> int:
    """The sending process."""
    cache = kv_cache(0)
    with socket.socket(socket.AF_UNIX) as connection, stagewire.Node(name="sender") as node:
        connection.connect(sys.argv[1])
        number = 0
        while (order := hear()) is not None:
            number += 1
            began = time.monotonic()
            if order["way"] == "pickle":
                data = pickle.dumps(cache, protocol=5)
                connection.sendall(struct.pack("<Q", len(data)))
                connection.sendall(data)
                tell(began=began)
            else:
                ticket = node.put(f"request-{number}", cache, from_stage="prefill", to_stage="decode")
                tell(began=began, ticket=str(ticket))
    return 0


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    sys.exit(main())
