"""Tables counted from Parquet files where they lie. The oracles are a plain loop over the records
(`source_files.py`) and the upload of the same records, which another library reads.

They would catch a record in a wrong cell or in several, one that is lost where it lies outside, a value that is said to
be where it is not, files that are read though nobody named them, and counts of files that changed meanwhile.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.bootstrap import reader_process
from app.bootstrap.reader_process import ProcessReaders
from app.declarations.errors import InvalidDataset
from app.declarations.spec import MOST_COMPARED, TableSpec, parse_spec, published, written
from app.services.errors import Unavailable
from app.spaces.counts import CellCounts
from app.spaces.partition import Partition
from app.storage.private_data import DenseData
from app.storage.readers import read_private
from app.storage.readers.report import Report
from app.storage.sources import ParquetFolders, Sources, compiled, files, parquet
from app.storage.sources.parquet import count_source
from tests.datasets import source_files as plain
from tests.datasets.source_files import HOSTILE, JSON, declare, write
from tests.kit.patience import patience

pytestmark = [pytest.mark.unit, pytest.mark.slow]

MEMORY = 1 << 28
WARD = {"name": "ward", "size": 3}
AGE = {"name": "age", "lower": 0, "upper": 80, "edges": [0, 20, 40, 80]}


def table(declared: JSON) -> TableSpec:
    spec = parse_spec(declared)
    assert isinstance(spec, TableSpec)
    return spec


def counted(declared: JSON, *folders: Path, memory: int = MEMORY) -> parquet.CountedSource:
    return count_source(table(declared), folders, memory_limit=memory)


def refusal(declared: JSON, *folders: Path, memory: int = MEMORY) -> InvalidDataset:
    with pytest.raises(InvalidDataset) as found:
        counted(declared, *folders, memory=memory)
    return found.value


def cells(array: Any) -> dict[tuple[int, ...], int]:
    return {tuple(map(int, at)): int(array[tuple(at)]) for at in np.argwhere(array)}


@st.composite
def sources(draw: st.DrawFn, strays: bool | None = None) -> tuple[list[JSON], list[Any], list[list[Any]], list[int]]:
    """Attributes, the types of their columns, records, and where one file ends and the next begins."""
    found = draw(st.lists(plain.columns(), min_size=1, max_size=4))
    names = draw(st.lists(st.sampled_from(HOSTILE), min_size=len(found), max_size=len(found), unique=True))
    others = draw(st.permutations(HOSTILE))
    attributes = []
    for number, (name, column) in enumerate(zip(names, found, strict=True)):
        renamed = {"column": others[number]} if draw(st.booleans()) else {}
        attributes.append({"name": name, **column.declared, **renamed})
    columns = [attribute.get("column", attribute["name"]) for attribute in attributes]
    if len({column.casefold() for column in columns}) < len(columns):
        attributes = [{k: v for k, v in attribute.items() if k != "column"} for attribute in attributes]
    strays = draw(st.booleans()) if strays is None else strays
    fields = [column.values if strays else column.kept for column in found]
    records = draw(st.lists(st.tuples(*fields).map(list), min_size=0 if strays else 1, max_size=12))
    ends = sorted(draw(st.lists(st.integers(0, len(records)), max_size=2)))
    return attributes, [column.type for column in found], records, ends


def lay(folder: Path, source: tuple[list[JSON], list[Any], list[list[Any]], list[int]]) -> None:
    """The records in files below a folder, beside a column that nobody declares."""
    attributes, types, records, ends = source
    shutil.rmtree(folder, ignore_errors=True)
    for number, (first, last) in enumerate(zip([0, *ends], [*ends, len(records)], strict=True)):
        written_here = records[first:last]
        columns = {"not declared": pa.array([b"x"] * len(written_here), pa.binary())}
        for axis, (attribute, kind) in enumerate(zip(attributes, types, strict=True)):
            values = [record[axis] for record in written_here]
            columns[attribute.get("column", attribute["name"])] = pa.array(values, kind)
        write(folder / f"part={number}" / "x.parquet", columns, row_group_size=3)


@given(source=sources())
@example(source=([{**AGE, "outside": "clamp"}], [pa.float64()], [[1e308], [-1e308], [80.0]], []))
@example(source=([{**WARD}], [pa.uint64()], [[2**64 - 1]], []))
def test_counts_are_those_of_a_plain_loop_and_of_an_upload(tmp_path_factory: Any, source: Any) -> None:
    folder = tmp_path_factory.getbasetemp() / "plain"
    lay(folder, source)
    attributes, types, records, _ = source
    expected = plain.count(attributes, records)
    declared = declare(attributes, "part=*/*.parquet")
    if expected.outside or not records:
        error = refusal(declared, folder)
        assert error.extra == ({"outside": dict(expected.outside)} if expected.outside else {})
        return
    found = counted(declared, folder)
    assert cells(found.data.array) == expected.cells
    view = found.report.view()
    assert (view["read"], view["kept"], view["clamped"]) == (len(records), len(records), expected.moved)
    assert {name: told["clamped"] for name, told in view["attributes"].items() if told["clamped"]} == expected.clamped
    assert {name: told["missing"] for name, told in view["attributes"].items() if told["missing"]} == expected.missing
    as_uploaded = [{key: value for key, value in a.items() if key != "column"} for a in attributes]
    columns = {
        a["name"]: pa.array([record[axis] for record in records], kind)
        for axis, (a, kind) in enumerate(zip(attributes, types, strict=True))
    }
    path = write(folder / "whole.parquet", columns)
    uploaded = read_private(table(declare(as_uploaded)), "whole.parquet", path, memory_limit=MEMORY)
    assert uploaded.data.array.dtype == found.data.array.dtype  # type: ignore[union-attr]
    assert (uploaded.data.array == found.data.array).all()  # type: ignore[union-attr]
    assert uploaded.data.mass == found.data.mass
    assert uploaded.report is not None
    assert uploaded.report.view() == view


def contribution(folder: Path, source: Any) -> None:
    """The engine's own counts before and after each record, outside of the domain or not."""
    attributes, types, records, _ = source
    spec = table(declare(attributes, "*.parquet"))
    shape = tuple(a.length for a in spec.attributes)
    every = CellCounts(tuple(range(len(shape))), (None,) * len(shape), shape)
    # Weights of values, of which every second one weighs nothing, over the classes of odd and even values.
    odd = Partition.of(np.arange(shape[0]) % 2)
    weights = np.where(np.arange(shape[-1]) % 2, 0, 5)
    weighed = CellCounts((0,), (odd,), (odd.cells,), factors=((len(shape) - 1, weights),))
    before: Any = None
    for number in range(min(len(records), 4) + 1):
        lay(folder, (attributes, types, records[:number], []))
        path = str(folder / "part=0" / "x.parquet")
        with parquet.Engine(spec, [path], MEMORY) as engine:
            after = [engine.count(path, asked)[0] for asked in (every, weighed)]
        moved, moved_weights = [a - b for a, b in zip(after, before or after, strict=True)]
        assert sorted(moved[moved != 0]) == ([1] if number else [])
        assert np.abs(moved_weights).sum() in ((0, 5) if number else (0,))
        before = after


