"""One query: decided, played if a round is due, and recorded, in memory and in the work of its group.

:meth:`Rounds.answer` is a round from its beginning to its end. Everything before the noise may refuse and leaves no
trace; from the noise on the round counts, whatever happens (docs/privacy.md).
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import orjson

from app.audit import records
from app.curator.mechanisms import Answer, Measure, Test
from app.curator.oqr import Hit, Miss, play, race
from app.services import spending
from app.services.answering.work import LaneContext, Work
from app.services.errors import PayloadTooLarge
from app.services.ports import EntryRow, SessionRow, WeightsRow
from app.services.query_bodies import compiled
from app.services.residents import Live, Residents
from app.services.sessions import session_view
from app.spaces.errors import CuratorError, InvalidQuery
from app.spaces.query import Query

#: Longest canonical form, or dense weights, of a query that is answered: what no database gives back cannot be
#: recorded. SQLite has rows of up to a billion bytes; PostgreSQL sends bytes as twice as many digits, of which it makes
#: a gigabyte at most.
RECORD_BYTES = 500_000_000


class _Unfinished(Exception):
    """A refusal that came after the noise: from there on it is an error like any other, and charged."""


class Rounds:
    """Answers queries of the sessions in a lane's memory.

    Args:
        context: what all lanes work with.
        residents: the lane's sessions in memory.
    """

    def __init__(self, context: LaneContext, residents: Residents) -> None:
        self._context, self._residents = context, residents

    def try_answer(self, live: Live, asked: Any, work: Work) -> dict[str, Any]:
        """One answer of a batch, or the refusal that stands in its place."""
        try:
            return self.answer(live, asked, work)
        except CuratorError as error:
            return self._context.render(error)

    def answer(self, live: Live, asked: Any, work: Work) -> dict[str, Any]:
        """One answer: decided, played if a round is due, and recorded in memory and in the work.

        Raises:
            CuratorError: when the query is refused; nothing was drawn, and nothing is recorded.
        """
        session = live.session
        query, unverified = compiled(session.dataset.space, asked)
        if max(len(query.canonical_bytes), len(query.blob or b"")) > RECORD_BYTES:
            raise PayloadTooLarge(f"a query may take at most {RECORD_BYTES:,} bytes of records", limit=RECORD_BYTES)
        work.base.setdefault(live.row.id, live.row)
        due = session.consider(query, unverified=unverified)
        price = None
        if not isinstance(due, Answer):
            exact = query.exact(live.data)
            if not isinstance(exact, int):
                raise InvalidQuery("this session answers one sum at a time")
            private = session.dataset.space.to_answer_grid(exact, query)
            self._residents.make_ready(live, query)
        try:
            if not isinstance(due, Answer):
                # From here on the round counts, whatever happens to the request.
                work.rounds.setdefault(live.row.id, []).append(due.terms.price)
                outcome = self._play(live, due, private)
                if isinstance(outcome, Hit):
                    price = due.terms.price
                released = np.array([outcome.value], np.int64)
                due = Answer(released, "hypothesis" if price is None else "measurement", due.error_bound)
            return self._record(live, query, due, price, work)
        except CuratorError as error:
            raise _Unfinished from error

    def _play(self, live: Live, due: Test | Measure, private: int) -> Hit | Miss:
        """Take noise and play."""
        source = self._residents.noise(live, due.terms.noise)
        outcome: Hit | Miss
        if isinstance(due, Measure):
            outcome = Hit(private + int(source.take(1)[0]))
        elif due.race is None:
            outcome = play(int(due.hypothesis[0]), private, int(source.take(1)[0]), due.threshold)
        else:
            noise, count = source.take(due.race.cut), self._residents.count(live, due.race)
            outcome = race(int(due.hypothesis[0]), private, noise, count, due.threshold)
        if source.low:
            self._context.refill(source)
        return outcome

    def _record(self, live: Live, query: Query, answer: Answer, price: Decimal | None, work: Work) -> dict[str, Any]:
        """Take an answer into the session's state and into the work; ``price`` is what it costs. The reply."""
        session, row = live.session, live.row
        now = live.recorded_at = max(work.now, live.recorded_at)
        sequence = row.sequence + 1
        (units,) = answer.units
        value = session.real(int(units))
        sealed = records.answer_entry(
            sequence=sequence,
            query=query.canonical_bytes,
            value=value,
            source=answer.source,
            error_bound=answer.error_bound,
            unverified=answer.unverified,
            recorded_at=now,
            previous_hash=row.head_hash,
        )
        self._residents.record(live, query, answer)
        share = None
        if price is not None:
            share, movement = spending.charge(row, price, sequence, now)
            work.ledger.append(movement)
        kind = "unverified" if answer.unverified else answer.source
        work.entries.append(
            EntryRow(row.id, sequence, kind, query.digest, answer.units.tobytes(), answer.error_bound, sealed.line)
        )
        if query.blob is not None and answer.source != "cached":
            self._keep_weights(live, query, sequence, work)
        live.row = work.rows[row.id] = row.after(
            sequence, session.queries_asked, session.updates_used, share, sealed.entry_hash
        )
        work.sources.append(kind)
        view = {
            "sequence": sequence,
            "value": value,
            "source": answer.source,
            "error_bound": answer.error_bound,
            "beta": session.plan.beta,
            "standard_error": session.standard_error(query),
            "charged_epsilon": spending.charged_epsilon(session.plan, price),
            "updates_used": session.updates_used,
            "updates_left": session.updates_left,
            "queries_left": session.queries_left,
            "entry_hash": sealed.entry_hash,
        }
        if answer.unverified:
            view |= {"unverified": True, "unverified_left": session.unverified_left}
        return view

    def _keep_weights(self, live: Live, query: Query, sequence: int, work: Work) -> None:
        """Store dense weights once a session, beside the first entry that names them."""
        name = query.canonical["sha256"]
        if any(w.session == live.row.id and w.sha256 == name for w in work.weights):
            return
        with self._context.store.read() as tx:
            if tx.blobs(live.row.id, [name]):
                return
        assert query.blob is not None
        work.weights.append(WeightsRow(live.row.id, name, sequence, query.blob))

    def close(self, row: SessionRow, work: Work) -> bytes:
        """Close a session; the reply."""
        work.base.setdefault(row.id, row)
        closed, movement = spending.end(row, work.now)
        work.rows[row.id] = closed
        work.ledger.append(movement)
        self._residents.end(row.id)
        return orjson.dumps(session_view(closed))
