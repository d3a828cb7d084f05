"""Versions of Delta tables, counted where their files lie. The oracle is the library of Delta itself, which writes the
tables and reads each version of them.

They would catch a file that was taken out of the table, or belongs to another version; a log that is read though it
does not tell all; and files that are opened though they lie elsewhere.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
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
from tests.datasets.source_files import JSON, declare
from tests.datasets.table_formats import ROWS, is_registered_and_asked, nothing_outside_is_opened
from tests.datasets.test_asked_sources import ATTRIBUTES, asked_counts, told
from tests.datasets.test_sources import counted, refusal, table

pytestmark = [pytest.mark.unit, pytest.mark.slow]

WARD = {"name": "ward", "size": 3}


def version(number: int | None, name: str | None = "lake/visits", attributes: list[JSON] | None = None) -> JSON:
    declared = declare([WARD] if attributes is None else attributes)
    return {**declared, "source": {"type": "delta", "table": name, "version": number}}


def wards(*values: int) -> pa.Table:
    return pa.table({"ward": pa.array(values, pa.int64())})


def tall(folder: Path, number: int) -> list[int]:
    """How many records each ward has in a version, as the library reads it."""
    found = deltalake.DeltaTable(folder / "lake/visits", version=number).to_pyarrow_table()["ward"].to_numpy()
    return np.bincount(found, minlength=3).tolist()


def ours(folder: Path, number: int) -> list[int]:
    data = counted(version(number), folder).data
    assert isinstance(data, DenseData)
    return data.array.tolist()


@pytest.mark.parametrize("seed", range(6))
def test_each_version_is_what_the_library_reads(tmp_path: Path, seed: int) -> None:
    """After records were added, deleted, written over and put into fewer files; before and after checkpoints, and with
    the commits before them gone."""
    rng, path = np.random.default_rng(seed), tmp_path / "lake" / "visits"
    deltalake.write_deltalake(path, wards(0, 1, 2, 2))
    for _ in range(10):
        known = deltalake.DeltaTable(path)
        match int(rng.integers(6)):
            case 0 | 1:
                deltalake.write_deltalake(path, wards(*rng.integers(0, 3, 3)), mode="append")
            case 2:
                known.delete(f"ward = {rng.integers(3)}")
                deltalake.write_deltalake(path, wards(1), mode="append")
            case 3:
                deltalake.write_deltalake(path, wards(*rng.integers(0, 3, 2)), mode="overwrite")
            case 4:
                known.optimize.compact()
            case 5:
                known.create_checkpoint()
    newest = deltalake.DeltaTable(path).version()
    expected = {number: tall(tmp_path, number) for number in range(newest + 1)}
    assert {number: ours(tmp_path, number) for number in expected if sum(expected[number])} == {
        number: counts for number, counts in expected.items() if sum(counts)
    }
    deltalake.DeltaTable(path).create_checkpoint()
    for each in (path / "_delta_log").glob("0*"):
        if int(each.name.partition(".")[0]) < newest:
            each.unlink()
    assert ours(tmp_path, newest) == expected[newest]
    deltalake.write_deltalake(path, wards(2), mode="append")
    assert ours(tmp_path, newest + 1) == tall(tmp_path, newest + 1)
    if newest:
        assert "tells no such version" in refusal(version(newest - 1), tmp_path).detail


@pytest.fixture
def visits(tmp_path: Path) -> Path:
    path = tmp_path / "lake" / "visits"
    deltalake.write_deltalake(path, wards(0, 1))
    deltalake.write_deltalake(path, wards(2), mode="append")
    return path


def appended(path: Path, *actions: JSON) -> None:
    """One more commit, written by hand: version 2."""
    (path / "_delta_log" / f"{2:020}.json").write_text("\n".join(map(json.dumps, actions)))


def added(**more: Any) -> JSON:
    return {"add": {"path": "x.parquet", "size": 1, "modificationTime": 0, "dataChange": True, **more}}


def _protocol(reader: int, *features: str) -> JSON:
    return {"protocol": {"minReaderVersion": reader, "minWriterVersion": 7, "readerFeatures": [*features]}}


def _metadata(**more: Any) -> JSON:
    return {"metaData": {"id": "x", "format": {"provider": "parquet"}, "partitionColumns": [], **more}}


VECTOR = {
    "storageType": "u",
    "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
    "offset": 4,
    "sizeInBytes": 40,
    "cardinality": 1,
}
REFUSED: dict[str, tuple[JSON, str]] = {
    "deleted rows": (added(deletionVector=VECTOR), "rows of its files are deleted"),
    "columns of other names": (_metadata(configuration={"delta.columnMapping.mode": "name"}), "have other names"),
    "partitions": (_metadata(partitionColumns=["ward"]), "partitioned"),
    "a feature": (_protocol(3, "v2Checkpoint"), "features that are not read"),
    "a later protocol": (_protocol(4), "features that are not read"),
    "a file above": (added(path="../x.parquet"), "lie elsewhere"),
    "a file above, by its code": (added(path="%2e%2e/x.parquet"), "lie elsewhere"),
    "a file by its whole path": (added(path="/etc/passwd"), "lie elsewhere"),
    "a file by its address": (added(path="file:///etc/passwd"), "lie elsewhere"),
    "a file that is gone": (added(), "no file of the server's folders"),
    "a path that is none": (added(path=7), "damaged"),
    "metadata that are none": ({"metaData": 7}, "damaged"),
    "a file that is none": ({"add": [1]}, "damaged"),
    "a vector that is none": (added(deletionVector=7), "damaged"),
    "a vector without a place": (added(deletionVector={"cardinality": 1}), "damaged"),
    "features that are none": ({"protocol": {"minReaderVersion": 3, "readerFeatures": [{}]}}, "damaged"),
    "a protocol that is none": ({"protocol": {"minReaderVersion": "new"}}, "damaged"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_version_whose_files_do_not_tell_all_is_refused(visits: Path, what: str) -> None:
    """And nothing of a path that the log names is told."""
    action, words = REFUSED[what]
    appended(visits, action)
    found = refusal(version(2), visits.parents[1])
    assert words in found.detail
    assert "passwd" not in found.detail
    assert ours(visits.parents[1], 1) == [1, 1, 1], "an earlier version is as it was"


def test_what_was_so_once_is_nothing_to_a_later_version(visits: Path) -> None:
    """Deleted rows that were purged, partitions and names that were written over, a file elsewhere that was copied:
    what refuses a version says to do this, and then to name the next one. Would catch advice that helps nobody."""
    elsewhere = added(path="/etc/passwd")
    appended(visits, _metadata(partitionColumns=["ward"]), added(deletionVector=VECTOR), elsewhere)
    assert "partitioned" in refusal(version(2), visits.parents[1]).detail
    removed = [{"remove": {"path": "x.parquet", "deletionVector": VECTOR}}, {"remove": {"path": "/etc/passwd"}}]
    later = [_metadata(configuration={"delta.columnMapping.mode": "none"}), *removed]
    (visits / "_delta_log" / f"{3:020}.json").write_text("\n".join(map(json.dumps, later)))
    assert ours(visits.parents[1], 3) == [1, 1, 1]


def test_rows_that_are_deleted_from_a_file_are_not_lost_with_it(visits: Path) -> None:
    """The file comes with its vector and goes without, in one commit and in that order. Would catch a table that seems
    to have neither, and is counted without the rows that are left."""
    (path,) = (file.name for file in visits.glob("*.parquet") if pq.read_table(file).num_rows == 2)
    appended(visits, added(path=path, deletionVector=VECTOR), {"remove": {"path": path}})
    assert "rows of its files are deleted" in refusal(version(2), visits.parents[1]).detail


LOGS: dict[str, tuple[Callable[[Path], object], str]] = {
    "no table": (shutil.rmtree, "no Delta table"),
    "no log": (lambda path: shutil.rmtree(path / "_delta_log"), "no Delta table"),
    "text that is none": (lambda path: (path / "_delta_log" / f"{1:020}.json").write_text("{"), "damaged"),
    "a number": (lambda path: (path / "_delta_log" / f"{1:020}.json").write_text("7"), "damaged"),
    "a checkpoint that is none": (
        lambda path: (path / "_delta_log" / f"{1:020}.checkpoint.parquet").write_text("x"), "damaged"),
    "a gap": (lambda path: (path / "_delta_log" / f"{0:020}.json").unlink(), "tells no such version"),
    "half of a checkpoint": (lambda path: (
        pq.write_table(wards(1), path / "_delta_log" / f"{1:020}.checkpoint.{1:010}.{2:010}.parquet"),
        (path / "_delta_log" / f"{0:020}.json").unlink()), "tells no such version"),
    "nothing said of the table": (
        lambda path: (path / "_delta_log" / f"{0:020}.json").write_text(json.dumps(added())), "damaged"),
}  # fmt: skip


@pytest.mark.parametrize("what", LOGS)
def test_a_log_that_tells_too_little_is_refused(visits: Path, what: str) -> None:
    change, words = LOGS[what]
    change(visits)
    assert words in refusal(version(1), visits.parents[1]).detail


@pytest.mark.parametrize("linked", ["folder", "log", "commit", "file"])
def test_nothing_outside_is_opened(visits: Path, tmp_path: Path, linked: str) -> None:
    """The folder, its log, a commit or a file may be a link: one to what is outside is refused before it is read, one
    that stays inside is followed."""
    place = {
        "folder": visits,
        "log": visits / "_delta_log",
        "commit": visits / "_delta_log" / f"{1:020}.json",
        "file": next(visits.glob("*.parquet")),
    }[linked]
    nothing_outside_is_opened(version(1, "visits"), place, tmp_path)


def test_of_two_tables_none_is_taken(visits: Path, tmp_path: Path) -> None:
    shutil.copytree(tmp_path / "lake", tmp_path / "other" / "lake")
    assert "two of the server's folders" in refusal(version(1), tmp_path, tmp_path / "other").detail


def test_files_of_a_copy_without_a_log_are_not_counted_as_well(visits: Path, tmp_path: Path) -> None:
    """Another of the operator's folders has the files, as a backup that was cut short has. Would catch each record
    twice; and a version that is asked beside such a copy that came later."""
    copy = tmp_path / "other"
    shutil.copytree(tmp_path / "lake", copy / "lake", ignore=shutil.ignore_patterns("_delta_log"))
    assert "two of the server's folders" in refusal(version(1), tmp_path, copy).detail


def test_as_many_files_as_a_source_has(visits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "MOST_FILES", 1)
    assert "more than 1 files" in refusal(version(1), visits.parents[1]).detail
    monkeypatch.setattr(versions, "MOST_LOG_BYTES", 10)
    assert "too long" in refusal(version(0), visits.parents[1]).detail


def test_a_name_is_no_pattern(visits: Path) -> None:
    """A file whose name has signs of patterns is that file, and no other is."""
    pq.write_table(wards(0, 0), visits / "a[b]*.parquet")
    pq.write_table(wards(1, 1), visits / "ab-other.parquet")
    appended(visits, added(path="a%5Bb%5D*.parquet"))
    assert ours(visits.parents[1], 2) == [3, 1, 1]


@pytest.mark.parametrize("wrong", ["/lake/visits", "lake/../visits", "lake//visits", "lake/*", "lake/\0"])
def test_a_folder_that_leads_elsewhere_is_no_declaration(wrong: str) -> None:
    with pytest.raises(InvalidDataset, match="no pattern"):
        table(version(1, wrong))


def test_what_is_published_has_the_type_alone(visits: Path) -> None:
    shown = written(published(table(version(1))))
    assert shown["source"] == {"type": "delta"}
    assert "name the table" in refusal(shown, visits.parents[1]).detail


def test_a_version_is_asked_after_others_were_written(visits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a wide table; until its files are swept away. Would catch the newest version under the name of the one that
    was registered, and counts of what is left of it."""
    monkeypatch.setattr("app.storage.sources.outcome.MOST_COUNTED", 0)
    counts = asked_counts(version(1), visits.parents[1])
    deltalake.write_deltalake(visits, wards(0, 0, 0), mode="overwrite")
    by_ward = CellCounts((0,), (None,), (3,))
    assert [each.tolist() for each in told(counts, by_ward)] == [[1, 1, 1]]
    other = asked_counts(version(1), visits.parents[1])
    deltalake.DeltaTable(visits).vacuum(0, dry_run=False, enforce_retention_duration=False)
    with pytest.raises(SourceMoved):
        told(other, by_ward)


@pytest.mark.api
def test_over_http(tmp_path: Path) -> None:
    rows = pa.table(ROWS)
    deltalake.write_deltalake(tmp_path / "zebra" / "visits", rows)
    deltalake.write_deltalake(tmp_path / "zebra" / "visits", rows, mode="append")
    declared = version(0, "zebra/visits", ATTRIBUTES)
    is_registered_and_asked(declared, {**declared["source"], "version": 9}, tmp_path)