@given(source=sources(strays=True))
def test_a_record_moves_one_count_by_one_whatever_it_holds(tmp_path_factory: Any, source: Any) -> None:
    """What the noise is drawn for. Would catch a record that counts twice, as of a join, or in no cell."""
    contribution(tmp_path_factory.getbasetemp() / "moved", source)


@pytest.mark.parametrize("fault", ["twice", "nowhere"])
def test_a_fault_of_the_bound_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    """Would catch a test above that cannot fail: planted are a record that counts twice where it lies outside, and
    places that are not held within their axis."""
    source = ([WARD], [pa.int64()], [[1], [7]], [])
    contribution(tmp_path, source)
    if fault == "twice":
        honest = parquet.Engine._records
        monkeypatch.setattr(
            parquet.Engine,
            "_records",
            lambda self, *how, **more: (
                f"SELECT * FROM ({(q := honest(self, *how, **more))}) UNION ALL SELECT * FROM ({q}) WHERE p0 = 2"
            ),
        )
    else:
        monkeypatch.setattr(compiled, "_place", lambda dialect, attribute, axis, kind, column, reasons: column)
    # A place beyond all numbers has none, which no engine may tell.
    with pytest.raises((AssertionError, parquet.Damaged)):
        contribution(tmp_path, source)


def test_sums_are_as_wide_as_the_capacity(tmp_path: Path) -> None:
    """Would catch counts that wrap around at 8 or 16 bits, and a capacity that is not held."""
    for records, capacity in ((255, 255), (70_000, 70_000), (70_000, None), (1 << 20, 2**40)):
        write(tmp_path / "x.parquet", {"ward": np.ones(records, np.int8)})
        more = {} if capacity is None else {"capacity": capacity}
        found = counted(declare([WARD], "x.parquet", **more), tmp_path)
        assert found.data.array.tolist() == [0, records, 0]
        if capacity == records:
            error = refusal(declare([WARD], "x.parquet", capacity=records - 1), tmp_path)
            assert f"capacity of {records - 1}" in error.detail


