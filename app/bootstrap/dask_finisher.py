"""Tasks are done by a cluster of Dask, over mutual TLS.

Dask's client unpickles what a cluster sends. So it runs in a process that has neither a secret nor private data: one
for each task, forked and ended as those that do tasks themselves (:mod:`.release_worker`). When it ends, so does its
connection, and the cluster drops the task.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import Any, NoReturn

import orjson
import structlog

from app.bootstrap.dask_worker import TOPIC, carried_out
from app.bootstrap.nursery import Nursery, fork_for_each
from app.bootstrap.preconditions import StartRefused
from app.bootstrap.release_worker import ProcessFinisher, work
from app.patience import Progress
from app.releases.finishing import WorkerDied
from app.services.closed_forms import result_of
from app.settings import Settings

logger = structlog.get_logger(__name__)

#: How often it is looked what became of a task, how long a connection may take, and after how long without a beginning
#: the log says so, in seconds.
LOOK_SECONDS, CONNECT_SECONDS, LONELY_SECONDS = 0.2, 10.0, 60.0
#: So many schedulers may have a task one after another and be lost. How many workers may is the cluster's setting.
MOST_TRIES = 3

_NO_DASK = "CURATOR_FINISHER=dask needs the library of Dask: pip install 'curator-server[dask]'"
_NO_FILE = "CURATOR_{}: {} cannot be read"
_KILLED = "workers of the cluster took it one after another and were gone; their logs say why"
_NOT_RUN = "the cluster could not run it ({}): install the server's version of this program on all of its workers"
_LOST = f"the cluster's scheduler was lost {MOST_TRIES} times while it had it"

_NURSERY = Nursery("app.bootstrap.dask_finisher")


@dataclass(frozen=True)
class Cluster:
    """Where a cluster is, and what shows it who asks.

    Attributes:
        url: of its scheduler, tls://HOST:PORT.
        ca: the file of the authority that certificates on both sides are signed by.
        certificate, key: the files of the server's own.
    """

    url: str
    ca: str
    certificate: str
    key: str

    @classmethod
    def of(cls, settings: Settings) -> Cluster:
        """The cluster of settings that name one.

        Raises:
            StartRefused: when the library of Dask is missing, or a file cannot be read.
        """
        if find_spec("distributed") is None:
            raise StartRefused(_NO_DASK)
        files = {name: str(getattr(settings, name)) for name in ("dask_ca", "dask_certificate", "dask_key")}
        for name, file in files.items():
            if not os.access(file, os.R_OK):
                raise StartRefused(_NO_FILE.format(name.upper(), file))
        return cls(str(settings.dask_url), *files.values())


class DaskFinisher:
    """Has tasks done by a cluster.

    Args:
        cluster: where it is.
        memory_limit: bytes that a task may take there.
        seconds: how long one may take there. The time in which no worker takes it does not count.
    """

    def __init__(self, cluster: Cluster, memory_limit: int, seconds: float) -> None:
        self._asked = orjson.dumps({**asdict(cluster), "memory_limit": memory_limit, "seconds": seconds}) + b"\n"
        self._clients = ProcessFinisher(memory_limit, nursery=_NURSERY)

    def finish(self, task: bytes, progress: Progress) -> bytes:
        """The result of a task, both in their closed forms (:mod:`app.services.tasks`). From any thread.

        Raises:
            CuratorError: when nothing can come of it.
            WorkerDied: when it was cancelled, or workers or schedulers ended before it was done.
            TookTooLong: when its worker ended it for the time that it took.
            OSError: when no process can be begun.
        """
        lonely = threading.Timer(LONELY_SECONDS, logger.warning, ["the cluster of Dask has not begun with a task yet"])

        def heard(part: float) -> None:
            lonely.cancel()
            if part > 0:
                progress(part)

        lonely.daemon = True
        lonely.start()
        try:
            return self._clients.finish(self._asked + task, heard)
        finally:
            lonely.cancel()

    def cancel(self) -> None:
        """End what is under way, if anything is."""
        self._clients.cancel()

    def stop(self) -> None:
        """End what is under way, and begin nothing more."""
        self._clients.stop()


# ------------------------------------------------------------------ the process that asks the cluster


def _have_done(content: bytes, progress: Progress) -> bytes:
    """Have a cluster do a task, which stands behind a line that tells of both.

    Raises:
        CuratorError, WorkerDied, TookTooLong: as :meth:`DaskFinisher.finish` does.
    """
    line, _, task = content.partition(b"\n")
    asked = orjson.loads(line)
    reached = [-1.0, -1.0]
    for _ in range(MOST_TRIES):
        client = _connected(asked)
        future = client.submit(carried_out, task, asked["memory_limit"], asked["seconds"], pure=False)

        def heard(event: tuple[float, tuple[str, float]], key: str = future.key) -> None:
            if event[1][0] == key:
                reached[0] = max(reached[0], event[1][1])

        client.subscribe_topic(TOPIC, heard)
        while not future.done():
            time.sleep(LOOK_SECONDS)
            if reached[0] > reached[1]:  # a worker that begins anew tells less again
                reached[1] = reached[0]
                progress(reached[1])
        if future.status == "finished":
            end, _, told = future.result().partition(b"\n")
            return result_of(end.decode(), told)
        if future.status == "error":
            kind = type(future.exception()).__name__
            raise WorkerDied(_KILLED if kind == "KilledWorker" else _NOT_RUN.format(kind))
        with suppress(Exception):
            client.close(timeout=1)
    raise WorkerDied(_LOST)


def _connected(asked: dict[str, Any]) -> Any:
    """A client of the cluster, which is waited for."""
    from distributed import Client, Security

    security = Security(  # type: ignore[no-untyped-call]
        require_encryption=True,
        tls_ca_file=asked["ca"],
        tls_client_cert=asked["certificate"],
        tls_client_key=asked["key"],
    )
    while True:
        with suppress(OSError):
            return Client(  # type: ignore[no-untyped-call]
                asked["url"], security=security, set_as_default=False, timeout=CONNECT_SECONDS
            )
        time.sleep(1.0)


def main() -> NoReturn:
    """Fork a process for each task that comes, until the server ends."""
    import distributed  # noqa: F401 - loaded once, for all that are forked

    fork_for_each(lambda connection: work(connection, _have_done))


if __name__ == "__main__":
    main()
