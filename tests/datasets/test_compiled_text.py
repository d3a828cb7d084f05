"""What is said to BigQuery, Snowflake and Trino, as text: thirteen kinds of questions of one table, against what stands
in `compiled`, which people have read. `python -m tests.datasets.test_compiled_text` writes it anew, to be read again.

It would catch a change of the text that nobody meant, which those who count on it in an account of theirs must know of.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import sqlglot
from sqlglot import exp

from app.declarations.spec import TableSpec, parse_spec
from app.spaces.counts import CellCounts
from app.spaces.partition import Partition
from app.storage.sources import compiled
from app.storage.sources.compiled import Column
from app.storage.sources.dialects import BigQuery, Snowflake, Trino, Warehouse
from tests.datasets.source_files import JSON, declare

pytestmark = pytest.mark.unit

FOLDER = Path(__file__).parent / "compiled"
DIALECTS: dict[str, type[Warehouse]] = {"bigquery": BigQuery, "snowflake": Snowflake, "trino": Trino}
ATTRIBUTES: list[JSON] = [
    {"name": "ward", "size": 12, "column": 'ward "%s" `\\'},
    {"name": "urgent", "size": 2},
    {"name": "city", "values": ["Wien", "Côte d'Or", "\\"], "missing": True},
    {"name": "grade", "values": [3, -21]},
    {"name": "flag", "values": ["true", "false"]},
    {"name": "age", "lower": -3, "upper": 90, "outside": "clamp"},
    {"name": "dose", "lower": -10, "upper": 40, "grid": 5},
    {"name": "weight", "edges": [0.1, 2.5, 1e22], "missing": True},
    {"name": "day", "dates": ["2024-01-30", "2024-03-01"], "by": "day"},
    {"name": "month", "dates": ["2023-11-01", "2024-02-01"], "by": "month", "missing": True},
    {"name": "year", "dates": ["1999-01-01", "2024-01-01"], "by": "year"},
]
COLUMNS = [
    Column('ward "%s" `\\', "integer"), Column("note", None), Column("urgent", "truth"), Column("city", "text"),
    Column("grade", "integer"), Column("flag", "truth"), Column("age", "integer"), Column("dose", "integer"),
    Column("weight", "float"), Column("day", "time"), Column("month", "time"), Column("year", "time"),
]  # fmt: skip
ODD = Partition.of(np.arange(12) % 2)
HALVES = Partition.of(np.arange(93) // 47)
QUESTIONS = {
    "all records": CellCounts((), (), ()),
    "codes": CellCounts((0,), (None,), (12,)),
    "text and Booleans": CellCounts((2, 4), (None, None), (4, 2)),
    "integers and Booleans as categories and codes": CellCounts((1, 3), (None, None), (2, 2)),
    "integers in bins and on a grid": CellCounts((5, 6), (None, None), (93, 11)),
    "bins of floats": CellCounts((7,), (None,), (3,)),
    "dates": CellCounts((8, 9, 10), (None, None, None), (32, 5, 26)),
    "classes that are compared for": CellCounts((5,), (HALVES,), (2,)),
    "classes that are looked up": CellCounts((0,), (ODD,), (2,)),
    "sums of weights": CellCounts((0,), (ODD,), (2,), factors=((5, np.arange(93) ** 2), (1, np.array([0, -7])))),
}


def texts(engine: str) -> dict[str, str]:
    """What is said of each kind."""
    spec = parse_spec(declare(ATTRIBUTES) | {"source": {"type": engine}})
    assert isinstance(spec, TableSpec)
    dialect = DIALECTS[engine]({axis: list(map(str, a.values)) for axis, a in enumerate(spec.attributes) if a.values})
    table, every = dialect.table("lake", "clinic", "visits"), range(len(ATTRIBUTES))
    places = compiled.records(dialect, spec, COLUMNS, table, every, reasons=True)
    found = {
        "the columns of a table": dialect.columns_of("lake", "clinic", "visits"),
        "records outside": compiled.survey(spec, places),
        "sums of hashes": dialect.sums(
            compiled.records(dialect, spec, COLUMNS, table, range(2), reasons=True), 2, [7, 8]
        ),
    }
    for name, asked in QUESTIONS.items():
        axes = sorted({*asked.axes, *dict(asked.factors)})
        found[name] = compiled.counts(
            dialect, spec, compiled.records(dialect, spec, COLUMNS, table, axes, reasons=False), asked
        )
    return found


def stored(engine: str) -> str:
    return "".join(f"-- {name}\n{text};\n\n" for name, text in texts(engine).items())


@pytest.mark.parametrize("engine", DIALECTS)
def test_what_is_said_is_what_was_read(engine: str) -> None:
    assert stored(engine) == (FOLDER / f"{engine}.sql").read_text()


@pytest.mark.parametrize("engine", DIALECTS)
def test_what_is_said_is_read_in_its_dialect(engine: str) -> None:
    """As one statement that reads, by sqlglot; and no word of a label is in it. Would catch a sign that ends a name,
    and text of a label."""
    said = texts(engine)
    assert len(said) == 13
    for text in said.values():
        (tree,) = sqlglot.parse(text, read=engine, error_level=sqlglot.ErrorLevel.RAISE)
        assert isinstance(tree, exp.Select)
        tables = {table.name for table in tree.find_all(exp.Table)}
        assert all("visits" in table or table.upper().endswith(("TABLES", "COLUMNS")) for table in tables), tables
        names = {column.name for column in tree.find_all(exp.Column)}
        assert names & {'ward "%s" `\\'} or "ward" not in text
        assert not any(word in text for word in ("Wien", "Côte", "d'Or"))


if __name__ == "__main__":
    for name in DIALECTS:
        (FOLDER / f"{name}.sql").write_text(stored(name))
        print(json.dumps({name: len(stored(name))}))  # noqa: T201 - a command
