"""A service put together in this process, with noise and faults of a test's own, and the books audited afterwards."""

from __future__ import annotations

import asyncio
import io
import json
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvicorn
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from app.audit.replay import replay
from app.bootstrap import serving, wiring
from app.curator.dataset import PublicDataset
from app.http.json_bodies import fingerprint
from app.privacy.ledger import Amounts
from app.server.protocol import HttpProtocol
from app.services.answering.tickets import Ticket
from app.services.idempotency import IdempotencyKey
from app.services.ports import Holding
from app.services.principals import Principal
from app.services.services import Services
from app.settings import Settings
from app.spaces.counts import NotCounted
from app.storage.readers import Readers
from app.storage.store import SqlStore, SqlTransaction
from tests.kit.databases import place_migrated
from tests.kit.noise import Noise
from tests.kit.patience import patience

#: More than any list here holds.
WHOLE = 10**6
ADMIN = Principal("admin", "admin")
AUDITOR = Principal("audit", "auditor")
ADMIN_KEY = "an-admin-key-for-tests"
#: 4 x 8 cells of 100 records each: the uniform hypothesis is the truth, so noise alone decides a round.
SHAPE = (4, 8)
EACH = 100
SPEC: dict[str, Any] = {
    "kind": "table",
    "attributes": [{"name": "a", "size": SHAPE[0]}, {"name": "b", "size": SHAPE[1]}],
    "records_public": True,
    "budget": {"epsilon": 1.0, "delta": 1e-6},
}
#: Records of a transcript that are numbered.
ENTRIES = ("answer", "forfeit", "release")
#: Multiples of the noise's scale that pass every threshold of the plans used here: a certain hit.
HIT = 10_000


def open_session(services: Services, who: Principal, asked: Any, key: IdempotencyKey | None) -> bytes:
    """As a request does."""
    while True:
        try:
            prepared = services.opener.prepare(who, asked, key)
            return prepared if isinstance(prepared, bytes) else services.opener.open(who, prepared, key)
        except NotCounted as lacking:
            told: queue.Queue[Any] = queue.Queue()
            services.answering.have_counted(who.name, lacking, told.put)
        if (error := told.get(timeout=patience(60))) is not None:
            raise error


class Lost(OperationalError):
    """What SQLAlchemy raises when a connection breaks."""

    def __init__(self) -> None:
        super().__init__("COMMIT", None, Exception("the connection was lost"))


class FaultyTransaction(SqlTransaction):
    """A transaction whose commit obeys its store's faults, if it adds or moves a session or adds a data set."""

    def __init__(self, inner: SqlTransaction, store: FaultyStore) -> None:
        super().__init__(inner.connection)
        self._store = store
        self._moves = False

    def move_sessions(self, rows: Sequence[Any]) -> None:
        self._moves = True
        super().move_sessions(rows)

    def add_session(self, row: Any, counted: Any = None) -> None:
        self._moves = True
        super().add_session(row, counted)

    def add_dataset(self, row: Any) -> None:
        self._moves = True
        super().add_dataset(row)

    def add_replies(self, rows: Sequence[Any]) -> None:
        self._moves = True
        super().add_replies(rows)

    def lock_sessions(self, *arguments: Any) -> Any:
        self._moves = True
        return super().lock_sessions(*arguments)

    def commit(self) -> None:
        if not (self._moves or self._store.every):
            return super().commit()
        self._store.committing()
        fault = self._store.faults.popleft() if self._store.faults else None
        match fault:
            case None:
                super().commit()
                self._store.committed()
            case "before":
                raise Lost
            case "after":
                super().commit()
                self._store.committed()
                raise Lost
            case "cut":
                self._store.cut(self.connection.execute(text("SELECT pg_backend_pid()")).scalar_one())
                super().commit()
        return None


