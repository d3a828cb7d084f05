"""What does not follow, as an error that says where."""

from __future__ import annotations


class Unfollowed(Exception):
    """Something does not follow: what, and where: its data set, session, movement and entry, as far as it is of one."""

    def __init__(
        self,
        problem: str,
        *,
        dataset: str | None = None,
        session: str | None = None,
        movement: int | None = None,
        entry: int | None = None,
    ) -> None:
        super().__init__(problem)
        self.problem, self.dataset, self.session, self.movement, self.entry = problem, dataset, session, movement, entry
