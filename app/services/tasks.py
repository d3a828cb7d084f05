"""Tasks of all kinds, carried out wherever they are: each in its closed form, and what comes of it in its own."""

from __future__ import annotations

from app.patience import Progress
from app.services import release_tasks, replay_tasks
from app.services.closed_forms import Damaged, kind_of

_KINDS = {release_tasks.TASK: release_tasks.carried_out, replay_tasks.TASK: replay_tasks.carried_out}


def carried_out(content: bytes, progress: Progress) -> bytes:
    """The result of a task, both in their closed forms.

    Args:
        content: the task.
        progress: told from time to time.

    Raises:
        Damaged: when it is none.
        CuratorError: when nothing can come of it.
    """
    carry = _KINDS.get(kind_of(content))
    if carry is None:
        raise Damaged("this is no task that this program knows: run the same version here")
    return carry(content, progress)
