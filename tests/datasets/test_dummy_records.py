"""Made-up records: what they are drawn from, and how evenly."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from app.declarations.errors import InvalidRequest
from app.declarations.spec import parse_spec
from app.services.dummy_records import dummy_table, encoded
from app.storage.private_data import PrivateData
from app.storage.readers import read_private

pytestmark = [pytest.mark.unit, pytest.mark.slow]

BUDGET = {"epsilon": 1.0, "delta": 1e-9}
TABLE: dict[str, Any] = {
    "name": "t",
    "kind": "table",
    "budget": BUDGET,
    "attributes": [
        {"name": "code", "size": 5},
        {"name": "word", "values": ["a, b", 'say "so"', "c"], "missing": True},
        {"name": "mixed", "values": ["x", 3]},
        {"name": "age", "lower": 15, "upper": 95, "bins": 16},
        {"name": "width", "edges": [0, 0.1, 0.25, 1]},
        {"name": "income", "lower": -50, "upper": 500, "grid": 25, "missing": True},
        {"name": "share", "lower": 0, "upper": 1, "grid": 0.1},
        {"name": "day", "dates": ["2020-01-15", "2020-03-01"], "by": "day"},
        {"name": "month", "dates": ["2020-01-15", "2020-03-01"], "by": "month"},
    ],
}


def test_records_are_even_and_as_declared() -> None:
    """Every declared value and no other, each about as often: ten thousand records tell a value that is never drawn, a
    bound that is left out, and one that is twice as likely."""
    table = dummy_table(parse_spec(TABLE), 10_000, 7).to_pydict()

    def even(found: list[Any], expected: list[Any]) -> None:
        counts = [found.count(value) for value in expected]
        assert sum(counts) == len(found)
        mean = len(found) / len(expected)
        assert max(abs(count - mean) for count in counts) < 6 * mean**0.5

    even(table["code"], [0, 1, 2, 3, 4])
    even(table["mixed"], ["x", "3"])
    for name, values in (("word", ["a, b", 'say "so"', "c"]), ("income", list(range(-50, 501, 25)))):
        given = [value for value in table[name] if value is not None]
        even(given, values)
        assert 400 < 10_000 - len(given) < 600
    even(table["age"], list(range(15, 95)))
    even([int(np.searchsorted([0.1, 0.25], v, side="right")) for v in table["width"]], [0, 1, 2])
    assert 0 <= min(table["width"]) <= max(table["width"]) < 1
    even(table["share"], [float(f"0.{k}") for k in range(10)] + [1.0])
    days = [datetime.date(2020, 1, 15) + datetime.timedelta(k) for k in range(47)]
    even(table["day"], days)
    even(table["month"], [datetime.date(2020, 1, 15), datetime.date(2020, 2, 1), datetime.date(2020, 3, 1)])
    together = np.corrcoef([table["code"], table["age"], table["share"]])
    assert np.abs(together - np.eye(3)).max() < 0.06, "attributes are drawn each by itself"


def test_the_same_for_the_same_declaration_and_seed() -> None:
    """Would catch chance of the system's, and a seed that is not used."""
    spec = parse_spec(TABLE)
    first = encoded(dummy_table(spec, 100, 1), "csv")
    assert encoded(dummy_table(parse_spec(TABLE), 100, 1), "csv") == first
    assert encoded(dummy_table(spec, 100, 2), "csv") != first
    assert encoded(dummy_table(parse_spec({**TABLE, "name": "other"}), 100, 1), "csv") != first


def read(spec: dict[str, Any], suffix: str, data: bytes, folder: Path) -> PrivateData:
    path = folder / f"dummy{suffix}"
    path.write_bytes(data)
    return read_private(parse_spec(spec), path.name, path, memory_limit=1 << 28).data


KINDS: list[dict[str, Any]] = [
    {"kind": "table", "attributes": TABLE["attributes"]},
    {"kind": "table", "attributes": [TABLE["attributes"][k] for k in (0, 3, 4)]},
    {"kind": "table", "attributes": TABLE["attributes"][:1], "unit": {"column": "who", "max_records": 3}},
    {"kind": "graph", "nodes": 50},
    {"kind": "graph", "nodes": 3, "directed": True, "labels": ["a", "b", "source"]},
    {"kind": "graph", "nodes": 50, "weighted": True, "grid": 0.25},
    {"kind": "bipartite", "left": 5, "right": 400},
    {"kind": "matrix", "rows": 30, "columns": 20, "lower": -1, "upper": 3, "absent": 0},
    {"kind": "multiset"},
]


@pytest.mark.parametrize("declared", KINDS, ids=lambda d: str(d["kind"]))
def test_they_can_be_registered(declared: dict[str, Any], tmp_path: Path) -> None:
    """Of every kind, as CSV and as Parquet: the readers of uploads take what is made up. Would catch columns that are
    named otherwise, an edge from a node to itself, and a value off the grid."""
    spec = {"name": "t", "budget": BUDGET, **declared}
    table = dummy_table(parse_spec(spec), 200, 3)
    for suffix, form in ((".csv", "csv"), (".parquet", "parquet")):
        data = read(spec, suffix, encoded(table, form), tmp_path)  # type: ignore[arg-type]
        if declared["kind"] in ("table", "graph", "bipartite") and "weighted" not in declared:
            assert data.mass == len(table)
        assert data.mass != 0


@pytest.mark.parametrize(("records", "seed"), [(0, 0), (100_001, 0), (-1, 0), (5, -1), (5, 2**63)])
def test_what_is_out_of_range_is_refused(records: int, seed: int) -> None:
    """Would catch a table that fills the memory."""
    with pytest.raises(InvalidRequest):
        dummy_table(parse_spec(TABLE), records, seed)


def test_missing_values_are_empty_cells() -> None:
    """Would catch a missing value that is spelled."""
    spec = parse_spec(
        {**TABLE, "attributes": [{"name": "a", "size": 2}, {"name": "b", "values": ["x"], "missing": True}]}
    )
    lines = encoded(dummy_table(spec, 400, 0), "csv").decode().splitlines()
    assert lines[0] == '"a","b"'
    assert {line.partition(",")[2] for line in lines[1:]} == {'"x"', ""}
    with pa.ipc.open_stream(encoded(dummy_table(spec, 400, 0), "arrow")) as reader:
        assert reader.read_all().column("b").null_count > 0
