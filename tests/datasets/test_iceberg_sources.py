"""Snapshots of Iceberg tables, counted where their files lie. The oracle is the library of Iceberg itself, which writes
the tables and reads each snapshot of them.

They would catch a file that was taken out of the table, or belongs to another snapshot; a column that is another's in
some file; metadata that are read though they do not tell all; and files that are opened though they lie elsewhere.
"""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.declarations.errors import InvalidDataset
from app.declarations.spec import published, written
from app.services.errors import SourceMoved
from app.spaces.counts import CellCounts
from app.storage.private_data import DenseData
from app.storage.sources import versions
from app.storage.sources.parquet import prepare_source
from tests.datasets.source_files import JSON, declare
from tests.datasets.table_formats import ROWS, is_registered_and_asked, nothing_outside_is_opened
from tests.datasets.test_asked_sources import ATTRIBUTES, asked_counts, told
from tests.datasets.test_delta_sources import WARD, wards
from tests.datasets.test_sources import counted, refusal, table

if TYPE_CHECKING:
    from pyiceberg.table import Table

pytestmark = [pytest.mark.unit, pytest.mark.slow]


def snapshot(number: int | str | None, name: str | None = "lake/visits", attributes: list[JSON] | None = None) -> JSON:
    declared = declare([WARD] if attributes is None else attributes)
    named = None if number is None else str(number)
    return {**declared, "source": {"type": "iceberg", "table": name, "snapshot": named}}


def created(folder: Path, schema: pa.Schema, name: str = "lake.visits") -> Table:
    """A table without records, in a folder below one."""
    from pyiceberg.catalog.memory import InMemoryCatalog  # a second, which no other test needs

    catalog = InMemoryCatalog("catalog", warehouse=folder.as_uri())
    catalog.create_namespace_if_not_exists(name.partition(".")[0])
    return catalog.create_table(name, schema=schema)


def newest(made: Table) -> int:
    found = made.refresh().current_snapshot()
    assert found is not None
    return found.snapshot_id


def ours(folder: Path, number: int | str) -> list[int]:
    data = counted(snapshot(number), folder).data
    assert isinstance(data, DenseData)
    return data.array.tolist()


@pytest.mark.parametrize("seed", range(2))
def test_each_snapshot_is_what_the_library_reads(tmp_path: Path, seed: int) -> None:
    """After records were added, deleted and written over."""
    rng = np.random.default_rng(seed)
    made = created(tmp_path, wards().schema)
    made.append(wards(0, 1, 2, 2))
    for _ in range(8):
        match int(rng.integers(3)):
            case 0:
                made.append(wards(*rng.integers(0, 3, 3)))
            case 1:
                made.delete(f"ward = {rng.integers(3)}")
                made.append(wards(1))
            case 2:
                made.overwrite(wards(*rng.integers(0, 3, 2)))
    for each in made.refresh().snapshots():
        expected = made.scan(snapshot_id=each.snapshot_id).to_arrow()["ward"].to_numpy()
        if len(expected):
            assert ours(tmp_path, each.snapshot_id) == np.bincount(expected, minlength=3).tolist()
        else:
            assert "no files in this version" in refusal(snapshot(each.snapshot_id), tmp_path).detail


@pytest.fixture
def visits(tmp_path: Path) -> Table:
    """Snapshots of two records and of three; the latter has a tag."""
    made = created(tmp_path, wards().schema)
    made.append(wards(0, 1))
    made.append(wards(2))
    made.manage_snapshots().create_tag(newest(made), "closed").commit()
    return made.refresh()


def folder_of(made: Table) -> Path:
    return Path(made.location().removeprefix("file://"))


def test_a_tag_names_a_snapshot_and_a_branch_does_not(visits: Table, tmp_path: Path) -> None:
    """A branch goes on: what it was at registration has a number. And a tag is what the newest metadata say."""
    first, second = (each.snapshot_id for each in visits.snapshots())
    assert ours(tmp_path, "closed") == ours(tmp_path, second) == [1, 1, 1]
    assert "tells no such version" in refusal(snapshot("main"), tmp_path).detail
    visits.manage_snapshots().remove_tag("closed").commit()
    assert "tells no such version" in refusal(snapshot("closed"), tmp_path).detail
    visits.manage_snapshots().create_tag(first, "closed").commit()
    assert ours(tmp_path, "closed") == [1, 1, 0]
    found = newest_metadata(visits)
    shutil.copy(found, found.with_name(found.name.replace("-", "-0", 1)))
    assert "tells no such version" in refusal(snapshot("closed"), tmp_path).detail, "one of the two never came to be"
    assert ours(tmp_path, first) == [1, 1, 0]


