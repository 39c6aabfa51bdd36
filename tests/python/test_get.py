"""Getting: by ticket and by key, views, destinations, futures, many at once, and every error as its exception."""

from __future__ import annotations

import asyncio
import gc
import pickle
import select
import socket
import weakref
from typing import Any

import numpy as np
import pytest

import stagewire
from helpers import wait_for

BIG = np.arange(1_000_000, dtype=np.float32)


def test_tickets_travel_as_text_and_pickled(pair: tuple[Any, Any]) -> None:
    sender, receiver = pair
    ticket = sender.put("ké y|%", BIG, from_stage="a", to_stage="b", namespace="n")
    again = stagewire.Ticket.parse(str(ticket))
    assert again == ticket and hash(again) == hash(ticket) and again != "x"
    assert pickle.loads(pickle.dumps(ticket)) == ticket
    assert (ticket.key, ticket.from_stage, ticket.to_stage, ticket.namespace) == ("ké y|%", "a", "b", "n")
    assert ticket.size == BIG.nbytes and ticket.generation > 0 and ticket.node == sender.id
    assert ticket.addresses == sender.addresses
    np.testing.assert_array_equal(receiver.get(str(ticket)), BIG)
    with pytest.raises(stagewire.InvalidArgument):
        stagewire.Ticket.parse("swt1|nonsense")


def test_get_by_address_and_key(pair: tuple[Any, Any]) -> None:
    sender, receiver = pair
    names = {"from_stage": "a", "to_stage": "b", "namespace": "n"}
    sender.put("k", 1, **names)
    assert receiver.get(sender.address, "k", **names) == 1
    sender.put("k", 2, **names)
    assert receiver.get((sender.address, "k", "a", "b", "n")) == 2
    with pytest.raises(stagewire.InvalidArgument, match="needs a key"):
        receiver.get(sender.address)
    with pytest.raises(stagewire.InvalidArgument, match="give it alone"):
        receiver.get(sender.put("k", 3), "k")
    with pytest.raises(stagewire.InvalidArgument, match="expected a Ticket"):
        receiver.get(5)


def test_a_get_can_come_before_its_put(pair: tuple[Any, Any]) -> None:
    sender, receiver = pair
    future = receiver.get_async(sender.address, "later", timeout=60)
    wait_for(lambda: sender.stats()["waiting_claims"] == 1)
    assert not future.done() and not future.wait(0)
    with pytest.raises(stagewire.DeadlineExceeded):
        future.result(timeout=0)
    sender.put("later", "now")
    assert future.wait(60) and future.result() == "now" and future.result() == "now"


def test_views_are_read_only_and_hold_their_lease(make_node: Any) -> None:
    sender, receiver = make_node(inline_limit=0), make_node()
    got = receiver.get(sender.put("k", {"x": BIG, "y": BIG[:10]}), view=True, details=True)
    assert got.view and got.transport == "shm" and got.placement_note == ""
    x, y = got.value["x"], got.value["y"]
    assert type(x) is np.ndarray and not x.flags.writeable
    with pytest.raises(ValueError):
        x[0] = 1
    with pytest.raises(ValueError):
        x.flags.writeable = True
    with pytest.raises(TypeError, match="read-only"):
        memoryview(x).cast("B")[0] = 1
    part = y[3:4].reshape(1, 1)
    del got, x, y
    gc.collect()
    assert receiver.stats()["views"] == 1 and sender.stats()["publish_pool"]["used"] > 0
    sender.close()
    assert part[0, 0] == 3
    del part
    gc.collect()
    assert receiver.stats()["views"] == 0


def test_a_view_over_tcp_is_a_copy_and_says_so(make_node: Any) -> None:
    options = {"routes": ["tcp"], "insecure": True}
    sender, receiver = make_node(**options), make_node(**options)
    got = receiver.get(sender.put("k", BIG), view=True, details=True)
    assert not got.view and got.transport == "tcp" and got.placement_note
    np.testing.assert_array_equal(got.value, BIG)


