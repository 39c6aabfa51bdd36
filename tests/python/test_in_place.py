"""Publishing in place: what another process reads, what is refused, and when the memory may be written again."""

from __future__ import annotations

import asyncio
import gc
import select
from typing import Any

import numpy as np
import pytest

import stagewire
from helpers import HANG, MIB, READER, Reader, filled, used, wait_for


@pytest.fixture(params=["shm", "tcp"])
def route(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def sender(make_node: Any, route: str) -> Any:
    return make_node(publish_pool_size="16 MiB", insecure=True, routes=[route])


@pytest.fixture
def reader(peer: Any, route: str) -> Reader:
    return Reader(peer(READER, route))


@pytest.mark.parametrize("how", ["copy", "view", "into"])
def test_another_process_reads_what_was_written_in_place(sender: Any, reader: Reader, route: str, how: str) -> None:
    buffer, numbers = filled(sender)
    before = used(sender)
    done = sender.put_in_place("k", {"numbers": numbers, "text": "é"}, buffer, from_stage="a", to_stage="b")
    assert used(sender) == before  # nothing was allocated, so nothing was copied
    assert done.ticket.size == numbers.nbytes and done.ticket.from_stage == "a" and done.ticket.to_stage == "b"
    numbers[-1] = 7  # nor anywhere else: the reader sees this
    assert reader.read(how, done.ticket) == (
        int(numbers.sum(dtype=np.int64)), 7, "é", route, how == "view" and route == "shm",
    )
    assert done.released.result() == "consumed"
    del buffer, numbers, done
    wait_for(lambda: used(sender) == 0)


def test_memory_is_used_again_once_it_is_released(sender: Any, reader: Reader) -> None:
    buffer, numbers = filled(sender)
    for first in range(5):
        numbers[:] = np.arange(first, first + numbers.size)
        done = sender.put_in_place("k", {"numbers": numbers, "text": "x"}, [buffer])
        assert reader.read("copy", done.ticket)[1] == first + numbers.size - 1
        assert done.released.result(HANG) == "consumed"
    assert sender.stats()["publish_pool"]["buffers"] == 1


def test_a_view_keeps_the_memory_from_being_released(make_node: Any, peer: Any) -> None:
    sender, reader = make_node(), Reader(peer(READER, "shm"))
    buffer, numbers = filled(sender)
    done = sender.put_in_place("k", {"numbers": numbers, "text": "x"}, buffer)
    assert reader.read("hold", done.ticket)[4]
    sender.withdraw(done.ticket)
    assert not done.released.done() and not done.released.wait(0)
    with pytest.raises(stagewire.DeadlineExceeded, match="do not write"):
        done.released.result(timeout=0)
    reader.drop()
    assert done.released.result(HANG) == "cancelled"


def test_several_buffers_and_tensors(any_route: tuple[Any, Any]) -> None:
    sender, receiver = any_route
    first, second = sender.allocate(MIB), sender.allocate(MIB)
    # At odd places, in another order than they lie in memory, one in two types, one twice.
    x = np.ndarray((100, 70), np.float32, first, offset=4)
    y = np.ndarray((1000,), np.int16, first, offset=500_002)
    z = np.ndarray((300_000,), np.uint8, second, offset=1)
    x[:], y[:], z[:] = 1.5, np.arange(1000), 9
    empty = np.zeros((0, 5))
    tree = {"z": z, "list": [y, x, {"bytes": y.view(np.uint8)}], "again": y, "part": x[10:20], "empty": empty, "n": 3}
    done = sender.put_in_place("k", tree, (first, second), namespace="n")
    assert done.ticket.namespace == "n"
    got = receiver.get(done.ticket)
    np.testing.assert_array_equal(got["z"], z)
    np.testing.assert_array_equal(got["list"][0], y)
    np.testing.assert_array_equal(got["list"][1], x)
    np.testing.assert_array_equal(got["list"][2]["bytes"], y.view(np.uint8))
    np.testing.assert_array_equal(got["again"], y)
    np.testing.assert_array_equal(got["part"], x[10:20])
    assert got["empty"].shape == (0, 5) and got["n"] == 3


def test_tensors_that_overlap(any_route: tuple[Any, Any]) -> None:
    sender, receiver = any_route
    buffer, numbers = filled(sender, 1_000_000)
    parts = [numbers, numbers[:10], numbers[500_000:], numbers[999_990:], numbers[3:600_000]]
    got = receiver.get(sender.put_in_place("k", parts, buffer).ticket)
    for one, part in zip(got, parts, strict=True):
        np.testing.assert_array_equal(one, part)


def test_whatever_lies_in_the_memory_can_be_published(pair: tuple[Any, Any]) -> None:
    sender, receiver = pair
    buffer = sender.allocate(1000)
    memoryview(buffer)[:] = bytes(range(250)) * 4
    got = receiver.get(sender.put_in_place("k", [buffer, memoryview(buffer)[10:20]], buffer).ticket)
    assert got[0].tobytes() == bytes(buffer) and got[1].tobytes() == bytes(range(10, 20))
    # Objects of other types by the fallback, as in put.
    done = sender.put_in_place("k", {"x": object()}, buffer, default=lambda _: np.frombuffer(buffer, np.uint8, 3))
    assert receiver.get(done.ticket)["x"].tolist() == [0, 1, 2]


def test_torch_tensors(pair: tuple[Any, Any], torch: Any) -> None:
    sender, receiver = pair
    buffer = sender.allocate(8 * 1000)
    tensor = torch.frombuffer(buffer, dtype=torch.bfloat16)
    tensor[:] = 2.5
    assert tensor.data_ptr() == buffer.address
    got = receiver.get(sender.put_in_place("k", tensor.view(40, 100), buffer).ticket, framework="torch")
    assert got.dtype == torch.bfloat16 and got.shape == (40, 100) and bool((got == 2.5).all())
    with pytest.raises(stagewire.InvalidArgument, match="not contiguous"):
        sender.put_in_place("k", tensor.view(40, 100).t(), buffer)
    with pytest.raises(stagewire.InvalidArgument, match="outside"):
        sender.put_in_place("k", torch.ones(3), buffer)


def test_a_view_in_one_process_is_the_buffer_itself(make_node: Any) -> None:
    node = make_node()
    buffer, numbers = filled(node)
    done = node.put_in_place("k", numbers, buffer)
    got = node.get(done.ticket, view=True)
    assert got.__array_interface__["data"][0] == buffer.address and not got.flags.writeable
    del got
    assert done.released.result(HANG) == "consumed"


def test_zero_bytes(any_route: tuple[Any, Any]) -> None:
    sender, receiver = any_route
    buffer = sender.allocate(0)
    assert buffer.nbytes == 0 and len(memoryview(buffer)) == 0 and buffer.address
    empty = np.ndarray((3, 0), np.float32, buffer)
    for memory in (buffer, [buffer], []):
        done = sender.put_in_place("k", {"x": empty, "y": 1}, memory)
        assert done.ticket.size == 0
        got = receiver.get(done.ticket)
        assert got["x"].shape == (3, 0) and got["y"] == 1
        assert done.released.result(HANG) == "consumed"


def test_tensors_that_cannot_be_published_in_place(make_node: Any) -> None:
    node, other = make_node(), make_node()
    buffer, numbers = filled(node)
    beside = node.allocate(400)
    behind = np.ndarray((101,), np.int32, node.allocate(1024))[1:]  # reaches over no end
    for payload, memory, texts in [
        (np.zeros(3), buffer, ["payload is a tensor that lies outside", "put()"]),
        ({"a": [numbers, np.zeros(3)]}, buffer, ["payload['a'][1] is a tensor that lies outside", "frombuffer"]),
        ({"a": np.float32(1)}, buffer, ["payload['a']", "outside"]),
        (numbers, beside, ["outside"]),
        (numbers, [], ["outside"]),
        (behind, [buffer, beside], ["outside"]),
        ((1, numbers[::2]), buffer, ["payload[1] is a tensor that is not contiguous", "put()"]),
        (numbers[::-1], buffer, ["not contiguous"]),
        (numbers.reshape(1000, 100).T, buffer, ["not contiguous"]),
        (b"bytes", 5, ["memory is of type int", "Node.allocate()"]),
        (numbers, None, ["memory is of type NoneType"]),
        (numbers, numbers, ["memory is of type ndarray"]),
        (numbers, "memory", ["memory is of type str"]),
        (numbers, [buffer, b"x"], ["memory[1] is of type bytes"]),
        (object(), buffer, ["of type object"]),
        (np.frombuffer(other_buffer := other.allocate(8), np.int32), other_buffer, ["not of this node"]),
    ]:
        with pytest.raises(stagewire.InvalidArgument) as caught:
            node.put_in_place("k", payload, memory)
        assert caught.value.operation == "put"
        for text in texts:
            assert text in str(caught.value)
    for options, text in [({"readers": 0}, "readers"), ({"ttl": 0}, "ttl"), ({"max_lifetime": "1"}, "max_lifetime")]:
        with pytest.raises(stagewire.InvalidArgument, match=text):
            node.put_in_place("k", numbers, buffer, **options)
    with pytest.raises(stagewire.InvalidArgument, match="key is empty"):
        node.put_in_place("", numbers, buffer)
    with pytest.raises(TypeError):
        node.put_in_place("k", numbers, buffer, timeout=1)
    assert node.stats()["published"] == 0
    assert node.get(node.put_in_place("k", numbers, buffer).ticket).size == numbers.size


def test_why_it_was_released(make_node: Any) -> None:
    node = make_node()
    buffer, numbers = filled(node)

    def publish(**options: Any) -> Any:
        return node.put_in_place("k", numbers, buffer, **options)

    first = publish()
    second = publish()
    assert first.released.result() == "replaced"
    assert second.ticket.generation > first.ticket.generation and not second.released.done()
    assert node.withdraw(second.ticket)
    assert second.released.result() == "cancelled" and second.released.result() == "cancelled"
    assert publish(ttl=0.02).released.result() == "expired"
    assert publish(max_lifetime=0.02).released.result() == "expired"
    twice = publish(readers=2)
    node.get(twice.ticket, reader="a")
    assert not twice.released.done()
    node.get(twice.ticket, reader="b")
    assert twice.released.result() == "consumed"
    last = publish()
    node.close()
    assert last.released.wait() and last.released.done() and last.released.result() == "closed"
    assert "k" in repr(last)


def test_released_has_a_descriptor(make_node: Any) -> None:
    node = make_node()
    buffer, numbers = filled(node)
    done = node.put_in_place("k", numbers, buffer)
    assert select.select([done.released], [], [], 0)[0] == []
    node.withdraw("k")
    assert select.select([done.released], [], [], HANG)[0] == [done.released]
    late = node.put_in_place("k", numbers, buffer)
    node.withdraw("k")
    assert late.released.wait()
    assert select.select([late.released], [], [], 0)[0] == [late.released]


def test_released_can_be_awaited(make_node: Any) -> None:
    node = make_node()
    buffer, numbers = filled(node)

    async def main() -> None:
        done = node.put_in_place("k", numbers, buffer)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(done.released, 0.01)
        assert node.stats()["published"] == 1  # giving up the wait ends nothing

        async def outcome() -> str:
            return str(await done.released)

        waiting = [asyncio.create_task(outcome()) for _ in range(3)]
        await asyncio.sleep(0)
        node.withdraw("k")
        assert await asyncio.wait_for(asyncio.gather(*waiting), HANG) == ["cancelled"] * 3
        assert await done.released == "cancelled"

    asyncio.run(main())


def test_a_published_buffer_may_be_dropped(sender: Any, reader: Reader) -> None:
    buffer, numbers = filled(sender)
    ticket = sender.put_in_place("k", {"numbers": numbers, "text": "x"}, buffer).ticket
    expected = int(numbers.sum(dtype=np.int64))
    del buffer, numbers
    gc.collect()
    assert used(sender) > 0
    others = [sender.allocate(MIB) for _ in range(10)]  # none of these may get its memory
    for other in others:
        memoryview(other)[:] = b"\xff" * MIB
    assert reader.read("copy", ticket)[0] == expected
    del others, other
    gc.collect()
    wait_for(lambda: used(sender) == 0)
