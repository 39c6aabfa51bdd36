"""Regions: memory of the caller's own, published in place and taken back by force."""

from __future__ import annotations

import array
import ctypes
import gc
import mmap
import os
import signal
import weakref
from typing import Any

import numpy as np
import pytest

import stagewire
from helpers import HANG, MIB, READER, SMALL, Reader, used, wait_for


@pytest.fixture
def sender(make_node: Any) -> Any:
    return make_node(insecure=True, routes=["tcp"], inline_limit=0)


@pytest.fixture
def reader(peer: Any) -> Reader:
    return Reader(peer(READER, "tcp"))


def numbers_from(first: int, count: int = 100_000) -> Any:
    return np.arange(first, first + count, dtype=np.int32)


@pytest.mark.parametrize("how", ["copy", "view", "into"])
def test_another_process_reads_what_lies_in_a_region(sender: Any, reader: Reader, how: str) -> None:
    cache = numbers_from(0)
    region = sender.register(cache, name="kv cache")
    for first in (1000, 2000):
        part = cache[first : first + 50_000]
        done = sender.put_in_place("k", {"numbers": part, "text": "é"}, region, from_stage="a", to_stage="b")
        assert done.ticket.size == part.nbytes and done.ticket.from_stage == "a" and done.ticket.to_stage == "b"
        part[-1] = 7  # nothing was copied: the reader sees this
        assert reader.read(how, done.ticket) == (int(part.sum(dtype=np.int64)), 7, "é", "tcp", False)
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
    got = make_node(insecure=True, routes=["tcp"]).get(sender.put_in_place("k", payload, region).ticket)
    assert stagewire.dtype_of(got) == stagewire.dtype_of(payload)
    assert got.nbytes == 100_000 and not got.view(np.uint8).any()


@pytest.mark.parametrize("dtype", [">f4", "M8[s]", "S4", [("x", "i2"), ("y", "u1")]], ids=str)
def test_arrays_of_types_that_cannot_be_sent(sender: Any, make_node: Any, dtype: Any) -> None:
    memory = np.zeros(10_000, dtype)
    region = sender.register(memory)
    assert (region.address, region.nbytes) == (memory.ctypes.data, memory.nbytes)
    done = sender.put_in_place("k", memory.view(np.uint8), region)
    assert make_node(insecure=True, routes=["tcp"]).get(done.ticket).nbytes == memory.nbytes


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
    assert receiver.get(sender.put_in_place("k", cache, region).ticket, details=True).transport == "tcp"
    # Without a secret and without insecure there is no tcp.
    sender, receiver = make_node(), make_node()
    region = sender.register(cache)
    with pytest.raises(stagewire.NotViable, match="shm: not viable, because the owner of a region"):
        receiver.get(sender.put_in_place("k", cache, region).ticket, timeout=HANG)
    region.close()


def test_closing_withdraws_what_lies_in_it(sender: Any, make_node: Any) -> None:
    cache = numbers_from(0)
    region = sender.register(cache, name="kv cache")
    done = sender.put_in_place("k", cache, region)
    assert not done.released.done()
    region.close()
    assert region.closed and done.released.result(HANG) == "cancelled"
    receiver = make_node(insecure=True)
    with pytest.raises(stagewire.Cancelled):
        receiver.get(done.ticket, timeout=HANG)
    with pytest.raises(stagewire.Closed, match="'kv cache' is closed"):
        sender.put_in_place("k", cache, region)
    with sender.register(cache) as again:
        assert again.closed is False
        assert receiver.get(sender.put_in_place("k", cache, again).ticket)[-1] == 99_999
    assert again.closed
    with pytest.raises(ZeroDivisionError), sender.register(cache) as failing:
        raise ZeroDivisionError
    assert failing.closed and sender.stats()["regions"] == 0


def test_a_close_that_has_not_been_proven_yet(make_node: Any) -> None:
    node = make_node()
    memory, into = np.full(128 * MIB, 5, np.uint8), np.zeros(128 * MIB, np.uint8)
    for _ in range(50):  # the copy may be over before it was asked about
        into[:] = 0
        region = node.register(memory, name="kv cache")
        got = node.get_async(node.put_in_place("k", memory, region).ticket, into=into, timeout=HANG)
        while into[0] == 0 and not got.done():
            pass
        try:
            region.close(timeout=0)
        except stagewire.DeadlineExceeded as error:
            assert error.operation == "close region" and "'kv cache'" in str(error)
            assert "must not be written or freed yet" in str(error) and "called again" in str(error)
            assert region.closed
            region.close(HANG)
            memory[:] = 0xEE
            try:
                assert (got.result() == 5).all()
            except (stagewire.LeaseLost, stagewire.Cancelled):
                pass
            return
        got.cancel()
    raise AssertionError("it never took any time")


def test_close_has_a_timeout(sender: Any) -> None:
    region = sender.register(bytearray(1000))
    with pytest.raises(stagewire.InvalidArgument, match="timeout"):
        region.close("soon")  # type: ignore[arg-type]
    assert not region.closed
    region.close(HANG)


# Reads into memory of its own; once the first bytes are there it says so, or stops itself in the middle.
IN_THE_MIDDLE = f"""
import os, signal, sys, numpy as np, stagewire
node = stagewire.Node({SMALL}, routes=["tcp"], tcp_buffer="64 KiB", lease="5 min")
ticket, how = sys.argv[1:]
into = np.zeros(stagewire.Ticket.parse(ticket).size, np.uint8)
got = node.get_async(ticket, into=into, timeout=60)
while into[0] == 0 and not got.done():
    pass
if how == "stopped":
    os.kill(os.getpid(), signal.SIGSTOP)
else:
    print("begun")
try:
    print("right" if (got.result() == 5).all() else "WRONG")
except stagewire.Error as error:
    print(error.kind)
"""


