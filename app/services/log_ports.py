"""What the log needs of the database: what is not in it yet, the lines of what is, and the hashes over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from app.audit.merkle import Subtree

#: Where the line of a leaf stands: an event or a movement of the ledger by its number, a session's header, the record
#: of a measurement by its number, an entry by its session and its sequence.
LeafKind = Literal["event", "movement", "header", "record", "entry"]


@dataclass(frozen=True, slots=True)
class LogState:
    """How far the log has come: its size, and the last event and movement that are in it."""

    size: int = 0
    event: int = 0
    movement: int = 0


@dataclass(frozen=True, slots=True)
class Leaf:
    """Where the line of a leaf is found."""

    kind: LeafKind
    session: str | None
    number: int | None


@dataclass(frozen=True, slots=True)
class Reached:
    """How far the log has come with a session, and whether more may come of it."""

    session: str
    sequence: int
    following: bool


@dataclass(frozen=True, slots=True)
class Group:
    """Leaves that are added together or not at all, and where the log stands then; None where that does not move."""

    leaves: tuple[Leaf, ...]
    event: int | None = None
    movement: int | None = None
    reached: Reached | None = None


class LogStore(Protocol):
    """The tables of the log. Whatever is in it never changes, so that readings need no common view."""

    def state(self) -> LogState:
        """How far it has come."""

    def settled(self) -> LogState:
        """The last event and the last movement up to which no other can come any more; the size is not told."""

    def news(self, state: LogState, settled: LogState, most: int) -> list[Group]:
        """What is to be added next, about so many leaves, in an order that any process may continue."""

    def sizes(self, leaves: Sequence[Leaf]) -> list[int]:
        """About how many bytes the lines of leaves have."""

    def lines(self, leaves: Sequence[Leaf]) -> list[bytes]:
        """The lines of leaves, as they are hashed."""

    def leaves(self, start: int, end: int) -> list[Leaf]:
        """The leaves from one number up to another, which is not among them."""

    def hashes(self, places: Sequence[Subtree]) -> list[bytes]:
        """Hashes of complete subtrees."""

    def append(
        self,
        before: LogState,
        after: LogState,
        leaves: Sequence[tuple[Leaf, bytes]],
        nodes: Sequence[tuple[Subtree, bytes]],
        reached: Sequence[Reached],
    ) -> bool:
        """Add leaves with their hashes and those above them, unless another process is about it, or has done it: then
        nothing happens, and this is False.
        """
