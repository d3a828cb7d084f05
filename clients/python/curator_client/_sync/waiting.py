"""Waiting that blocks: the names of :mod:`curator_client._async.waiting`."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakSet

T = TypeVar("T")

sleep = time.sleep
#: Where connections serve: in one process.
place = os.getpid
_LOCKS: WeakSet[Any] = WeakSet()


def Lock() -> threading.Lock:  # noqa: N802
    """Lets one in at a time. A process that is forked has a free one, whoever holds it in the other."""
    lock = threading.Lock()
    _LOCKS.add(lock)
    return lock


def _free() -> None:
    for lock in _LOCKS:
        lock._at_fork_reinit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free)


def apart(work: Callable[..., T], *arguments: Any) -> T:
    """What work gives."""
    return work(*arguments)


def opening(made: T) -> T:
    """What was opened."""
    return made