class FaultyStore(SqlStore):
    """A store that fails as told.

    ``faults`` holds one word a commit that counts: "before" and "after" (it really happened) raise, "cut"
    ends the server's side of the connection and then commits. ``refuse`` writing transactions cannot begin.
    ``between`` is called once, before the first writing transaction after a fault. With ``every`` all commits count.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.faults: deque[str | None] = deque()
        self.refuse = 0
        self.every = False
        self.between: Callable[[], None] | None = None
        self.committing: Callable[[], None] = lambda: None
        self.committed: Callable[[], None] = lambda: None

    @contextmanager
    def write(self) -> Iterator[SqlTransaction]:
        if threading.current_thread().name == "log":  # it adds at moments of its own, which no test counts
            with super().write() as tx:
                yield tx
            return
        if self.refuse > 0:
            self.refuse -= 1
            raise Lost
        if self.between is not None and not self.faults:
            between, self.between = self.between, None
            between()
        with super().write() as tx:
            yield FaultyTransaction(tx, self)

    @contextmanager
    def failing(self) -> Iterator[None]:
        """While the context lasts every commit that counts fails before it happens."""
        self.committing = lambda: self.faults.append("before")
        try:
            yield
        finally:
            self.committing = lambda: None

    def cut(self, pid: int) -> None:
        with self._writing.connect() as connection:
            connection.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": pid})
            connection.commit()


@dataclass
class World:
    """A wired service with its lanes running, as one process has it."""

    folder: Path
    noise: Any
    built: Any
    store: FaultyStore
    keys: dict[str, str] = field(default_factory=dict)
    #: Who works on releases in the test's own thread, where a test has one.
    jobs: Any = None

    @property
    def answering(self) -> Any:
        return self.built.services.answering

    def register(self, name: str, counts: Any = None, **changes: Any) -> dict[str, Any]:
        """A table of counts, uniform where none are given; ``changes`` to its declaration."""
        buffer = io.BytesIO()
        np.save(buffer, np.full(SHAPE, EACH) if counts is None else counts)
        return self.register_file({**SPEC, "name": name, **changes}, "counts.npy", buffer.getvalue())

    def register_file(self, spec: dict[str, Any], filename: str, content: bytes) -> dict[str, Any]:
        path = self.folder / "upload"
        path.write_bytes(content)
        try:
            done: dict[str, Any] = self.built.services.registration.register(ADMIN, spec, filename, path)
        finally:
            path.unlink()
        return done

    def analyst(self, name: str) -> Principal:
        """A principal of this name, added where there is none."""
        known = {row["name"] for row in self.built.services.principals.list(ADMIN, "", WHOLE).items}
        if name not in known:
            self.keys[name] = self.built.services.principals.add(ADMIN, name, "analyst")["api_key"]
        return Principal(name, "analyst")

    def open(self, who: Principal, dataset: str, **asked: Any) -> str:
        body = {
            "dataset": dataset,
            "mechanism": {"construction": "mw"},
            "epsilon": 0.2,
            "max_queries": 1000,
            "max_updates": 10,
            **asked,
        }
        return str(json.loads(open_session(self.built.services, who, body, None))["id"])

    def submit(self, who: Principal, id: str, *queries: Any, key: str | None = None, kind: str = "ask") -> Ticket:
        """Put a request into its lane and return at once."""
        named = (
            None if key is None else IdempotencyKey(who.name, f"/v1/sessions/{id}/{kind}", key, fingerprint(queries))
        )
        ticket = Ticket(kind, id, who.name, queries, named, threading.Event())  # type: ignore[arg-type]
        self.answering.submit(who, ticket)
        return ticket

    def ask(self, who: Principal, id: str, query: Any, key: str | None = None) -> dict[str, Any]:
        return wait(self.submit(who, id, query, key=key))

    def close(self, who: Principal, id: str, key: str | None = None) -> dict[str, Any]:
        return wait(self.submit(who, id, kind="close", key=key))

    def entries(self, id: str) -> list[dict[str, Any]]:
        """The transcript's entries, parsed."""
        lines = [json.loads(line) for line in transcript_of(self.built.services, id)]
        return [line for line in lines if line["record"] in ENTRIES]

    def movements(self, dataset: str, id: str, kind: str = "charge") -> list[dict[str, Any]]:
        ledger = ledger_of(self.built.services, dataset)
        return [m for m in ledger["entries"] if m["session"] == id and m["kind"] == kind]

    def audit(self, audited: Audited | None = None) -> None:
        """Every transcript replays, and the books say what the transcripts say; see :func:`audit_books`."""
        services = self.built.services
        audit_books(
            {d["name"]: ledger_of(services, d["name"]) for d in services.datasets.list("", WHOLE).items},
            sessions_of(services, AUDITOR),
            partial(transcript_of, services),
            audited,
        )

    def stop(self) -> None:
        self.built.context.lifecycle.stop()


def ledger_of(services: Services, name: str) -> dict[str, Any]:
    """A data set's ledger, whole."""
    stands, page = services.datasets.ledger(AUDITOR, name, 0, WHOLE)
    return {**stands, "entries": page.items}