def test_received_memory_is_returned_with_the_last_array(make_node: Any) -> None:
    sender, receiver = make_node(), make_node()
    got = receiver.get(sender.put("k", [BIG, BIG + 1]))
    assert receiver.stats()["receive_pool"]["used"] >= 2 * BIG.nbytes
    got[0][:] = 5  # the receiver's own
    part = got[1][5:6]
    del got
    gc.collect()
    assert receiver.stats()["receive_pool"]["used"] >= 2 * BIG.nbytes
    del part
    gc.collect()
    assert receiver.stats()["receive_pool"]["used"] == 0
    wait_for(lambda: sender.stats()["publish_pool"]["used"] == 0)


def test_into_one_array(any_route: tuple[Any, Any]) -> None:
    sender, receiver = any_route
    destination = np.zeros(BIG.shape, BIG.dtype)
    got = receiver.get(sender.put("k", BIG), into=destination)
    np.testing.assert_array_equal(destination, BIG)
    assert np.shares_memory(got, destination) and got.shape == BIG.shape and got.flags.writeable


def test_into_several_arrays(any_route: tuple[Any, Any]) -> None:
    sender, receiver = any_route
    tensors = [np.arange(1000, dtype=np.int16), np.arange(70.0), np.arange(300, dtype=np.uint8)]
    exact = [np.zeros_like(tensor) for tensor in tensors]
    got = receiver.get(sender.put("k", tensors), into=exact)
    for one, two, tensor in zip(got, exact, tensors, strict=True):
        np.testing.assert_array_equal(one, tensor)
        assert np.shares_memory(one, two)
    pages = [bytearray(1000) for _ in range(2)] + [bytearray(860)]
    got = receiver.get(sender.put("k", tensors), into=pages)
    assert b"".join(pages) == b"".join(tensor.tobytes() for tensor in tensors)
    assert got[0] is None  # cut over two pages


def test_bad_destinations_are_refused(pair: tuple[Any, Any]) -> None:
    sender, receiver = pair
    read_only = np.zeros(10)
    read_only.flags.writeable = False
    ticket = sender.put("k", BIG)
    for into, text in [
        (read_only, "read-only"),
        (b"bytes", "read-only"),
        (np.zeros(10)[::2], "not contiguous"),
        (5, "of type int"),
        ([np.zeros(3), None], r"into\[1\]"),
        ([], "empty"),
    ]:
        with pytest.raises(stagewire.InvalidArgument, match=text):
            receiver.get(ticket, into=into)
    with pytest.raises(stagewire.InvalidArgument, match="exclude"):
        receiver.get(ticket, into=np.zeros_like(BIG), view=True)
    with pytest.raises(stagewire.TooLarge):
        receiver.get(ticket, into=np.zeros(10, np.float32))
    np.testing.assert_array_equal(receiver.get(sender.put("k", BIG)), BIG)


def test_destinations_are_let_go_by_the_reaper(pair: tuple[Any, Any]) -> None:
    sender, receiver = pair

    class Owned(np.ndarray):  # an array that can be watched
        pass

    destination = np.zeros(BIG.shape, BIG.dtype).view(Owned)
    watch = weakref.ref(destination)
    receiver.get(sender.put("k", BIG), into=destination)
    future = receiver.get_async(sender.address, "never", timeout=60, into=destination)
    del destination
    gc.collect()
    assert watch() is not None
    future.cancel()
    with pytest.raises(stagewire.Cancelled):
        future.result()
    del future
    wait_for(lambda: watch() is None)


def test_futures_have_a_descriptor(pair: tuple[Any, Any]) -> None:
    sender, receiver = pair
    future = receiver.get_async(sender.address, "k", timeout=60)
    assert select.select([future], [], [], 0)[0] == []
    sender.put("k", 1)
    assert select.select([future], [], [], 60)[0] == [future]
    assert future.done() and future.result() == 1


