"""Browsers that somebody has logged in with."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import delete

from app.services.ports import LoginRow
from app.storage import tables as t
from app.storage.transaction import BaseTransaction

c = t.console_logins.c


class Logins(BaseTransaction):
    """Who has logged in, and when."""

    def login(self, id: str) -> LoginRow | None:
        """The log-in of this hash."""
        return self._one(LoginRow, c.id == id)

    def logins(self, principal: str) -> list[LoginRow]:
        """All of a principal, the oldest first."""
        return self._all(LoginRow, c.principal == principal, order=c.created_at)

    def add_login(self, row: LoginRow) -> None:
        """Add one."""
        self._add(row)

    def use_login(self, id: str, at: str) -> None:
        """Tell that one was used."""
        self._change(t.console_logins, c.id == id, used_at=at)

    def remove_logins(self, ids: Sequence[str]) -> None:
        """Remove those of these hashes."""
        self.connection.execute(delete(t.console_logins).where(c.id.in_(list(ids))))

    def remove_old_logins(self, begun: str, used: str) -> int:
        """Remove those that were begun or last used before these times; how many there were."""
        old = (c.created_at < begun) | (c.used_at < used)
        return self.connection.execute(delete(t.console_logins).where(old)).rowcount
