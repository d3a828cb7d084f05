"""Answers as people read them, and tables as other programs take them."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.http.marginal_tables import arrow_table
from curator_client import Answer, Marginal
from curator_client.errors import ProtocolError
from curator_client.replies import parse_answer, shown

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
TABLE = COMMON | {
    "axes": [{"attribute": "age", "labels": ["[0, 40)", "[40, 80]"]}, {"attribute": "class", "labels": [0, 3, 7]}],
    "values": [10.5, 2000, -0.25, 4, 5, 6],
    "standard_errors": [1.5, 2, 3, 4, 5, 6],
    "intervals": [[v - 1, v + 1] for v in (10.5, 2000, -0.25, 4, 5, 6)],
}
UNKNOWN = TABLE | {"standard_errors": None, "intervals": None, "interval_kind": None, "confidence": None}


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (1234.4, 56.2, "1,234 ± 56"),
        (1234.4, 5.62, "1,234.4 ± 5.6"),
        (1234.4, 0.0562, "1,234.400 ± 0.056"),
        (1234.4, 99.96, "1,234 ± 100"),
        (-0.2, 56, "0 ± 56"),
        (-1234567.8, 1234.5, "-1,234,568 ± 1,234"),
        (12, 0.0, "12 ± 0"),
        (1234.4, None, "1,234.4 ± n/a"),
        (-0.0, None, "0 ± n/a"),
        (3.0, math.inf, "3 ± inf"),
        (1e-3, 1e-5, "0.001000 ± 0.000010"),
    ],
)
def test_numbers_for_people(value: float, error: float | None, text: str) -> None:
    """Would catch digits that the error makes meaningless, a negative nothing, and an error that is not known told as
    none."""
    assert shown(value, error) == text


@given(st.floats(-1e12, 1e12), st.floats(1e-6, 1e9))
def test_what_is_shown_is_near_what_is_meant(value: float, error: float) -> None:
    """Rounding takes at most a tenth of the standard error. Would catch too few decimals."""
    told, about = (float(part.replace(",", "")) for part in shown(value, error).split(" ± "))
    assert abs(told - value) <= 0.1 * error + 1e-15 * abs(value)
    assert about == pytest.approx(error, rel=0.1)


def test_one_number() -> None:
    """Would catch a field that is lost, and an interval that is no pair."""
    answer = parse_answer(NUMBER)
    assert isinstance(answer, Answer)
    assert (str(answer), answer.interval, answer.interval_kind) == ("1,234 ± 56", (1124.25, 1344.5), "unbiased")
    assert parse_answer(NUMBER | {"interval": None, "standard_error": None}).interval is None  # type: ignore[union-attr]
    for name in NUMBER:
        with pytest.raises(ProtocolError):
            Answer.parse({k: v for k, v in NUMBER.items() if k != name})


def test_a_table_prints() -> None:
    """Would catch numbers beside other cells' labels."""
    assert str(Marginal.parse(TABLE)).splitlines() == [
        "age       class",
        "[0, 40)   0         10.5 ± 1.5",
        "[0, 40)   3      2,000.0 ± 2.0",
        "[0, 40)   7         -0.2 ± 3.0",
        "[40, 80]  0          4.0 ± 4.0",
        "[40, 80]  3          5.0 ± 5.0",
        "[40, 80]  7          6.0 ± 6.0",
    ]


def test_a_long_table_prints_its_beginning() -> None:
    """Would catch a terminal full of cells."""
    long = TABLE | {
        "axes": [{"attribute": "x", "labels": list(range(1000))}],
        "values": [1.0] * 1000,
        "standard_errors": None,
        "intervals": None,
    }
    lines = str(Marginal.parse(long)).splitlines()
    assert (len(lines), lines[-1]) == (42, "... and 960 more")
    assert lines[1] == "0   1 ± n/a"


@pytest.mark.parametrize("reply", [TABLE, UNKNOWN])
def test_a_table_for_programs(reply: dict[str, Any]) -> None:
    """As dictionary, array and Arrow table the same cells; the Arrow table is the one that the service sends. Would
    catch axes in another order, and numbers that are not known told as zero."""
    table = parse_answer(reply)
    assert isinstance(table, Marginal)
    labels = list(itertools.product(["[0, 40)", "[40, 80]"], [0, 3, 7]))
    assert table.to_dict() == dict(zip(labels, reply["values"], strict=True))
    assert table.values.shape == (2, 3)
    assert table.values[1, 2] == 6
    arrow = table.to_arrow()
    sent = pa.ipc.open_stream(arrow_table(orjson.dumps(reply))).read_all()
    assert arrow.to_pydict() == sent.to_pydict()
    assert arrow.schema.equals(sent.schema.remove_metadata())
    assert arrow["low"].null_count == (6 if reply is UNKNOWN else 0)
    first = next(table.rows())
    assert (first[0], first[3]) == (labels[0], None if reply is UNKNOWN else (9.5, 11.5))


