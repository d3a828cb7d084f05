"""Private files that are missing, altered, or left over: sessions refuse, readiness tells, starts clean up."""

from __future__ import annotations

import gc
import os
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path

import httpx
import numpy as np
import pytest
from sqlalchemy import text

from app.curator.errors import SessionClosed
from app.services.errors import Conflict, NotFound, Unavailable
from app.services.ports import DatasetRow
from app.services.retirement import Retirement
from app.storage import private_store, transaction
from app.storage.vault import Vault
from tests.kit.servers import Caller, launching
from tests.kit.world import ADMIN, HIT, Lost, World, eventually, query, served, wait

pytestmark = pytest.mark.integration

DAMAGE: dict[str, Callable[[Path], object]] = {
    "missing": Path.unlink,
    "a byte flipped": lambda path: flip(path, -70),
    "its head flipped": lambda path: flip(path, 20),
    "cut short": lambda path: os.truncate(path, path.stat().st_size - 64),
    "empty": lambda path: os.truncate(path, 0),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "a link": lambda path: path.symlink_to(path.rename(path.with_suffix(".elsewhere"))),
}


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def file_of(world: World, name: str) -> Path:
    (found,) = (world.folder / "vault").glob(f"{name}.*.vault")
    return found


@pytest.mark.parametrize("damage", DAMAGE)
def test_sessions_refuse_and_readiness_tells(worlds: Callable[..., World], damage: str) -> None:
    """Catches answers from a file that is not what was registered, noise drawn for them, and a service that calls
    itself ready meanwhile. Other data sets are not concerned.
    """
    world = worlds(None)
    world.register("d")
    world.register("other")
    ann = world.analyst("ann")
    id, fine = world.open(ann, "d"), world.open(ann, "other")
    assert world.built.context.lifecycle.ready() is None
    DAMAGE[damage](file_of(world, "d"))
    complaint = world.built.context.lifecycle.ready()
    assert complaint is not None
    assert "private file" in complaint
    with pytest.raises(Unavailable):
        world.ask(ann, id, query(1), key="k")
    assert (world.noise.drawn, world.entries(id)) == (0, [])
    assert world.ask(ann, fine, query(1))["sequence"] == 1
    world.audit()
    with served(world) as port:
        analyst = Caller(f"http://127.0.0.1:{port}", world.keys["ann"])
        refusal = analyst.post(f"/v1/sessions/{id}/queries", query(1), "k")
        assert (refusal.status_code, refusal.json()["type"]) == (503, "/problems/unavailable")
        assert int(refusal.headers["Retry-After"]) >= 1
        unready = analyst.http.get("/readyz")
        assert (unready.status_code, unready.json()["type"]) == (503, "/problems/unavailable")
        # Anybody may ask whether the service is ready: no name, no path.
        assert file_of(world, "d").name not in unready.text if damage != "missing" else True
        assert str(world.folder) not in unready.text
        analyst.http.close()


def overwritten(path: Path) -> None:
    """Every number another, in place: the file's size and inode stay."""
    with path.open("r+b") as file:
        file.seek(128)
        file.write(b"\xff" * (path.stat().st_size - 128))


