"""Sessions of evidence that are played in memory by hand, with injected noise: measured at the opening, asked, measured
again. Their transcripts are what the service would have written.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from app.audit import writing
from app.audit.replay import Verdict, replay
from app.curator.dataset import PublicDataset
from app.curator.mechanisms.protocol import Answer, Buy, Measured, Target, Units
from app.curator.opening import Opening, Pins
from app.curator.planning import make_plan
from app.curator.request import parse_request
from app.curator.session import Session
from app.privacy.ledger import NOTHING, Amounts
from app.services.measuring import measured_all
from app.spaces.counts import ExactCounts
from app.spaces.queries.registry import from_canonical, parse_query
from app.spaces.query import Query
from curator_client.proofs import records
from tests.kit.forger import Document
from tests.kit.noise import Seeded

AT = "2026-01-01T00:00:00Z"
#: A session that measured before.
OTHER = "b4"


class Playing:
    """One session and its transcript, line by line. Who plays says what is measured, and with which noise."""

    session: Session
    lines: list[bytes]
    head: str
    learnt: writing.HypothesisDigest

    def open(self, dataset: PublicDataset, words: Document, known: tuple[bytes, ...] = ()) -> None:
        """Open it, with what others measured, and measure what is due."""
        request = parse_request({"mechanism": {"construction": "evidence"}, **words})
        plan = make_plan(dataset, request)
        pins = Pins(tuple(map(records.sha256, known)), ())
        session = Session(Opening(dataset, request, plan, None, pins))
        for line in known:
            session.pin(replace(Measured.read(json.loads(line)), price=NOTHING))
        made = []
        for measured in self.at_opening(session):
            made.append(self.record(measured, 0))
            session.pin(measured)
        opening = Opening(dataset, request, plan, None, Pins(pins.known, tuple(map(records.sha256, made))))
        header = writing.header(session="e1d2", opening=opening.document(), opened_at=AT)
        self.session, self.lines = session, [header]
        self.head, self.learnt = records.sha256(header), writing.HypothesisDigest(opening.document())
        self.begin(opening)
        for line in (*known, *made):
            self.add(line)

    def begin(self, opening: Opening) -> None:
        """What is to be done before the first line after the header."""

    def at_opening(self, session: Session) -> Iterable[Measured]:
        """What is due at the opening, measured."""
        raise NotImplementedError

    def drawn_for(self, query: Query, due: Buy) -> Units:
        """What is due for a question, measured."""
        raise NotImplementedError

    def add(self, line: bytes) -> None:
        """Write a line."""
        self.lines.append(line)

    @staticmethod
    def record(measured: Measured, sequence: int, session: str = "e1d2") -> bytes:
        return writing.measurement_record(
            session=session, sequence=sequence, measured=measured.document(), recorded_at=AT
        )

    def ask(self, words: Document, **target: Any) -> Answer:
        """Ask as the service does; the answer."""
        session, asked = self.session, Target(**target)
        query = parse_query(words).compiled(session.dataset.space)
        due = session.consider(query, target=asked)
        name, sequence = None, session.sequence + 1
        if isinstance(due, Buy):
            due = session.apply(query, due, self.drawn_for(query, due))
            assert due.measured is not None
            line = self.record(due.measured, sequence)
            name = records.sha256(line)
            self.add(line)
        assert isinstance(due, Answer)
        sealed = writing.answer_entry(
            sequence=sequence,
            query=query.canonical_bytes,
            values=session.values(query, due.units),
            source=due.source,
            error_bound=due.error_bound,
            unverified=False,
            recorded_at=AT,
            previous_hash=self.head,
            measurement=name,
            target=asked.document(),
            asked=writing.words(words),
        )
        session.record(query, due)
        self.add(sealed.line)
        self.learnt.take(sealed.line)
        self.head = sealed.entry_hash
        return due

    def forfeit(self, price: Amounts) -> None:
        """A round that was begun and could not be recorded."""
        self.session.forfeit(price)
        sealed = writing.forfeit_entry(
            sequence=self.session.sequence, recorded_at=AT, previous_hash=self.head, price=price.document()
        )
        self.add(sealed.line)
        self.head = sealed.entry_hash

    def transcript(self) -> list[bytes]:
        trailer = writing.trailer(
            entries=self.session.sequence,
            head_hash=self.head,
            hypothesis_digest=self.learnt.hexdigest(),
            updates=self.session.updates_used,
            status="open",
        )
        return [*self.lines, trailer]


def of_another(lines: Iterable[bytes]) -> tuple[bytes, ...]:
    """The records of what a session measured, as if another one had."""
    told = (json.loads(line) for line in lines if b'"record":"measurement"' in line)
    return tuple(Playing.record(Measured.read(each), each["sequence"], OTHER) for each in told)


class PlayingGraphs(Playing):
    """One on a graph or a matrix, of these cells, with noise from a seed."""

    cells: ExactCounts
    drawn: Seeded

    def at_opening(self, session: Session) -> Iterable[Measured]:
        return measured_all(self.drawn, session.dataset.space, self.cells, session.purchases())  # type: ignore[arg-type]

    def drawn_for(self, query: Query, due: Buy) -> Units:
        exact = np.atleast_1d(self.session.dataset.space.to_answer_grid(query.exact(self.cells), query))
        return due.purchase.strategy.released(exact, due.purchase.noise, self.drawn)


class Told:
    """A session that is told the records of another one, line by line behind the header, as one that is loaded anew or
    followed by another process is.
    """

    def __init__(self, opening: Opening) -> None:
        self.session = Session(opening)
        self._waiting: Measured | None = None

    def take(self, line: bytes) -> None:
        """Take in a record."""
        record, session = json.loads(line), self.session
        if record["record"] == "measurement":
            measured = Measured.read(record)
            if record["sequence"] == 0:
                session.pin(measured)
            else:
                self._waiting = measured
        elif record["record"] == "forfeit":
            session.forfeit(Amounts.read(record["price"]))
        elif record["source"] == "cached":
            session.skip(cached=1)
        else:
            query = from_canonical(session.dataset.space, record["query"], {})
            units = session.units(query, records.values_of(record))
            session.record(query, Answer(units, record["source"], None, measured=self._waiting), read=True)
            self._waiting = None


def judged(lines: list[bytes]) -> Verdict:
    return replay(line + b"\n" for line in lines)
