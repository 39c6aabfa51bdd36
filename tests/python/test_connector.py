"""The contract of vLLM-Omni's connectors: names, roles, metadata, and that nothing is raised at run time."""

from __future__ import annotations

import dataclasses
import gc
import inspect
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import stagewire

NODE = {"log_level": "error", "insecure": True}
POOL = 8 << 20


@pytest.fixture
def make() -> Iterator[Callable[..., stagewire.Connector]]:
    made: list[stagewire.Connector] = []

    def one(**config: Any) -> stagewire.Connector:
        given = {"zmq_port": 0, "host": "127.0.0.1", "memory_pool_size": POOL, "stagewire": NODE, **config}
        made.append(stagewire.Connector(given))
        return made[-1]

    yield one
    for connector in made:
        connector.close()


@pytest.fixture
def ends(make: Callable[..., stagewire.Connector]) -> tuple[stagewire.Connector, stagewire.Connector]:
    """A sender and a receiver on nodes of their own, as in two processes."""
    sender = make()
    receiver = make(role="receiver", memory_pool_size=POOL + 4096)
    receiver.update_sender_info(sender.host, sender.zmq_port)
    return sender, receiver


def poll(get: Callable[[], Any]) -> Any:
    """Callers poll: the first get may only have started a connection."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if (got := get()) is not None:
            return got
        threading.Event().wait(0.005)
    raise AssertionError("it never came")


def test_signatures() -> None:
    def names(method: Any) -> list[str]:
        return list(inspect.signature(method).parameters)[1:]

    connector = stagewire.Connector
    assert names(connector.put) == ["from_stage", "to_stage", "put_key", "data"]
    assert names(connector.get) == ["from_stage", "to_stage", "get_key", "metadata"]
    assert names(connector.get_with_deadline) == ["from_stage", "to_stage", "get_key", "metadata", "deadline"]
    assert inspect.signature(connector.get_with_deadline).parameters["deadline"].kind is inspect.Parameter.KEYWORD_ONLY
    assert names(connector.cleanup) == ["request_id", "from_stage", "to_stage"]
    assert names(connector.update_sender_info) == ["host", "port", "sender_rank"]
    assert names(connector.abandon_get) == ["get_key"]
    assert connector.supports_raw_data is True


def test_structured_payloads(ends: tuple[Any, Any]) -> None:
    sender, receiver = ends
    payload = {"layers": [np.arange(10_000.0), np.ones(3)], "ids": [1, 2], "n": None}
    ok, size, metadata = sender.put(from_stage="0", to_stage="1", put_key="k", data=payload)
    assert ok and size == 80_024 and metadata["data_size"] == size
    assert (metadata["source_host"], metadata["source_port"]) == (sender.host, sender.zmq_port)
    got, got_size = poll(lambda: receiver.get("0", "1", "k", metadata=metadata))
    assert got_size == size and got["ids"] == [1, 2] and got["n"] is None
    np.testing.assert_array_equal(np.asarray(got["layers"][0]), np.arange(10_000.0))
    assert type(got["layers"][0]).__module__ == ("torch" if "torch" in sys.modules else "numpy")


@pytest.mark.parametrize("metadata", ["full", "address", "none"])
def test_metadata(ends: tuple[Any, Any], metadata: str) -> None:
    sender, receiver = ends
    full = sender.put("0", "1", "k", {"a": 1})[2]
    given = {"full": full, "address": {key: full[key] for key in ("source_host", "source_port")}, "none": None}[metadata]
    assert poll(lambda: receiver.get("0", "1", "k", given))[0] == {"a": 1}
    assert receiver.get("0", "1", "k", given) is None


def test_raw_payloads(ends: tuple[Any, Any]) -> None:
    sender, receiver = ends
    values = np.arange(5000, dtype=np.float32)
    for data in [values.tobytes(), bytearray(values.tobytes()), values.view(np.uint8), values]:
        ok, size, metadata = sender.put("0", "1", "k", data)
        assert ok and size == values.nbytes
        raw, got_size = poll(lambda m=metadata: receiver.get("0", "1", "k", m))
        assert got_size == size == len(raw)
        assert raw.tensor.shape == (size,) and str(raw.tensor.dtype).endswith("uint8")
        assert raw.to_bytes() == values.tobytes()
        kept = raw.tensor[4:8]
        raw.release()
        raw.release()
        with pytest.raises(RuntimeError, match="released"):
            raw.tensor  # noqa: B018
        assert bytes(np.asarray(kept)) == values[1:2].tobytes()
    again = poll(lambda m=sender.put("0", "1", "k", data)[2]: receiver.get("0", "1", "k", m))[0]
    assert sender.put("1", "2", "k", again)[0]
    del kept, again, raw
    gc.collect()
    assert receiver.health()["node"]["receive_pool"]["used"] == 0


def test_raw_payloads_as_torch(torch: Any, ends: tuple[Any, Any]) -> None:
    sender, receiver = ends
    data = torch.arange(100_000, dtype=torch.int64)
    raw, _ = poll(lambda m=sender.put("0", "1", "k", data.view(torch.uint8))[2]: receiver.get("0", "1", "k", m))
    assert isinstance(raw.tensor, torch.Tensor) and raw.tensor.dtype == torch.uint8
    assert torch.equal(raw.as_tensor(torch.int64, (10, 10_000)), data.reshape(10, 10_000))
    got, _ = poll(lambda m=sender.put("0", "1", "k", {"x": data})[2]: receiver.get("0", "1", "k", m))
    assert torch.equal(got["x"], data)


def test_structs_come_back_as_dicts(ends: tuple[Any, Any]) -> None:
    @dataclasses.dataclass
    class Point:
        x: int
        y: Any

    class Struct:  # as msgspec makes them
        __struct_fields__ = ("a", "b")

        def __init__(self, a: Any, b: Any) -> None:
            self.a, self.b = a, b

    sender, receiver = ends
    metadata = sender.put("0", "1", "k", Struct(1, [Point(2, Point(3, None))]))[2]
    got, _ = poll(lambda: receiver.get("0", "1", "k", metadata))
    assert got == {"a": 1, "b": [{"x": 2, "y": {"x": 3, "y": None}}]}


def test_get_does_not_wait_and_get_with_deadline_does(ends: tuple[Any, Any]) -> None:
    sender, receiver = ends
    assert receiver.get("0", "1", "k") is None
    assert receiver.get_with_deadline("0", "1", "k", deadline=time.monotonic() + 0.05) is None
    assert receiver.get_with_deadline("0", "1", "k", deadline=time.monotonic() - 1) is None
    later = threading.Timer(0.05, lambda: sender.put("0", "1", "k", [1]))
    later.start()
    assert receiver.get_with_deadline("0", "1", "k", deadline=time.monotonic() + 60) == ([1], 0)
    later.join()
    receiver.abandon_get("k")


def test_cleanup(ends: tuple[Any, Any]) -> None:
    sender, receiver = ends
    for key, arguments in [("k", ()), ("k", ("0", "1")), ("k@0_1", ())]:
        assert sender.put("0", "1", "k", 1)[0]
        assert sender.cleanup(key, *arguments)
        assert not sender.cleanup(key, *arguments)
    with pytest.raises(ValueError, match="both"):
        sender.cleanup("k", "0")
    assert receiver.cleanup("k") is False


def test_faults_are_no_with_a_reason(ends: tuple[Any, Any], make: Any, caplog: pytest.LogCaptureFixture) -> None:
    sender, receiver = ends
    caplog.set_level(logging.DEBUG, "stagewire.connector")
    assert receiver.put("0", "1", "k", 1) == (False, 0, None)
    assert sender.put("0", "1", "k", object()) == (False, 0, None)
    assert sender.put("0", "1", "k", bytes(POOL * 2)) == (False, 0, None)
    alone = make(role="receiver", memory_pool_size=POOL + 8192)
    assert alone.get("0", "1", "k") is None
    assert alone.get("0", "1", "k", {"source_port": "nonsense"}) is None
    assert alone.get("0", "1", "k", {"source_port": 10**9, "source_host": "x"}) is None
    assert alone.get("0", "1", "k", {"source_host": 5, "source_port": 1}) is None
    assert len(caplog.records) >= 7
    assert "role is receiver" in caplog.text and "no sender is known" in caplog.text
    full = sender.put("0", "1", "full", bytes(POOL * 3 // 4))
    assert full[0] and sender.put("0", "1", "more", bytes(POOL * 3 // 4)) == (False, 0, None)
    assert sender.health()["errors"] >= 2 and "pool" in sender.health()["last_error"]


def test_health_and_close(ends: tuple[Any, Any]) -> None:
    sender, receiver = ends
    metadata = sender.put("0", "1", "k", bytes(100))[2]
    poll(lambda: receiver.get("0", "1", "k", metadata))
    health = sender.health()
    assert health["status"] == "healthy" and health["puts"] == 1 and health["bytes_put"] == 100
    assert receiver.health()["gets"] == 1
    sender.close()
    sender.close()
    assert sender.health()["status"] == "unhealthy"
    for call in [lambda: sender.put("0", "1", "k", 1), lambda: sender.get("0", "1", "k")]:
        with pytest.raises(RuntimeError):
            call()
    assert sender.cleanup("k") is False
    sender.update_sender_info("127.0.0.1", 1)
    with receiver as entered:
        assert entered is receiver
    assert receiver.health()["status"] == "unhealthy"


def test_connectors_share_a_node(make: Any) -> None:
    one, two = make(), make()
    other = make(memory_pool_size=POOL + 4096)
    assert one._node is two._node is not other._node
    assert one.zmq_port != two.zmq_port
    for connector in (one, two):
        connector.put("0", "1", "k", connector.zmq_port)
    dual = make(role="dual")
    for connector in (one, two):
        dual.update_sender_info(connector.host, connector.zmq_port)
        assert poll(lambda: dual.get("0", "1", "k"))[0] == connector.zmq_port
    one.close()
    assert two.put("0", "1", "k", 1)[0]


def test_attributes(make: Any) -> None:
    connector = make(role="dual", stage_id=3, sender_host="127.0.0.1", sender_zmq_port=1)
    assert connector.stage_id == 3 and make(role="receiver").stage_id == -1
    assert (connector.sender_host, connector.sender_zmq_port) == ("127.0.0.1", 1)
    sender = make()
    sender.put("0", "1", "k", "found")
    connector.sender_host, connector.sender_zmq_port = sender.host, sender.zmq_port
    assert poll(lambda: connector.get("0", "1", "k"))[0] == "found"
    info = connector.get_connection_info()
    assert info == {"host": connector.host, "zmq_port": connector.zmq_port, "rpc_port": connector.zmq_port, "can_put": True}
    assert make(role="receiver").get_connection_info()["can_put"] is False


def test_configuration(make: Any, caplog: pytest.LogCaptureFixture) -> None:
    make(protocol="rdma", device_name="mlx5_0", from_stage=0, buffer_ttl_seconds=0)
    assert caplog.text == ""
    make(role="receiver", memory_poll_size=1)
    assert "memory_poll_size" in caplog.text
    for wrong, text in [
        ({"role": "both"}, "sender, receiver or dual"),
        ({"memory_pool_device": "cuda"}, "device memory"),
        ({"zmq_port": "http"}, "zmq_port"),
        ({"zmq_port": 70000}, "zmq_port"),
        ({"stagewire": {"lisen": []}}, "listen"),
        ({"stagewire": 5}, "stagewire"),
    ]:
        with pytest.raises(stagewire.ConfigError, match=text):
            make(**wrong)
    taken = make()
    with pytest.raises(stagewire.Error):
        make(zmq_port=taken.zmq_port, memory_pool_size=POOL + 4096)


SENDER = """
import sys, stagewire
connector = stagewire.Connector({"zmq_port": int(sys.argv[1]), "memory_pool_size": 1 << 20})
import json
print(json.dumps(connector.put("0", "1", "k", {"from": "afar"})[2]))
sys.stdin.readline()
"""


def test_two_processes_without_a_secret_meet_by_port(make: Any, peer: Any) -> None:
    import json
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = peer(SENDER, str(port))
    metadata = json.loads(process.hear())
    receiver = make(role="receiver", stagewire={"log_level": "error"})
    assert poll(lambda: receiver.get("0", "1", "k", metadata))[0] == {"from": "afar"}
    process.say("end")
    process.end()
