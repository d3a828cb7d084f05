"""What every private store keeps to: the vault with and without a key, and the one in memory for tests of services."""

from __future__ import annotations

import datetime
import hashlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.declarations.drafts import Layout, Numbers
from app.declarations.errors import InvalidDataset
from app.declarations.spec import parse_spec
from app.services.errors import Unavailable
from app.services.ports import PrivateStore, Upload
from app.spaces.counts import AllEntries
from app.spaces.factory import space_of
from app.spaces.queries.registry import parse_query
from app.storage.private_store import VaultStore
from app.storage.vault import Vault
from tests.kit.memory_private_store import MemoryPrivateStore
from tests.kit.strategies import BUDGET

pytestmark = pytest.mark.contract

STORES = ["memory", "vault", "sealed vault"]
SHAPE = (3, 4)
SPEC = parse_spec(
    {
        "name": "people",
        "kind": "table",
        "attributes": [{"name": "a", "size": SHAPE[0]}, {"name": "b", "size": SHAPE[1]}],
        "budget": BUDGET,
    }
)
COUNTS = np.arange(12, dtype=np.int64).reshape(SHAPE)


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "memory":
        return MemoryPrivateStore()
    key = bytes(range(32)) if request.param == "sealed vault" else None
    return VaultStore(Vault(tmp_path / "vault", key), 1 << 28, await_writers=lambda: None)


@pytest.fixture
def upload(store: PrivateStore, tmp_path: Path) -> Callable[..., Upload]:
    """upload(counts): what the store reads of a file with these counts."""

    def read(counts: Any = COUNTS) -> Upload:
        path = tmp_path / "upload"
        with path.open("wb") as file:
            np.save(file, counts)
        return store.read_upload(SPEC, "counts.npy", path)

    return read


@pytest.fixture
def entry(store: PrivateStore, upload: Callable[..., Upload]) -> dict[str, str]:
    """What names the counts, kept."""
    with store.registration():
        return store.put("people", upload())


def test_every_method_with_its_signature() -> None:
    """Catches a method of the port that a store lacks, or one whose parameters have drifted."""
    for name, method in inspect.getmembers(PrivateStore, inspect.isfunction):
        if not name.startswith("_"):
            for kept in (VaultStore, MemoryPrivateStore):
                found = inspect.signature(getattr(kept, name))
                assert list(found.parameters) == list(inspect.signature(method).parameters), (kept, name)


def test_an_upload_is_what_was_sent(upload: Callable[..., Upload]) -> None:
    """Catches a mass that is not the sum of the counts, by which a public number of records is checked."""
    assert upload().mass == COUNTS.sum()
    assert upload().spec == SPEC
    assert str(COUNTS[2, 3]) not in repr(upload())


def test_a_report_of_the_records(upload: Callable[..., Upload]) -> None:
    """Catches a store that tells nothing of what became of them, and one that shows it where it may be logged."""
    told = upload().report
    assert told is not None
    assert (told["read"], told["kept"], told["dropped"], told["clamped"]) == (COUNTS.sum(), COUNTS.sum(), 0, 0)
    assert "kept" not in repr(upload())


@pytest.mark.parametrize("content", [b"", b"no array", b"\x93NUMPY\x01\x00"])
def test_nonsense_is_refused(store: PrivateStore, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "upload").write_bytes(content)
    with pytest.raises(InvalidDataset):
        store.read_upload(SPEC, "counts.npy", tmp_path / "upload")


def test_another_shape_is_refused(upload: Callable[..., Upload]) -> None:
    with pytest.raises(InvalidDataset):
        upload(COUNTS.T.copy())


def test_columns_are_summarised(store: PrivateStore, tmp_path: Path) -> None:
    """Catches a column left out, in another's place, or with another extreme, and a cell without a value that is taken
    for one: two readers that share no line agree.
    """
    path = tmp_path / "upload"
    rows = ["a,2.50,2020-01-31,7", ",-1,2021-02-01,7", "b,0.125,1999-12-31,", "a,,2020-01-31,9"]
    path.write_text("\n".join(["word,number,day,code", *rows, ""]))
    assert store.columns("people.csv", path, Layout()) == ("word", "number", "day", "code")
    found = store.summarise("people.csv", path, Layout(("code", "word", "number", "day")))
    assert found == MemoryPrivateStore().summarise("people.csv", path, Layout(("code", "word", "number", "day")))
    assert [summary.name for summary in found] == ["code", "word", "number", "day"]
    assert [summary.empty for summary in found] == [True, True, True, False]
    assert found[2].numbers == Numbers(-1.0, 2.5, 3, (-1.0, 0.125, 2.5))
    assert found[3].dates == (datetime.date(1999, 12, 31), datetime.date(2021, 2, 1))
    assert "2.5" not in repr(found)
    assert "'a'" not in repr(found)
    assert "1999" not in repr(found)


