"""Threads, signals, forks and the end of the process."""

from __future__ import annotations

import signal
import threading
import time
from typing import Any

import numpy as np
import pytest

import stagewire

# Options of the nodes in scripts.
SMALL = 'publish_pool_size="16 MiB", receive_pool_size="16 MiB", log_level="error"'


def test_a_waiting_get_lets_other_threads_run(pair: tuple[Any, Any]) -> None:
    sender, receiver = pair
    got: list[Any] = []
    waiting = threading.Thread(target=lambda: got.append(receiver.get(sender.address, "k", timeout=60)))
    waiting.start()
    while sender.stats()["waiting_claims"] == 0:
        pass
    sender.put("k", 1)
    waiting.join(60)
    assert got == [1]


class Alarm(Exception):
    pass


@pytest.fixture
def alarm() -> Any:
    def ring(*_: object) -> None:
        raise Alarm

    before = signal.signal(signal.SIGALRM, ring)
    yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_a_signal_handler_ends_every_wait(pair: tuple[Any, Any], make_node: Any, alarm: Any) -> None:
    sender, receiver = pair
    full = make_node(publish_pool_size="1 MiB")
    full.put("a", np.zeros(700_000, np.uint8))
    buffer = sender.allocate(1000)
    published = sender.put_in_place("in place", memoryview(buffer), buffer)
    destination = np.zeros(10)
    future = receiver.get_async(sender.address, "never", timeout=300)
    for wait in [
        lambda: receiver.get(sender.address, "never", timeout=300),
        lambda: receiver.get(sender.address, "never", timeout=300, into=destination),
        lambda: receiver.get_many([(sender.address, "never")] * 3, timeout=300),
        lambda: future.wait(300),
        lambda: future.result(),
        lambda: full.put("b", np.zeros(700_000, np.uint8), timeout=300),
        lambda: full.allocate(700_000, timeout=300),
        lambda: published.released.wait(300),
        lambda: published.released.result(),
    ]:
        alarm(0.05)
        began = time.monotonic()
        with pytest.raises(Alarm):
            wait()
        assert time.monotonic() - began < 60
    future.cancel()
    with pytest.raises(stagewire.Cancelled):
        future.result()
    assert sender.put("never", 5) and receiver.get(sender.address, "never") == 5


def test_a_harmless_signal_does_not_end_a_wait(pair: tuple[Any, Any]) -> None:
    sender, receiver = pair
    heard: list[int] = []

    def ring(number: int, _: object) -> None:
        heard.append(number)
        if len(heard) == 3:
            sender.put("k", 1)

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 0.03, 0.03)
    try:
        assert receiver.get(sender.address, "k", timeout=60) == 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(heard) >= 3


CTRL_C = f"""
import sys, stagewire
node = stagewire.Node({SMALL})
print("ready")
try:
    node.get(sys.argv[1], "never", timeout=600)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_ctrl_c(make_node: Any, peer: Any) -> None:
    sender = make_node()
    process = peer(CTRL_C, sender.address)
    assert process.hear() == "ready"
    while sender.stats()["waiting_claims"] == 0:
        pass
    process.process.send_signal(signal.SIGINT)
    assert process.hear() == "interrupted"
    process.end()


HOLDS_THE_LOCK = f"""
import ctypes, sys, stagewire
node = stagewire.Node({SMALL}, routes=["tcp"], insecure=True, inline_limit=0)
ticket = node.put("k", bytearray(100_000))
node.get_async(sys.argv[1], "never", timeout=60)
print(ticket)
sys.stdin.readline()
ctypes.PyDLL(None).usleep(30_000_000)  # PyDLL keeps the interpreter lock: for three leases
print("back")
sys.stdin.readline()
"""


def test_heartbeats_go_on_while_the_lock_is_held(make_node: Any, peer: Any) -> None:
    node = make_node(routes=["tcp"], insecure=True)
    process = peer(HOLDS_THE_LOCK, node.address)
    ticket = process.hear()
    while node.stats()["waiting_claims"] == 0:
        pass
    process.say("go")
    began = time.monotonic()
    sessions = set()
    while time.monotonic() - began < 29:
        sessions.add((node.stats()["sessions"], node.stats()["waiting_claims"]))
        threading.Event().wait(0.05)
    assert sessions == {(1, 1)}
    assert len(node.get(ticket, timeout=30)) == 100_000  # served by threads that need no lock
    assert process.hear() == "back"
    process.say("end")
    process.end()


def test_close_from_another_thread_ends_gets(pair: tuple[Any, Any]) -> None:
    sender, receiver = pair
    closing = threading.Timer(0.05, receiver.close)
    closing.start()
    with pytest.raises(stagewire.Closed):
        receiver.get(sender.address, "never", timeout=300)
    closing.join()


def test_failed_construction_is_cleaned_up(capsys: pytest.CaptureFixture[str]) -> None:
    class Mine(stagewire.Node):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)

        def __del__(self) -> None:
            deleted.append(True)

    deleted: list[bool] = []
    with pytest.raises(stagewire.ConfigError):
        Mine(nonsense=1)
    assert deleted == [True]

    class Never(stagewire.Node):
        def __init__(self) -> None:
            raise ValueError("before anything")

    with pytest.raises(ValueError, match="before anything"):
        Never()
    unmade = stagewire.Node.__new__(stagewire.Node)
    with pytest.warns(RuntimeWarning, match="uninitialized"), pytest.raises(TypeError):
        unmade.stats()
    del unmade
    with pytest.raises(stagewire.Error):
        stagewire.Connector({"role": "nobody"})
    assert capsys.readouterr().err == ""


def receiver_script(body: str) -> str:
    return f"""
