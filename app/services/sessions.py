"""Sessions: plans, opening, state, transcripts, hypotheses. Answers themselves are :mod:`app.services.answering`."""

from __future__ import annotations

import re
import secrets
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import orjson

from app.audit import records
from app.curator.calibration import noise_scales
from app.curator.comparison import Comparison, compare, parse_comparison, weigh
from app.curator.dataset import Bought, PublicDataset
from app.curator.errors import PlanInfeasible
from app.curator.facts import Purchase, measure
from app.curator.mechanisms.protocol import Measured
from app.curator.mechanisms.serving import mechanism_of
from app.curator.opening import Header, Opening, Pins
from app.curator.plan import EvidencePlan, SessionPlan
from app.curator.planners.workload import WorkloadPlan
from app.curator.planning import chosen, make_plan, planning_bytes
from app.curator.release_effort import expected_seconds
from app.curator.request import SessionRequest, parse_request, parse_session
from app.curator.session import Session
from app.declarations.errors import InvalidRequest
from app.patience import while_wanted
from app.privacy.errors import PrivacyError
from app.privacy.exactness import floor_to
from app.privacy.ledger import Amounts, total
from app.services import spending
from app.services.datasets import Datasets, Dummy, is_dummy, standing
from app.services.errors import BudgetExhausted, IdempotencyConflict, NotFound, Unavailable
from app.services.loading import look, pin_all
from app.services.measuring import measured_all
from app.services.openings import opening_of
from app.services.pages import Page
from app.services.ports import (
    Clock,
    DatasetRow,
    EvidenceRow,
    NoisePort,
    PrivateStore,
    ReleaseRow,
    ReplyName,
    ReplyRow,
    SessionRow,
    Snapshots,
    Store,
    StoreConflict,
    Transaction,
)
from app.services.principals import Principal

#: Raises when nobody waits for the work any more.
Check = Callable[[], None]
#: What a session that is looked at takes beside its hypothesis, about: plan, space, a page of its transcript.
SESSION_BYTES = 1 << 20
#: Bytes of the records of all measurements that a session starts from; and how many of them are read at a time.
MOST_EVIDENCE, _PINS = 64 << 20, 64
#: Why a session that starts from measurements has no hypothesis to show: of a table, of a graph or a matrix.
NO_TABLE = (
    "the session keeps measurements, not a table: read them at the data set's measurements, or ask for a marginal"
)
NO_GRAPH = "the session keeps measurements, not cells: read them at the data set's measurements, or release all cuts"
#: What a session's id looks like. Anything else is not looked up: not every database takes every character.
SESSION_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """A client's name for one logical call: principal, route and key; the body it stands for by its hash."""

    principal: str
    route: str
    key: str
    body_hash: str

    @property
    def name(self) -> ReplyName:
        """The name that the reply is stored under."""
        return self.principal, self.route, self.key

    def reply(self, row: ReplyRow) -> bytes:
        """The stored reply, if it was given to the same body.

        Raises:
            IdempotencyConflict: when it was given to another.
        """
        if row.body_hash != self.body_hash:
            raise IdempotencyConflict("this Idempotency-Key was used with another body: use a new key")
        return row.reply

    def row(self, status: int, reply: bytes, at: str) -> ReplyRow:
        """The row that is stored beside the work that the reply reports."""
        return ReplyRow(self.principal, self.route, self.key, self.body_hash, status, reply, at)


