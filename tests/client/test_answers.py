"""Answers as numbers, as tables, as frames and as pictures, from replies as the service sends them."""

from __future__ import annotations

import copy
import csv
import io
import itertools
import json
import math
import pickle
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.http.marginal_tables import arrow_table
from curator_client.answers import Answer, Cell, Row, Table, parse_answer
from curator_client.errors import MissingExtra, ProtocolError
from curator_client.figures import MOST, Mark, forest
from curator_client.questions import by, where
from curator_client.results import Price, SqlResult, WhatIf
from tests.kit.patience import patience

pytestmark = pytest.mark.unit

COMMON: dict[str, Any] = {
    "sequence": 7,
    "source": "estimate",
    "interval_kind": "unbiased",
    "confidence": 0.95,
    "error_bound": None,
    "beta": 0.05,
    "charged_epsilon": 0.01,
    "updates_used": 3,
    "updates_left": 4,
    "queries_left": 5,
    "entry_hash": "ab",
}
NUMBER = COMMON | {"value": 1234.4, "standard_error": 56.2, "interval": [1124.25, 1344.5]}
NONE = COMMON | {"value": None, "standard_error": None, "interval": None}
TABLE = COMMON | {
    "axes": [
        {"attribute": "age", "labels": ["[0, 40)", "[40, 80]"]},
        {"attribute": "value", "labels": ["yes", "no", None]},
    ],
    "values": [10.5, 2000, -0.25, None, 5, 6],
    "standard_errors": [1.5, 2, 3, None, 5, 1.25],
    "intervals": [[9, 12], [1996, 2004], [-6.25, 5.75], None, [0, 15], [3.5, 8.5]],
}
QUESTION = by("age", "value").count()


def _table() -> Table:
    table = parse_answer(TABLE, QUESTION)
    assert isinstance(table, Table)
    return table


def _answer(reply: dict[str, Any] = NUMBER) -> Answer:
    answer = parse_answer(reply)
    assert isinstance(answer, Answer)
    return answer


def test_an_answer_is_a_float() -> None:
    """Would catch an answer that another library does not take, and an interval that outlives its number."""
    answer = _answer()
    assert json.dumps({"n": answer}) == '{"n": 1234.4}'
    assert (str(answer), f"{answer}", f"{answer:.1f}") == ("1,234 ± 56", "1,234 ± 56", "1234.4")
    for computed in (answer + 1, -answer, answer / 2, abs(answer), sum([answer, answer]), round(answer, 1), answer * 1):
        assert type(computed) is float
    assert np.asarray([answer, answer]).dtype == np.float64
    assert pd.Series([answer]).dtype == np.float64
    assert answer == 1234.4
    assert math.sqrt(answer) == math.sqrt(1234.4)


def test_what_an_answer_says_of_itself() -> None:
    """Would catch a field that is lost or swapped."""
    answer = _answer(NUMBER | {"dummy": True, "note": "so it is"})
    assert (answer.standard_error, answer.interval, answer.low, answer.high) == (
        56.2,
        (1124.25, 1344.5),
        1124.25,
        1344.5,
    )
    assert (answer.sequence, answer.source, answer.charged, answer.confidence) == (7, "estimate", 0.01, 0.95)
    assert (answer.interval_kind, answer.error_bound, answer.queries_left, answer.entry_hash) == (
        "unbiased",
        None,
        5,
        "ab",
    )
    assert (answer.dummy, answer.note, answer.missing, answer.reliable) == (True, "so it is", False, True)
    assert answer.raw["updates_left"] == 4
    assert answer.question is None


def test_no_value_is_not_a_number() -> None:
    """Would catch a missing mean that is counted as zero."""
    answer = _answer(NONE)
    assert math.isnan(answer)
    assert answer.missing
    assert math.isnan(answer.low)
    assert (answer.reliable, answer.interval, str(answer)) == (None, None, "n/a")


@pytest.mark.parametrize(
    ("value", "error", "reliable"),
    [(9, 3, True), (9, 3.1, False), (-9, 3, True), (0, 0, True), (0, 1, False), (5, None, None)],
)
def test_reliable_is_an_error_of_at_most_a_third(value: float, error: float | None, reliable: bool | None) -> None:
    assert Cell(value, error).reliable is reliable