def sessions_of(services: Services, who: Principal) -> list[dict[str, Any]]:
    """The sessions that somebody sees."""
    found: list[dict[str, Any]] = []
    after: str | None = ""
    while after is not None:
        page = services.sessions.list(who, after, WHOLE)
        found, after = found + page.items, page.after
    return found


def transcript_of(services: Services, id: str) -> list[bytes]:
    """A session's transcript, line by line."""
    return list(services.transcripts.lines(AUDITOR, id))


@dataclass
class Audited:
    """Sessions as they were when their transcripts were last replayed: what has not changed since need not be again."""

    #: State, movements of the ledger, and what the session holds of its data set's budget.
    sessions: dict[str, tuple[Any, Any, Amounts]] = field(default_factory=dict)


def took(holdings: Sequence[Holding]) -> dict[tuple[str, bool], tuple[Fraction, Fraction]]:
    """What sessions hold or have spent in all, in both sums, by owner and by whether their noise is pure; of those who
    took anything."""
    found: dict[tuple[str, bool], tuple[Fraction, Fraction]] = {}
    for each in holdings:
        key = each.owner, each.spent_pure is not None
        renyi, pure = found.get(key, (Fraction(0), Fraction(0)))
        renyi += each.sessions * (Fraction(each.reserved) + Fraction(each.spent))
        pure += each.sessions * (Fraction(each.reserved_pure or 0) + Fraction(each.spent_pure or 0))
        found[key] = renyi, pure
    return {key: sums for key, sums in found.items() if any(sums)}


def split(holdings: Sequence[Holding]) -> dict[tuple[str, bool], list[Fraction]]:
    """What is held and what is spent, in both sums, by owner and by whether noise is pure, where anything is."""
    found: dict[tuple[str, bool], list[Fraction]] = {}
    for each in holdings:
        own = found.setdefault((each.owner, each.spent_pure is not None), [Fraction(0)] * 4)
        for place, amount in enumerate((each.reserved, each.spent, each.reserved_pure, each.spent_pure)):
            own[place] += each.sessions * Fraction(amount or 0)
    return {key: sums for key, sums in found.items() if any(sums)}


def audit_books(
    ledgers: dict[str, dict[str, Any]],
    sessions: Sequence[dict[str, Any]],
    transcript: Callable[[str], list[bytes]],
    audited: Audited | None = None,
) -> dict[str, list[bytes]]:
    """Hold ledger, session states and transcripts against each other, exactly; the transcripts are the truth.

    An open session holds all of its share, a closed one what it spent; with exact calibration, which has no refunds,
    all of it, as where what came of it is not known: a forfeit. So has what is left of a data set, once for all. Of
    each data set the sum keeps within its budget; or no session of it was ever opened whose noise is not all pure, and
    the epsilons of these add up to no more than its own.

    Args:
        ledgers: of every data set.
        sessions: all states.
        transcript: gives a session's lines.
        audited: what an earlier audit saw, brought up to date here.

    Returns:
        The transcripts that were replayed: all, or those of sessions that ``audited`` does not know as they are.
    """
    known = Audited() if audited is None else audited
    sums, pure_sums, impure = dict.fromkeys(ledgers, Decimal(0)), dict.fromkeys(ledgers, Decimal(0)), set()
    transcripts = {}
    movements: dict[str, list[dict[str, Any]]] = {state["id"]: [] for state in sessions}
    for name, ledger in ledgers.items():
        for movement in ledger["entries"]:
            if movement["session"] is not None:
                assert movement["session"] in movements, "a movement of no session"
                movements[movement["session"]].append({**movement, "dataset": name})
    for state in sessions:
        id, moved, name = state["id"], movements[state["id"]], state["dataset"]
        if known.sessions.get(id, (None, None))[:2] != (state, moved):
            lines = transcripts[id] = transcript(id)
            known.sessions[id] = state, moved, audit_session(state, lines, moved)
        held = known.sessions[id][2]
        sums[name] += held.renyi
        if held.pure is None:
            impure.add(name)
        else:
            pure_sums[name] += held.pure
    for name, ledger in ledgers.items():
        entries, whole = ledger["entries"], Decimal(ledger["budget"])
        lost = [m for m in entries if m["kind"] == "forfeit" and m["session"] is None]
        total = sums[name] + sum(Decimal(m["amount"]) for m in lost)
        pure_total = pure_sums[name] + sum(Decimal(m["pure"]) for m in lost)
        if lost:
            assert total == max(whole, sums[name])
            assert name in impure or pure_total == max(Decimal(ledger["pure"]["budget"]), pure_sums[name])
        for which, told in (("amount", total), ("pure", pure_total)):
            # The pure sum has what was opened as pure: a fact that is bought beside other noise is not in it.
            opened = {m["session"] for m in entries if m["kind"] == "reserve" and m[which] is not None}
            moved = [m for m in entries if m["session"] in opened or m in lost]
            taken = [Decimal(m[which]) for m in moved if m["kind"] == "reserve" or m in lost]
            assert sum(taken) - sum(Decimal(m[which]) for m in moved if m["kind"] == "return") == told
        assert (Decimal(ledger["sum"]), Decimal(ledger["pure"]["sum"])) == (total, pure_total)
        within = total <= whole
        assert within or (name not in impure and pure_total <= Decimal(ledger["pure"]["budget"]))
        assert ledger["epsilon"]["impure"] == (name in impure or (bool(lost) and within))
    return transcripts


