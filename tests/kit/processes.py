"""Processes that end with the tests, however these end."""

from __future__ import annotations

import ctypes
import signal

_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1
#: The name of what the workers of a server are forked from, where the tests have forked it.
HOME = "home"


def end_with_tests() -> None:
    """For ``preexec_fn``: the system kills the process when the one that started it, or its thread, has ended."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
