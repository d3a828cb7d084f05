"""A server process and the system: core dumps, memory heaps, open files, the end of the parent process."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import resource
import signal
import threading
from multiprocessing.process import BaseProcess
from pathlib import Path

import structlog

logger = structlog.get_logger(__name__)

#: Heaps of the C library that all threads share. Threads that hold the interpreter's lock run one at a time.
HEAPS = 2
#: Numbers of prctl(2) and mallopt(3).
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE = 1, 4
_M_ARENA_MAX = -8
#: Settings of the server, of which some are keys, passwords of its database, and credentials of its object store.
_SECRET = ("AWS_", "CURATOR_", "PG")


def forbid_core_dumps() -> None:
    """Allow no core file, and no debugger of another user: memory holds private numbers and noise."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def share_heaps() -> None:
    """Have all threads share :data:`HEAPS` heaps of the C library, which by default gives most threads their own.

    A heap never shrinks below the most that its threads held at one time. With a heap each, threads that work one after
    the other hold many times what they need, and more for hours. A setting of the operator (``MALLOC_ARENA_MAX``) wins;
    C libraries other than glibc have no such heaps.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and "MALLOC_ARENA_MAX" not in os.environ:
        mallopt(_M_ARENA_MAX, HEAPS)


def allow_open_files(number: int) -> None:
    """Raise this process' limit of open files to ``number``, or as far as the system allows, with a warning."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < number:
        granted = number if hard == resource.RLIM_INFINITY else min(number, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, granted), hard))
        if granted < number:
            logger.warning("fewer files may be open than connections need", allowed=granted, needed=number)


def end_with_supervisor() -> None:
    """Have this process drain and end when its supervisor dies, or what it was forked from: without the one it would
    go on holding the port, without the other nobody would know of it.
    """
    supervisor = multiprocessing.parent_process()
    if supervisor is not None:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        watching = threading.Thread(target=_end_after, args=(supervisor,), name="supervisor", daemon=True)
        watching.start()


def _end_after(supervisor: BaseProcess) -> None:
    supervisor.join()
    os.kill(os.getpid(), signal.SIGTERM)


def single_threaded() -> dict[str, str]:
    """The environment in which a process of this program has one thread, so that it may fork."""
    return dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1") | {
        "JE_ARROW_MALLOC_CONF": "background_thread:false"
    }


def worker_environment() -> dict[str, str]:
    """The environment of a process of this program that works for the server: none of its secrets, and one thread for
    linear algebra, as others would take the processors that requests are answered on.

    Arrow has no thread of its own either, so that a process that forks has one.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_SECRET)}
    places = [str(Path(__file__).resolve().parents[2]), environment.get("PYTHONPATH", "")]
    return {**environment, **single_threaded(), "PYTHONPATH": os.pathsep.join(filter(None, places))}


def die_with_parent() -> None:
    """Have the system end this process when the thread that started it ends, however that comes."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def ignore_signals() -> None:
    """Hear no signal that is meant for the server that this process works for: they are sent to a whole group."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def limit_memory(more: int) -> None:
    """Let this process take so many bytes more than it has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[5])
    limit = pages * resource.getpagesize() + more
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    if most == resource.RLIM_INFINITY or limit < most:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