def find_reply(tx: Transaction, key: IdempotencyKey | None) -> bytes | None:
    """The stored reply to this key, or None.

    Raises:
        IdempotencyConflict: when the key was used with another body.
    """
    if key is None:
        return None
    row = tx.replies([key.name]).get(key.name)
    return None if row is None else key.reply(row)


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
    """

    opening: Opening
    now: str
    exact: int | None = field(repr=False)
    made: tuple[Measured, ...] = field(default=(), repr=False)
    why: str | None = None
    dummy: Dummy | None = None
    release: bytes | None = None
    expected_seconds: float = 0.0


def session_view(row: SessionRow) -> dict[str, Any]:
    """A session's public state. Exact amounts are decimal strings at the ledger's order."""
    header = Header.read(row.header)
    plan = header.plan
    return {
        "id": row.id,
        "dataset": header.document["dataset"]["name"],
        "owner": row.owner,
        "mechanism": header.document["mechanism"],
        "plan": {**header.document["plan"], "bound_status": header.bound_status()},
        "status": row.status,
        "sequence": row.sequence,
        "queries_asked": row.queries_asked,
        "queries_left": None if plan.max_queries is None else plan.max_queries - row.queries_asked,
        "updates_used": row.updates_used,
        "updates_left": None if plan.max_updates is None else plan.max_updates - row.updates_used,
        **spending.share_view(row, plan),
        "head_hash": row.head_hash,
        "opened_at": row.opened_at,
        "closed_at": row.closed_at,
        **({"dummy": True} if header.dummy else {}),
    }


def release_view(row: ReleaseRow, session: SessionRow) -> dict[str, Any]:
    """A release's public state; what it costs is what its session holds and has spent."""
    plan = Header.read(session.header).plan
    return {
        "id": row.id,
        "dataset": row.dataset,
        "owner": row.owner,
        **orjson.loads(row.request),
        "status": row.status,
        "step": row.step,
        "progress": row.progress,
        "expected_seconds": row.expected_seconds,
        "created_at": row.created_at,
        "finished_at": row.finished_at,
        "cost": {"epsilon": float(plan.epsilon), **spending.share_view(session, plan)},
        "plan": Header.read(session.header).document["plan"],
        "result": None if row.result is None else orjson.loads(row.result),
        "problem": None if row.problem is None else orjson.loads(row.problem),
        "links": {
            "events": f"/v1/releases/{row.id}/events",
            "transcript": f"/v1/sessions/{row.id}/transcript",
            **({"data": f"/v1/releases/{row.id}/data"} if row.status == "done" else {}),
        },
    }


def release_failure(detail: str, title: str = "The release failed", status: int = 500) -> bytes:
    """Why a release came to nothing where no refusal says so, as a problem document."""
    return orjson.dumps({"type": "about:blank", "title": title, "status": status, "detail": detail})


def _check_untouched(tx: Transaction, row: DatasetRow, request: SessionRequest) -> None:
    """An exact calibration counts the whole guarantee as one session with one noise: it must be the first thing ever
    asked. That nothing is spent or reserved is not enough: a session that was closed after misses alone holds
    nothing, and the program counts its own misses only.

    Raises:
        BudgetExhausted: when the budget ever moved.
    """
    if tx.has_moved(row.name):
        raise BudgetExhausted(
            "exact calibration takes a data set on which nothing was ever opened: use rdp, or another data set",
            requested=request.epsilon,
            remaining=Decimal(0),
        )


