"""What is told of where a request's time goes, to whom the operator names: spans, which hold nothing private.

A span has a name, two times and a few words of closed lists: methods, templates of routes, kinds and outcomes. Nothing
else can be said of one. No span begins or ends with an engine that counts records, and of requests that bring private
data none is told.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal, Protocol

#: What a request consists of, and what is done beside all of them.
Part = Literal["queued", "answer", "commit", "parked", "job"]


@dataclass(frozen=True, slots=True)
class Trace:
    """A request that is followed.

    Attributes:
        trace: its name, of 32 hexadecimal digits.
        span: the name of its own span, of 16.
    """

    trace: str
    span: str


#: The request that is being served here; None where it is not followed.
FOLLOWED: ContextVar[Trace | None] = ContextVar("followed", default=None)


class Tracer(Protocol):
    """Whoever passes spans on. Times are seconds since 1970."""

    def follow(self) -> Trace | None:
        """A request begins; None where nothing is followed."""

    def request(self, own: Trace, began: float, method: str, route: str, status: int) -> None:
        """A request has ended: its method, the template of its route, and the status of its reply, 0 where none was
        sent.
        """

    def part(
        self, name: Part, within: Trace | None, began: float, ended: float, kind: str = "", outcome: str = ""
    ) -> None:
        """Part of a request has ended; or, where that is None, something by itself.

        Args:
            name: of the part.
            within: the request.
            began: when it began.
            ended: when it ended.
            kind: of the work, from a closed list.
            outcome: the code of a refusal, or a word of a closed list.
        """


class Untraced:
    """Nobody follows anything."""

    def follow(self) -> Trace | None:
        """None."""
        return None

    def request(self, own: Trace, began: float, method: str, route: str, status: int) -> None:
        """Nothing."""

    def part(
        self, name: Part, within: Trace | None, began: float, ended: float, kind: str = "", outcome: str = ""
    ) -> None:
        """Nothing."""


UNTRACED = Untraced()
