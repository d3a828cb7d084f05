"""What is written alike is counted alike, whichever file it is in. The oracle is the same text as CSV, or a decimal.

They would catch a number that is rounded otherwise in one kind of file, a date that wraps around into another one, and
a word that is a number where it is none.
"""

from __future__ import annotations

import csv
import re
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.declarations.errors import InvalidDataset
from app.storage.private_data import DenseData
from app.storage.readers import columns, read_private
from app.storage.readers.columns import numbers, texts
from app.storage.sources import parquet
from tests.datasets.source_files import JSON, declare
from tests.datasets.test_sources import MEMORY, table

pytestmark = pytest.mark.unit

YEARS: JSON = {"dates": ["1900-01-01", "2025-12-31"], "by": "year"}


def cells(attribute: JSON, path: Path, **more: Any) -> list[int]:
    """How many records of an upload each value has."""
    found = read_private(table(declare([{"name": "a", **attribute}], **more)), path.name, path, memory_limit=MEMORY)
    assert isinstance(found.data, DenseData)
    return found.data.array.tolist()


def as_text(folder: Path, words: list[str]) -> Path:
    path = folder / "t.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["a"], *([word] for word in words)])
    return path


def as_parquet(folder: Path, column: Any, **how: Any) -> Path:
    path = folder / "t.parquet"
    pq.write_table(pa.table({"a": column}), path, **how)
    return path


decimals = st.integers(0, 18).flatmap(
    lambda scale: st.lists(st.integers(-(10**18) + 1, 10**18 - 1), min_size=1, max_size=8).map(
        lambda values: (scale, [Decimal(value).scaleb(-scale) for value in values])
    )
)


@given(drawn=decimals, kind=st.sampled_from([pa.decimal64, pa.decimal128, pa.decimal256]))
def test_decimals_are_the_nearest_floats(drawn: Any, kind: Any) -> None:
    scale, values = drawn
    column = pa.array(values, kind(18, scale))
    assert numbers(column, "a").tolist() == [float(Fraction(value)) for value in values]


@given(drawn=decimals)
def test_decimals_have_one_text_each(drawn: Any) -> None:
    """Would catch two ids that are one, and one that is two."""
    scale, values = drawn
    told = texts(pa.array(values, pa.decimal128(18, scale)), "a").to_pylist()
    assert [Decimal(text) for text in told] == values
    assert not any(re.search(r"\.[0-9]*0(E|$)", text) for text in told)
    assert texts(pa.array([Decimal(12300)], pa.decimal128(5, -2)), "a").to_pylist() == ["12300"]


@pytest.mark.parametrize(
    ("attribute", "words", "digits"),
    [
        ({"lower": 0, "upper": 1, "bins": 10}, ["0.1", "0.2", "0.3"], 6),
        ({"lower": 0, "upper": 2.3, "bins": 2}, ["2.3"], 2),
        ({"lower": 0.1, "upper": 1.1, "bins": 5}, ["0.1", "1.1"], 7),
        ({"lower": 0, "upper": 1, "grid": 0.1}, [f"0.{number}5" for number in range(10)], 6),
        ({"values": ["1.5", "2"]}, ["1.5", "2"], 3),
    ],
)
def test_decimals_fall_where_their_text_does(tmp_path: Path, attribute: JSON, words: list[str], digits: int) -> None:
    same = cells(attribute, as_text(tmp_path, words))
    column = pa.array([Decimal(word) for word in words], pa.decimal128(18, digits))
    assert cells(attribute, as_parquet(tmp_path, column)) == same
    assert cells(attribute, as_parquet(tmp_path, pa.array([float(word) for word in words]))) == same


