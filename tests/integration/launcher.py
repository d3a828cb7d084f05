"""Starts processes of the program quickly: a process that has imported the code and forks one for each line it reads.

A line of JSON on standard input is an order, the process id comes back on standard output. What runs in the child is
what the command runs, in the order's ``environment`` and no other; only the import, seconds of it, is not repeated.
Output goes to the file ``log``.

- ``port``, ``workers``: `curator serve`; with ``"migrate": true`` `curator migrate` instead. ``traps``, ``bug``,
  ``clock`` and ``resumed`` are what :mod:`tests.integration.steps` puts into the child.
- ``arguments``: the command line itself, its standard input the file ``input``, its errors in the file ``errors``. The
  file ``ended`` gets its exit code when all has been written.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

import alembic.command  # noqa: F401 - what a server imports late is imported once
import typer.rich_utils  # noqa: F401
import uvicorn.lifespan.on
import uvicorn.loops.auto
import uvicorn.protocols.http.auto
import uvicorn.protocols.websockets.auto  # noqa: F401

import app.client  # noqa: F401
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
        redirect(0, order.get("input", os.devnull), os.O_RDONLY)
        redirect(1, order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        redirect(2, order.get("errors", order["log"]), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.environ.clear()
        os.environ.update(order["environment"])
        os._exit(command(order) if "arguments" in order else serve(order))


def redirect(descriptor: int, path: str, flags: int) -> None:
    opened = os.open(path, flags, 0o600)
    os.dup2(opened, descriptor)
    os.close(opened)


def serve(order: dict[str, Any]) -> int:
    """A server, or a migration; the exit code."""
    if order.keys() & {"traps", "bug", "clock", "resumed", "silence"}:
        steps.install(order)
    try:
        if order.get("migrate"):
            maintenance.migrate()
        else:
            serving.serve("127.0.0.1", order["port"], order.get("workers", 1))
    except preconditions.StartRefused as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    return 0


def command(order: dict[str, Any]) -> int:
    """A command of the command line as ``python -m app.cli`` runs it; the exit code."""
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - the one of old has lines of other orders
    sys.argv = ["curator", *order["arguments"]]
    code = 0
    try:
        runpy.run_module("app.cli", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    ended = Path(order["ended"])
    ended.with_suffix(".new").write_text(str(code))
    ended.with_suffix(".new").rename(ended)
    return code


if __name__ == "__main__":
    main()
