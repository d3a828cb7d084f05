"""Would show uploads taken for something else than what they hold: columns mixed up, records swallowed or lost.

Each of these files used to be accepted, with a data set that is not the file's. Each must be refused with its reason,
naming where it is and never what stands there, and leave nothing behind; what looks like it and is in order is taken.
"""

from __future__ import annotations

import io
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.declarations.errors import InvalidDataset
from app.declarations.spec import parse_spec
from app.storage.private_data import DenseData
from app.storage.readers import read_private
from tests.kit.noise import Noise
from tests.kit.service import JSON, Service, people, refused, register, serving, unique

pytestmark = pytest.mark.adversarial

BUDGET = {"epsilon": 1.0, "delta": 1e-6}
SECRET = "zebra-quux"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("nonsense"), noise=Noise()) as running:
        people(running)  # so that all folders are there
        yield running


def workbook(rows: list[list[Any]]) -> bytes:
    book = openpyxl.Workbook()
    for row in rows:
        book.worksheets[0].append(row)
    sink = io.BytesIO()
    book.save(sink)
    return sink.getvalue()


def parquet(columns: list[tuple[str, Any]], **how: Any) -> bytes:
    sink = io.BytesIO()
    arrays = [pa.array(values) for _, values in columns]
    pq.write_table(pa.Table.from_arrays(arrays, names=[name for name, _ in columns]), sink, **how)
    return sink.getvalue()


CODES: JSON = {"kind": "table", "attributes": [{"name": "a", "size": 3}]}
GRAPH: JSON = {"kind": "graph", "nodes": 60, "directed": True, "loops": "drop"}
MATRIX: JSON = {"kind": "matrix", "rows": 2, "columns": 2, "lower": 0, "upper": 9}
MULTISET: JSON = {"kind": "multiset"}
PAIRS: JSON = {"kind": "bipartite", "left": 2, "right": 1, "left_labels": ["a", "b"], "right_labels": ["c"]}
SPACED: JSON = {**PAIRS, "left_labels": ["a", " a"]}
YEARS: JSON = {"kind": "table", "attributes": [{"name": "age", "lower": 0, "upper": 90, "grid": 0.5}]}
LINES = b"1,x\n" * 4000

