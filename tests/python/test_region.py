"""Regions: which memory of the caller's own can be registered, and what is published from it."""

from __future__ import annotations

import array
import ctypes
import gc
import mmap
from typing import Any

import numpy as np
import pytest

import stagewire
from helpers import HANG, MIB, READER, ROUTE, Reader, numbers_from, used, wait_for


@pytest.fixture
def sender(make_node: Any) -> Any:
    return make_node(insecure=True, routes=[ROUTE], inline_limit=0)


@pytest.fixture
def reader(peer: Any) -> Reader:
    return Reader(peer(READER, ROUTE))


@pytest.mark.parametrize("how", ["copy", "view", "into"])
def test_another_process_reads_what_lies_in_a_region(sender: Any, reader: Reader, how: str) -> None:
    cache = numbers_from(0)
    region = sender.register(cache, name="kv cache")
    for first in (1000, 2000):
        part = cache[first : first + 50_000]
        done = sender.put_in_place("k", {"numbers": part, "text": "é"}, region, from_stage="a", to_stage="b")
        assert done.ticket.size == part.nbytes and done.ticket.from_stage == "a" and done.ticket.to_stage == "b"
        part[-1] = 7  # nothing was copied: the reader sees this
        assert reader.read(how, done.ticket) == (int(part.sum(dtype=np.int64)), 7, "é", ROUTE, False)
        assert done.released.result(HANG) == "consumed"
    assert used(sender) == 0 and sender.stats()["publish_pool"]["peak_used"] == 0
    region.close()


def test_a_region(make_node: Any) -> None:
    node = make_node()
    assert (node.stats()["regions"], node.stats()["region_bytes"]) == (0, 0)
    cache = numbers_from(0)
    region = node.register(cache, name="kv cache")
    assert region.nbytes == 400_000 and region.name == "kv cache" and region.closed is False
    assert region.address == cache.ctypes.data
    assert repr(region) == "<stagewire.Region 'kv cache' of 400000 bytes>"
    other = node.register(bytearray(100))
    assert other.name == "region"
    assert (node.stats()["regions"], node.stats()["region_bytes"]) == (2, 400_100)
    assert "region kv cache" in node.explain()
    region.close()
    assert region.closed and region.nbytes == 400_000  # what it was
    region.close(timeout=0)  # again: harmless
    assert (node.stats()["regions"], node.stats()["region_bytes"]) == (1, 100)
    with pytest.raises(TypeError):
        stagewire.Region()
    unmade = stagewire.Region.__new__(stagewire.Region)
    with pytest.raises(stagewire.InvalidArgument):
        node.put_in_place("k", cache, unmade)
    del unmade


def mapped() -> mmap.mmap:
    memory = mmap.mmap(-1, 100_000)
    memory[:] = bytes(100_000)
    return memory


def read_only() -> Any:
    memory = np.zeros(25_000, np.float32)
    memory.flags.writeable = False
    return memory


MEMORIES = {
    "bytearray": lambda: bytearray(100_000),
    "bytes": lambda: bytes(100_000),
    "mmap": mapped,
    "array.array": lambda: array.array("d", [0.0] * 12_500),
    "text": lambda: array.array("u", "\0" * 25_000),  # no element type of a tensor
    "memoryview": lambda: memoryview(bytearray(100_001))[1:],
    "read-only array": read_only,
    "matrix": lambda: np.zeros((100, 250), np.float32),
    "bf16": lambda: np.zeros(50_000, np.dtype("u2", metadata={"stagewire": "bf16"})),
    "part of an array": lambda: np.zeros((200, 250), np.float32)[50:150],
}


@pytest.mark.parametrize("kind", list(MEMORIES))
def test_memory_of_many_kinds(sender: Any, make_node: Any, kind: str) -> None:
    memory = MEMORIES[kind]()
    region = sender.register(memory)
    assert region.nbytes == 100_000
    is_array = isinstance(memory, np.ndarray)
    payload = memory if is_array else np.frombuffer(memory, np.uint8)
    got = make_node(insecure=True, routes=[ROUTE]).get(sender.put_in_place("k", payload, region).ticket)
    assert stagewire.dtype_of(got) == stagewire.dtype_of(payload)
    assert got.nbytes == 100_000 and not got.view(np.uint8).any()


