"""The ports of the use cases, as protocols, and the rows that pass through them.

A store hands out transactions. Inside one, ``lock=True`` holds a row until the commit: of a data set while its
ledger moves, of a session while it is answered. Nothing is visible to anybody before :meth:`Transaction.commit`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, Protocol

from app.declarations.drafts import ColumnSummary, Layout
from app.declarations.spec import Spec, TableSpec
from app.privacy.ledger import Share
from app.services.registered import RegisteredCounts
from app.spaces.space import Space
from app.spaces.tensor import Array, IntArray
from curator_client.proofs.commitment import FileDigest

Role = Literal["admin", "analyst", "auditor"]
EntryKind = Literal["hypothesis", "measurement", "cached", "unverified", "forfeit", "release"]
LedgerKind = Literal["reserve", "charge", "return", "purchase", "forfeit"]


@dataclass(frozen=True, slots=True)
class PrincipalRow:
    """Somebody with a key; the key itself is not here, only its hash."""

    name: str
    role: Role
    key_id: str
    key_hash: str = field(repr=False)
    created_at: str
    revoked_at: str | None = None


@dataclass(frozen=True, slots=True)
class LoginRow:
    """A browser that a principal has logged in with: the hash of what its cookie holds, the key that it was done with,
    the client's address, and when it was begun and last used."""

    id: str = field(repr=False)
    principal: str
    key_id: str
    place: str
    created_at: str
    used_at: str


@dataclass(frozen=True, slots=True)
class DatasetRow:
    """A registered data set. ``vault_entry`` names its private file; ``forfeited`` and ``forfeited_pure`` are exact
    decimal strings, what of the two sums of its budget is gone beside what its sessions hold and spent. ``impure`` says
    whether a session was ever opened whose noise is not all pure; it is never taken back. ``commitment`` is the one to
    its private file, None where it was registered before there were any; ``revealed_to`` are the admins who were given
    its key.
    """

    name: str
    spec: dict[str, Any]
    records: float | None
    bought: dict[str, dict[str, float]]
    vault_entry: dict[str, str] = field(repr=False)
    created_at: str
    retired_at: str | None = None
    race_sessions: int = 0
    forfeited: str = "0"
    forfeited_pure: str = "0"
    impure: bool = False
    commitment: str | None = None
    revealed_to: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A session's public state; amounts are exact decimal strings, those of the pure sum None where not all of its
    noise is pure.
    """

    id: str
    dataset: str
    owner: str
    header: bytes
    status: Literal["open", "closed"]
    sequence: int
    queries_asked: int
    updates_used: int
    spent: str
    reserved: str
    spent_pure: str | None
    reserved_pure: str | None
    head_hash: str
    opened_at: str
    closed_at: str | None = None

    def after(
        self, sequence: int, queries_asked: int, updates_used: int, share: Share | None, head_hash: str
    ) -> SessionRow:
        """The row after a record, made without going through all fields by name as ``dataclasses.replace`` does;
        ``share`` is what it holds then, None where it is what it was.
        """
        spent, reserved, spent_pure, reserved_pure = self.spent, self.reserved, self.spent_pure, self.reserved_pure
        if share is not None:
            spent, reserved = str(share.spent.renyi), str(share.reserved.renyi)
            if share.spent.pure is not None:
                spent_pure, reserved_pure = str(share.spent.pure), str(share.reserved.pure)
        return SessionRow(
            self.id,
            self.dataset,
            self.owner,
            self.header,
            self.status,
            sequence,
            queries_asked,
            updates_used,
            spent,
            reserved,
            spent_pure,
            reserved_pure,
            head_hash,
            self.opened_at,
            self.closed_at,
        )


NONE_KNOWN: Mapping[str, SessionRow] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class EntryRow:
    """A transcript entry: its canonical line, and what a session must know of it to go on.

    ``units`` are the released values on the answer grid, as little-endian int64.
    """

    session: str
    sequence: int
    kind: EntryKind
    digest: bytes | None
    units: bytes | None
    error_bound: float | None
    line: bytes


@dataclass(slots=True)
class KnownEntries:
    """The facts of its entries that a session needs to go on, in bulk.

    ``answers`` are digest, values (as entries have them) and error bound of the answers given first, ``measurements``
    the values and lines of those among them that teach the hypothesis, both in order; the others are counted.
    """

    answers: list[tuple[bytes, bytes, float | None]]
    measurements: list[tuple[bytes, bytes]]
    cached: int = 0
    unverified: int = 0
    forfeits: int = 0


@dataclass(frozen=True, slots=True)
class WeightsRow:
    """Dense weights that an entry names by their hash; ``sequence`` is that entry's."""

    session: str
    sha256: str
    sequence: int
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class EvidenceRow:
    """A measurement of a data set: its record, named by the record's hash, and whether other sessions may use it.

    ``sequence`` is the entry that it was made for, 0 at the opening of its session.
    """

    dataset: str
    session: str
    sequence: int
    sha256: str
    shared: bool
    line: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """One movement of a data set's budget; ``amount`` is an exact decimal string at its Renyi order, and ``pure`` the
    epsilon of the same where all of its noise is pure.
    """

    dataset: str
    session: str | None
    kind: LedgerKind
    amount: str
    pure: str | None
    sequence: int | None
    recorded_at: str


