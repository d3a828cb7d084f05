"""Places for private files: a folder and an object store keep the same promises, and so do their notes and turns.

The object store is a stand-in that speaks as S3 does, over HTTP.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import obstore
import pytest

from app.storage import objects, turns
from app.storage.blobs import Blobs, FileNote, Folder, Note, Noted, UnfitStore
from app.storage.database import make_engines
from app.storage.objects import ObjectNote, Objects, opened
from app.storage.turns import ServerTurns, Turns, turns_of
from tests.kit.objects import SECRET, Store, object_store
from tests.kit.patience import patience

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with object_store() as running:
        yield running


@pytest.fixture
def asking(store: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    """The store, whose address and credentials this process has."""
    for name, value in store.environment.items():
        monkeypatch.setenv(name, value)
    return store


@pytest.fixture(params=["folder", "objects"])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Blobs]:
    """places(): one more process' view of the same place."""
    if request.param == "folder":
        return lambda: Folder(tmp_path / "vault")
    url = f"s3://{request.getfixturevalue('asking').bucket()}/some/where"
    one = turns.ProcessTurns()
    return lambda: Objects(opened(url), one)


@pytest.fixture
def place(places: Callable[[], Blobs]) -> Blobs:
    return places()


def content(place: Blobs, name: str) -> bytes:
    with place.open(name) as found:
        told = found.file.read()
        assert found.size == len(told)
        return told


# ---------------------------------------------------------------------- what every place keeps


@pytest.mark.parametrize("size", [0, 1, (1 << 20) + 1, 9 << 20])
def test_what_is_put_is_read(place: Blobs, size: int) -> None:
    """In pieces of any size. Catches a stream that is cut, or joined in another order."""
    data = bytes(i * 31 % 251 for i in range(min(size, 1009))) * (size // 1009 + 1)
    pieces = [memoryview(data[:size])[at : at + 777_777] for at in range(0, size, 777_777)]
    place.put("a.vault", iter(pieces))
    assert content(place, "a.vault") == data[:size]
    assert place.stamp("a.vault").size == size
    assert list(place.names()) == ["a.vault"]


def test_nothing_takes_the_place_of_what_is_there(places: Callable[[], Blobs]) -> None:
    """Of eight who put under one name at once one does. Catches a file that another registration overwrites."""
    barrier = threading.Barrier(8)

    def put(number: int) -> bytes | None:
        mine = b"%d" % number
        place = places()
        barrier.wait()
        try:
            place.put("a.vault", [mine])
        except FileExistsError:
            return None
        return mine

    with ThreadPoolExecutor(8) as pool:
        done = [each for each in pool.map(put, range(8)) if each is not None]
    assert done == [content(places(), "a.vault")]


def test_what_fails_in_the_midst_leaves_nothing(place: Blobs) -> None:
    """Catches half a file that a name leads to, or that is there for ever."""

    def pieces() -> Iterator[bytes]:
        yield b"x" * (1 << 20)
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="gone"):
        place.put("a.vault", pieces())
    assert list(place.names()) == []


def test_what_is_not_there(place: Blobs) -> None:
    with pytest.raises(FileNotFoundError), place.open("a.vault"):
        pass
    with pytest.raises(FileNotFoundError):
        place.stamp("a.vault")
    place.remove("a.vault")


def test_a_stamp_tells_what_lies_there(place: Blobs) -> None:
    """Of the same it is the same. Catches an alteration that no answer would notice."""
    place.put("a.vault", [b"one"])
    place.put("b.vault", [b"two"])
    stamps = [place.stamp("a.vault"), place.stamp("a.vault")]
    assert stamps[0] == stamps[1]
    place.remove("a.vault")
    place.put("a.vault", [b"another"])
    assert place.stamp("a.vault") != stamps[0]
    assert sorted(place.names()) == ["a.vault", "b.vault"]


# ---------------------------------------------------------------------- turns


@pytest.fixture(params=["folder", "process", "postgresql"])
def sharers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Turns]]:
    """sharers(): one more process' turns among the same."""
    if request.param == "folder":
        yield lambda: Folder(tmp_path / "vault")
    elif request.param == "process":
        one = turns_of(make_engines(f"sqlite:///{tmp_path}/d.sqlite3")[1])
        yield lambda: one
    else:
        url, engines = request.getfixturevalue("postgres_url"), []

        def another() -> Turns:
            engines.append(make_engines(url)[1])
            return turns_of(engines[-1])

        yield another
        for engine in engines:
            engine.dispose()


@pytest.mark.postgres
def test_nobody_is_alone_while_others_share(sharers: Callable[[], Turns]) -> None:
    """Catches a sweep beside a registration, which would take its file for a left-over."""
    first, second, third = sharers(), sharers(), sharers()
    with first.sharing(), second.sharing(), third.alone() as got:
        assert not got
    with third.alone() as got:
        assert got
        with first.alone() as another:
            assert not another
    with first.sharing():
        pass


@pytest.mark.postgres
def test_who_wants_to_share_waits_for_who_is_alone(sharers: Callable[[], Turns]) -> None:
    """Catches a registration that begins in the midst of a sweep."""
    first, second = sharers(), sharers()
    begun = threading.Event()

    def share() -> None:
        with second.sharing():
            begun.set()

    thread = threading.Thread(target=share)
    with first.alone() as got:
        assert got
        thread.start()
        assert not begun.wait(0.5)
    assert begun.wait(patience(10))
    thread.join()