@pytest.mark.parametrize("dtype", [">f4", "M8[s]", "S4", [("x", "i2"), ("y", "u1")]], ids=str)
def test_arrays_of_types_that_cannot_be_sent(sender: Any, make_node: Any, dtype: Any) -> None:
    memory = np.zeros(10_000, dtype)
    region = sender.register(memory)
    assert (region.address, region.nbytes) == (memory.ctypes.data, memory.nbytes)
    done = sender.put_in_place("k", memory.view(np.uint8), region)
    assert make_node(insecure=True, routes=[ROUTE]).get(done.ticket).nbytes == memory.nbytes


def test_memory_cannot_be_resized_or_closed_while_it_is_registered(sender: Any) -> None:
    text, file, numbers = bytearray(1000), mapped(), np.zeros(1000)
    with sender.register(text), sender.register(file), sender.register(numbers):
        with pytest.raises(BufferError):
            text.extend(b"more")
        with pytest.raises(BufferError):
            file.close()
        with pytest.raises(ValueError):
            numbers.resize(100_000)
    text.extend(b"more")
    file.close()


class OnADevice:
    """An array of a GPU, as far as DLPack can tell."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(self, **_: Any) -> Any:
        raise AssertionError("its memory was asked for")


def test_memory_that_cannot_be_registered(make_node: Any) -> None:
    node = make_node()
    grid = np.zeros((10, 10))
    for memory, texts in [
        (grid[:, 1:], ["not contiguous"]),
        (grid.T, ["not contiguous"]),
        (grid[::-1], ["not contiguous"]),
        (memoryview(bytearray(10))[::2], ["not contiguous"]),
        (bytearray(), ["at least one byte"]),
        (np.zeros((0, 3)), ["at least one byte"]),
        (np.float32(1), ["NumPy scalar"]),
        (np.array([object()]), ["array of Python objects"]),
        (np.ma.masked_array([1.0, 2.0])[::-1], ["not contiguous"]),
        (None, ["of type NoneType", "buffer protocol"]),
        ("text", ["of type str"]),
        ([grid], ["of type list"]),
    ]:
        with pytest.raises(stagewire.InvalidArgument) as caught:
            node.register(memory)
        assert caught.value.operation == "register region"
        assert all(text in str(caught.value) for text in texts), str(caught.value)
    with pytest.raises(stagewire.NotViable, match="device memory is not supported") as viable:
        node.register(OnADevice())
    assert viable.value.operation == "register region"
    with pytest.raises(TypeError):
        node.register(grid, "a name")
    assert node.stats()["regions"] == 0


def test_too_many(make_node: Any) -> None:
    node, memory = make_node(), bytearray(1000)
    regions: list[stagewire.Region] = []
    with pytest.raises(stagewire.Busy, match="at most 250"):
        while len(regions) < 1000:
            regions.append(node.register(memory))
    assert len(regions) == node.stats()["regions"] == 250
    regions.pop().close()
    node.register(memory).close()
    del regions
    gc.collect()
    assert node.stats()["regions"] == 0
    wait_for(lambda: grows(memory))


def grows(memory: bytearray) -> bool:
    """Whether nothing holds it any more."""
    try:
        memory.append(0)
    except BufferError:
        return False
    return True


def test_several_regions_and_tensors(sender: Any, make_node: Any) -> None:
    first, second = bytearray(MIB), np.zeros(MIB, np.uint8)
    x = np.ndarray((100, 70), np.float32, first, offset=4)
    y = np.ndarray((1000,), np.int16, first, offset=500_002)
    z = second[1:300_001]
    x[:], y[:], z[:] = 1.5, np.arange(1000), 9
    regions = (sender.register(first), sender.register(second))
    tree = {"z": z, "list": [y, x, {"bytes": y.view(np.uint8)}], "part": x[10:20], "empty": np.zeros((0, 5)), "n": 3}
    got = make_node(insecure=True).get(sender.put_in_place("k", tree, regions, namespace="n").ticket)
    np.testing.assert_array_equal(got["z"], z)
    np.testing.assert_array_equal(got["list"][0], y)
    np.testing.assert_array_equal(got["list"][1], x)
    np.testing.assert_array_equal(got["list"][2]["bytes"], y.view(np.uint8))
    np.testing.assert_array_equal(got["part"], x[10:20])
    assert got["empty"].shape == (0, 5) and got["n"] == 3


def test_payloads_that_cannot_be_published_from_a_region(make_node: Any) -> None:
    node, other = make_node(), make_node()
    cache = numbers_from(0)
    region, buffer = node.register(cache[1000:2000]), node.allocate(400)
    inside = cache[1000:2000]
    for payload, memory, texts in [
        (np.zeros(3), region, ["payload is a tensor that lies outside the regions", "what was registered", "put()"]),
        ({"a": [inside, cache[999:1000]]}, region, ["payload['a'][1] is a tensor that lies outside"]),
        (cache[1500:2001], [region], ["outside"]),
        (inside[::2], region, ["payload is a tensor that is not contiguous"]),
        (inside, [region, buffer], ["memory[1] is a Buffer", "mixture"]),
        (inside, (buffer, region), ["memory[1] is a Region", "mixture"]),
        (inside, cache, ["memory is of type ndarray", "Node.register()"]),
        (inside, [region, cache], ["memory[1] is of type ndarray"]),
        (inside, other.register(cache), ["not of this node"]),
    ]:
        with pytest.raises(stagewire.InvalidArgument) as caught:
            node.put_in_place("k", payload, memory)
        assert caught.value.operation == "put"
        assert all(text in str(caught.value) for text in texts), str(caught.value)
    assert node.stats()["published"] == 0
    assert node.get(node.put_in_place("k", inside, region).ticket)[-1] == 1999


def test_a_view_becomes_a_copy(sender: Any, make_node: Any) -> None:
    cache = numbers_from(5)
    region = sender.register(cache)
    receiver = make_node(insecure=True)
    for node in (receiver, sender):
        done = sender.put_in_place("k", cache, region)
        got = node.get(done.ticket, view=True, details=True)
        assert not got.view and "copied" in got.placement_note
        assert got.value.flags.writeable and not np.shares_memory(got.value, cache)
        np.testing.assert_array_equal(got.value, cache)
        assert done.released.result(HANG) == "consumed"


def test_a_region_is_not_read_through_shared_memory(make_node: Any) -> None:
    cache = numbers_from(0)
    sender, receiver = make_node(insecure=True), make_node(insecure=True)
    assert receiver.get(sender.put("pool", cache), details=True).transport == "shm"
    done = sender.put_in_place("k", cache, sender.register(cache))
    assert done.released.result(HANG) == "cancelled"  # the region has gone already: nobody held it
    region = sender.register(cache)
    assert receiver.get(sender.put_in_place("k", cache, region).ticket, details=True).transport == ROUTE
    # Without a secret and without insecure there is no tcp.
    sender, receiver = make_node(routes=["shm", "tcp"]), make_node(routes=["shm", "tcp"])
    region = sender.register(cache)
    with pytest.raises(stagewire.NotViable, match="shm: not viable, because the owner of a region"):
        receiver.get(sender.put_in_place("k", cache, region).ticket, timeout=HANG)
    region.close()


def test_torch_tensors(sender: Any, make_node: Any, torch: Any) -> None:
    cache = torch.arange(64 * 1000, dtype=torch.bfloat16).reshape(64, 1000)
    expected, page = cache.clone(), cache[10:20]
    region = sender.register(cache)
    assert (region.address, region.nbytes) == (cache.data_ptr(), 128_000)
    receiver = make_node(insecure=True)
    got = receiver.get(sender.put_in_place("k", page, region).ticket, framework="torch")
    assert torch.equal(got, expected[10:20])
    with pytest.raises(stagewire.InvalidArgument, match="outside"):
        sender.put_in_place("k", torch.ones(3), region)
    # The tensor is given other memory; the region is still the old one.
    del page
    cache.data = torch.zeros(3, dtype=torch.bfloat16)
    alias = torch.frombuffer((ctypes.c_char * 128_000).from_address(region.address), dtype=torch.bfloat16)
    got = receiver.get(sender.put_in_place("k", alias, region).ticket, framework="torch")
    assert torch.equal(got, expected.view(-1))
    weight = torch.nn.Parameter(torch.ones(1000))
    with sender.register(weight) as own:
        assert receiver.get(sender.put_in_place("k", weight, own).ticket).sum() == 1000
    for tensor, kind, text in [
        (torch.zeros(10, 10).t(), stagewire.InvalidArgument, "not contiguous"),
        (torch.zeros(0), stagewire.InvalidArgument, "at least one byte"),
        (torch.ones(3, dtype=torch.complex64).conj(), stagewire.InvalidArgument, "resolve_conj"),
        (torch.zeros(3).to_sparse(), stagewire.InvalidArgument, "not dense"),
        (torch.zeros(3, device="meta"), stagewire.NotViable, "device memory is not supported"),
    ]:
        with pytest.raises(kind, match=text):
            sender.register(tensor)
