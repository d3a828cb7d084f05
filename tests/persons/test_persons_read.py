"""Persons as the unit: which of their records a table keeps.

The oracle is the plain one: a dictionary of persons, each with a list of records that is sorted by HMACs of the
standard library, written down from the documented ranking. Neighbours are made by adding and removing persons, and the
multisets of kept records compared. That would catch records beyond the cap, a rank that hangs on other persons' records
or on where in the file a record stands, and attributes that are not declared but decide.
"""

from __future__ import annotations

import csv
import hashlib
import hmac
import io
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.declarations.errors import InvalidDataset
from app.declarations.spec import Persons, TableSpec, parse_spec
from app.storage.private_data import DenseData, RecordsData
from app.storage.readers import persons as persons_module
from app.storage.readers import read_private
from app.storage.readers import tables as tables_module
from app.storage.readers.persons import Capping

pytestmark = [pytest.mark.unit, pytest.mark.slow]

KEY = b"k" * 32
LENGTHS = (3, 300)
#: (id, position of a, position of b)
Record = tuple[str, int, int]
RECORDS = st.lists(
    st.tuples(st.sampled_from(["ann", "bob", "čar", "7"]), st.integers(0, 2), st.sampled_from([0, 1, 255, 299])),
    max_size=24,
)
SPEC: dict[str, Any] = {
    "name": "t",
    "kind": "table",
    "attributes": [{"name": "a", "size": 3}, {"name": "b", "size": 300}],
    "unit": {"column": "who", "max_records": 2},
    "budget": {"epsilon": 1.0, "delta": 1e-9},
}


