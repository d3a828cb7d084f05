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


class Supervisor(Multiprocess):
    """uvicorn's supervisor, which looks at all workers every half second and waits for none of them.

    Its own way is to wait for each worker's sign of life in turn. While one is silent, as it is when it was killed
    after it was asked or does heavy work, nobody else would be replaced.

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
            if process.exitcode == STARTUP_FAILURE:  # which it would be again
                log.error("a worker failed to start")
                self.should_exit.set()
                return
            log.warning("a worker ended and is replaced", worker=process.pid, code=process.exitcode)
            self.processes[index] = Process(self.config, self.sockets)
            self.processes[index].start()
        working = {process.pid for process in self.processes if process.pid is not None}
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
                process.parent_conn.recv()
                del self._asked[process]
        except (OSError, EOFError, pickle.UnpicklingError):
            return False
        return now - self._asked.get(process, now) < self.config.timeout_worker_healthcheck