class Sessions:
    """Opens sessions and shows them."""

    def __init__(
        self,
        store: Store,
        private: PrivateStore,
        noise: NoisePort,
        clock: Clock,
        datasets: Datasets,
        snapshots: Snapshots,
        *,
        memory_limit: int,
        release_seconds: float,
        log_size: Callable[[str, int], int | None],
    ) -> None:
        self._store, self._private, self._noise, self._clock = store, private, noise, clock
        #: The size of the smallest log that has a session up to an entry; None while there is none.
        self.log_size = log_size
        self._datasets, self._snapshots = datasets, snapshots
        self._memory_limit, self._release_seconds = memory_limit, release_seconds

    def plan(self, asked: Any, check: Check = lambda: None) -> dict[str, Any]:
        """The plan a session would have. Reads public facts only and charges nothing.

        Raises:
            InvalidRequest, NotFound, PlanInfeasible: as opening would.
        """
        request = parse_session(asked)
        dataset = self._datasets.public(request.dataset)
        with while_wanted(check):
            request, why = self.chosen(dataset, request)
            plan = self._opening(dataset, request).plan
            expected = plan.expected_errors(dataset, request)
        scales, line = noise_scales(dataset, request, plan), weigh(dataset, [request], [plan]).line()
        return {
            **plan.reply(),
            "mechanism": request.document(),
            "why": why,
            "expected_standard_errors": expected,
            "noise_scales": scales,
            **line,
        }

    def compare(self, asked: Mapping[str, Any], check: Check = lambda: None) -> Comparison:
        """The plans of several mechanisms for one task. Reads public facts only and charges nothing.

        Raises:
            InvalidRequest, NotFound: as opening would.
            PlanInfeasible: when no mechanism could have such a share.
        """
        requests = parse_comparison(asked)
        dataset = self._datasets.public(requests[0].dataset)
        with while_wanted(check):
            return compare(dataset, requests, lambda request: self._opening(dataset, request).plan)

    def check_planning(self, dataset: PublicDataset, request: SessionRequest) -> None:
        """Refuse a plan that would take more memory than the service has, before anything is planned.

        Raises:
            PlanInfeasible: naming what to change.
        """
        needed, values = planning_bytes(dataset, request), sum(dataset.space.shape)
        if needed > self._memory_limit:
            raise PlanInfeasible(
                f"a plan that looks at every declared value, {values:,} of all attributes together, takes {needed:,} "
                f"bytes, where the memory limit is {self._memory_limit:,}: declare fewer values, a coarser grid or "
                "bins, use gaussian or laplace, or have the limit raised (CURATOR_MEMORY_LIMIT)",
                bytes=needed,
                limit=self._memory_limit,
            )

    def chosen(self, dataset: PublicDataset, request: SessionRequest) -> tuple[SessionRequest, str | None]:
        """The request with a mechanism, and why it is that one where the choice was left open.

        Raises:
            InvalidRequest, PlanInfeasible: as opening would.
        """
        self.check_planning(dataset, request)
        return chosen(dataset, request)

    def _opening(self, dataset: PublicDataset, request: SessionRequest) -> Opening:
        """The opening of a session that is asked for.

        Raises:
            PlanInfeasible: when there is no plan, or the hypothesis takes more memory than the service has.
        """
        self.check_planning(dataset, request)
        opening = Opening(dataset, request, make_plan(dataset, request))
        mechanism = mechanism_of(opening)
        needed = mechanism.nbytes(1) + mechanism.asking_bytes
        if needed > self._memory_limit:
            cells = dataset.space.cells
            raise PlanInfeasible(
                f"a session of {request.mechanism.construction} over {cells:,} cells takes {needed:,} bytes, where "
                f"the memory limit is {self._memory_limit:,}: declare fewer attributes or coarser bins, "
                f"{'use evidence, ' if dataset.space.kind == 'table' else ''}have each question measured on its own "
                "(gaussian or laplace), or have the limit raised (CURATOR_MEMORY_LIMIT)",
                cells=cells,
                bytes=needed,
                limit=self._memory_limit,
            )
        return opening

    def prepare(
        self,
        actor: Principal,
        asked: Any,
        key: IdempotencyKey | None,
        check: Check = lambda: None,
        release: bytes | None = None,
    ) -> Prepared | bytes:
        """All that takes time of opening a session, ahead of :meth:`open`; the reply where the key has one already.

        What can be refused cheaply is refused first: nothing is planned or measured for a share that is not there.
        The session of a release comes with its document, ``release``.

        Raises:
            InvalidRequest, NotFound, PlanInfeasible, Forbidden, BudgetExhausted, IdempotencyConflict.
            Unavailable: when the data set's private file is missing or altered.
        """
        actor.require("analyst", "admin")
        with self._store.read() as tx:
            known = find_reply(tx, key)
        if known is not None:
            return known
        request = parse_session(asked) if release is None else parse_request(asked)
        row, dummy = self._datasets.registered(request.dataset), None
        if request.dummy:
            dummy = self._datasets.dummy_of(actor, row)
            row = dummy.row
        with self._store.read() as tx:
            dataset = self._admit(tx, row, actor, request)
        with while_wanted(check):
            request, why = self.chosen(dataset, request)
            opening = self._opening(dataset, request)
        seconds = self._foretold(opening)
        with self._store.read() as tx:
            self._admit(tx, row, actor, request, opening.plan)
        if dummy is not None:
            return Prepared(opening, self._clock(), None, why=why, dummy=dummy)
        # Before anything waits for the data set: a file that has changed is read.
        self._private.check(row.vault_entry)
        # The time is taken before anything private is looked at.
        prepared = Prepared(opening, self._clock(), None, why=why, release=release, expected_seconds=seconds)
        return self._looked(row, prepared)

    def _foretold(self, opening: Opening) -> float:
        """The time that a release will take, about; 0 for other sessions.

        Raises:
            PlanInfeasible: when that is longer than the server allows: it would be charged, and nothing come of it.
        """
        if not isinstance(opening.plan, WorkloadPlan):
            return 0.0
        seconds = expected_seconds(opening.dataset, opening.request, opening.plan)
        if seconds > self._release_seconds:
            raise PlanInfeasible(
                f"the work on it is foretold to take {seconds:,.0f} s, where the server allows "
                f"{self._release_seconds:,.0f}: ask for less, take another method (POST /v1/plans foretells what each "
                "takes), or have the limit raised (CURATOR_RELEASE_SECONDS)",
                expected_seconds=seconds,
                limit=self._release_seconds,
            )
        return seconds

    def _looked(self, row: DatasetRow, prepared: Prepared) -> Prepared:
        """With the exact fact that is to be bought, if any, and what is measured at the opening."""
        dataset, purchase = prepared.opening.dataset, prepared.opening.plan.purchase
        if purchase is not None:
            exact = measure(dataset.space, self._private.tensor(dataset.space, row.vault_entry), purchase.fact)
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
            if prepared.release is not None:
                # What is public is fixed here; it measures when its turn has come.
                return replace(prepared, opening=opening)
            session = Session(opening)
            pin_all(tx, row.name, session)
        data = self._private.tensor(opening.dataset.space, row.vault_entry)
        made = tuple(measured_all(self._noise, opening.dataset.space, data, session.purchases()))
        return replace(prepared, opening=opening, made=made)

    def open(self, actor: Principal, prepared: Prepared, key: IdempotencyKey | None) -> bytes:
        """Open a session: reserve its share, buy what it needs, commit, and only then reply.

        Raises:
            NotFound, PlanInfeasible, Forbidden, BudgetExhausted, IdempotencyConflict.
            Unavailable: when another process keeps the data set.
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
        with self._datasets.holding(request.dataset) as (tx, row):
            known = find_reply(tx, key)  # a concurrent twin held the lock before us
            if known is not None:
                return known
            if row.retired_at is not None:
                raise NotFound(f"the data set {request.dataset!r} is retired")
            now = self._admit(tx, row, actor, request)
            if now != dataset:
                # Another session bought a fact, has a race, or spent of the budget: quickly planned, with scales that
                # are known. An exact one, whose program takes seconds, has been refused, as the data set is not
                # untouched.
                prepared = self._measured(row, replace(prepared, opening=self._opening(now, request)))
            self._admit(tx, row, actor, request, prepared.opening.plan)
            reply = self._begin(tx, row, actor, prepared, key)
            tx.commit()
        return reply

    def _open_dummy(self, actor: Principal, prepared: Prepared, dummy: Dummy, key: IdempotencyKey | None) -> bytes:
        """The same on made-up records, which are a data set of their own as long as the session is open."""
        with self._store.read() as tx:
            known = find_reply(tx, key)
        if known is not None:
            return known
        row = self._datasets.keep_dummy(dummy)
        try:
            prepared = self._looked(row, prepared)
            with self._store.write() as tx:
                # Others may have been opened since it was prepared.
                self._datasets.check_dummies(tx, actor, row.name)
                self._admit(tx, row, actor, prepared.opening.request, prepared.opening.plan)
                reply = self._begin(tx, row, actor, prepared, key)
                tx.commit()
        except BaseException:
            self._datasets.end_dummy(row)
            raise
        return reply

    def end_dummy(self, id: str) -> None:
        """Destroy the made-up records of a session on such, once it is closed; else nothing."""
        with self._store.read() as tx:
            session = tx.session(id) if SESSION_ID.fullmatch(id) else None
            row = None if session is None or session.status == "open" else tx.dataset(session.dataset)
        if row is not None and is_dummy(row) and row.retired_at is None:
            self._datasets.end_dummy(row)

    def _admit(
        self,
        tx: Transaction,
        row: DatasetRow,
        actor: Principal,
        request: SessionRequest,
        plan: SessionPlan | None = None,
    ) -> PublicDataset:
        """Refuse what the actor may not hold or the data set does not have; give what the session is planned on.

        Before there is a plan, an epsilon is refused that neither sum of the budget has.

        Raises:
            Forbidden, BudgetExhausted, PlanInfeasible.
        """
        if request.calibration == "exact":
            _check_untouched(tx, row, request)
        holdings = tx.holdings(row.name)
        dataset, account = standing(row, holdings)
        if plan is None:
            try:
                holds = Amounts(dataset.budget.share(request.epsilon), floor_to(Fraction(request.epsilon)))
            except PrivacyError as error:
                raise PlanInfeasible(str(error)) from None
        else:
            holds = plan.holds
        self._datasets.allowed(tx, row, actor, holdings, dataset.budget, holds, request.epsilon)
        spending.check_share(account, holds, request.epsilon)
        return dataset if request.may_be_pure else replace(dataset, left=None)

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
            for measured in prepared.made:
                line = records.measurement_record(session=id, sequence=0, measured=measured.document(), recorded_at=now)
                evidence.append(EvidenceRow(row.name, id, 0, records.sha256(line), opening.request.share, line))
            made = tuple(each.sha256 for each in evidence)
            opening = replace(opening, evidence=replace(opening.evidence, made=made))
        header = records.header(session=id, opening=opening.document(), opened_at=now)
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
        tx.add_session(opened)
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
        if prepared.release is None:
            status, view = 201, session_view(opened)
        else:
            status, view = 202, release_view(release, opened)
        reply = orjson.dumps(view | why)
        if key is not None:
            tx.add_replies([key.row(status, reply, now)])
        return reply

    def _buy(self, purchase: Purchase, exact: int) -> Bought:
        """The fact plus discrete Laplace noise, padded upward: pure epsilon-DP at the purchase's epsilon."""
        noisy = exact + int(self._noise.laplace(purchase.scale_units).take(1)[0])
        return Bought(purchase.padded(noisy), purchase.noise_scale)

    def row(self, actor: Principal, id: str) -> SessionRow:
        """A session that the actor may see: his own, or any for auditors.

        Raises:
            NotFound: when there is none, or it is somebody else's.
        """
        row = None
        if SESSION_ID.fullmatch(id):
            with self._store.read() as tx:
                row = tx.session(id)
        if row is None or (row.owner != actor.name and actor.role != "auditor"):
            raise NotFound("there is no such session of yours")
        return row

    def get(self, actor: Principal, id: str) -> dict[str, Any]:
        """A session's public state, with the size of the log that has all of it so far."""
        row = self.row(actor, id)
        return session_view(row) | {"log_size": self.log_size(row.id, row.sequence)}

    def list(self, actor: Principal, after: str, most: int) -> Page:
        """The actor's sessions in the order they were opened, all of them for auditors, beyond the one of that id.

        Raises:
            InvalidRequest: when ``after`` is neither empty nor a session that the actor sees.
        """
        try:
            last = self.row(actor, after) if after else None
        except NotFound:
            raise InvalidRequest("after: the id of a session of yours, as the link to the next page has it") from None
        with self._store.read() as tx:
            rows, others = tx.sessions_page(None if actor.role == "auditor" else actor.name, last, most)
        return Page([session_view(row) for row in rows], rows[-1].id if others else None)

    def state(self, actor: Principal, id: str, take: Callable[[int], None], check: Check) -> tuple[SessionRow, Session]:
        """A session's row and what can be looked at of it: hypothesis and counters at that row, no answers.

        Args:
            actor: who looks.
            id: the session's.
            take: called with the bytes that this takes in memory, before they are taken; may refuse.
            check: called now and then; what it raises ends the work.

        Raises:
            NotFound: when there is none, or it is somebody else's.
        """
        row = self.row(actor, id)
        with while_wanted(check):
            opening = opening_of(row.header)
        if opening.evidence is not None:
            raise InvalidRequest(NO_TABLE if opening.dataset.space.kind == "table" else NO_GRAPH)
        # The state, and beside it what an update or showing it takes: see the documents on memory.
        dense = opening.dataset.space.dense_bytes
        take(mechanism_of(opening).nbytes(row.updates_used) + 2 * dense + SESSION_BYTES)
        kept = self._snapshots.read(id)
        if kept is not None:
            # It may be newer than the row was.
            with self._store.read() as tx:
                row = tx.session(id) or row
        return row, look(self._store, row, opening, kept, check)

    def transcript(self, actor: Principal, id: str) -> Iterator[bytes]:
        """The transcript as it stands, line by line: header, entries (dense weights before their first use), trailer.

        What an auditor is shown follows from the records alone: no state is made and no cache is read.

        Raises:
            NotFound: when there is none, or it is somebody else's; before the first line.
        """
        return self._lines(self.row(actor, id))

    def _lines(self, row: SessionRow) -> Iterator[bytes]:
        yield row.header + b"\n"
        pins = Header.read(row.header).pins
        if pins is not None:
            names = [*pins.known, *pins.made]
            for start in range(0, len(names), _PINS):
                page = names[start : start + _PINS]
                with self._store.read() as tx:
                    found = tx.evidence_named(row.dataset, page)
                yield from (found[name] + b"\n" for name in page)
        # The transcript ends where its row does. Entries are never changed, so pages may be read one by one. What has
        # been handed out is not kept here.
        learnt, after = records.HypothesisDigest(Header.read(row.header).document), 0
        lines: deque[bytes] = deque()
        while after < row.sequence:
            after = self._read_page(row, after, lines, learnt)
            while lines:
                yield lines.popleft()
        yield (
            records.trailer(
                entries=row.sequence,
                head_hash=row.head_hash,
                hypothesis_digest=learnt.hexdigest(),
                updates=row.updates_used,
                status=row.status,
                log_size=self.log_size(row.id, row.sequence),
            )
            + b"\n"
        )

    def _read_page(self, row: SessionRow, after: int, lines: deque[bytes], learnt: records.HypothesisDigest) -> int:
        """Add a page of a transcript to some lines, and tell which entry it ends with."""
        with self._store.read() as tx:
            page = tx.transcript_page(row.id, after, row.sequence)
            measured = tx.evidence_of(row.id, after, page[-1][0])
        for sequence, line, weights in page:
            if sequence in measured:
                lines.append(measured[sequence] + b"\n")
            lines.extend(records.weights_record(name, blob) + b"\n" for name, blob in weights)
            lines.append(line + b"\n")
            learnt.take(line)
        return page[-1][0]
