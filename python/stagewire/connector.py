"""Connector: the contract of vLLM-Omni's OmniConnectorBase over a node.

Run-time faults are "no" with a logged reason, never an exception; callers poll. Needs neither vLLM nor torch.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import sys
import threading
import time
import weakref
from collections.abc import Mapping
from types import TracebackType
from typing import Any

import numpy as np

from stagewire import _core
from stagewire.errors import ConfigError, Error

logger = logging.getLogger("stagewire.connector")

_DEFAULT_PORT = 50051
_DEFAULT_POOL_SIZE = 1 << 30
_DEFAULT_TTL = 300.0
# "Never" within what the core accepts.
_LONGEST_TTL = 30 * 24 * 3600.0

_KEYS = {
    "host",
    "zmq_port",
    "role",
    "sender_host",
    "sender_zmq_port",
    "memory_pool_size",
    "memory_pool_device",
    "buffer_ttl_seconds",
    "namespace",
    "stage_id",
    "put_wait",
    "stagewire",
}
# Of connectors this one stands in for; they choose a fabric that a node chooses by itself.
_IGNORED_KEYS = {"protocol", "device_name"}
# What orchestration adds for every connector.
_INJECTED_KEYS = {"from_stage", "to_stage", "name"}

_nodes: weakref.WeakValueDictionary[str, _core.Node] = weakref.WeakValueDictionary()
_nodes_lock = threading.Lock()


def _shared_node(options: Mapping[str, Any]) -> _core.Node:
    """The process's node with these options: connectors share it and its pools. It closes with the last of them."""
    name = json.dumps(options, sort_keys=True, default=str)
    with _nodes_lock:
        node = _nodes.get(name)
        if node is None or node.closed:
            node = _core.Node(dict(options))
            _nodes[name] = node
        return node


def _forget_nodes() -> None:
    global _nodes_lock
    _nodes_lock = threading.Lock()
    _nodes.clear()


os.register_at_fork(after_in_child=_forget_nodes)