#: Where a release stands: it waits, is worked on, or has ended.
ReleaseStatus = Literal["queued", "running", "done", "failed", "cancelled"]
#: What is being done for one that is worked on: ``measuring`` is committed before noise is drawn, and what was measured
#: is recorded before ``fitting``.
ReleaseStep = Literal["queued", "measuring", "fitting", "done"]
#: The steps in their order: no release goes back.
RELEASE_STEPS: tuple[ReleaseStep, ...] = ("queued", "measuring", "fitting", "done")
#: The states of releases that have not ended.
RELEASE_WORKED: tuple[ReleaseStatus, ...] = ("queued", "running")


@dataclass(frozen=True, slots=True)
class ReleaseRow:
    """A release, and the work that is to be done for it: the row is the queue.

    ``id`` is also that of the session which holds its share and has its transcript. ``worker`` is the process that
    works on it and ``beat`` when that was last heard of, in seconds since 1970. ``expected_seconds`` is what the work
    is foretold to take. ``request``, ``problem`` and ``result`` are JSON documents.
    """

    id: str
    dataset: str
    owner: str
    request: bytes
    status: ReleaseStatus
    step: ReleaseStep
    progress: float
    created_at: str
    worker: str | None = None
    beat: float = 0.0
    finished_at: str | None = None
    problem: bytes | None = None
    result: bytes | None = None
    expected_seconds: float = 0.0

    def check_follows(self, before: ReleaseRow) -> None:
        """Refuse a state that lies before another one.

        Raises:
            ValueError: when the step is an earlier one, or the other state was a release's last.
        """
        if RELEASE_STEPS.index(self.step) < RELEASE_STEPS.index(before.step) or before.status not in RELEASE_WORKED:
            raise ValueError("a release does not go back")


@dataclass(frozen=True, slots=True)
class ReleaseFile:
    """A result of a release: a table as an Arrow file, by its name."""

    release: str
    name: str
    data: bytes = field(repr=False)


#: Principal, route and idempotency key.
ReplyName = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class ReplyRow:
    """A stored reply under its idempotency key; whether it tells of a session that was opened, and the number of the
    session's newest entry once it was given, where it tells answers."""

    principal: str
    route: str
    key: str
    body_hash: str
    opens: bool
    reply: bytes
    recorded_at: str
    sequence: int | None = None


@dataclass(frozen=True, slots=True)
class Holding:
    """The holding and spending of each of so many sessions of one owner; as of one session also sums over several.
    Fewer than none are taken off a sum that has them.
    """

    owner: str
    reserved: str
    spent: str
    reserved_pure: str | None
    spent_pure: str | None
    sessions: int


