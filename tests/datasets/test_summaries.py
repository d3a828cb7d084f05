"""Summaries of files: what plain Python finds cell by cell, and drafts that every record of the file fits."""

from __future__ import annotations

import csv
import datetime
import io
import tempfile
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.declarations.drafts import MOST_CHARACTERS, MOST_LABELS, ColumnSummary, Layout, completed
from app.declarations.errors import InvalidDataset
from app.declarations.spec import parse_spec
from app.storage.readers import column_names, read_private, summarise
from app.storage.readers import summaries as summaries_of
from app.storage.readers.summaries import MOST_COLUMNS
from tests.kit.reading import ROOMY, SECRET

pytestmark = [pytest.mark.unit, pytest.mark.slow]

Summarise = Callable[..., dict[str, ColumnSummary]]


@pytest.fixture(scope="session")
def summaries() -> Summarise:
    """summaries(content, filename, **layout): of all columns of `content` uploaded as `filename`."""

    def call(content: bytes | str, filename: str = "data.csv", **layout: Any) -> dict[str, ColumnSummary]:
        with tempfile.NamedTemporaryFile(prefix="upload-") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            path = Path(file.name)
            names = column_names(filename, path, Layout(**layout), memory_limit=ROOMY)
            assert names is not None
            found = summarise(filename, path, Layout(**{**layout, "names": names}), memory_limit=ROOMY)
        assert [summary.name for summary in found] == [*names]
        return {summary.name: summary for summary in found}

    return call


def parquet(columns: Mapping[str, Any]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(dict(columns)), sink)
    return sink.getvalue()


def workbook(*rows: list[Any]) -> bytes:
    book, sink = openpyxl.Workbook(), io.BytesIO()
    for row in rows:
        book.active.append(row)
    book.save(sink)
    return sink.getvalue()


