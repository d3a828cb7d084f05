"""Snapshots: what a restart begins from, and that nothing but time depends on them.

The service and its databases are real; noise is told. Every entry counts as dear to make again, so that sessions of a
few cells are written down where only large ones would be.
"""

from __future__ import annotations

import os
import shutil
import signal
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.audit.replay import replay
from app.curator.mechanisms.evidence import Evidence
from app.curator.session import Session
from app.services import loading, residents
from app.services.loading import load_session, resume_session
from app.services.ports import Snapshot
from app.storage.snapshots import SnapshotFiles
from curator_client.proofs.records import sha256
from tests.kit.servers import Caller, launching
from tests.kit.world import (
    ADMIN,
    EACH,
    HIT,
    SHAPE,
    WHOLE,
    World,
    distinct_queries,
    make_world,
    query,
    transcript_of,
)

pytestmark = pytest.mark.integration

Worlds = Callable[..., World]


@pytest.fixture
def dear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(residents, "ENTRY_SECONDS", 10.0)


def folder(world: World) -> Path:
    return world.folder / "snapshots"


def asked(world: World, rounds: int = 12) -> str:
    """A session with hits on both sides, misses and a cached answer."""
    if "d" not in {d["name"] for d in world.built.services.datasets.list("", WHOLE).items}:
        world.register("d")
    ann = world.analyst("ann")
    id = world.open(ann, "d")
    go_on(world, id, rounds)
    return id


def stopped(worlds: Worlds, rounds: int = 12) -> tuple[World, str]:
    """A service that has ended after such a session: nobody writes its snapshot any more."""
    world = worlds(None)
    id = asked(world, rounds)
    world.stop()
    return world, id


def go_on(world: World, id: str, rounds: int = 6) -> list[dict[str, Any]]:
    """More rounds, the same wherever they are asked."""
    ann, given = world.analyst("ann"), []
    fresh = distinct_queries()
    world.noise.script.clear()
    for number in range(rounds):
        world.noise.script.append([0.0, HIT / 400, 0.0, -HIT / 600][number % 4])
        given.append(world.ask(ann, id, next(fresh)))
        if given[-1]["source"] == "cached":
            world.noise.script.clear()
    given.append(world.ask(ann, id, query(0)))
    return given


def states(world: World, id: str) -> tuple[Session, Session, int]:
    """A session from its transcript, the same by its snapshot, and the entry which that stood on (0: unused)."""
    with world.store.read() as tx:
        row = tx.session(id)
        assert row is not None
        plain = load_session(tx, row)
        resumed = resume_session(tx, row, SnapshotFiles(folder(world), 1 << 30))
    return plain.session, resumed.session, resumed.kept


def content(session: Session) -> tuple[Any, ...]:
    """All of a session's state."""
    dump = session.dump()
    arrays = {name: (a.dtype.str, a.shape, a.tobytes()) for name, a in dump.arrays.items()}
    return arrays, dump.words


def same(left: Session, right: Session) -> bool:
    return content(left) == content(right)