class Transaction(Protocol):
    """Reads and writes that become visible together."""

    @property
    def name(self) -> str | None:
        """The database's name of it, once it holds a session's row; None where no other process writes."""

    def commit(self) -> None:
        """Make everything durable; an exception means it may or may not have happened: see :meth:`happened`."""

    def together(self) -> AbstractContextManager[Any]:
        """Within it writes and the commit need not be done one by one; at its end they are, or it raises."""

    def stay(self) -> None:
        """Tell from time to time, in the midst of long work, that whoever holds this is alive."""

    # Pages hold what follows on ``after``, at most ``most`` rows and not many bytes of them, and whether there is more.

    # principals
    def principal(self, name: str) -> PrincipalRow | None: ...
    def principal_by_key(self, key_id: str) -> PrincipalRow | None: ...
    def principals(self) -> list[PrincipalRow]: ...
    def principals_page(self, after: str, most: int) -> tuple[list[PrincipalRow], bool]: ...
    def add_principal(self, row: PrincipalRow) -> None: ...
    def set_key(self, name: str, key_id: str, key_hash: str) -> None: ...
    def revoke_principal(self, name: str, at: str) -> None: ...

    # log-ins of browsers
    def login(self, id: str) -> LoginRow | None: ...
    def logins(self, principal: str) -> list[LoginRow]: ...
    def add_login(self, row: LoginRow) -> None: ...
    def use_login(self, id: str, at: str) -> None: ...
    def remove_logins(self, ids: Sequence[str]) -> None: ...
    def remove_old_logins(self, begun: str, used: str) -> int: ...

    # data sets
    def dataset(self, name: str, *, lock: bool = False) -> DatasetRow | None: ...
    def datasets(self) -> list[DatasetRow]: ...
    def datasets_page(self, after: str, most: int) -> tuple[list[DatasetRow], bool]: ...
    def dataset_names(self, *, retired: bool) -> list[str]: ...
    def vault_entries(self) -> dict[str, dict[str, str]]: ...
    def add_dataset(self, row: DatasetRow) -> None: ...
    def count_race(self, name: str) -> None: ...
    def set_bought(self, name: str, bought: dict[str, dict[str, float]]) -> None: ...
    def forfeit_dataset(self, row: DatasetRow) -> None: ...
    def set_impure(self, name: str) -> None: ...
    def set_vault_entry(self, name: str, entry: dict[str, str]) -> None: ...
    def set_revealed_to(self, name: str, principals: Sequence[str]) -> None: ...
    def retire_dataset(self, name: str, at: str) -> None: ...
    def grant(self, dataset: str, principal: str) -> str | None: ...
    def set_grant(self, dataset: str, principal: str, epsilon: str) -> None: ...
    def grants(self, dataset: str) -> dict[str, str]: ...
    def grants_of(self, principal: str) -> dict[str, str]: ...
    def passed(self, dataset: str) -> list[Holding]: ...
    def every(self, dataset: str) -> list[Holding]: ...
    def taken(self, dataset: str) -> list[Holding]: ...
    def standing(self, dataset: str) -> list[Holding]: ...
    def to_settle(self, dataset: str, most: int) -> dict[str, Holding]: ...
    def stand(self, dataset: str, sums: Sequence[Holding], settled: Iterable[str]) -> None: ...

    # sessions
    def session(self, id: str) -> SessionRow | None: ...
    def lock_sessions(
        self, ids: Sequence[str], known: Mapping[str, SessionRow] = NONE_KNOWN, seconds: float | None = None
    ) -> dict[str, SessionRow]: ...
    def happened(self, name: str) -> bool: ...
    def existing_sessions(self, ids: Sequence[str]) -> set[str]: ...
    def sessions_page(
        self, owner: str | None, after: SessionRow | None, most: int, dataset: str | None = None
    ) -> tuple[list[SessionRow], bool]: ...
    def newest_sessions(
        self, owner: str, before: SessionRow | None, most: int, dataset: str | None, *, open: bool
    ) -> list[SessionRow]: ...
    def datasets_of(self, owner: str) -> set[str]: ...
    def open_in(self, dataset: str) -> list[str]: ...
    def open_page(self, after: SessionRow | None, most: int) -> tuple[list[SessionRow], bool]: ...
    def count_open(self) -> int: ...
    def last_opened_in(self, dataset: str) -> str: ...
    def open_sessions(self, ids: Sequence[str]) -> set[str]: ...
    def closing_times(self, ids: Sequence[str]) -> dict[str, str]: ...
    def add_session(self, row: SessionRow, counted: Holding | None = None) -> None: ...
    def move_sessions(self, rows: Sequence[SessionRow]) -> None: ...
    def append(self, entries: Sequence[EntryRow], weights: Sequence[WeightsRow]) -> None: ...
    def known_entries(self, session: str, after: int) -> KnownEntries: ...
    def latest_entries(self, spans: Mapping[str, tuple[int, int]]) -> dict[str, tuple[KnownEntries, bytes]]: ...
    def entry_lines(self, session: str, after: int, most: int) -> list[tuple[int, bytes]]: ...
    def blobs(self, session: str, names: Iterable[str]) -> dict[str, bytes]: ...
    def count_entries(self, session: str, after: int, last: int) -> Mapping[EntryKind, int]: ...
    def measurements(self, session: str, after: int, last: int) -> list[tuple[int, bytes, bytes]]: ...
    def transcript_page(
        self, session: str, after: int, last: int
    ) -> list[tuple[int, bytes, list[tuple[str, bytes]]]]: ...

    # evidence
    def add_evidence(self, rows: Sequence[EvidenceRow]) -> None: ...
    def evidence_of(self, session: str, after: int, last: int) -> dict[int, bytes]: ...
    def evidence_named(self, dataset: str, names: Sequence[str]) -> dict[str, bytes]: ...
    def evidence_row(self, dataset: str, name: str) -> EvidenceRow | None: ...
    def shared_evidence(self, dataset: str, most_bytes: int) -> list[str]: ...
    def count_evidence(self, dataset: str, *, shared: bool) -> int: ...
    def evidence_page(self, dataset: str, after: int, most: int) -> tuple[list[tuple[int, EvidenceRow]], bool]: ...

    # releases
    def add_release(self, row: ReleaseRow) -> None: ...
    def release(self, id: str) -> ReleaseRow | None: ...
    def releases_page(
        self, owner: str | None, after: ReleaseRow | None, most: int
    ) -> tuple[list[ReleaseRow], bool]: ...
    def releases_in(self, dataset: str) -> list[str]: ...
    def count_releases(self) -> Mapping[ReleaseStatus, int]: ...
    def next_release(
        self, silent_since: float, most_seconds: float = math.inf, ahead: float = math.inf
    ) -> str | None: ...
    def claim_release(
        self,
        worker: str,
        now: float,
        silent_since: float,
        most_seconds: float = math.inf,
        ahead: float = math.inf,
    ) -> ReleaseRow | None: ...
    def orphan_releases(self) -> None: ...
    def move_release(self, row: ReleaseRow, before: ReleaseRow) -> bool: ...
    def add_release_files(self, files: Sequence[ReleaseFile]) -> None: ...
    def release_file(self, id: str, name: str) -> ReleaseFile | None: ...

    # ledger and replies
    def move_ledger(self, rows: Sequence[LedgerRow]) -> None: ...
    def ledger_page(self, dataset: str, after: int, most: int) -> tuple[list[tuple[int, LedgerRow]], bool]: ...
    def has_moved(self, dataset: str) -> bool: ...
    def holdings(self, dataset: str) -> list[Holding]: ...
    def summed(self, dataset: str) -> list[Holding]: ...
    def summed_to(self) -> int: ...
    def unsummed(self, last: int, most: int) -> tuple[int, dict[str, list[Holding]]] | None: ...
    def sum_up(self, last: int, sums: Mapping[str, Iterable[Holding]]) -> None: ...
    def replies(self, names: Sequence[ReplyName]) -> dict[ReplyName, ReplyRow]: ...
    def add_replies(self, rows: Sequence[ReplyRow]) -> None: ...
    def reply_telling(self, principal: str, routes: Sequence[str], sequence: int) -> bytes | None: ...
    def reply_names(self, after: ReplyName, most: int) -> list[tuple[ReplyName, bytes | None]]: ...
    def remove_replies(self, names: Sequence[ReplyName]) -> None: ...

    # the log
    def add_event(self, line: bytes) -> None:
        """Tell the log what became of a principal or a data set, in the transaction in which it does."""