class TestText:
    @given(
        st.lists(st.decimals(-(10**6), 10**6, places=4).map(lambda d: f"{d.normalize():f}"), min_size=1, max_size=150)
    )
    def test_numbers(self, summaries: Summarise, cells: list[str]) -> None:
        """Catches an extreme lost between batches, decimals miscounted, and a number that is read as another. The judge
        reads the cells as decimals.
        """
        found = summaries("\n".join(["x,y", *(f"{cell},1" for cell in cells)]))["x"]
        values = [Decimal(cell) for cell in cells]
        assert found.numbers is not None
        assert found.numbers.least == float(min(values))
        assert found.numbers.largest == float(max(values))
        assert found.numbers.decimals == max(max(0, -value.normalize().as_tuple().exponent) for value in values)
        few = sorted({float(value) for value in values})
        assert found.numbers.few == (tuple(few) if len(few) <= MOST_LABELS else None)
        assert found.filled == len(cells)

    @given(st.lists(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=6), min_size=1))
    def test_labels(self, summaries: Summarise, cells: list[str]) -> None:
        """Catches texts that are cut, trimmed, lost or taken for empty cells."""
        sink = io.StringIO()
        writer = csv.writer(sink, lineterminator="\n", quoting=csv.QUOTE_ALL)
        writer.writerows([["x", "y"], *([cell, "1"] for cell in cells)])
        found = summaries(sink.getvalue())["x"]
        filled = [cell for cell in cells if cell.strip()]
        assert found.empty == (len(filled) < len(cells))
        assert found.filled == len(filled)
        if len(set(filled)) <= MOST_LABELS:
            assert found.labels == tuple(sorted(set(filled)))

    @pytest.mark.parametrize(
        "cells",
        [["1", "x"], ["1", "nan"], ["1", "inf"], ["1", "1,000"], ["01", "2"], ["1", "2020-01-01"], ["1", "0x10"]],
    )
    def test_what_is_not_all_numbers_is_text(self, summaries: Summarise, cells: list[str]) -> None:
        """Catches bounds drafted for a column whose cells would be refused, and codes that lose their zeros."""
        found = summaries("\n".join(["x\ty", *(f"{cell}\t1" for cell in cells)]), "data.tsv")["x"]
        assert found.numbers is None
        assert found.labels == tuple(sorted(cells))

    @pytest.mark.parametrize(
        ("cells", "dates"),
        [
            (["2020-02-29", "1999-12-31"], ("1999-12-31", "2020-02-29")),
            (["2020-02-29T10:00:00", "2020-03-01 23:59"], ("2020-02-29", "2020-03-01")),
            (["2020-02-30", "2020-01-01"], None),
            (["2020-01-01", "01.02.2020"], None),
            (["2020-01-01", "2020-01-01 and more"], None),
        ],
    )
    def test_dates(self, summaries: Summarise, cells: list[str], dates: tuple[str, str] | None) -> None:
        found = summaries("\n".join(["x,y", *(f"{cell},1" for cell in cells)]))["x"].dates
        assert found == (dates if dates is None else tuple(map(datetime.date.fromisoformat, dates)))

    @pytest.mark.parametrize(
        ("cells", "written"),
        [
            (["31.12.1999", "1.2.2020"], "days"),
            (["12/31/99", "1/2/20"], "days"),
            (["2020/12/31"], "days"),
            (["1.2.3"], None),
            (["1.2.2020", "tomorrow"], None),
            (["1.234,56", "7"], "thousands"),
            (["1'000", "12'345'678.9"], "thousands"),
            (["1.23.4", "7"], None),
            (["01067", "10115"], None),
            (["12%", "7.5 %"], "units"),
            (["€ 5.00", "7 EUR"], "units"),
            (["12%", "n/a"], None),
            (["USA", "GER"], None),
        ],
    )
    def test_numbers_and_dates_that_are_written_another_way(
        self, summaries: Summarise, cells: list[str], written: str | None
    ) -> None:
        """Catches an admin who is told of free text, and cells of which some alone are so."""
        found = summaries("\n".join(["x\ty", *(f"{cell}\t1" for cell in cells)]), "data.tsv")["x"]
        assert found.written == written
        assert found.numbers is None
        assert found.dates is None

    def test_what_comes_later_is_written_so_too(self) -> None:
        """Catches a column that is judged by the cells of one batch."""
        column = summaries_of._Column("x", ())
        column.add(pa.array(["31.12.1999"]), decimal_comma=False)
        assert column.summary().written == "days"
        column.add(pa.array(["tomorrow"]), decimal_comma=False)
        column.add(pa.array(["1.2.2020"]), decimal_comma=False)
        assert column.summary().written is None

    def test_many_labels_and_long_ones_are_forgotten(self, summaries: Summarise) -> None:
        """Catches memory that grows with the file."""
        many = summaries("\n".join(["x,y", *(f"v{n},{'z' * (MOST_CHARACTERS + 1)}" for n in range(MOST_LABELS + 1))]))
        assert many["x"].labels is None
        assert many["y"].labels is None

    def test_decimal_commas(self, summaries: Summarise) -> None:
        """Catches numbers of a file with semicolons that are texts in its draft, and numbers at its registration."""
        found = summaries("x;y\n3,5;a\n-1,25;b\n")
        assert found["x"].numbers is not None
        assert (found["x"].numbers.least, found["x"].numbers.largest, found["x"].numbers.decimals) == (-1.25, 3.5, 2)

    def test_what_is_declared_of_the_file_holds(self, summaries: Summarise) -> None:
        """Catches words for no value that are drafted as categories, and another encoding that is read as UTF-8."""
        found = summaries("x,y\nMünchen,1\nNA,2\n".encode("latin-1"), encoding="latin-1", null_values=("NA",))
        assert found["x"].labels == ("München",)
        assert found["x"].empty