@pytest.mark.parametrize("reply", [NUMBER, NONE, TABLE])
def test_answers_travel(reply: dict[str, Any]) -> None:
    """Would catch an answer that loses its error between processes, or in a copy."""
    answer = parse_answer(reply, QUESTION)
    for again in (pickle.loads(pickle.dumps(answer)), copy.copy(answer), copy.deepcopy(answer)):
        assert type(again) is type(answer)
        assert str(again) == str(answer)
        assert (again.raw, again.question) == (answer.raw, answer.question)
        if isinstance(answer, Answer):
            assert again.interval == answer.interval


def test_a_table_is_its_rows() -> None:
    """Would catch numbers at other cells than theirs."""
    table = _table()
    assert [axis.name for axis in table.axes] == ["age", "value"]
    assert len(table) == 6
    assert isinstance(table[0], Row)
    assert table[1].labels == ("[0, 40)", "no")
    assert [labels for labels, _ in table[1:3]] == [("[0, 40)", "no"), ("[0, 40)", None)]
    assert [float(value) for _, value in table if not value.missing] == [10.5, 2000, -0.25, 5, 6]
    assert table.cell("[40, 80]", None) == 6
    assert table.cell("[40, 80]", None).interval == (3.5, 8.5)


def test_no_value_and_no_cell_are_two_things() -> None:
    """Would catch a label that was misspelled taken for records without a value."""
    table = _table()
    assert table.cell("[40, 80]", "yes").missing
    with pytest.raises(KeyError, match=r"\[40, 80\]"):
        table.cell("[40, 80)", "yes")
    with pytest.raises(KeyError, match="a label for each of age, value"):
        table.cell("yes")
    with pytest.raises(KeyError, match="'no value'"):
        table.cell("[0, 40)", "no values")


def test_a_table_prints() -> None:
    """Would catch columns out of line, and an error that is as large as its number passed over."""
    assert str(_table()).splitlines() == [
        "age       value",
        "[0, 40)   yes          10.5 ± 1.5",
        "[0, 40)   no        2,000.0 ± 2.0",
        "[0, 40)   no value     -0.2 ± 3.0  too uncertain",
        "[40, 80]  yes                 n/a",
        "[40, 80]  no            5.0 ± 5.0  too uncertain",
        "[40, 80]  no value      6.0 ± 1.2",
    ]


def test_frames_hold_what_the_table_holds() -> None:
    """Each frame against the reply. Would catch a column of another order, lost order of ranges, NaN where null is
    meant, and an axis that takes the place of the numbers."""
    table = _table()
    values = TABLE["values"]
    places = list(itertools.product(*(axis["labels"] for axis in TABLE["axes"])))
    assert table.columns == ("age", "value_", "value", "standard_error", "low", "high")

    frame = table.to_pandas()
    assert tuple(frame.columns) == table.columns
    assert frame["age"].cat.ordered
    assert list(frame["age"].cat.categories) == ["[0, 40)", "[40, 80]"]
    assert [None if pd.isna(label) else label for label in frame["value_"]] == [place[1] for place in places]
    np.testing.assert_array_equal(frame["value"], np.array(values, float))
    assert frame["low"].dtype == np.float64

    polars = table.to_polars()
    assert tuple(polars.columns) == table.columns
    assert polars["age"].dtype == pl.Enum(["[0, 40)", "[40, 80]"])
    assert polars["value_"].to_list() == [place[1] for place in places]
    assert polars["value"].to_list() == values
    assert polars["high"].to_list() == [None if ends is None else ends[1] for ends in TABLE["intervals"]]

    assert [list(row.values()) for row in table.to_dicts()] == [list(row) for row in polars.rows()]
    rows = list(csv.DictReader(io.StringIO(table.to_csv())))
    assert [row["value"] for row in rows] == ["" if value is None else str(float(value)) for value in values]


