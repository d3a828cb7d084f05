"""Commands of the operator in processes that are killed at a step told, before it or after it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from tests.kit.processes import end_with_tests
from tests.kit.servers import ROOT, environment

#: For each line (JSON) runs its work, with the fault that it plants, in a process that may die at the steps of its
#: line, which are functions of `os`, and at commits.
_KILLER = """
import json, os, pathlib, signal, sys
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
    order = json.loads(line)
    left, folder = order["left"], order["folder"]
    child = os.fork()
    if not child:
        os.environ.update(order["settings"] | {"CURATOR_DATA_DIR": folder})
        exec(order["fault"])
        for name in order["steps"]:
            setattr(os, name, dies_at(getattr(os, name)))
        SqlTransaction.commit = dies_at(SqlTransaction.commit)
        try:
            exec(order["work"])
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@cache
def _killer() -> subprocess.Popen[str]:
    """The one process of this test process in which commands are forked; it ends with it."""
    base = {n: v for n, v in environment(Path("unset"), None).items() if n != "CURATOR_LOG_LEVEL"}
    return subprocess.Popen(
        [sys.executable, "-c", _KILLER],
        cwd=ROOT,
        env=base,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=end_with_tests,
    )


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
        self._order = {
            "work": work,
            "steps": steps,
            "fault": fault if planted else "",
            "settings": dict(settings or {}),
        }

    def run(self, step: int, folder: Path) -> int:
        """The exit code, -9 where the step was reached; 0 kills nowhere."""
        process = _killer()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(self._order | {"left": step, "folder": str(folder)}) + "\n")
        process.stdin.flush()
        return int(process.stdout.readline())
