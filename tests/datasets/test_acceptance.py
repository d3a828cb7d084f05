"""What the acceptance of a file tells is listed in docs/privacy.md, section 1.1, and nothing is missing there.

Every place of the readers that refuses a file is known here: either it looks at how the file is laid out, which is
public, or it looks at what it holds, and then the table has a line for it and a file is refused by it that is accepted
with a little less in it.
"""

from __future__ import annotations

import ast
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.declarations.errors import InvalidDataset

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
READERS, SOURCES = ROOT / "app" / "storage" / "readers", ROOT / "app" / "storage" / "sources"

#: Refusals for what is public: the file's name, its first line or schema, its size and shape, what was declared.
FORM = (
    "must end in one of", "the file is empty", "not a NumPy array, or its header", "must hold plain integers",
    "the array has shape", "the array is truncated", "must hold one array", "must be stored or deflated",
    "unpacks to more than the declared shape", "a column of dates is needed", "a column of numbers or strings",
    "not text in UTF-8: save it as such", "nothing but blank lines", "the first line is not valid UTF-8",
    "the first line cannot be read", "have one name", "a column of lists or structures", "the first line has",
    "the file has a third column", "edges are not read from .xlsx", "the first sheet of the workbook is empty",
    "declare \"absent\"", "columns: a dense matrix has one", "where the limit is {memory_limit}", "has no column",
    "the file has two columns", "this kind of data set is not read", "columns: name those that matter",
    "the declared attributes span", "counts do not say whose records", "the workbook unpacks to",
    "reads no files of its own", "no file of the server", "more than {MOST_FILES} files", "two of the files are one",
    "leads outside of the server", "matches what is no file", "a file cannot be opened", "name the files, as",
    "needs {_needed(attribute)}", "are told apart", "name a connection and a table",
    "no such table", "it is no plain table", "its role may write", "nobody waits for more than",
    "two of the server's folders", "a folder cannot be read", "no Delta table", "tells no such version",
    "its log is too long", "name the table and", "no Iceberg table", "files alone do not tell its rows",
    "it has features", "it is partitioned", "columns have other names", "some of its files lie elsewhere",
    "it has a format that is not read", "some are no plain Parquet files", "has another name in some",
    "is another column in some", "one of its files is in it twice", "nothing is known of the time zone",
    "no text of PostgreSQL has", "it is a view, or is not kept as Parquet",
    "by name: {error.detail}", "the server has no driver of", "nobody has tried", "are not read: leave prepare out",
)  # fmt: skip

#: Refusals for what a file holds, by a part of their words, and what the table says of them.
PRIVATE = {
    "_NO_RECORDS": "it has a record",
    "a row of names and no records": "it has a record",
    "hold no records": "it has a record",
    "would be dropped": "keeps one",
    "outside the declared domain": "every value is of the declared domain",
    "more rows than the declared capacity": "it has no more rows",
    "more records than the declared capacity": "at most `capacity` records are kept",
    "numbers are written with a comma": "no column writes decimals in two ways",
    "a count is not 0 of": "no record is what `zeros` declares not to occur",
    "a count {problem}": "all counts are whole, at least 0",
    "the counts add up to more": "add up to at most `capacity`",
    "row {row}: {side.expected}": "every end is a declared node",
    "row {row}: an edge from a node to itself": "no edge is from a node to itself",
    "the matrix has edges from a node": "no loops, as above",
    "a weight must be a number": "weights lie in [0, 1]",
    "stands in an earlier row": "repeated edges agree in weight",
    "must hold numbers from 0 to 1": "weights lie in [0, 1]",
    "holds fractions": "without `weighted` they are 0 or 1",
    "not symmetric": "it is symmetric",
    "row {row}: {message}": "within the declared rows, columns and bounds",
    "column {column + left}": "within the declared rows, columns and bounds",
    "rows, declared are": "as many rows as declared",
    "the declared {spec.rows} rows": "as many rows as declared",
    "is empty": "no element is empty",
    "must be a whole number from 0 to the capacity": "all counts are whole, at least 0",
    "not in the declared encoding": "it is in its encoding",
    "the database's encoding has not": "it is in its encoding",
    "{where} is not valid UTF-8": "it is in its encoding",
    "begins a field and does not end it": "quotes are closed",
    "field{plural}": "as many fields as the first line",
    "is longer than": "at most 8 MiB",
    "formulas that were never computed": "no formula is without a value",
    "which no spreadsheet program writes": "32,767 characters",
    "the sheet has more than": "4,194,304 cells",
    "_DAMAGED": "it is not damaged",
    "is no Parquet file or is damaged": "it is not damaged",
    "rows of its files are deleted": "no rows of its files were deleted",
    "the table has no files": "it has a file",
    "its log is damaged": "it is not damaged",
    "MOVED": "they were not altered while they were counted",
    "it was written to while it was counted": "they were not altered while they were counted",
    "raise InvalidDataset(problem)": "it is not damaged",
    "cannot be read as separated columns": "it is not damaged",
    "memory limit": "within the memory limit",
    "more memory than the limit": "within the memory limit",
    "_too_large": "within the memory limit",
}  # fmt: skip


