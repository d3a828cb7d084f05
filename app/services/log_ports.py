"""The log's port to the database: what is not in it yet, the lines of what is, and the hashes over them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from curator_client.proofs.merkle import Subtree
from curator_client.proofs.tiles import Tile

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
class SessionProgress:
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
    reached: SessionProgress | None = None


class LogStore(Protocol):
    """The tables of the log. Whatever is in it never changes, so that readings need no common view."""

    def state(self) -> LogState:
        """How far it has come."""

    def settled(self) -> LogState:
        """The last event and the last movement up to which no other can come any more; the size is not told."""

    def news(self, state: LogState, settled: LogState, most: int) -> tuple[list[Group], bool]:
        """The leaves to be added next, about so many, in an order that any process may continue; and whether
        there is more.
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
        reached: Sequence[SessionProgress],
    ) -> bool:
        """Add runs of leaves, tiles as they are then, and how far sessions have come, each once; unless another process
        is about it, or has done it: then nothing happens, and this is False.
        """


@dataclass(frozen=True, slots=True)
class LogKey:
    """A key that the log was signed with, by its number from 0 on: NAME+HASH+KEY; with each but the first the statement
    by which the one before vouched for it, and the number of the event that tells of it.
    """

    number: int
    key: str
    statement: bytes | None = None
    event: int | None = None


class LogKeyStore(Protocol):
    """Where it stands which keys the log was signed with; none of them is private."""

    def keys(self) -> list[LogKey]:
        """All of them, in their order."""

    def add(self, key: LogKey, line: bytes | None) -> bool:
        """Add the next one, and tell the log of it in a line, of which it then has the number; False, and nothing
        happens, when another process has added one.
        """

    def forget(self) -> None:
        """Forget all of them."""


@dataclass(frozen=True, slots=True)
class CosignatureRow:
    """A cosignature of a principal's witness: the log's size, the witness' key, when, and the line."""

    principal: str
    size: int
    key: str
    time: int
    line: bytes


class CosignatureStore(Protocol):
    """Where cosignatures are kept."""

    def add(self, row: CosignatureRow, most: int) -> bool:
        """Keep one, or a later one in the place of an earlier one, and of its principal only so many of the largest
        sizes. False, and nothing happens, when the principal has another key, or another principal has this one.
        """

    def newest(self, least: int, keys: Collection[str]) -> int | None:
        """The largest size of which at least so many are kept, of these keys, or of any where none is named."""

    def lines(self, size: int, keys: Collection[str], most: int) -> list[bytes]:
        """The lines of a size, of these keys or of any, so many at most."""

    def last_of_each(self, most: int) -> list[CosignatureRow]:
        """Of each principal's witness the cosignature of the largest size, by their names, so many at most."""

    def forget(self, principal: str) -> bool:
        """Forget a principal's key and all that it has cosigned; whether there was any."""
