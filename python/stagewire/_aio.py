"""Awaiting a running get from asyncio."""

from __future__ import annotations

import asyncio
from typing import Any

from stagewire._core import Future
from stagewire.errors import Error


async def outcome(future: Future) -> Any:
    """The result of `future`; cancelling the task cancels the get."""
    if not future.done():
        descriptor = future.fileno()
        if descriptor < 0:
            raise Error("no descriptor is left to wait on", operation="await")
        loop = asyncio.get_running_loop()
        arrived = loop.create_future()

        def wake() -> None:
            loop.remove_reader(descriptor)
            if not arrived.done():
                arrived.set_result(None)

        loop.add_reader(descriptor, wake)
        try:
            await arrived
        except asyncio.CancelledError:
            loop.remove_reader(descriptor)
            future.cancel()
            raise
    return future.result()
