"""The process's beginning and end: closes nodes at exit, starts over in a forked child, and runs the thread that
drops what the core has let go of."""

import atexit
import os
import threading

from stagewire import _core

_reaper: threading.Thread | None = None
_lock = threading.Lock()


def _reap() -> None:
    while _core.reap_once():
        pass


def start_reaper() -> None:
    """Starts the reaper, unless it runs: needed once the core holds objects of the caller."""
    global _reaper
    if _reaper is not None:
        return
    with _lock:
        if _reaper is None:
            thread = threading.Thread(target=_reap, name="stagewire-reaper", daemon=True)
            thread.start()
            _reaper = thread


def _after_fork_in_child() -> None:
    global _reaper, _lock
    _core.forget_after_fork()
    _reaper = None
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork_in_child)
atexit.register(_core.close_process)