class TestWhatIsKept:
    def test_a_restart_begins_from_it(
        self, worlds: Worlds, database: str | None, dear: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Sessions are written down when the service stops; the next one goes on from there, without reading the
        transcript, as if nothing had been. Would catch snapshots that are not written, not found, or not used."""
        first = worlds(database)
        id = asked(first)
        first.stop()
        plain, resumed, kept = states(first, id)
        assert kept == plain.sequence
        assert same(plain, resumed)

        def never(*_: Any) -> Any:
            raise AssertionError("the transcript was read")

        monkeypatch.setattr(loading, "load_session", never)
        second = worlds(database)
        again = second.ask(second.analyst("ann"), id, query(0))
        assert again["source"] == "cached"
        assert again["sequence"] == kept + 1
        monkeypatch.undo()
        second.audit()

    def test_answers_are_those_of_an_uninterrupted_session(
        self, worlds: Worlds, dear: None, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        """The same rounds in one go, and with a restart on a snapshot between them."""
        worlds(None).stop()
        one = worlds(None)
        id = asked(one)
        one.stop()
        other = tmp_path_factory.mktemp("other") / "data"
        shutil.copytree(one.folder, other)
        shutil.rmtree(other / "snapshots")
        plain, resumed = make_world(other), worlds(None)
        try:
            kept = ("value", "source", "error_bound", "updates_used", "sequence")
            told = [[{k: a[k] for k in kept} for a in go_on(world, id, 9)] for world in (plain, resumed)]
        finally:
            plain.stop()
        assert told[0] == told[1]
        resumed.audit()

    def test_in_use_and_out_of_memory(self, worlds: Worlds, monkeypatch: pytest.MonkeyPatch) -> None:
        """A session in use is written down now and then, one that leaves memory at once, each where its own turn
        ends: what a snapshot stands on is always committed. Would catch one written before its commit."""
        world = worlds(None, memory_limit=16 << 20)
        seen: list[int] = []
        write = SnapshotFiles.write

        def spy(self: SnapshotFiles, session: str, snapshot: Snapshot) -> None:
            with world.store.read() as tx:
                row = tx.session(session)
            assert row is not None
            assert row.head_hash == snapshot.facts["head_hash"]
            seen.append(row.sequence)
            write(self, session, snapshot)

        monkeypatch.setattr(SnapshotFiles, "write", spy)
        monkeypatch.setattr(residents, "ENTRY_SECONDS", 10.0)
        id = asked(world)
        assert seen
        assert seen == sorted(set(seen))
        monkeypatch.setattr(residents, "SNAPSHOT_SHARE", 10**9)
        go_on(world, id)
        before = len(seen)
        # Room for one session alone in each lane.
        monkeypatch.setattr(residents, "SESSION_BYTES", 4 << 20)
        asked(world, 1)
        asked(world, 1)
        assert len(seen) > before

    def test_a_session_that_is_soon_made_again_leaves_none(
        self, worlds: Worlds, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Would catch a file for every session that ever was."""
        # A write counts as dear: how long the updates took is measured, and a busy machine may take long.
        monkeypatch.setattr(residents, "SNAPSHOT_SECONDS", 600.0)
        world = worlds(None)
        asked(world)
        world.stop()
        assert list(folder(world).glob("*")) == []

    @pytest.mark.parametrize("how", ["close", "retire", "elsewhere"])
    def test_removed_with_its_session(self, worlds: Worlds, dear: None, how: str) -> None:
        """When it is closed, when its data set is retired, and, where another process had written it down, at the
        next start."""
        world, id = stopped(worlds)
        kept = (folder(world) / id).read_bytes()
        world = worlds(None)
        if how == "retire":
            world.built.services.retirement.retire(ADMIN, "d")
        else:
            world.close(world.analyst("ann"), id)
        assert not (folder(world) / id).exists()
        if how == "elsewhere":
            other = asked(world)
            (folder(world) / id).write_bytes(kept)
            world.stop()
            worlds(None)
            assert [path.name for path in folder(world).iterdir()] == [other]

    def test_a_disk_that_takes_nothing(self, worlds: Worlds, dear: None) -> None:
        """Answers go on, and so does the next start. Would catch an error of the disk that reaches a lane."""
        world = worlds(None)
        folder(world).write_text("in the way")
        id = asked(world)
        world.stop()
        again = worlds(None)
        assert again.ask(again.analyst("ann"), id, query(0))["source"] == "cached"
        again.audit()


def cut_at(part: float) -> Callable[[bytes], bytes]:
    return lambda data: data[: int(len(data) * part)]


def flipped(where: int) -> Callable[[bytes], bytes]:
    """One bit of the byte at this place, from the end where negative."""

    def flip(data: bytes) -> bytes:
        changed = bytearray(data)
        changed[where] ^= 4
        return bytes(changed)

    return flip


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "nothing": lambda data: b"",
    "cut in the start": lambda data: data[:20],
    "cut in the head": lambda data: data[:200],
    "half": cut_at(0.5),
    "one byte short": lambda data: data[:-1],
    "one byte more": lambda data: data + b"\0",
    "magic": flipped(3),
    "length of the head": flipped(52),
    "size of an array": lambda data: data.replace(b'"shape":[4,8]', b'"shape":[4,9]'),
    "type of arrays": lambda data: data.replace(b'"<f8"', b'"<i8"'),
    "head": lambda data: data.replace(b'"updates_used":', b'"updates_usee":'),
    "first number": flipped(-1 - 8 * SHAPE[0] * SHAPE[1]),
    "last number": flipped(-7),
    "zeros": lambda data: data[:-64] + bytes(64),
    "something else": lambda data: b"PK\3\4" * 1000,
}


