"""Starts processes of the program quickly: a process that has imported the code and forks one for each line it reads.

A line of JSON on standard input is an order, the process id comes back on standard output. What runs in the child is
what the command runs, in the order's ``environment`` and no other; only the import, seconds of it, is not repeated.
Output goes to the file ``log``. When standard input ends, as it does however the tests end, all that still run are
killed, each with its group.

- ``port``, ``workers``: `curator serve`; with ``"migrate": true`` `curator migrate` instead. ``traps``, ``bug``,
  ``clock`` and ``resumed`` are what :mod:`tests.kit.steps` puts into the child.
- ``arguments``: the command line itself, its standard input the file ``input``, its errors in the file ``errors``. The
  file ``ended`` gets its exit code when all has been written.
- ``listen``: nothing is started, and what `shim.py` sends to this socket is an order from then on: a command of a
  shell, with its own folder and descriptors, whose exit code goes back to it. ``program`` is `curator` or `python`,
  of which ``python -m app.cli`` is the former.
"""

# ruff: noqa: E402
from __future__ import annotations

import gc

gc.disable()  # while modules are imported, here and in each worker of a server, which begins with these: nothing goes

import json
import marshal
import os
import runpy
import select
import signal
import socket
import sys
import traceback
from contextlib import suppress
from multiprocessing import forkserver
from multiprocessing.connection import arbitrary_address
from pathlib import Path
from types import ModuleType
from typing import Any

import alembic.command  # noqa: F401 - what a server imports late is imported once
import anyio._backends._asyncio  # noqa: F401
import opendp._data  # noqa: F401
import psutil
import pyarrow as pa
import rich._emoji_codes
import rich.json
import rich.status  # noqa: F401
import typer.rich_utils  # noqa: F401
import uvicorn.lifespan.on
import uvicorn.loops.uvloop
import uvicorn.protocols.http.auto
import uvicorn.protocols.websockets.auto  # noqa: F401
from prometheus_client import values

import curator_client._sync.curator  # noqa: F401 - commands themselves look at the terminal as they are imported
from app.bootstrap import audit_worker, maintenance, preconditions, reader_process, release_worker, serving
from tests.kit import steps
from tests.kit.processes import HOME

gc.enable()

