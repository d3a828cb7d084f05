"""Principals and their keys. A key is 32 random bytes, shown once and kept as a SHA-256."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import threading
import time
from dataclasses import dataclass
from typing import Any

from app.audit.log import principal_record
from app.declarations.errors import InvalidRequest
from app.declarations.spec import NAME
from app.services.errors import Conflict, Forbidden, NotFound, Unauthenticated
from app.services.pages import Page
from app.services.ports import Clock, PrincipalRow, Role, Store, StoreConflict, Transaction

ROLES: tuple[Role, ...] = ("admin", "analyst", "auditor")
#: The principal that the operator's own key stands for.
OPERATOR = "admin"
#: On a database with several servers a revoked key is refused everywhere after this many seconds.
CACHE_SECONDS = 1.0
_MIN_KEY = 16
_PRINTABLE = re.compile(r"[\x21-\x7e]+")


@dataclass(frozen=True, slots=True)
class Principal:
    """Who is asking."""

    name: str
    role: Role

    def require(self, *roles: Role) -> None:
        """Refuse every other role.

        Raises:
            Forbidden: naming the roles that may.
        """
        if self.role not in roles:
            raise Forbidden(f"this needs the role {' or '.join(roles)}; yours is {self.role}")


def _hash(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


def _key_id(key_hash: str) -> str:
    """The part of the hash that finds the row; the whole of it is then compared in constant time."""
    return key_hash[:16]


def key_id_of(key: str) -> str:
    """What tells a principal's keys apart: it names the key, and does not tell it."""
    return _key_id(_hash(key))


def find_principal(tx: Transaction, name: str) -> PrincipalRow | None:
    """The principal of a name. What could be none is not looked up: not every database takes every character."""
    return tx.principal(name) if NAME.fullmatch(name) else None


