"""Memory of the publish pool that is lent to its caller."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest

import stagewire
from helpers import HANG, MIB, used, wait_for


def test_a_buffer(make_node: Any) -> None:
    node = make_node()
    buffer = node.allocate(1000)
    assert buffer.nbytes == 1000 and buffer.address % 256 == 0 and "1000 bytes" in repr(buffer)
    view = memoryview(buffer)
    assert (view.nbytes, view.readonly, view.format, view.ndim, view.contiguous) == (1000, False, "B", 1, True)
    array = np.asarray(buffer)
    assert array.dtype == np.uint8 and array.flags.writeable
    assert array.__array_interface__["data"][0] == buffer.address
    assert node.allocate(np.int64(5)).nbytes == 5
    wide = np.frombuffer(buffer, np.float64)
    wide[:] = 2
    assert array[7] == 64  # the same bytes
    part = wide[3:4]
    del buffer, view, array, wide
    gc.collect()
    assert part[0] == 2 and used(node) == 1024
    del part
    gc.collect()
    assert used(node) == 0
    with pytest.raises(TypeError):
        stagewire.Buffer()
    unmade = stagewire.Buffer.__new__(stagewire.Buffer)
    with pytest.raises(BufferError):
        memoryview(unmade)
    with pytest.raises(stagewire.InvalidArgument):
        node.put_in_place("k", 1, unmade)


def test_too_large_and_wrong_sizes(make_node: Any) -> None:
    node = make_node(publish_pool_size="1 MiB")
    for size in (2 * MIB, 2**62, 2**200):
        with pytest.raises(stagewire.TooLarge) as caught:
            node.allocate(size)
        assert caught.value.operation == "allocate"
    for wrong in (-1, -(2**200), 1.5, "1", None, True):
        with pytest.raises(stagewire.InvalidArgument, match="nbytes"):
            node.allocate(wrong)
    with pytest.raises(stagewire.InvalidArgument, match="timeout"):
        node.allocate(1, timeout="soon")
    assert used(node) == 0


def test_a_full_pool(make_node: Any) -> None:
    node = make_node(publish_pool_size="1 MiB", put_wait=0.01)
    held = node.allocate(700_000)
    for options in ({"timeout": 0}, {"timeout": 0.05}, {}):
        with pytest.raises(stagewire.PoolExhausted, match="allocate"):
            node.allocate(700_000, **options)
    got: list[stagewire.Buffer] = []
    waiting = threading.Thread(target=lambda: got.append(node.allocate(700_000, timeout=HANG)))
    waiting.start()
    wait_for(lambda: node.stats()["publish_pool"]["waiting"] == 1)
    del held  # this thread could do it: the other one waits without the interpreter lock
    waiting.join(HANG)
    assert got[0].nbytes == 700_000
    stats = node.stats()["publish_pool"]
    assert (stats["waiting"], stats["buffers"]) == (0, 1)


def test_what_is_released_serves_who_waits(make_node: Any) -> None:
    node = make_node(publish_pool_size="1 MiB")
    buffer = node.allocate(700_000)
    done = node.put_in_place("k", np.asarray(buffer), buffer)
    del buffer
    waiting = threading.Timer(0, lambda: node.withdraw("k"))
    waiting.start()
    assert node.allocate(700_000, timeout=HANG).nbytes == 700_000
    assert done.released.result(HANG) == "cancelled"
    waiting.join()


def test_buffers_from_many_threads(make_node: Any) -> None:
    node = make_node(publish_pool_size="1 MiB")
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for i in range(50):
                buffer = node.allocate(200_000, timeout=HANG)
                array = np.frombuffer(buffer, np.int32)
                array[:] = number * 1000 + i
                done = node.put_in_place(f"k{number}", array, buffer)
                got = node.get(done.ticket, view=i % 2 == 0)
                assert (got == number * 1000 + i).all()
                del got
                assert done.released.result(HANG) == "consumed"
                del buffer, array  # or each thread would wait for more while it holds some
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    gc.collect()
    stats = node.stats()["publish_pool"]
    assert (stats["used"], stats["buffers"], stats["waiting"], stats["bad_releases"]) == (0, 0, 0, 0)
