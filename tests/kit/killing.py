"""Commands of the operator in processes that are killed at a step told, before it or after it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.kit.processes import end_with_tests
from tests.kit.servers import ROOT, environment

#: Runs WORK, with the fault of PLANTED where the variable of that name is set; it may die at STEPS, which are functions
#: of `os`, and at commits.
_KILLER = """
import os, pathlib, signal, sys
from app.bootstrap import maintenance, preconditions
from app.storage.store import SqlTransaction
left = 0
def dies_at(function):
    def step(*arguments, **named):
        global left
        for _ in range(2):  # before it and after it
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            if _ == 0:
                result = function(*arguments, **named)
        return result
    return step
import sqlalchemy.dialects, alembic.command, alembic.script  # what is imported late is imported once
for line in sys.stdin:
    left, folder = int(line.split()[0]), line.split()[1]
    child = os.fork()
    if not child:
        os.environ["CURATOR_DATA_DIR"] = folder
        if os.environ.get("PLANTED"):
            exec(PLANTED)
        for name in STEPS:
            setattr(os, name, dies_at(getattr(os, name)))
        SqlTransaction.commit = dies_at(SqlTransaction.commit)
        try:
            exec(WORK)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Killing:
    """Runs a command in processes that die at a step told.

    Args:
        work: the command, in Python; `maintenance` is imported.
        steps: names of functions of `os` that it may die at, beside commits.
        fault: in Python, planted where ``planted``; `folder` is the data folder.
        planted: whether.
        settings: of the operator.
    """

    def __init__(
        self,
        work: str,
        steps: tuple[str, ...],
        fault: str,
        *,
        planted: bool,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        base = {n: v for n, v in environment(Path("unset"), None).items() if n != "CURATOR_LOG_LEVEL"}
        told = f"WORK, STEPS, PLANTED = {work!r}, {steps!r}, {fault!r}\n"
        self.process = subprocess.Popen(
            [sys.executable, "-c", told + _KILLER],
            cwd=ROOT,
            env=base | dict(settings or {}) | {"PLANTED": "1" if planted else ""},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=end_with_tests,
        )

    def run(self, step: int, folder: Path) -> int:
        """The exit code, -9 where the step was reached; 0 kills nowhere."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{step} {folder}\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def __enter__(self) -> Killing:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()