def test_attributes_named_as_numbers_are() -> None:
    """Would catch a column that hides another."""
    axes = [{"attribute": "value", "labels": [0, 1]}, {"attribute": "value_", "labels": ["a", 1, "c"]}]
    table = Marginal.parse(TABLE | {"axes": axes}).to_arrow()
    assert table.column_names == ["value_", "value__", "value", "standard_error", "low", "high"]
    assert table["value__"].to_pylist() == ["a", "1", "c"] * 2
    assert table["value"].to_pylist() == TABLE["values"]


#: By a missing value and a number, at two parts; the second group has too few records.
QUANTILES = COMMON | {
    "axes": [{"attribute": "joined", "labels": ["2020-05", None]}, {"attribute": "q", "labels": [0.25, 0.5]}],
    "values": [1000, 2000, None, None],
    "standard_errors": [15.2, 20.1, None, None],
    "intervals": [[970, 1030], [1960, 2040], None, None],
}


def test_numbers_that_are_not_told() -> None:
    """Would catch a value, an error or an interval that is not known told as zero or as NaN, to people or programs."""
    table = parse_answer(QUANTILES)
    assert isinstance(table, Marginal)
    assert [row[1:] for row in table.rows()] == [
        (1000, 15.2, (970, 1030)),
        (2000, 20.1, (1960, 2040)),
        (None, None, None),
        (None, None, None),
    ]
    assert table.to_dict()[None, 0.5] is None
    assert np.isnan(table.values[1]).all()
    assert str(table).splitlines()[1:] == [
        "2020-05  0.25  1,000 ± 15",
        "2020-05  0.5   2,000 ± 20",
        "null     0.25         n/a",
        "null     0.5          n/a",
    ]
    one = parse_answer(NUMBER | {"value": None, "standard_error": None, "interval": None})
    assert isinstance(one, Answer)
    assert (one.value, str(one)) == (None, "n/a")


@pytest.mark.parametrize(
    ("labels", "kind", "told"),
    [
        ([3, None], "int64", [3, None]),
        ([0.5, 1], "double", [0.5, 1.0]),
        ([None, 0.5], "double", [None, 0.5]),
        (["[0, 5)", None], "string", ["[0, 5)", None]),
        (["a", 1], "string", ["a", "1"]),
        ([None, None], "string", [None, None]),
    ],
)
def test_columns_of_labels(labels: list[Any], kind: str, told: list[Any]) -> None:
    """The client's table and the service's have the same columns. Would catch a missing value named as text, and
    numbers that become text or lose their fraction."""
    reply = QUANTILES | {"axes": [{"attribute": "x", "labels": labels}, QUANTILES["axes"][1]]}
    table = parse_answer(reply)
    assert isinstance(table, Marginal)
    sent = pa.ipc.open_stream(arrow_table(orjson.dumps(reply))).read_all()
    for found in (table.to_arrow(), sent):
        assert str(found.schema.field("x").type) == kind
        assert found["x"].to_pylist() == [label for label in told for _ in range(2)]
        assert found["q"].to_pylist() == [0.25, 0.5, 0.25, 0.5]
        assert found["value"].to_pylist() == [1000, 2000, None, None]
        assert found["low"].to_pylist() == [970, 1960, None, None]


@pytest.mark.parametrize(
    "damage",
    [
        {"values": [1.0] * 5},
        {"values": None},
        {"values": ["x"] * 6},
        {"standard_errors": [1.0]},
        {"intervals": [1.0] * 6},
        {"axes": [{"attribute": "age"}]},
        {"axes": [5]},
    ],
)
def test_a_table_that_is_none(damage: dict[str, Any]) -> None:
    """Would catch another exception than the one for replies that are not of the contract."""
    with pytest.raises(ProtocolError):
        Marginal.parse(TABLE | damage)


def test_shapes_of_one_axis() -> None:
    """Would catch labels that are no tuple where there is one attribute."""
    one = TABLE | {"axes": [{"attribute": "x", "labels": [1, 2, 3, 4, 5, 6]}]}
    table = Marginal.parse(one)
    assert next(iter(table.to_dict())) == (1,)
    assert np.array_equal(table.values, one["values"])
