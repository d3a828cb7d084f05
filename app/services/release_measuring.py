"""What is measured for a release, made and recorded: what its plan names at once, then what its rounds come to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from app.audit import writing
from app.curator.mechanisms.protocol import Measured
from app.curator.opening import Opening
from app.curator.planners.workload import WorkloadPlan
from app.curator.session import Session
from app.measurements.record import Measurement
from app.measurements.strategy import Strategy, exact_values
from app.patience import Progress
from app.privacy.ledger import total
from app.releases.playing import Begin
from app.services import spending
from app.services.errors import NotFound
from app.services.loading import pin_all
from app.services.measuring import evidence_row, measured_all
from app.services.openings import opening_of
from app.services.ports import EntryRow, NoisePort, PrivateStore, ReleaseRow, SessionRow, Store, Transaction
from app.spaces.counts import CountedFirst, ExactCounts, NotCounted
from app.spaces.space import Space


@dataclass(frozen=True)
class Ready:
    """All that measuring needs: the opening of a release, what was measured before, and the private numbers."""

    opening: Opening
    known: Sequence[Measurement[Strategy]]
    data: ExactCounts = field(repr=False)


def ready(store: Store, private: PrivateStore, row: ReleaseRow, wait: Callable[[NotCounted], None]) -> Ready:
    """All that is needed to measure for a release; of the private numbers nothing is computed yet. Records that stay
    where they are have been counted, which may take minutes.

    Args:
        store: has the release and its data set.
        private: has the private numbers.
        row: of the release.
        wait: has numbers counted that are not yet, and returns then.

    Raises:
        NotFound: when the data set is retired.
        Unavailable: when records cannot be counted.
    """
    with store.read() as tx:
        session, dataset = tx.session(row.id), tx.dataset(row.dataset)
        assert session is not None
        assert dataset is not None
        if dataset.retired_at is not None:
            raise NotFound("the data set was retired before anything was measured")
        opening = opening_of(session.header)
        known = [each.measurement for each in pin_all(tx, row.dataset, Session(opening))]
    space, plan = opening.dataset.space, opening.plan
    assert isinstance(plan, WorkloadPlan)
    data = CountedFirst(private.counts(space, dataset.vault_entry), wait)
    data.tell([tally for buy in plan.buys for tally in buy.strategy.tallies(space)])
    return Ready(opening, known, data)


def measured_for(of: Ready, noise: NoisePort, progress: Progress = lambda part: None) -> list[Measured]:
    """Make all measurements of a release, in their order.

    Args:
        of: what is needed for them.
        noise: of choices and measurements.
        progress: told from time to time.
    """
    dataset, plan = of.opening.dataset, of.opening.plan
    assert isinstance(plan, WorkloadPlan)
    made = measured_all(noise, dataset.space, of.data, plan.buys)
    bought = [each.measurement for each in made]
    rounds = plan.rounds(dataset, of.opening.request, of.known, bought, progress)
    return made if rounds is None else made + play(rounds, dataset.space, of.data, noise)


def play(rounds: Begin, space: Space, data: ExactCounts, noise: NoisePort) -> list[Measured]:
    """Make the measurements of all rounds, in their order.

    Args:
        rounds: begins a play of them.
        space: that they are of.
        data: the private numbers.
        noise: of choices and measurements.
    """
    played = rounds(lambda strategies: list(exact_values(strategies, space, data)), noise.choose)
    made: list[Measured] = []
    due = next(played, None)
    while due is not None:
        made += measured_all(noise, space, data, [due])
        try:
            due = played.send(made[-1].measurement)
        except StopIteration:
            due = None
    return made


def record(tx: Transaction, session: SessionRow, made: Sequence[Measured], now: str) -> None:
    """Record what was measured: an entry each, one charge for all of them, and the end of the session."""
    opening, head = opening_of(session.header), session.head_hash
    entries, evidence = [], []
    for sequence, measured in enumerate(made, start=1):
        row = evidence_row(opening, session.dataset, session.id, sequence, measured, now)
        sealed = writing.release_entry(sequence=sequence, recorded_at=now, previous_hash=head, measurement=row.sha256)
        evidence.append(row)
        entries.append(EntryRow(session.id, sequence, "release", None, None, None, sealed.line))
        head = sealed.entry_hash
    movements = []
    if made:
        share, charged = spending.charge(session, total(each.price for each in made), len(made), now)
        session = session.after(len(made), 0, len(made), share, head)
        movements.append(charged)
    closed, returned = spending.end(session, now)
    tx.add_evidence(evidence)
    tx.append(entries, [])
    tx.move_sessions([closed])
    tx.move_ledger([*movements, returned])
