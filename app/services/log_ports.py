"""What the log needs of the database: what is not in it yet, the lines of what is, and the hashes over them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from app.audit.merkle import Subtree
from app.audit.tiles import Tile

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
class Run:
    """Where the lines of leaves that follow one another are found: ``count`` of one kind, and of one session where they
    are of any, numbered from ``first`` on. A header is number 0.
    """

    kind: LeafKind
    session: str | None
    first: int
    count: int = 1


@dataclass(frozen=True, slots=True)
class Reached:
    """How far the log has come with a session, and whether more may come of it."""

    session: str
    sequence: int
    following: bool


@dataclass(frozen=True, slots=True)
class Group:
    """Leaves that are added together or not at all, and where the log stands then; None where that does not move."""

    runs: tuple[Run, ...]
    event: int | None = None
    movement: int | None = None
    reached: Reached | None = None


class LogStore(Protocol):
    """The tables of the log. Whatever is in it never changes, so that readings need no common view."""

    def state(self) -> LogState:
        """How far it has come."""

    def settled(self) -> LogState:
        """The last event and the last movement up to which no other can come any more; the size is not told."""

    def news(self, state: LogState, settled: LogState, most: int) -> tuple[list[Group], bool]:
        """What is to be added next, about so many leaves, in an order that any process may continue; and whether there
        is more.
        """

    def sizes(self, runs: Sequence[Run]) -> list[int]:
        """About how many bytes the lines of each run have."""

    def lines(self, runs: Sequence[Run]) -> list[bytes]:
        """The lines of runs, one after another, as they are hashed."""

    def leaves(self, start: int, end: int) -> list[Run]:
        """The leaves from one number up to another, which is not among them."""

    def covering(self, session: str, sequence: int) -> int | None:
        """The size of the smallest log that has a session's lines up to an entry; 0 is none but what its opening made.
        None while the log has not come so far, and for ever where the session is not in it.
        """

    def tiles(self, wanted: Collection[Tile]) -> dict[Tile, bytes]:
        """Tiles, as far as they are there."""

    def hashes(self, places: Sequence[Subtree]) -> list[bytes]:
        """Hashes of complete subtrees."""

    def append(
        self,
        before: LogState,
        after: LogState,
        runs: Sequence[Run],
        tiles: Mapping[Tile, bytes],
        reached: Sequence[Reached],
    ) -> bool:
        """Add runs of leaves, tiles as they are then, and how far sessions have come, each once; unless another process
        is about it, or has done it: then nothing happens, and this is False.
        """
