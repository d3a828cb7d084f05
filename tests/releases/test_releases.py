"""The work that releases take, whatever happens to it: noise and charge are one, and once; what is made of them may be
made again; and every release comes to an end.

The work is done in the test's own thread, between two requests. What runs in a process of its own is
tests/releases/test_release_worker.py.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from operator import itemgetter
from typing import Any

import pytest

from app.bootstrap.clock import utc_now
from app.curator.errors import PlanInfeasible
from app.declarations.errors import InvalidRequest
from app.http import problems
from app.http.json_bodies import fingerprint
from app.patience import Progress
from app.releases import fitting
from app.releases.finishing import TookTooLong, WorkerDied
from app.services import measuring, plans, release_jobs, release_measuring
from app.services.errors import BudgetExhausted, Conflict, Forbidden, NotFound
from app.services.idempotency import IdempotencyKey
from app.services.principals import Principal
from app.services.release_jobs import ReleaseJobs
from app.services.release_tasks import Task, carried_out
from app.services.upkeep import forfeit
from tests.kit.databases import migrated_database
from tests.kit.fixtures import DATABASES
from tests.kit.world import (
    ADMIN,
    AUDITOR,
    WHOLE,
    FaultyTransaction,
    World,
    audit_books,
    eventually,
    ledger_of,
    make_world,
    sessions_of,
    transcript_of,
)

pytestmark = [pytest.mark.integration, pytest.mark.slow]
MARGINALS = {"method": "gaussian", "workload": {"marginals": 1}, "epsilon": 0.5}
ENDLESS = float("inf")
_numbers = itertools.count()


@dataclass
class Here:
    """Does jobs in this thread; ``before`` is called ahead of each."""

    before: Callable[[], None] = lambda: None
    jobs: list[bytes] = field(default_factory=list)
    cancelled: threading.Event = field(default_factory=threading.Event)

    def finish(self, task: bytes, progress: Progress) -> bytes:
        self.jobs.append(task)
        self.before()
        return carried_out(task, progress)

    def cancel(self) -> None:
        self.cancelled.set()

    def stop(self) -> None:
        self.cancel()


@dataclass
class Timed:
    """What is counted of the work."""

    seconds: list[float] = field(default_factory=list)
    unfitted: int = 0

    def fitted(self, seconds: float) -> None:
        self.seconds.append(seconds)

    def not_converged(self, what: str, number: int) -> None:
        self.unfitted += number


@dataclass
class Desk:
    """A service on which nobody works on releases but the test."""

    world: World
    name: str = field(default_factory=lambda: f"d{next(_numbers)}")
    here: Here = field(default_factory=Here)
    timed: Timed = field(default_factory=Timed)

    def __post_init__(self) -> None:
        self.world.register(self.name)
        self.world.noise.drawn = 0
        self.jobs = self.worker()
        self.ann, self.bob = (self.world.analyst(f"{who}-{self.name}") for who in ("ann", "bob"))

    def worker(self, here: Here | None = None, quick: Here | None = None) -> ReleaseJobs:
        """Somebody who works on releases, as another process does."""
        private = self.world.built.services.opener._private
        here = self.here if here is None else here
        return ReleaseJobs(
            self.world.store,
            private,
            self.world.noise,
            here,
            utc_now,
            self.timed,
            render=problems.document,
            have_counted=self.world.built.services.answering.have_counted,
            quick=quick,
        )

    def ask(self, who: Principal | None = None, key: str | None = None, **changes: Any) -> dict[str, Any]:
        who = self.ann if who is None else who
        asked = {"dataset": self.name, **MARGINALS, **changes}
        named = None if key is None else IdempotencyKey(who.name, "/v1/releases", key, fingerprint(asked))
        opener = self.world.built.services.opener
        prepared = opener.prepare_release(who, asked, named)
        reply = prepared if isinstance(prepared, bytes) else opener.open(who, prepared, named)
        found: dict[str, Any] = json.loads(reply)
        return found

    def see(self, id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.world.built.services.releases.standing(AUDITOR, id).view
        return found

    def moved(self, id: str) -> list[str]:
        entries = ledger_of(self.world.built.services, self.name)["entries"]
        return [entry["kind"] for entry in entries if entry["session"] == id]

    def once(self, id: str) -> None:
        """All that a release measures is there, once, and charged once; its data are there, and the books agree."""
        assert self.see(id)["status"] == "done"
        assert self.moved(id) == ["reserve", "charge", "return"]
        assert [entry["record"] for entry in self.world.entries(id)] == ["release"] * 2
        name, _, _ = self.world.built.services.releases.data(self.ann, id, None)
        assert name == "answers"
        self.audit()

    def forfeited(self, id: str, status: str = "failed", draws: int | None = None) -> dict[str, Any]:
        """Noise may have been drawn, at most once, and nothing of it is recorded: the whole share is charged, the
        transcript says so, and nobody works on it any more.
        """
        seen, drawn = self.see(id), self.world.noise.drawn
        assert draws is None or drawn == draws
        assert seen["status"] == status
        assert self.moved(id) == ["reserve", "charge", "return"]
        assert Decimal(seen["cost"]["spent"]) == Decimal(seen["plan"]["reserved"]) > 0
        assert Decimal(seen["cost"]["reserved"]) == 0
        (entry,) = self.world.entries(id)
        assert entry["record"] == "forfeit"
        assert Decimal(entry["price"]["renyi"]) == Decimal(seen["plan"]["reserved"])
        assert "charged" in seen["problem"]["detail"]
        assert not self.worker(Here()).work(ENDLESS)
        assert self.world.noise.drawn == drawn
        self.audit()
        return seen

    def cut_short(self, patch: pytest.MonkeyPatch, end: Callable[[str], Any]) -> None:
        """A release ends while it is fitted: its worker hears of it and stops; what was measured and charged stays."""
        patch.setattr(release_jobs, "BEAT_SECONDS", 0.01)
        id = self.ask()["id"]

        def ending() -> None:
            end(id)
            assert self.here.cancelled.wait(30)
            raise WorkerDied("it was told to end")

        self.here.before = ending
        assert self.jobs.work()
        seen = self.see(id)
        assert (seen["status"], seen["step"]) == ("cancelled", "fitting")
        assert "what was measured for it is kept" in seen["problem"]["detail"]
        assert seen["finished_at"] is not None
        assert self.moved(id) == ["reserve", "charge", "return"]
        assert [entry["record"] for entry in self.world.entries(id)] == ["release"] * 2
        # No start, and no other worker, begins it again.
        assert not self.worker(Here()).work(ENDLESS)
        assert self.see(id) == seen
        assert self.world.noise.drawn == 2
        self.audit()

    def ended(self, id: str, status: str) -> dict[str, Any]:
        """Nothing was measured, and everything has returned."""
        seen = self.see(id)
        assert seen["status"] == status
        assert self.moved(id) == ["reserve", "return"]
        assert Decimal(seen["cost"]["reserved"]) == Decimal(seen["cost"]["spent"]) == 0
        assert self.world.entries(id) == []
        self.audit()
        return seen

    def audit(self) -> None:
        """The books of the data set, against its transcripts."""
        services = self.world.built.services
        sessions = [state for state in sessions_of(services, AUDITOR) if state["dataset"] == self.name]
        audit_books({self.name: ledger_of(services, self.name)}, sessions, partial(transcript_of, services))


@pytest.fixture(scope="module", params=DATABASES)
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A service whose own worker has stopped, on each database in turn."""
    with ExitStack() as stack:
        url = None
        if request.param != "sqlite":
            url = stack.enter_context(migrated_database(request.getfixturevalue("postgres_server")))
        world = make_world(tmp_path_factory.mktemp("releases"), url)
        stack.callback(world.stop)
        world.built.services.jobs.stop()
        yield world