@pytest.mark.parametrize("year", [1, 1600, 1676, 2263, 2500, 9999])
def test_old_timestamps_do_not_wrap_around(tmp_path: Path, year: int) -> None:
    """Days of INT96 in nanoseconds would: 9999 is another name of 1816 then."""
    column = pa.array([f"{year:04}-06-15T12:00:00"]).cast(pa.timestamp("us"))
    old = as_parquet(tmp_path, column, use_deprecated_int96_timestamps=True)
    with pytest.raises(InvalidDataset, match="outside the declared domain"):
        cells(YEARS, old)
    side = 0 if year < 1900 else -1
    assert cells({**YEARS, "outside": "clamp"}, old)[side] == 1
    prepared = table(declare([{"name": "a", **YEARS, "outside": "clamp"}], "t.parquet", prepare="vault"))
    kept = parquet.prepare_source(prepared, [tmp_path], memory_limit=MEMORY).data
    assert isinstance(kept, DenseData)
    assert kept.array.tolist()[side] == 1
    inside = pa.array(["1969-12-31T23:59:59.999999"]).cast(pa.timestamp("us"))
    assert cells(YEARS, as_parquet(tmp_path, inside, use_deprecated_int96_timestamps=True))[69] == 1


@pytest.mark.parametrize("kind", [pa.float64(), pa.decimal128(9, 3)])
def test_a_fraction_may_mean_that_there_is_none(tmp_path: Path, kind: Any) -> None:
    attribute = {"lower": -100, "upper": 100, "bins": 4, "missing": True}
    column = pa.array([Decimal("-99.9"), Decimal(5)]).cast(kind)
    assert cells(attribute, as_parquet(tmp_path, column), null_values=["-99.9"]) == [0, 0, 1, 0, 1]
    assert cells(attribute, as_text(tmp_path, ["-99.9", "5"]), null_values=["-99.9"]) == [0, 0, 1, 0, 1]


@pytest.mark.parametrize(
    "attribute",
    [{"size": 9}, {"values": [0, 1, 2]}, {"lower": 0, "upper": 3}, {"lower": 0, "upper": 3, "grid": 1}],
    ids=["codes", "integers", "bins", "numbers"],
)
def test_truth_is_a_number_of_two_alone(tmp_path: Path, attribute: JSON) -> None:
    column = pa.array([True, False])
    for path in (as_text(tmp_path, ["true", "false"]), as_parquet(tmp_path, column)):
        with pytest.raises(InvalidDataset, match="outside the declared domain"):
            cells(attribute, path)
        assert cells({"size": 2}, path) == [1, 1]


@pytest.mark.parametrize(
    "attribute",
    [
        {"values": [2**53]},
        {"lower": 2**53, "upper": 2**53 + 8},
        {"edges": [2**53, 2**53 + 2, 2**53 + 4]},
        {"lower": 2**53, "upper": 2**53 + 8, "bins": 4},
    ],
)
def test_what_numbers_do_not_tell_apart_is_not_declared(attribute: JSON) -> None:
    """Else 2^53 + 1 would be counted as 2^53."""
    with pytest.raises(InvalidDataset, match=r"2\^53|narrower than numbers can tell apart"):
        table(declare([{"name": "a", **attribute}]))


@pytest.mark.parametrize("day", ["2020-W05-3", "2020W05-3-", "2020-W01-1"])
def test_weeks_are_no_dates(tmp_path: Path, day: str) -> None:
    attribute = {"dates": ["2020-01-01", "2020-02-05"], "by": "month"}
    with pytest.raises(InvalidDataset, match="outside the declared domain"):
        cells(attribute, as_text(tmp_path, [day]))
    with pytest.raises(InvalidDataset, match="written as 2020-01-31"):
        table(declare([{"name": "a", "dates": [day, "2021-01-01"], "by": "month"}]))


def test_a_time_zone_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    column = pa.array([0], pa.int64()).cast(pa.timestamp("us", "Nowhere/Bogus"))
    with pytest.raises(InvalidDataset, match="time zone"):
        cells(YEARS, as_parquet(tmp_path, column))


@pytest.mark.parametrize("word", ["infinity", "10000-01-01", "12345-01-01 00:00:00", "-infinity", "0044-03-15 BC"])
def test_days_beyond_years_of_four_digits_are_clamped(tmp_path: Path, word: str) -> None:
    """As databases write them. Would catch one that is none, and is left out where it is to be moved to the bound."""
    found = cells({**YEARS, "outside": "clamp"}, as_text(tmp_path, [word]))
    assert found[0 if word.startswith("-") or word.endswith("BC") else -1] == 1
    with pytest.raises(InvalidDataset, match="outside the declared domain"):
        cells(YEARS, as_text(tmp_path, [word]))


