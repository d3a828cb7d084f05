"""Waiting that blocks: the names of :mod:`curator_client._async.waiting`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

sleep = time.sleep
#: Lets one in at a time.
Lock = threading.Lock


def apart(work: Callable[..., T], *arguments: Any) -> T:
    """What work gives."""
    return work(*arguments)


def opening(made: T) -> T:
    """What was opened."""
    return made
