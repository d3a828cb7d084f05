"""Where the values of a file stand on the axes of their attributes, in every spelling that people use.

The oracles are Python's own: decimals by hand, the calendar of `datetime`, dictionaries. Tables are read whole, as
records are uploaded.
"""

from __future__ import annotations

import calendar
import datetime
import io
import tempfile
from decimal import ROUND_FLOOR, Decimal
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.declarations.attributes import Attribute
from app.declarations.errors import InvalidDataset
from app.declarations.spec import TableSpec, parse_spec
from app.storage.readers import Read, read_private
from app.storage.readers.coders import coder_of

pytestmark = pytest.mark.unit

JSON = dict[str, Any]
BUDGET = {"epsilon": 1, "delta": 1e-9}


def spec_of(*attributes: JSON, **more: Any) -> JSON:
    return {"kind": "table", "attributes": list(attributes), **more}


def places(attribute: JSON, column: Any, **more: Any) -> list[int]:
    """The place of every cell of a column, -1 where it has none."""
    spec = parse_spec({"name": "x", "budget": BUDGET, **spec_of(attribute, **more)})
    assert isinstance(spec, TableSpec)
    return list(coder_of(spec.attributes[0], spec)(column).places.tolist())


def texts(*cells: str | None) -> Any:
    return pa.array(cells, pa.string())


def read_whole(spec: JSON, filename: str, content: bytes) -> Read:
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        parsed = parse_spec({"name": "x", "budget": BUDGET, **spec})
        return read_private(parsed, filename, Path(file.name), memory_limit=1 << 28)


