"""Files as people have them: separators, decimal commas, encodings, Excel. What a file means must not depend on the
program that wrote it; what it might mean in two ways is refused.
"""

from __future__ import annotations

import csv
import datetime
import io
import itertools
import random
import struct
import time
import zipfile
from typing import Any, ClassVar, get_args

import openpyxl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.declarations.errors import InvalidDataset
from app.declarations.spec import Encoding, parse_spec
from app.storage.readers import excel as excel_module
from tests.kit.patience import patience
from tests.kit.reading import BUDGET, SECRET

pytestmark = [pytest.mark.unit, pytest.mark.slow]

JSON = dict[str, Any]
SEX: JSON = {"name": "sex", "values": ["female", "male"]}
AGE: JSON = {"name": "age", "lower": 0, "upper": 100, "grid": 0.5, "missing": True}
BORN: JSON = {"name": "born", "dates": ["1990-01-01", "1999-12-31"], "by": "year"}
TABLE: JSON = {"kind": "table", "attributes": [SEX, AGE, BORN]}
#: Records with the place of each.
ROWS = [("male", "3.5", "1990-05-01"), ("female", "100", "1999-12-31"), ("male", "", "1995-01-01")]
PLACES = [(1, 7, 0), (0, 200, 9), (1, 201, 5)]


def found(data: Any) -> list[tuple[int, ...]]:
    """The places of all records, sorted."""
    array = data.arrays()["array"]
    return sorted(at for at in map(tuple, zip(*array.nonzero(), strict=True)) for _ in range(int(array[at])))


def text(rows: Any, separator: str, **how: Any) -> str:
    buffer = io.StringIO(newline="")
    csv.writer(buffer, delimiter=separator, **how).writerows([("sex", "age", "born"), *rows])
    return buffer.getvalue()


class TestSeparators:
    @pytest.mark.parametrize(
        ("filename", "separator"),
        [
            ("t.csv", ","),
            ("t.csv", ";"),
            ("t.csv", "\t"),
            ("t.tsv", "\t"),
            ("t.txt", ";"),
            ("t.txt", "\t"),
            ("t.txt", ","),
        ],
    )
    @pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
    def test_found_from_the_header(self, read: Any, filename: str, separator: str, quoting: Any) -> None:
        content = text(ROWS, separator, quoting=quoting).encode("utf-8-sig")
        assert found(read(TABLE, filename, content)) == sorted(PLACES)

    @pytest.mark.parametrize("separator", [",", ";", "\t"])
    @given(names=st.lists(st.text(';,\t" ab', min_size=1, max_size=6).filter(lambda n: n == n.strip()), min_size=1,
                          max_size=4, unique=True))  # fmt: skip
    def test_names_that_hold_separators(self, read: Any, separator: str, names: list[str]) -> None:
        """Catches a header that is split at a name's own signs. The csv module writes it."""
        buffer = io.StringIO(newline="")
        csv.writer(buffer, delimiter=separator).writerows([names, [str(i % 3) for i in range(len(names))]])
        spec = {"kind": "table", "attributes": [{"name": name, "size": 3} for name in names]}
        assert found(read(spec, "t.csv", buffer.getvalue().encode())) == [tuple(i % 3 for i in range(len(names)))]

    def test_further_columns_do_not_decide(self, read: Any) -> None:
        content = b"note;a;b,sex;c\nx;y;z,male;u\n"
        assert read({"kind": "table", "attributes": [SEX]}, "t.csv", b"note,a;b,sex\nx,y;z,male\n").mass == 1
        one = {"kind": "table", "attributes": [{"name": "b,sex", "values": ["z,male"]}]}
        assert read(one, "t.csv", content).mass == 1

    @pytest.mark.parametrize("what", ["matrix", "multiset"])
    def test_other_kinds_with_names(self, read: Any, what: str) -> None:
        if what == "multiset":
            assert read({"kind": "multiset"}, "w.csv", b"element;count\nthe;3\na,b;2\n").mass == 5
        else:
            spec = {"kind": "matrix", "rows": 2, "columns": 2, "lower": 0, "upper": 9, "absent": 0}
            assert read(spec, "m.csv", b"row;column;value\n0;1;4\n").arrays()["array"].sum() == 4 << 10