class TestWhatIsNotUsed:
    @pytest.mark.parametrize("damage", DAMAGES)
    def test_damaged(self, worlds: Worlds, dear: None, damage: str) -> None:
        """Catches a file that is believed without its sums, and damage that is an error."""
        world, id = stopped(worlds)
        path = folder(world) / id
        data = path.read_bytes()
        assert states(world, id)[2] > 0
        changed = DAMAGES[damage](data)
        assert changed != data
        path.write_bytes(changed)
        plain, resumed, kept = states(world, id)
        assert kept == 0
        assert same(plain, resumed)

    def test_stale(self, worlds: Worlds, dear: None) -> None:
        """An old one is a place to start from: what came since is taken in."""
        world, id = stopped(worlds, 5)
        path = folder(world) / id
        old = path.read_bytes()
        again = worlds(None)
        go_on(again, id, 12)
        again.stop()
        path.write_bytes(old)
        plain, resumed, kept = states(world, id)
        assert 0 < kept < plain.sequence
        assert same(plain, resumed)

    def test_of_another_session(self, worlds: Worlds, dear: None) -> None:
        """Catches a snapshot that is taken for what its file is called."""
        world = worlds(None)
        one, other = asked(world), asked(world, 7)
        world.stop()
        shutil.copy(folder(world) / other, folder(world) / one)
        plain, resumed, kept = states(world, one)
        assert kept == 0
        assert same(plain, resumed)

    @pytest.mark.parametrize("net", [True, False])
    def test_of_another_history(
        self, worlds: Worlds, dear: None, net: bool, tmp_path_factory: pytest.TempPathFactory, monkeypatch: Any
    ) -> None:
        """The database was set back, and the session went on otherwise: its snapshot stands on an entry that is no
        more, at a number that is there again, or beyond all. A planted bug: where the hash of that entry is not looked
        at, the state is another one."""
        world, id = stopped(worlds, 3)
        fork = tmp_path_factory.mktemp("fork") / "data"
        shutil.copytree(world.folder, fork)
        queries = list(distinct_queries())
        for where, start in ((fork, 50), (world.folder, 90)):
            again = make_world(where)
            try:
                ann = again.analyst("ann")
                again.noise.script.extend([HIT / 400, 0.0, -HIT / 600] * 3)
                for body in queries[start : start + 9]:
                    again.ask(ann, id, body)
            finally:
                again.stop()
            if where == fork:
                elsewhere = (fork / "snapshots" / id).read_bytes()
                (folder(world) / id).write_bytes(elsewhere)
                plain, resumed, kept = states(world, id)
                assert kept == 0
                assert same(plain, resumed)
        (folder(world) / id).write_bytes(elsewhere)
        with monkeypatch.context() as patch:
            if not net:
                patch.setattr(loading, "_stands", lambda *_: True)
            plain, resumed, kept = states(again, id)
        assert (kept == 0) == net
        assert same(plain, resumed) == net

    def test_counters_are_the_rows(self, worlds: Worlds, dear: None) -> None:
        """Made up with good sums: what a session may still ask and learn is the row's all the same. A changed
        hypothesis would be believed, which is why the folder is trusted as the database is; the transcript of such a
        session shows it. Would catch an allowance that a file can raise."""
        world, id = stopped(worlds)
        kept = SnapshotFiles(folder(world), 1 << 30)
        snapshot = kept.read(id)
        assert snapshot is not None
        for name in ("sequence", "queries_asked", "updates_used"):
            words = {**snapshot.facts["words"], name: snapshot.facts["words"][name] - 1}
            kept.write(id, Snapshot({**snapshot.facts, "words": words}, snapshot.arrays))
            plain, resumed, used = states(world, id)
            assert used == 0
            assert same(plain, resumed)
        array = snapshot.arrays["hypothesis.masses"]
        array[0, 0] += 50.0
        kept.write(id, snapshot)
        # So the sum over the numbers is all that tells a changed one: without it this is what damage would do.
        plain, resumed, used = states(world, id)
        assert used > 0
        assert not same(plain, resumed)
        again = worlds(None)
        again.ask(again.analyst("ann"), id, {**query(0, 0, 5), "unverified": True})
        again.ask(again.analyst("ann"), id, query(0, 0, 3))
        verdict = replay(transcript_of(again.built.services, id))
        assert not verdict.ok

    @pytest.mark.parametrize("change", ["format", "header", "words", "arrays"])
    def test_of_another_format(self, worlds: Worlds, dear: None, change: str) -> None:
        """Catches a file of another version that is read as this one's, or that is an error."""
        world, id = stopped(worlds)
        kept = SnapshotFiles(folder(world), 1 << 30)
        snapshot = kept.read(id)
        assert snapshot is not None
        facts, arrays = dict(snapshot.facts), dict(snapshot.arrays)
        if change == "format":
            facts["format"] += 1
        elif change == "header":
            facts["header"] = "0" * 64
        elif change == "words":
            del facts["words"]["hypothesis.kept.queries"]
        else:
            del arrays["hypothesis.masses"]
        kept.write(id, Snapshot(facts, arrays))
        plain, resumed, used = states(world, id)
        assert used == 0
        assert same(plain, resumed)

    def test_of_a_session_that_has_none(self, worlds: Worlds, dear: None) -> None:
        """A session from evidence is made of its transcript, whatever lies under its name. Would catch one that has
        forgotten what it measured and paid, and an error."""
        world, other = stopped(worlds)
        world = worlds(None)
        ann = world.analyst("ann")
        id = world.open(ann, "d", mechanism={"construction": "evidence"}, max_updates=None)
        given = [world.ask(ann, id, query(a)) for a in range(SHAPE[0])]
        world.stop()
        kept = SnapshotFiles(folder(world), 1 << 30)
        planted = kept.read(other)
        assert planted is not None
        with world.store.read() as tx:
            row = tx.session(id)
        assert row is not None
        counters = {name: getattr(row, name) for name in ("sequence", "queries_asked", "updates_used")}
        facts = {
            **planted.facts,
            "header": sha256(row.header),
            "head_hash": row.head_hash,
            "words": {**planted.facts["words"], **counters},
        }
        kept.write(id, Snapshot(facts, planted.arrays))
        plain, resumed, _ = states(world, id)
        assert isinstance(plain.state, Evidence)
        assert isinstance(resumed.state, Evidence)
        assert resumed.state.left == plain.state.left != plain.plan.holds
        assert len(resumed.state.residuals.measurements) == len(plain.state.residuals.measurements) > 0
        again = worlds(None)
        told = [again.ask(again.analyst("ann"), id, query(a)) for a in range(SHAPE[0])]
        assert [each["value"] for each in told] == [each["value"] for each in given]
        again.audit()