def test_futures_can_be_awaited(pair: tuple[Any, Any]) -> None:
    sender, receiver = pair

    async def main() -> None:
        futures = [receiver.get_async(sender.address, f"k{i}", timeout=60) for i in range(3)]
        for i in range(3):
            sender.put(f"k{i}", i)
        assert await asyncio.gather(*futures) == [0, 1, 2]
        with pytest.raises(stagewire.NotFound):
            await receiver.get_async(sender.address, "none", wait=False)
        abandoned = receiver.get_async(sender.address, "never", timeout=60)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(abandoned, 0.01)
        with pytest.raises(stagewire.Cancelled):
            abandoned.result()

    asyncio.run(main())


def test_one_future_can_be_awaited_by_several_tasks(pair: tuple[Any, Any]) -> None:
    sender, receiver = pair

    async def main() -> None:
        future = receiver.get_async(sender.address, "k", timeout=60)

        async def outcome() -> Any:
            return await future

        waiting = [asyncio.create_task(outcome()) for _ in range(3)]
        await asyncio.sleep(0)
        sender.put("k", 5)
        assert await asyncio.wait_for(asyncio.gather(*waiting), 60) == [5, 5, 5]

    asyncio.run(main())


def test_many_at_once(any_route: tuple[Any, Any]) -> None:
    sender, receiver = any_route
    tickets = [sender.put(f"k{i}", {"i": i, "x": BIG[:1000] + i}) for i in range(20)]
    got = receiver.get_many([*tickets[:10], *map(str, tickets[10:]), (sender.address, "none")], wait=False)
    for i, one in enumerate(got[:20]):
        assert one["i"] == i
        np.testing.assert_array_equal(one["x"], BIG[:1000] + i)
    assert isinstance(got[20], stagewire.NotFound)
    into = [np.zeros(1000, np.float32), None]
    got = receiver.get_many([sender.put("a", BIG[:1000]), sender.put("b", 1)], into=into)
    np.testing.assert_array_equal(into[0], BIG[:1000])
    assert got[1] == 1
    assert receiver.get_many([]) == []


def test_readers(pair: tuple[Any, Any]) -> None:
    sender, receiver = pair
    ticket = sender.put("k", 1, readers=2)
    assert receiver.get(ticket, reader="a") == 1
    with pytest.raises(stagewire.Consumed):
        receiver.get(ticket, reader="a", timeout=5)
    assert receiver.get(ticket, reader="b") == 1
    for readers in (0, -1, 2**40):
        with pytest.raises(stagewire.InvalidArgument, match="readers"):
            sender.put("k", 1, readers=readers)


def test_many_keys_are_withdrawn_at_once(make_node: Any) -> None:
    sender, receiver = make_node(), make_node()
    for key in ("a/1", "a/2", "b"):
        sender.put(key, 1, from_stage="0", to_stage="1")
    sender.put("b", 2, from_stage="1", to_stage="2")
    sender.put("a/1", 3, namespace="other")
    assert sender.withdraw_prefix("a/") == 2 and sender.withdraw_prefix("a/") == 0
    assert sender.withdraw_everywhere("b") == 2 and sender.withdraw_everywhere("b") == 0
    assert sender.stats()["published"] == 1
    assert receiver.get(sender.address, "a/1", namespace="other") == 3