class Store(Protocol):
    """Where everything public is kept."""

    #: Whether this process is the only one that writes, so that what it remembers of a row is the row.
    exclusive: bool

    def read(self) -> AbstractContextManager[Transaction]:
        """A consistent view; nothing is written."""

    def write(self) -> AbstractContextManager[Transaction]:
        """Reads and writes; left without :meth:`Transaction.commit`, nothing has happened."""

    def ping(self) -> None:
        """Raise when the database cannot be reached."""


class StoreConflict(Exception):
    """A row with this key exists."""


class StoreHeld(Exception):
    """Somebody else holds what was asked for, and has held it for as long as it is waited for."""


@dataclass(frozen=True, slots=True)
class Upload:
    """A declared data set with its private numbers, parsed and checked. ``file`` is what a commitment is made of;
    ``data`` is opaque here, as is ``contents``, by which the store knows it again. ``report`` is of a table: how many
    records were read, kept, dropped and clamped, and which of its attributes was the reason how often. ``connection``
    is that of records that are asked later.
    """

    spec: Spec
    mass: float
    file: FileDigest = field(repr=False)
    data: Any = field(repr=False)
    contents: Mapping[str, bytes] = field(repr=False)
    report: Mapping[str, Any] | None = field(default=None, repr=False)
    connection: str | None = None


