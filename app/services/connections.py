"""Connections to databases outside, by name: secrets go in, and never come out."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

from app.declarations.errors import InvalidDataset, InvalidRequest
from app.services.errors import Conflict, NotFound
from app.services.pages import Page
from app.services.ports import Clock
from app.services.principals import Principal

#: Names of connections.
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


class NoConnection(InvalidDataset):
    """A declaration names a connection that is not there."""


class Stored(Protocol):
    """Where connections are kept, sealed."""

    def add(self, name: str, url: str, by: str, now: str) -> dict[str, str]:
        """Keep one, and tell of it without its secret. Raises InvalidRequest, Conflict."""

    def replace(self, name: str, url: str, by: str, now: str) -> dict[str, str] | None:
        """Keep another URL under a name that is there; None where it is not. Raises InvalidRequest."""

    def open(self, name: str) -> str:
        """The URL of one. Raises NoConnection, InvalidDataset, Unavailable."""

    def page(self, after: str, most: int) -> tuple[list[dict[str, str]], bool]:
        """Those beyond a name, without their secrets, and whether there are others."""

    def remove(self, name: str) -> bool:
        """Forget one; whether it was there."""


class Connections:
    """Adds, lists and removes connections.

    Args:
        stored: keeps them.
        clock: tells the time.
        in_use: the names of those that data sets are asked through.
        look: what is wrong with the database of a URL, or with what its role may do, in words for who added it.
    """

    def __init__(
        self,
        stored: Stored,
        clock: Clock,
        in_use: Callable[[], Collection[str]],
        look: Callable[[str], Sequence[str]],
    ) -> None:
        self._stored, self._clock, self._in_use, self._look = stored, clock, in_use, look

    def add(self, actor: Principal, name: Any, url: Any) -> dict[str, str]:
        """Keep a URL with its secret under a name. What is told of it is its name and type, when it was added, and by
        whom.

        Raises:
            InvalidRequest: naming what to change, never what the URL says.
            Conflict: when the name is in use.
        """
        actor.require("admin")
        if not isinstance(name, str) or NAME.fullmatch(name) is None:
            raise InvalidRequest(
                "name must consist of lower-case letters, digits, dashes and underscores, begin with a letter or digit "
                "and have at most 63 characters"
            )
        return self._stored.add(name, _text(url), actor.name, self._clock())

    def replace(self, actor: Principal, name: str, url: Any) -> dict[str, str]:
        """Keep another URL under a name, as after a password was changed. What is asked through it goes on, as long as
        its records are those that were registered.

        Raises:
            InvalidRequest: naming what to change, never what the URL says.
            NotFound: when there is none of this name.
        """
        actor.require("admin")
        told = self._stored.replace(name, _text(url), actor.name, self._clock())
        if told is None:
            raise _nowhere()
        return told

    def check(self, actor: Principal, name: str) -> dict[str, Any]:
        """Ask the database of a connection whether it answers, and whether its role may do no more than it should.

        Raises:
            NotFound: when there is none of this name.
            Unavailable: when it was sealed under another key.
        """
        actor.require("admin")
        try:
            problems = [*self._look(self._stored.open(name))]
        except NoConnection:
            raise _nowhere() from None
        except InvalidDataset as error:
            problems = [error.detail]
        return {"name": name, "problems": problems}

    def list(self, actor: Principal, after: str, most: int) -> Page:
        """All of them by name beyond another one, without their secrets."""
        actor.require("admin")
        found, others = self._stored.page(after, most)
        return Page([*found], found[-1]["name"] if others else None)

    def remove(self, actor: Principal, name: str) -> None:
        """Forget a connection for good.

        Raises:
            NotFound: when there is none of this name.
            Conflict: when a data set is asked through it.
        """
        actor.require("admin")
        if name in self._in_use():
            raise Conflict("a data set is asked through this connection: retire it first")
        if not self._stored.remove(name):
            raise _nowhere()


def _text(url: Any) -> str:
    if not isinstance(url, str) or "\0" in url:
        raise InvalidRequest(
            "url must be text, as postgresql://user:password@host/database?sslmode=verify-full or sc://host/;use_ssl=true"
        )
    return url


def _nowhere() -> NotFound:
    return NotFound("there is no such connection")
