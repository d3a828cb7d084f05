"""What is sent to a service and what comes back, apart from how: only the transport knows the library of HTTP."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from curator_client.errors import ProtocolError
from curator_client.proofs.nesting import parse_bounded

#: Bytes of a reply: of one that says little, whatever is asked for; of answers and of pages, those of the log too; and
#: of hypotheses and tables.
SMALL, MOST_JSON, MOST_DATA = 1 << 20, 1 << 28, 1 << 30
#: Bytes of a transcript, unless the caller says otherwise.
MOST_TRANSCRIPT = 1 << 32


@dataclass(frozen=True)
class Call:
    """One request, complete enough to be sent again. ``content`` is made anew for each try; ``most`` bytes may come."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    content: Callable[[], dict[str, Any]] = field(default=dict)
    key: str | None = None
    most: int = MOST_JSON

    @property
    def repeatable(self) -> bool:
        """Whether a second sending does no more than the first."""
        return self.key is not None or self.method in ("GET", "PUT")


@dataclass(frozen=True)
class Reply:
    """A reply with its whole body; names of ``headers`` are in small letters."""

    status: int
    headers: Mapping[str, str] = field(repr=False)
    content: bytes = field(repr=False)
    url: str

    @property
    def text(self) -> str:
        """The body as UTF-8."""
        return self.content.decode(errors="replace")

    def json(self) -> Any:
        """The body as JSON.

        Raises:
            ProtocolError: when it is not JSON, or is nested too deep.
        """
        try:
            return parse_bounded(self.content)
        except ValueError:
            raise ProtocolError(f"{self.url} answered with something that is not JSON") from None