def test_arrow_is_what_the_service_sends() -> None:
    """Would catch two forms of one table."""
    sent = pa.ipc.open_stream(arrow_table(orjson.dumps(TABLE))).read_all().replace_schema_metadata(None)
    assert _table().to_arrow().equals(sent)
    numbers = TABLE | {"axes": [{"attribute": "q", "labels": [0.25, 1, 2]}, {"attribute": "c", "labels": [3, 4]}]}
    table = parse_answer(numbers)
    assert isinstance(table, Table)
    assert table.to_arrow().schema.field("q").type == pa.float64()
    assert table.to_polars()["c"].dtype == pl.Int64
    assert table.cell(0.25, 4) == 2000


def test_csv_is_written_to_a_file(tmp_path: Path) -> None:
    """Would catch line ends that differ between systems, and a label that ends its field."""
    table = parse_answer(TABLE | {"axes": [TABLE["axes"][0], {"attribute": "a,b", "labels": ['x"y', "x\ny", "z"]}]})
    assert isinstance(table, Table)
    told = table.to_csv(tmp_path / "table.csv")
    assert (tmp_path / "table.csv").read_bytes().decode() == told
    assert [row["a,b"] for row in csv.DictReader(io.StringIO(told))] == ['x"y', "x\ny", "z"] * 2


@pytest.mark.parametrize(
    ("module", "extra", "method"),
    [
        ("pandas", "pandas", "to_pandas"),
        ("polars", "polars", "to_polars"),
        ("pyarrow", "arrow", "to_arrow"),
        ("matplotlib", "plot", "plot"),
    ],
)
def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch, module: str, extra: str, method: str) -> None:
    """Would catch an ImportError that names another package than the one to install."""
    monkeypatch.setitem(sys.modules, module, None)
    if module == "matplotlib":
        monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(MissingExtra, match=rf"curator-client\[{extra}\]"):
        getattr(_table(), method)()


@pytest.mark.parametrize(
    "change",
    [
        {"values": [1.0]},
        {"values": None},
        {"intervals": [[1]] * 6},
        {"values": ["1"] * 6},
        {"axes": [{"labels": []}]},
        {"axes": 5},
        {"standard_errors": 3},
        {"intervals": [[None, 1]] * 6},
    ],
)
def test_replies_that_are_no_table_are_refused(change: dict[str, Any]) -> None:
    """Would catch numbers that are shown at cells which nobody told them of."""
    with pytest.raises(ProtocolError):
        parse_answer(TABLE | change)


@pytest.mark.parametrize("missing", ["value", "standard_error", "interval", "sequence", "charged_epsilon"])
def test_replies_without_a_field_are_refused(missing: str) -> None:
    with pytest.raises(ProtocolError):
        parse_answer({name: value for name, value in NUMBER.items() if name != missing})


def _parsed(drawing: str) -> ET.Element:
    return ET.fromstring(drawing)


def _of(drawing: ET.Element, style: str) -> list[ET.Element]:
    return [element for element in drawing.iter() if element.get("class") == style]


_LABELS = st.text(max_size=12) | st.sampled_from(["<script>alert(1)</script>", "</text><g/>", "&amp;", "\"'", "]]>"])
_FLOATS = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def _marks(draw: st.DrawFn) -> list[Mark]:
    axes = draw(st.integers(0, 2))
    marks = []
    for _ in range(draw(st.integers(0, 6))):
        value = draw(st.none() | _FLOATS)
        ends = draw(st.none() | st.tuples(_FLOATS, _FLOATS).map(lambda two: (min(two), max(two))))
        error = draw(st.none() | st.floats(0, allow_nan=False))
        known = value is not None
        marks.append(
            Mark(tuple(draw(_LABELS) for _ in range(axes)), value, error if known else None, ends if known else None)
        )
    return marks


@given(_LABELS, _marks())
def test_any_table_is_drawn_as_well_formed_text(title: str, marks: list[Mark]) -> None:
    """A parser of XML reads each drawing, which has a mark for each number and no element of a label's making. Would
    catch markup that gets into a page, places that are no numbers, and a number without its mark."""
    drawing = _parsed(forest(title, ["a", "b"][: len(marks[0].labels) if marks else 0], marks, confidence=0.95))
    assert {element.tag.rpartition("}")[2] for element in drawing.iter()} <= {
        "svg", "title", "desc", "text", "path", "circle", "g",
    }  # fmt: skip
    known = [mark for mark in marks if mark.value is not None]
    assert len(_of(drawing, "dot")) == len(known)
    assert len(_of(drawing, "interval")) == 2 * sum(mark.interval is not None for mark in known)
    assert len(_of(drawing, "uncertain")) == sum(mark.uncertain for mark in marks)
    for element in drawing.iter():
        for name in ("d", "x", "y", "cx", "cy", "viewBox"):
            assert "nan" not in element.get(name, "")
            assert "inf" not in element.get(name, "")


