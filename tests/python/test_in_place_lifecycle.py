"""Memory published in place, and signals, forks, closed nodes and the end of the process."""

from __future__ import annotations

import gc
import signal
import threading
from typing import Any

import numpy as np
import pytest

import stagewire
from helpers import HANG, MIB, READER, SMALL, Reader, filled, wait_for

CTRL_C = f"""
import sys, threading, stagewire
node = stagewire.Node({SMALL})
held = node.allocate(10 << 20)
def watch():
    while node.stats()["publish_pool"]["waiting"] == 0:
        pass
    print("allocating")
threading.Thread(target=watch).start()
try:
    node.allocate(10 << 20, timeout=600)
except KeyboardInterrupt:
    print("interrupted", node.stats()["publish_pool"]["waiting"])
"""


def test_ctrl_c(peer: Any) -> None:
    process = peer(CTRL_C)
    assert process.hear() == "allocating"
    process.process.send_signal(signal.SIGINT)
    assert process.hear() == "interrupted 0"
    process.end()


def test_a_closed_node(make_node: Any) -> None:
    node = make_node(publish_pool_size="1 MiB")
    buffer, numbers = filled(node)
    blocked: list[BaseException] = []

    def allocate() -> None:
        try:
            node.allocate(MIB, timeout=HANG)
        except stagewire.Error as error:
            blocked.append(error)

    waiting = threading.Thread(target=allocate)
    waiting.start()
    wait_for(lambda: node.stats()["publish_pool"]["waiting"] == 1)
    node.close()
    waiting.join(HANG)
    assert isinstance(blocked[0], stagewire.Closed)
    with pytest.raises(stagewire.Closed):
        node.allocate(1)
    with pytest.raises(stagewire.Closed):
        node.put_in_place("k", numbers, buffer)
    numbers[5] = 55  # the memory outlives the node and its pool
    del node
    gc.collect()
    assert numbers[5] == 55 and np.frombuffer(buffer, np.int32)[5] == 55


def test_a_node_closed_under_a_reader(make_node: Any, peer: Any) -> None:
    sender, reader = make_node(), Reader(peer(READER, "shm"))
    buffer, numbers = filled(sender)
    done = sender.put_in_place("k", {"numbers": numbers, "text": "x"}, buffer)
    reader.read("hold", done.ticket)
    sender.close()
    # The reader still looks at the memory, so that it must not be called free.
    assert not done.released.done()
    with pytest.raises(stagewire.DeadlineExceeded, match="closed while a reader held"):
        done.released.result(0)
    del done


def test_a_publication_keeps_its_node(make_node: Any) -> None:
    node, receiver = stagewire.Node(publish_pool_size="1 MiB", receive_pool_size="1 MiB"), make_node()
    buffer = node.allocate(100_000)
    done = node.put_in_place("k", memoryview(buffer), buffer)
    del node
    gc.collect()
    assert receiver.get(done.ticket, timeout=HANG).nbytes == 100_000
    assert done.released.result(HANG) == "consumed"


FORK = f"""
import gc, os, sys, numpy as np, stagewire
node = stagewire.Node({SMALL})
buffer = node.allocate(100_000)
array = np.asarray(buffer)
array[:] = 7
done = node.put_in_place("k", array, buffer)
pid = os.fork()
if pid == 0:
    for call in [
        lambda: node.allocate(1),
        lambda: node.put_in_place("k", 1, buffer),
        lambda: memoryview(buffer),
        lambda: done.released.wait(1),
        lambda: done.released.result(),
        lambda: done.released.fileno(),
    ]:
        try:
            call()
        except stagewire.Forked:
            continue
        except BaseException as error:
            print("wrong error", repr(error), file=sys.stderr)
        else:
            print("no error", file=sys.stderr)
    assert buffer.nbytes == 100_000 and not done.released.done()
    del array, done, buffer
    node.close()
    with stagewire.Node(publish_pool_size="1 MiB", receive_pool_size="1 MiB") as fresh:
        own = fresh.allocate(1000)
        memoryview(own)[:3] = b"abc"
        assert fresh.get(fresh.put_in_place("k", own, own).ticket)[:3].tobytes() == b"abc"
    del node
    gc.collect()
    sys.exit(3)
_, status = os.waitpid(pid, 0)
assert os.waitstatus_to_exitcode(status) == 3, status
assert not done.released.done() and node.get(done.ticket)[99_999] == 7
assert done.released.result(60) == "consumed"
del array, buffer
gc.collect()
assert node.stats()["publish_pool"]["used"] == 0
"""


def test_fork(peer: Any) -> None:
    out, errors = peer(FORK).end(0)
    assert (out, errors) == ("", "")


EXITS = {
    "with everything alive": "",
    "after an explicit close": "node.close(); array[0] = 1; assert done.released.result() == 'closed'",
    "with a waiting daemon thread": """
import threading
started = threading.Event()
def wait():
    started.set()
    done.released.wait(600)
threading.Thread(target=wait, daemon=True).start()
started.wait()
""",
    "by os._exit": "import os; os._exit(0)",
}


@pytest.mark.parametrize("how", list(EXITS))
def test_exit(peer: Any, how: str) -> None:
    script = f"""
import numpy as np, stagewire
node = stagewire.Node({SMALL})
buffer = node.allocate(100_000)
array = np.asarray(buffer)
done = node.put_in_place("k", array, buffer)
{EXITS[how]}
"""
    out, errors = peer(script).end(0)
    assert (out, errors) == ("", "")


LEASED_AT_EXIT = f"""
import sys, threading, stagewire
node = stagewire.Node({SMALL})
buffer = node.allocate(100_000)
done = node.put_in_place("k", memoryview(buffer), buffer)
print(done.ticket)
sys.stdin.readline()
started = threading.Event()
def wait():
    started.set()
    done.released.wait(600)
threading.Thread(target=wait, daemon=True).start()
started.wait()
"""


def test_exit_while_a_reader_holds_the_memory(make_node: Any, peer: Any) -> None:
    process = peer(LEASED_AT_EXIT)
    view = make_node().get(process.hear(), timeout=HANG, view=True)
    process.say("end")
    assert process.end(0) == ("", "")
    assert view.nbytes == 100_000 and not view.any()  # the memory outlives its process