def parquet(**columns: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()


class TestNumbers:
    """Numbers on a grid: the nearest one, halves up, both bounds are values."""

    @given(st.data())
    def test_against_decimals(self, d: st.DataObject) -> None:
        """Any grid of up to three decimals and numbers of up to four, against exact decimals. Catches halves that are
        none in binary, a bound that is lost, a number that is rounded into the bounds from outside."""
        grid = Decimal(d.draw(st.integers(1, 500))).scaleb(-d.draw(st.integers(0, 3)))
        low = Decimal(d.draw(st.integers(-(10**6), 10**6))).scaleb(-d.draw(st.integers(0, 3)))
        high = low + grid * d.draw(st.integers(1, 2000))
        near = st.integers(int(low * 10**4) - 3, int(high * 10**4) + 3)
        halves = st.integers(-1, 2 * int((high - low) / grid) + 1).map(lambda k: int((low + grid * k / 2) * 10**4))
        cells = [Decimal(n).scaleb(-4) for n in d.draw(st.lists(near | halves, min_size=1, max_size=20))]
        attribute = {"name": "v", "lower": float(low), "upper": float(high), "grid": float(grid)}
        expected = [
            int(((v - low) / grid + Decimal("0.5")).to_integral_value(ROUND_FLOOR)) if low <= v <= high else -1
            for v in cells
        ]
        assert places(attribute, texts(*map(str, cells))) == expected
        assert places(attribute, pa.array([float(v) for v in cells])) == expected
        clamped = [min(max(v, low), high) for v in cells]
        inside = [int(((v - low) / grid + Decimal("0.5")).to_integral_value(ROUND_FLOOR)) for v in clamped]
        assert places({**attribute, "outside": "clamp"}, texts(*map(str, cells))) == inside

    @pytest.mark.parametrize(
        ("written", "place"), [("0.05", 1), ("0.15", 2), ("0.25", 3), ("0.35", 4), ("0.0499999999", 0), ("1e-1", 1)]
    )
    def test_halves_that_binary_does_not_have(self, written: str, place: int) -> None:
        assert places({"name": "v", "lower": 0, "upper": 1, "grid": 0.1}, texts(written)) == [place]

    def test_large_numbers_on_a_fine_grid(self) -> None:
        """At the limits of what may be declared. Catches an error of rounding that is larger than a place."""
        low = 2**30
        attribute = {"name": "v", "lower": low, "upper": low + 1, "grid": 2.0**-19}
        numbers = [low + k * 2.0**-19 for k in range(0, 2**19 + 1, 4099)]
        assert places(attribute, pa.array(numbers)) == list(range(0, 2**19 + 1, 4099))
        for beside, step in ((2.0**-21, 1), (-(2.0**-21), 0)):
            halves = [number + 2.0**-20 + beside for number in numbers]
            assert places(attribute, pa.array(halves)) == [k + step for k in range(0, 2**19 + 1, 4099)]


class TestOutside:
    NUMBER: ClassVar[JSON] = {"name": "v", "lower": 0, "upper": 10, "grid": 1}
    BINS: ClassVar[JSON] = {"name": "v", "lower": 0, "upper": 10, "bins": 5}

    @pytest.mark.parametrize("attribute", [NUMBER, BINS])
    @pytest.mark.parametrize("cell", ["", "  ", "x", "nan", "inf", "-inf", "1e999", "1,234", "1 234", "12%", None])
    def test_what_is_no_number_is_not_moved_to_a_bound(self, attribute: JSON, cell: str | None) -> None:
        """Catches an empty cell that becomes a zero."""
        column = texts(cell, "3")
        assert places({**attribute, "outside": "clamp"}, column)[0] == -1
        assert places({**attribute, "outside": "clamp"}, column.dictionary_encode())[0] == -1

    def test_typed_gaps_are_not_moved_either(self) -> None:
        for attribute in (self.NUMBER, self.BINS):
            clamping = {**attribute, "outside": "clamp"}
            assert places(clamping, pa.array([None, np.nan, np.inf, -np.inf, 99.0], pa.float64()))[:4] == [-1] * 4
            assert places(clamping, pa.nulls(2)) == [-1, -1]

    @pytest.mark.parametrize(("attribute", "last"), [(NUMBER, 10), (BINS, 4)])
    def test_beyond_a_bound(self, attribute: JSON, last: int) -> None:
        cells = texts("-0.001", "0", "10", "10.001", "-1e300", "1e300")
        assert places({**attribute, "outside": "clamp"}, cells) == [0, 0, last, last, 0, last]
        assert places(attribute, cells) == [-1, 0, last, -1, -1, -1]

    def test_dates(self) -> None:
        attribute = {"name": "d", "dates": ["2020-02-10", "2020-02-12"], "by": "day"}
        cells = texts("2020-02-09", "2020-02-10", "2020-02-13", "0001-01-01", "9999-12-31", "", "soon")
        assert places(attribute, cells) == [-1, 0, -1, -1, -1, -1, -1]
        assert places({**attribute, "outside": "clamp"}, cells) == [0, 0, 2, 0, 2, -1, -1]

    @pytest.mark.parametrize("table", ["refuse", "drop"])
    @pytest.mark.parametrize("own", [None, "refuse", "drop", "clamp"])
    def test_the_attribute_before_the_table(self, table: str, own: str | None) -> None:
        """A number that is too large, then text that is none. Catches a setting of the other one, and clamped text."""
        attribute = {**self.NUMBER, **({} if own is None else {"outside": own})}
        spec = spec_of(attribute, outside=table)
        large, word = b"v\n3\n11\n", b"v\n3\neleven\n"
        decided = table if own is None else own
        for content, outcome in ((large, decided), (word, table if own == "clamp" else decided)):
            if outcome == "refuse":
                with pytest.raises(InvalidDataset) as caught:
                    read_whole(spec, "t.csv", content)
                assert (caught.value.extra["row"], caught.value.extra["attribute"]) == (2, "v")
                continue
            read = read_whole(spec, "t.csv", content)
            expected = np.zeros(11, int)
            expected[3] = 1
            expected[10] = outcome == "clamp"
            assert read.data.arrays()["array"].tolist() == expected.tolist()

    def test_a_capacity_is_of_kept_records(self) -> None:
        """A Parquet file of more rows than the capacity of which enough are dropped, by the table or an attribute."""
        content = parquet(v=list(range(20)))
        for spec in (
            spec_of(self.NUMBER, outside="drop", capacity=11),
            spec_of({**self.NUMBER, "outside": "drop"}, capacity=11),
        ):
            assert read_whole(spec, "t.parquet", content).data.mass == 11
        with pytest.raises(InvalidDataset, match="more rows than the declared capacity of 11"):
            read_whole(spec_of({**self.NUMBER, "outside": "clamp"}, capacity=11), "t.parquet", content)


class TestDates:
    @given(st.data())
    def test_against_the_calendar(self, d: st.DataObject) -> None:
        """Days, months and years, from either end of the calendar to the other, as text, date and time of a file."""
        first = d.draw(st.dates())
        last = min(first.toordinal() + d.draw(st.integers(0, 2000)), datetime.date.max.toordinal())
        by = d.draw(st.sampled_from(["day", "month", "year"]))
        attribute = {"name": "d", "dates": [first.isoformat(), datetime.date.fromordinal(last).isoformat()], "by": by}
        near = st.integers(max(1, first.toordinal() - 40), min(last + 40, datetime.date.max.toordinal()))
        days = [datetime.date.fromordinal(n) for n in d.draw(st.lists(near, min_size=1, max_size=12))]
        steps = {"day": lambda x: x.toordinal(), "month": lambda x: 12 * x.year + x.month, "year": lambda x: x.year}[by]
        low, high = steps(first), steps(datetime.date.fromordinal(last))
        expected = [steps(x) - low if low <= steps(x) <= high else -1 for x in days]
        iso = [x.isoformat() for x in days]
        assert places(attribute, texts(*iso)) == expected
        assert places(attribute, texts(*(f" {text}T23:59:59.999Z " for text in iso))) == expected
        assert places(attribute, texts(*(f"{text} 00:00" for text in iso)).dictionary_encode()) == expected
        for kind in (pa.date32(), pa.date64()):
            assert places(attribute, pa.array(days, kind)) == expected
        evenings = [datetime.datetime.combine(x, datetime.time(23, 59, 59)) for x in days]
        for unit in ("s", "ms", "us"):
            assert places(attribute, pa.array(evenings, pa.timestamp(unit))) == expected

    def test_the_day_where_it_was_written(self) -> None:
        """Midnight in Tokyo is the day before in Greenwich. Catches dates of another place."""
        attribute = {"name": "d", "dates": ["2020-01-01", "2020-01-31"], "by": "day"}
        at = datetime.datetime(2020, 1, 5, tzinfo=datetime.timezone(datetime.timedelta(hours=9)))
        assert places(attribute, pa.array([at, None], pa.timestamp("us", tz="+09:00"))) == [4, -1]

    @pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
    @pytest.mark.parametrize("zone", [None, "UTC"])
    def test_times_that_no_calendar_has(self, unit: str, zone: str | None) -> None:
        """Catches a day that wraps around into the declared ones."""
        attribute = {"name": "d", "dates": ["1900-01-01", "2100-12-31"], "by": "year", "outside": "clamp"}
        found = places(attribute, pa.array([2**62, -(2**62), 0], pa.timestamp(unit, tz=zone)))
        assert found == [200, 0, 70]

    @pytest.mark.parametrize(
        "cell", ["2020-13-01", "2020-02-30", "20200201", "01.02.2020", "2020/02/01", "2020-2-1", "2020-02-01x",
                 "2020-02-01 soon", "2020-02-01T", "2020-02", "2020", "٢٠٢٠-٠٢-٠١"],
    )  # fmt: skip
    def test_what_is_no_date(self, cell: str) -> None:
        assert places({"name": "d", "dates": ["2020-01-01", "2020-12-31"], "by": "day"}, texts(cell)) == [-1]

    def test_shorter_texts_of_longer_periods(self) -> None:
        months = {"name": "d", "dates": ["2020-01-01", "2021-12-31"], "by": "month"}
        assert places(months, texts("2020-03", "2021-03-31", "2021")) == [2, 14, -1]
        years = {**months, "by": "year"}
        assert places(years, texts("2020-03", "2021-03-31", "2021")) == [0, 1, 1]
        assert places(years, pa.array([2021, 2020, 2022])) == [1, 0, -1]

    @pytest.mark.parametrize("column", [pa.array([1], pa.time32("s")), pa.array([1], pa.duration("s"))])
    def test_times_of_day_are_refused(self, column: Any) -> None:
        with pytest.raises(InvalidDataset, match="a column of dates"):
            places({"name": "d", "dates": ["2020-01-01", "2020-12-31"], "by": "day"}, column)

    def test_every_day_of_a_leap_year(self) -> None:
        days = [datetime.date(2024, m, n + 1) for m in range(1, 13) for n in range(calendar.monthrange(2024, m)[1])]
        attribute = {"name": "d", "dates": ["2024-01-01", "2024-12-31"], "by": "day"}
        assert places(attribute, texts(*(day.isoformat() for day in days))) == list(range(366))


class TestTruth:
    TRUE = ("true", "True", "TRUE", " true ")
    FALSE = ("false", "False", "FALSE", "false ")

    @pytest.mark.parametrize(
        "attribute",
        [{"size": 2}, {"values": [0, 1]}, {"values": ["false", "true"]}, {"values": ["False", "TRUE"]}],
    )
    def test_in_any_case(self, attribute: JSON) -> None:
        assert places({"name": "v", **attribute}, texts(*self.FALSE, *self.TRUE)) == [0] * 4 + [1] * 4
        assert places({"name": "v", **attribute}, pa.array([True, False, None])) == [1, 0, -1]
        assert places({"name": "v", "missing": True, **attribute}, pa.array([True, False, None])) == [1, 0, 2]

    def test_in_the_order_declared(self) -> None:
        assert places({"name": "v", "values": ["true", "false"]}, texts("TRUE", "FALSE")) == [0, 1]
        assert places({"name": "v", "values": [1, 0]}, texts("TRUE", "FALSE", "1", "0")) == [0, 1, 0, 1]

    @pytest.mark.parametrize(
        "attribute",
        [{"size": 3}, {"values": ["no", "yes"]}, {"values": ["false", "true", "other"]}, {"values": [1, 2]}],
    )
    def test_nowhere_else(self, attribute: JSON) -> None:
        """Catches a truth that is read into codes and words that mean something else."""
        assert places({"name": "v", **attribute}, texts("TRUE", "True")) == [-1, -1]

    def test_yes_and_no_are_words(self) -> None:
        assert places({"name": "v", "values": ["no", "yes"]}, texts("yes", "no", "Yes", "true")) == [1, 0, -1, -1]
        assert places({"name": "v", "size": 2}, texts("yes", "no")) == [-1, -1]


class TestIntegers:
    @pytest.mark.parametrize(
        "attribute", [{"size": 30}, {"values": list(range(30))}, {"values": [str(n) for n in range(30)]}]
    )
    def test_decimals_that_mean_one(self, attribute: JSON) -> None:
        assert (
            places({"name": "v", **attribute}, texts("21", "21.0", "21.", "21.00", "21.5", "x")) == [21] * 4 + [-1] * 2
        )
        assert places({"name": "v", **attribute}, pa.array([21, 7])) == [21, 7]
        assert places({"name": "v", **attribute}, pa.array([21.0, 7.5, None])) == [21, -1, -1]

    def test_words_stay_as_they_are(self) -> None:
        """Catches another word that is taken for a number: with zeros in front, or declared both ways."""
        assert places({"name": "v", "values": ["007", "7.0", "7"]}, texts("007", "7.0", "7", "07")) == [0, 1, 2, -1]
        assert places({"name": "v", "values": ["a", "b"]}, texts("a", "b", "a.0")) == [0, 1, -1]


class TestMissing:
    ATTRIBUTES: tuple[JSON, ...] = (
        {"name": "v", "size": 4},
        {"name": "v", "values": ["a", "b"]},
        {"name": "v", "values": [3, 5]},
        {"name": "v", "lower": 0, "upper": 8, "bins": 4},
        {"name": "v", "lower": 0, "upper": 8, "grid": 1},
        {"name": "v", "dates": ["2020-01-01", "2020-01-31"], "by": "day"},
    )

    @pytest.mark.parametrize("attribute", ATTRIBUTES)
    def test_an_empty_cell_is_the_last_place(self, attribute: JSON) -> None:
        column = texts("", "  ", "\t", None, "\u00a0", "NA", "null", "nan")
        last = Attribute(**attribute).places
        for shown in (column, column.dictionary_encode(), column.cast(pa.large_string())):
            assert places(attribute, shown) == [-1] * 8
            assert places({**attribute, "missing": True}, shown) == [last] * 5 + [-1] * 3
            assert places({**attribute, "missing": True}, shown, null_values=["NA", "null"]) == [last] * 7 + [-1]
        assert places({**attribute, "missing": True}, pa.nulls(2)) == [last, last]

    def test_not_a_number_is_a_gap_of_a_typed_column(self) -> None:
        for attribute in self.ATTRIBUTES[:5]:
            last = Attribute(**attribute).places
            assert places({**attribute, "missing": True}, pa.array([np.nan, None, 1e9], pa.float64())) == [
                last,
                last,
                -1,
            ]
            assert places({**attribute, "missing": True}, pa.array([2.5]))[0] != last

    def test_a_word_for_nothing_is_never_a_value(self) -> None:
        """-9 lies on the grid, and is declared to mean that there is none; in every type of column alike."""
        attribute = {"name": "v", "lower": -10, "upper": 10, "grid": 1, "missing": True}
        for column in (texts("-9", "-8", " -9 "), pa.array([-9, -8, -9]), pa.array([-9.0, -8.0, -9.0])):
            assert places(attribute, column, null_values=["-9"]) == [21, 2, 21]
        assert places({**attribute, "missing": None}, texts("-9", "-8"), null_values=["-9"]) == [-1, 2]

    def test_white_space_may_be_declared(self) -> None:
        assert places({"name": "v", "values": ["a", " "], "missing": True}, texts("a", " ", "")) == [0, 1, 2]