def test_marks_stand_where_their_numbers_are() -> None:
    """The places of dots are linear in the numbers, by the drawing's own axis. Would catch an interval that is drawn
    around another number, and thick lines that are not one standard error."""
    marks = [Mark((str(k),), float(v), 50.0, (v - 98.0, v + 98.0)) for k, v in enumerate((300, 500, 1100))]
    drawing = _parsed(forest("t", ["a"], marks))
    ticks = {float((e.text or "").replace(",", "")): float(e.get("x", "")) for e in _of(drawing, "tick")}
    (a, at_a), (b, at_b) = (list(ticks.items())[k] for k in (0, -1))

    def place(value: float) -> float:
        return at_a + (value - a) / (b - a) * (at_b - at_a)

    for mark, dot in zip(marks, _of(drawing, "dot"), strict=True):
        assert mark.value is not None
        assert float(dot.get("cx", "")) == pytest.approx(place(mark.value), abs=0.2)
    lines = [e.get("d", "") for e in drawing.iter() if e.get("class") == "error" and e.get("d")]
    for mark, line in zip(marks, lines, strict=True):
        assert mark.value is not None
        low, high = float(line[1:].split()[0]), float(line.rpartition("H")[2])
        assert (low, high) == pytest.approx((place(mark.value - 50), place(mark.value + 50)), abs=0.2)


def test_a_drawing_says_what_it_shows() -> None:
    """Would catch a picture that is nothing to whoever does not see it, and a value that stands only in it."""
    table = _table()
    drawing = _parsed(table._repr_html_())
    told = {element.tag.rpartition("}")[2]: element.text or "" for element in drawing}
    assert told["title"] == 'Number of records by age and "value"'
    assert "age [0, 40), value no: 2,000.0 ± 2.0 (1,996.0 to 2,004.0)" in told["desc"]
    assert "value no value: 6.0" in told["desc"]
    texts = [element.text for element in drawing.iter() if element.tag.endswith("text")]
    for text in ("10.5", "± 1.5", "n/a", "too uncertain", "age: [0, 40)", "95% interval"):
        assert text in texts
    assert "prefers-color-scheme" in table.svg()
    assert _parsed(_answer(NUMBER | {"dummy": True})._repr_html_()) is not None
    assert "Of made-up records." in _answer(NUMBER | {"dummy": True})._repr_html_()


def test_many_cells_are_counted() -> None:
    """Would catch a notebook that holds sixty thousand rows."""
    marks = [Mark((str(k),), 1.0, 0.1, None) for k in range(MOST + 5)]
    drawing = _parsed(forest("t", ["a"], marks))
    assert len(_of(drawing, "dot")) == MOST
    assert [e.text for e in _of(drawing, "more")] == ["and 5 more"]