def newest_metadata(made: Table) -> Path:
    return max(folder_of(made).glob("metadata/*.metadata.json"))


def test_a_table_may_lie_elsewhere_than_it_was_written(visits: Table, tmp_path: Path) -> None:
    """Addresses are the writer's. Would catch a file of the first place under the name of the second."""
    number = newest(visits)
    moved = tmp_path / "copies" / "visits"
    shutil.copytree(folder_of(visits), moved)
    shutil.rmtree(tmp_path / "lake")
    for path in moved.glob("metadata/*.json"):
        path.write_text(path.read_text().replace('"location":"file:///', '"location":"file:/'))
    assert counted(snapshot(number, "copies/visits"), tmp_path).report.kept == 3


@pytest.mark.parametrize("name", ["v9.metadata.json", "00009-x.gz.metadata.json", "v9.metadata.json.gz"])
def test_metadata_have_several_names(visits: Table, tmp_path: Path, name: str) -> None:
    number, found = newest(visits), newest_metadata(visits)
    content = found.read_bytes()
    for path in folder_of(visits).glob("metadata/*.json"):
        path.unlink()
    (found.parent / name).write_bytes(gzip.compress(content) if "gz" in name else content)
    assert ours(tmp_path, number) == [1, 1, 1]


def test_a_column_is_known_by_its_number(tmp_path: Path) -> None:
    """A name that was given to another column later is not that column in the files of before; nor is a column that was
    renamed since to be found there under its new name."""
    both = pa.table({"ward": pa.array([0, 1], pa.int64()), "other": pa.array([2, 2], pa.int64())})
    made = created(tmp_path, both.schema)
    made.append(both)
    first = newest(made)
    with made.update_schema(allow_incompatible_changes=True) as change:
        change.delete_column("ward")
    made.append(both.select(["other"]))
    assert "another column in some" in refusal(snapshot(newest(made)), tmp_path).detail, "it was deleted"
    with made.update_schema(allow_incompatible_changes=True) as change:
        change.rename_column("other", "ward")
    made.append(both.select(["ward"]))
    assert made.refresh().scan().to_arrow()["ward"].to_pylist().count(2) == 4, "the library reads numbers"
    assert "do not tell its rows, as" in refusal(snapshot(newest(made)), tmp_path).detail
    assert ours(tmp_path, first) == [1, 1, 0]
    made.overwrite(both.select(["ward"]))
    assert ours(tmp_path, newest(made)) == [1, 1, 0]


def test_two_columns_that_changed_their_names(tmp_path: Path) -> None:
    """All files have the old ones. Would catch the one in the place of the other, in every file alike."""
    both = pa.table({"ward": pa.array([0, 1], pa.int64()), "other": pa.array([2, 2], pa.int64())})
    made = created(tmp_path, both.schema)
    made.append(both)
    for old, new in (("ward", "x"), ("other", "ward"), ("x", "other")):
        with made.update_schema(allow_incompatible_changes=True) as change:
            change.rename_column(old, new)
    made.append(both.select(["ward", "other"]))
    made.delete("ward = 0")
    assert made.refresh().scan().to_arrow()["ward"].to_pylist() == [1, 2, 2]
    assert "another column in some" in refusal(snapshot(newest(made)), tmp_path).detail


def test_a_column_has_the_name_that_files_have(tmp_path: Path) -> None:
    """Where all have one name it may be asked by that, and a refusal says so."""
    made = created(tmp_path, pa.schema([("ward-code", pa.int64())]))
    made.append(pa.table({"ward-code": pa.array([0, 1], pa.int64())}))
    called = {"name": "ward", "size": 3, "column": "ward-code"}
    assert "let column be 'ward_x2Dcode'" in refusal(snapshot(newest(made), attributes=[called]), tmp_path).detail
    found = counted(snapshot(newest(made), attributes=[{**called, "column": "ward_x2Dcode"}]), tmp_path)
    assert found.report.kept == 2
    with made.update_schema() as change:
        change.rename_column("ward-code", "ward")
    made.append(pa.table({"ward": pa.array([1], pa.int64())}))
    assert "column 'ward' has another name in some" in refusal(snapshot(newest(made)), tmp_path).detail


