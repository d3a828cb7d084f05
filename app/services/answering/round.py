"""One query: decided, played if a round is due, and recorded, in memory and in the work of its group.

:meth:`Rounds.answer` is a round from its beginning to its end. Everything before the noise may refuse and leaves no
trace; from the noise on the round counts, whatever happens (docs/privacy.md).
"""

from __future__ import annotations

from typing import Any

import orjson

from app.audit import records
from app.curator.oqr import Hit, Miss, play, race
from app.curator.session import Answer, RoundDue
from app.services import spending
from app.services.answering.work import Context, Work
from app.services.errors import PayloadTooLarge
from app.services.ports import EntryRow, SessionRow, WeightsRow
from app.services.query_request import compiled
from app.services.residents import Live, Residents
from app.services.sessions import session_view
from app.spaces.errors import CuratorError
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

    def __init__(self, context: Context, residents: Residents) -> None:
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
        private = 0
        if isinstance(due, RoundDue):
            private = session.dataset.space.to_answer_grid(query.exact(live.data), query)
            self._residents.make_ready(live, query)
        try:
            if isinstance(due, RoundDue):
                # From here on the round counts, whatever happens to the request.
                work.rounds.setdefault(live.row.id, []).append(live.cost)
                outcome = self._play(live, due.hypothesis, private)
                if live.noise.low:
                    self._context.refill(live.noise)
                hit = isinstance(outcome, Hit)
                answer = Answer(session.real(outcome.value), "measurement" if hit else "hypothesis", due.error_bound)
            else:
                answer = due
            return self._record(live, query, answer, work)
        except CuratorError as error:
            raise _Unfinished from error

    @staticmethod
    def _play(live: Live, hypothesis: int, private: int) -> Hit | Miss:
        """Take noise and play."""
        plan = live.session.plan
        if plan.race is None:
            return play(hypothesis, private, int(live.noise.take(1)[0]), plan.threshold_units)
        noise = live.noise.take(plan.race.cut)
        return race(hypothesis, private, noise, live.counts.take(), plan.threshold_units)

    def _record(self, live: Live, query: Query, answer: Answer, work: Work) -> dict[str, Any]:
        session, row = live.session, live.row
        now = live.recorded_at = max(work.now, live.recorded_at)
        sequence = row.sequence + 1
        sealed = records.answer_entry(
            sequence=sequence,
            query=query.canonical_bytes,
            value=answer.value,
            source=answer.source,
            error_bound=answer.error_bound,
            unverified=answer.unverified,
            recorded_at=now,
            previous_hash=row.head_hash,
        )
        self._residents.record(live, query, answer)
        share = None
        if answer.source == "measurement":
            share, movement = spending.charge(row, live.cost, sequence, now)
            work.ledger.append(movement)
        kind = "unverified" if answer.unverified else answer.source
        work.entries.append(
            EntryRow(row.id, sequence, kind, query.digest, answer.value, answer.error_bound, sealed.line)
        )
        if query.blob is not None and answer.source != "cached":
            self._keep_weights(live, query, sequence, work)
        live.row = work.rows[row.id] = row.moved(
            sequence, session.queries_asked, session.updates_used, share, sealed.entry_hash
        )
        work.sources.append(kind)
        view = {
            "sequence": sequence,
            "value": answer.value,
            "source": answer.source,
            "error_bound": answer.error_bound,
            "beta": session.plan.beta,
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