def test_under_a_running_server(tmp_path: Path) -> None:
    """Files are damaged that a server has opened, and put back. Catches answers from numbers whose file is gone or is
    not what was registered, with the session in memory or new; noise drawn or a budget touched for them; a process
    that ends with its file (a mapping that is cut short raises SIGBUS); a readiness that does not tell; a server that
    must be restarted when the file is back; and a start that takes the damaged file.
    """
    truth = 1_000_000
    with launching(tmp_path / "data", None) as launcher:
        server = launcher.start().wait_until_ready()
        admin = Caller(server.url)
        counts = np.full((64, 8), truth, np.int64)
        attributes = [{"name": "a", "size": 64}, {"name": "b", "size": 8}]
        budget = {"epsilon": 10.0, "delta": 1e-6}
        for name in ("d", "other"):
            assert admin.register(name, counts, attributes=attributes, budget=budget).status_code == 201
        opening = {"dataset": "d", "mechanism": {"construction": "mw"}, "epsilon": 1.0, "max_queries": 100}
        opening |= {"max_updates": 10}
        id = admin.post("/v1/sessions", opening).json()["id"]
        fine = admin.post("/v1/sessions", {**opening, "dataset": "other"}).json()["id"]
        path = f"/v1/sessions/{id}/queries"
        cells = iter(range(64))

        def near_the_truth(path: str = path) -> bool:
            where = {"a": {"equals": next(cells)}, "b": {"in": [3, 5]}}
            answer = admin.post(path, {"type": "predicate", "where": where}).json()
            assert answer["error_bound"] < truth
            return bool(abs(answer["value"] - 2 * truth) < truth)

        def is_refused() -> None:
            known = {"type": "predicate", "where": {"a": {"equals": 0}, "b": {"in": [3, 5]}}}
            for route, body in (
                (path, {"type": "predicate", "where": {"a": {"equals": 63}}}),
                (path, known),
                (path, {**known, "unverified": True}),
                (f"{path}/batch", {"queries": [known]}),
                ("/v1/sessions", opening),
                ("/v1/sessions", {**opening, "mechanism": {"construction": "fk"}}),
            ):
                reply = admin.post(route, body, "k")
                assert (reply.status_code, reply.json()["type"]) == (503, "/problems/unavailable")
                assert "operator" in reply.json()["detail"]
                assert "backup" in reply.json()["detail"]
                assert str(launcher.folder) not in reply.text
            assert admin.http.get("/readyz").status_code == 503

        def told() -> list[object]:
            # How far the log has come meanwhile is no matter of theirs.
            state = {name: value for name, value in admin.get(f"/v1/sessions/{id}").items() if name != "log_size"}
            return [state, admin.get("/v1/datasets/d"), admin.get("/v1/datasets/d/ledger")]

        assert near_the_truth()
        (file,) = (launcher.folder / "vault").glob("d.*.vault")
        good = file.read_bytes()
        for damage in (overwritten, *DAMAGE.values()):
            books = told()
            damage(file)
            is_refused()
            assert books == told()
            assert near_the_truth(f"/v1/sessions/{fine}/queries")
            if file.is_dir():
                file.rmdir()
            file.unlink(missing_ok=True)
            file.write_bytes(good)
            assert near_the_truth()
            assert admin.http.get("/readyz").status_code == 200
        overwritten(file)
        # What needs no private data goes on.
        assert admin.post(f"/v1/sessions/{id}/close", {}).json()["status"] == "closed"
        file.write_bytes(good)
        path = f"/v1/sessions/{admin.post('/v1/sessions', opening).json()['id']}/queries"
        overwritten(file)
        server.kill()
        server = launcher.start(server.port)
        refusal = eventually(lambda: asked(admin, path))
        assert (refusal.status_code, refusal.json()["type"]) == (503, "/problems/unavailable")
        file.write_bytes(good)
        assert near_the_truth(path)
        logs = launcher.logs()
        assert logs.count("a private file cannot be used") <= 2 + 2 * len(DAMAGE)
        assert "unforeseen" not in logs