#: Of a command that a shell sends, its environment included.
MOST_BYTES = 1 << 18


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children are reaped by the system
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ends with the tests, not before them
    pa.array([""])  # it loads the rest of its library with the first
    gc.collect()
    gc.freeze()  # collections in a child would write to what it shares with this process, and copy it thereby
    started: dict[int, int] = {}  # a descriptor of each process, which its number does not outlive, with that number
    listening: list[socket.socket] = []
    # There is one order of standard input until it is answered: none waits in a buffer, where it would not be seen.
    while True:
        ready = select.select([sys.stdin, *listening, *started], [], [])[0]
        for ended in started.keys() & set(ready):
            del started[ended]
            os.close(ended)
        if sys.stdin in ready:
            if not (line := sys.stdin.readline()):
                break
            order = json.loads(line)
            if "listen" in order:
                listening.append(listener(order["listen"]))
                print(os.getpid(), flush=True)  # noqa: T201
            elif child := os.fork():
                with suppress(ProcessLookupError):
                    started[os.pidfd_open(child)] = child
            else:
                begin()
                # Told when it has a group of its own, by which it is killed: there would be none yet to kill.
                print(os.getpid(), flush=True)  # noqa: T201
                redirect(0, order.get("input", os.devnull), os.O_RDONLY)
                redirect(1, order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
                redirect(2, order.get("errors", order["log"]), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
                os._exit(run(order))
        for asked in set(listening) & set(ready):
            shim = asked.accept()[0]
            sent, descriptors, *_ = socket.recv_fds(shim, MOST_BYTES, 3)
            if child := os.fork():
                with suppress(ProcessLookupError):
                    started[os.pidfd_open(child)] = child
            else:
                begin()
                shim.send(b"%d" % os.getpid())
                for number, descriptor in enumerate(descriptors):
                    os.dup2(descriptor, number)
                order = marshal.loads(sent)
                os.chdir(order["folder"])
                if order["program"] == "python" and order["arguments"][:2] == ["-m", "app.cli"]:
                    order |= {"program": "curator", "arguments": order["arguments"][2:]}
                code = run(order)
                shim.send(b"%d" % code)
                os._exit(code)
            shim.close()
            for descriptor in descriptors:
                os.close(descriptor)
    running = set(started) - set(select.select([*started], [], [], 0)[0])
    for process in running:
        with suppress(ProcessLookupError):
            os.killpg(started[process], signal.SIGKILL)


def listener(path: str) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    made.bind(path)
    made.listen()
    return made


def begin() -> None:
    """Be a process of one's own, with its own group."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.setsid()


def run(order: dict[str, Any]) -> int:
    """What is ordered, where standard input and output are as they shall be; the exit code."""
    serves = "migrate" not in order if "arguments" not in order else order["arguments"][:1] == ["serve"]
    if serves and order.get("workers", 1) == 1 and "--workers" not in order.get("arguments", ()):
        for module in (reader_process, release_worker, audit_worker):
            fork_nursery(module)
    elif serves:
        fork_home()
    os.environ.clear()
    os.environ.update(order["environment"])
    return command(order) if "arguments" in order else serve(order)


def redirect(descriptor: int, path: str, flags: int) -> None:
    opened = os.open(path, flags, 0o600)
    os.dup2(opened, descriptor)
    os.close(opened)


def fork_nursery(module: ModuleType) -> None:
    """Have the server's first nursery of a module at hand, forked from here. It is what the server would start, but for
    the second of imports; where that one ends, the server starts the next one itself.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        Path("/proc/self/comm").write_text(module.__name__.rpartition(".")[2])  # by which tests know it
        ours.close()
        redirect(1, os.devnull, os.O_WRONLY)
        sys.argv[1:] = [str(theirs.detach())]
        module.main()
    theirs.close()
    started = module._NURSERY._started
    forked = [(ours, psutil.Process(pid))]
    module._NURSERY._started = lambda: forked.pop() if forked else started()


def fork_home() -> None:
    """Have at hand what the workers of a server are forked from, forked from here: it is what the server would start,
    but for the seconds of imports, and has the environment that it would have. Where it ends, the server starts the
    next one itself.
    """
    listener, (alive, held), (read, written) = socket.socket(socket.AF_UNIX), os.pipe(), os.pipe()
    listener.bind(arbitrary_address("AF_UNIX"))
    listener.listen()
    pid = os.fork()
    if pid == 0:
        Path("/proc/self/comm").write_text(HOME)
        os.close(held)
        os.close(written)
        with open(read) as told:
            environment = json.loads(told.read() or os._exit(0))
        os.environ.clear()
        os.environ.update(environment)
        values.ValueClass = values.get_value_class()  # read when it is imported
        forkserver.main(listener.detach(), alive, ["app.bootstrap.home"])
        os._exit(0)
    os.close(alive)
    os.close(read)
    server = forkserver._forkserver
    begun, forked = server.ensure_running, [(listener.getsockname(), held, pid)]

    def ensure_running() -> None:
        if forked:
            server._forkserver_address, server._forkserver_alive_fd, server._forkserver_pid = forked.pop()
            with open(written, "w") as told:
                json.dump(dict(os.environ), told)
            listener.close()
        begun()

    server.ensure_running = ensure_running


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
    """A command of the command line as ``python -m app.cli`` runs it, or the interpreter itself; the exit code."""
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - the one of old has lines of other orders
    code = 0
    try:
        if order.get("program") == "python":
            interpret(order["arguments"])
        else:
            sys.argv = ["curator", *order["arguments"]]
            runpy.run_module("app.cli", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    if "ended" in order:
        ended = Path(order["ended"])
        ended.with_suffix(".new").write_text(str(code))
        ended.with_suffix(".new").rename(ended)
    return code


def interpret(arguments: list[str]) -> None:
    """What ``python -c`` and ``python -`` do.

    Raises:
        ValueError: of other arguments.
    """
    sys.argv = arguments if arguments[0] == "-" else ["-c", *arguments[2:]]
    if arguments[0] not in ("-", "-c"):
        raise ValueError(f"python {arguments[0]} is not run here")
    text = sys.stdin.read() if arguments[0] == "-" else arguments[1]
    sys.path.insert(0, "")
    module = sys.modules["__main__"] = ModuleType("__main__")
    exec(compile(text, "<stdin>" if arguments[0] == "-" else "<string>", "exec"), module.__dict__)


if __name__ == "__main__":
    main()
