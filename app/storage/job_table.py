"""The table of jobs: what servers have put out for workers on other machines, and what came of it.

A server puts a job there, says every few seconds that it waits, and removes the row when it has the result or wants it
no more. A worker takes a job under a name that it uses for this once, and says that it is alive. Every write of a
worker names the job, that name and the state: whoever was silent, and was taken over, changes nothing any more.

Times are those of the database, so that no two machines need the same clock. The table is one of PostgreSQL: whoever
can open an embedded database sees all of it. A worker's role needs the rights of :data:`GRANTS` and no others.
"""

from __future__ import annotations

import secrets
import threading
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import ColumnElement, Double, Engine, and_, case, cast, delete, func, insert, or_, select, update

from app.services.closed_forms import End
from app.storage import tables as t

#: What a job is: to finish a release, or to replay a transcript.
Kind = Literal["release", "replay"]

#: After so many seconds a worker that said nothing is taken over, and a job whose server said nothing is nobody's.
SILENT_SECONDS = 20.0
#: So many workers may take a job one after another and fall silent: what ends one may well end the next.
MOST_CLAIMS = 3
#: Rows of servers that are gone are removed after so many seconds.
GONE_SECONDS = 600.0
#: PostgreSQL holds no more than 1 GiB in a field; text and memory of the driver take their part.
MOST_BYTES = 256 << 20
#: The rights of a worker's role, as SQL to be given to it: neither to put out jobs, nor to remove any, nor to change
#: what is asked.
GRANTS = 'GRANT SELECT, UPDATE (status, worker, beat, claims, progress, "end", result) ON jobs TO {role}'

c = t.jobs.c
_NOW = cast(func.extract("epoch", func.clock_timestamp()), Double)
_WANTED = c.wanted > _NOW - SILENT_SECONDS
_SILENT = and_(c.status == "running", c.beat < _NOW - SILENT_SECONDS)


@dataclass(frozen=True, slots=True)
class Standing:
    """How a job stands.

    Attributes:
        taken: whether a worker has it.
        progress: from 0 to 1.
        end: how it ended; None while it has not.
        result: what came of it: the result, the refusal, or how it died; None where that is longer than was asked for.
        given_up: whether as many workers as may were silent.
    """

    taken: bool
    progress: float
    end: End | None
    result: bytes | None
    given_up: bool


@dataclass(frozen=True, slots=True)
class Claim:
    """A job that a worker has taken.

    Attributes:
        id: of the job.
        worker: the name under which it was taken.
        kind: what it is.
        task: what is to be done.
        seconds: how long that may take.
    """

    id: str
    worker: str
    kind: str
    task: bytes
    seconds: float

    @property
    def mine(self) -> ColumnElement[bool]:
        """Whether a row is still this worker's."""
        return and_(c.id == self.id, c.worker == self.worker, c.status == "running")


class JobTable:
    """The table of jobs, for both sides.

    Args:
        engine: of a PostgreSQL database.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        #: One row after another is put out: they may be long, and requests share the connections.
        self._putting = threading.Lock()

    # ------------------------------------------------------------------ servers

    def put(self, kind: Kind, task: bytes, seconds: float) -> str:
        """Put out a job, and remove those of servers that are gone; its id."""
        id = secrets.token_hex(16)
        row = {"id": id, "kind": kind, "task": task, "seconds": seconds, "status": "waiting"}
        with self._putting, self._engine.begin() as connection:
            connection.execute(delete(t.jobs).where(c.wanted < _NOW - GONE_SECONDS))
            times = {"created": _NOW, "wanted": _NOW}
            connection.execute(insert(t.jobs).values(row | times | {"claims": 0, "progress": 0.0}))
        return id

    def want(self, id: str) -> None:
        """Say that its server waits for a job."""
        with self._engine.begin() as connection:
            connection.execute(update(t.jobs).where(c.id == id).values(wanted=_NOW))

    def standing(self, id: str, most: int = MOST_BYTES) -> Standing | None:
        """How a job stands; None where there is none. No result of more than so many bytes is fetched: a worker may
        write what it likes.
        """
        given_up = and_(_SILENT, c.claims >= MOST_CLAIMS)
        told = func.coalesce(c.result, b"")
        result = case((func.length(told) <= most, told))
        found = select(c.status, c.progress, c.end, result.label("result"), given_up.label("given_up"))
        with self._engine.begin() as connection:
            row = connection.execute(found.where(c.id == id)).one_or_none()
        if row is None:
            return None
        written = None if row.result is None else bytes(row.result)
        return Standing(row.status == "running", row.progress, row.end, written, bool(row.given_up))

    def remove(self, id: str) -> None:
        """Have a job no more. Its worker ends it within a beat."""
        with self._engine.begin() as connection:
            connection.execute(delete(t.jobs).where(c.id == id))

    # ------------------------------------------------------------------ workers

    def claim(self) -> Claim | None:
        """Take the job that has waited longest: one that nobody has, or whose worker is silent. Nobody else takes it
        at the same time.
        """
        free = or_(c.status == "waiting", and_(_SILENT, c.claims < MOST_CLAIMS))
        first = select(c.id).where(free, _WANTED).order_by(c.created, c.id).limit(1).with_for_update(skip_locked=True)
        worker = secrets.token_hex(16)
        taken = {"status": "running", "worker": worker, "beat": _NOW, "progress": 0.0, "claims": c.claims + 1}
        statement = (
            update(t.jobs)
            .where(c.id == first.scalar_subquery())
            .values(taken)
            .returning(c.id, c.kind, c.task, c.seconds)
        )
        with self._engine.begin() as connection:
            row = connection.execute(statement).one_or_none()
        return None if row is None else Claim(row.id, worker, row.kind, bytes(row.task), row.seconds)

    def beat(self, claim: Claim, progress: float) -> bool:
        """Say that its worker is alive, and how far it is; whether it is to go on: not when it is another's, or its
        server has been silent.
        """
        return self._write(and_(claim.mine, _WANTED), beat=_NOW, progress=progress)

    def end(self, claim: Claim, end: End, result: bytes) -> bool:
        """The end of a job, unless it is another worker's or was removed; whether that is so."""
        return self._write(claim.mine, status="ended", end=end, result=result)

    def give_back(self, claim: Claim) -> bool:
        """Leave a job to another worker, which may take it at once."""
        return self._write(claim.mine, status="waiting", worker=None, beat=None, progress=0.0, claims=c.claims - 1)

    def _write(self, which: ColumnElement[bool], **values: object) -> bool:
        with self._engine.begin() as connection:
            return bool(connection.execute(update(t.jobs).where(which).values(values)).rowcount)