@pytest.fixture
def desk(shared: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    monkeypatch.setattr(release_jobs, "PAUSES", (0.0,) * 3)
    monkeypatch.setattr(release_jobs, "LOOK_SECONDS", 0.01)
    made = Desk(shared)
    yield made
    shared.noise.before = shared.store.committed = shared.store.committing = lambda: None
    shared.noise.script.clear()
    shared.store.faults.clear()
    shared.store.refuse, shared.store.every = 0, False
    # What a test that failed has left is nobody's work in the next one.
    for item in made.world.built.services.releases.list(made.ann, "", WHOLE).items:
        assert item["status"] in ("done", "failed", "cancelled") or made.world.built.services.releases.end(item["id"])


class Dead(BaseException):
    """The process ends here."""


@contextmanager
def dying() -> Iterator[None]:
    with pytest.raises(Dead):
        yield


def die() -> None:
    raise Dead


class TestCourse:
    def test_from_asking_to_data(self, desk: Desk) -> None:
        """Catches a release that is not measured, or not charged, as its plan says."""
        told = desk.ask()
        assert (told["status"], told["step"], told["progress"]) == ("queued", "queued", 0.0)
        assert desk.moved(told["id"]) == ["reserve"]
        assert desk.world.noise.drawn == 0
        assert desk.jobs.work()
        desk.once(told["id"])
        assert desk.world.noise.drawn == told["plan"]["measurements"] == 2
        assert not desk.jobs.work()
        assert len(desk.timed.seconds) == 1
        seen = desk.see(told["id"])
        assert seen["cost"]["reserved"] == "0"
        assert seen["links"]["data"] == f"/v1/releases/{told['id']}/data"

    def test_a_search_that_is_given_up_is_told(self, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        """Planted: no table is ever good enough. The result says so and it is counted; that of another does not. Would
        catch a synthetic table that passes for the most plausible one."""
        asked = desk.ask(method="synthetic_table", epsilon=0.2)
        assert desk.jobs.work()
        assert "converged" not in desk.see(asked["id"])["result"]
        assert desk.timed.unfitted == 0
        monkeypatch.setattr(fitting, "_GAIN", -1.0)
        asked = desk.ask(method="synthetic_table", epsilon=0.2)
        assert desk.jobs.work()
        assert desk.see(asked["id"])["result"]["converged"] is False
        assert desk.timed.unfitted == 1

    def test_its_time_is_read_before_the_data(self, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        """Catches a record's time that tells how long it took to count and to draw."""
        id, early = desk.ask()["id"], ["2030-01-01T00:00:00Z"]
        monkeypatch.setattr(desk.jobs, "_clock", lambda: early[0])
        desk.world.noise.before = lambda: early.__setitem__(0, "2030-01-01T00:00:09Z")
        assert desk.jobs.work()
        assert {entry["recorded_at"] for entry in desk.world.entries(id)} == {"2030-01-01T00:00:00Z"}
        desk.once(id)

    def test_in_the_order_asked(self, desk: Desk) -> None:
        asked = [desk.ask(epsilon=0.1) for _ in range(3)]
        # Times are whole seconds.
        for told in sorted(asked, key=itemgetter("created_at", "id")):
            assert desk.jobs.work()
            assert desk.see(told["id"])["status"] == "done"

    def test_what_was_measured_before_is_used(self, desk: Desk) -> None:
        """Catches a release that begins from nothing, or that uses what was asked not to be shared."""
        first, second = desk.ask(epsilon=0.2), desk.ask(epsilon=0.2, share=False)
        for _ in (first, second):
            assert desk.jobs.work()
        third = desk.ask(epsilon=0.2)
        assert desk.jobs.work()
        assert [len(Task.read(task).known) for task in desk.here.jobs] == [0, 0, 2]
        desk.once(third["id"])

    def test_a_publication_of_what_is_known_spends_nothing(self, desk: Desk) -> None:
        """Would catch a draw, a charge, and books that an auditor does not find to agree."""
        before = desk.ask()["id"]
        assert desk.jobs.work()
        drawn = desk.world.noise.drawn
        id = desk.ask(method="publication", epsilon=0)["id"]
        assert desk.jobs.work()
        assert desk.see(id)["status"] == "done"
        assert desk.moved(id) == ["reserve", "return"]
        assert desk.world.entries(id) == []
        assert desk.world.noise.drawn == drawn
        assert Task.read(desk.here.jobs[-1]).known
        desk.once(before)

    def test_a_key_is_one_release(self, desk: Desk) -> None:
        """Catches a repeat that reserves again, also when all is done, and one that tells another state."""
        told = desk.ask(key="k")
        assert desk.ask(key="k") == told
        assert desk.jobs.work()
        assert desk.ask(key="k") == told
        assert len(desk.world.built.services.releases.list(desk.ann, "", WHOLE).items) == 1


class TestCrashes:
    @pytest.mark.parametrize("commit", range(1, 5))
    @pytest.mark.parametrize("late", [False, True])
    def test_the_process_dies_at_a_commit(self, desk: Desk, commit: int, late: bool) -> None:
        """Just before or just after each commit: taken, measuring, recorded, done. Catches a charge without its record,
        a second one, noise that is drawn a second time, a share that returns when noise may have been drawn for it, and
        a release that stays behind.
        """
        id = desk.ask()["id"]
        passed: list[int] = []

        def count() -> None:
            passed.append(1)
            if len(passed) == commit:
                raise Dead

        store = desk.world.store
        store.every = True
        setattr(store, "committed" if late else "committing", count)
        with dying():
            desk.jobs.work()
        store.committed = store.committing = lambda: None
        step, before = desk.see(id)["step"], desk.world.noise.drawn
        assert (step != "queued") == (commit > 2 or (commit == 2 and late))
        assert desk.worker().work(ENDLESS) == (commit < 4 or not late)
        assert desk.world.noise.drawn - before == (2 if step == "queued" else 0)
        if step == "measuring":
            desk.forfeited(id)
        else:
            desk.once(id)

    def test_the_process_dies_with_noise_in_hand(self, desk: Desk) -> None:
        """Catches noise that is drawn again, so that whoever makes processes die may choose among draws, and a share
        that returns.
        """
        id = desk.ask()["id"]
        desk.world.noise.script.extend([5, 5])
        desk.world.noise.before = lambda: die() if desk.world.noise.drawn else None
        with dying():
            desk.jobs.work()
        assert desk.moved(id) == ["reserve"]
        assert desk.world.entries(id) == []
        desk.world.noise.script.clear()
        desk.world.noise.before = lambda: None
        assert desk.worker().work(ENDLESS)
        assert "what was drawn is lost" in desk.forfeited(id, draws=1)["problem"]["detail"]

    def test_the_process_dies_while_it_fits(self, desk: Desk) -> None:
        id = desk.ask()["id"]
        desk.here.before = die
        with dying():
            desk.jobs.work()
        before = desk.world.noise.drawn
        assert desk.worker(Here()).work(ENDLESS)
        assert desk.world.noise.drawn == before
        desk.once(id)

    @pytest.mark.parametrize("fault", ["before", "after"])
    @pytest.mark.parametrize("commit", range(1, 4))
    def test_a_commit_is_in_doubt(self, desk: Desk, commit: int, fault: str) -> None:
        """A commit fails, and it may have happened. Catches a second record or charge, and a release given up."""
        id = desk.ask()["id"]
        desk.world.store.every = True
        # Of the first commit, which takes it, see below.
        desk.world.store.faults.extend([None] * commit + [fault])
        assert desk.jobs.work()
        desk.once(id)

    def test_a_claim_is_in_doubt(self, desk: Desk) -> None:
        """Whoever took it does not know: after a silence it is anybody's."""
        id = desk.ask()["id"]
        desk.world.store.every = True
        desk.world.store.faults.append("after")
        with pytest.raises(Exception, match="lost"):
            desk.jobs.work()
        assert not desk.jobs.work()
        assert desk.jobs.work(-1.0)
        desk.once(id)

    def test_the_database_is_away(self, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        """For longer than failures are put up with otherwise. Catches a release that fails of it."""
        id = desk.ask()["id"]
        looks: list[int] = []

        def ping() -> None:
            looks.append(1)
            if len(looks) > 8:
                desk.world.store.refuse = 0
            raise ConnectionError

        def away() -> None:
            desk.world.noise.before = lambda: None
            desk.world.store.refuse = 1000

        monkeypatch.setattr(release_jobs, "PAUSES", ())
        monkeypatch.setattr(desk.world.store, "ping", ping)
        desk.world.noise.before = away
        assert desk.jobs.work()
        assert len(looks) > 8
        desk.once(id)

    def test_what_cannot_be_done_ends(self, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        """Catches a release that is tried for ever, and one that is charged though nothing private was looked at: all
        that comes before the noise fails, though the database answers.
        """
        id = desk.ask()["id"]
        monkeypatch.setattr(release_measuring, "pin_all", failing(MemoryError()))
        assert desk.jobs.work()
        seen = desk.ended(id, "failed")
        assert "its log says why" in seen["problem"]["detail"]
        assert seen["finished_at"] is not None
        assert desk.world.noise.drawn == 0


def failing(error: Exception) -> Callable[..., Any]:
    """What raises this whatever it is given."""

    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


#: What may go wrong of our own while noise is drawn: too little memory, a number too large, a refusal.
FAULTS = [MemoryError(), OverflowError("too large"), InvalidRequest("it does not fit")]


class TestAfterTheMark:
    """Exceptions of our own between the first look at the data and the record. Each test asserts what is charged, and
    that nothing is drawn a second time."""

    @pytest.mark.parametrize("error", FAULTS, ids=lambda error: type(error).__name__)
    def test_counting_fails(self, desk: Desk, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
        """Before the first draw. Catches a failure that depends on the data and is free, so that it may be provoked as
        often as one likes.
        """
        id = desk.ask()["id"]
        monkeypatch.setattr(measuring, "exact_values", failing(error))
        assert desk.jobs.work()
        monkeypatch.undo()
        desk.forfeited(id, draws=0)

    @pytest.mark.parametrize("error", FAULTS, ids=lambda error: type(error).__name__)
    @pytest.mark.parametrize("draws", [0, 1])
    def test_a_draw_fails(self, desk: Desk, draws: int, error: Exception) -> None:
        """Catches a draw that is tried again, and a share that returns, when others were drawn before."""
        id = desk.ask()["id"]
        desk.world.noise.before = lambda: failing(error)() if desk.world.noise.drawn == draws else None
        assert desk.jobs.work()
        desk.world.noise.before = lambda: None
        desk.forfeited(id, draws=draws)

    @pytest.mark.parametrize("draws", [1, 2, 4])
    def test_a_round_fails(self, desk: Desk, monkeypatch: pytest.MonkeyPatch, draws: int) -> None:
        """Rounds decide by what was drawn before. Catches rounds that are played again from the first one."""
        id = desk.ask(method="iterative_construction", rounds=5)["id"]
        choose, made = desk.world.noise.choose, desk.world.noise

        def chosen(scores: Any, scale: Any) -> int:
            if made.drawn == draws:
                raise MemoryError
            index: int = choose(scores, scale)
            return index

        monkeypatch.setattr(made, "choose", chosen)
        assert desk.jobs.work()
        monkeypatch.setattr(made, "choose", choose)
        desk.forfeited(id, draws=draws)

    @pytest.mark.parametrize("error", FAULTS, ids=lambda error: type(error).__name__)
    @pytest.mark.parametrize("place", ["the records", "the charge", "the statement"])
    @pytest.mark.parametrize("passes", [True, False])
    def test_the_record_fails(
        self, desk: Desk, monkeypatch: pytest.MonkeyPatch, place: str, passes: bool, error: Exception
    ) -> None:
        """All is drawn. What passes costs nothing more: the same values are recorded. Catches values that are dropped
        and drawn again, those that are dropped for nothing, and a share that returns when they are dropped at last.
        """
        id, tries = desk.ask()["id"], []
        where, name = {
            "the records": (release_jobs, "record"),
            "the charge": (release_measuring, "total"),
            "the statement": (FaultyTransaction, "add_evidence"),
        }[place]
        real = getattr(where, name)

        def sometimes(*arguments: Any) -> Any:
            tries.append(1)
            if passes and len(tries) > 1:
                return real(*arguments)
            raise error

        monkeypatch.setattr(where, name, sometimes)
        assert desk.jobs.work()
        monkeypatch.undo()
        assert desk.world.noise.drawn == 2
        if passes:
            desk.once(id)
        else:
            desk.forfeited(id, draws=2)

    def test_there_is_no_room_for_it(self, desk: Desk) -> None:
        """The disk is full for longer than is put up with otherwise, though the database answers. Catches measurements
        that are given up, or drawn again, when they can be written at last.
        """
        id = desk.ask()["id"]
        desk.world.noise.before = lambda: (
            None if desk.world.noise.drawn else desk.world.store.faults.extend(["before"] * 12)
        )
        assert desk.jobs.work()
        assert desk.world.noise.drawn == 2
        desk.once(id)

    def test_the_process_ends_before_there_is_room(self, desk: Desk) -> None:
        """Catches measurements that nobody has any more, and whose share returns."""
        id = desk.ask()["id"]

        def full() -> None:
            desk.world.store.committing = stop

        def stop() -> None:
            desk.world.store.faults.append("before")
            desk.jobs._stopping.set()

        desk.world.noise.before = full
        assert desk.jobs.work()
        desk.world.store.committing = desk.world.noise.before = lambda: None
        assert desk.see(id)["step"] == "measuring"
        assert desk.worker().work(ENDLESS)
        desk.forfeited(id, draws=2)

    def test_a_mark_in_doubt_is_no_draw(self, desk: Desk) -> None:
        """Whoever wrote it knows that it has drawn nothing. Catches a share that is charged for nothing."""
        id = desk.ask()["id"]
        desk.world.store.every = True
        desk.world.store.faults.extend([None, "after", "before", "before"])
        assert desk.jobs.work()
        assert desk.world.noise.drawn == 2
        desk.once(id)

    def test_its_clock_was_set_back(self, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        """Catches a record that lies before its session's opening, which no auditor takes."""
        monkeypatch.setattr(desk.jobs, "_clock", lambda: "2020-01-01T00:00:00Z")
        id, lost = desk.ask(epsilon=0.2)["id"], desk.ask(epsilon=0.2)["id"]
        for _ in range(2):
            # Which of the two comes first is chance.
            desk.world.noise.before = lambda: failing(MemoryError())() if desk.world.noise.drawn == 2 else None
            assert desk.jobs.work()
        desk.audit()
        assert sorted(desk.see(each)["status"] for each in (id, lost)) == ["done", "failed"]


class TestSeveral:
    def test_a_slow_worker_records_nothing(self, desk: Desk) -> None:
        """It is taken for dead with noise in its hands, and goes on when the other one has ended the release. Catches
        a second set of draws, and measurements that are recorded beside the charge for their loss.
        """
        id, other = desk.ask()["id"], desk.worker(Here())

        def overtaken() -> None:
            desk.world.noise.before = lambda: None
            assert other.work(-1.0)

        desk.world.noise.before = overtaken
        assert desk.jobs.work()
        assert desk.here.jobs == []
        desk.forfeited(id, draws=2)

    def test_a_slow_worker_ends_nothing(self, desk: Desk) -> None:
        """The same while it fits: one set of files, and the other's."""
        id, others = desk.ask()["id"], Here()
        other = desk.worker(others)
        desk.here.before = lambda: other.work(-1.0)
        assert desk.jobs.work()
        assert len(others.jobs) == 1
        desk.once(id)

    def test_a_beat_does_not_take_it_back(self, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        """Catches a worker that goes on with what is another's, and one whose beat claims it again."""
        monkeypatch.setattr(release_jobs, "BEAT_SECONDS", 0.01)
        id = desk.ask()["id"]

        def overtaken() -> None:
            with desk.world.store.write() as tx:
                assert tx.claim_release("other", 1e12, ENDLESS) is not None
                tx.commit()
            assert desk.here.cancelled.wait(30)

        desk.here.before = overtaken
        assert desk.jobs.work()
        with desk.world.store.read() as tx:
            row = tx.release(id)
        assert row is not None
        assert (row.status, row.worker, row.beat) == ("running", "other", 1e12)
        assert desk.worker(Here()).work(ENDLESS)
        desk.once(id)

    def test_a_worker_that_is_alive_keeps_it(self, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        """Catches work that takes longer than the silence and is taken away from whoever does it: the beats go on."""
        monkeypatch.setattr(release_jobs, "BEAT_SECONDS", 0.01)
        id, other = desk.ask()["id"], desk.worker(Here())

        def long() -> None:
            with desk.world.store.read() as tx:
                first = tx.release(id)
            assert first is not None
            while True:
                with desk.world.store.read() as tx:
                    row = tx.release(id)
                if row is not None and row.beat > first.beat:
                    break
            assert not other.work(60.0)

        desk.world.noise.before, desk.here.before = long, long
        assert desk.jobs.work()
        desk.once(id)

    def test_progress_is_told(self, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(release_jobs, "BEAT_SECONDS", 0.01)
        id = desk.ask()["id"]
        seen: list[float] = []

        class Slow(Here):
            def finish(self, task: bytes, progress: Progress) -> bytes:
                for part in (0.25, 0.5, 7.0):
                    progress(part)
                    while desk.see(id)["progress"] != min(part, 1.0):
                        pass
                    seen.append(part)
                return carried_out(task, progress)

        assert desk.worker(Slow()).work()
        assert seen == [0.25, 0.5, 7.0]
        desk.once(id)

    @pytest.mark.parametrize("measured", [False, True])
    def test_a_stop_hands_it_back(self, desk: Desk, measured: bool) -> None:
        """Catches work that waits for the silence of a process that said it ends, noise that is drawn after that, and
        noise that is drawn again.
        """
        id, other = desk.ask()["id"], desk.worker(Here())

        def stop() -> None:
            desk.jobs.stop()
            raise WorkerDied("stopped")

        if measured:
            desk.here.before = stop
        else:
            private, counts = desk.jobs._private, desk.jobs._private.counts
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(private, "counts", lambda *named: (desk.jobs.stop(), counts(*named))[1])
                assert desk.jobs.work()
        if measured:
            assert desk.jobs.work()
        assert (desk.see(id)["status"], desk.world.noise.drawn) == ("queued", 2 * measured)
        assert other.work()
        assert desk.world.noise.drawn == 2
        desk.once(id)

    def test_a_stop_that_comes_with_the_mark_waits_for_noise(self, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        """While the mark is written. Catches a stop that takes noise which is about to be drawn for none, and a charge
        of what it had the time to record.
        """
        monkeypatch.setattr(release_jobs, "STOP_SECONDS", 0.0)
        id = desk.ask()["id"]
        marked, stopping = threading.Event(), threading.Thread(target=desk.jobs.stop)

        def mark() -> None:
            if desk.see(id)["step"] == "measuring" and not marked.is_set():
                stopping.start()
                marked.set()
                stopping.join(0.5)

        desk.world.store.every = True
        desk.world.store.committed = mark
        desk.jobs.start()
        assert marked.wait(30)
        stopping.join(30)
        assert not stopping.is_alive()
        assert desk.see(id)["step"] in ("fitting", "done")
        assert [entry["record"] for entry in desk.world.entries(id)] == ["release"] * 2
        eventually(lambda: desk.see(id)["status"] == "done")
        desk.once(id)

    def test_a_stop_waits_for_noise(self, desk: Desk) -> None:
        """Catches a server that ends with noise in its hands which it had the time to record."""
        id = desk.ask()["id"]
        drawing, go_on = threading.Event(), threading.Event()

        def draw() -> None:
            drawing.set()
            assert go_on.wait(30)

        desk.world.noise.before = draw
        desk.jobs.start()
        assert drawing.wait(30)
        stopping = threading.Thread(target=desk.jobs.stop)
        stopping.start()
        stopping.join(0.3)
        assert stopping.is_alive()
        go_on.set()
        stopping.join(30)
        assert not stopping.is_alive()
        assert desk.world.noise.drawn == 2
        desk.once(id)


class TestEnds:
    def test_the_process_that_fits_dies(self, desk: Desk) -> None:
        """Catches a release that waits for ever, and measurements that are lost though they are paid for."""
        id = desk.ask()["id"]

        def killed() -> None:
            raise WorkerDied("it was killed")

        desk.here.before = killed
        assert desk.jobs.work()
        seen = desk.see(id)
        assert seen["status"] == "failed"
        assert seen["problem"]["detail"].startswith("it was killed. What was measured for it is kept")
        assert desk.moved(id) == ["reserve", "charge", "return"]
        desk.audit()
        with pytest.raises(Conflict, match="failed"):
            desk.world.built.services.releases.data(desk.ann, id, None)
        desk.here.before = lambda: None
        after = desk.ask(epsilon=0.2)["id"]
        assert desk.jobs.work()
        assert len(Task.read(desk.here.jobs[-1]).known) == 2
        desk.once(after)

    def test_a_refusal_is_told(self, desk: Desk) -> None:
        id = desk.ask()["id"]

        def refuse() -> None:
            raise InvalidRequest("no graph has so few edges")

        desk.here.before = refuse
        assert desk.jobs.work()
        seen = desk.see(id)
        assert (seen["status"], seen["problem"]["detail"]) == ("failed", "no graph has so few edges")
        assert seen["problem"]["type"] == "/problems/invalid-request"

    def test_the_private_file_is_gone(self, desk: Desk) -> None:
        """Catches a share that is kept though nothing could be measured."""
        id = desk.ask()["id"]
        for path in (desk.world.folder / "vault").glob(f"{desk.name}.*"):
            path.unlink()
        assert desk.jobs.work()
        assert desk.ended(id, "failed")["problem"]["status"] == 503

    @pytest.mark.parametrize("when", ["queued", "measuring", "recording"])
    def test_retired_before_the_record(self, desk: Desk, when: str) -> None:
        """Catches measurements of a data set that is retired, a share that stays reserved in it, and one that returns
        when noise may have been drawn.
        """
        id = desk.ask()["id"]

        def retire() -> None:
            desk.world.noise.before = lambda: None
            desk.world.built.services.retirement.retire(ADMIN, desk.name)

        if when == "queued":
            retire()
        elif when == "measuring":
            desk.world.noise.before = retire
        else:
            desk.world.noise.before = lambda: retire() if desk.world.noise.drawn else None
        assert desk.jobs.work() == (when != "queued")
        if when == "queued":
            desk.ended(id, "cancelled")
        else:
            assert "the data set was retired" in desk.forfeited(id, "cancelled")["problem"]["detail"]

    def test_retired_while_it_fits(self, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        """What was measured is public and stays; nothing is made of it any more."""
        desk.cut_short(monkeypatch, lambda _: desk.world.built.services.retirement.retire(ADMIN, desk.name))

    def test_an_old_copy(self, worlds: Callable[..., World]) -> None:
        """Catches a release that goes on measuring when everything was forfeited."""
        world = worlds(None)
        world.built.services.jobs.stop()
        desk = Desk(world)
        done = desk.ask(epsilon=0.2)["id"]
        assert desk.jobs.work()
        waiting = desk.ask(epsilon=0.2)["id"]
        forfeit(desk.world.store, utc_now, problems.document)
        assert not desk.jobs.work(ENDLESS)
        assert desk.see(done)["status"] == "done"
        assert desk.see(waiting)["status"] == "failed"
        assert "old copy" in desk.see(waiting)["problem"]["detail"]
        assert desk.moved(waiting) == ["reserve", "forfeit"]
        desk.audit()


@dataclass
class Slow(Here):
    """Is ended for the time that it takes."""

    def finish(self, task: bytes, progress: Progress) -> bytes:
        raise TookTooLong("it took longer than the 900 s that the server allows")


class TestTime:
    def test_a_fit_that_takes_too_long_ends(self, desk: Desk) -> None:
        """Catches a fit that nobody ends, one that is begun again, and measurements or a charge that are lost with
        it.
        """
        id = desk.ask()["id"]
        assert desk.worker(Slow()).work()
        seen = desk.see(id)
        assert (seen["status"], seen["step"], seen["problem"]["title"]) == (
            "failed",
            "fitting",
            "The release took too long",
        )
        assert "900 s" in seen["problem"]["detail"]
        assert desk.moved(id) == ["reserve", "charge", "return"]
        assert [entry["record"] for entry in desk.world.entries(id)] == ["release"] * 2
        assert not desk.worker(Here()).work(ENDLESS)
        desk.audit()

    def test_who_is_slower_than_foretold_goes_on_elsewhere(self, desk: Desk) -> None:
        """Catches a release that holds up quick ones for longer than is said, one that fails for a wrong foresight, and
        noise that is drawn again for it.
        """
        id = desk.ask()["id"]
        assert desk.see(id)["expected_seconds"] <= release_jobs.QUICK_SECONDS
        jobs = desk.worker(quick=Slow())
        assert jobs.work(quick=True)
        seen = desk.see(id)
        assert (seen["status"], seen["step"]) == ("queued", "fitting")
        assert seen["expected_seconds"] > release_jobs.QUICK_SECONDS
        assert not jobs.work(quick=True)
        assert jobs.work()
        assert desk.world.noise.drawn == 2
        desk.once(id)

    def test_quick_ones_wait_for_no_long_one(self, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        """Real threads: three principals' long fits wait and one is worked on; somebody else's quick releases are done
        meanwhile. Catches a queue in which one long fit stops all others.
        """
        foretold = [500.0]
        monkeypatch.setattr(plans, "expected_seconds", lambda *_: foretold[0])
        long = [desk.ask(who, epsilon=0.1)["id"] for who in (desk.ann, desk.bob, ADMIN)]
        foretold[0] = 2.0
        entered, go_on = threading.Event(), threading.Event()

        def wait() -> None:
            entered.set()
            assert go_on.wait(60)

        jobs = desk.worker(Here(wait), quick=Here())
        jobs.start()
        try:
            assert entered.wait(30)
            quick = [desk.ask(desk.bob, epsilon=0.1)["id"] for _ in range(3)]
            jobs.wake()
            eventually(lambda: all(desk.see(id)["status"] == "done" for id in quick))
            assert sorted(desk.see(id)["status"] for id in long) == ["queued", "queued", "running"]
        finally:
            go_on.set()
        eventually(lambda: all(desk.see(id)["status"] == "done" for id in long))
        jobs.stop()
        desk.audit()

    def test_what_is_foretold_to_take_too_long_is_refused(self, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        """Catches a share that is spent on what the server will not finish."""
        monkeypatch.setattr(desk.world.built.services.plans, "_release_seconds", 1.0)
        with pytest.raises(PlanInfeasible, match="CURATOR_RELEASE_SECONDS") as refusal:
            desk.ask()
        assert refusal.value.extra["limit"] == 1.0
        assert ledger_of(desk.world.built.services, desk.name)["entries"] == []

    def test_a_start_goes_on_with_what_was_left(self, desk: Desk) -> None:
        """Where no other process may be at work on it. Catches threads of which one takes for left what the other has
        just begun, and a start that takes another server's work from it."""
        id = desk.ask()["id"]
        desk.here.before = die
        with dying():
            desk.jobs.work()
        jobs = desk.worker(Here(), quick=Here())
        jobs.start()
        if not desk.world.store.exclusive:
            other = desk.ask(epsilon=0.1)["id"]
            jobs.wake()
            eventually(lambda: desk.see(other)["status"] == "done")
            jobs.stop()
            assert desk.see(id)["status"] == "running"
            return
        eventually(lambda: desk.see(id)["status"] == "done")
        jobs.stop()
        assert desk.world.noise.drawn == 2
        desk.once(id)


class TestCancel:
    def test_before_noise(self, desk: Desk) -> None:
        """Catches a share that does not return, and a worker that carries on regardless."""
        id = desk.ask()["id"]
        told = desk.world.built.services.releases.cancel(desk.ann, id)
        assert told == desk.ended(id, "cancelled")
        assert not desk.jobs.work(ENDLESS)
        assert desk.world.noise.drawn == 0
        desk.ask(epsilon=1.0)

    def test_of_one_that_was_just_taken(self, desk: Desk) -> None:
        """Before its first step. Catches a worker that does not see it."""
        id = desk.ask()["id"]
        cancelled: list[Any] = []
        at = desk.jobs._at

        def late(*arguments: Any) -> Any:
            if not cancelled:
                cancelled.append(desk.world.built.services.releases.cancel(desk.ann, id))
            return at(*arguments)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(desk.jobs, "_at", late)
            assert desk.jobs.work()
        desk.ended(id, "cancelled")
        assert desk.world.noise.drawn == 0

    def test_while_it_fits(self, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        """Catches a fit that nobody can end, one that is taken up again, and a charge that is given back."""
        desk.cut_short(monkeypatch, lambda id: desk.world.built.services.releases.cancel(desk.ann, id))

    @pytest.mark.parametrize("when", ["measuring", "done", "cancelled"])
    def test_after_that_it_is_refused(self, desk: Desk, when: str) -> None:
        """Catches a cancellation that gives back what noise was drawn for."""
        id, told = desk.ask()["id"], []
        cancel = desk.world.built.services.releases.cancel

        def refused() -> None:
            with pytest.raises(Conflict) as refusal:
                cancel(desk.ann, id)
            told.append(refusal.value.detail)

        if when == "measuring":
            desk.world.noise.before = refused
        if when == "cancelled":
            cancel(desk.ann, id)
        assert desk.jobs.work() == (when != "cancelled")
        if when in ("done", "cancelled"):
            refused()
        assert told
        if when != "cancelled":
            desk.once(id)


class TestAccess:
    def test_whose_it_is(self, desk: Desk) -> None:
        """Catches a release that others see or end, and an auditor who acts."""
        releases, bob = desk.world.built.services.releases, desk.bob
        id = desk.ask()["id"]
        for call in (releases.standing, releases.cancel):
            with pytest.raises(NotFound):
                call(bob, id)
        with pytest.raises(NotFound):
            releases.data(bob, id, None)
        with pytest.raises(Forbidden):
            releases.cancel(AUDITOR, id)
        assert releases.list(bob, "", WHOLE).items == []
        for who in (desk.ann, ADMIN, AUDITOR):
            seen = [item["id"] for item in releases.list(who, "", WHOLE).items]
            assert id in seen
            assert who != desk.ann or seen == [id]
        assert releases.cancel(ADMIN, id)["status"] == "cancelled"

    def test_within_the_grant(self, desk: Desk) -> None:
        desk.world.built.services.grants.grant(ADMIN, desk.name, desk.ann.name, 0.3)
        with pytest.raises(BudgetExhausted):
            desk.ask(epsilon=0.4)
        desk.ask(epsilon=0.3)

    def test_where_access_is_by_grant(self, desk: Desk) -> None:
        desk.world.register(f"closed-{desk.name}", access="granted")
        with pytest.raises(Forbidden):
            desk.ask(dataset=f"closed-{desk.name}")
        desk.world.built.services.grants.grant(ADMIN, f"closed-{desk.name}", desk.ann.name, 1.0)
        assert desk.ask(dataset=f"closed-{desk.name}")["status"] == "queued"

    def test_pages(self, desk: Desk) -> None:
        releases = desk.world.built.services.releases
        told = sorted((desk.ask(epsilon=0.1) for _ in range(5)), key=itemgetter("created_at", "id"))
        asked = [each["id"] for each in told]
        found, after = [], ""
        while after is not None:
            page = releases.list(desk.ann, after, 2)
            found += [item["id"] for item in page.items]
            after = page.after
        assert found == asked
        with pytest.raises(InvalidRequest):
            releases.list(desk.bob, asked[0], 2)