def test_columns_without_numbers_are_refused(tmp_path: Path) -> None:
    """As files have that were written elsewhere and added. Would catch a column that was deleted from the table: the
    library reads nothing of it."""
    made = created(tmp_path, pa.schema([("ward", pa.int64()), ("other", pa.int64())]))
    path = folder_of(made) / "data" / "added.parquet"
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table({"ward": [0, 1, 1], "other": [2, 2, 2]}), path)
    made.add_files([str(path)])
    assert "has no number" in refusal(snapshot(newest(made)), tmp_path).detail
    with made.update_schema(allow_incompatible_changes=True) as change:
        change.delete_column("ward")
    made.append(pa.table({"other": pa.array([1], pa.int64())}))
    assert "ward" not in made.refresh().scan().to_arrow().column_names
    assert "has no number" in refusal(snapshot(newest(made)), tmp_path).detail


def test_white_space_makes_another_column(visits: Table, tmp_path: Path) -> None:
    """A file that is read whole is read by names without it. Would catch a column that no schema has in the place of
    the one that is asked."""
    number = newest(visits)
    for path in folder_of(visits).glob("data/*.parquet"):
        field = pa.field(" ward", pa.int64(), metadata={b"PARQUET:field_id": b"77"})
        pq.write_table(pa.table([pq.read_table(path)["ward"]], pa.schema([field])), path)
    declared = table({**snapshot(number), "prepare": "vault"})
    with pytest.raises(InvalidDataset, match="is not there"):
        prepare_source(declared, [tmp_path], memory_limit=1 << 26)


def test_files_of_a_copy_without_metadata_are_not_counted_as_well(visits: Table, tmp_path: Path) -> None:
    """Another of the operator's folders has the files, as a backup that was cut short has. Would catch each record
    twice."""
    copy = tmp_path / "other"
    shutil.copytree(tmp_path / "lake", copy / "lake", ignore=shutil.ignore_patterns("metadata"))
    assert "two of the server's folders" in refusal(snapshot(newest(visits)), tmp_path, copy).detail


@pytest.mark.parametrize("name", ["x" * 300, "lake/" + "x" * 300])
def test_a_name_that_no_folder_has(visits: Table, tmp_path: Path, name: str) -> None:
    """It is longer than names may be, to which the system answers otherwise."""
    assert "no Iceberg table" in refusal(snapshot(newest(visits), name), tmp_path).detail