@pytest.mark.parametrize("how", ["running", "stopped", "killed"])
def test_taking_memory_back_from_a_reader_in_the_middle(make_node: Any, peer: Any, how: str) -> None:
    sender = make_node(insecure=True, routes=["tcp"], tcp_buffer="64 KiB", lease="5 min")
    memory = np.full(128 * MIB, 5, np.uint8)
    region = sender.register(memory)
    done = sender.put_in_place("k", memory, region)
    process = peer(IN_THE_MIDDLE, str(done.ticket), "running" if how == "running" else "stopped")
    if how == "running":
        assert process.hear() == "begun"
    else:
        os.waitid(os.P_PID, process.process.pid, os.WSTOPPED)
    if how == "killed":
        process.process.kill()
    region.close(HANG)
    memory[:] = 0xEE
    assert done.released.result(HANG) in ("cancelled", "consumed")
    if how != "killed":
        process.process.send_signal(signal.SIGCONT)
        assert process.hear() in ("right", "lease_lost")
    assert (sender.stats()["leases"], sender.stats()["regions"], used(sender)) == (0, 0, 0)
    del region
    gc.collect()


def test_the_object_is_kept_while_the_region_is_open(sender: Any, reader: Reader) -> None:
    cache = numbers_from(0)
    alive = weakref.ref(cache)
    region = sender.register(cache)
    ticket = sender.put_in_place("k", {"numbers": cache, "text": "x"}, region).ticket
    del cache
    gc.collect()
    assert alive() is not None
    assert reader.read("copy", ticket)[1] == 99_999
    assert alive() is not None
    region.close()
    assert alive() is None


def test_dropping_it_takes_the_memory_back(sender: Any) -> None:
    cache = numbers_from(0)
    alive = weakref.ref(cache)
    region = sender.register(cache)
    done = sender.put_in_place("k", cache, region)
    del region, cache
    gc.collect()
    assert done.released.result(HANG) == "cancelled"
    wait_for(lambda: alive() is None)
    assert sender.stats()["regions"] == 0


def test_what_is_refused_is_not_kept(make_node: Any) -> None:
    node, cache = make_node(), numbers_from(0)
    node.close()
    alive = weakref.ref(cache)
    with pytest.raises(stagewire.Closed) as caught:
        node.register(cache)
    assert caught.value.operation == "register region"
    del cache
    wait_for(lambda: alive() is None)


def test_a_node_that_is_closed_first(make_node: Any) -> None:
    node, cache = make_node(), numbers_from(0)
    alive = weakref.ref(cache)
    region = node.register(cache)
    done = node.put_in_place("k", cache, region)
    node.close()
    assert region.closed and done.released.result(HANG) == "closed"
    with pytest.raises(stagewire.Closed):
        node.put_in_place("k", cache, region)
    region.close()
    del cache
    assert alive() is None and region.nbytes == 400_000
    region.close()


def test_a_region_of_a_node_that_has_gone(make_node: Any) -> None:
    # The next node may lie where that one did; the memory is not its own nevertheless.
    cache, other = numbers_from(0), numbers_from(1)
    for _ in range(10):
        gone = stagewire.Node(publish_pool_size="1 MiB", receive_pool_size="1 MiB")
        region = gone.register(cache)
        del gone
        with stagewire.Node(publish_pool_size="1 MiB", receive_pool_size="1 MiB") as node, node.register(other):
            assert region.closed
            with pytest.raises(stagewire.InvalidArgument, match="not of this node"):
                node.put_in_place("k", cache, region)


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


FORK = f"""
import gc, os, sys, numpy as np, stagewire
node = stagewire.Node({SMALL}, routes=["tcp"], inline_limit=0)
memory = np.full(100_000, 7, np.uint8)
region = node.register(memory)
done = node.put_in_place("k", memory, region)
pid = os.fork()
if pid == 0:
    with stagewire.Node({SMALL}) as fresh:
        for call in [
            lambda: node.register(memory),
            lambda: node.put_in_place("k", memory, region),
            lambda: fresh.put_in_place("k", memory, region),
            lambda: region.closed,
            lambda: region.close(),
        ]:
            try:
                call()
            except stagewire.Forked:
                continue
            except BaseException as error:
                print("wrong error", repr(error), file=sys.stderr)
            else:
                print("no error", file=sys.stderr)
        with fresh.register(memory) as own:
            assert fresh.get(fresh.put_in_place("k", memory, own).ticket).sum() == 700_000
    assert region.nbytes == 100_000 and repr(region)
    with region:
        pass
    del region, done, node
    gc.collect()
    sys.exit(3)
_, status = os.waitpid(pid, 0)
assert os.waitstatus_to_exitcode(status) == 3, status
assert not region.closed and not done.released.done()
with stagewire.Node({SMALL}, routes=["tcp"]) as other:
    assert other.get(done.ticket, timeout=60).sum() == 700_000
assert done.released.result(60) == "consumed"
region.close()
"""


def test_fork(peer: Any) -> None:
    assert peer(FORK).end(0) == ("", "")


EXITS = {
    "with everything alive": "",
    "dropped": "del region",
    "after the node was closed": "node.close(); region.close(); memory[0] = 1",
    "without the node": "del node, done; assert region.closed",
    "in a block": "region.__enter__()",
    "by os._exit": "import os; os._exit(0)",
}


@pytest.mark.parametrize("how", list(EXITS))
def test_exit(peer: Any, how: str) -> None:
    script = f"""
import numpy as np, stagewire
node = stagewire.Node({SMALL})
memory = np.zeros(100_000, np.uint8)
region = node.register(memory)
done = node.put_in_place("k", memory, region)
{EXITS[how]}
"""
    assert peer(script).end(0) == ("", "")