class RawPayload:
    """A payload that is one tensor, as its bytes: `tensor` is 1-D uint8, valid at least until `release()`."""

    def __init__(self, array: Any) -> None:
        self._array: np.ndarray[Any, np.dtype[np.uint8]] | None = array
        self._tensor: Any = None
        self.size = int(array.nbytes)

    def _bytes(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        if self._array is None:
            raise RuntimeError("this payload was released")
        return self._array

    @property
    def tensor(self) -> Any:
        """A 1-D uint8 torch tensor where torch has been imported, else a NumPy array; over the received memory."""
        array = self._bytes()
        if self._tensor is None:
            self._tensor = _as_torch(array) if _core.torch_loaded() else array
        return self._tensor

    def as_tensor(self, dtype: Any, shape: tuple[int, ...]) -> Any:
        """The bytes as elements of `dtype` (of NumPy, or of torch where `tensor` is torch's) in a shape."""
        return self.tensor.view(dtype).reshape(shape)

    def to_bytes(self) -> bytes:
        """A copy."""
        return self._bytes().tobytes()

    def release(self) -> None:
        """Lets the memory go; what was made of `tensor` keeps it. Idempotent."""
        self._array = None
        self._tensor = None

    def __len__(self) -> int:
        return self.size

    def __enter__(self) -> RawPayload:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def _as_torch(array: np.ndarray[Any, Any]) -> Any:
    """A torch tensor over a NumPy array's memory, without torch's NumPy bridge: that one depends on versions."""
    torch = sys.modules["torch"]
    if array.nbytes == 0:
        return torch.empty(0, dtype=torch.uint8)
    return torch.frombuffer(array.data, dtype=torch.uint8)


def _plain(value: Any) -> Any:
    """A dict of the fields of a dataclass or a msgspec Struct: receivers expect dicts. A TypeError for the rest."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    fields = getattr(type(value), "__struct_fields__", None)
    if fields is not None:
        return {name: getattr(value, name) for name in fields}
    if isinstance(value, slice):
        return (value.start, value.stop, value.step)
    if isinstance(value, (set, frozenset)):
        return list(value)
    raise TypeError(f"a value of type {type(value).__name__} cannot be sent")


def _port(config: Mapping[str, Any], name: str, default: int) -> int:
    value = config.get(name)
    if value is None:
        return default
    try:
        return int(value)
    except (TypeError, ValueError):
        raise ConfigError(f"{name} is {value!r}; expected a port number", operation="connector") from None


class Connector:
    """Puts and gets payloads over edges (from stage, to stage) and keys. Thread-safe."""

    supports_raw_data = True

    _inner: _core.ConnectorCore | None = None
    _node: _core.Node | None = None
    _sender_host: str | None = None
    _sender_port: int | None = None

    def __init__(self, config: Mapping[str, Any]) -> None:
        """`config`: the keys of vLLM-Omni's transfer connectors, and under "stagewire" the options of the node.

        Raises ConfigError for wrong values and IoError when the port is in use.
        """
        for name in config:
            if name in _IGNORED_KEYS:
                logger.debug("%s is not needed: the node chooses the transport", name)
            elif name not in _KEYS and name not in _INJECTED_KEYS:
                logger.warning("unknown connector option %r is ignored", name)
        device = str(config.get("memory_pool_device", "cpu"))
        if device != "cpu":
            raise ConfigError(
                f"memory_pool_device is {device!r}: device memory is not supported in this version; expected 'cpu'",
                operation="connector",
            )
        pool_size = config.get("memory_pool_size", _DEFAULT_POOL_SIZE)
        options = {"publish_pool_size": pool_size, "receive_pool_size": pool_size, "listen": []}
        given = config.get("stagewire", {})
        if not isinstance(given, Mapping):
            raise ConfigError("'stagewire' is not a dict of node options", operation="connector")
        options.update(given)
        ttl = float(config.get("buffer_ttl_seconds", _DEFAULT_TTL))

        self.stage_id = int(config.get("stage_id", -1))
        self.role = str(config.get("role", "sender"))
        self._sender_host = config.get("sender_host") or None
        sender_port = _port(config, "sender_zmq_port", 0)
        self._sender_port = sender_port or None
        self._node = _shared_node(options)
        self._inner = _core.ConnectorCore(
            self._node,
            role=self.role,
            host=str(config.get("host") or "auto"),
            port=_port(config, "zmq_port", _DEFAULT_PORT),
            sender_host=self._sender_host or "",
            sender_port=sender_port,
            namespace=str(config.get("namespace") or ""),
            ttl=ttl if ttl > 0 else _LONGEST_TTL,
            put_wait=config.get("put_wait"),
        )
        self.host = self._inner.host
        self.zmq_port = self._inner.port
        self.can_put = self.role != "receiver"

    # Putting.

    def put(self, from_stage: str, to_stage: str, put_key: str, data: Any) -> tuple[bool, int, dict[str, Any] | None]:
        """Copies and publishes `data`: (whether, bytes, metadata for the receiver). Waits at most put_wait for memory.

        bytes and tensors arrive as a RawPayload, everything else as it is.
        """
        core = self._open("put")
        if isinstance(data, RawPayload):
            data = data._bytes()
        elif isinstance(data, bytes):
            data = np.frombuffer(data, dtype=np.uint8)
        try:
            done: tuple[bool, int, dict[str, Any] | None] = core.put(
                str(from_stage), str(to_stage), put_key, data, _plain
            )
            return done
        except Exception as error:
            logger.error("put of %r failed: %s", put_key, error)
            return False, 0, None
        finally:
            self._log(core)

    # Getting.

    def get(
        self, from_stage: str, to_stage: str, get_key: str, metadata: Mapping[str, Any] | None = None
    ) -> tuple[Any, int] | None:
        """(payload, bytes) if it is there now, else None at once. `metadata` is what put returned, or a part of it."""
        return self._get(from_stage, to_stage, get_key, metadata, None)

    def get_with_deadline(
        self,
        from_stage: str,
        to_stage: str,
        get_key: str,
        metadata: Mapping[str, Any] | None = None,
        *,
        deadline: float,
    ) -> tuple[Any, int] | None:
        """As get, but waits until `deadline` (of time.monotonic()) for the payload."""
        return self._get(from_stage, to_stage, get_key, metadata, deadline - time.monotonic())

    def abandon_get(self, get_key: str) -> None:
        """The caller gives up on a key. A get leaves nothing behind, so there is nothing to do."""

    def _get(
        self,
        from_stage: str,
        to_stage: str,
        get_key: str,
        metadata: Mapping[str, Any] | None,
        timeout: float | None,
    ) -> tuple[Any, int] | None:
        core = self._open("get")
        try:
            known: Mapping[str, Any] = metadata or {}
            port = known.get("source_port")
            got = core.get(
                str(from_stage),
                str(to_stage),
                get_key,
                host=known.get("source_host"),
                port=0 if port is None else int(port),
                ticket=known.get("ticket"),
                timeout=timeout,
                framework="torch" if _core.torch_loaded() else "numpy",
            )
            if got is None:
                return None
            value, size, raw = got
            return (RawPayload(value) if raw else value), size
        except Exception as error:
            logger.error("get of %r failed: %s", get_key, error)
            return None
        finally:
            self._log(core)

    def update_sender_info(self, host: str, port: int, sender_rank: int | None = None) -> None:
        """Whom gets without metadata ask from now on. The port is taken as it is, whatever the rank."""
        self._sender_host, self._sender_port = host, int(port)
        self._tell_sender()

    def _tell_sender(self) -> None:
        core = self._inner
        if core is not None and self._sender_host and self._sender_port:
            core.update_sender_info(self._sender_host, self._sender_port)

    @property
    def sender_host(self) -> str | None:
        """The sender that gets without metadata ask."""
        return self._sender_host

    @sender_host.setter
    def sender_host(self, host: str | None) -> None:
        self._sender_host = host
        self._tell_sender()

    @property
    def sender_zmq_port(self) -> int | None:
        """Its port."""
        return self._sender_port

    @sender_zmq_port.setter
    def sender_zmq_port(self, port: int | None) -> None:
        self._sender_port = None if port is None else int(port)
        self._tell_sender()

    def get_connection_info(self) -> dict[str, Any]:
        """Where this connector listens: host, zmq_port, rpc_port (the same port), can_put."""
        return {"host": self.host, "zmq_port": self.zmq_port, "rpc_port": self.zmq_port, "can_put": self.can_put}

    # Upkeep.

    def cleanup(self, request_id: str, from_stage: str | None = None, to_stage: str | None = None) -> bool:
        """Withdraws a key: of one edge if both stages are given, else of every edge. Whether there was something."""
        if (from_stage is None) != (to_stage is None):
            raise ValueError("give both from_stage and to_stage, or neither")
        core = self._inner
        if core is None:
            return False
        stages = (None, None) if from_stage is None else (str(from_stage), str(to_stage))
        return core.cleanup(request_id, *stages)

    def health(self) -> dict[str, Any]:
        """"status" ("healthy" or "unhealthy", then with "error"), counters and the node's occupancy."""
        core = self._inner
        if core is None:
            return {"status": "unhealthy", "error": "Connector is closed"}
        return core.health()

    def close(self) -> None:
        """Withdraws what was put and stops answering. Idempotent."""
        core, self._inner, self._node = self._inner, None, None
        if core is not None:
            core.close()
            self._log(core)

    def __enter__(self) -> Connector:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        # Also runs after a failed __init__, and when the interpreter is half gone.
        try:
            self.close()
        except Exception:
            pass

    def _open(self, operation: str) -> _core.ConnectorCore:
        core = self._inner
        if core is None:
            raise RuntimeError(f"{operation} on a closed connector")
        return core

    def _log(self, core: _core.ConnectorCore) -> None:
        for level, text in core.take_log():
            logger.log(logging.getLevelName(level.upper()), "%s", text)