import os, sys, threading, numpy as np, stagewire
node = stagewire.Node({SMALL}, inline_limit=0)
{body}
"""


EXITS = {
    "with live views and copies": "a = node.get(sys.argv[1], view=True); b = node.get(sys.argv[2])\nassert not a.flags.writeable",
    "with a node in a global cycle": "node_list = [node]; node_list.append(node_list)",
    "by an exception": "a = node.get(sys.argv[1], view=True); sys.exit(0)",
    "while a daemon thread waits": """
started = threading.Event()
def wait():
    started.set()
    try:
        node.get(sys.argv[3], "never", timeout=600)
    except stagewire.Closed:
        pass
    while True:
        try:
            node.get(sys.argv[3], "never", timeout=600)
        except stagewire.Error:
            pass
for _ in range(4):
    threading.Thread(target=wait, daemon=True).start()
started.wait()
""",
    "with a running get into an array": "a = np.zeros(10); f = node.get_async(sys.argv[3], 'never', timeout=600, into=a)",
    "with a result thrown away by another thread": """
a = node.get(sys.argv[1], view=True)
def drop(value): pass
t = threading.Thread(target=drop, args=(a,)); del a; t.start(); t.join()
""",
    "by os._exit": "a = node.get(sys.argv[1], view=True); os._exit(0)",
    "after an explicit close": "a = node.get(sys.argv[1], view=True); node.close(); node.close(); assert a[5] == 5",
    "with a connector": "c = stagewire.Connector({'role': 'receiver', 'stagewire': {'publish_pool_size': '1 MiB', 'receive_pool_size': '1 MiB'}})",
}


@pytest.mark.parametrize("how", list(EXITS))
def test_exit(make_node: Any, peer: Any, how: str) -> None:
    sender = make_node(inline_limit=0)
    values = np.arange(100_000, dtype=np.int32)
    tickets = [str(sender.put(f"k{i}", values)) for i in range(2)]
    out, errors = peer(receiver_script(EXITS[how]), *tickets, sender.address).end(0)
    assert (out, errors) == ("", "")
    # A process that has ended holds nothing any more.
    deadline = time.monotonic() + 30
    while sender.stats()["leases"] and time.monotonic() < deadline:
        threading.Event().wait(0.01)
    assert sender.stats()["leases"] == 0


FORK = receiver_script(
    """
import gc
view = node.get(sys.argv[1], view=True)
copy = node.get(sys.argv[2])
future = node.get_async(sys.argv[3], "never", timeout=600, into=np.zeros(10))
pid = os.fork()
if pid == 0:
    for call in [
        lambda: node.put("k", 1),
        lambda: node.get(sys.argv[3], "never", timeout=1),
        lambda: node.get_async(sys.argv[3], "never", timeout=1).result(),
        lambda: future.result(1),
        lambda: node.listen("127.0.0.1:0"),
    ]:
        try:
            call()
        except stagewire.Forked:
            continue
        except BaseException as error:
            print("wrong error", repr(error), file=sys.stderr)
        else:
            print("no error", file=sys.stderr)
    node.close()
    del view, copy, future
    old = node
    with stagewire.Node(publish_pool_size="1 MiB", receive_pool_size="1 MiB") as fresh:
        assert fresh.get(fresh.put("k", 1)) == 1
    del old, node
    gc.collect()
    sys.exit(3)
_, status = os.waitpid(pid, 0)
assert os.waitstatus_to_exitcode(status) == 3, status
assert view[7] == 7 and copy[7] == 7
assert node.get(node.put("k", "alive")) == "alive"
node.get(sys.argv[3], "after", timeout=60)
"""
)


def test_fork(make_node: Any, peer: Any) -> None:
    sender = make_node(inline_limit=0)
    values = np.arange(100_000, dtype=np.int32)
    tickets = [str(sender.put(f"k{i}", values)) for i in range(2)]
    sender.put("after", 1)
    out, errors = peer(FORK, *tickets, sender.address).end(0)
    assert (out, errors) == ("", "")


MULTIPROCESSING = receiver_script(
    """
import multiprocessing
def child(queue):
    try:
        node.put("k", 1)
    except stagewire.Forked as error:
        queue.put(error.kind)
context = multiprocessing.get_context("fork")
queue = context.Queue()
process = context.Process(target=child, args=(queue,))
process.start()
print(queue.get(timeout=60))
process.join(60)
print(process.exitcode)
"""
)


def test_multiprocessing_fork(peer: Any) -> None:
    out, errors = peer(MULTIPROCESSING).end(0)
    assert out.split() == ["forked", "0"] and errors == ""


def test_the_peers_death_is_an_error(make_node: Any, peer: Any) -> None:
    script = receiver_script('print(node.address); sys.stdin.readline(); os.kill(os.getpid(), 9)')
    process = peer(script)
    address = process.hear()
    receiver = make_node()
    future = receiver.get_async(address, "never", timeout=20)
    while not receiver.connected(address):
        threading.Event().wait(0.005)
    process.say("die")
    with pytest.raises(stagewire.Error) as caught:
        future.result()
    assert caught.value.kind in {"peer_lost", "peer_restarted", "unreachable", "deadline_exceeded"}
