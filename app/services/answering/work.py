"""The work of a group of requests, to be written in one transaction; and the context of lanes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal, Protocol

from app.declarations.errors import CuratorError
from app.privacy.ledger import Amounts
from app.services.answering.aside import Aside
from app.services.answering.parked import Parked
from app.services.answering.tickets import Ticket
from app.services.ballast import Ballast
from app.services.errors import Unavailable
from app.services.ports import (
    Clock,
    EntryRow,
    EvidenceRow,
    LedgerRow,
    NoisePort,
    PrivateStore,
    ReplyName,
    ReplyRow,
    SessionRow,
    Snapshots,
    Store,
    Transaction,
    WeightsRow,
)
from app.services.tracing import Tracer
from app.spaces.counts import ExactCounts, NotCounted


class Meter(Protocol):
    """Counts what may be counted: public outcomes and durations."""

    def answered(self, source: str, number: int) -> None: ...
    def group(self, size: int, seconds: float) -> None: ...
    def commit_failed(self) -> None: ...
    def not_converged(self, what: Literal["answers"], number: int) -> None: ...


@dataclass(slots=True)
class LaneContext:
    """The context of all lanes.

    Attributes:
        render: a refusal as the document that a batch has in the place of an answer.
        deliver: called with requests that have their reply or error: tells those who sent them.
        leave: called with the same before that: they no longer wait.
        refill: called with a source of noise that runs low; it is filled up by another thread.
        aside: the threads that do what takes long.
        parked: waits for numbers that are yet to be counted.
        tracer: told where the time of requests went that are followed.
        spendable: refuses a data set of which nothing may be spent.
        admit: refuses a principal for whom too much was written that cost nothing.
        written: called with a principal and the bytes that were written for one such call of its.
    """

    store: Store
    private: PrivateStore
    noise: NoisePort
    snapshots: Snapshots
    clock: Clock
    meter: Meter
    render: Callable[[CuratorError], dict[str, Any]]
    deliver: Callable[[list[Ticket]], None]
    leave: Callable[[list[Ticket]], None]
    refill: Callable[[Any], None]
    aside: Aside
    parked: Parked
    tracer: Tracer
    spendable: Callable[[str], None] = lambda _: None
    admit: Callable[[str], None] = lambda _: None
    written: Callable[[str, int], None] = lambda *_: None


@dataclass(slots=True, eq=False)
class Work:
    """The work of a group of requests.

    Attributes:
        now: the one time of all records. It is taken before anything private is looked at: a clock that is read
            between two records tells how long the first one took.
        base: the rows of the sessions as they were found.
        rows: the rows of those that changed, as they are to become.
        rounds: what each round that was begun costs, should it be forfeited, by session.
        counts: the private numbers of each data set that was looked at in this turn, by its name; why they answer
            nothing where they are not what was registered.
        tried: the transactions by which it was tried to write this.
        done: the requests that have their reply or error.
        sources: where each answer came from, to be counted.
        unfitted: for each answer whose fit ended before its tolerance the session.
        parked: requests that wait for numbers, which are yet to be counted, and what counts them.
        ballast: memory that is held for it alone until it is written; None where the lane's serves.
        committing: when its last transaction began to be written and was, in seconds since 1970.
    """

    now: str
    base: dict[str, SessionRow] = field(default_factory=dict)
    rows: dict[str, SessionRow] = field(default_factory=dict)
    entries: list[EntryRow] = field(default_factory=list)
    weights: list[WeightsRow] = field(default_factory=list)
    evidence: list[EvidenceRow] = field(default_factory=list)
    ledger: list[LedgerRow] = field(default_factory=list)
    replies: dict[ReplyName, ReplyRow] = field(default_factory=dict)
    rounds: dict[str, list[Amounts]] = field(default_factory=dict)
    counts: dict[str, ExactCounts | Unavailable] = field(default_factory=dict)
    tried: list[str] = field(default_factory=list)
    done: list[Ticket] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    unfitted: list[str] = field(default_factory=list)
    parked: list[tuple[Ticket, NotCounted]] = field(default_factory=list)
    ballast: Ballast | None = None
    committing: tuple[float, float] | None = None

    @property
    def empty(self) -> bool:
        """Whether there is nothing to write."""
        return not self.rows and not self.replies

    @property
    def length(self) -> tuple[int, int, int]:
        """How many records there are."""
        return len(self.entries), len(self.weights), len(self.evidence)

    def size_beyond(self, length: tuple[int, int, int]) -> int:
        """The bytes of the records that came behind the first ones."""
        entries, weights, evidence = length
        return (
            sum(len(entry.line) + len(entry.units or b"") for entry in self.entries[entries:])
            + sum(len(each.data) for each in self.weights[weights:])
            + sum(len(each.line) for each in self.evidence[evidence:])
        )

    def store(self, tx: Transaction) -> None:
        """Put everything into a transaction and commit it."""
        if tx.name is not None:
            self.tried.append(tx.name)
        began = time.time()
        with tx.together():
            if self.entries:
                tx.append(self.entries, self.weights)
            if self.evidence:
                tx.add_evidence(self.evidence)
            if self.rows:
                tx.move_sessions(list(self.rows.values()))
            if self.ledger:
                tx.move_ledger(self.ledger)
            if self.replies:
                tx.add_replies(list(self.replies.values()))
            tx.commit()
        self.committing = began, time.time()

    def forget(self, session: str) -> None:
        """Take out everything of a session, but for the rounds that were begun."""
        self.rows.pop(session, None)
        self.entries = [entry for entry in self.entries if entry.session != session]
        self.weights = [weights for weights in self.weights if weights.session != session]
        self.evidence = [measured for measured in self.evidence if measured.session != session]
        self.ledger = [movement for movement in self.ledger if movement.session != session]


class Pause(Enum):
    """Where a request goes on that has paused: in the lane, or aside, as what is next takes long."""

    HERE = "here"
    ASIDE = "aside"


@dataclass(slots=True, eq=False)
class Paused:
    """A request between two slices.

    Attributes:
        ticket: the request, the only one of its group.
        steps: what its turn has still to do.
        behind: requests that wait for its session.
        away: whether it is aside.
    """

    ticket: Ticket
    steps: Iterator[Pause]
    behind: list[Ticket]
    away: bool = False


@dataclass(slots=True, eq=False)
class Parking:
    """A request that waits for numbers.

    Attributes:
        ticket: the request.
        behind: requests that wait for its session.
        error: why the numbers cannot be counted.
    """

    ticket: Ticket
    behind: list[Ticket]
    error: CuratorError | None = None
