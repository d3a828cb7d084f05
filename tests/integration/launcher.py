"""Starts servers quickly: a process that has imported the code and forks one `curator serve` for each line it reads.

A line of JSON on standard input names port and workers; the server's process id comes back on standard output. What
runs in the child is what the command runs; only the import, three seconds of it, is not repeated. With
``"reply_first": true`` the child is a planted bug: its commits happen a moment after they are reported.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import alembic.command  # noqa: F401 - what a server imports late is imported once
import uvicorn.lifespan.on
import uvicorn.loops.auto
import uvicorn.protocols.http.auto
import uvicorn.protocols.websockets.auto  # noqa: F401

from app import bootstrap
from app.storage.store import SqlStore, SqlTransaction


class Hasty(SqlTransaction):
    """Says that it is committed, and is not."""

    def commit(self) -> None:
        """Nothing yet."""


class ReplyFirst(SqlStore):
    """Commits 30 ms late, or when the next writer comes."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._late: Any = None
        self._guard = threading.Lock()

    @contextmanager
    def write(self) -> Iterator[SqlTransaction]:
        self._settle()
        connection = self._writing.connect()
        try:
            yield Hasty(connection)
        except BaseException:
            connection.close()
            raise
        with self._guard:
            self._late = connection
        threading.Timer(0.03, self._settle).start()

    def _settle(self) -> None:
        with self._guard:
            if self._late is not None:
                self._late.commit()
                self._late.close()
                self._late = None


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children are reaped by the system
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child:
            print(child, flush=True)  # noqa: T201
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        if order.get("reply_first"):
            bootstrap.SqlStore = ReplyFirst  # type: ignore[misc]
        try:
            bootstrap.serve("127.0.0.1", order["port"], order.get("workers", 1))
        except bootstrap.StartRefused as error:
            print(error, file=sys.stderr)  # noqa: T201
            os._exit(1)
        os._exit(0)


if __name__ == "__main__":
    main()
