"""Several worker processes behind one socket: a worker that ends is replaced at once, a busy one is left alone.

Workers are forked from a process that has imported the program and does nothing else: it has one thread, draws no noise
and opens nothing. A worker begins in a moment, and shares the memory of what was imported with the others.
"""

from __future__ import annotations

import multiprocessing
import pickle
import socket
import time
from collections.abc import Callable
from weakref import WeakKeyDictionary

import structlog
import uvicorn
from uvicorn import _subprocess
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors.multiprocess import Multiprocess, Process

logger = structlog.get_logger(__name__)

#: Seconds after a worker failed to start until another one is tried in its place.
PAUSE_SECONDS = 5.0


class Supervisor(Multiprocess):
    """uvicorn's supervisor, made to check all workers every half second without waiting for any of them.

    uvicorn's own waits for each worker's sign of life, one after the other. While one worker is silent, because it was
    killed or does heavy work, no other would be replaced. uvicorn's also ends all workers when one cannot be replaced,
    for example while the database is away. Here that ends the service only if no worker has ever served:
    :attr:`failed` is then true.

    Args:
        config: of the server; a worker silent for ``timeout_worker_healthcheck`` seconds is taken for hung.
        sockets: the sockets that the workers share.
        changed: called with the process ids of the working workers whenever they change.
        home: the module that imports what workers run.
    """

    def __init__(
        self, config: uvicorn.Config, sockets: list[socket.socket], changed: Callable[[set[int]], None], home: str
    ) -> None:
        super().__init__(config, sockets)
        # uvicorn has each worker import all anew, and offers no other way.
        forked = multiprocessing.get_context("forkserver")
        forked.set_forkserver_preload([home])
        _subprocess.spawn = forked  # type: ignore[assignment]
        self._changed = changed
        self._known: set[int] = set()
        #: Whether the service ends because it cannot start.
        self.failed = False
        self._served = False
        #: By worker that failed to start, when it is replaced.
        self._retry_at: WeakKeyDictionary[Process, float] = WeakKeyDictionary()
        #: By worker that has not replied, when it was asked for a sign of life.
        self._asked_at: WeakKeyDictionary[Process, float] = WeakKeyDictionary()

    def keep_subprocess_alive(self) -> None:
        """Replace the workers that have ended or hang."""
        for index, process in enumerate(self.processes):
            if self.should_exit.is_set():
                return
            if self._is_alive(process):
                continue
            process.kill()
            process.join()
            if process.exitcode == STARTUP_FAILURE and process not in self._retry_at:
                logger.error("a worker failed to start", worker=process.pid)
                if not self._served:  # another one would fail, too
                    self.failed = True
                    self.should_exit.set()
                    return
                self._retry_at[process] = time.monotonic() + PAUSE_SECONDS
            if time.monotonic() < self._retry_at.get(process, 0.0):
                continue
            logger.warning("a worker ended and is replaced", worker=process.pid, code=process.exitcode)
            self.processes[index] = Process(self.config, self.sockets)
            self.processes[index].start()
        working = {each.pid for each in self.processes if each.pid is not None and each not in self._retry_at}
        if working != self._known:
            self._known = working
            self._changed(working)

    def _is_alive(self, process: Process) -> bool:
        if not process.process.is_alive():
            return False
        now = time.monotonic()
        try:
            if process not in self._asked_at:
                process.parent_conn.send(b"ping")
                self._asked_at[process] = now
            elif process.parent_conn.poll(0):
                self._served = process.parent_conn.recv() or self._served
                del self._asked_at[process]
        except (OSError, EOFError, pickle.UnpicklingError):
            return False
        return now - self._asked_at.get(process, now) < self.config.timeout_worker_healthcheck