def test_a_plot_has_a_dot_and_two_lines_a_number() -> None:
    """Would catch bars, and formulas made of names."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    table = parse_answer(
        TABLE | {"axes": [TABLE["axes"][0], {"attribute": "b", "labels": ["$x", "$y_", None]}]}, QUESTION
    )
    assert isinstance(table, Table)
    figure, ax = pyplot.subplots()
    assert table.plot(ax) is ax
    assert len(ax.lines) == 5
    assert len(ax.collections) == 10
    assert not ax.patches
    figure.canvas.draw()
    assert [label.get_text() for label in ax.get_yticklabels()][:3] == [
        "[0, 40), $x", "[0, 40), $y_", "[0, 40), no value (too uncertain)",
    ]  # fmt: skip
    pyplot.close(figure)


def test_a_price() -> None:
    """Would catch a price that may be passed told as certain."""
    price = Price(
        {"epsilon": 0.031, "certain": False, "source": "measurement", "half_width": [240, 2200], "left": 0.458}
    )
    assert (price.epsilon, price.certain, price.source, price.left) == (0.031, False, "measurement", 0.458)
    assert price.half_width == (240.0, 2200.0)
    assert str(price) == "epsilon at most 0.031, interval ± 240 to ± 2,200; 0.458 left"
    free = Price({"epsilon": 0, "certain": True, "source": "cached", "half_width": None, "left": 1})
    assert str(free) == "free; 1 left"
    with pytest.raises(ProtocolError):
        Price({"epsilon": 0})


def test_the_result_of_a_statement() -> None:
    """Would catch values below other columns, and markup of labels in a page."""
    reply = {
        "columns": [{"name": "age", "type": "text", "role": "group"}, {"name": "n", "type": "double", "role": "value"}],
        "rows": [["<b>", 1234.5], ["old", None]],
        "answers": [TABLE],
        "notices": ["as it is"],
    }
    result = SqlResult(reply)
    assert result.columns == ("age", "n")
    assert list(result) == [{"age": "<b>", "n": 1234.5}, {"age": "old", "n": None}]
    assert isinstance(result.answers[0], Table)
    assert str(result).splitlines() == ["age  n", "<b>  1,234.5", "old  n/a", "as it is"]
    assert "<b>" not in result._repr_html_()
    assert result.to_pandas()["n"].tolist()[0] == 1234.5
    with pytest.raises(ProtocolError):
        SqlResult(reply | {"rows": [[1]]})


def test_what_if_is_a_table_over_combinations() -> None:
    """Would catch a line of another epsilon, and a problem that is drawn as an error."""
    points: list[dict[str, Any]] = [
        {
            "epsilon": e,
            "max_queries": k,
            "mechanism": {"construction": "evidence"},
            "error_bound": None,
            "expected_standard_errors": {"one_attribute": k / e, "mean": {"x": 1.0}},
            "independent_gaussian": {"sigma": 3.0, "error_bound": 9.0, "better": False},
        }
        for e in (0.5, 1.0)
        for k in (10, 100)
    ]
    points.append(
        {"epsilon": 1.0, "max_queries": 5000, "problem": {"type": "/problems/plan-infeasible", "detail": "no"}}
    )
    table = WhatIf({"points": points, "note": None})
    assert len(table) == 5
    assert table[3] == {
        "epsilon": 1.0, "max_queries": 100, "mechanism": "evidence", "expected_error": 100.0, "gaussian_error": 3.0,
        "error_bound": None, "problem": None,
    }  # fmt: skip
    assert (table[4]["mechanism"], table[4]["problem"]) == (None, "no")
    assert list(table.to_pandas()["max_queries"]) == [10, 100, 10, 100, 5000]
    assert "<td>evidence</td>" in table._repr_html_()
    lines = [list(line.get_ydata()) for line in table.plot().lines if len(line.get_xdata())]
    assert lines == [[20, 200], [3, 3], [10, 100], [3, 3]]
    assert WhatIf({"points": [points[0] | {"expected_standard_errors": {"cut": 7.0}}]})[0]["expected_error"] == 7.0
    with pytest.raises(ProtocolError):
        WhatIf({"points": [{"epsilon": 1}]})


def test_the_package_is_imported_in_60_milliseconds() -> None:
    """The quickest of five fresh processes, by Python's own measure. Would catch a library that all pay for who import
    the package."""
    took = []
    for _ in range(5):
        ran = subprocess.run(
            [sys.executable, "-X", "importtime", "-c", "import curator_client"],
            capture_output=True, text=True, check=True, cwd=Path(sys.modules["curator_client"].__path__[0]).parent,
        )  # fmt: skip
        line = next(line for line in ran.stderr.splitlines() if line.endswith("| curator_client"))
        took.append(int(line.split("|")[1]) / 1e6)
    assert min(took) < patience(0.06)


def test_a_question_stays_with_its_answer() -> None:
    """Would catch a drawing that is called by another question."""
    asked = where(a=1).count()
    answer = parse_answer(NUMBER, asked)
    assert answer.question == asked
    assert answer.title == "Number of records, where a is 1"