@pytest.mark.parametrize("word", ["10000-13-01", "12020-99-99", "10000-01-32", "10000-00-01", "0044-13-15 BC"])
def test_what_is_no_day_is_not_clamped(tmp_path: Path, word: str) -> None:
    with pytest.raises(InvalidDataset, match="outside the declared domain"):
        cells({**YEARS, "outside": "clamp"}, as_text(tmp_path, [word]))


def test_white_space_belongs_to_words_and_not_to_numbers(tmp_path: Path) -> None:
    """Whatever the other categories are. Would catch a word that is trimmed since a number is declared beside it."""
    for values in (["a", "b"], ["a", "b", 7]):
        with pytest.raises(InvalidDataset, match="outside the declared domain"):
            cells({"values": values}, as_text(tmp_path, ["a "]))
    assert cells({"values": ["a", "b", 7]}, as_text(tmp_path, [" 7", "7.0 ", "b"])) == [0, 1, 2]


@pytest.mark.parametrize("number", [2.0**53, 1e16, -1e16, 2.0**62, 1e18, 2.0**63 - 1024])
def test_whole_numbers_have_one_text(number: float) -> None:
    """By which a person is known, be it a float or an integer. Would catch one who is two persons."""
    whole = pa.array([int(number)], pa.int64())
    assert texts(pa.array([number]), "x").to_pylist() == texts(whole, "x").to_pylist() == [str(int(number))]


@pytest.mark.parametrize("rows", [7, 60])
@pytest.mark.parametrize("encoding", ["DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"])
def test_text_that_is_told_by_the_text_before(
    tmp_path: Path, encoding: str, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As other writers encode it, in columns of their own, of which pyarrow makes no dictionary. Would catch such a
    file that is called damaged, rows that are told twice or never, and a repeated text that is written out."""
    monkeypatch.setattr(columns, "BATCH_ROWS", 16)
    monkeypatch.setattr(columns, "_WRITTEN_ROWS", 5)
    told = pa.table({"own": [f"x{k}" for k in range(rows)], "same": ["k"] * rows, "n": list(range(rows))})
    path = tmp_path / "t.parquet"
    how: Any = {"use_dictionary": ["same"], "column_encoding": {"own": encoding, "n": "PLAIN"}, "row_group_size": 20}
    pq.write_table(told, path, write_page_checksum=True, **how)
    batches = list(columns.parquet_batches(path, [0, 1, 2], max_rows=None, memory_limit=MEMORY))
    assert [row for batch in batches for row in zip(*(c.to_pylist() for c in batch.columns), strict=True)] == [
        tuple(row.values()) for row in told.to_pylist()
    ]
    assert [batch.first for batch in batches] == [1 + sum(map(len, batches[:k])) for k in range(len(batches))]
    assert all(pa.types.is_dictionary(batch.columns[1].type) for batch in batches)
    # Hurt in its midst it is still damaged.
    page = pq.ParquetFile(path).metadata.row_group(0).column(0)
    hurt = bytearray(path.read_bytes())
    hurt[page.data_page_offset + page.total_compressed_size - 1] ^= 0x40
    path.write_bytes(hurt)
    with pytest.raises(InvalidDataset, match="damaged"):
        list(columns.parquet_batches(path, [0, 1, 2], max_rows=None, memory_limit=MEMORY))


def test_a_refusal_names_the_file(tmp_path: Path) -> None:
    """Of several. Would catch a search through all files for the one without a column."""
    for name, column in (("1.parquet", "a"), ("2.parquet", "b")):
        pq.write_table(pa.table({column: [1, 0]}), tmp_path / name)
    spec = table(declare([{"name": "a", "size": 2}], "*.parquet", prepare="vault"))
    with pytest.raises(InvalidDataset, match=r'file 2 of 2, by name: the file has no column "a"'):
        parquet.prepare_source(spec, [tmp_path], memory_limit=MEMORY)


def test_a_first_column_without_a_name(tmp_path: Path) -> None:
    """As tools write the numbers of rows. Would catch a separator that is taken for a blank."""
    for mark in ",\t":
        path = tmp_path / "t.csv"
        path.write_text(f"\r\n \t\n{mark}a\n0{mark}1\n1{mark}0\n")
        assert cells({"size": 2}, path) == [1, 1]