def test_all_bins_that_are_compared(tmp_path: Path) -> None:
    """A tree of as many comparisons as there may be: the engine survives it, and finds each bin."""
    edges = [k / 7 for k in range(MOST_COMPARED + 1)]
    write(tmp_path / "x.parquet", {"x": edges})
    found = counted(declare([{"name": "x", "edges": edges}], "*.parquet"), tmp_path)
    assert found.data.array.tolist() == [1] * (MOST_COMPARED - 1) + [2]


def test_a_file_is_not_believed_what_it_says_of_itself(tmp_path: Path) -> None:
    """Statistics of a file leave NaN out, and may be wrong: an engine that counts by them loses records."""
    attribute = {"name": "x", "edges": [0, 2_000_000, 8_000_000], "missing": True}
    write(tmp_path / "nan.parquet", {"x": [math.nan, 1.0, math.nan, 8e6]})
    assert counted(declare([attribute], "nan.parquet"), tmp_path).data.array.tolist() == [1, 1, 2]
    path = write(tmp_path / "forged.parquet", {"x": [1_234_567, 7_654_321]}, use_dictionary=False)
    content = path.read_bytes()
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    low, high = ((number).to_bytes(8, "little") for number in (1_234_567, 7_654_321))
    assert high in content[footer:]
    path.write_bytes(content[:footer] + content[footer:].replace(high, low))
    assert counted(declare([attribute], "forged.parquet"), tmp_path).data.array.tolist() == [1, 1, 0]


# ------------------------------------------------------------------------------------------ declarations

NOT_COUNTED: dict[str, tuple[JSON, JSON, str]] = {
    "persons": ({}, {"unit": {"column": "p", "max_records": 2}}, "without unit"),
    "zeros": ({}, {"zeros": [{"a": 1}]}, "without zeros"),
    "words for nothing": ({}, {"null_values": ["NA"]}, "without null_values"),
    "an encoding": ({}, {"encoding": "latin-1"}, "without encoding"),
    "dropping": ({}, {"outside": "drop"}, "no record is dropped"),
    "dropping by attribute": ({"size": 2, "outside": "drop"}, {}, "no record is dropped"),
    "levels": ({"values": ["x", "y", "z"], "levels": {"u": ["x", "y"], "v": ["z"]}}, {}, "without role and levels"),
    "weights": ({"lower": 0, "upper": 9, "grid": 1, "role": "weight"}, {}, "without role and levels"),
    "a grid of fractions": ({"lower": 0, "upper": 9, "grid": 0.5}, {}, "grid of integers"),
    "many bins": ({"lower": 0, "upper": 1, "bins": MOST_COMPARED + 1}, {}, f"at most {MOST_COMPARED:,} bins"),
}  # fmt: skip


@pytest.mark.parametrize("what", NOT_COUNTED)
def test_what_is_not_counted_is_refused_with_the_declaration(what: str) -> None:
    """Before any file is looked for, and saying what to do."""
    attribute, more, words = NOT_COUNTED[what]
    with pytest.raises(InvalidDataset) as found:
        table(declare([{"name": "a", **(attribute or {"size": 2})}], "x.parquet", **more))
    assert words in found.value.detail
    assert ("leave it out" if "encoding" in more else "prepare be vault") in found.value.detail


@pytest.mark.parametrize("engine", ["bigquery", "snowflake", "trino"])
@pytest.mark.parametrize("what", NOT_COUNTED)
def test_a_refusal_of_an_engine_that_is_not_read_advises_no_reading(engine: str, what: str) -> None:
    """Catches advice that the same engine refuses."""
    attribute, more, words = NOT_COUNTED[what]
    declared = declare([{"name": "a", **(attribute or {"size": 2})}], "x.parquet", **more)
    source = {"type": engine, "connection": "house", "table": "clinic.visits"}
    with pytest.raises(InvalidDataset) as found:
        table({**declared, "source": source})
    assert words in found.value.detail
    assert "prepare" not in found.value.detail
    assert "encoding" in more or "table in the warehouse" in found.value.detail


