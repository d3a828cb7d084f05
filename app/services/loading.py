"""A session's state from its transcript, and from a snapshot where there is one.

Snapshots are caches: what they hold follows from transcripts. One is used only if it is of this session's header and
stands on an entry of this session's transcript, and if what is taken in from there ends with the counters of the
session's row; else the transcript is read from its start. So a snapshot that is lost, damaged, old, or another
session's costs time and nothing else. One that was made up and fits all the same would be believed: the folder is
trusted as the database is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import orjson
import structlog

from app.constructions.dumps import Dump
from app.curator.mechanisms.protocol import Answer, Measured
from app.curator.opening import Opening
from app.curator.session import Session, units_of
from app.privacy.ledger import NOTHING, Amounts
from app.services.openings import opening_of, own_records
from app.services.ports import KnownEntries, SessionRow, Snapshot, Snapshots, Store, Transaction
from app.spaces.queries.registry import from_canonical
from app.spaces.query import Blobs
from curator_client.proofs import records

logger = structlog.get_logger(__name__)

#: What a snapshot holds and how; another is not read.
FORMAT = 2
_PAGE = 500


@dataclass(frozen=True, slots=True)
class Loaded:
    """A session's state up to its row's counters.

    Attributes:
        session: the session.
        kept: the entry that the snapshot stood on; 0 where none was used.
        seconds: how long its updates after that took.
    """

    session: Session
    kept: int
    seconds: float


@own_records()
def load_session(tx: Transaction, row: SessionRow) -> Loaded:
    """A session from its transcript alone."""
    session = Session(opening_of(row.header))
    if session.opening.evidence is not None:
        pin_all(tx, row.dataset, session)
        return Loaded(session, session.sequence, follow(tx, row.id, session))
    return _caught_up(tx, row, session)


@own_records()
def resume_session(tx: Transaction, row: SessionRow, snapshots: Snapshots) -> Loaded:
    """A session from its snapshot and the entries since, where that can be done."""
    snapshot = snapshots.read(row.id)
    if snapshot is not None:
        try:
            found = _resume(tx, row, snapshot)
        except (LookupError, TypeError, ValueError, ArithmeticError) as error:
            logger.warning("a snapshot does not fit its session and is not used", error=type(error).__name__)
            found = None
        if found is not None:
            return found
        del snapshot
    return load_session(tx, row)


def _caught_up(tx: Transaction, row: SessionRow, session: Session) -> Loaded:
    kept = session.sequence
    return Loaded(session, kept, take_in(tx, row.id, session, tx.known_entries(row.id, kept)))


def _resume(tx: Transaction, row: SessionRow, snapshot: Snapshot) -> Loaded | None:
    if not _fits(tx, row, snapshot):
        return None
    loaded = _caught_up(tx, row, Session(opening_of(row.header), state=_dump_of(snapshot)))
    return loaded if _reached(loaded.session, row) else None


@own_records()
def look(
    store: Store, row: SessionRow, opening: Opening, snapshot: Snapshot | None, check: Callable[[], None]
) -> Session:
    """A session to look at: its hypothesis and counters are those of its row, and it knows no answers but a snapshot's.

    Updates take as long as they took: no transaction is open meanwhile.

    Args:
        opening: what the row's header says.
        snapshot: of the session, where one may be used.
        check: called before each update; what it raises ends the work.
    """
    if snapshot is not None:
        try:
            with store.read() as tx:
                fits = _fits(tx, row, snapshot)
            session = _follow(store, row, Session(opening, state=_dump_of(snapshot)), check) if fits else None
            if session is not None and _reached(session, row):
                return session
        except (LookupError, TypeError, ValueError, ArithmeticError) as error:
            logger.warning("a snapshot does not fit its session and is not used", error=type(error).__name__)
        del snapshot
    return _follow(store, row, Session(opening), check)


def _follow(store: Store, row: SessionRow, session: Session, check: Callable[[], None]) -> Session:
    """Bring a session that is only looked at to its row."""
    space, after = session.dataset.space, session.sequence
    with store.read() as tx:
        counts = tx.count_entries(row.id, after, row.sequence)
    session.pass_over(counts["hypothesis"] + counts["measurement"])
    session.skip(cached=counts["cached"], unverified=counts["unverified"])
    for _ in range(counts["forfeit"]):
        session.forfeit()
    while True:
        with store.read() as tx:
            page = tx.measurements(row.id, after, row.sequence)
        if not page:
            return session
        for sequence, units, line in page:
            check()
            form, blobs = orjson.loads(line)["query"], {}
            if "sha256" in form:
                with store.read() as tx:
                    blobs = tx.blobs(row.id, [form["sha256"]])
            session.learn(from_canonical(space, form, blobs), units_of(units))
            after = sequence


def _fits(tx: Transaction, row: SessionRow, snapshot: Snapshot) -> bool:
    """Whether a snapshot is of this session, on an entry of its transcript."""
    facts = snapshot.facts
    if facts["format"] != FORMAT or facts["header"] != records.sha256(row.header):
        return False
    return _stands(tx, row, facts["words"]["sequence"], facts["head_hash"])


def _dump_of(snapshot: Snapshot) -> Dump:
    return Dump(snapshot.arrays, snapshot.facts["words"])


def _reached(session: Session, row: SessionRow) -> bool:
    reached = session.sequence, session.queries_asked, session.updates_used
    return reached == (row.sequence, row.queries_asked, row.updates_used)


def _stands(tx: Transaction, row: SessionRow, sequence: int, head_hash: str) -> bool:
    """Whether the session's entry of this number has this hash."""
    if sequence == row.sequence:
        return head_hash == row.head_hash
    if not 0 < sequence < row.sequence:
        return False
    lines = tx.entry_lines(row.id, sequence - 1, 1)
    return [(n, orjson.loads(line)["entry_hash"]) for n, line in lines] == [(sequence, head_hash)]


