"""Connections to databases outside: each a URL with its secret, sealed under the vault's key, in a row by its name.

What is sealed is opened by whoever asks a source, and by nobody else: no list, log or error has a host, a user or a
password.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from app.declarations.errors import InvalidDataset, InvalidRequest
from app.services.connections import NAME, NoConnection
from app.services.errors import Conflict, Unavailable
from app.storage import connection_urls
from app.storage import tables as t
from app.storage.sources import WAREHOUSES, Place
from app.storage.store import SqlStore
from app.storage.vault import Vault, VaultError

c = t.connections.c


class SealedConnections:
    """Named connections; see :class:`app.services.connections.Stored`.

    Args:
        vault: whose key seals them.
        store: of the rows.
        hosts: those that a URL may name, each alone or with a port, or a folder of a local socket.
    """

    def __init__(self, vault: Vault, store: SqlStore, hosts: Collection[str]) -> None:
        self._vault, self._store, self._hosts = vault, store, frozenset(hosts)

    def add(self, name: str, url: str, by: str, now: str) -> dict[str, str]:
        """Seal a URL under a name; what is told of it from now on.

        Raises:
            InvalidRequest: naming what of it to change, never what it says; or that the vault has no key.
            Conflict: when the name is in use.
        """
        kind, sealed = self._sealed(name, url)
        told = {"name": name, "type": kind, "created_at": now, "created_by": by}
        with self._store.write() as tx:
            try:
                tx.connection.execute(insert(t.connections), {**told, "sealed": sealed})
            except IntegrityError:
                raise Conflict(f"the connection {name!r} is there: remove it first, or take another name") from None
            tx.commit()
        return told

    def replace(self, name: str, url: str, by: str, now: str) -> dict[str, str] | None:
        """Seal another URL under a name that is there, in the place of the one before; what is told of it from now on.
        None where there is none of this name.

        Raises:
            InvalidRequest: naming what of it to change, never what it says; or that the vault has no key.
        """
        if not NAME.fullmatch(name):
            return None
        kind, sealed = self._sealed(name, url)
        told = {"type": kind, "created_at": now, "created_by": by}
        with self._store.write() as tx:
            found = tx.connection.execute(update(t.connections).where(c.name == name).values(told | {"sealed": sealed}))
            tx.commit()
        return {"name": name, **told} if found.rowcount else None

    def page(self, after: str, most: int) -> tuple[list[dict[str, str]], bool]:
        """Up to ``most`` connections by name beyond another one, without secrets, and whether there are others."""
        with self._store.read() as tx:
            shown = select(c.name, c.type, c.created_at, c.created_by)
            found = tx.connection.execute(shown.where(c.name > after).order_by(c.name).limit(most + 1))
            # As plain words: a column's name is text of a kind of its own, of which nobody makes JSON.
            rows = [{str(word): told for word, told in row.items()} for row in found.mappings()]
        return rows[:most], len(rows) > most

    def remove(self, name: str) -> bool:
        """Forget a connection for good; whether there was one."""
        if not NAME.fullmatch(name):  # not looked up: not every database takes every character
            return False
        with self._store.write() as tx:
            removed = tx.connection.execute(delete(t.connections).where(c.name == name)).rowcount
            tx.commit()
        return bool(removed)

    def open(self, name: str, type: str | None = None) -> str:
        """The URL of a connection, for whoever asks a source.

        Args:
            name: of the connection.
            type: of the source, where one is asked.

        Raises:
            NoConnection: when there is none of this name.
            InvalidDataset: when its host is not one of the server's any more, or it leads to another type of source.
            Unavailable: when it was sealed under another key.
        """
        sealed = None
        if NAME.fullmatch(name):
            with self._store.read() as tx:
                sealed = tx.connection.execute(select(c.sealed).where(c.name == name)).scalar_one_or_none()
        if sealed is None:
            raise NoConnection("source.connection: there is none of this name: an admin adds it first")
        try:
            url = self._vault.open_secret(name, sealed)
        except VaultError:
            raise Unavailable(
                "the connection was sealed under another key: an operator must look", retry_after=60
            ) from None
        try:
            found = self._check(url)
        except InvalidRequest as error:
            raise InvalidDataset(f"source.connection: {error.detail}") from None
        if type not in (None, found):
            raise InvalidDataset(
                "source.connection: it is of another type of database, as it leads to "
                f"{found}, and source.type is {type}: name another"
            )
        return url

    def reseal(self, old: Vault) -> Sequence[str]:
        """Seal what another key has sealed under this vault's; the names of those that neither opens."""
        lost = []
        with self._store.write() as tx:
            for name, sealed in tx.connection.execute(select(c.name, c.sealed)).all():
                if self._opens(self._vault, name, sealed) is not None:
                    continue
                url = self._opens(old, name, sealed)
                if url is None:
                    lost.append(name)
                    continue
                again = self._vault.seal_secret(name, url)
                tx.connection.execute(update(t.connections).where(c.name == name).values(sealed=again))
            tx.commit()
        return lost

    @staticmethod
    def _opens(vault: Vault, name: str, sealed: str) -> str | None:
        try:
            return vault.open_secret(name, sealed)
        except VaultError:
            return None

    def _sealed(self, name: str, url: str) -> tuple[str, str]:
        """The type of a URL, and it sealed. Raises InvalidRequest."""
        kind = self._check(url)
        try:
            return kind, self._vault.seal_secret(name, url)
        except VaultError:
            raise InvalidRequest(
                "this server's vault has no key, and keeps no secrets: have its operator set CURATOR_VAULT_KEY"
            ) from None

    def _check(self, url: str) -> str:
        """The type of what a URL leads to; refuse one that leads elsewhere than the operator allows, or in the clear.

        Raises:
            InvalidRequest: naming what of it to change, never what it says.
        """
        if url.partition("://")[0] not in WAREHOUSES:
            return connection_urls.check(url, self._hosts)
        try:
            place = Place.of(url)
        except ValueError as error:
            raise InvalidRequest(f"url: {error}") from None
        connection_urls.check_hosts([(place.host, str(place.port))], self._hosts)
        return place.type
