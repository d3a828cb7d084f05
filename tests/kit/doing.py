"""A nursery whose processes run the statements that they are sent: tests plant in a worker what they want to see.

The result is what they assign to ``result``. Tasks in their closed forms, which are no statements, are carried out.
"""

from __future__ import annotations

from typing import Any

from app.bootstrap.nursery import fork_for_each
from app.bootstrap.release_worker import work
from app.patience import Progress
from app.services.tasks import carried_out


def do(task: bytes, progress: Progress) -> bytes:
    """Run statements, which may call ``progress``, or carry out a task."""
    if task.startswith(b'{"kind":'):
        return carried_out(task, progress)
    names: dict[str, Any] = {"progress": progress, "result": b""}
    exec(task.decode(), names)
    found: bytes = names["result"]
    return found


if __name__ == "__main__":
    fork_for_each(lambda connection: work(connection, do))
