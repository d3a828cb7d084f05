"""One query: decided, played if a round is due, and recorded, in memory and in the work of its group.

:meth:`Rounds.answer` is a round from its beginning to its end. Everything before the noise may refuse and leaves no
trace; from the noise on the round counts, whatever happens (docs/privacy.md).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson

from app.audit import writing
from app.curator.errors import PlanInfeasible
from app.curator.mechanisms.protocol import Answer, Buy, Due, MarginalTest, Measure, Source, Target, Units
from app.curator.mechanisms.round import Hit, Miss, play, play_marginal, race
from app.curator.plan import SessionPlan
from app.curator.session import Session
from app.declarations.errors import CuratorError
from app.privacy.ledger import Amounts
from app.services import spending
from app.services.answering.answer_view import answer_view
from app.services.answering.price_view import price_view
from app.services.answering.work import LaneContext, Work
from app.services.errors import PayloadTooLarge, Unavailable
from app.services.measuring import evidence_row
from app.services.ports import EntryKind, EntryRow, SessionRow, WeightsRow
from app.services.query_bodies import compiled, words
from app.services.residents import Live, Residents
from app.services.views import session_view
from app.spaces.query import Query

#: Longest canonical form, or dense weights, of a query that is answered: what no database gives back cannot be
#: recorded. SQLite has rows of up to a billion bytes; PostgreSQL sends bytes as twice as many digits, of which it makes
#: a gigabyte at most.
RECORD_BYTES = 500_000_000


#: What a session needs to know of an answer when it is loaded again, by where it came from.
_KINDS: dict[Source, EntryKind] = {
    "hypothesis": "hypothesis",
    "estimate": "hypothesis",
    "measurement": "measurement",
    "cached": "cached",
}


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

    def answer(self, live: Live, asked: Any, work: Work, most: float | None = None) -> dict[str, Any]:
        """One answer: decided, played if a round is due, and recorded in memory and in the work. It costs at most so
        much of epsilon, where that is said.

        Raises:
            CuratorError: when the query is refused; nothing was drawn, and nothing is recorded.
        """
        session = live.session
        query, target, due = self._consider(live, session, asked, most)
        work.base.setdefault(live.row.id, live.row)
        price = None
        if not isinstance(due, Answer):
            self._context.spendable(live.row.dataset)
            private = _private(live, query, due, work)
            self._residents.make_ready(live, query, work.ballast)
        try:
            if not isinstance(due, Answer):
                # From here on the round counts, whatever happens to the request.
                work.rounds.setdefault(live.row.id, []).append(due.price)
                released = self._play(live, due, private)
                if released is None:
                    due = session.apply(query, due, None)
                else:
                    price = due.price
                    due = self._residents.released(live, query, due, released, work.ballast)
            return self._record(live, query, words(asked), due, price, target, work)
        except CuratorError as error:
            raise _Unfinished from error

    def price(self, live: Live, asked: Any, ahead: Session | None = None) -> dict[str, Any]:
        """What a question would cost as the session stands: the decision on it, from public things alone, of which
        nothing is carried out, recorded or remembered. Or as a session apart stands, to which it then has come.

        Raises:
            CuratorError: as :meth:`answer`, where that would be refused.
        """
        session = live.session.apart() if ahead is None else ahead
        query, target, due = self._consider(live, session, asked)
        found = price_view(session, live.row, asked, query, due, target)
        if ahead is not None:
            session.pass_by(query, due)
        return found

    def _consider(
        self, live: Live, session: Session, asked: Any, most: float | None = None
    ) -> tuple[Query, Target, Answer | Due]:
        """What is asked, how well it is wanted, and what becomes of it, by the session or one apart from it."""
        question = compiled(session.dataset.space, asked, self._residents.room)
        query = question.query
        target = Target(question.within, question.confidence, question.adaptive)
        if max(len(query.canonical_bytes), len(query.blob or b"")) > RECORD_BYTES:
            raise PayloadTooLarge(f"a query may take at most {RECORD_BYTES:,} bytes of records", limit=RECORD_BYTES)
        due = session.consider(query, unverified=question.unverified, target=target)
        bounds = [bound for bound in (question.at_most, most) if bound is not None]
        if bounds and not isinstance(due, Answer):
            _check_cost(session.plan, due.price, max(0.0, min(bounds)), live.row)
        return query, target, due

    def _play(self, live: Live, due: Due, private: Units) -> Units | None:
        """Take noise and play: what is released, None on a miss."""
        if isinstance(due, MarginalTest):
            return self._test(live, due, private)
        if isinstance(due, Buy):
            return due.purchase.strategy.released(private, due.purchase.noise, self._context.noise)
        source = self._residents.noise(live, due.noise)
        released: Units | None = None
        if isinstance(due, Measure):
            released = private + source.take(len(private))
        else:
            (own,), (exact,) = due.hypothesis.tolist(), private.tolist()
            outcome: Hit | Miss
            if due.race is None:
                outcome = play(own, exact, int(source.take(1)[0]), due.threshold)
            else:
                noise, count = source.take(due.race.cut), self._residents.count(live, due.race)
                outcome = race(own, exact, noise, count, due.threshold)
            if isinstance(outcome, Hit):
                released = np.array([outcome.value], np.int64)
        if source.low:
            self._context.refill(source)
        return released

    def _test(self, live: Live, due: MarginalTest, private: Units) -> Units | None:
        """A test of a marginal: the measurement behind a hit, None on a miss. All noise is taken before the outcome is
        known, so that no outcome decides what is drawn.
        """
        tests, fresh = self._residents.noise(live, due.noise), self._residents.noise(live, due.fresh)
        noise, count = tests.take(1 if due.race is None else due.race.cut), 1
        if due.race is not None:
            count = self._residents.count(live, due.race)
        released = play_marginal(private, due.counts, noise, count, due.threshold, fresh.take(len(private)))
        for source in (tests, fresh):
            if source.low:
                self._context.refill(source)
        return released

    def _record(
        self,
        live: Live,
        query: Query,
        asked: bytes | None,
        answer: Answer,
        price: Amounts | None,
        target: Target,
        work: Work,
    ) -> dict[str, Any]:
        """Take an answer into the session's state and into the work; ``price`` is what it costs. The reply."""
        session, row = live.session, live.row
        now = live.recorded_at = max(work.now, live.recorded_at)
        sequence = row.sequence + 1
        values = session.values(query, answer.units)
        measured = None
        if answer.measured is not None:
            kept = evidence_row(session.opening, row.dataset, row.id, sequence, answer.measured, now)
            work.evidence.append(kept)
            measured = kept.sha256
        sealed = writing.answer_entry(
            sequence=sequence,
            query=query.canonical_bytes,
            values=values,
            source=answer.source,
            error_bound=answer.error_bound,
            unverified=answer.unverified,
            recorded_at=now,
            previous_hash=row.head_hash,
            measurement=measured,
            tested=None if answer.tested is None else answer.tested.tolist(),
            target=target.document(),
            asked=asked,
        )
        self._residents.record(live, query, answer, work.ballast)
        share = None
        if price is not None:
            share, movement = spending.charge(row, price, sequence, now)
            work.ledger.append(movement)
        kind: EntryKind = "unverified" if answer.unverified else _KINDS[answer.source]
        work.entries.append(
            EntryRow(row.id, sequence, kind, query.digest, answer.units.tobytes(), answer.error_bound, sealed.line)
        )
        if query.blob is not None and answer.source != "cached":
            self._keep_weights(live, query, sequence, work)
        live.row = work.rows[row.id] = row.after(
            sequence, session.queries_asked, session.updates_used, share, sealed.entry_hash
        )
        work.sources.append("unverified" if answer.unverified else answer.source)
        accuracy = session.accuracy(query, answer, target)
        if accuracy is not None and not accuracy.converged:
            work.unfitted.append(row.id)
        return answer_view(
            session,
            query,
            answer,
            accuracy,
            values=values,
            price=price,
            sequence=sequence,
            entry_hash=sealed.entry_hash,
        )

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

    def close(self, row: SessionRow, work: Work, recorded_at: str) -> bytes:
        """Close a session, whose newest record was made at ``recorded_at``; the reply. An audit refuses what returns
        before it was charged for the last time, whatever clocks do.
        """
        work.base.setdefault(row.id, row)
        closed, movement = spending.end(row, max(work.now, recorded_at))
        work.rows[row.id] = closed
        work.ledger.append(movement)
        self._residents.end(row.id)
        return orjson.dumps(session_view(closed))


def _check_cost(plan: SessionPlan, price: Amounts, most: float, row: SessionRow) -> None:
    """Refuse what may cost more than somebody would pay.

    Raises:
        PlanInfeasible: saying how much it may cost.
    """
    needed = spending.charged_epsilon(plan, price)
    if needed > most:
        raise PlanInfeasible(
            f"the answer may cost {needed:.6g} of epsilon, where at_most is {most:.6g}: allow more, or ask for less",
            needed=needed,
            at_most=most,
            left=spending.left_epsilon(plan, row, None),
        )


def _private(live: Live, query: Query, due: Due, work: Work) -> Units:
    """The private values that a round is about, on the grid of its noise, from the numbers that its turn has looked
    at."""
    space, counts = live.session.dataset.space, work.counts[live.row.dataset]
    assert not isinstance(counts, Unavailable), "a group answers nothing then"
    if isinstance(due, Buy):
        return due.purchase.strategy.exact(space, counts)
    exact = query.exact(counts)
    if isinstance(exact, int):
        return np.array([space.to_answer_grid(exact, query)], np.int64)
    return space.to_answer_grid(exact, query)