def test_an_array_names_no_columns(store: PrivateStore, tmp_path: Path) -> None:
    """Catches counts taken for a file of records."""
    np.save(tmp_path / "counts.npy", COUNTS)
    assert store.columns("counts.npy", tmp_path / "counts.npy", Layout()) is None


def test_numbers_come_back(store: PrivateStore, entry: dict[str, str]) -> None:
    """Catches numbers in another order or place: each cell is asked for."""
    space = space_of(SPEC)
    store.check(entry)
    for forgotten in (False, True):
        if forgotten:
            store.forget(entry)
        counts = store.counts(space, entry)
        for index, count in np.ndenumerate(COUNTS):
            words = {"type": "predicate", "where": {name: {"equals": at} for name, at in zip("ab", index, strict=True)}}
            query = parse_query(words).compiled(space)
            assert space.to_answer_grid(query.exact(counts), query) == count << space.answer_bits


def test_entries_are_text_that_tells_no_number(entry: dict[str, str]) -> None:
    """They go into a public row. Catches an entry that two registrations share, and one that is no text."""
    assert all(isinstance(key, str) and isinstance(value, str) for key, value in entry.items())
    assert entry["file_name"].startswith("people.")


def test_every_registration_has_a_file_of_its_own(store: PrivateStore, upload: Callable[..., Upload]) -> None:
    """Catches two data sets of one name, one after the other, of which the first one's end is the second one's too."""
    with store.registration():
        first, second = (store.put("people", upload()) for _ in range(2))
    assert first["file_name"] != second["file_name"]
    store.destroy(first)
    store.check(second)


def test_what_is_gone_is_unavailable(store: PrivateStore, entry: dict[str, str]) -> None:
    """Catches answers from numbers that an operator has removed, also where they are still in memory, or are asked by
    whoever had them before.
    """
    counts = store.counts(space_of(SPEC), entry)
    assert next(counts.tell([AllEntries()])).tolist() == COUNTS.tolist()
    store.destroy(entry)
    for look in (counts.check, lambda: store.check(entry), lambda: counts.tell([AllEntries()])):
        with pytest.raises(Unavailable):
            look()
    with pytest.raises(Unavailable):
        store.counts(space_of(SPEC), entry)
    store.destroy(entry)


def test_what_was_registered_before_is_known_again(
    store: PrivateStore, entry: dict[str, str], upload: Callable[..., Upload]
) -> None:
    """Its own file gone or not. Catches equal numbers in another file that are missed, and others that are taken for
    the same.
    """
    other = COUNTS + 1
    for _ in range(2):
        assert store.alike(upload(), entry)
        assert not store.alike(upload(other), entry)
        assert store.alike(upload(np.asfortranarray(COUNTS)), entry)
        store.destroy(entry)


def test_the_key_of_a_commitment_is_kept_with_the_numbers(store: PrivateStore, upload: Callable[..., Upload]) -> None:
    """And goes with them. Catches a key of another data set, one in the entry, which goes into a row, and one that
    makes equal numbers look unlike.
    """
    keys = [bytes([number] * 32) for number in (7, 8)]
    with store.registration():
        entries = [store.put("people", upload(), key) for key in keys]
        without = store.put("people", upload())
    for entry, key in zip(entries, keys, strict=True):
        assert store.commitment_key(entry) == key
        assert key.hex() not in str(entry)
        assert store.alike(upload(), entry)
    assert store.commitment_key(without) is None
    store.destroy(entries[0])
    with pytest.raises(Unavailable):
        store.commitment_key(entries[0])
    assert store.commitment_key(entries[1]) == keys[1]


def test_what_a_commitment_is_made_of(upload: Callable[..., Upload], tmp_path: Path) -> None:
    """Catches a digest of the numbers in the place of the file's, and one that shows where it may be logged."""
    read = upload()
    content = (tmp_path / "upload").read_bytes()
    assert read.file == (len(content), hashlib.sha256(content).digest())
    assert str(len(content)) not in repr(read)


def test_nothing_is_kept_outside_of_a_registration(store: PrivateStore, upload: Callable[..., Upload]) -> None:
    """A sweep could remove the file before the row that names it is there."""
    with pytest.raises(RuntimeError):
        store.put("people", upload())


def test_sweeps_remove_what_no_row_names(store: PrivateStore, upload: Callable[..., Upload]) -> None:
    """Catches a sweep that takes what is named or leaves what is not, and one beside a registration, whose row is not
    there yet.
    """
    with store.registration():
        named, unnamed = (store.put("people", upload()) for _ in range(2))
        store.sweep(list)
        store.check(named)
        store.check(unnamed)
    store.sweep(lambda: [named["file_name"]])
    store.check(named)
    with pytest.raises(Unavailable):
        store.check(unnamed)