class Principals:
    """Adds, revokes and recognises principals, and gives them new keys."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._known: dict[str, tuple[PrincipalRow, float]] = {}
        self._lock = threading.Lock()

    def add(self, actor: Principal, name: Any, role: Any) -> dict[str, str]:
        """A new principal with its key, which is shown this once.

        Raises:
            InvalidRequest: for an unusable name or an unknown role.
            Conflict: when the name was ever in use.
        """
        actor.require("admin")
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise InvalidRequest("name: 1 to 64 letters, digits, dots, dashes or underscores")
        if role not in ROLES:
            raise InvalidRequest(f"role: one of {', '.join(ROLES)}")
        key = "cur_" + secrets.token_urlsafe(32)
        digest = _hash(key)
        row = PrincipalRow(name, role, _key_id(digest), digest, self._clock())
        with self._store.write() as tx:
            try:
                tx.add_principal(row)
            except StoreConflict:
                raise Conflict(
                    f"the name {name!r} is or was in use: names are never reused. A new key for whoever it stands for, "
                    "revoked or not, is a rotation"
                ) from None
            tx.add_event(principal_record(event="created", name=row.name, role=row.role, recorded_at=row.created_at))
            tx.commit()
        return {"name": name, "role": role, "api_key": key}

    def rotate(self, actor: Principal, name: str) -> dict[str, str]:
        """Give a principal a new key, which is shown this once; the old one is worthless from here on.

        One whose key was revoked is let in again: a name stands for one person for good, and who leaked a key
        has it revoked first.

        Raises:
            NotFound: when there is no such principal.
            Conflict: for the operator's, which is what the server was started with.
        """
        actor.require("admin")
        if name == OPERATOR:
            raise Conflict("the operator's key is CURATOR_ADMIN_KEY: start the server with another one")
        key = "cur_" + secrets.token_urlsafe(32)
        digest = _hash(key)
        with self._lock, self._store.write() as tx:
            row = find_principal(tx, name)
            if row is None:
                raise NotFound(f"there is no principal {name[:64]!r}")
            tx.set_key(name, _key_id(digest), digest)
            tx.add_event(principal_record(event="key replaced", name=name, role=row.role, recorded_at=self._clock()))
            tx.commit()
            self._known.pop(row.key_id, None)
        return {"name": name, "role": row.role, "api_key": key}

    def revoke(self, actor: Principal, name: str) -> None:
        """Make a principal's key worthless.

        Raises:
            NotFound: when there is no such principal, or its key is revoked already.
            Conflict: for one's own key, so that nobody locks themselves out.
        """
        actor.require("admin")
        if name == actor.name:
            raise Conflict("a principal cannot revoke its own key")
        with self._lock, self._store.write() as tx:
            row = find_principal(tx, name)
            if row is None or row.revoked_at is not None:
                raise NotFound(f"no principal {name[:64]!r} holds a key")
            at = self._clock()
            tx.revoke_principal(name, at)
            tx.add_event(principal_record(event="revoked", name=name, role=row.role, recorded_at=at))
            tx.commit()
            self._known.pop(row.key_id, None)

    def list(self, actor: Principal, after: str, most: int) -> Page:
        """Principals by name beyond ``after``, without their keys."""
        actor.require("admin", "auditor")
        with self._store.read() as tx:
            rows, others = tx.principals_page(after, most)
        views = [{"name": r.name, "role": r.role, "created_at": r.created_at, "revoked_at": r.revoked_at} for r in rows]
        return Page(views, rows[-1].name if others else None)

    def recall(self, key: str) -> Principal | None:
        """Who holds this key, if that is in memory and fresh; asks no database."""
        digest = _hash(key)
        known = self._known.get(_key_id(digest))
        if known is None or (not self._store.exclusive and known[1] < time.monotonic()):
            return None
        row = known[0]
        return Principal(row.name, row.role) if hmac.compare_digest(row.key_hash, digest) else None

    def remembers(self, key: str) -> bool:
        """Whether this key was good when it was last looked at, however long ago."""
        digest = _hash(key)
        known = self._known.get(_key_id(digest))
        return known is not None and hmac.compare_digest(known[0].key_hash, digest)

    def authenticate(self, key: str) -> Principal:
        """Who holds this key.

        Raises:
            Unauthenticated: when nobody does.
        """
        digest = _hash(key)
        # Under the lock, so that a revocation cannot fall between reading the row and remembering it.
        with self._lock:
            with self._store.read() as tx:
                row = tx.principal_by_key(_key_id(digest))
            if row is None or row.revoked_at is not None or not hmac.compare_digest(row.key_hash, digest):
                if self.remembers(key):
                    del self._known[_key_id(digest)]
                raise Unauthenticated("the API key is not known: send Authorization: Bearer KEY")
            self._known[row.key_id] = (row, time.monotonic() + CACHE_SECONDS)
        return Principal(row.name, row.role)

    def ensure_operator(self, key: str | None) -> str | None:
        """Give the operator's principal the configured key; without one, make a key at first start.

        Returns the new key where one was made, to be printed once.

        Raises:
            ValueError: when the configured key is too short, not printable, or another principal's.
        """
        made = None
        with self._store.write() as tx:
            row = tx.principal(OPERATOR)
            if key is None:
                if row is not None:
                    return None
                key = made = "cur_" + secrets.token_urlsafe(32)
            if len(key) < _MIN_KEY or not _PRINTABLE.fullmatch(key):
                raise ValueError(f"the admin key needs at least {_MIN_KEY} printable characters without spaces")
            digest = _hash(key)
            other = tx.principal_by_key(_key_id(digest))
            if other is not None and other.name != OPERATOR:
                raise ValueError("it is another principal's key: set one of its own")
            at = self._clock()
            if row is None:
                tx.add_principal(PrincipalRow(OPERATOR, "admin", _key_id(digest), digest, at))
                tx.add_event(principal_record(event="created", name=OPERATOR, role="admin", recorded_at=at))
            elif row.key_hash != digest or row.revoked_at is not None:
                tx.set_key(OPERATOR, _key_id(digest), digest)
                tx.add_event(principal_record(event="key replaced", name=OPERATOR, role="admin", recorded_at=at))
            tx.commit()
        with self._lock:
            self._known.clear()
        return made