def test_a_universe_that_memory_does_not_hold_is_refused_before_files_are_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of those whose cells are all counted."""
    monkeypatch.setattr(parquet, "opened", lambda *how: pytest.fail("files are opened"))
    error = refusal(declare([{"name": "a", "size": 2**24}], "x"), tmp_path, memory=1 << 26)
    assert "too small" in error.detail


def test_a_column_is_of_a_source_alone() -> None:
    with pytest.raises(InvalidDataset, match="column"):
        table(declare([{**WARD, "column": "w"}]))


def test_when_replies_leave_is_said_of_what_is_asked() -> None:
    """Not beside an upload, and no later than clients wait. It is public."""
    with pytest.raises(InvalidDataset, match="answer_seconds") as found:
        table({**declare([WARD]), "answer_seconds": 5})
    assert "leave it out" in found.value.detail
    spec = table({**declare([WARD], "x.parquet"), "answer_seconds": 60})
    assert written(published(spec))["answer_seconds"] == 60
    with pytest.raises(InvalidDataset, match="declare fewer"):
        Sources({}, 60.0).register(spec)


def test_what_is_published_has_the_type_alone() -> None:
    """And is a declaration that can be read again."""
    spec = table(declare([{**WARD, "column": "secret-column"}], "secret-folder/x.parquet"))
    shown = written(published(spec))
    assert shown["source"] == {"type": "parquet"}
    assert "secret" not in json.dumps(shown)
    assert written(parse_spec(shown)) == shown
    assert "name the files" in refusal(shown).detail


# ------------------------------------------------------------------------------------------------ columns

COLUMNS: dict[str, tuple[JSON, dict[str, Any], str]] = {
    "no such column": (WARD, {"Ward": [1]}, 'no column "ward"'),
    "two names but for capitals": (WARD, {"ward": [1], "WARD": [2]}, "differ in capitals"),
    "floats as codes": (WARD, {"ward": [1.0]}, "integers"),
    "text as codes": (WARD, {"ward": ["1"]}, "integers"),
    "decimals in bins": (AGE, {"age": pa.array([1], pa.decimal128(9, 2))}, "integers, or of floats"),
    "decimals of which floats are made": (AGE, {"age": pa.array([1], pa.decimal256(40, 30))}, "integers, or of floats"),
    "no name": (WARD, {"ward": [1], "": [2]}, "or one has none"),
    "floats in a grid": ({"name": "g", "lower": 0, "upper": 9, "grid": 1}, {"g": [1.0]}, "a column of integers"),
    "floats in unit bins without comparisons": (
        {"name": "g", "lower": 0, "upper": 5000}, {"g": [1.0]}, f"at most {MOST_COMPARED:,} bins"),
    "times with a zone": (
        {"name": "d", "dates": ["2020-01-01", "2020-01-02"], "by": "day"},
        {"d": pa.array([0], pa.timestamp("s", "UTC"))}, "times without a zone"),
    "lists": (WARD, {"ward": [[1]]}, "integers"),
    "Booleans that are no categories": ({"name": "a", "values": ["no", "yes"]}, {"a": [True]}, "Booleans"),
    "bytes": ({"name": "a", "values": ["x"]}, {"a": [b"x"]}, "text"),
}  # fmt: skip


@pytest.mark.parametrize("what", COLUMNS)
def test_a_column_that_is_not_counted_is_refused(tmp_path: Path, what: str) -> None:
    attribute, columns, words = COLUMNS[what]
    write(tmp_path / "x.parquet", columns)
    assert words in refusal(declare([attribute], "x.parquet"), tmp_path).detail


def test_files_may_differ_in_their_columns(tmp_path: Path) -> None:
    """In their order and their types: an engine that takes all by the first file's would round the second's."""
    write(tmp_path / "1.parquet", {"age": np.array([1, 30], np.int8), "x": [0, 0]})
    write(tmp_path / "2.parquet", {"x": [70, 70], "age": [19.6, 39.9]})
    found = counted(declare([{**AGE}], "*.parquet"), tmp_path)
    assert found.data.array.tolist() == [2, 2, 0]


# -------------------------------------------------------------------------------------------------- paths


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A folder for sources beside one that is none."""
    write(tmp_path / "in" / "a.parquet", {"ward": [0, 1]})
    write(tmp_path / "in" / "sub" / "b.parquet", {"ward": [2]})
    write(tmp_path / "secret" / "s.parquet", {"ward": [2, 2, 2, 2]})
    (tmp_path / "in" / "out.parquet").symlink_to(tmp_path / "secret" / "s.parquet")
    (tmp_path / "in" / "outside").symlink_to(tmp_path / "secret")
    (tmp_path / "in" / "within.parquet").symlink_to("sub/b.parquet")
    (tmp_path / "in" / "broken.parquet").symlink_to("nothing")
    os.link(tmp_path / "in" / "a.parquet", tmp_path / "in" / "hard.parquet")
    os.mkfifo(tmp_path / "in" / "pipe")
    return tmp_path / "in"


