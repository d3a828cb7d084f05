"""Releases: their rows are the queue of the work that is to be done for them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Select, and_, func, or_, select

from app.services.ports import RELEASE_WORKED, ReleaseFile, ReleaseRow, ReleaseStatus
from app.storage import tables as t
from app.storage.transaction import BaseTransaction, columns

c = t.releases.c
_MOVED = (
    "status",
    "step",
    "progress",
    "worker",
    "beat",
    "finished_at",
    "problem",
    "result",
    "expected_seconds",
)


def _due_release(silent_since: float, most_seconds: float, ahead: float) -> Select[Any]:
    """The next release that waits, or has been silent: of the owner first whose releases were worked on longest ago,
    his oldest.
    """
    silent = or_(c.beat < silent_since, c.beat > ahead)
    due = or_(c.status == "queued", and_(c.status == "running", silent))
    if most_seconds < math.inf:
        due = and_(due, c.expected_seconds <= most_seconds)
    each = t.releases.alias("each").c
    waiting = select(c.owner).where(due)
    served = (
        select(each.owner, func.max(each.beat).label("at"))
        .where(each.owner.in_(waiting))
        .group_by(each.owner)
        .subquery("served")
    )
    found = select(*columns(ReleaseRow)).join(served, served.c.owner == c.owner).where(due)
    return found.order_by(served.c.at, c.created_at, c.id).limit(1)


class Releases(BaseTransaction):
    """What was asked for at once, and what came of it."""

    def add_release(self, row: ReleaseRow) -> None:
        """Queue a release, whose session is there."""
        self._add(row)

    def release(self, id: str) -> ReleaseRow | None:
        """The release of this id."""
        return self._one(ReleaseRow, c.id == id)

    def releases_page(self, owner: str | None, after: ReleaseRow | None, most: int) -> tuple[list[ReleaseRow], bool]:
        """Up to ``most`` releases asked for after ``after``, of an owner where one is named, in that order; and whether
        there are others.
        """
        owned = () if owner is None else (c.owner == owner,)
        start = None if after is None else (after.created_at, after.id)
        return self._page(ReleaseRow, (c.created_at, c.id), start, most, *owned)

    def releases_in(self, dataset: str) -> list[str]:
        """The releases of a data set that have not ended."""
        statement = select(c.id).where(c.dataset == dataset, c.status.in_(RELEASE_WORKED)).order_by(c.created_at, c.id)
        return list(self.connection.execute(statement).scalars())

    def count_releases(self) -> Mapping[ReleaseStatus, int]:
        """How many releases stand where; a status that none has is left out."""
        return dict(self.connection.execute(select(c.status, func.count()).group_by(c.status)).all())

    def next_release(self, silent_since: float, most_seconds: float = math.inf, ahead: float = math.inf) -> str | None:
        """A release that waits, or whose worker has been silent since some time, or spoke last later than it can be
        (the clock was set back since), and which is foretold to take no more than some seconds: the oldest one of the
        owner whose releases were worked on longest ago. None where there is none.
        """
        found = self.connection.execute(_due_release(silent_since, most_seconds, ahead)).one_or_none()
        return None if found is None else str(found.id)

    def claim_release(
        self,
        worker: str,
        now: float,
        silent_since: float,
        most_seconds: float = math.inf,
        ahead: float = math.inf,
    ) -> ReleaseRow | None:
        """Take the one of :meth:`next_release`. Nobody else takes it at the same time."""
        statement = _due_release(silent_since, most_seconds, ahead)
        if self._locks:
            statement = statement.with_for_update(skip_locked=True, of=t.releases)
        row = self.connection.execute(statement).one_or_none()
        if row is None:
            return None
        before = ReleaseRow(*row)
        taken = replace(before, status="running", worker=worker, beat=now)
        return taken if self.move_release(taken, before) else None

    def orphan_releases(self) -> None:
        """Let whoever works on releases be as one that has been silent for ever."""
        self._change(t.releases, c.status == "running", beat=0.0)

    def move_release(self, row: ReleaseRow, before: ReleaseRow) -> bool:
        """A release's new state, if its status, step and worker are still those of ``before``; whether that is so.

        Raises:
            ValueError: when the release would go back.
        """
        row.check_follows(before)
        mine = c.worker.is_(None) if before.worker is None else c.worker == before.worker
        moved = {name: getattr(row, name) for name in _MOVED}
        there = (c.id == row.id, c.status == before.status, c.step == before.step, mine)
        return self._change(t.releases, *there, **moved) == 1

    def add_release_files(self, files: Sequence[ReleaseFile]) -> None:
        """Keep what came of releases."""
        for file in files:
            self._add(file)

    def release_file(self, id: str, name: str) -> ReleaseFile | None:
        """A result of a release, by its name."""
        f = t.release_files.c
        return self._one(ReleaseFile, f.release == id, f.name == name)
