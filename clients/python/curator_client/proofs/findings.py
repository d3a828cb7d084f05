"""Findings: errors that say where something does not follow."""

from __future__ import annotations

from typing import Literal

#: What rules of a log are about, as a report groups them.
Check = Literal["records", "chains", "books", "charges", "measurements", "replay"]


class Unfollowed(Exception):
    """Something does not follow: what, and where: its data set, session, movement and entry, as far as it is of one.
    ``check`` is what the rule that does not hold is about.
    """

    def __init__(
        self,
        problem: str,
        *,
        check: Check = "records",
        dataset: str | None = None,
        session: str | None = None,
        movement: int | None = None,
        entry: int | None = None,
    ) -> None:
        super().__init__(problem)
        self.problem, self.check = problem, check
        self.dataset, self.session, self.movement, self.entry = dataset, session, movement, entry