def take_in(tx: Transaction, id: str, session: Session, known: KnownEntries) -> float:
    """Take in entries that follow on those a session has seen.

    What an answer was and what it taught are apart from one another, so all answers are taken in at once.

    Returns:
        How long the updates took, in seconds, without reading what they learn from.
    """
    space, seconds = session.dataset.space, 0.0
    session.recall_all(known.answers)
    session.skip(cached=known.cached, unverified=known.unverified)
    for _ in range(known.forfeits):
        session.forfeit()
    for units, line in known.measurements:
        tx.stay()
        form = orjson.loads(line)["query"]
        blobs = tx.blobs(id, [form["sha256"]]) if "sha256" in form else {}
        query = from_canonical(space, form, blobs)
        started = time.perf_counter()
        session.learn(query, units_of(units))
        seconds += time.perf_counter() - started
    return seconds


#: What stands before its time in a record, behind all that was measured.
_RECORDED = b'"recorded_at":"'


def youngest(lines: Iterable[bytes]) -> str:
    """When the last of some measurements was recorded, whoever's clock that was; empty for none."""
    told = (line.rpartition(_RECORDED)[2] for line in lines)
    return max((text[: text.index(b'"')].decode() for text in told), default="")


def pin_all(tx: Transaction, dataset: str, session: Session) -> list[Measured]:
    """Give a session the measurements that its opening names; those that were made before it."""
    pins = session.opening.evidence
    assert pins is not None
    return pin_lines(tx.evidence_named(dataset, [*pins.known, *pins.made]), session)


def pin_lines(lines: Mapping[str, bytes], session: Session) -> list[Measured]:
    """The same, from the records of these measurements by their hashes."""
    pins = session.opening.evidence
    assert pins is not None
    known = [Measured.read(orjson.loads(lines[name])) for name in pins.known]
    for measured in known:
        session.pin(replace(measured, price=NOTHING))
    for name in pins.made:
        session.pin(Measured.read(orjson.loads(lines[name])))
    return known


def follow(tx: Transaction, id: str, session: Session) -> float:
    """Take in the entries of an evidence session that follow on those it has seen, all of which it learns from.

    Returns:
        How long that took, in seconds, without reading.
    """
    seconds = 0.0
    while True:
        after = session.sequence
        lines = tx.entry_lines(id, after, _PAGE)
        if not lines:
            return seconds
        measured = tx.evidence_of(id, after, lines[-1][0])
        started = time.perf_counter()
        for sequence, line in lines:
            tx.stay()
            _take_entry(session, orjson.loads(line), measured.get(sequence), lambda name: tx.blobs(id, [name]))
        seconds += time.perf_counter() - started


def _take_entry(
    session: Session, record: dict[str, Any], measured: bytes | None, blobs: Callable[[str], Blobs]
) -> None:
    """Take in one entry of an evidence session, and the record of what was measured for it."""
    if record["record"] == "forfeit":
        session.forfeit(Amounts.read(record["price"]))
    elif record.get("unverified", False):
        session.skip(unverified=1)
    elif record["source"] == "cached":
        session.skip(cached=1)
    else:
        form = record["query"]
        weights = blobs(form["sha256"]) if "sha256" in form else {}
        query = from_canonical(session.dataset.space, form, weights)
        units = session.units(query, records.values_of(record))
        made = None if measured is None else Measured.read(orjson.loads(measured))
        tested = np.array(record["tested"], np.int64) if "tested" in record else None
        answer = Answer(units, record["source"], record["error_bound"], measured=made, tested=tested)
        session.record(query, answer, read=True)


def last_recorded(tx: Transaction, row: SessionRow) -> str:
    """When the newest record of a session's transcript was made. Times in a transcript never decrease, whatever clocks
    do: of one process when it is set back, of another process, or of the machine after a restart.
    """
    if not row.sequence:
        return row.opened_at
    ((_, line),) = tx.entry_lines(row.id, row.sequence - 1, 1)
    return time_of(line)


def time_of(line: bytes) -> str:
    """When a record was made."""
    return str(orjson.loads(line)["recorded_at"])


def keep_session(snapshots: Snapshots, row: SessionRow, session: Session) -> None:
    """Make the snapshot of a session whose state is that of its row, all of it committed."""
    dump = session.dump()
    facts = {"format": FORMAT, "header": records.sha256(row.header), "head_hash": row.head_hash, "words": dump.words}
    snapshots.write(row.id, Snapshot(facts, dump.arrays))


def sweep_snapshots(store: Store, snapshots: Snapshots) -> None:
    """Remove snapshots of sessions that are closed, as another process may have left them."""
    kept = snapshots.sessions()
    for start in range(0, len(kept), _PAGE):
        page = kept[start : start + _PAGE]
        with store.read() as tx:
            still_open = tx.open_sessions(page)
        for id in page:
            if id not in still_open:
                snapshots.remove(id)