PATTERNS = {
    "up": "../secret/s.parquet", "up within": "sub/../../secret/s.parquet", "absolute": "/etc/passwd",
    "dot": "./a.parquet",
    "empty": "sub//b.parquet", "deep": "**/b.parquet", "NUL": "a.parquet\0", "an end": "sub/",
}  # fmt: skip


@pytest.mark.parametrize("what", PATTERNS)
def test_a_pattern_that_leads_elsewhere_is_no_declaration(what: str) -> None:
    with pytest.raises(InvalidDataset, match="a pattern is a path below"):
        table(declare([WARD], PATTERNS[what]))


ATTACKS = {
    "a link out": ("out.parquet", "leads outside"),
    "a link out among others": ("[ao]*.parquet", "leads outside"),
    "a folder by a link": ("outside/s.parquet", "leads outside"),
    "a folder by a link and a pattern": ("outside/*", "leads outside"),
    "folders by a pattern": ("*/s.parquet", "leads outside"),
    "nothing": ("no-*.parquet", "matches"),
    "a name in capitals": ("A.parquet", "matches"),
    "below a file": ("a.parquet/x", "matches"),
    "a folder": ("sub", "no file"),
    "a pipe": ("pipe", "no file"),
    "a broken link": ("broken.parquet", "cannot be opened"),
    "a long name": ("x" * 300, "matches"),
}


