"""What a worker of a Dask cluster runs: one function of this program, which is named and given bytes, and tells bytes.

The cluster has this program installed at the server's version: forms of another one are refused.
"""

from __future__ import annotations

import threading
import time

from app.bootstrap.release_worker import ProcessFinisher
from app.services.closed_forms import end_of

#: Where workers tell of tasks: of each its key and how far it is, from 0.
TOPIC = "curator-progress"
#: How often it is looked whether a task is still wanted, and how often progress is told at most, in seconds.
LOOK_SECONDS, TOLD_SECONDS = 0.25, 0.25
_NOT_BEGUN = b"the worker of the cluster could begin no process for it"


def carried_out(task: bytes, memory_limit: int, seconds: float) -> bytes:
    """How a task ended, on a line of its own, and what is told of that (:func:`app.services.closed_forms.result_of`).

    It is done in a process of its own, which ends when nobody wants it any more: when it was cancelled, or the
    connection of whoever asked for it has ended.

    Nothing is raised: Dask would write the task into its log.

    Args:
        task: in its closed form.
        memory_limit: bytes that it may take.
        seconds: how long it may take.
    """
    from distributed import get_worker

    worker = get_worker()
    key, state, told_at = worker.get_current_task(), worker.state, 0.0
    finisher, ended = ProcessFinisher(memory_limit, seconds), threading.Event()

    def progress(part: float) -> None:
        nonlocal told_at
        if time.monotonic() - told_at >= TOLD_SECONDS:
            told_at = time.monotonic()
            worker.log_event(TOPIC, [key, part])

    def watch() -> None:
        while not ended.wait(LOOK_SECONDS):
            # Dask stops no thread: it says here that it waits for the end of one that nobody wants.
            asked = state.tasks.get(key)
            if asked is None or asked.state == "cancelled":
                finisher.stop()
                return

    watching = threading.Thread(target=watch, name="wanted", daemon=True)
    watching.start()
    progress(0.0)
    try:
        end, told = end_of(lambda: finisher.finish(task, progress))
    except OSError:
        end, told = "died", _NOT_BEGUN
    finally:
        ended.set()
        watching.join()
    return end.encode() + b"\n" + told