def test_a_folder_that_nobody_may_read(visits: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(_: str) -> list[str]:
        raise PermissionError

    monkeypatch.setattr("app.storage.sources.files.os.listdir", denied)
    assert "a folder cannot be read" in refusal(snapshot(newest(visits)), tmp_path).detail


def test_columns_that_are_not_asked_may_come_and_go(visits: Table, tmp_path: Path) -> None:
    from pyiceberg.types import LongType

    with visits.update_schema() as change:
        change.add_column("later", LongType())
    visits.append(pa.table({"ward": pa.array([1], pa.int64()), "later": pa.array([5], pa.int64())}))
    assert ours(tmp_path, newest(visits)) == [1, 2, 1]
    with_later = snapshot(newest(visits), attributes=[WARD, {"name": "later", "size": 9}])
    assert "column 'later' has another name in some, or is not there" in refusal(with_later, tmp_path).detail


def test_partitions_are_counted(tmp_path: Path) -> None:
    """Their columns stand in the files."""
    made = created(tmp_path, wards().schema)
    with made.update_spec() as change:
        change.add_identity("ward")
    made.append(wards(0, 1, 1, 2))
    assert len([*folder_of(made).glob("data/*/*.parquet")]) == 3
    assert ours(tmp_path, newest(made)) == [1, 2, 1]


@pytest.mark.parametrize("name", ["T10:00", "a%3Ab", "x*[y]?", "a b"])
def test_names_of_files_are_as_they_are_written(visits: Table, tmp_path: Path, name: str) -> None:
    """Would catch a name from which something is taken for an address, a code or a pattern."""
    path = next(folder_of(visits).glob("data/*.parquet"))
    number, moved = newest(visits), path.with_name(name)
    for manifest in folder_of(visits).glob("metadata/*-m0.avro"):
        with manifest.open("rb") as file:
            told: Any = next(fastavro.reader(file))
        if told["data_file"]["file_path"].endswith(path.name):
            rewritten(visits, manifest, {"file_path": str(moved)})
    path.rename(moved)
    assert ours(tmp_path, number) == [1, 1, 1]


def test_prepared(visits: Table, tmp_path: Path) -> None:
    declared = {**snapshot("closed"), "prepare": "vault"}
    assert prepare_source(table(declared), [tmp_path], memory_limit=1 << 26).report.kept == 3


# ------------------------------------------------------------------ what is refused


def altered(path: Path, change: Callable[[list[Any]], object]) -> None:
    """A manifest, or a list of them, with other entries."""
    with path.open("rb") as file:
        reader = fastavro.reader(file)
        entries: list[Any] = list(reader)
    change(entries)
    with path.open("wb") as out:
        fastavro.writer(out, reader.writer_schema or {}, entries)


def rewritten(made: Table, path: Path, changed: JSON) -> None:
    """A manifest that says otherwise of its first file, and whose length the list knows."""
    altered(path, lambda entries: entries[0]["data_file"].update(changed))

    def measure(entries: list[Any]) -> None:
        for entry in entries:
            entry["manifest_length"] = Path(entry["manifest_path"].removeprefix("file://")).stat().st_size

    altered(list_of(made), measure)


def list_of(made: Table) -> Path:
    """The newest snapshot's list of manifests."""
    return next(folder_of(made).glob(f"metadata/snap-{newest(made)}-*.avro"))


def _manifest(**changed: Any) -> Callable[[Table], object]:
    return lambda made: altered(list_of(made), lambda entries: entries[0].update(changed))


def _file(**changed: Any) -> Callable[[Table], object]:
    """What the first of the manifests says of its first file."""

    def change(made: Table) -> None:
        with list_of(made).open("rb") as file:
            first: Any = next(fastavro.reader(file))
        rewritten(made, Path(first["manifest_path"].removeprefix("file://")), changed)

    return change


def _metadata(change: Callable[[JSON], object]) -> Callable[[Table], object]:
    def changed(made: Table) -> None:
        for path in folder_of(made).glob("metadata/*.metadata.json"):
            found = json.loads(path.read_text())
            change(found)
            path.write_text(json.dumps(found))

    return changed


def _snapshots(**changed: Any) -> Callable[[Table], object]:
    return _metadata(lambda found: [each.update(changed) for each in found.get("snapshots") or ()])


def _twice(made: Table) -> None:
    """The list has one of its manifests twice."""
    altered(list_of(made), lambda entries: entries.append(entries[0]))


def _cut(made: Table) -> None:
    """The first of the manifests has its header alone, which is a whole file of Avro. None is empty: the library's
    writer ends each block with the mark that ends the header."""
    with list_of(made).open("rb") as file:
        first: Any = next(fastavro.reader(file))
    path = Path(first["manifest_path"].removeprefix("file://"))
    content = path.read_bytes()
    mark = content[-16:]
    path.write_bytes(content[: content.index(mark) + 16])
    with path.open("rb") as file:
        assert not [*fastavro.reader(file)], "nothing tells that it was cut"


REFUSED: dict[str, tuple[Callable[[Table], object], str]] = {
    "deleted rows": (_manifest(content=1), "rows of its files are deleted"),
    "deleted rows of a file": (_file(content=1), "rows of its files are deleted"),
    "a file of another kind": (_file(file_format="ORC"), "no plain Parquet files"),
    "an encrypted file": (_file(key_metadata=b"key"), "no plain Parquet files"),
    "a file elsewhere": (_file(file_path="file:///etc/passwd"), "lie elsewhere"),
    "a file elsewhere by its path": (_file(file_path="/etc/passwd"), "lie elsewhere"),
    "a file in a store": (_file(file_path="s3://passwd/x.parquet"), "lie elsewhere"),
    "a file that is in it twice": (_twice, "is in it twice"),
    "a manifest elsewhere": (_manifest(manifest_path="/etc/passwd"), "lie elsewhere"),
    "a list elsewhere": (_snapshots(**{"manifest-list": "/etc/passwd"}), "lie elsewhere"),
    "a later format": (_metadata(lambda found: found.update({"format-version": 3})), "a format that is not read"),
    "a manifest that was cut": (_cut, "damaged"),
    "a path of thousands of parts": (_file(file_path="a/" * 3000 + "x"), "damaged"),
    "a format without end": (_metadata(lambda found: found.update({"format-version": float("inf")})), "damaged"),
    "no list": (_snapshots(**{"manifest-list": None}), "damaged"),
    "another schema": (_snapshots(**{"schema-id": 77}), "damaged"),
    "snapshots that are none": (_metadata(lambda found: found.update(snapshots=[7])), "damaged"),
    "no format": (_metadata(lambda found: found.pop("format-version")), "damaged"),
    "metadata that are none": (
        lambda made: [path.write_text("7") for path in folder_of(made).glob("metadata/*.json")], "damaged"),
    "text that is none": (
        lambda made: [path.write_bytes(b"\x1f\x8bx") for path in folder_of(made).glob("metadata/*.json")], "damaged"),
    "manifests that are none": (
        lambda made: [path.write_text("x") for path in folder_of(made).glob("metadata/*.avro")], "damaged"),
    "no metadata": (
        lambda made: [path.unlink() for path in folder_of(made).glob("metadata/*.json")], "no Iceberg table"),
    "no table": (lambda made: shutil.rmtree(folder_of(made)), "no Iceberg table"),
    "no file": (lambda made: shutil.rmtree(folder_of(made) / "data"), "no file of the server's folders"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_a_snapshot_whose_files_do_not_tell_all_is_refused(visits: Table, tmp_path: Path, what: str) -> None:
    """And nothing of a path that is named is told."""
    change, words = REFUSED[what]
    number = newest(visits)
    change(visits)
    found = refusal(snapshot(number), tmp_path)
    assert words in found.detail
    assert "passwd" not in found.detail


def test_a_file_that_was_deleted_is_not_counted_by_another_manifest(visits: Table, tmp_path: Path) -> None:
    """Entries of files that are no more are kept, for those who look at what a snapshot changed."""
    visits.delete("ward = 2")
    assert ours(tmp_path, newest(visits)) == [1, 1, 0]


def test_damage_anywhere_is_a_refusal(visits: Table, tmp_path: Path) -> None:
    """Each byte of a list of manifests is altered in turn: the snapshot is refused, or counted as it is. Would catch an
    error of a library that passes for one of the server."""
    number = newest(visits)
    path = list_of(visits)
    whole, refused = path.read_bytes(), 0
    for place in range(0, len(whole), len(whole) // 60):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        try:
            assert ours(tmp_path, number) == [1, 1, 1]
        except InvalidDataset:
            refused += 1
    assert refused > 10
    for length in range(0, len(whole), len(whole) // 9):
        path.write_bytes(whole[:length])
        refusal(snapshot(number), tmp_path)


@pytest.mark.parametrize("linked", ["folder", "metadata", "list", "file"])
def test_nothing_outside_is_opened(visits: Table, tmp_path: Path, linked: str) -> None:
    """A link to what is outside is refused before it is read, one that stays inside is followed."""
    number, path = newest(visits), folder_of(visits)
    place = {
        "folder": path,
        "metadata": path / "metadata",
        "list": list_of(visits),
        "file": next(path.glob("data/*.parquet")),
    }[linked]
    nothing_outside_is_opened(snapshot(number, "visits"), place, tmp_path)


def test_so_much_is_read_and_no_more(visits: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    number = newest(visits)
    monkeypatch.setattr("app.storage.sources.iceberg.MOST_LOGS", 1)
    assert "too long" in refusal(snapshot(number), tmp_path).detail
    monkeypatch.undo()
    monkeypatch.setattr(versions, "MOST_FILES", 1)
    assert "more than 1 files" in refusal(snapshot(number), tmp_path).detail
    monkeypatch.setattr(versions, "MOST_LOG_BYTES", 10)
    assert "too long" in refusal(snapshot(number), tmp_path).detail


def test_what_is_published_has_the_type_alone(visits: Table, tmp_path: Path) -> None:
    shown = written(published(table(snapshot("closed"))))
    assert shown["source"] == {"type": "iceberg"}
    assert "name the table" in refusal(shown, tmp_path).detail


def test_a_snapshot_is_asked_after_others_were_written(
    visits: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a wide table; until its files are swept away. Would catch the newest snapshot under the name of the one that
    was registered, and counts of what is left of it."""
    monkeypatch.setattr("app.storage.sources.outcome.MOST_COUNTED", 0)
    counts = asked_counts(snapshot("closed"), tmp_path)
    visits.overwrite(wards(0, 0, 0))
    by_ward = CellCounts((0,), (None,), (3,))
    assert [each.tolist() for each in told(counts, by_ward)] == [[1, 1, 1]]
    other = asked_counts(snapshot("closed"), tmp_path)
    for path in folder_of(visits).glob("data/*.parquet"):
        if len(pq.read_table(path)) != 3:
            path.unlink()
    with pytest.raises(SourceMoved):
        told(other, by_ward)


@pytest.mark.api
def test_over_http(tmp_path: Path) -> None:
    rows = pa.table(ROWS)
    made = created(tmp_path, rows.schema, "zebra.visits")
    made.append(rows)
    first = newest(made)
    made.append(rows)
    attributes = [{**ATTRIBUTES[0], "column": "zebra_x2Dcolumn"}, *ATTRIBUTES[1:]]
    declared = snapshot(first, "zebra/visits", attributes)
    is_registered_and_asked(declared, {**declared["source"], "snapshot": "9"}, tmp_path)