def audit_session(state: dict[str, Any], lines: list[bytes], moved: list[dict[str, Any]]) -> Amounts:
    """Hold a session's state and its movements of the ledger against its transcript; gives what it holds.

    What it spent is recomputed from the transcript: the plan's cost for each hit and forfeit that the replay counted,
    or the cost that an evidence session's records state, and the price of what it bought at opening; of the pure sum
    the same, where all of its noise is pure.
    """
    verdict = replay(lines)
    assert verdict.ok, (verdict.problem, verdict.sequence)
    header, trailer = json.loads(lines[0]), json.loads(lines[-1])
    plan, law = header["plan"], header["mechanism"]["construction"]
    assert {m["dataset"] for m in moved} <= {state["dataset"]}
    purchases = (plan["purchase"] or {}).values()
    entries = [record for record in map(json.loads, lines[1:-1]) if record["record"] in ENTRIES]
    numbers = [entry["sequence"] for entry in entries]
    assert numbers == list(range(1, len(numbers) + 1))
    closed, updates = state["status"] == "closed", verdict.summary["updates"]
    pure = plan["reserved_pure"] is not None
    assert pure == (law == "laplace" or plan["regime"] == "pure" or plan["epsilon"] == 0)
    measured = [record for record in map(json.loads, lines) if record["record"] == "measurement"]
    own = [record for record in measured if record["session"] == state["id"]]
    paid = [e["sequence"] for e in entries if e["record"] == "forfeit" or e.get("source") == "measurement"]
    forfeited = [m["sequence"] for m in moved if m["kind"] == "forfeit"]
    released = [entry for entry in entries if entry["record"] == "release"]
    assert released in ([], entries)
    exact = plan["calibration"] == "exact" and closed and not forfeited
    assert forfeited in ([], [len(numbers)])

    def told(kind: str, which: str) -> list[tuple[int | None, Decimal | None]]:
        found = [(m["sequence"], m[which]) for m in moved if m["kind"] == kind]
        return [(sequence, None if amount is None else Decimal(amount)) for sequence, amount in found]

    def costs(sum_: str, ending: str) -> list[tuple[int, Decimal]]:
        """What each round cost: the plan's price, or what the session's records state."""
        if "evidence" not in header:
            return [(sequence, Decimal(plan[f"cost_per_update{ending}"])) for sequence in paid]
        stated = {record["sequence"]: Decimal(record["cost"][sum_]) for record in own if record["sequence"]}
        if released:  # all of it is charged at once, with the last of its records
            assert sorted(stated) == numbers
            return [(len(numbers), sum(stated.values(), Decimal(0)))]
        stated |= {e["sequence"]: Decimal(e["price"][sum_]) for e in entries if e["record"] == "forfeit"}
        assert sorted(stated) == paid
        return sorted(stated.items())

    def audit_sum(which: str, ending: str, prices: list[Decimal]) -> Decimal:
        """One of the sums, whose fields have this ending; what the session holds of it."""
        sum_ = "pure" if ending else "renyi"
        share, rounds = Decimal(plan[f"reserved{ending}"]), costs(sum_, ending)
        opening = [Decimal(record["cost"][sum_]) for record in own if not record["sequence"]]
        prices = [*prices, *([sum(opening, Decimal(0))] if opening else [])]
        spent = sum((cost for _, cost in rounds), Decimal(0)) + sum(prices, Decimal(0))
        if not ending:
            assert Decimal(verdict.summary["spent"]) == spent
        rest = share - spent
        assert rest >= 0
        assert told("reserve", which) == [(None, share)]
        assert told("forfeit", which) == [(sequence, rest) for sequence in forfeited]
        assert told("charge", which) == rounds + exact * [(len(numbers), rest)]
        assert told("purchase", which) == [(None, price) for price in prices]
        returned = closed and not exact and not forfeited
        assert told("return", which) == returned * [(len(numbers), rest)]
        gone = share if forfeited or exact else spent
        held = gone if closed else share
        assert Decimal(state[f"spent{ending}"]) == gone
        assert Decimal(state[f"spent{ending}"]) + Decimal(state[f"reserved{ending}"]) == held
        return held

    held = audit_sum("amount", "", [Decimal(p["cost"]) for p in purchases])
    assert state["sequence"] == trailer["entries"] == len(numbers)
    assert state["head_hash"] == trailer["head_hash"]
    assert state["updates_used"] == updates
    assert state["queries_asked"] == verdict.summary["queries"]
    if pure:
        assert not purchases
        return Amounts(held, audit_sum("pure", "_pure", []))
    assert state["spent_pure"] is state["reserved_pure"] is None
    if "evidence" not in header:
        assert {m["pure"] for m in moved if m["kind"] != "purchase"} == {None}
        assert told("purchase", "pure") == [(None, Decimal(p["epsilon"])) for p in purchases]
    return Amounts(held)


