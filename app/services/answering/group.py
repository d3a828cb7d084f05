"""A group of requests: answered in one transaction, committed, and only then replied to; or charged.

:mod:`app.services.answering.round` says what each answer is. Here is what makes it last: rows that are held, a commit
that is tried again with the same outcome, and rounds that are forfeited where the outcome cannot be recorded.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import ExitStack, suppress
from typing import Any

import orjson
import structlog

from app.audit import writing
from app.curator.errors import SessionClosed
from app.curator.opening import Header
from app.declarations.errors import CuratorError
from app.privacy.ledger import Amounts
from app.services import spending
from app.services.answering.costs import SlowAskers, seems_costly
from app.services.answering.parked import TRIES, needs_others
from app.services.answering.round import Rounds
from app.services.answering.tickets import Deferred, Ticket, TicketQueue
from app.services.answering.work import LaneContext, Pause, Work
from app.services.errors import NotFound, PayloadTooLarge, Unavailable
from app.services.loading import last_recorded
from app.services.ports import EntryRow, ReplyName, ReplyRow, SessionRow, Store, Transaction
from app.services.query_bodies import compiled
from app.services.residents import Live, NoRoom, Residents
from app.spaces.counts import NotCounted, Tally
from app.spaces.queries.statistic import CompiledStatistic

logger = structlog.get_logger(__name__)

#: When the answers of a batch take so many bytes, what is left of it is refused: it is all in memory until it is sent.
BATCH_REPLY_BYTES = 32 << 20
#: How long one group keeps others waiting: then what goes alone pauses, and what was not begun waits for the next one.
SLICE_SECONDS = 0.05
#: How long a turn waits for rows that another process holds: longer than turns take, which then follow one another as
#: they come.
PATIENCE_SECONDS = 0.1
#: By how much what answers cost may pass what they may, as sums are rounded.
_ROUNDED = 1e-12
#: Questions of a request whose numbers are counted ahead, when one before them waits.
MOST_AHEAD = 256
#: Pauses between the tries of a commit that fails; the last one again and again.
RETRY_SECONDS = (0.05, 0.2, 0.5, 1.0, 2.0)


class _Enough(Exception):
    """A group has had its time, or what comes next goes alone: what was not begun of it waits for the next one."""


class Groups:
    """Answers groups of requests, one after the other. One thread's own.

    Args:
        context: what all lanes work with.
        residents: the lane's sessions in memory.
        waiting: where requests that were not begun go back to.
        deferred: where requests go whose rows another process holds.
        unwritten: the sessions with answers that are not written yet, of other turns and of the one given.
    """

    def __init__(
        self,
        context: LaneContext,
        residents: Residents,
        waiting: TicketQueue,
        deferred: Deferred,
        unwritten: Callable[[Work | None], Container[str]],
    ) -> None:
        self._context, self._residents = context, residents
        self._waiting, self._deferred = waiting, deferred
        self._unwritten = unwritten
        self._rounds = Rounds(context, residents)
        self._slow = SlowAskers()
        #: Requests of the last group that wait for numbers, and what counts them.
        self.parked: list[tuple[Ticket, NotCounted]] = []
        #: Whether a commit is tried again.
        self.stalled = False
        #: Whether nothing more is begun: what is under way ends as if its client had hung up.
        self.ending = False

    def answer(self, group: list[Ticket], work: Work) -> Iterator[Pause]:
        """Answer a group, commit, and reply; yields between the slices of what goes alone. What follows on a pause
        aside may run in any thread, up to the next pause: it touches this one session, and nothing that is the lane's.
        """
        started, began = time.perf_counter(), time.time()
        try:
            yield from self._in_one_transaction(group, work)
        except Exception as error:  # noqa: BLE001 - nothing ends a lane: what was begun is charged
            logger.error("answering failed", error=type(error).__name__)
            self._abandon(work)
            for ticket in group:
                if ticket.reply is None and ticket.error is None:
                    ticket.error = Unavailable("the answer could not be made: send the request again")
        if work.ballast is not None:
            work.ballast.release()
        if not group:  # all of it was deferred
            return
        meter = self._context.meter
        self.parked = [(ticket, lacking) for ticket, lacking in work.parked if ticket.error is None]
        waiting = {ticket for ticket, _ in self.parked}
        served = [ticket for ticket in group if ticket not in waiting]
        for ticket in served:
            if ticket.free:
                self._context.written(ticket.actor, ticket.free)
        self._context.leave(served)
        self._context.deliver(served)
        for source, number in Counter(work.sources).items():
            meter.answered(source, number)
        for session, number in Counter(work.unfitted).items():
            meter.not_converged("answers", number)
            logger.warning("fits ended before their tolerance", session=session, answers=number)
        meter.group(len(group), time.perf_counter() - started)
        self._trace(served, work, began)
        try:
            self._residents.checkpoint(work.base, self._unwritten(None))
        except Exception as error:  # noqa: BLE001 - nothing ends a lane: what is in memory follows from the transcript
            logger.error("states could not be kept", error=type(error).__name__)
            for id in work.base:
                self._residents.drop(id)

    def _trace(self, served: list[Ticket], work: Work, began: float) -> None:
        """Tell where the time of requests went that are followed."""
        tracer, ended = self._context.tracer, time.time()
        for ticket in served:
            if ticket.trace is not None:
                outcome = "answered" if ticket.error is None else getattr(ticket.error, "code", "failed")
                tracer.part("queued", ticket.trace, ticket.came, began)
                tracer.part("answer", ticket.trace, began, ended, ticket.kind, outcome)
                if work.committing is not None:
                    tracer.part("commit", ticket.trace, *work.committing)

    def _in_one_transaction(self, group: list[Ticket], work: Work) -> Iterator[Pause]:
        """Play the group in one transaction and commit it."""
        store = self._context.store
        if store.exclusive:
            # What this process remembers is what is stored: nothing is held while computing, and a turn that
            # needs nothing from the database reads nothing.
            with _Reading(store) as begin:
                for pause in self._play(begin, group, work):
                    begin.end()  # a view of the database that lasts keeps its log from being cleared
                    yield pause
            if not work.empty:
                self._commit(work)
            return
        played = False
        try:
            with store.write() as tx:
                yield from self._play(lambda: tx, group, work)
                played = True
                if not work.empty:
                    work.store(tx)
        except Exception as error:
            if not played:
                raise
            if not work.empty:
                self._failed(error)
                self._commit(work)

    def _failed(self, error: BaseException) -> None:
        self._context.meter.commit_failed()
        logger.warning("commit failed, keeping the outcome", error=type(error).__name__)

    def _commit(self, work: Work, *, abandoned: bool = False) -> None:
        """Write the outcome until the database has it. Never draws afresh.

        Of ``abandoned`` work only the rounds are charged.
        """
        attempt = 0
        while True:
            try:
                with self._context.store.write() as tx:
                    if attempt or abandoned or not self._context.store.exclusive:
                        stored = tx.lock_sessions(sorted(work.base))
                        if self._is_written(work, tx, stored):
                            break
                        changed = set(stored) if abandoned else self._changed(work, tx, stored)
                        self._forfeit(work, tx, stored, changed)
                        abandoned = False
                    work.store(tx)
                break
            except Exception as error:  # noqa: BLE001 - the outcome is kept until it is stored
                self._failed(error)
                self.stalled = True
                time.sleep(RETRY_SECONDS[min(attempt, len(RETRY_SECONDS) - 1)])
                attempt += 1
        self.stalled = False

    @staticmethod
    def _is_written(work: Work, tx: Transaction, stored: dict[str, SessionRow]) -> bool:
        """Whether the failed commit had happened after all.

        All of it shares one fate, so one trace will do, of a kind that nobody changes afterwards: an entry, a
        reply, or the row of a closed session. Where others write, the database must also know the transaction: the
        same question that another process answered in the same second leaves the same trace.
        """
        if work.tried and not any(tx.happened(name) for name in work.tried):
            return False
        if work.entries:
            entry = work.entries[0]
            return tx.entry_lines(entry.session, entry.sequence - 1, 1) == [(entry.sequence, entry.line)]
        for reply in work.replies.values():
            name = reply.principal, reply.route, reply.key
            return tx.replies([name]).get(name) == reply
        return any(stored[id] == row for id, row in work.rows.items())

    @staticmethod
    def _changed(work: Work, tx: Transaction, stored: dict[str, SessionRow]) -> set[str]:
        """Sessions that somebody else has changed or closed, or answered under a key of ours."""
        changed = {id for id, base in work.base.items() if stored[id] != base}
        taken = tx.replies(list(work.replies))
        return changed | {t.session for t in work.done if t.key is not None and t.key.name in taken}

    def _forfeit(self, work: Work, tx: Transaction, stored: dict[str, SessionRow], changed: set[str]) -> None:
        """Rewrite the work of these sessions: each round played is charged as a hit, and nothing else remains."""
        # Read before anything is rewritten: should the database fail here, the next try begins with whole work.
        times = {id: max(work.now, last_recorded(tx, stored[id])) for id in changed}
        for id in changed:
            work.forget(id)
            self._residents.drop(id)
            row = stored[id]
            work.base[id] = row
            # The rounds are kept: should the session change once more, they are charged there.
            for price in work.rounds.get(id, ()):
                row = self._charge_forfeit(work, row, price, times[id])
            if row is not stored[id]:
                work.rows[id] = row
        for ticket in _begun(work):
            if ticket.session in changed:
                ticket.reply = None
                ticket.error = Unavailable("the answer could not be stored: send the request again")
                if ticket.key is not None:
                    work.replies.pop(ticket.key.name, None)

    def _charge_forfeit(self, work: Work, row: SessionRow, price: Amounts, now: str) -> SessionRow:
        plan = Header.read(row.header).plan
        most = plan.max_updates
        # What others have spent meanwhile is not there any more; nothing was told of this round.
        price = spending.affordable(row, price)
        if not price.renyi or (most is not None and row.updates_used >= most) or row.status != "open":
            return row
        sequence = row.sequence + 1
        own = None if plan.fixed_price else price.document()
        sealed = writing.forfeit_entry(sequence=sequence, recorded_at=now, previous_hash=row.head_hash, price=own)
        work.entries.append(EntryRow(row.id, sequence, "forfeit", None, None, None, sealed.line))
        share, movement = spending.charge(row, price, sequence, now)
        work.ledger.append(movement)
        return row.after(sequence, row.queries_asked, row.updates_used + 1, share, sealed.entry_hash)

    def _abandon(self, work: Work) -> None:
        """After an unforeseen error: forget the group's state in memory and charge the rounds it had begun."""
        for id in work.base:
            self._residents.drop(id)
        if any(work.rounds.values()):
            self._commit(work, abandoned=True)
            return
        for ticket in _begun(work):
            ticket.reply, ticket.error = None, Unavailable("the answer could not be stored: send the request again")

    def _play(self, begin: Callable[[], Transaction], group: list[Ticket], work: Work) -> Iterator[Pause]:
        until = time.perf_counter() + SLICE_SECONDS
        ids = sorted({ticket.session for ticket in group})
        if self._context.store.exclusive:
            missing = [id for id in ids if id not in self._residents]
            rows = begin().lock_sessions(missing) if missing else {}
        else:
            rows = self._take_rows(begin(), ids, group)
            self._residents.catch_up(begin(), rows)
        # After the lock: who held it may have answered one of these.
        names = [ticket.key.name for ticket in group if ticket.key is not None and ticket.single]
        given, told = begin().replies(names) if names else {}, 0
        for number, ticket in enumerate(group):
            try:
                if number and (ticket.alone or time.perf_counter() > until or told > BATCH_REPLY_BYTES):
                    raise _Enough
                if ticket.key is not None and not ticket.single:  # long ones are not all in memory at once
                    known = begin().replies([ticket.key.name])
                    given, told = given | known, told + sum(len(row.reply) for row in known.values())
                if ticket.alone and len(group) > 1:  # tried again with others, after it had been deferred
                    self._waiting.put_back(group[1:])
                    del group[1:]
                if any(other.session == ticket.session for other, _ in work.parked):
                    raise _Enough
                yield from self._one(begin, ticket, rows, given, work)
            except NotCounted as lacking:
                self._park(ticket, lacking, work)
            except (NoRoom, _Enough):
                self._waiting.put_back(group[number:])
                del group[number:]
                return
            except CuratorError as error:
                # Should the group be dropped, so is the refusal: it may follow from an outcome that nobody is told.
                ticket.error = error.with_traceback(None)  # whose frames hold all that is answered
                work.done.append(ticket)

    def _park(self, ticket: Ticket, lacking: NotCounted, work: Work) -> None:
        """Let a request wait for numbers. Nothing of its next question was begun."""
        ticket.waits += 1
        if ticket.waits > TRIES:
            ticket.error = needs_others()
            work.done.append(ticket)
            return
        live = self._residents.get(ticket.session)
        others = None if live is None else self._others(live, ticket)
        work.parked.append((ticket, lacking if others is None else _both(lacking, others)))

    def _others(self, live: Live, ticket: Ticket) -> NotCounted | None:
        """What the other questions of a request lack, as far as they tell: so they need not wait one after another.
        They are counted by their words, which are public, whatever is to become of them.
        """
        space = live.session.dataset.space
        tallies: list[Tally] = []
        for asked in ticket.queries[len(ticket.answers) + 1 :][:MOST_AHEAD]:
            with suppress(CuratorError):
                query = compiled(space, asked, self._residents.room).query
                # A statistic is told by what is measured for it, which follows from the answers before.
                needed = () if isinstance(query, CompiledStatistic) else query.tallies
                tallies += needed if all(map(live.data.offers, needed)) else ()
        try:
            live.data.tell(tallies)
        except NotCounted as lacking:
            return lacking
        except CuratorError:
            pass
        return None

    def _take_rows(self, tx: Transaction, ids: list[str], group: list[Ticket]) -> dict[str, SessionRow]:
        """Hold the rows of these sessions. What asks for those that another process keeps is deferred."""
        tried = [id for id in ids if id in self._deferred]
        others = [id for id in ids if id not in self._deferred]
        known = self._residents.rows(ids)
        if tried and (not others or self._deferred.patient()):
            rows = tx.lock_sessions(ids, known, PATIENCE_SECONDS)
        else:
            rows = tx.lock_sessions(others, known, PATIENCE_SECONDS)
            rows |= tx.lock_sessions(tried, known, 0)
        for id in tried:
            if id in rows:
                self._waiting.put_back(self._deferred.withdraw(id))
        lacking = [id for id in ids if id not in rows]
        if lacking:
            held = tx.existing_sessions(lacking)
            for ticket in group:
                if ticket.session in held:
                    if ticket.session in tried:
                        self._deferred.put_back(ticket)
                    else:
                        self._deferred.defer([ticket])
            for id in held.difference(tried):
                self._deferred.defer(self._waiting.withdraw(id))
            group[:] = [ticket for ticket in group if ticket.session not in held]
        return rows

    def _one(
        self,
        begin: Callable[[], Transaction],
        ticket: Ticket,
        rows: dict[str, SessionRow],
        given: dict[ReplyName, ReplyRow],
        work: Work,
    ) -> Iterator[Pause]:
        if self._is_left(ticket) and ticket.kind != "close":
            raise _not_begun()
        key = ticket.key
        if key is not None:
            twin = work.replies.get(key.name)
            known = given.get(key.name) if twin is None else twin
            if known is not None:
                ticket.reply = key.reply(known)
                if twin is not None:
                    work.done.append(ticket)
                return
        row = work.rows.get(ticket.session) or rows.get(ticket.session)
        live = self._residents.get(ticket.session)
        if row is None and self._context.store.exclusive:
            # Not in memory any more when others of the group took its room.
            row = live.row if live is not None else begin().lock_sessions([ticket.session]).get(ticket.session)
        if row is None:
            raise NotFound("there is no such session of yours")
        if live is not None and live.row.sequence >= row.sequence and live.row.head_hash != row.head_hash:
            # It went back, as to a standby that lags. What was given cannot be recorded any more, nor gone on from.
            raise Unavailable("the database lacks answers of this session: an operator must look", retry_after=60)
        if row.status != "open":
            raise SessionClosed("the session is closed: open another")
        if ticket.lacks is not None:
            raise ticket.lacks
        if ticket.kind == "close":
            known_here = live is not None and live.row.sequence >= row.sequence
            recorded_at = live.recorded_at if live is not None and known_here else last_recorded(begin(), row)
            ticket.reply = self._rounds.close(row, work, recorded_at)
        else:
            if not ticket.prices and not ticket.answers:
                self._context.admit(ticket.actor)
            live = self._residents.load(begin, row, self._unwritten(work))
            if not ticket.prices:
                self._check_file(live, work)
            if not ticket.alone and self._is_costly(live, ticket, ticket.queries):
                ticket.costly = True
                raise _Enough
            yield from self._answers(begin, live, ticket, work)
            answers = ticket.answers
            if len(answers) < len(ticket.queries):
                raise _not_begun()  # who repeats it is given what was answered, and asks what was not
            told = b"prices" if ticket.prices else b"answers"
            ticket.reply = answers[0] if ticket.single else b'{"%b":[%b]}' % (told, b",".join(answers))
        if key is not None:
            work.base.setdefault(row.id, row)
            newest = work.rows.get(row.id, row).sequence if ticket.kind in ("ask", "batch") else None
            work.replies[key.name] = key.row(ticket.reply, work.now, sequence=newest)
        work.done.append(ticket)

    def _is_left(self, ticket: Ticket) -> bool:
        """Whether nothing more of a request is to be begun."""
        return ticket.left or self.ending

    def _is_costly(self, live: Live, ticket: Ticket, asked: Sequence[Any]) -> bool:
        """Whether to answer questions aside, as far as can be told without computing anything."""
        space, on_evidence = live.session.dataset.space, live.session.opening.evidence is not None
        return ticket.actor in self._slow or any(seems_costly(space, each, on_evidence=on_evidence) for each in asked)

    def _answers(self, begin: Callable[[], Transaction], live: Live, ticket: Ticket, work: Work) -> Iterator[Pause]:
        """Answer the questions of a request that have no answer yet, one by one, the rows held all the while. What goes
        alone pauses when it has had its time, and goes on aside from the first question that takes long. There are
        fewer answers than questions where whoever asked has hung up, or the server ends.

        Raises:
            NotCounted: when the next question needs numbers that are yet to be counted.
        """
        until, aside, answers = time.perf_counter() + SLICE_SECONDS, False, ticket.answers
        begun, size = len(answers), sum(map(len, answers))
        failed: Exception | None = None
        try:
            for number, asked in enumerate(ticket.queries[begun:]):
                if ticket.alone and not ticket.costly and self._is_costly(live, ticket, [asked]):
                    ticket.costly = True
                if ticket.costly and not aside:
                    work.ballast, aside = self._residents.ballast(), True
                    yield Pause.ASIDE
                    until = time.perf_counter() + SLICE_SECONDS
                if ticket.alone and number and time.perf_counter() > until:
                    yield Pause.ASIDE if aside else Pause.HERE
                    until = time.perf_counter() + SLICE_SECONDS
                if self._is_left(ticket):
                    break
                if not self._context.store.exclusive:
                    begin().stay()
                answers.append(self._answer(live, ticket, asked, work, full=size > BATCH_REPLY_BYTES))
                ticket.waits = 0
                size += len(answers[-1])
        except Exception as error:  # noqa: BLE001 - what comes of it is the lane's to deal with
            failed = error
        if aside:
            yield Pause.HERE
        if failed is not None:
            raise failed

    def _answer(self, live: Live, ticket: Ticket, asked: Any, work: Work, *, full: bool) -> bytes:
        """The answer to one question; of a batch, where there is none, the refusal in its place."""
        if not ticket.single and full:
            return orjson.dumps(self._context.render(_batch_is_full()))
        began = time.thread_time()
        try:
            if ticket.prices:
                if ticket.in_turn and ticket.ahead is None:
                    ticket.ahead = live.session.apart()
                return orjson.dumps(self._rounds.price(live, asked, ticket.ahead))
            left = None if ticket.most is None else ticket.most * (1 + _ROUNDED) - ticket.charged
            length = work.length
            answer = self._rounds.answer(live, asked, work, left)
            ticket.charged += answer["charged_epsilon"]
            reply = orjson.dumps(answer)
            # A charge on made-up records is none.
            if not answer["charged_epsilon"] or live.session.opening.request.dummy:
                ticket.free += work.size_beyond(length) + (0 if ticket.key is None else len(reply))
            return reply
        except CuratorError as error:
            if ticket.single:
                raise
            return orjson.dumps(self._context.render(error))
        finally:
            if not ticket.costly:
                self._slow.note(ticket.actor, time.thread_time() - began)

    def _check_file(self, live: Live, work: Work) -> None:
        """Refuse to answer from numbers whose file is gone or altered: once a turn for each data set."""
        name = live.row.dataset
        if name not in work.counts:
            try:
                work.counts[name] = live.data.checked()
            except Unavailable as error:
                work.counts[name] = error
        found = work.counts[name]
        if isinstance(found, Unavailable):
            raise Unavailable(found.detail, found.retry_after)