@pytest.mark.postgres
def test_a_process_that_dies_lets_go(postgres_url: str) -> None:
    """Its connection ends. Catches a lock that nobody holds and everybody waits for."""
    dying, living = make_engines(postgres_url)[1], make_engines(postgres_url)[1]
    held = ServerTurns(dying).sharing()
    held.__enter__()
    with ServerTurns(living).alone() as got:
        assert not got
    with living.begin() as connection:
        found = "SELECT pg_terminate_backend(pid) FROM pg_locks JOIN pg_database d ON d.oid = database"
        found += " WHERE locktype = 'advisory' AND datname = current_database() AND mode = 'ShareLock'"
        assert connection.exec_driver_sql(found).scalar_one()

    def alone() -> bool:
        with ServerTurns(living).alone() as got:
            return got

    assert any(alone() for _ in range(100))
    held.__exit__(None, None, None)  # it only says so in the log
    dying.dispose()
    living.dispose()


# ---------------------------------------------------------------------- notes


@pytest.fixture(params=["file", "object"])
def note(request: pytest.FixtureRequest, tmp_path: Path) -> Note:
    if request.param == "file":
        return FileNote(tmp_path / "note")
    return ObjectNote(opened(f"s3://{request.getfixturevalue('asking').bucket()}"), "note")


def test_a_note_is_written_over_what_was_read(note: Note) -> None:
    """Catches what another has written meanwhile, and is lost."""
    nothing = note.read()
    assert nothing.content == b""
    assert note.write(b"one", nothing)
    one = note.read()
    assert one.content == b"one"
    assert not note.write(b"two", nothing)
    assert note.write(b"three", one)
    assert not note.write(b"four", one)
    assert note.read().content == b"three"


def test_of_many_who_write_a_note_one_does(asking: Store) -> None:
    """The object store decides. Catches a write without its condition."""
    url = f"s3://{asking.bucket()}"
    barrier = threading.Barrier(8)

    def write(number: int) -> bool:
        note = ObjectNote(opened(url), "note")
        nothing = note.read()
        barrier.wait()
        return note.write(b"%d" % number, nothing)

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(write, range(8))) == 1


# ---------------------------------------------------------------------- object stores that do not serve


def objects_at(url: str) -> Objects:
    return Objects(opened(url), turns.ProcessTurns())


def test_a_store_that_keeps_to_it_is_fit(asking: Store) -> None:
    """Also the second time, when what it was asked with lies there."""
    place = objects_at(f"s3://{asking.bucket()}")
    place.check()
    place.check()


def test_a_store_that_overwrites_is_refused(asking: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those do that pass over conditions: planted by leaving them out of the request. Catches a check that
    believes whatever it is told.
    """
    place, put = objects_at(f"s3://{asking.bucket()}"), obstore.put

    def careless(store: Any, name: str, data: Any, **how: Any) -> Any:
        if how.get("mode") == "create" or not first:
            how.pop("mode", None)
        return put(store, name, data, **how)

    first = True
    monkeypatch.setattr(objects.obstore, "put", careless)
    with pytest.raises(UnfitStore, match="If-None-Match"):
        place.check()


def test_a_store_that_overwrites_notes_is_refused(asking: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    place, put = objects_at(f"s3://{asking.bucket()}"), obstore.put

    def careless(store: Any, name: str, data: Any, **how: Any) -> Any:
        if isinstance(how.get("mode"), dict):
            how.pop("mode")
        return put(store, name, data, **how)

    monkeypatch.setattr(objects.obstore, "put", careless)
    with pytest.raises(UnfitStore, match="If-Match"):
        place.check()


def test_a_store_that_keeps_versions_is_refused(asking: Store) -> None:
    """What is retired must be gone. Catches private files that everybody believes destroyed."""
    with pytest.raises(UnfitStore, match="versioning"):
        objects_at(f"s3://{asking.bucket(versions=True)}").check()


def test_a_store_without_the_bucket_cannot_be_asked(asking: Store) -> None:
    """Catches a server that starts, and says at the first registration that it cannot."""
    with pytest.raises(FileNotFoundError):
        objects_at("s3://nobody-made-this").check()


def test_what_is_too_large_to_be_put_at_once(asking: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above it a store would take the parts one by one, and no condition. Catches one of them left there."""
    monkeypatch.setattr(objects, "MOST_BYTES", 10)
    place = objects_at(f"s3://{asking.bucket()}")
    with pytest.raises(OSError, match="larger"):
        place.put("a.vault", [b"12345678", b"901"])
    assert list(place.names()) == []


def test_a_store_that_is_away(asking: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each thing that it is asked fails soon, by an error of files that tells neither address nor credential; then it
    is back with what it held. Catches an error of the library, which no caller knows, and a request that waits for
    ever.
    """
    monkeypatch.setattr(objects, "RETRIES", 0)
    place = objects_at(f"s3://{asking.bucket()}")
    place.put("a.vault", [b"kept"])
    asking.stop()
    try:
        attempts: list[Callable[[], object]] = [
            lambda: place.put("b.vault", [b""]),
            lambda: content(place, "a.vault"),
            lambda: place.stamp("a.vault"),
            lambda: place.remove("a.vault"),
            lambda: list(place.names()),
        ]
        for attempt in attempts:
            with pytest.raises(OSError, match="object store failed") as caught:
                attempt()
            assert SECRET not in str(caught.value)
            assert "127.0.0.1" not in str(caught.value)
    finally:
        asking.start()
    assert content(place, "a.vault") == b"kept"


def test_a_note_of_a_store_that_was_never_asked(asking: Store) -> None:
    """Nothing is as nothing was read. Catches a first start that fails."""
    assert ObjectNote(opened(f"s3://{asking.bucket()}"), "note").read() == Noted(b"", "")