class TestDecimalCommas:
    SPEC: JSON = {"kind": "table", "attributes": [{"name": "v", "lower": 0, "upper": 2000, "grid": 0.5}]}  # noqa: RUF012

    def test_between_semicolons(self, read: Any) -> None:
        data = read(self.SPEC, "t.csv", b"v;note\n3,5;x\n 12,0 ;y\n7;1.2\n,5;z\n-0,0;\n")
        assert found(data) == [(0,), (1,), (7,), (14,), (24,)]

    def test_points_between_semicolons(self, read: Any) -> None:
        assert found(read(self.SPEC, "t.csv", b"v;note\n3.5;x\n7;y\n")) == [(7,), (14,)]

    @pytest.mark.parametrize("block", [1 << 23, 64])
    def test_both_are_refused(self, refuse: Any, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """1.200 beside 3,5 is twelve hundred, and read as 1.2 would be in the table. In one batch and in two."""
        from app.storage.readers import columns

        monkeypatch.setattr(columns, "BLOCK_BYTES", block)
        rows = b"3,5;x\n" * 30 + b"1.200;x\n" * 30
        refuse(self.SPEC, "t.csv", b"v;note\n" + rows, "a comma and others with a point")

    @pytest.mark.parametrize("cell", ['"3,5"', '"1,200"', '"1,200.5"', "1 200", "1'200", "1_200", "1200 EUR"])
    def test_between_commas_they_are_no_numbers(self, refuse: Any, cell: str) -> None:
        """Catches a separator of thousands read as a decimal comma."""
        refuse(self.SPEC, "t.csv", f"v,note\n7,x\n{cell},{SECRET}\n".encode(), 'row 2, attribute "v"', "thousands")

    @pytest.mark.parametrize("cell", ["1.200,5", "1,200,000", "1.200.000", "3,", ",", "1,2,3"])
    def test_other_spellings_between_semicolons(self, refuse: Any, cell: str) -> None:
        refuse(self.SPEC, "t.csv", f"v;note\n{cell};{SECRET}\n".encode(), 'row 1, attribute "v"')


class TestEncodings:
    #: For each encoding a label that UTF-8 writes otherwise.
    LABELS: ClassVar[dict[str, str]] = {
        "utf-8": "é", "utf-16": "日本", "latin-1": "é", "iso-8859-1": "ß", "iso-8859-15": "€", "cp1252": "€",
        "cp1250": "ł", "cp1251": "ж", "mac-roman": "ü", "gb18030": "汉", "shift_jis": "日本", "euc-kr": "한",
        "big5": "漢",
    }  # fmt: skip

    def test_none_is_left_out(self) -> None:
        assert set(self.LABELS) == set(get_args(Encoding))

    @pytest.mark.parametrize("encoding", LABELS)
    @pytest.mark.parametrize("end", ["\n", "\r\n"])
    def test_read_as_declared(self, read: Any, refuse: Any, encoding: str, end: str) -> None:
        """Labels in the header and the cells. Catches a file that is read in another encoding."""
        label = self.LABELS[encoding]
        spec = {"kind": "table", "attributes": [{"name": f"n{label}", "values": ["x", label]}]}
        content = end.join([f"n{label},note", f"{label},{label}", "x,", f'{label},"a{end}b"', ""]).encode(encoding)
        data = read({**spec, "encoding": encoding}, "t.csv", content)
        assert data.arrays()["array"].tolist() == [1, 2]
        if encoding != "utf-8":
            refuse(spec, "t.csv", content, "UTF-8")

    @pytest.mark.parametrize(("encoding", "content"), [
        ("cp1252", b"a,n\n0,x\n1,\x81\n"), ("utf-16", "a,n\n0,x\n1,\ud800\n".encode("utf-16", "surrogatepass")),
        ("shift_jis", b"a,n\n0,x\n1,\x81"), ("gb18030", b"a,n\n0,x\n1,\xff\n"),
        ("utf-16", "a,n\n0,x\n1,".encode("utf-16")[:-1]),
    ])  # fmt: skip
    def test_what_is_not_in_it(self, refuse: Any, encoding: str, content: bytes) -> None:
        """The line is named, and no byte of it."""
        spec = {"kind": "table", "attributes": [{"name": "a", "size": 2}], "encoding": encoding}
        assert refuse(spec, "t.csv", content, encoding, "line").extra["line"] in (1, 2, 3)

    def test_text_that_grows_beyond_memory(self, refuse: Any) -> None:
        spec = {"kind": "table", "attributes": [{"name": "a", "size": 2}], "encoding": "gb18030"}
        refuse(spec, "t.csv", b"a,n\n" + "0,汉汉\n".encode("gb18030") * 9000, "memory limit", memory_limit=65_536)

    def test_only_of_text(self, read: Any) -> None:
        spec = {"kind": "table", "attributes": [{"name": "a", "size": 2}], "encoding": "utf-16"}
        assert read(spec, "t.xlsx", workbook([["a"], [1]])).mass == 1

    @pytest.mark.parametrize("encoding", ["ebcdic", "rot13", "punycode", "idna", "unicode_escape", "utf-7"])
    def test_others_cannot_be_declared(self, encoding: str) -> None:
        spec = {"name": "x", "budget": BUDGET, "kind": "table", "attributes": [SEX], "encoding": encoding}
        with pytest.raises(Exception, match="encoding"):
            parse_spec(spec)


def workbook(*sheets: list[list[Any]]) -> bytes:
    book = openpyxl.Workbook()
    book.remove(book.active)
    for rows in sheets:
        sheet = book.create_sheet()
        for row in rows:
            sheet.append(row)
    sink = io.BytesIO()
    book.save(sink)
    return sink.getvalue()


def archive(content: bytes, **members: bytes) -> bytes:
    """The same workbook with some of its members replaced; underscores stand for slashes and dots."""
    sink = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            key = name.replace("/", "_").replace(".", "_").strip("[]")
            new.writestr(name, members.get(key, old.read(name)))
    return sink.getvalue()


class TestExcel:
    def test_typed_cells(self, read: Any) -> None:
        """Numbers, dates, Booleans and texts of them. Catches a type that reads otherwise than its text."""
        attributes = [SEX, AGE, BORN, {"name": "here", "size": 2}, {"name": "code", "values": ["1", "2"]}]
        rows = [
            ["born", "sex", None, "age", "here", "code"],
            [datetime.datetime.fromisoformat("1990-05-01"), "male", "note", 3.5, True, 2],
            [],
            [datetime.date(1999, 12, 31), "female", None, 100, False, 1.0],
            [datetime.datetime.fromisoformat("1995-01-01T23:59"), "male", None, None, "TRUE", "2"],
            ["1995-01-02", "male", None, "  ", 1, "2.0"],
            [None, None, None, None, None, None],
        ]
        data = read({"kind": "table", "attributes": attributes}, "t.XLSX", workbook(rows))
        assert found(data) == [(0, 200, 9, 0, 0), (1, 7, 0, 1, 1), (1, 201, 5, 1, 1), (1, 201, 5, 1, 1)]

    def test_formulas_are_what_was_last_computed(self, read: Any) -> None:
        sheet = (
            b'<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>'
            b'<row r="1"><c r="A1" t="inlineStr"><is><t>a</t></is></c></row>'
            b'<row r="2"><c r="A2"><f>1+1</f><v>2</v></c></row></sheetData></worksheet>'
        )
        content = archive(workbook([["a"]]), xl_worksheets_sheet1_xml=sheet)
        spec = {"kind": "table", "attributes": [{"name": "a", "size": 3}]}
        assert read(spec, "t.xlsx", content).arrays()["array"].tolist() == [0, 0, 1]

    @pytest.mark.parametrize(
        ("cell", "computed"),
        [
            (b'<c r="A2"><f>1+1</f></c>', False),
            (b'<c r="A2" s="1"><f>1+1</f><v/></c>', False),
            (b'<c r="A2"><f t="shared" si="0"/><v></v></c>', False),
            (b'<c r="A2" t="str"><f>IF(1,"","x")</f><v></v></c>', True),
            (b'<c r="A2"><f t="shared" si="0"/><v>1</v></c>', True),
        ],
    )
    def test_formulas_that_were_never_computed(self, read: Any, refuse: Any, cell: bytes, computed: bool) -> None:
        """A program that is no spreadsheet writes them without a value. Catches records that are lost."""
        spec = {"kind": "table", "attributes": [{"name": "a", "size": 3, "missing": True}, {"name": "n", "size": 2}]}
        content = workbook([["a", "n"], [1, 1]])
        sheet = zipfile.ZipFile(io.BytesIO(content)).read("xl/worksheets/sheet1.xml")
        formula = archive(content, xl_worksheets_sheet1_xml=sheet.replace(b'<c r="A2" t="n"><v>1</v></c>', cell))
        assert formula != content
        if computed:
            assert read(spec, "t.xlsx", formula).mass == 1
        else:
            refuse(spec, "t.xlsx", formula, "never computed")

    def test_the_first_sheet(self, read: Any, refuse: Any) -> None:
        spec = {"kind": "table", "attributes": [{"name": "a", "size": 3}]}
        assert read(spec, "t.xlsx", workbook([["a"], [1]], [["a"], [2], [2]])).mass == 1
        refuse(spec, "t.xlsx", workbook([[SECRET]], [["a"], [2]]), 'no column "a"')
        refuse(spec, "t.xlsx", workbook([], [["a"], [2]]), "first sheet of the workbook is empty")
        refuse(spec, "t.xlsx", workbook([["a", None]]), "no records")
        refuse(spec, "t.xlsx", workbook([["a", "a"], [1, 1]]), 'two columns "a"')

    def test_problems_have_their_rows(self, refuse: Any) -> None:
        rows = [["a", "n"], *([i % 3, "x"] for i in range(50)), [SECRET, "x"], ["#N/A", "x"]]
        error = refuse({"kind": "table", "attributes": [{"name": "a", "size": 3}]}, "t.xlsx", workbook(rows), "row 51")
        assert error.extra["outside"] == {"a": 2}

    def test_other_kinds(self, read: Any, refuse: Any) -> None:
        assert read({"kind": "multiset"}, "w.xlsx", workbook([["element", "count"], ["the", 3], ["of", 1]])).mass == 4
        spec = {"kind": "matrix", "rows": 2, "columns": 2, "lower": 0, "upper": 9, "absent": 0}
        assert read(spec, "m.xlsx", workbook([["row", "column", "value"], [0, 1, 4.5]])).arrays()["array"].sum() == 4608
        refuse({"kind": "graph", "nodes": 4}, "g.xlsx", workbook([[0, 1]]), ".xlsx")

    def test_many_rows(self, read: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """More than a batch. Catches rows lost or counted twice between batches."""
        monkeypatch.setattr(excel_module, "BATCH_CELLS", 14)
        rows = [["a", "b"], *([i % 5, i % 7] for i in range(500))]
        spec = {"kind": "table", "attributes": [{"name": "b", "size": 7}, {"name": "a", "size": 5}]}
        counts = read(spec, "t.xlsx", workbook(rows)).arrays()["array"]
        assert [[int(n) for n in row] for row in counts] == [
            [sum(i % 7 == b and i % 5 == a for i in range(500)) for a in range(5)] for b in range(7)
        ]

    @pytest.mark.parametrize(
        "content", [b"a\n1\n", b"PK\3\4junk", b"PK\5\6" + bytes(18), b"\xd0\xcf\x11\xe0" + bytes(600)]
    )
    def test_what_is_no_workbook(self, refuse: Any, content: bytes) -> None:
        refuse({"kind": "table", "attributes": [{"name": "a", "size": 3}]}, "t.xlsx", content, "no Excel workbook")

    def test_damage_anywhere(self, read: Any) -> None:
        """Each seventeenth byte flipped: the same records, or a refusal; no other error, which may quote a value."""
        content = workbook([["a", "n"], *([i % 3, f"{SECRET}{i}"] for i in range(9))])
        spec = {"kind": "table", "attributes": [{"name": "a", "size": 3}]}
        refusals: list[InvalidDataset] = []
        for at in range(0, len(content), 17):
            broken = bytearray(content)
            broken[at] ^= 0x15
            try:
                assert read(spec, "t.xlsx", bytes(broken)).mass == 9
            except InvalidDataset as refusal:
                refusals.append(refusal)
        assert len(refusals) > 40
        for error in refusals:
            assert SECRET not in f"{error.detail} {error.extra}"
            assert error.__cause__ is None
            assert error.__context__ is None

    def test_a_date_that_is_none_is_not_printed(
        self, refuse: Any, recwarn: pytest.WarningsRecorder, capfd: pytest.CaptureFixture[str]
    ) -> None:
        """The library would warn of it with its number."""
        book = openpyxl.Workbook()
        book.active.append(["born"])
        book.active.append([datetime.date(1990, 1, 1)])
        sink = io.BytesIO()
        book.save(sink)
        sheet = zipfile.ZipFile(io.BytesIO(sink.getvalue())).read("xl/worksheets/sheet1.xml")
        assert b"<v>32874</v>" in sheet
        content = archive(sink.getvalue(), xl_worksheets_sheet1_xml=sheet.replace(b"32874", b"99987654321"))
        refuse({"kind": "table", "attributes": [BORN]}, "t.xlsx", content, "row 1")
        assert not [warning for warning in recwarn if "9998765" in str(warning.message)]
        assert "9998765" not in "".join(capfd.readouterr())


class TestExcelBombs:
    SPEC: JSON = {"kind": "table", "attributes": [{"name": "a", "size": 3}]}  # noqa: RUF012
    HEAD = b'<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>'
    TAIL = b"</sheetData></worksheet>"
    NAMES = b'<row r="1"><c r="A1" t="inlineStr"><is><t>a</t></is></c></row>'

    def sheet(self, rows: bytes) -> bytes:
        return archive(workbook([["a"]]), xl_worksheets_sheet1_xml=self.HEAD + self.NAMES + rows + self.TAIL)

    def test_what_unpacks_beyond_memory(self, refuse: Any) -> None:
        content = self.sheet(b"<row><c/></row>" * 400_000)
        assert len(content) < 100_000
        refuse(self.SPEC, "t.xlsx", content, "unpacks to 6,0", "CURATOR_MEMORY_LIMIT")

    def test_a_size_that_is_not_true(self, refuse: Any) -> None:
        """The directory says that a member is small. Catches memory taken by what it does not say."""
        content = bytearray(self.sheet(b"<row><c/></row>" * 400_000))
        large = struct.pack("<I", len(self.HEAD + self.NAMES + self.TAIL) + 15 * 400_000)
        assert content.count(large) == 2
        refuse(self.SPEC, "t.xlsx", bytes(content.replace(large, struct.pack("<I", 400))), "damaged")

    @pytest.mark.parametrize(
        "rows",
        [
            b'<row r="1099511627776"><c r="A1099511627776"><v>1</v></c></row>',
            b'<row r="2"><c r="A2"><v>1</v></c></row><row r="99999999"><c r="A99999999"><v>1</v></c></row>',
        ],
    )
    def test_a_row_far_away(self, refuse: Any, rows: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
        """Catches a reader that passes every empty row between."""
        monkeypatch.setattr(excel_module, "MOST_CELLS", 100_000)
        started = time.monotonic()
        refuse(self.SPEC, "t.xlsx", self.sheet(rows), "more than 100,000 cells")
        assert time.monotonic() - started < patience(20)

    def test_a_cell_far_away(self, read: Any) -> None:
        """Only columns that have a name are read."""
        content = self.sheet(b'<row r="2"><c r="A2"><v>1</v></c><c r="XFD2"><v>7</v></c></row>')
        assert read(self.SPEC, "t.xlsx", content).mass == 1

    def test_entities(self, refuse: Any) -> None:
        """A text that refers to itself ten times, nine times over."""
        names = [f"e{i}" for i in range(10)]
        inner = [f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in itertools.pairwise(names)]
        kinds = f'<!DOCTYPE x [<!ENTITY e0 "{"z" * 40}">{"".join(inner)}]>'.encode()
        rows = b'<row r="2"><c r="A2" t="inlineStr"><is><t>&e9;</t></is></c></row>'
        sheet = b'<?xml version="1.0"?>' + kinds + self.HEAD + self.NAMES + rows + self.TAIL
        refuse(self.SPEC, "t.xlsx", archive(workbook([["a"]]), xl_worksheets_sheet1_xml=sheet), "damaged")


def test_one_table_in_every_format(read: Any) -> None:
    """The same records as commas, semicolons with decimal commas, tabs in UTF-16, and Excel: the same counts."""
    rng = random.Random(7)
    rows = [
        (
            rng.choice(["female", "male"]),
            rng.choice(["", f"{rng.randrange(200) / 2:g}"]),
            f"199{rng.randrange(10)}-03-04",
        )
        for _ in range(300)
    ]
    european = [(sex, age.replace(".", ","), born) for sex, age, born in rows]
    files: dict[str, bytes] = {
        "a.csv": text(rows, ",").encode(),
        "b.csv": text(european, ";").encode("utf-8-sig"),
        "c.xlsx": workbook([["sex", "age", "born"], *([s, float(a) if a else None, b] for s, a, b in rows)]),
    }
    counts = [found(read(TABLE, name, content)) for name, content in files.items()]
    counts.append(found(read({**TABLE, "encoding": "utf-16"}, "d.txt", text(rows, "\t").encode("utf-16"))))
    assert len(counts[0]) == 300
    assert all(other == counts[0] for other in counts)