class TestOtherFormats:
    def test_parquet(self, summaries: Summarise) -> None:
        """Catches a type that is read as another, and one that no reader takes in the draft."""
        day = datetime.date(2020, 5, 17)
        content = parquet(
            {
                "whole": pa.array([1, 2, None], pa.int64()),
                "real": pa.array([0.5, float("nan"), 2.25]),
                "truth": pa.array([True, True, None]),
                "word": pa.array(["a", "b", "a"]).dictionary_encode(),
                "day": pa.array([day, None, day]),
                "time": pa.array([1_589_756_400_000_000, None, None], pa.timestamp("us")),
                "list": pa.array([[1], [2], [3]]),
                "nothing": pa.array([None, None, None]),
                "bytes": pa.array([b"x", b"y", b"z"]),
            }
        )
        found = summaries(content, "data.parquet")
        assert found["whole"].numbers is not None
        assert (found["whole"].numbers.few, found["whole"].empty, found["whole"].filled) == ((1.0, 2.0), True, 2)
        assert found["real"].numbers is not None
        assert (found["real"].numbers.decimals, found["real"].empty) == (2, True)
        assert found["truth"].labels == ("true",)
        assert found["word"].labels == ("a", "b")
        assert found["day"].dates == found["time"].dates == (day, day)
        assert found["nothing"].filled == 0
        draft = completed({}, "x", [*found.values()])
        assert [item["name"] for item in draft.spec["attributes"]] == ["whole", "real", "truth", "word", "day", "time"]

    def test_excel(self, summaries: Summarise) -> None:
        content = workbook(["sex", "n", "day"], ["f", 1, datetime.date(2020, 1, 1)], ["m", 2.5, None])
        found = summaries(content, "data.xlsx")
        assert found["sex"].labels == ("f", "m")
        assert found["n"].numbers is not None
        assert found["n"].numbers.largest == 2.5
        assert found["day"].dates == (datetime.date(2020, 1, 1),) * 2


class TestRefusals:
    @pytest.mark.parametrize(
        ("content", "filename", "words"),
        [
            (f"{SECRET},{SECRET}\n1,2\n", "d.csv", "columns 1 and 2"),
            (
                ",".join(f"c{n}" for n in range(MOST_COLUMNS + 1)) + "\n" + "1," * MOST_COLUMNS + "1\n",
                "d.csv",
                "columns",
            ),
            (f"a,b\n1,{SECRET}\n{SECRET}\n", "d.csv", "row 2"),
            ("a,b\n", "d.csv", "no records"),
            ("", "d.csv", "empty"),
            (f"PAR1{SECRET}", "d.parquet", "Parquet"),
            (f"PK{SECRET}", "d.xlsx", "Excel"),
            (f"a\n{SECRET}\n", "d.doc", "must end in"),
            (f'a,b\n"{SECRET},1\n', "d.csv", "quote"),
        ],
    )
    def test_a_file_that_cannot_be_read(self, summaries: Summarise, content: str, filename: str, words: str) -> None:
        """Catches an error of another kind, and a value of the file in one."""
        with pytest.raises(InvalidDataset) as caught:
            summaries(content, filename)
        assert words in caught.value.detail
        assert SECRET not in repr(vars(caught.value))


@settings(max_examples=60)
@given(st.data())
def test_every_record_fits_the_draft_of_its_file(data: st.DataObject) -> None:
    """Registered as it was drafted, a file loses no record. Catches bounds that leave an extreme outside, categories
    that are spelled otherwise, and a column that the reader takes for another kind than the draft does.
    """
    kinds = data.draw(
        st.lists(
            st.sampled_from(
                [
                    st.integers(-(10**7), 10**7).map(str),
                    st.integers(0, 5).map(str),
                    st.decimals(-1000, 1000, places=3).map(str),
                    st.floats(-1e6, 1e6).map(repr),
                    st.sampled_from(["a", "b", "ü", "with space"]),
                    st.sampled_from(["True", "FALSE", "true"]),
                    st.dates().map(str),
                    st.sampled_from(["01", "02", "10"]),
                ]
            ),
            min_size=1,
            max_size=4,
        )
    )
    rows = data.draw(st.lists(st.tuples(*(kind | st.just("") for kind in kinds)), min_size=1, max_size=60))
    names = [f"c{n}" for n in range(len(kinds))]
    lines = [",".join([*names, "last"]), *(",".join([*row, "1"]) for row in rows)]
    with tempfile.NamedTemporaryFile(prefix="upload-") as file:
        file.write("\n".join(lines).encode())
        file.flush()
        path = Path(file.name)
        found = summarise("d.csv", path, Layout((*names, "last")), memory_limit=ROOMY)
        read = read_private(parse_spec(completed({}, "d", found).spec), "d.csv", path, memory_limit=ROOMY)
    assert read.report is not None
    assert (read.report.kept, read.report.dropped, read.report.clamped) == (len(rows), 0, 0)
