"""Starts servers quickly: a process that has imported the code and forks one `curator serve` for each line it reads.

A line of JSON on standard input names port, workers and settings beside those of the environment; the server's process
id comes back on standard output. What runs in the child is what the command runs; only the import, three seconds of it,
is not repeated. ``"migrate": true`` runs `curator migrate` instead. ``traps``, ``bug``, ``clock`` and ``resumed`` are
what :mod:`tests.integration.steps` puts into the child.
"""

from __future__ import annotations

import json
import os
import signal
import sys

import alembic.command  # noqa: F401 - what a server imports late is imported once
import uvicorn.lifespan.on
import uvicorn.loops.auto
import uvicorn.protocols.http.auto
import uvicorn.protocols.websockets.auto  # noqa: F401

from app.bootstrap import maintenance, preconditions, serving
from tests.integration import steps


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children are reaped by the system
    for line in sys.stdin:
        order = json.loads(line)
        if os.fork():
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        # Told when it has a group of its own, by which it is killed: there would be none yet to kill.
        print(os.getpid(), flush=True)  # noqa: T201
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.environ.update(order.get("settings", {}))
        if order.keys() & {"traps", "bug", "clock", "resumed"}:
            steps.install(order)
        try:
            if order.get("migrate"):
                maintenance.migrate()
            else:
                serving.serve("127.0.0.1", order["port"], order.get("workers", 1))
        except preconditions.StartRefused as error:
            print(error, file=sys.stderr)  # noqa: T201
            os._exit(1)
        os._exit(0)


if __name__ == "__main__":
    main()