def _both(lacking: NotCounted, others: NotCounted) -> NotCounted:
    """All that two questions of one data set lack."""

    def count() -> None:
        lacking.count()
        others.count()

    return NotCounted(count, lacking.seconds, lacking.place)


def _begun(work: Work) -> list[Ticket]:
    """The requests of which something may be recorded."""
    return [*work.done, *(ticket for ticket, _ in work.parked)]


def _not_begun() -> Unavailable:
    return Unavailable("the server ends, or nobody waited any more: send again what was asked")


def _batch_is_full() -> PayloadTooLarge:
    return PayloadTooLarge(
        "the answers before this one take all the room that a batch has: ask what is left in another batch",
        limit=BATCH_REPLY_BYTES,
    )


class _Reading:
    """A reading transaction that is begun when it is first called for, and may be ended and begun again."""

    def __init__(self, store: Store) -> None:
        self._store, self._stack = store, ExitStack()
        self._begun: Transaction | None = None

    def __enter__(self) -> _Reading:
        return self

    def __exit__(self, *error: object) -> None:
        self.end()

    def __call__(self) -> Transaction:
        """The transaction."""
        if self._begun is None:
            self._begun = self._stack.enter_context(self._store.read())
        return self._begun

    def end(self) -> None:
        """Read no more until the next call."""
        self._begun = None
        self._stack.close()