REFUSED: dict[str, tuple[JSON, str, bytes, str]] = {
    "both ends in one name": (GRAPH, "g.parquet", parquet([("node", [0, 1]), ("node", [2, 3])]), "columns 1 and 2"),
    "a weight of that name": (
        GRAPH, "g.parquet", parquet([("u", [0]), ("v", [2]), ("u", [1.0])]), "columns 1 and 3"),
    "one name twice, not asked for": (
        CODES, "t.parquet", parquet([("a", [0]), ("note", ["x"]), ("note", ["y"])]), "columns 2 and 3"),
    "a matrix with a name twice": (MATRIX, "m.parquet", parquet([("c", [0, 1]), ("c", [2, 3])]), "columns 1 and 2"),
    "an open quote, not asked for": (CODES, "t.csv", b'a,note\n0,"zebra-quux\n' + LINES, "line 2"),
    "an open quote far below": (CODES, "t.csv", b"a,note\n" + LINES + b'0,"zebra-quux\n1,x\n', "line 4002"),
    "an open quote and a closed field": (
        CODES, "t.csv", b'a,note\n0,"zebra-quux\n' + LINES + b'2,"fine"\n', "line 2"),
    "an open quote and an empty field": (CODES, "t.csv", b'a,note\n0,"zebra-quux\n' + LINES + b'2,""\n', "line 2"),
    "an open quote on the last line": (CODES, "t.csv", b'a,note\n0,x\n1,"', "line 3"),
    "text after a quote": (CODES, "t.csv", b'a,note\n0,"zebra" quux\n', "line 2"),
    "an open quote before the others": (CODES, "t.csv", b'note,a\n"zebra-quux,0\nx,1\n', "line 2"),
    "an open quote, old line ends": (CODES, "t.csv", b'a,note\r0,x\r0,"zebra-quux\r1,x\r', "line 3"),
    "an open quote between tabs": (CODES, "t.tsv", b'a\tnote\n0\t"zebra-quux\n1\tx\n', "line 2"),
    "an open quote between blanks": (PAIRS, "g.txt", b'a c\nb  "c\n', "line 2"),
    "an open quote after a mark of order": (PAIRS, "g.csv", b'\xef\xbb\xbf"a,c\nb,c\n', "line"),
    "an open quote among elements": (MULTISET, "w.csv", b'element,note\nthe,"zebra-quux\nof,x\n', "line 2"),
    "an open quote in triples": (
        {**MATRIX, "absent": 0}, "m.csv", b'row,column,value,note\n0,0,1,"zebra-quux\n1,1,1,x\n', "line 2"),
    "attributes that differ in a blank": (
        {**CODES, "attributes": [{"name": "a", "size": 3}, {"name": " a", "size": 3}]}, "t.csv", b"a, a\n0,1\n",
        "white space"),
    "an attribute that ends in a tab": ({**CODES, "attributes": [{"name": "a\t", "size": 3}]}, "t.csv", b"a\n0\n",
        "white space"),
    "an attribute of a wide blank": ({**CODES, "attributes": [{"name": "\u3000a", "size": 3}]}, "t.csv", b"a\n0\n",
        "white space"),
    "labels that differ in a blank": (SPACED, "g.csv", b"a,c\n a,c\n", "white space"),
    "columns between semicolons and commas": (
        CODES, "t.csv", b"a;note\n0,zebra-quux\n1,x\n", "row 1 has 1 field, the first line has 2"),
    "a separator behind every record": (CODES, "t.csv", b"a,note\n0,zebra-quux,\n", "row 1 has 3 fields"),
    "one name twice": (CODES, "t.csv", b"a,note,a\n0,zebra-quux,1\n", 'two columns "a"'),
    "one name twice but for blanks": (CODES, "t.csv", b"a;note; a\n0;zebra-quux;1\n", 'two columns "a"'),
    "a title above the header": (CODES, "t.csv", b"zebra-quux 2024\na,note\n0,x\n", 'no column "a"'),
    "names of columns in other letters": (CODES, "t.csv", b"A,note\n0,zebra-quux\n", 'no column "a"'),
    "a footer": (CODES, "t.csv", b"a,note\n0,x\nTotal,zebra-quux\n", 'row 2, attribute "a"'),
    "separators of thousands": (
        YEARS, "t.csv", b'age,note\n20,x\n"1,020",zebra-quux\n', "without separators of thousands"),
    "separators of thousands and decimal commas": (
        YEARS, "t.csv", b"age;note\n20,5;x\n1.020;zebra-quux\n", "a comma and others with a point"),
    "words for nothing that are not declared": (
        {"kind": "table", "attributes": [{**YEARS["attributes"][0], "missing": True}]}, "t.csv",
        b"age,note\n20,x\nN/A,zebra-quux\n", 'row 2, attribute "age"'),
    "an empty cell that is not declared": (YEARS, "t.csv", b"age,note\n20,x\n,zebra-quux\n", 'row 2, attribute "age"'),
    "a record of separators alone": (YEARS, "t.csv", b"age;note\n20;x\n;\n", 'row 2, attribute "age"'),
    "other labels throughout": (
        {"kind": "table", "attributes": [{"name": "a", "values": ["x"]}], "outside": "drop"}, "t.csv",
        b"a,note\nX,zebra-quux\n x,y\n", '2 of "a"'),
    "another encoding than declared": (
        {**CODES, "encoding": "utf-16"}, "t.csv", b"a,note\n0,zebra-quux\n1,xxx\n", "the declared encoding utf-16"),
    "an encoding that is none": ({**CODES, "encoding": "rot13"}, "t.csv", b"a\n0\n", "encoding"),
    "a word for nothing that is a value": (
        {"kind": "table", "attributes": [{"name": "a", "values": ["x", "NA"]}], "null_values": ["NA"]}, "t.csv",
        b"a,note\nx,y\n", "null_values"),
    "a word for nothing between blanks": ({**CODES, "null_values": [" NA"]}, "t.csv", b"a\n0\n", "null_values"),
    "an old workbook": (CODES, "t.xls", b"\xd0\xcf\x11\xe0zebra-quux", ".xlsx"),
    "text called a workbook": (CODES, "t.xlsx", b"a,note\n0,zebra-quux\n", "no Excel workbook"),
    "a workbook called text": (CODES, "t.csv", workbook([["a", "note"], [0, "zebra-quux"]]), "not text"),
    "a workbook with a title": (CODES, "t.xlsx", workbook([["zebra-quux"], ["a"], [0]]), 'no column "a"'),
    "a workbook that was never computed": (CODES, "t.xlsx", workbook([["a"], [0], ["=SUM(A2)"]]), "never computed"),
    "nodes that differ in a blank": (
        {"kind": "graph", "nodes": 2, "labels": ["a", "a\u00a0"]}, "g.csv", b"a,a\xc2\xa0\n", "white space"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_is_refused_with_its_reason(service: Service, what: str) -> None:
    spec, filename, data, words = REFUSED[what]
    before = service.stored()
    reply = register(service.admin, {**spec, "name": unique("new"), "budget": BUDGET}, data, filename)
    assert words in refused(reply, "invalid-dataset")["detail"]
    assert "zebra" not in reply.text
    assert "quux" not in reply.text
    assert service.stored() == before


ACCEPTED: dict[str, tuple[JSON, str, bytes, int]] = {
    "line breaks within quotes": (CODES, "t.csv", b'a,note\n0,"two\nlines, ""quoted"""\n1,x\n2,"\r\n"\n', 3),
    "quotes around everything": (CODES, "t.csv", b'\xef\xbb\xbf"a","note"\r\n"0","x"\r\n"1",""\r\n', 2),
    "a quote within a field": (CODES, "t.csv", b'a,note\n0,5" pipe\n1,6"\n2,x\n', 3),
    "a quote within a quoted field": (CODES, "t.csv", b'a,note\n0,"5"" pipe, ""6"""\n1,""""\n', 2),
    "no line break at the end": (CODES, "t.csv", b'a,note\n0,x\n1,"y"', 2),
    "blanks around a header's names": (CODES, "t.csv", b" a , note\n0,x\n", 1),
    "blanks around labels": (PAIRS, "g.csv", b"a , c\n b,c\n", 2),
    "quoted labels between blanks": (PAIRS, "g.txt", b'"a" "c"\n b\t"c"\n', 2),
    "semicolons, old line ends and a mark of order": (CODES, "t.csv", b"\xef\xbb\xbfa;note\r0;x\r\r1;y,z\r", 2),
    "a separator behind every line": (CODES, "t.csv", b"a,note,\n0,x,\n1,,\n", 2),
    "quoted separators": (CODES, "t.csv", b'note;a\n"x;y";0\n"x,y";"1"\n', 2),
    "blank lines all over": (CODES, "t.csv", b"\n\n a , note \n\n0,x\n\r\n\n1,y\n\n", 2),
    "words for nothing": (
        {"kind": "table", "null_values": ["NA", "?"], "attributes": [{"name": "a", "size": 3, "missing": True}]},
        "t.csv", b"a,note\nNA,x\n ?,y\n,z\n1,NA\n", 4),
    "half dropped": ({**CODES, "outside": "drop"}, "t.csv", b"a,note\n0,x\n9,y\n", 1),
    "a western encoding": ({**CODES, "encoding": "cp1252"}, "t.csv", "a;note\r\n0;€ é\r\n1;–\r\n".encode("cp1252"), 2),
    "a workbook with gaps": (CODES, "t.xlsx", workbook([[], ["note", "a", ""], ["x", 0], [], ["y", 2.0], []]), 2),
    "edges in two columns": (GRAPH, "g.parquet", parquet([("u", [0, 1]), ("v", [2, 3])]), 2),
    "a part of a structure of a column's name": (
        CODES, "t.parquet", parquet([("note", [{"a": 7}, {"a": 8}]), ("a", [1, 2])]), 2),
}  # fmt: skip


@pytest.mark.parametrize("what", ACCEPTED)
def test_what_is_in_order_is_taken(service: Service, what: str) -> None:
    """Would catch a check that refuses more than nonsense."""
    spec, filename, data, records = ACCEPTED[what]
    words = {**spec, "name": unique("new"), "budget": BUDGET, "records_public": True}
    reply = register(service.admin, words, data, filename)
    assert reply.status_code == 201, reply.text
    assert reply.json()["records"] == records


def read(spec: JSON, filename: str, data: bytes) -> Any:
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        parsed = parse_spec({"name": "x", "budget": BUDGET, **spec})
        return read_private(parsed, filename, Path(file.name), memory_limit=1 << 28).data


def fields_of(text: str) -> list[list[str]] | None:
    """What RFC 4180 makes of a text, sign by sign; None where a quoted field does not end with its quote."""
    records: list[list[str]] = [[""]]
    state = "start"
    for sign in text:
        if state in ("start", "plain") and sign in ",\n":
            if sign == ",":
                records[-1].append("")
            else:
                records.append([""])
            state = "start"
        elif state == "start" and sign == '"':
            state = "quoted"
        elif state in ("start", "plain"):
            records[-1][-1] += sign
            state = "plain"
        elif state == "quoted" and sign == '"':
            state = "quote"
        elif state == "quoted":
            records[-1][-1] += sign
        elif sign == '"':
            records[-1][-1] += sign
            state = "quoted"
        elif sign in ",\n":
            if sign == ",":
                records[-1].append("")
            else:
                records.append([""])
            state = "start"
        else:
            return None
    return None if state == "quoted" else [record for record in records if record != [""]]


@given(st.lists(st.sampled_from(['"', '""', ",", "\n", "0", "1", "x", '","', '"\n"', ',"']), max_size=30))
def test_records_are_those_of_the_text(pieces: list[str]) -> None:
    """Any text of quotes and ends, against a reading of it sign by sign: as many records, or a refusal."""
    text = "".join(pieces)
    records = fields_of(text)
    try:
        data: Any = read(
            {"kind": "table", "attributes": [{"name": "a", "values": ["0", "1"]}]}, "t.csv", f"a,note\n{text}".encode()
        )
    except InvalidDataset:
        assert not records or any(len(record) != 2 or record[0] not in ("0", "1") for record in records)
    else:
        assert records is not None
        counts = Counter(record[0] for record in records)
        assert data.array.tolist() == [counts["0"], counts["1"]]


@pytest.mark.parametrize("layout", ["dictionary", "plain", "second version", "groups", "checksums", "two columns"])
def test_a_flipped_byte_loses_no_record(layout: str) -> None:
    """Every eleventh byte of a Parquet file, one bit of it: as many records as before, or a refusal; where pages carry
    checksums, the same records.
    """
    rng = np.random.default_rng(7)
    values = rng.integers(0, 256, 600)
    how: dict[str, Any] = {
        "dictionary": {"data_page_size": 300},
        "plain": {"use_dictionary": False, "data_page_size": 300},
        "second version": {"use_dictionary": False, "data_page_size": 300, "data_page_version": "2.0"},
        "groups": {"row_group_size": 100},
        "checksums": {"write_page_checksum": True, "data_page_size": 300},
        "two columns": {"data_page_size": 300},
    }[layout]
    names = ["a", "b"] if layout == "two columns" else ["a"]
    file = parquet([(name, values) for name in names], **how)
    spec = {"kind": "table", "attributes": [{"name": name, "size": 256} for name in names]}
    whole = read(spec, "t.parquet", file)
    assert isinstance(whole, DenseData)
    refusals = 0
    for place in range(0, len(file), 11):
        damaged = bytearray(file)
        damaged[place] ^= 1 << int(rng.integers(8))
        try:
            found = read(spec, "t.parquet", bytes(damaged))
        except InvalidDataset:
            refusals += 1
            continue
        assert found.mass == 600, place
        if layout == "checksums":
            assert np.array_equal(found.array, whole.array), place
    assert refusals > 8


def test_rows_are_compared_with_the_footer() -> None:
    """The head of a page that says it holds fewer values than it does: each of its bytes, made a smaller number."""
    file = parquet([("a", np.zeros(100, np.int32))], use_dictionary=False, compression="none", write_statistics=False)
    spec: JSON = {"kind": "table", "attributes": [{"name": "a", "size": 1}]}
    assert read(spec, "t.parquet", file).mass == 100
    for place in range(4, 60):
        for value in (0x00, 0x02, 0x62):  # numbers below 100, as the format writes them
            damaged = bytearray(file)
            damaged[place] = value
            try:
                assert read(spec, "t.parquet", bytes(damaged)).mass == 100
            except InvalidDataset:
                continue