class PrivateStore(Protocol):
    """Where private arrays are kept."""

    def read_upload(self, spec: Spec, filename: str, path: Path) -> Upload:
        """Parse an uploaded file. Raises InvalidDataset."""

    def count_source(self, spec: TableSpec) -> Upload:
        """Count the files that a declaration names. Raises InvalidDataset."""

    def columns(self, filename: str, path: Path, layout: Layout) -> tuple[str, ...] | None:
        """Names of the columns of a table's file; None for an array. Raises InvalidDataset."""

    def summarise(self, filename: str, path: Path, layout: Layout) -> tuple[ColumnSummary, ...]:
        """Summaries of the columns that the layout names in a table's file, for a draft. Raises InvalidDataset."""

    def registration(self) -> AbstractContextManager[None]:
        """Held from before :meth:`put` until the row that names the file is committed."""

    def put(self, name: str, upload: Upload, key: bytes | None = None) -> dict[str, str]:
        """Keep the numbers durably, and with them the key of a commitment; the entry goes into the data set's row."""

    def commitment_key(self, entry: dict[str, str]) -> bytes | None:
        """The key that was kept with the numbers, which are verified; None where there was none. Raises Unavailable."""

    def alike(self, upload: Upload, entry: dict[str, str]) -> bool:
        """Whether an entry was made of the same file or holds the same numbers, its own file gone or not."""

    def counts(self, space: Space, entry: dict[str, str]) -> RegisteredCounts:
        """The private numbers, verified: they are told while the entry's file is what was kept. Raises Unavailable."""

    def check(self, entry: dict[str, str]) -> None:
        """Raise Unavailable when a file is missing or is not what was kept, whatever of it is in memory."""

    def forget(self, entry: dict[str, str]) -> None:
        """Drop what is held in memory of a file."""

    def destroy(self, entry: dict[str, str]) -> None:
        """Remove the file for good."""

    def sweep(self, known: Callable[[], Iterable[str]]) -> None:
        """Remove files that no committed row names."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A session's public state at one of its entries: JSON, and named arrays of numbers, of every layout in memory."""

    facts: dict[str, Any]
    arrays: dict[str, Array] = field(repr=False)


class Snapshots(Protocol):
    """A cache of sessions' states. Whatever it does not give back whole, or lost, it never had: nothing here raises."""

    def write(self, session: str, snapshot: Snapshot) -> None:
        """Keep a state in place of the session's former one."""

    def read(self, session: str) -> Snapshot | None:
        """The state kept last, its arrays the caller's own; None where there is none that is whole."""

    def remove(self, session: str) -> None:
        """Forget a session's state."""

    def sessions(self) -> list[str]:
        """Whose states are kept."""


class NoisePort(Protocol):
    """Draws integer noise for a session."""

    def laplace(self, scale: Any, ahead: int = ...) -> Any:
        """A source of discrete Laplace noise of this exact scale in grid units: ``take(n)``, ``low``, ``refill()``.

        ``ahead`` is how many values are drawn at a time.
        """

    def gaussian(self, scale: Any, ahead: int = ...) -> Any:
        """The same of discrete Gaussian noise."""

    def flips(self, probability: Any) -> Any:
        """A source of bits that are 1 with this exact probability: ``take(n)``, an array of 0 and 1."""

    def poisson(self, mean: Any, cut: int) -> Any:
        """A source of secret counts for races: ``take()``."""

    def choose(self, scores: IntArray, scale: Any) -> int:
        """The exponential mechanism: an index, with probability proportional to exp(score/scale), exact scale."""


class Clock(Protocol):
    """The time as the records keep it, no finer than a second: what work on private data took must not show in it."""

    def __call__(self) -> str:
        """UTC, RFC 3339, whole seconds."""
