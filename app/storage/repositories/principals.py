"""Principals and their keys."""

from __future__ import annotations

from app.services.ports import PrincipalRow
from app.storage import tables as t
from app.storage.transaction import BaseTransaction

c = t.principals.c


class Principals(BaseTransaction):
    """Who has a key."""

    def principal(self, name: str) -> PrincipalRow | None:
        """The principal of this name, revoked or not."""
        return self._one(PrincipalRow, c.name == name)

    def principal_by_key(self, key_id: str) -> PrincipalRow | None:
        """The principal whose key carries this public part."""
        return self._one(PrincipalRow, c.key_id == key_id)

    def principals(self) -> list[PrincipalRow]:
        """All principals by name."""
        return self._all(PrincipalRow, order=c.name)

    def principals_page(self, after: str, most: int) -> tuple[list[PrincipalRow], bool]:
        """Up to ``most`` principals by name beyond ``after``, and whether there are others."""
        return self._page(PrincipalRow, (c.name,), (after,), most)

    def add_principal(self, row: PrincipalRow) -> None:
        """Add a principal. Raises StoreConflict when the name was ever in use."""
        self._add(row)

    def set_key(self, name: str, key_id: str, key_hash: str) -> None:
        """Replace a principal's key."""
        self._change(t.principals, c.name == name, key_id=key_id, key_hash=key_hash, revoked_at=None)

    def revoke_principal(self, name: str, at: str) -> None:
        """Mark a principal's key as revoked."""
        self._change(t.principals, c.name == name, revoked_at=at)
