"""The opening of sessions, those of releases too: what takes time is prepared, and then all is opened at once."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import orjson

from app.audit import writing
from app.curator.dataset import Bought
from app.curator.errors import PlanInfeasible
from app.curator.facts import Purchase, measure
from app.curator.mechanisms.protocol import Measured
from app.curator.opening import Opening, Pins
from app.curator.plan import EvidencePlan
from app.curator.request import SessionRequest, parse_request, parse_session
from app.curator.session import Session
from app.curator.workloads import is_published
from app.declarations.errors import InvalidRequest
from app.patience import Check, while_wanted
from app.privacy.ledger import total
from app.services import spending
from app.services.admission import admitted
from app.services.datasets import Datasets
from app.services.dummy_datasets import Dummy, DummyDatasets
from app.services.errors import NotFound, Unavailable
from app.services.idempotency import IdempotencyKey, find_reply
from app.services.loading import pin_lines, youngest
from app.services.measuring import evidence_row, measured_all
from app.services.openings import opening_of
from app.services.plans import Plans
from app.services.ports import (
    Clock,
    DatasetRow,
    EvidenceRow,
    Holding,
    NoisePort,
    PrivateStore,
    ReleaseRow,
    SessionRow,
    Store,
    StoreConflict,
    Transaction,
)
from app.services.principals import Principal
from app.services.release_request import parse_release
from app.services.views import release_view, session_view
from app.spaces.workload_request import MOST_NAMED, WorkloadRequest
from curator_client.proofs import records

#: Bytes of the records of all measurements that a session starts from.
MOST_EVIDENCE = 64 << 20
#: How many entries of a transcript are read at a time.
_PAGE = 1000
#: Closed sessions that are added up at an opening: where there are so many, and at most.
SETTLED_FROM, MOST_SETTLED = 32, 1000


@dataclass(frozen=True)
class Prepared:
    """A session that is planned and not open yet.

    Attributes:
        opening: as planned; what it has to buy is not bought yet.
        now: the one time of its records.
        exact: the exact fact to buy, in units of its grid; None where there is none.
        made: what an evidence session measures at its opening: measured, and not released yet.
        why: why the mechanism is the one that it is, where the choice was left open.
        dummy: made-up records, and what is public of them, which the session is on instead of the data set's.
        release: the document of the release that the session is of, which measures later; None of others.
        expected_seconds: what the work on a release will take, about.
        expected: what is said of an evidence session's errors, by what it starts from and measures at its opening.
    """

    opening: Opening
    now: str
    exact: int | None = field(repr=False)
    made: tuple[Measured, ...] = field(default=(), repr=False)
    why: str | None = None
    dummy: Dummy | None = None
    release: bytes | None = None
    expected_seconds: float = 0.0
    expected: dict[str, Any] = field(default_factory=dict, repr=False)


def _looked_at(tx: Transaction, row: DatasetRow) -> tuple[bool, Sequence[Holding]]:
    """Whether anything is held of a data set whose noise is pure so far, and then what was taken of it. Under the lock
    of its row nothing comes to be held meanwhile, but sessions may close: in this order the sums have that."""
    held = not row.impure and spending.is_held(tx.holdings(row.name))
    return held, tx.taken(row.name)


def _stand(tx: Transaction, opened: SessionRow) -> None:
    """Count a session among those of its data set, and add up what closed ones have spent, where there are many: each
    opening would pass over all of them."""
    closed, held = tx.to_settle(opened.dataset, MOST_SETTLED), spending.opened_with(opened)
    settled = closed if len(closed) >= SETTLED_FROM else {}
    sums = spending.stood(tx.standing(opened.dataset), held, settled.values())
    tx.stand(opened.dataset, sums, settled)


class SessionOpener:
    """Opens sessions.

    Args:
        store: where they are.
        private: what is measured at openings.
        noise: what that is measured with.
        clock: tells the times of records.
        datasets: what they are opened on.
        dummies: the same of made-up records.
        plans: plans them.
        spendable: refuses a data set of which nothing may be spent.
    """

    def __init__(
        self,
        store: Store,
        private: PrivateStore,
        noise: NoisePort,
        clock: Clock,
        datasets: Datasets,
        dummies: DummyDatasets,
        plans: Plans,
        spendable: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._store, self._private, self._noise, self._clock = store, private, noise, clock
        self._datasets, self._dummies, self._plans = datasets, dummies, plans
        self._spendable = spendable

    def prepare(
        self, actor: Principal, asked: Any, key: IdempotencyKey | None, check: Check = lambda: None
    ) -> Prepared | bytes:
        """All that takes time of opening a session, ahead of :meth:`open`; the reply where the key has one already.

        Raises:
            InvalidRequest, NotFound, PlanInfeasible, Forbidden, BudgetExhausted, IdempotencyConflict.
            Unavailable: when the data set's private file is missing or altered.
            NotCounted: when numbers are to be counted elsewhere first: have that done, and prepare anew.
        """
        return self._prepare(actor, partial(parse_session, asked), key, check)

    def prepare_release(
        self, actor: Principal, asked: Any, key: IdempotencyKey | None, check: Check = lambda: None
    ) -> Prepared | bytes:
        """The same of asking for a release: the session that holds its share has yet to be opened, and with it the work
        is queued.

        Raises:
            InvalidRequest, NotFound, PlanInfeasible, Forbidden, BudgetExhausted, IdempotencyConflict.
            Unavailable: when the data set's private file is missing or altered.
            NotCounted: when numbers are to be counted elsewhere first: have that done, and prepare anew.
        """
        release = parse_release(asked)
        release = release.asking(partial(self._answered, actor, release.dataset))
        return self._prepare(actor, partial(parse_request, release.session()), key, check, release.document())

    def _answered(self, actor: Principal, dataset: str, id: str) -> WorkloadRequest:
        """The counts and statistics that a session of the actor's on a data set answered: as they were asked, or where
        its transcript has not the words of all of them in their canonical forms.

        Raises:
            NotFound: when there is no such session of his.
            InvalidRequest: when it answered none, or too many.
        """
        found: dict[bytes, dict[str, Any]] = {}
        asked: dict[bytes, dict[str, Any]] = {}
        with self._store.read() as tx:
            row = tx.session(id)
            if row is None or row.dataset != dataset or (row.owner != actor.name and actor.role != "admin"):
                raise NotFound("tables.session: there is no such session of yours on this data set")
            space, sequence = opening_of(row.header).dataset.space, 0
            while lines := tx.entry_lines(id, sequence, _PAGE):
                sequence = lines[-1][0]
                for _, line in lines:
                    entry = orjson.loads(line)
                    form = entry.get("query")
                    if form is None or not is_published(space, form):
                        continue
                    name = orjson.dumps(form, option=orjson.OPT_SORT_KEYS)
                    found[name] = form
                    if isinstance(entry.get("asked"), dict):
                        asked[name] = entry["asked"]
        if not found:
            raise InvalidRequest(
                "tables.session: it has answered no question for counts of records, or a statistic of them, that its "
                "transcript tells in full: name the tables"
            )
        if len(found) > MOST_NAMED:
            raise InvalidRequest(f"tables.session: it has answered more than {MOST_NAMED:,}: name the tables")
        if asked.keys() == found.keys():
            return WorkloadRequest(queries=list(asked.values()))
        return WorkloadRequest(recorded=list(found.values()))

    def _prepare(
        self,
        actor: Principal,
        parsed: Callable[[], SessionRequest],
        key: IdempotencyKey | None,
        check: Check,
        release: bytes | None = None,
    ) -> Prepared | bytes:
        """What is cheap to refuse is refused first: nothing is planned or measured for a share that is not there."""
        actor.require("analyst", "admin")
        with self._store.read() as tx:
            known = find_reply(tx, key)
        if known is not None:
            return known
        request = parsed()
        row, dummy = self._datasets.registered(request.dataset), None
        if request.dummy:
            dummy = self._dummies.made(actor, row)
            row = dummy.row
        self._spendable(row.name)
        with self._store.read() as tx:
            held, holdings = _looked_at(tx, row)
            dataset = admitted(tx, row, actor, request, holdings, held)
        with while_wanted(check):
            opening, why = self._plans.opening(dataset, request)
        seconds = self._plans.foretold(opening)
        with self._store.read() as tx:
            # What others took meanwhile is found under the data set's lock.
            admitted(tx, row, actor, opening.request, holdings, held, opening.plan)
        if dummy is not None:
            return Prepared(opening, self._clock(), None, why=why, dummy=dummy)
        # Before anything waits for the data set: a file that has changed is read.
        self._private.check(row.vault_entry)
        # The time is taken before anything private is looked at.
        prepared = Prepared(opening, self._clock(), None, why=why, release=release, expected_seconds=seconds)
        with while_wanted(check):
            return self._looked(row, prepared)

    def _looked(self, row: DatasetRow, prepared: Prepared) -> Prepared:
        """With the exact fact that is to be bought, if any, and what is measured at the opening."""
        dataset, purchase = prepared.opening.dataset, prepared.opening.plan.purchase
        if purchase is not None:
            exact = measure(dataset.space, self._private.counts(dataset.space, row.vault_entry), purchase.fact)
            prepared = replace(prepared, exact=exact)
        return self._measured(row, prepared)

    def _measured(self, row: DatasetRow, prepared: Prepared) -> Prepared:
        """With what an evidence session starts from, and measures at its opening."""
        opening = prepared.opening
        if not isinstance(opening.plan, EvidencePlan):
            return prepared
        with self._store.read() as tx:
            known = () if opening.request.start == "nothing" else tuple(tx.shared_evidence(row.name, MOST_EVIDENCE))
            opening = replace(opening, evidence=Pins(known, ()))
            # Others may have recorded it since, or by another clock: a session is no older than what it starts from.
            lines = tx.evidence_named(row.name, known)
            prepared = replace(prepared, now=max(prepared.now, youngest(lines.values())))
            if prepared.release is not None:
                # What is public is fixed here; it measures when its turn has come.
                if not known and not opening.plan.max_updates and opening.dataset.records is None:
                    raise PlanInfeasible(
                        f"nothing was measured of {row.name!r} that could be published: give an epsilon above 0"
                    )
                return replace(prepared, opening=opening)
            session = Session(opening)
            pin_lines(lines, session)
        data = self._private.counts(opening.dataset.space, row.vault_entry)
        made = tuple(measured_all(self._noise, opening.dataset.space, data, session.purchases()))
        return replace(prepared, opening=opening, made=made, expected=session.expected(made))

    def open(self, actor: Principal, prepared: Prepared, key: IdempotencyKey | None) -> bytes:
        """Open a session: reserve its share, buy what it needs, commit, and only then reply.

        Raises:
            NotFound, PlanInfeasible, Forbidden, BudgetExhausted, IdempotencyConflict.
            Unavailable: when another process keeps the data set.
            NotCounted: as :meth:`prepare`; the data set is not held any more.
        """
        try:
            if prepared.dummy is not None:
                return self._open_dummy(actor, prepared, prepared.dummy, key)
            return self._open(actor, prepared, key)
        except StoreConflict:
            # The key came at the same moment with a session on another data set, whose lock we did not wait for.
            with self._store.read() as tx:
                known = find_reply(tx, key)
        if known is None:
            raise Unavailable("the session could not be opened: send the request again")
        return known

    def _open(self, actor: Principal, prepared: Prepared, key: IdempotencyKey | None) -> bytes:
        """Reserve, buy, record and commit, under the data set's lock."""
        request, dataset = prepared.opening.request, prepared.opening.dataset
        with self._datasets.locked(request.dataset) as (tx, row):
            known = find_reply(tx, key)  # a concurrent twin held the lock before us
            if known is not None:
                return known
            if row.retired_at is not None:
                raise NotFound(f"the data set {request.dataset!r} is retired")
            self._spendable(row.name)
            held, holdings = _looked_at(tx, row)
            now = admitted(tx, row, actor, request, holdings, held)
            if now != dataset:
                # Another session bought a fact, has a race, or spent of the budget: quickly planned, with scales that
                # are known. An exact one, whose program takes seconds, has been refused, as the data set is not
                # untouched.
                prepared = self._measured(row, replace(prepared, opening=self._plans.planned(now, request)))
            admitted(tx, row, actor, request, holdings, held, prepared.opening.plan)
            reply = self._begin(tx, row, actor, prepared, key)
            tx.commit()
        return reply

    def _open_dummy(self, actor: Principal, prepared: Prepared, dummy: Dummy, key: IdempotencyKey | None) -> bytes:
        """The same on made-up records, which are a data set of their own as long as the session is open."""
        with self._store.read() as tx:
            known = find_reply(tx, key)
        if known is not None:
            return known
        row = self._dummies.keep(dummy)
        try:
            prepared = self._looked(row, prepared)
            with self._store.write() as tx:
                # Others may have been opened since it was prepared.
                self._dummies.check(tx, actor, row.name)
                held, holdings = _looked_at(tx, row)
                admitted(tx, row, actor, prepared.opening.request, holdings, held, prepared.opening.plan)
                reply = self._begin(tx, row, actor, prepared, key)
                tx.commit()
        except BaseException:
            self._dummies.end(row)
            raise
        return reply

    def _begin(
        self,
        tx: Transaction,
        row: DatasetRow,
        actor: Principal,
        prepared: Prepared,
        key: IdempotencyKey | None,
    ) -> bytes:
        opening, now, id = prepared.opening, prepared.now, secrets.token_hex(16)
        plan = opening.plan
        if plan.purchase is not None:
            # Facts are only ever added, so what this plan buys the first one bought too.
            assert prepared.exact is not None
            bought = self._buy(plan.purchase, prepared.exact)
            tx.set_bought(row.name, {**row.bought, plan.purchase.fact: bought.document()})
            opening = replace(opening, bought=bought)
        evidence: list[EvidenceRow] = []
        if opening.evidence is not None:
            evidence = [evidence_row(opening, row.name, id, 0, measured, now) for measured in prepared.made]
            made = tuple(each.sha256 for each in evidence)
            opening = replace(opening, evidence=replace(opening.evidence, made=made))
        header = writing.header(session=id, opening=opening.document(), opened_at=now)
        planned = SessionRow(
            id=id,
            dataset=row.name,
            owner=actor.name,
            header=header,
            status="open",
            sequence=0,
            queries_asked=0,
            updates_used=0,
            spent="0",
            reserved="0",
            spent_pure=None,
            reserved_pure=None,
            head_hash=records.sha256(header),
            opened_at=now,
        )
        purchased = None if plan.purchase is None else plan.purchase.price
        if prepared.made:
            purchased = total(measured.price for measured in prepared.made)
        opened, movements = spending.begin(planned, plan.holds, purchased)
        tx.add_session(opened, spending.opened_with(opened))
        tx.add_evidence(evidence)
        if prepared.release is not None:
            release = ReleaseRow(
                id,
                row.name,
                actor.name,
                prepared.release,
                "queued",
                "queued",
                0.0,
                now,
                expected_seconds=prepared.expected_seconds,
            )
            tx.add_release(release)
        if plan.holds.pure is None and not row.impure:
            # Before the first noise, and whatever comes of it: a miss is free, but no pure noise.
            tx.set_impure(row.name)
        if plan.race is not None:
            tx.count_race(row.name)
        tx.move_ledger(movements)
        why = {} if prepared.why is None else {"why": prepared.why}
        view = session_view(opened) if prepared.release is None else release_view(release, opened)
        view["plan"] |= prepared.expected
        reply = orjson.dumps(view | why)
        if key is not None:
            tx.add_replies([key.row(reply, now, opens=True)])
        _stand(tx, opened)  # last, as it holds rows of closed sessions until the commit
        return reply

    def _buy(self, purchase: Purchase, exact: int) -> Bought:
        """The fact plus discrete Laplace noise, padded upward: pure epsilon-DP at the purchase's epsilon."""
        noisy = exact + int(self._noise.laplace(purchase.scale_units).take(1)[0])
        return Bought(purchase.padded(noisy), purchase.noise_scale)
