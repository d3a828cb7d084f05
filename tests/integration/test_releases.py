"""The work that releases take, whatever happens to it: noise and charge are one, and once; what is made of them may be
made again; and every release comes to an end.

The work is done in the test's own thread, between two requests. What runs in a process of its own is
tests/integration/test_release_worker.py.
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
from app.http import problems
from app.http.json_bodies import fingerprint
from app.releases.finishing import Job, Outcome, Progress, WorkerDied, finish
from app.services import release_jobs
from app.services.errors import BudgetExhausted, Conflict, Forbidden, NotFound
from app.services.principals import Principal
from app.services.release_jobs import ReleaseJobs
from app.services.sessions import IdempotencyKey
from app.services.upkeep import forfeit
from app.spaces.errors import InvalidRequest
from tests.databases import fresh_database
from tests.integration.conftest import DATABASES
from tests.integration.world import (
    ADMIN,
    AUDITOR,
    WHOLE,
    World,
    audit_books,
    ledger_of,
    make_world,
    sessions_of,
    transcript_of,
)

pytestmark = pytest.mark.slow
MARGINALS = {"method": "gaussian", "workload": {"marginals": 1}, "epsilon": 0.5}
ENDLESS = float("inf")
_numbers = itertools.count()


@dataclass
class Here:
    """Does jobs in this thread; ``before`` is called ahead of each."""

    before: Callable[[], None] = lambda: None
    jobs: list[Job] = field(default_factory=list)
    cancelled: threading.Event = field(default_factory=threading.Event)

    def finish(self, job: Job, progress: Progress) -> Outcome:
        self.jobs.append(job)
        self.before()
        return finish(job, progress)

    def cancel(self) -> None:
        self.cancelled.set()

    def stop(self) -> None:
        self.cancel()


@dataclass
class Timed:
    """What is counted of the work."""

    seconds: list[float] = field(default_factory=list)

    def fitted(self, seconds: float) -> None:
        self.seconds.append(seconds)


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

    def worker(self, here: Here | None = None) -> ReleaseJobs:
        """Somebody who works on releases, as another process does."""
        private = self.world.built.services.sessions._private
        here = self.here if here is None else here
        return ReleaseJobs(
            self.world.store, private, self.world.noise, here, utc_now, self.timed, render=problems.document
        )

    def ask(self, who: Principal | None = None, key: str | None = None, **changes: Any) -> dict[str, Any]:
        who = self.ann if who is None else who
        asked = {"dataset": self.name, **MARGINALS, **changes}
        named = None if key is None else IdempotencyKey(who.name, "/v1/releases", key, fingerprint(asked))
        releases = self.world.built.services.releases
        prepared = releases.prepare(who, asked, named)
        reply = prepared if isinstance(prepared, bytes) else releases.open(who, prepared, named)
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
        name, _ = self.world.built.services.releases.data(self.ann, id, None)
        assert name == "answers"
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
            url = stack.enter_context(fresh_database(request.getfixturevalue("postgres_server")))
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
        assert [len(job.known) for job in desk.here.jobs] == [0, 0, 2]
        desk.once(third["id"])

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
        a second one, noise that is drawn again once it is recorded, and a release that stays behind.
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
        recorded = desk.see(id)["step"] in ("fitting", "done")
        assert recorded == (commit > 3 or (commit == 3 and late))
        before = desk.world.noise.drawn
        assert desk.worker().work(ENDLESS) == (commit < 4 or not late)
        assert desk.world.noise.drawn - before == (0 if recorded else 2)
        desk.once(id)

    def test_the_process_dies_with_noise_in_hand(self, desk: Desk) -> None:
        """Catches noise of which something is left: what was drawn and not recorded is nowhere."""
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
        desk.once(id)

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

    def test_what_cannot_be_done_ends(self, desk: Desk) -> None:
        """Catches a release that is tried for ever: every draw fails, though the database answers."""
        id = desk.ask()["id"]

        def fail() -> None:
            raise RuntimeError("the generator failed")

        desk.world.noise.before = fail
        assert desk.jobs.work()
        seen = desk.ended(id, "failed")
        assert "its log says why" in seen["problem"]["detail"]
        assert seen["finished_at"] is not None


class TestSeveral:
    def test_a_slow_worker_records_nothing(self, desk: Desk) -> None:
        """It is taken for dead with noise in its hands, and goes on when the other one has recorded. Catches a second
        charge, and a transcript with two sets of measurements.
        """
        id, other = desk.ask()["id"], desk.worker(Here())

        def overtaken() -> None:
            desk.world.noise.before = lambda: None
            assert other.work(-1.0)

        desk.world.noise.before = overtaken
        assert desk.jobs.work()
        assert desk.here.jobs == []
        desk.once(id)

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
            def finish(self, job: Job, progress: Progress) -> Outcome:
                for part in (0.25, 0.5, 7.0):
                    progress(part)
                    while desk.see(id)["progress"] != min(part, 1.0):
                        pass
                    seen.append(part)
                return finish(job, progress)

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
            private, tensor = desk.jobs._private, desk.jobs._private.tensor
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(private, "tensor", lambda *named: (desk.jobs.stop(), tensor(*named))[1])
                assert desk.jobs.work()
        if measured:
            assert desk.jobs.work()
        assert (desk.see(id)["status"], desk.world.noise.drawn) == ("queued", 2 * measured)
        assert other.work()
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
        assert len(desk.here.jobs[-1].known) == 2
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
        """Catches measurements of a data set that is retired, and a share that stays reserved in it."""
        id = desk.ask()["id"]

        def retire() -> None:
            desk.world.noise.before = lambda: None
            desk.world.built.services.datasets.retire(ADMIN, desk.name)

        if when == "queued":
            retire()
        elif when == "measuring":
            desk.world.noise.before = retire
        else:
            desk.world.noise.before = lambda: retire() if desk.world.noise.drawn else None
        assert desk.jobs.work() == (when != "queued")
        desk.ended(id, "cancelled")

    def test_retired_while_it_fits(self, desk: Desk) -> None:
        """What was measured is public: it comes to its end."""
        id = desk.ask()["id"]
        desk.here.before = lambda: desk.world.built.services.datasets.retire(ADMIN, desk.name) and None
        assert desk.jobs.work()
        desk.once(id)

    def test_an_old_copy(self, worlds: Callable[..., World]) -> None:
        """Catches a release that goes on measuring when everything was forfeited."""
        world = worlds(None)
        world.built.services.jobs.stop()
        desk = Desk(world)
        done = desk.ask(epsilon=0.2)["id"]
        assert desk.jobs.work()
        waiting = desk.ask(epsilon=0.2)["id"]
        forfeit(desk.world.store, utc_now)
        assert not desk.jobs.work(ENDLESS)
        assert desk.see(done)["status"] == "done"
        assert desk.see(waiting)["status"] == "failed"
        assert "old copy" in desk.see(waiting)["problem"]["detail"]
        assert desk.moved(waiting) == ["reserve", "forfeit"]
        desk.audit()


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

    @pytest.mark.parametrize("when", ["measuring", "fitting", "done", "cancelled"])
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
        if when == "fitting":
            desk.here.before = refused
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
        desk.world.built.services.datasets.grant(ADMIN, desk.name, desk.ann.name, 0.3)
        with pytest.raises(BudgetExhausted):
            desk.ask(epsilon=0.4)
        desk.ask(epsilon=0.3)

    def test_where_access_is_by_grant(self, desk: Desk) -> None:
        desk.world.register(f"closed-{desk.name}", access="granted")
        with pytest.raises(Forbidden):
            desk.ask(dataset=f"closed-{desk.name}")
        desk.world.built.services.datasets.grant(ADMIN, f"closed-{desk.name}", desk.ann.name, 1.0)
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
