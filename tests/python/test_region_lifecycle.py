"""Regions taken back: closed, dropped, after their node, in forked children and at the end of the process."""

from __future__ import annotations

import gc
import os
import signal
import weakref
from typing import Any

import numpy as np
import pytest

import stagewire
from helpers import HANG, MIB, READER, ROUTE, SMALL, Reader, numbers_from, used, wait_for


@pytest.fixture
def sender(make_node: Any) -> Any:
    return make_node(insecure=True, routes=[ROUTE], inline_limit=0)


@pytest.fixture
def reader(peer: Any) -> Reader:
    return Reader(peer(READER, ROUTE))


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
node = stagewire.Node({SMALL}, routes=["{ROUTE}"], tcp_buffer="64 KiB", lease="5 min")
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
    sender = make_node(insecure=True, routes=[ROUTE], tcp_buffer="64 KiB", lease="5 min")
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


FORK = f"""
import gc, os, sys, numpy as np, stagewire
node = stagewire.Node({SMALL}, routes=["{ROUTE}"], inline_limit=0)
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
with stagewire.Node({SMALL}, routes=["{ROUTE}"]) as other:
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