def test_each_error_is_its_exception(make_node: Any) -> None:
    sender, receiver = make_node(publish_pool_size="1 MiB"), make_node()
    with pytest.raises(stagewire.DeadlineExceeded) as caught:
        receiver.get(sender.address, "never", timeout=0.05)
    error = caught.value
    assert isinstance(error, TimeoutError) and isinstance(error, stagewire.Error)
    assert error.kind == "deadline_exceeded" and error.operation == "get" and "never" in error.key
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error) and str(copy) == str(error)
    with pytest.raises(stagewire.NotFound):
        receiver.get(sender.address, "never", wait=False)
    old = sender.put("k", 1)
    new = sender.put("k", 2)
    with pytest.raises(stagewire.Replaced):
        receiver.get(old)
    assert sender.withdraw(new) and not sender.withdraw("k")
    with pytest.raises(stagewire.Cancelled):
        receiver.get(new)
    brief = sender.put("k", 1, ttl=0.02)
    wait_for(lambda: sender.stats()["published"] == 0)
    with pytest.raises(stagewire.Expired):
        receiver.get(brief)
    with pytest.raises(stagewire.TooLarge):
        sender.put("k", BIG)
    held = sender.put("held", np.zeros(700_000, np.uint8))
    with pytest.raises(stagewire.PoolExhausted) as full:
        sender.put("more", np.zeros(700_000, np.uint8), timeout=0.05)
    assert isinstance(full.value, MemoryError)
    del held
    with pytest.raises(stagewire.Unreachable):
        receiver.get("unix:@no-such-node", "k", timeout=0.3)
    with pytest.raises(stagewire.InvalidArgument, match="timeout"):
        receiver.get(sender.address, "k", timeout="soon")
    with pytest.raises(stagewire.InvalidArgument, match="framework"):
        receiver.get(sender.address, "k", framework="jax")
    sender.close()
    sender.close()
    assert sender.closed
    with pytest.raises(stagewire.Closed):
        sender.put("k", 1)
    with pytest.raises(stagewire.Closed):
        sender.get(new)


def test_configuration(make_node: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for options, text in [
        ({"publish_pool_sise": 1}, "publish_pool_size"),
        ({"lease": "soon"}, "lease"),
        ({"listen": [1]}, "listen"),
        ({"spin": object()}, "spin"),
    ]:
        with pytest.raises(stagewire.ConfigError, match=text):
            stagewire.Node(options)
    with pytest.raises(stagewire.ConfigError):
        stagewire.Node(5)  # type: ignore[arg-type]
    file = tmp_path / "node.yaml"
    file.write_text("name: from-file\npublish_pool_size: 16 MiB\nreceive_pool_size: 16 MiB\n")
    monkeypatch.setenv("STAGEWIRE_TTL", "7 s")
    with stagewire.Node({"heartbeat": 0.5}, config_file=file, name="given") as node:
        assert 'name: "given"' in node.config and "ttl: 7 s" in node.config
        assert node.stats()["publish_pool"]["size"] == 16 << 20
    assert node.closed
    with stagewire.Node(config_file=str(file), environment=False) as node:
        assert "ttl: 7 s" not in node.config


def test_what_a_node_says_about_itself(make_node: Any) -> None:
    sender, receiver = make_node(insecure=True), make_node(insecure=True)
    receiver.get(sender.put("k", BIG))
    assert sender.id in repr(sender) or sender.id[:8] in repr(sender)
    assert "shm" in receiver.explain()
    assert "# TYPE" in sender.metrics()
    assert set(sender.stats()) >= {"published", "leases", "views", "publish_pool", "receive_pool"}
    assert receiver.connected(sender.address)
    extra = sender.listen("127.0.0.1:0")
    assert extra in sender.addresses and sender.unlisten(extra) and not sender.unlisten(extra)


def test_a_get_that_does_not_wait_gives_up_a_silent_sender(make_node: Any) -> None:
    # Connections come to be, and nobody ever says a word: the kernel accepts them.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        node = make_node(insecure=True)
        with pytest.raises(stagewire.DeadlineExceeded, match="no session to the sender"):
            node.get(address, "k", timeout=3600, wait=False)
        with pytest.raises(stagewire.DeadlineExceeded, match="no session to the sender"):
            node.get_async(address, "k", timeout=3600, wait=False).result()
    with pytest.raises(stagewire.Unreachable, match="refused"):
        node.get(address, "k", timeout=3600, wait=False)
