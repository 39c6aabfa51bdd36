"""How the example's two processes talk about everything but tensors: lines of JSON over a child's pipes.

A real pipeline has its own way of passing requests along (HTTP, ZMQ, a queue); a ticket fits into any of them, because it
is one line of text. Used from the main thread of each process.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

EXAMPLES = Path(__file__).resolve().parent.parent


def tell(**message: Any) -> None:
    """In the child: sends a message to the parent."""
    print(json.dumps(message), flush=True)


def hear() -> dict[str, Any] | None:
    """In the child: the parent's next message, or None when it has gone."""
    line = sys.stdin.readline()
    return dict(json.loads(line)) if line else None


class Stage:
    """A stage in a process of its own, started by its module's name and stopped when the parent leaves.

    With ``on``, the beginning of a command such as ``ssh host-a``, it runs where that leads, under the same paths.
    """

    def __init__(self, module: str, arguments: Sequence[str] = (), on: Sequence[str] = ()) -> None:
        self._process = subprocess.Popen(
            [*on, "env", f"--chdir={EXAMPLES}", sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def tell(self, **message: Any) -> None:
        """Sends a message to the stage."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        """The stage's next message. Raises RuntimeError if it has ended instead."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the stage process ended with status {self._process.wait()}")
        return dict(json.loads(line))

    def __enter__(self) -> Stage:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()  # the stage's hear() gives None: it ends by itself
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
