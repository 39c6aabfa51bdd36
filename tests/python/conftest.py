"""What the tests share: nodes that find each other over a chosen transport, and peer processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

# How long anything may take before it counts as hung. Not a statement about speed.
HANG = 60.0


def _small(**options: Any) -> dict[str, Any]:
    return {"publish_pool_size": 64 << 20, "receive_pool_size": 64 << 20, "log_level": "error", **options}


@pytest.fixture(scope="session")
def has_torch() -> bool:
    """Whether torch is there. STAGEWIRE_TEST_TORCH says whether it has to be."""
    expected = os.environ.get("STAGEWIRE_TEST_TORCH")
    try:
        import torch  # noqa: F401

        found = True
    except ImportError:
        found = False
    if expected is not None:
        assert found == (expected == "1"), f"STAGEWIRE_TEST_TORCH is {expected}, torch is {'' if found else 'not '}there"
    return found


@pytest.fixture
def torch(has_torch: bool) -> Any:
    """The module; a test that asks for it needs it."""
    if not has_torch:
        pytest.skip("torch is not installed here")
    import torch as module

    return module


@pytest.fixture
def make_node() -> Iterator[Callable[..., Any]]:
    """Makes nodes with small pools, which are closed after the test."""
    import stagewire

    nodes: list[Any] = []

    def make(**options: Any) -> Any:
        node = stagewire.Node(_small(**options))
        nodes.append(node)
        return node

    yield make
    for node in nodes:
        node.close()


@pytest.fixture
def pair(make_node: Callable[..., Any]) -> tuple[Any, Any]:
    """A sender and a receiver on this host."""
    return make_node(name="sender"), make_node(name="receiver")


@pytest.fixture(params=["local", "shm", "tcp", "inline"])
def any_route(request: pytest.FixtureRequest, make_node: Callable[..., Any]) -> tuple[Any, Any]:
    """A sender and a receiver between which payloads take each way in turn."""
    if request.param == "local":
        node = make_node(inline_limit=0)
        return node, node
    if request.param == "tcp":
        options = {"routes": ["tcp"], "insecure": True, "inline_limit": 0}
    elif request.param == "shm":
        options = {"inline_limit": 0}
    else:
        options = {}
    return make_node(**options), make_node(**options)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where torch must not be, the tests of it are not part of the run."""
    if os.environ.get("STAGEWIRE_TEST_TORCH") != "0":
        return
    wanted = [item for item in items if "torch" not in getattr(item, "fixturenames", ())]
    config.hook.pytest_deselected(items=[item for item in items if item not in wanted])
    items[:] = wanted


class Peer:
    """A Python process that runs `script`; lines go both ways."""

    def __init__(self, script: str, *arguments: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            # Python 3.12 and later warn of every fork of a process with threads, which is what some tests are about.
            [sys.executable, "-u", "-W", "ignore:This process:DeprecationWarning", "-c", script, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            _, errors = self.process.communicate(timeout=HANG)
            raise AssertionError(f"the peer ended with {self.process.returncode}:\n{errors}")
        return line.rstrip("\n")

    def end(self, status: int | None = 0) -> tuple[str, str]:
        """Waits for its end; returns the rest of what it printed and its errors."""
        out, errors = self.process.communicate(timeout=HANG)
        if status is not None:
            assert self.process.returncode == status, errors
        return out, errors


@pytest.fixture
def peer() -> Iterator[Callable[..., Peer]]:
    """Starts peer processes, which are gone after the test."""
    started: list[Peer] = []

    def start(script: str, *arguments: str, **environment: str) -> Peer:
        one = Peer(script, *arguments, **environment)
        started.append(one)
        return one

    yield start
    for one in started:
        one.process.kill()
        one.process.communicate()
