"""Log-ins of browsers: whoever shows a good key gets a secret, which stands for it until it ends.

Of the secret, 32 random bytes, a SHA-256 is kept. A log-in ends twelve hours after it was begun, an hour after it was
last used, when it is ended, and with the key: one that was replaced or revoked logs nobody in.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from app.services.errors import NotFound, Unauthenticated
from app.services.ports import Clock, LoginRow, PrincipalRow, Store
from app.services.principals import Principal, key_id_of

#: How long a log-in lasts, and how long without being used.
LASTS, IDLE = timedelta(hours=12), timedelta(minutes=60)
#: A use is written down once in so long.
_NOTED = timedelta(seconds=60)
#: Most log-ins of a principal at a time: a new one ends the oldest.
MOST = 20


class LoggedOut(Unauthenticated):
    """There is no log-in, or it has ended."""


@dataclass(frozen=True, slots=True)
class Login:
    """A log-in in use.

    Args:
        id: names it, and is no secret: whoever knows it cannot use it.
        principal: who has logged in.
        form_token: what each form of this log-in has to bring.
    """

    id: str
    principal: Principal
    form_token: str = field(repr=False)


def _id(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def _token(secret: str) -> str:
    """What forms bring: it follows from the secret, which does not follow from it."""
    return hmac.new(secret.encode("utf-8", "surrogateescape"), b"forms of this log-in", hashlib.sha256).hexdigest()


def _before(now: str, span: timedelta) -> str:
    return (datetime.fromisoformat(now) - span).strftime("%Y-%m-%dT%H:%M:%SZ")


class Logins:
    """Begins, recognises, lists and ends log-ins."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock

    def begin(self, actor: Principal, key: str, place: str) -> str:
        """A new log-in; its secret, which is told this once.

        Args:
            actor: who has shown the key.
            key: the API key.
            place: where the browser is, by its address.
        """
        secret, now = secrets.token_urlsafe(32), self._clock()
        with self._store.write() as tx:
            tx.remove_old_logins(_before(now, LASTS), _before(now, IDLE))
            others = tx.logins(actor.name)
            tx.remove_logins([row.id for row in others[: max(0, len(others) - MOST + 1)]])
            tx.add_login(LoginRow(_id(secret), actor.name, key_id_of(key), place[:64], now, now))
            tx.commit()
        return secret

    def find(self, secret: str) -> Login:
        """The log-in of a secret, which counts as used.

        Raises:
            LoggedOut: when there is none, or it has ended.
        """
        now, id = self._clock(), _id(secret)
        with self._store.read() as tx:
            row = tx.login(id)
            known = None if row is None else tx.principal(row.principal)
        if row is None or known is None or not _lasts(row, known, now):
            raise LoggedOut("log in first: there is no log-in here, or it has ended")
        if row.used_at < _before(now, _NOTED):
            with self._store.write() as tx:
                tx.use_login(id, now)
                tx.commit()
        return Login(id, Principal(known.name, known.role), _token(secret))

    def list(self, actor: Principal) -> list[dict[str, Any]]:
        """The actor's log-ins, the newest first: what names each, where it is, when it was begun and last used."""
        now = self._clock()
        with self._store.read() as tx:
            rows, known = tx.logins(actor.name), tx.principal(actor.name)
        return [
            {"id": row.id, "place": row.place, "created_at": row.created_at, "used_at": row.used_at}
            for row in reversed(rows)
            if known is not None and _lasts(row, known, now)
        ]

    def end(self, actor: Principal, id: str) -> None:
        """End one of the actor's log-ins.

        Raises:
            NotFound: when he has none of that name.
        """
        with self._store.write() as tx:
            row = tx.login(id) if len(id) == 64 and id.isalnum() and id.isascii() else None
            if row is None or row.principal != actor.name:
                raise NotFound("there is no such log-in of yours: it may have ended")
            tx.remove_logins([id])
            tx.commit()

    def end_all(self, actor: Principal) -> None:
        """End all of the actor's log-ins."""
        with self._store.write() as tx:
            tx.remove_logins([row.id for row in tx.logins(actor.name)])
            tx.commit()

    def remove_old(self, stopping: threading.Event) -> None:
        """Remove the rows of log-ins whose time is over."""
        now = self._clock()
        with self._store.write() as tx:
            if tx.remove_old_logins(_before(now, LASTS), _before(now, IDLE)):
                tx.commit()


def _lasts(row: LoginRow, known: PrincipalRow, now: str) -> bool:
    """Whether a log-in has not ended."""
    if known.revoked_at is not None or not hmac.compare_digest(row.key_id, known.key_id):
        return False
    return row.created_at >= _before(now, LASTS) and row.used_at >= _before(now, IDLE)