def plain(records: list[Record], most: int, key: bytes = KEY) -> Counter[tuple[int, int]]:
    """The records that are kept: one byte for a, two for b, least first, the ordinal in eight, the id."""
    own: dict[str, list[tuple[bytes, tuple[int, int]]]] = {}
    seen: Counter[Record] = Counter()
    for record in records:
        name, a, b = record
        message = bytes([a, b % 256, b // 256]) + seen[record].to_bytes(8, "little") + name.encode()
        seen[record] += 1
        own.setdefault(name, []).append((hmac.new(key, message, hashlib.sha256).digest(), (a, b)))
    return Counter(cell for ranked in own.values() for _, cell in sorted(ranked)[:most])


def capped(records: list[Record], most: int, batch: int = 1000, key: bytes = KEY) -> Counter[tuple[int, int]]:
    """The same by the reader's part, told in batches."""
    capping = Capping(Persons(column="who", max_records=most), LENGTHS, key, 1 << 30)
    for start in range(0, len(records), batch):
        names, *codes = zip(*records[start : start + batch], strict=True)
        ids = capping.identify(pa.array(names))
        capping.add([*(np.array(code) for code in codes), ids])
    kept = list(capping.kept())
    found = Counter(zip(*(np.concatenate(c).tolist() for c in zip(*kept, strict=True)), strict=True)) if kept else []
    assert capping.beyond == len(records) - sum(dict(found).values())
    return Counter(found)


@given(RECORDS, st.integers(1, 4), st.integers(1, 9))
def test_the_first_of_each_person_are_kept(records: list[Record], most: int, batch: int) -> None:
    """Against the oracle, in batches of any size. Would catch ordinals that begin anew with a batch, ids that are not
    the same across batches, and another ranking than the documented one."""
    assert capped(records, most, batch) == plain(records, most)


@given(RECORDS, st.integers(1, 3), st.randoms(use_true_random=False))
def test_neighbours_differ_in_one_persons_records(records: list[Record], most: int, random: Any) -> None:
    """Each person in turn taken out, the rest in another order: what is kept of the rest is what was kept of it before,
    and the two differ in no more records than the cap. Would catch a rank by rows' positions and a cap on all."""
    whole = capped(records, most)
    for name in {name for name, _, _ in records}:
        rest = [record for record in records if record[0] != name]
        random.shuffle(rest)
        without = capped(rest, most)
        assert without <= whole
        assert (whole - without).total() == min(most, len(records) - len(rest))


@given(RECORDS, st.integers(1, 3))
def test_one_record_more_moves_one_at_most(records: list[Record], most: int) -> None:
    """Of a person who stays, a record more takes the place of one other. Would catch ranks of equal records that move
    with their number, and a hash of all that a person has."""
    whole = capped(records, most)
    for i in range(len(records)):
        without = capped(records[:i] + records[i + 1 :], most)
        assert (whole - without).total() <= 1
        assert (without - whole).total() <= 1


def test_a_rank_by_position_would_be_found() -> None:
    """The planted fault: positions are hashed in the place of contents, and a person is put before all others. The
    comparison of neighbours then finds many more records moved than the cap."""
    rng = np.random.default_rng(0)
    rest = [(f"p{i % 50}", int(rng.integers(3)), int(rng.integers(300))) for i in range(500)]

    def by_position(records: list[Record]) -> Counter[tuple[int, int]]:
        own: dict[str, list[tuple[bytes, tuple[int, int]]]] = {}
        for row, (name, a, b) in enumerate(records):
            own.setdefault(name, []).append((hmac.digest(KEY, row.to_bytes(8, "little"), "sha256"), (a, b)))
        return Counter(cell for ranked in own.values() for _, cell in sorted(ranked)[:2])

    def apart(kept: Any) -> int:
        one, other = kept(rest), kept([("new", 0, 0), *rest])
        return ((one - other) + (other - one)).total()

    assert apart(lambda records: capped(records, 2)) == 1
    assert apart(by_position) > 50


def test_each_record_is_as_likely_to_be_kept() -> None:
    """Over keys, of three records of which two are equal, one is kept: the first cell in two of three. Would catch
    equal records that are ranked as one, and a rank that favours small positions. 3,000 keys: a wrong alarm has a
    probability of some 1e-9."""
    records = [("ann", 1, 5), ("ann", 1, 5), ("ann", 0, 0)]
    first = sum(capped(records, 1, key=n.to_bytes(32, "big"))[(1, 5)] for n in range(3000))
    assert abs(first - 2000) < 6 * (3000 * 2 / 9) ** 0.5


# Through the reader.


def read(tmp_path: Path, text: str, suffix: str = ".csv", **more: Any) -> Any:
    path = tmp_path / f"data{suffix}"
    path.write_bytes(text.encode())
    return read_private(parse_spec({**SPEC, **more}), path.name, path, memory_limit=1 << 30).data


def written(records: list[Any]) -> str:
    out = io.StringIO()
    csv.writer(out).writerows([("b", "who", "other", "a"), *((b, who, "x", a) for who, a, b in records)])
    return out.getvalue()


def told(data: Any) -> Counter[tuple[int, ...]]:
    """The records of either layout."""
    if isinstance(data, DenseData):
        return Counter({tuple(map(int, c)): int(data.array[tuple(c)]) for c in np.argwhere(data.array)})
    assert isinstance(data, RecordsData)
    return Counter(zip(*(column.tolist() for column in data.columns), strict=True))


@pytest.fixture
def known_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables_module.secrets, "token_bytes", lambda length: KEY[:length])


RANDOM = np.random.default_rng(3)
MANY: list[Record] = [
    (f"p{RANDOM.integers(40)}", int(RANDOM.integers(3)), int(RANDOM.integers(300))) for _ in range(400)
]


@pytest.mark.usefixtures("known_key")
@pytest.mark.parametrize("most_counted", [1 << 24, 1])
def test_both_layouts_keep_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_counted: int) -> None:
    """Counted or kept as records, from CSV and from Parquet with ids as integers or a dictionary. Would catch columns
    that are mixed up with the id's, a file read in another order, and ids that differ by their type."""
    monkeypatch.setattr(tables_module, "MOST_COUNTED", most_counted)
    due = plain(MANY, 2)
    data = read(tmp_path, written(MANY))
    assert told(data) == due
    assert data.mass == due.total()
    numbered = [(str(int(name[1:])), a, b) for name, a, b in MANY]
    names, a, b = zip(*numbered, strict=True)
    for column in (pa.array(map(int, names)), pa.array(names).dictionary_encode(), pa.array(map(float, names))):
        pq.write_table(pa.table({"a": a, "who": column, "b": b}), tmp_path / "d.parquet", row_group_size=70)
        path = tmp_path / "d.parquet"
        read_back = read_private(parse_spec(SPEC), path.name, path, memory_limit=1 << 30)
        assert told(read_back.data) == plain(numbered, 2)
        assert read_back.report is not None
        view = read_back.report.view()
        assert (view["read"], view["kept"]) == (len(MANY), plain(numbered, 2).total())
        assert view["beyond_cap"] == view["read"] - view["kept"]


@pytest.mark.usefixtures("known_key")
def test_what_is_outside_does_not_count_towards_the_cap(tmp_path: Path) -> None:
    """Records outside of the domain are dropped before the others are ranked, and so are those without an id. Would
    catch a record that is kept nowhere and takes another's place."""
    bad: list[Any] = [("p1", 9, 0), ("p1", 9, 1), ("p2", 0, 999), ("", 1, 1), ("  ", 2, 2)]
    mixed = [record for pair in zip(MANY, bad * 80, strict=True) for record in pair]
    assert told(read(tmp_path, written(mixed), outside="drop")) == plain(MANY, 2)


def test_words_for_no_value_are_no_id(tmp_path: Path) -> None:
    """Would catch all that is said to be nobody's taken for one person's, and so capped as one."""
    records = [("NA", 0, 0), ("ann", 1, 1), ("NA", 0, 0), ("", 2, 2)]
    assert told(read(tmp_path, written(records), null_values=["NA"], outside="drop")) == Counter({(1, 1): 1})
    assert refused(tmp_path, written(records), null_values=["NA"]).extra["row"] == 1