@pytest.mark.parametrize("what", ATTACKS)
def test_nothing_outside_is_opened_or_listed(tree: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """Would catch a file or folder outside that is touched, and a refusal that tells a path nobody declared."""
    pattern, words = ATTACKS[what]
    touched: list[str] = []
    for name in ("open", "listdir"):
        honest: Callable[..., Any] = getattr(os, name)

        def watched(path: Any, *how: Any, honest: Any = honest) -> Any:
            touched.append(os.path.realpath(path))
            return honest(path, *how)

        monkeypatch.setattr(files.os, name, watched)
    error = refusal(declare([WARD], pattern), tree)
    assert words in error.detail
    assert error.detail.startswith("source.files.0: ")
    assert all(Path(path).is_relative_to(tree) for path in touched)
    assert "secret" not in error.detail
    assert str(tree.parent) not in error.detail


def test_links_that_stay_inside_are_followed(tree: Path) -> None:
    assert counted(declare([WARD], "within.parquet"), tree).data.array.tolist() == [0, 0, 1]
    assert counted(declare([WARD], "out.parquet"), tree, tree.parent / "secret").data.array.tolist() == [0, 0, 4]
    (tree / "again").symlink_to(tree)
    assert counted(declare([WARD], "again/a.parquet", "sub/*"), tree / "again").data.array.tolist() == [1, 1, 1]


def test_a_file_counts_once(tree: Path) -> None:
    """However many patterns match it; and by two names it is refused."""
    assert counted(declare([WARD], "a.parquet", "a.*", "[a]*t"), tree).data.array.tolist() == [1, 1, 0]
    for twice in (("a.parquet", "hard.parquet"), ("sub/b.parquet", "within.parquet")):
        assert "two of the files are one" in refusal(declare([WARD], *twice), tree).detail


def test_without_folders_nothing_is_read(tree: Path) -> None:
    assert "CURATOR_SOURCE_FOLDERS" in refusal(declare([WARD], "a.parquet")).detail


def test_a_link_that_is_changed_after_it_was_looked_at(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A race: the path is looked at, then leads outside."""
    honest = os.path.realpath
    monkeypatch.setattr(
        files.os.path, "realpath",
        lambda path: str(tree / "outside" / "s.parquet") if str(path).endswith("a.parquet") else honest(path),
    )  # fmt: skip
    assert refusal(declare([WARD], "a.parquet"), tree).detail == files.MOVED


def test_many_files(tmp_path: Path) -> None:
    for number in range(files.MOST_FILES + 1):
        write(tmp_path / f"{number}.parquet", {"ward": [number % 3]})
    assert "fewer, larger" in refusal(declare([WARD], "*.parquet"), tmp_path).detail
    (tmp_path / "0.parquet").unlink()
    before = len(os.listdir("/proc/self/fd"))
    assert counted(declare([WARD], "*.parquet"), tmp_path).data.mass == files.MOST_FILES
    assert len(os.listdir("/proc/self/fd")) <= before + 1  # of the listing itself


# ------------------------------------------------------------------------------------------------- moving


def rewritten(path: Path) -> None:
    content, found = bytearray(path.read_bytes()), path.stat()
    content[len(content) // 2] ^= 1
    with path.open("r+b") as file:
        file.write(content)
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))


def replaced(path: Path) -> None:
    other = path.with_suffix(".new")
    shutil.copy2(path, other)
    other.replace(path)


MOVES: dict[str, Callable[[Path], object]] = {
    "rewritten in its place, its time put back": rewritten,
    "replaced by its copy": replaced,
    "gone": Path.unlink,
    "longer": lambda path: path.open("ab").write(b"x"),
    "a link now": lambda path: (path.rename(path.with_suffix(".old")), path.symlink_to(path.with_suffix(".old"))),
}


@pytest.mark.parametrize("what", MOVES)
@pytest.mark.parametrize("moved", ["1.parquet", "2.parquet"])
def test_a_file_that_moves_while_it_is_counted_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, moved: str
) -> None:
    """Whether it was counted already or is to come: the counts would be of no one state."""
    for name in ("1.parquet", "2.parquet"):
        write(tmp_path / name, {"ward": [0, 1]})
    honest, done = parquet.Engine.survey, []

    def moving(*how: Any) -> Any:
        if not done:
            done.append(MOVES[what](tmp_path / moved))
        return honest(*how)

    monkeypatch.setattr(parquet.Engine, "survey", moving)
    found = refusal(declare([WARD], "?.parquet"), tmp_path)
    assert found.detail == files.MOVED or "is damaged" in found.detail
    assert done


def test_identity_is_of_names_sizes_and_contents(tmp_path: Path) -> None:
    """Would catch one that tells of less: renamed, another byte, another file beside."""
    write(tmp_path / "a.parquet", {"ward": [0, 1]})
    whole = (tmp_path / "a.parquet").read_bytes()
    told = [["a.parquet", len(whole), hashlib.sha256(whole).hexdigest()]]
    found = counted(declare([WARD], "*.parquet"), tmp_path).identity
    known = json.dumps(told).encode()
    assert found == (len(known), hashlib.sha256(known).digest())
    shutil.copy(tmp_path / "a.parquet", tmp_path / "b.parquet")
    more = counted(declare([WARD], "*.parquet"), tmp_path).identity
    assert len({found, more, counted(declare([WARD], "b.parquet"), tmp_path).identity}) == 3


# ------------------------------------------------------------------------------- processes and their bounds


def damaged(folder: Path, damage: Callable[[bytearray], object]) -> Path:
    path = write(folder / "x.parquet", {"a": ["zebra-quux"] * 999, "ward": list(range(3)) * 333}, compression="none")
    content = bytearray(path.read_bytes())
    damage(content)
    path.write_bytes(content)
    return path


def invalid(content: bytearray) -> None:
    at = content.index(b"zebra-quux")
    content[at] = 0xFF


#: Of some the engine finds nothing, and reads text that is none of the declared.
DAMAGES: dict[str, Callable[[bytearray], object]] = {
    "text that is no UTF-8": invalid,
    "cut": lambda content: content.__delitem__(slice(-40, None)),
    "no magic": lambda content: content.__setitem__(slice(0, 4), b"zebr"),
    "empty": lambda content: content.clear(),
    "its footer": lambda content: content.__setitem__(slice(-60, -20), b"\x77" * 40),
    "text": lambda content: content.__setitem__(slice(None), b"ward\nzebra-quux\n"),
}
SOUND = ("no magic", "its footer")


@pytest.mark.parametrize("what", DAMAGES)
def test_no_text_of_the_engine_is_told(
    tmp_path: Path, what: str, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Its errors quote values and paths. Would catch one in a refusal, a log line, or on standard error."""
    damaged(tmp_path, DAMAGES[what])
    spec = table(declare([{"name": "a", "values": ["x", "zebra"]}], "*.parquet"))
    with pytest.raises(InvalidDataset) as found:
        ProcessReaders(patience(60)).count_source(spec, [tmp_path], memory_limit=MEMORY)
    expected = "file 1 of 1 of the source, by name, is no Parquet file or is damaged"
    assert ("values are outside the declared domain" if what in SOUND else expected) in found.value.detail
    told = found.value.detail + repr(found.value.extra) + "".join(capfd.readouterr()) + caplog.text
    assert found.value.__cause__ is None
    for private in ("quux", str(tmp_path), "x.parquet", "fd/"):
        assert private not in told


def test_values_outside_are_counted_and_not_told(tmp_path: Path) -> None:
    write(tmp_path / "x.parquet", {"a": ["zebra-quux", "x"], "ward": [77_777_777, None]})
    error = refusal(declare([{"name": "a", "values": ["x"]}, WARD], "*.parquet"), tmp_path)
    assert error.extra == {"outside": {"a": 1, "ward": 2}}
    assert "zebra" not in error.detail
    assert "77" not in error.detail


def test_what_comes_back_is_whole_numbers_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch an engine that is believed whatever it says: floats, gaps, other columns, places beyond the table."""
    write(tmp_path / "x.parquet", {"ward": [0, 1, 1]})
    honest = compiled._looked_up
    for wrong in ("1.5", "NULL", "'zebra'", "DATE '2020-01-01'", "CAST(1 AS HUGEINT)"):
        monkeypatch.setattr(compiled, "_looked_up", lambda *how, wrong=wrong: f"({wrong})")
        error = refusal(declare([WARD], "*.parquet"), tmp_path)
        assert "is damaged" in error.detail
    monkeypatch.setattr(compiled, "_looked_up", lambda *how: f"({honest(*how)} + 2)")
    assert counted(declare([WARD], "*.parquet"), tmp_path).data.array.tolist() == [0, 0, 1]


def test_the_engine_opens_nothing_else(tmp_path: Path) -> None:
    """By any text of a query: no other file, no network, no extension, no file written, no setting changed."""
    import duckdb

    path = str(write(tmp_path / "x.parquet", {"ward": [0]}))
    other = write(tmp_path / "y.parquet", {"ward": [0]})
    with parquet.Engine(table(declare([WARD], "x")), [path], MEMORY) as engine:
        for text in (
            f"SELECT * FROM read_parquet('{other}')",
            f"SELECT * FROM read_text('{other}')",
            "SELECT * FROM glob('/etc/*')",
            "SELECT * FROM read_csv('http://127.0.0.1:9/x')",
            "INSTALL httpfs",
            "LOAD httpfs",
            f"COPY (SELECT 1) TO '{tmp_path / 'z.csv'}'",
            f"ATTACH '{tmp_path / 'z.db'}'",
            "SET enable_external_access = true",
            "SET threads = 64",
            "SET memory_limit = '64GB'",
            f"SET temp_directory = '{tmp_path}'",
        ):
            with pytest.raises(duckdb.Error):
                engine._connection.execute(text).fetchall()
        settings = dict(engine._connection.execute("SELECT name, value FROM duckdb_settings()").fetchall())
    assert settings["temp_directory"] == ""
    assert int(settings["threads"]) == parquet.THREADS
    assert sorted(os.listdir(tmp_path)) == ["x.parquet", "y.parquet"]


def test_a_process_counts_what_is_counted_here(tmp_path: Path) -> None:
    """Numbers, report and identity pass unchanged, and refusals with what they count."""
    write(tmp_path / "x.parquet", {"ward": [0, 2, 2], "age": [5.0, 90.0, None]})
    declared = declare([WARD, {**AGE, "outside": "clamp", "missing": True}], "*.parquet")
    here = counted(declared, tmp_path)
    there = ProcessReaders(patience(60)).count_source(table(declared), [tmp_path], memory_limit=MEMORY)
    assert (there.data.array == here.data.array).all()
    assert there.data.array.dtype == here.data.array.dtype
    assert (there.data.mass, there.identity, there.report.view()) == (here.data.mass, here.identity, here.report.view())
    declared = declare([{"name": "ward", "size": 1}], "*.parquet")
    with pytest.raises(InvalidDataset) as refused:
        ProcessReaders(patience(60)).count_source(table(declared), [tmp_path], memory_limit=MEMORY)
    assert (refused.value.detail, refused.value.extra) == (
        (error := refusal(declared, tmp_path)).detail,
        error.extra,
    )


def at_work() -> list[psutil.Process]:
    """Processes that count: they have their limits."""
    nursery = reader_process._NURSERY._process
    found = []
    for child in [] if nursery is None else psutil.Process(nursery.pid).children():
        with contextlib.suppress(psutil.NoSuchProcess):
            found += [child] if child.rlimit(psutil.RLIMIT_FSIZE)[0] > 0 else []
    return found


@pytest.fixture(scope="module")
def long_count(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that are counted for seconds."""
    folder = tmp_path_factory.mktemp("long")
    write(folder / "x.parquet", {"ward": np.zeros(24 << 20, np.int8)})
    return folder


def counting(folder: Path, seconds: float) -> tuple[threading.Thread, list[Any]]:
    found: list[Any] = []
    edges = [k / 16 for k in range(2049)]
    spec = table(declare([{"name": "ward", "edges": edges}], "*.parquet"))

    def work() -> None:
        try:
            found.append(ProcessReaders(seconds).count_source(spec, [folder], memory_limit=MEMORY))
        except InvalidDataset as error:
            found.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    return thread, found


def test_an_engine_that_is_killed_refuses_the_source_alone(long_count: Path) -> None:
    """And the next is counted."""
    deadline = time.monotonic() + patience(30)
    while at_work():  # of the test before, which may be about to end
        assert time.monotonic() < deadline
        time.sleep(0.01)
    thread, found = counting(long_count, patience(60))
    while not (workers := at_work()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    workers[0].kill()
    thread.join(30)
    assert found[0].detail == reader_process.COUNTING.ended
    write(long_count / "sub" / "y.parquet", {"ward": [1]})
    spec = table(declare([WARD], "sub/*"))
    assert ProcessReaders(patience(60)).count_source(spec, [long_count], memory_limit=MEMORY).data.mass == 1


def test_counting_ends_at_its_time(long_count: Path) -> None:
    began = time.monotonic()
    thread, found = counting(long_count, 0.2)
    thread.join(30)
    assert "takes longer than the 0.2 s" in found[0].detail
    assert time.monotonic() - began < patience(0.2) + reader_process._GRACE


@pytest.mark.parametrize("wrong", ["shape", "type", "negative", "sum", "report"])
def test_what_a_process_says_is_held_against_the_declaration(tmp_path: Path, wrong: str) -> None:
    """Would catch counts of another table, or none, that are registered because a process says so."""
    declared = {**declare([WARD], "x.parquet"), "capacity": 10**6}
    array: Any = np.array([1, 2, 0], np.int64 if wrong == "type" else np.int32)
    report = Report([], read=3, kept=3 + (wrong == "report"))
    if wrong == "shape":
        array = array.reshape(1, 3)
    if wrong == "negative":
        array[:] = [4, -1, 0]
    told = parquet.CountedSource(DenseData(array, 4 if wrong == "sum" else 3), report, b"x" * 32)
    lying: Any = SimpleNamespace(count_source=lambda *how, **more: told)
    with pytest.raises(Unavailable):
        Sources({"parquet": ParquetFolders(lying, (), MEMORY)}).register(table(declared))


def test_many_categories_in_little_memory(tmp_path: Path) -> None:
    """The engine has them all before it looks at a file: refused, and no fault of the server."""
    write(tmp_path / "x.parquet", {"a": ["0"]})
    words = [f"{k}{'x' * 90}" for k in range(400_000)]
    spec = table(declare([{"name": "a", "values": words}], "*.parquet"))
    with pytest.raises(InvalidDataset) as found:
        ProcessReaders(patience(60)).count_source(spec, [tmp_path], memory_limit=16 << 20)
    assert "CURATOR_MEMORY_LIMIT" in found.value.detail


def test_memory_is_bounded(tmp_path: Path) -> None:
    """As many cells as records: the engine's own table does not fit, and neither is anything written to a disk."""
    cells = 1 << 21
    write(tmp_path / "x.parquet", {"a": np.random.default_rng(1).permutation(cells)})
    spec = table(declare([{"name": "a", "size": cells}], "*.parquet"))
    with pytest.raises(InvalidDataset) as found:
        ProcessReaders(patience(60)).count_source(spec, [tmp_path], memory_limit=48 << 20)
    assert "CURATOR_MEMORY_LIMIT" in found.value.detail
    whole = ProcessReaders(patience(60)).count_source(spec, [tmp_path], memory_limit=1 << 30)
    assert (whole.data.array == 1).all()