def refusals() -> Iterator[tuple[str, str]]:
    """Where a reader refuses a file, and in which words."""
    for path in sorted([*READERS.glob("*.py"), *SOURCES.glob("*.py")]):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("InvalidDataset", "untold"):
                words = ast.unparse(node.args[0 if node.func.id == "InvalidDataset" else 1])
                yield f"{path.name}:{node.lineno}", "raise InvalidDataset(problem)" if words == "problem" else words


def test_every_refusal_is_public_or_in_the_table() -> None:
    """Catches a condition on the records that is added to a reader and told nobody."""
    section = (ROOT / "docs" / "privacy.md").read_text().split("### 1.1 ")[1].split("\n## ")[0]
    seen = set()
    for where, words in refusals():
        public = [part for part in FORM if part in words]
        private = [part for part in PRIVATE if part in words]
        assert public or private, f"{where} refuses a file, and docs/privacy.md, 1.1 does not say so: {words}"
        for part in private:
            seen.add(part)
            assert PRIVATE[part] in section, (where, PRIVATE[part])
    assert seen == set(PRIVATE)


def npy(values: Any) -> bytes:
    sink = io.BytesIO()
    np.save(sink, np.array(values))
    return sink.getvalue()


def parquet(**columns: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()


CODES = {"kind": "table", "attributes": [{"name": "a", "size": 3}]}
NUMBERS = {"kind": "table", "attributes": [{"name": "a", "lower": 0, "upper": 9, "grid": 0.5}]}
PERSONS = {**CODES, "unit": {"column": "p", "max_records": 1}}
ZEROS = {
    "kind": "table",
    "attributes": [{"name": "a", "size": 3}, {"name": "b", "size": 3}],
    "zeros": [{"a": 1, "b": 1}],
}
GRAPH = {"kind": "graph", "nodes": 3, "weighted": True}
MATRIX = {"kind": "matrix", "rows": 2, "columns": 2, "lower": 0, "upper": 9, "absent": 0}
WORDS = {"kind": "multiset"}

#: By what the table says: a declaration, a file's name, a file that is refused, and one that is accepted.
NEIGHBOURS: dict[str, tuple[dict[str, Any], str, bytes, bytes]] = {
    "it has a record": (CODES, "t.csv", b"a\n", b"a\n0\n"),
    "keeps one": ({**CODES, "outside": "drop"}, "t.csv", b"a\n7\n", b"a\n7\n0\n"),
    "every value is of the declared domain": (CODES, "t.csv", b"a\n0\n7\n", b"a\n0\n"),
    "every record has an id": (PERSONS, "t.csv", b"p,a\nu,0\n,1\n", b"p,a\nu,0\n"),
    "at most `capacity` records are kept": ({**CODES, "capacity": 1}, "t.csv", b"a\n0\n1\n", b"a\n0\n"),
    "no record is what `zeros` declares not to occur": (ZEROS, "t.csv", b"a,b\n0,1\n1,1\n", b"a,b\n0,1\n"),
    "it has no more rows": ({**CODES, "capacity": 1}, "t.parquet", parquet(a=[0, 1]), parquet(a=[0])),
    "no column writes decimals in two ways": (NUMBERS, "t.csv", b"a;b\n1,5;\n1.5;\n", b"a;b\n1,5;\n"),
    "all counts are whole, at least 0": (CODES, "t.npy", npy([0, -1, 2]), npy([0, 1, 2])),
    "add up to at most `capacity`": ({**CODES, "capacity": 3}, "t.npy", npy([2, 2, 0]), npy([2, 1, 0])),
    "it names an edge": (GRAPH, "g.csv", b"u,v,w\n", b"u,v,w\n0,1,1\n"),
    "every end is a declared node": (GRAPH, "g.csv", b"0,1,1\n1,3,1\n", b"0,1,1\n"),
    "no edge is from a node to itself": (GRAPH, "g.csv", b"0,1,1\n1,1,1\n", b"0,1,1\n"),
    "weights lie in [0, 1]": (GRAPH, "g.csv", b"0,1,1\n1,2,2\n", b"0,1,1\n"),
    "repeated edges agree in weight": (GRAPH, "g.csv", b"0,1,1\n1,0,0.5\n", b"0,1,1\n1,0,1\n"),
    "without `weighted` they are 0 or 1": (
        {"kind": "graph", "nodes": 2, "weighted": False}, "g.npy", npy([[0, 0.5], [0.5, 0]]), npy([[0, 1], [1, 0]])),
    "no loops, as above": (GRAPH, "g.npy", npy(np.eye(3)), npy(np.zeros((3, 3)))),
    "it is symmetric": (GRAPH, "g.npy", npy(np.eye(3, k=1)), npy(np.eye(3, k=1) + np.eye(3, k=-1))),
    "within the declared rows, columns and bounds": (
        MATRIX, "m.csv", b"row,column,value\n0,0,1\n0,1,10\n", b"row,column,value\n0,0,1\n"),
    "repeated cells agree": (
        MATRIX, "m.csv", b"row,column,value\n0,0,1\n0,0,2\n", b"row,column,value\n0,0,1\n0,0,1\n"),
    "as many rows as declared": (MATRIX, "m.parquet", parquet(u=[1], v=[2]), parquet(u=[1, 1], v=[2, 2])),
    "no element is empty": (WORDS, "w.csv", b"element,count\nx,1\n,1\n", b"element,count\nx,1\n"),
    "it is in its encoding": (WORDS, "w.csv", b"element\nx\n\xff\n", b"element\nx\n"),
    "quotes are closed": (CODES, "t.csv", b'a,b\n0,x\n1,"y\n', b"a,b\n0,x\n"),
    "as many fields as the first line": (CODES, "t.csv", b"a,b\n0,x\n1\n", b"a,b\n0,x\n"),
}  # fmt: skip


@pytest.mark.parametrize("told", NEIGHBOURS)
def test_what_the_table_says_is_so(read: Any, told: str) -> None:
    """Catches a line that is no longer true: each tells neighbouring files apart."""
    section = (ROOT / "docs" / "privacy.md").read_text().split("### 1.1 ")[1].split("\n## ")[0]
    assert told in section
    spec, filename, bad, good = NEIGHBOURS[told]
    read(spec, filename, good)
    with pytest.raises(InvalidDataset):
        read(spec, filename, bad)


@pytest.mark.parametrize(
    ("spec", "filename", "content"),
    [
        ({**CODES, "outside": "drop"}, "t.csv", b"a\n0\n7\n\n"),
        ({**PERSONS, "outside": "drop"}, "t.csv", b"p,a\nu,0\n,1\n"),
        ({"kind": "table", "attributes": [{**NUMBERS["attributes"][0], "outside": "clamp"}]}, "t.csv", b"a\n1\n99\n"),
        ({**ZEROS, "outside": "drop"}, "t.csv", b"a,b\n0,1\n1,1\n"),
        ({**GRAPH, "loops": "drop"}, "g.csv", b"0,1,1\n1,1,1\n"),
        ({**PERSONS, "capacity": 1}, "t.parquet", parquet(p=["u", "u"], a=[0, 1])),
    ],
)
def test_a_declaration_keeps_it_untold(read: Any, spec: dict[str, Any], filename: str, content: bytes) -> None:
    read(spec, filename, content)