@pytest.mark.usefixtures("known_key")
def test_ids_are_compared_by_their_text(tmp_path: Path) -> None:
    """White space around an id is left out, as around labels; nothing else is. Would catch ids read as numbers."""
    text = written([(" 7", 0, 0), ("7 ", 0, 0), ("7", 0, 0), ("07", 1, 0), ("7.0", 1, 0), ("Ann", 2, 0), ("ann", 2, 0)])
    assert told(read(tmp_path, text)) == Counter({(0, 0): 2, (1, 0): 2, (2, 0): 2})


def test_the_key_is_fresh(tmp_path: Path) -> None:
    """Two readings of one file keep different records. Would catch a key that is fixed, or made of the file."""
    records = [("ann", i % 3, i) for i in range(300)]
    first, second = (told(read(tmp_path, written(records))) for _ in range(2))
    assert first.total() == second.total() == 2
    assert first != second or first != told(read(tmp_path, written(records)))


@pytest.mark.usefixtures("known_key")
def test_the_capacity_bounds_what_is_kept(tmp_path: Path) -> None:
    """As it bounds the mass. Would catch a file refused for records that are not kept, and one that passes it."""
    kept = plain(MANY, 2).total()
    assert read(tmp_path, written(MANY), capacity=kept).mass == kept
    with pytest.raises(InvalidDataset, match="capacity"):
        read(tmp_path, written(MANY), capacity=kept - 1)


# Refusals: they name the place and no value.


def refused(tmp_path: Path, text: str, suffix: str = ".csv", **more: Any) -> InvalidDataset:
    with pytest.raises(InvalidDataset) as caught:
        read(tmp_path, text, suffix, **more)
    assert "secret" not in str(caught.value.detail)
    return caught.value


def test_a_record_of_nobody_is_refused(tmp_path: Path) -> None:
    """With its row and the column."""
    error = refused(tmp_path, written([("secret", 1, 1), ("secret", 2, 2), (" ", 1, 1)]))
    assert 'row 3, attribute "who"' in error.detail
    assert (error.extra["row"], error.extra["attribute"]) == (3, "who")


def test_a_file_without_the_column_is_refused(tmp_path: Path) -> None:
    assert 'no column "who"' in refused(tmp_path, "a,b\n1,1\n").detail


def test_counts_are_refused(tmp_path: Path) -> None:
    """They do not say whose records they are."""
    path = tmp_path / "counts.npy"
    np.save(path, np.ones(LENGTHS, np.int64))
    with pytest.raises(InvalidDataset, match="whose records"):
        read_private(parse_spec(SPEC), path.name, path, memory_limit=1 << 30)


def test_too_many_records_for_memory_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before they are ranked, by their number or by how long ids are. Would catch ids that are collected without
    bound."""
    path = tmp_path / "data.csv"
    for text in (written(MANY), written([(f"secret{i:04}" * 40, 1, 1) for i in range(300)])):
        path.write_text(text)
        with pytest.raises(InvalidDataset, match="memory limit") as caught:
            read_private(parse_spec(SPEC), path.name, path, memory_limit=60_000)
        assert "secret" not in caught.value.detail


@pytest.mark.parametrize(
    ("unit", "told_of"),
    [
        ({"column": "a", "max_records": 2}, "no attribute"),
        ({"column": "who", "max_records": 0}, "unit.max_records"),
        ({"column": "who", "max_records": 1001}, "unit.max_records"),
        ({"column": "who", "max_records": 1.5}, "unit.max_records"),
        ({"column": "who"}, "unit.max_records"),
        ({"column": " who", "max_records": 1}, "white space"),
        ({"column": "", "max_records": 1}, "unit.column"),
        ({"column": "who", "max_records": 1, "extra": 1}, "unit: unknown field 'extra'"),
        ("who", "unit"),
    ],
)
def test_what_is_no_unit_is_refused(unit: Any, told_of: str) -> None:
    """With what is wrong of it."""
    with pytest.raises(InvalidDataset) as caught:
        parse_spec({**SPEC, "unit": unit})
    assert told_of in caught.value.detail


def test_a_unit_stands_in_the_declaration() -> None:
    """1000 is the most; the declaration is read back as it was written."""
    spec = parse_spec({**SPEC, "unit": {"column": "who", "max_records": 1000}})
    assert isinstance(spec, TableSpec)
    assert spec.unit == Persons(column="who", max_records=1000)


def test_sorting_by_few_numbers_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many attributes do not fit one 64-bit label: it is renumbered on the way. Would catch labels that run over, so
    that unequal contents pass for equal, or equal ones do not."""
    rng = np.random.default_rng(5)
    contents = [np.concatenate([column, column]) for column in rng.integers(0, 2**20, (9, 500)).astype("<u4")]
    persons = np.concatenate([np.arange(500) % 7] * 2)
    labels = persons_module._equal(persons, 7, contents)
    assert np.array_equal(labels[:500], labels[500:])
    due = len({(int(p), *(int(c[i]) for c in contents)) for i, p in enumerate(persons)})
    assert len(np.unique(labels)) == due
