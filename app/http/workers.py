"""Several worker processes behind one socket: one that ends is replaced at once, one that is busy is left alone."""

from __future__ import annotations

import pickle
import socket
import time
from collections.abc import Callable
from weakref import WeakKeyDictionary

import structlog
import uvicorn
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors.multiprocess import Multiprocess, Process

log = structlog.get_logger(__name__)

#: How long after a worker failed to start the next one is tried in its place.
PAUSE_SECONDS = 5.0


class Supervisor(Multiprocess):
    """uvicorn's supervisor, which looks at all workers every half second and waits for none of them.

    Its own way is to wait for each worker's sign of life in turn. While one is silent, as it is when it was killed
    after it was asked or does heavy work, nobody else would be replaced. And a worker that cannot be replaced now, as
    the database is away, would be the end of those that wait for it to come back. Only where no worker has ever
    served is one that fails to start the end: :attr:`failed` tells of it.

    Args:
        config: of the server; a worker silent for ``timeout_worker_healthcheck`` seconds is taken for hung.
        sockets: those that the workers share.
        changed: called with the numbers of the processes that work now, whenever they are others.
    """

    def __init__(
        self, config: uvicorn.Config, sockets: list[socket.socket], changed: Callable[[set[int]], None]
    ) -> None:
        super().__init__(config, sockets)
        self._changed = changed
        self._known: set[int] = set()
        #: Whether all of it ends because it cannot start.
        self.failed = False
        self._served = False
        #: When those are replaced that failed to start.
        self._again: WeakKeyDictionary[Process, float] = WeakKeyDictionary()
        #: When those were asked that have not replied.
        self._asked: WeakKeyDictionary[Process, float] = WeakKeyDictionary()

    def keep_subprocess_alive(self) -> None:
        """Replace the workers that have ended or hang."""
        for index, process in enumerate(self.processes):
            if self.should_exit.is_set():
                return
            if self._lives(process):
                continue
            process.kill()
            process.join()
            if process.exitcode == STARTUP_FAILURE and process not in self._again:
                log.error("a worker failed to start", worker=process.pid)
                if not self._served:  # it would be so again
                    self.failed = True
                    self.should_exit.set()
                    return
                self._again[process] = time.monotonic() + PAUSE_SECONDS
            if time.monotonic() < self._again.get(process, 0.0):
                continue
            log.warning("a worker ended and is replaced", worker=process.pid, code=process.exitcode)
            self.processes[index] = Process(self.config, self.sockets)
            self.processes[index].start()
        working = {each.pid for each in self.processes if each.pid is not None and each not in self._again}
        if working != self._known:
            self._known = working
            self._changed(working)

    def _lives(self, process: Process) -> bool:
        if not process.process.is_alive():
            return False
        now = time.monotonic()
        try:
            if process not in self._asked:
                process.parent_conn.send(b"ping")
                self._asked[process] = now
            elif process.parent_conn.poll(0):
                self._served = process.parent_conn.recv() or self._served
                del self._asked[process]
        except (OSError, EOFError, pickle.UnpicklingError):
            return False
        return now - self._asked.get(process, now) < self.config.timeout_worker_healthcheck
