"""What a process of the server asks of the system: memory, files, its end, and that nobody looks into it."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import resource
import signal
import sys

import structlog

log = structlog.get_logger(__name__)

#: Heaps of the C library that all threads share. Threads that hold the interpreter's lock run one at a time.
HEAPS = 2
#: Numbers of prctl(2) and mallopt(3).
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE = 1, 4
_M_ARENA_MAX = -8


def forbid_core_dumps() -> None:
    """No core file and no attaching debugger of another user: memory holds private numbers and noise."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def share_heaps() -> None:
    """Have all threads share a few heaps of the C library, which otherwise gives nearly every thread one of its own.

    Each heap keeps what was the most that its threads ever had at a time. Where threads take turns that is many times
    what all of them need, and it grows for hours. What the operator has set holds; libraries without such heaps have
    no such switch.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and "MALLOC_ARENA_MAX" not in os.environ:
        mallopt(_M_ARENA_MAX, HEAPS)


def allow_open_files(number: int) -> None:
    """Raise this process' own limit of open files as far as the system lets it, and say so where that is not enough."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < number:
        granted = number if hard == resource.RLIM_INFINITY else min(number, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, granted), hard))
        if granted < number:
            log.warning("fewer files may be open than connections need", allowed=granted, needed=number)


def end_with_parent() -> None:
    """Drain and end when the process that supervises the workers dies: orphans would go on holding its port."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if not parent.is_alive():  # it died while this one was starting, before it asked to be told
            sys.exit(0)