def test_a_turn_looks_at_the_file_and_reads_it_only_when_it_has_changed(
    worlds: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches a turn that reads the whole file, one that looks at it for each of its queries, and a refused file that
    is read for every request.
    """
    world = worlds(None)
    world.register("d")
    ann = world.analyst("ann")
    id = world.open(ann, "d")
    time.sleep(2 * private_store.STEP_SECONDS)
    world.ask(ann, id, query(0))
    read, looked = [], []
    verify, stamp = Vault.verify, Vault.stamp
    monkeypatch.setattr(Vault, "verify", lambda *of: (read.append(1), verify(*of)))
    monkeypatch.setattr(Vault, "stamp", lambda *of: (looked.append(1), stamp(*of))[1])
    wait(world.submit(ann, id, query(1), query(2), query(3), kind="batch"))
    assert (len(read), len(looked)) == (0, 1)
    path = file_of(world, "d")
    copy = path.read_bytes()
    path.write_bytes(copy)
    time.sleep(2 * private_store.STEP_SECONDS)
    for number in range(4):
        world.ask(ann, id, query(1, number))
    assert len(read) == 1
    monkeypatch.setattr(private_store, "REFUSED_SECONDS", 60.0)
    flip(path, -70)
    for _ in range(4):
        with pytest.raises(Unavailable):
            world.ask(ann, id, query(2, 3))
    assert len(read) == 2


def test_a_file_that_cannot_be_read_for_a_while(worlds: Callable[..., World], monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk fails, or a key is away, and comes back while the file looks the same all the time. Catches a refusal
    that stays.
    """
    world = worlds(None)
    world.register("d")
    ann = world.analyst("ann")
    id = world.open(ann, "d")
    monkeypatch.setattr(private_store, "REFUSED_SECONDS", 0.1)

    def refused() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(Vault, "verify", lambda *_: (_ for _ in ()).throw(OSError(5, "Input/output error")))
            patch.setattr(Vault, "open", Vault.verify)
            with pytest.raises(Unavailable):
                world.ask(ann, id, query(1))
        time.sleep(0.2)

    refused()  # when it is to be read
    assert world.ask(ann, id, query(1))["sequence"] == 1
    os.utime(file_of(world, "d"))
    refused()  # when it is to be looked at again, as it was touched
    assert world.ask(ann, id, query(1))["sequence"] == 2


def asked(caller: Caller, path: str) -> httpx.Response | None:
    """The reply to some query; None from a server that is not there yet."""
    try:
        return caller.post(path, {"type": "predicate", "where": {"a": {"equals": 63}}})
    except httpx.TransportError:
        return None


def test_mended_it_is_ready_again(worlds: Callable[..., World]) -> None:
    """Catches a verdict that is kept although the file has been put back from a copy."""
    world = worlds(None)
    world.register("d")
    ann = world.analyst("ann")
    id = world.open(ann, "d")
    path = file_of(world, "d")
    copy = path.read_bytes()
    path.unlink()
    assert world.built.context.lifecycle.ready() is not None
    path.write_bytes(copy)
    path.chmod(0o600)
    assert world.built.context.lifecycle.ready() is None
    assert world.ask(ann, id, query(1))["sequence"] == 1


def test_a_file_is_read_once(worlds: Callable[..., World], monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a readiness check that reads all private files every few seconds; and one that trusts a file
    whose bytes have changed but whose size and time of modification have not.
    """
    world = worlds(None)
    world.register("d")
    read: list[str] = []
    verify = Vault.verify

    def counted(vault: Vault, entry: object) -> None:
        read.append(entry.file_name)  # type: ignore[attr-defined]
        verify(vault, entry)  # type: ignore[arg-type]

    monkeypatch.setattr(Vault, "verify", counted)
    time.sleep(2 * private_store.STEP_SECONDS)  # a file that was changed just now may be changed and look the same
    for _ in range(5):
        assert world.built.context.lifecycle.ready() is None
    assert len(read) == 1
    path = file_of(world, "d")
    before = path.stat()
    flip(path, -70)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert world.built.context.lifecycle.ready() is not None


def test_numbers_are_held_once_and_for_sessions_in_memory_alone(
    worlds: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches a copy of the private numbers for each session, and one that stays when nobody asks of it any more: a
    server of many data sets would come to hold them all.
    """
    world = worlds(None)
    world.register("d")
    ann = world.analyst("ann")
    opened: list[weakref.ref[object]] = []
    read = Vault.open

    def watched(vault: Vault, entry: object) -> object:
        data = read(vault, entry)  # type: ignore[arg-type]
        opened.append(weakref.ref(data.array))  # type: ignore[union-attr]
        return data

    monkeypatch.setattr(Vault, "open", watched)
    ids = [world.open(ann, "d") for _ in range(2)]
    for id in ids:
        world.ask(ann, id, query(0))
    assert len(opened) == 1
    world.close(ann, ids[0])
    gc.collect()
    assert opened[0]() is not None
    world.close(ann, ids[1])
    eventually(lambda: gc.collect() >= 0 and opened[0]() is None)


def test_a_retired_data_set_needs_no_file(worlds: Callable[..., World]) -> None:
    """Catches a service that is never ready again after a retirement."""
    world = worlds(None)
    world.register("d")
    world.built.services.retirement.retire(ADMIN, "d")
    assert not list((world.folder / "vault").glob("d.*"))
    assert world.built.context.lifecycle.ready() is None


@pytest.mark.parametrize("fault", ["before", "after"])
def test_a_registration_whose_commit_is_in_doubt(
    worlds: Callable[..., World], database: str | None, fault: str
) -> None:
    """Catches a file removed because a commit was reported as failed that had happened, and one left for ever
    because it had not.
    """
    world = worlds(database)
    world.store.faults.append(fault)
    with pytest.raises(Lost):
        world.register("d")
    vault = world.folder / "vault"
    if fault == "after":
        with pytest.raises(Conflict):
            world.register("d")
        ann = world.analyst("ann")
        assert world.ask(ann, world.open(ann, "d"), query(1))["sequence"] == 1
    world.stop()
    again = worlds(database)
    assert len(list(vault.glob("*.vault"))) == (1 if fault == "after" else 0)
    if fault == "before":
        again.register("d")
    assert again.built.context.lifecycle.ready() is None
    again.audit()


def test_a_retirement_cut_short_is_finished_at_the_next_start(
    worlds: Callable[..., World], database: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process dies when the data set is marked as retired and its sessions are still open. Catches a private
    file that outlives its data set, and reservations that never return.
    """
    world = worlds(database)
    world.register("d")
    ann = world.analyst("ann")
    id = world.open(ann, "d")
    world.noise.script.append(HIT)
    world.ask(ann, id, query(0))
    with monkeypatch.context() as patch:
        patch.setattr(Retirement, "finish", fail)
        with pytest.raises(ZeroDivisionError):
            world.built.services.retirement.retire(ADMIN, "d")
    assert file_of(world, "d").exists()
    world.stop()
    again = worlds(database)
    assert again.built.services.sessions.get(ann, id)["status"] == "closed"
    assert not list((again.folder / "vault").glob("d.*"))
    again.audit()


def test_a_server_finishes_a_retirement_that_was_cut_short(
    worlds: Callable[..., World], database: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same with a real server, whose event loop starts it. Catches a start that waits for a lane which only that
    loop could wake: it would hang, now and at every later start.
    """
    world = worlds(database)
    world.register("d")
    id = world.open(world.analyst("ann"), "d")
    with monkeypatch.context() as patch:
        patch.setattr(Retirement, "finish", fail)
        with pytest.raises(ZeroDivisionError):
            world.built.services.retirement.retire(ADMIN, "d")
    world.stop()
    with launching(world.folder, database) as launcher:
        server = launcher.start().wait_until_ready(20)
        caller = Caller(server.url)
        states = Caller(server.url, caller.add("eve", "auditor")).get("/v1/sessions")["items"]
        assert [(state["id"], state["status"]) for state in states] == [(id, "closed")]
        assert caller.get("/v1/datasets/d")["budget"]["reserved_epsilon"] == 0
    assert not list((world.folder / "vault").glob("d.*"))


def test_a_retirement_that_failed_is_finished_when_asked_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database goes away when the data set is marked as retired. Catches a second request that is only told so: the
    private file would stay, and sessions in memory would go on answering from it, until the next start.
    """
    world.register("d")
    ann = world.analyst("ann")
    id = world.open(ann, "d")
    world.ask(ann, id, query(0))
    with monkeypatch.context() as patch:
        patch.setattr(Retirement, "finish", fail)
        with pytest.raises(ZeroDivisionError):
            world.built.services.retirement.retire(ADMIN, "d")
    with pytest.raises(NotFound):
        world.built.services.retirement.retire(ADMIN, "d")
    with pytest.raises(SessionClosed):
        world.ask(ann, id, query(1))
    assert not list((world.folder / "vault").glob("d.*"))
    world.audit()


def fail(*_: object) -> None:
    raise ZeroDivisionError


@pytest.mark.parametrize("damage", ["missing", "a byte flipped"])
def test_after_a_restart(worlds: Callable[..., World], damage: str) -> None:
    """Catches a start that takes what is there: a round is refused before any noise, and nothing is charged."""
    world = worlds(None)
    world.register("d")
    ann = world.analyst("ann")
    id = world.open(ann, "d")
    world.noise.script.append(HIT)
    world.ask(ann, id, query(0))
    world.stop()
    DAMAGE[damage](file_of(world, "d"))
    again = worlds(None)
    assert again.built.context.lifecycle.ready() is not None
    with pytest.raises(Unavailable):
        again.ask(ann, id, query(1))
    assert again.noise.drawn == 0
    # What needs no private data goes on: state, transcript, closing.
    again.audit()
    assert again.close(ann, id)["status"] == "closed"
    again.audit()


def test_a_start_removes_what_no_record_names(worlds: Callable[..., World], database: str | None) -> None:
    """Catches private files left lying after a crash in the middle of a registration."""
    world = worlds(database)
    world.register("d")
    vault = world.folder / "vault"
    kept = file_of(world, "d")
    for name in ("half.0123456789abcdef.vault", ".half.0123456789abcdef.vault.tmp"):
        (vault / name).write_bytes(kept.read_bytes())
    world.stop()
    worlds(database)
    assert [path for path in vault.iterdir() if path.suffix != ".lock"] == [kept]


@pytest.mark.postgres
def test_a_start_waits_for_a_commit_that_is_under_way(
    worlds: Callable[..., World], postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL finishes a commit whose client has died. Catches a start in that moment which takes the data set's
    file for a left-over: the row would come, and name nothing.
    """
    world = worlds(postgres_url)
    world.register("d")
    vault = world.folder / "vault"
    name = "late.0123456789abcdef.vault"
    (vault / name).write_bytes(file_of(world, "d").read_bytes())
    row = DatasetRow("late", {}, None, {}, {"file_name": name, "digest": "0" * 64}, "2026-01-01T00:00:00Z")
    swept = threading.Event()
    monkeypatch.setattr(transaction, "DATASET_SECONDS", 20.0)

    def sweep() -> None:
        world.built.services.retirement.recover()
        swept.set()

    with world.store.write() as tx:
        tx.connection.execute(text("SET lock_timeout = '20s'"))
        tx.add_dataset(row)
        recovering = threading.Thread(target=sweep)
        recovering.start()
        time.sleep(0.3)
        assert not swept.is_set()
        assert (vault / name).exists()
        tx.connection.commit()
    recovering.join(20)
    assert (vault / name).exists()
