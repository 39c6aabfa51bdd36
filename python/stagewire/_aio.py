"""Awaiting a running get, or the release of memory published in place, from asyncio."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from stagewire._core import Future, Released
from stagewire.errors import Error


async def _readable(descriptor: int) -> None:
    """Returns once `descriptor` is readable.

    Watches a copy of it: an event loop has one reader for each descriptor, and several tasks may await one object.
    """
    try:
        own = os.dup(descriptor)
    except OSError as error:
        raise Error("no descriptor is left to wait on", operation="await") from error
    loop = asyncio.get_running_loop()
    arrived = loop.create_future()

    def wake() -> None:
        if not arrived.done():
            arrived.set_result(None)

    try:
        loop.add_reader(own, wake)
        await arrived
    finally:
        loop.remove_reader(own)
        os.close(own)


async def outcome(future: Future) -> Any:
    """The result of `future`; cancelling the task cancels the get."""
    if not future.done():
        try:
            await _readable(future.fileno())
        except asyncio.CancelledError:
            future.cancel()
            raise
    return future.result()


async def release(released: Released, timeout: float) -> str:
    """The result of `released`, for which it waits at most `timeout` seconds; the publication goes on if cancelled."""
    if not released.done():
        try:
            await asyncio.wait_for(_readable(released.fileno()), timeout)
        except asyncio.TimeoutError:
            pass  # result says so, and why
    return released.result(0)
