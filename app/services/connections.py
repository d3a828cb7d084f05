"""Connections to databases outside, by name: secrets go in, and never come out."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any, Protocol

from app.declarations.errors import InvalidRequest
from app.services.errors import Conflict, NotFound
from app.services.pages import Page
from app.services.ports import Clock
from app.services.principals import Principal

#: Names of connections.
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


class Stored(Protocol):
    """Where connections are kept, sealed."""

    def add(self, name: str, url: str, by: str, now: str) -> dict[str, str]:
        """Keep one, and tell of it without its secret. Raises InvalidRequest, Conflict."""

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
    """

    def __init__(self, stored: Stored, clock: Clock, in_use: Callable[[], Collection[str]]) -> None:
        self._stored, self._clock, self._in_use = stored, clock, in_use

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
        if not isinstance(url, str) or "\0" in url:
            raise InvalidRequest("url must be text, as postgresql://user:password@host/database?sslmode=verify-full")
        return self._stored.add(name, url, actor.name, self._clock())

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
            raise NotFound("there is no such connection")