class TestFiles:
    def test_modes_and_leftovers(self, tmp_path: Path) -> None:
        """Catches a file that others may read, and what a process left that died while writing."""
        kept = SnapshotFiles(tmp_path / "s", 1 << 20)
        kept.write("a" * 32, Snapshot({}, {"x": np.arange(4.0)}))
        left = tmp_path / "s" / f".{'b' * 32}-0123"
        left.write_bytes(b"half")
        fresh = tmp_path / "s" / f".{'b' * 32}-4567"
        fresh.write_bytes(b"half")
        os.utime(left, (0, 0))
        kept.write("c" * 32, Snapshot({}, {}))
        assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o700
        assert stat.S_IMODE((tmp_path / "s" / ("a" * 32)).stat().st_mode) == 0o600
        assert not left.exists()
        assert fresh.exists()
        assert kept.sessions() == ["a" * 32, "c" * 32]

    def test_the_oldest_make_room(self, tmp_path: Path) -> None:
        """Catches a folder that grows without end, and one that a single large state empties for nothing."""
        kept = SnapshotFiles(tmp_path, 20_000)
        for number, name in enumerate("abc"):
            kept.write(name * 32, Snapshot({}, {"x": np.full(700, float(number))}))
            os.utime(tmp_path / (name * 32), (number, number))
        kept.write("d" * 32, Snapshot({}, {"x": np.zeros(1000)}))
        assert kept.sessions() == ["b" * 32, "c" * 32, "d" * 32]
        kept.write("b" * 32, Snapshot({}, {"x": np.zeros(10_000)}))
        assert kept.sessions() == ["c" * 32, "d" * 32]
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 20_000

    @pytest.mark.parametrize("order", ["C", "F"])
    def test_every_layout_and_type(self, tmp_path: Path, order: Any) -> None:
        """Numbers, types, shapes and order in memory come back, empty arrays and special floats too."""
        arrays = {
            "f": np.array([[np.nan, -0.0, np.inf], [5e-324, 1 / 3, -1e308]], order=order),
            "i": np.arange(6, dtype=np.int64).reshape(3, 2).copy(order),
            "n": np.arange(6, dtype=np.int32).reshape(3, 2)[::2],
            "b": np.frombuffer(b"bytes", np.uint8),
            "none": np.zeros((0, 7)),
        }
        kept = SnapshotFiles(tmp_path, 1 << 20)
        kept.write("a" * 32, Snapshot({"told": ["é", 1]}, arrays))
        read = kept.read("a" * 32)
        assert read is not None
        assert read.facts == {"told": ["é", 1]}
        assert list(read.arrays) == list(arrays)
        for name, array in arrays.items():
            found = read.arrays[name]
            assert (found.dtype, found.shape, found.tobytes()) == (array.dtype, array.shape, array.tobytes())
            assert found.flags.writeable
            if array.flags.forc:
                assert found.flags.f_contiguous == array.flags.f_contiguous