def wait(ticket: Ticket, seconds: float = 30.0) -> dict[str, Any]:
    """A ticket's reply; its refusal is raised.

    It is made of short waits: while the machine stands still, this process and its lanes with it, one of them goes by.
    """
    waits = round(20 * patience(seconds))
    assert any(ticket.waiter.wait(0.05) for _ in range(waits)), "the lane did not come to an end"
    if ticket.error is not None:
        raise ticket.error
    assert ticket.reply is not None
    parsed: dict[str, Any] = json.loads(ticket.reply)
    return parsed


def make_world(
    folder: Path, url: str | None = None, noise: Any = None, readers: Readers | None = None, **settings: Any
) -> World:
    """A service over a data folder and a migrated database, started.

    Uploads are read in processes of their own, where nothing that a test replaces is replaced: such a test gives the
    readers of this process.
    """
    made = Settings(data_dir=folder, database_url=url, admin_key=ADMIN_KEY, log_level="error", **settings)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if made.embedded_database is not None:
        place_migrated(made.embedded_database)
    serving.prepare(made)
    noise = Noise() if noise is None else noise
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wiring, "SqlStore", FaultyStore)
        if readers is not None:
            patch.setattr(wiring, "ProcessReaders", lambda **_: readers)
        built = wiring.build(made, noise)
    assert isinstance(built.store, FaultyStore)
    built.context.lifecycle.start()
    return World(folder, noise, built, built.store)


def query(a: int, *b: int) -> dict[str, Any]:
    """A predicate over one value of ``a`` and some of ``b``: different numbers are different queries."""
    return {"type": "predicate", "where": {"a": {"equals": a}, "b": {"in": list(b) or list(range(SHAPE[1]))}}}


def distinct_queries() -> Iterator[dict[str, Any]]:
    """Queries of which no two are the same."""
    for bits in range(1, 1 << SHAPE[1]):
        for a in range(SHAPE[0]):
            yield query(a, *(b for b in range(SHAPE[1]) if bits >> b & 1))


@contextmanager
def served(world: World) -> Iterator[int]:
    """The service behind a real HTTP server in this process; gives its port."""
    config = uvicorn.Config(
        world.built.app, host="127.0.0.1", port=0, log_config=None, lifespan="off", http=HttpProtocol
    )
    server = uvicorn.Server(config)
    delivery = world.answering.context.deliver

    async def run() -> None:
        delivery.loop = asyncio.get_running_loop()
        await server.serve()

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    try:
        eventually(lambda: server.started)
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(30)


def eventually(holds: Callable[[], Any], seconds: float = 60.0) -> Any:
    """What ``holds`` gives once that is true."""
    deadline = time.monotonic() + patience(seconds)
    while True:
        found = holds()
        if found:
            return found
        assert time.monotonic() < deadline, "it did not come to be"
        time.sleep(0.01)


def public(world: World, name: str) -> PublicDataset:
    """What is public of a data set."""
    found: PublicDataset = world.built.services.datasets.public(name)
    return found