def test_a_killed_and_a_stopped_server(tmp_path: Path) -> None:
    """Real processes: SIGTERM leaves snapshots, SIGKILL the older ones, and after each the same answers come."""
    shape = (200, 500)
    with launching(tmp_path / "data", None) as launcher:
        server = launcher.start().wait_until_ready()
        caller = Caller(server.url)
        axes = [{"name": "a", "size": shape[0]}, {"name": "b", "size": shape[1]}]
        counts = np.zeros(shape, np.int64)
        counts[:20] = EACH
        assert caller.register("d", counts, attributes=axes).status_code == 201
        body = {"dataset": "d", "mechanism": {"construction": "mw"}, "epsilon": 0.9, "max_queries": 500}
        id = caller.post("/v1/sessions", {**body, "max_updates": 60}).json()["id"]
        # Weights on every cell: updates take milliseconds.
        ramp = np.linspace(0.5, 1, shape[1]).tolist()
        sides = [[1.0] * n + [0.25] * (shape[0] - n) for n in range(1, 120, 3)]
        bodies = [{"type": "product", "weights": {"a": side, "b": ramp}} for side in sides]
        given = [caller.post(f"/v1/sessions/{id}/queries", body).json() for body in bodies]
        assert sum(answer["source"] == "measurement" for answer in given) > 3
        for ending in (signal.SIGTERM, signal.SIGKILL):
            os.kill(server.pid, ending)
            while server.alive():
                time.sleep(0.01)
            if ending == signal.SIGTERM:
                assert (tmp_path / "data" / "snapshots" / id).exists()
            server = launcher.start().wait_until_ready()
            caller = Caller(server.url)
            again = [caller.post(f"/v1/sessions/{id}/queries", body).json() for body in bodies[::5]]
            assert [a["value"] for a in again] == [a["value"] for a in given[::5]]
            assert {a["source"] for a in again} == {"cached"}
        verdict = replay(caller.transcript(id))
        assert verdict.ok, verdict.problem
