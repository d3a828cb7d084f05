"""Reading tables. The oracle is the plain one: the csv module, a dictionary of counts, exact fractions for
bins.

It would catch wrong bin ends, records lost at batch borders or behind quotes, columns mixed up, and counts
put into the wrong cell of the array. The refusals are checked to name the place and to withhold the value.
"""

import contextlib
import csv
import io
import itertools
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from app.declarations.errors import InvalidDataset
from app.storage.private_data import RecordsData
from app.storage.readers import columns as columns_module
from app.storage.readers import tables as tables_module

pytestmark = [pytest.mark.unit, pytest.mark.slow]

SEX = {"name": "sex", "values": ["female", "male"]}
CODE = {"name": "workclass", "size": 9}
AGE = {"name": "age", "lower": 15, "upper": 95, "bins": 16}
TABLE = {"kind": "table", "attributes": [SEX, CODE, AGE]}


def position(attribute: dict[str, Any], text: str) -> int | None:
    """Where a cell belongs by the contract's words, None outside of the domain."""
    if "values" in attribute:
        words = [str(value) for value in attribute["values"]]
        return words.index(text) if text in words else None
    try:
        value = Fraction(text)
    except ValueError:
        return None
    if "size" in attribute:
        return int(value) if value.denominator == 1 and 0 <= value < attribute["size"] else None
    if "edges" in attribute:
        edges = [Fraction(str(edge)) for edge in attribute["edges"]]
    else:
        low, high = Fraction(str(attribute["lower"])), Fraction(str(attribute["upper"]))
        edges = [low + (high - low) * i / attribute["bins"] for i in range(attribute["bins"] + 1)]
    for i, (left, right) in enumerate(itertools.pairwise(edges)):
        if left <= value < right or (i == len(edges) - 2 and value == right):
            return i
    return None


def oracle(attributes: list[dict[str, Any]], text: str, delimiter: str = ",") -> Counter[tuple[int, ...]]:
    """Counts a cell of the records inside of the domain."""
    counts: Counter[tuple[int, ...]] = Counter()
    for record in csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter):
        cell = [position(attribute, record[attribute["name"]]) for attribute in attributes]
        if None not in cell:
            counts[tuple(cell)] += 1  # type: ignore[arg-type]
    return counts


def cells(array: Any) -> dict[tuple[int, ...], int]:
    return {tuple(map(int, at)): int(array[tuple(at)]) for at in np.argwhere(array)}


names = st.text("abcdefgh ._-é\"'", min_size=1, max_size=6).filter(lambda name: name == name.strip())
words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), min_size=1, max_size=5)
tenths = st.integers(-500, 500).map(lambda number: f"{number / 10:g}")


@st.composite
def attributes_and_text(draw: st.DrawFn) -> tuple[list[dict[str, Any]], str]:
    """A declaration and a CSV file with records inside and outside of it, with further columns and any
    order.
    """
    titles = draw(st.lists(names, min_size=2, max_size=5, unique=True))
    attributes: list[dict[str, Any]] = []
    strategies: dict[str, st.SearchStrategy[str]] = {}
    for title in titles[:-1]:
        match draw(st.sampled_from(["size", "values", "integers", "bins", "edges"])):
            case "size":
                attributes.append({"name": title, "size": draw(st.integers(1, 6))})
                strategies[title] = st.integers(-1, 6).map(str)
            case "values":
                values = draw(st.lists(words, min_size=1, max_size=4, unique=True))
                attributes.append({"name": title, "values": values})
                strategies[title] = st.sampled_from([*values, "neither"])
            case "integers":
                numbers = draw(st.lists(st.integers(-50, 50), min_size=1, max_size=4, unique=True))
                attributes.append({"name": title, "values": numbers})
                strategies[title] = st.sampled_from([*map(str, numbers), "77"])
            case "bins":
                low = draw(st.integers(-300, 300))
                high = low + draw(st.integers(1, 300))
                attributes.append(
                    {"name": title, "lower": low / 10, "upper": high / 10, "bins": draw(st.integers(1, 7))}
                )
                strategies[title] = st.one_of(tenths, st.sampled_from([str(low / 10), str(high / 10), "", "x"]))
            case "edges":
                edges = sorted(draw(st.sets(st.integers(-300, 300), min_size=2, max_size=6)))
                attributes.append({"name": title, "edges": [edge / 10 for edge in edges]})
                strategies[title] = st.one_of(tenths, st.sampled_from([str(edge / 10) for edge in edges]))
    strategies[titles[-1]] = st.text(st.sampled_from('ab,"\n é'), max_size=6)  # not declared, so dropped
    order = draw(st.permutations(titles))
    records = draw(st.lists(st.tuples(*(strategies[title] for title in order)), min_size=1, max_size=30))
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator=draw(st.sampled_from(["\n", "\r\n"])))
    writer.writerows([order, *records])
    return attributes, buffer.getvalue()


class TestText:
    @given(attributes_and_text(), st.booleans())
    def test_against_the_csv_module(
        self, read: Any, refuse: Any, case: tuple[list[dict[str, Any]], str], bom: bool
    ) -> None:
        attributes, text = case
        spec = {"kind": "table", "attributes": attributes, "outside": "drop"}
        content = (b"\xef\xbb\xbf" if bom else b"") + text.encode()
        expected = oracle(attributes, text)
        if not expected:
            refuse(spec, "upload.CSV", content, "every one of the")
            return
        data = read(spec, "upload.CSV", content)
        assert cells(data.array) == expected
        assert data.mass == expected.total()

    @given(attributes_and_text())
    def test_records_that_are_kept(self, read: Any, case: tuple[list[dict[str, Any]], str]) -> None:
        """The records of the file in its order, as the csv module has them. Would catch columns that are out of step,
        and a position that does not fit into the bytes of its column."""
        attributes, text = case
        assume(oracle(attributes, text))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tables_module, "MOST_COUNTED", 0)
            data = read({"kind": "table", "attributes": attributes, "outside": "drop"}, "upload.csv", text.encode())
        assert isinstance(data, RecordsData)
        expected = [
            [position(attribute, record[attribute["name"]]) for attribute in attributes]
            for record in csv.DictReader(io.StringIO(text, newline=""))
        ]
        inside = [record for record in expected if None not in record]
        assert list(map(list, zip(*(column.tolist() for column in data.columns), strict=True))) == inside
        assert data.mass == len(inside)

    def test_positions_on_long_axes(self, read: Any) -> None:
        """On either side of one byte and of two. Would catch positions that wrap in the column they are kept in."""
        lengths = {"a": 256, "b": 257, "c": 65_536, "d": 65_537}
        spec = {"kind": "table", "attributes": [{"name": name, "size": size} for name, size in lengths.items()]}
        rows = [[size - 1 for size in lengths.values()], [255, 256, 255, 65_536], [0, 0, 256, 256]]
        text = "\n".join([",".join(lengths), *(",".join(map(str, row)) for row in rows)])
        data = read(spec, "r.csv", text.encode())
        assert [column.tolist() for column in data.columns] == [list(column) for column in zip(*rows, strict=True)]
        assert [column.itemsize for column in data.columns] == [1, 2, 2, 4]

    def test_more_records_than_fit(self, read: Any, refuse: Any) -> None:
        """Would catch a file that takes more memory than there is, and a limit that counts eight bytes a position."""
        spec = {"kind": "table", "attributes": [{"name": f"a{i}", "size": 200} for i in range(4)]}
        line = ",".join(["7"] * 4) + "\n"
        header = ",".join(f"a{i}" for i in range(4)) + "\n"
        limit = 1 << 20
        fits = (header + line * (limit // 8)).encode()
        assert read(spec, "r.csv", fits, limit).mass == limit // 8
        refuse(spec, "r.csv", fits + line.encode(), "131072 records", "CURATOR_MEMORY_LIMIT", memory_limit=limit)

    @given(attributes_and_text())
    def test_refuses_exactly_what_drop_would_drop(
        self, read: Any, refuse: Any, case: tuple[list[dict[str, Any]], str]
    ) -> None:
        """The rows and attributes named are those that the oracle finds outside, the first of them first, all of them
        counted. Would catch a reader that stops at the first, one that counts what it tells alone, and another order.
        """
        attributes, text = case
        spec = {"kind": "table", "attributes": attributes}
        bad = [
            (row, a["name"])
            for row, record in enumerate(csv.DictReader(io.StringIO(text, newline="")), start=1)
            for a in attributes
            if position(a, record[a["name"]]) is None
        ]
        if bad:
            (row, name), counts = bad[0], Counter(name for _, name in bad)
            error = refuse(spec, "upload.csv", text.encode(), f'row {row}, attribute "{name}"')
            assert error.extra.keys() == {"row", "attribute", "problems", "outside"}
            assert (error.extra["row"], error.extra["attribute"]) == bad[0]
            assert [(p["row"], p["attribute"]) for p in error.extra["problems"]] == bad[:20]
            assert error.extra["outside"] == counts
            return
        assert cells(read(spec, "upload.csv", text.encode()).array) == oracle(attributes, text)

    def test_many_batches(self, read: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """Small blocks, so that records, quotes and row numbers cross their borders."""
        monkeypatch.setattr(columns_module, "BLOCK_BYTES", 300)
        lines = [f'{"female" if i % 3 else "male"},{i % 9},{15 + i % 81},"line\n{i}"' for i in range(2000)]
        text = "\n".join(["sex,workclass,age,note", *lines])
        assert cells(read(TABLE, "a.csv", text.encode()).array) == oracle(TABLE["attributes"], text)

    def test_row_numbers_beyond_the_first_batch(self, refuse: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(columns_module, "BLOCK_BYTES", 300)
        lines = ["male,1,20"] * 1500
        lines[1233] = "male,1,s3cr3t"
        text = "\n".join(["sex,workclass,age", *lines]).encode()
        refuse(TABLE, "a.csv", text, 'row 1234, attribute "age"')
        ragged = text.replace(b"s3cr3t", b"20,s3cr3t")
        refuse(TABLE, "a.csv", ragged, "row 1234 has 4 fields, the first line has 3")
        refuse(TABLE, "a.csv", text.replace(b"male,1,s3cr3t", b"ma\xffle,1,20"), "row 1234 is not valid UTF-8")

    @pytest.mark.parametrize(("suffix", "mark"), [(".tsv", "\t"), (".txt", "\t"), (".txt", ","), (".txt", "  ")])
    def test_other_separators(self, read: Any, suffix: str, mark: str) -> None:
        text = f"sex{mark}workclass{mark}age\nmale{mark}3{mark}30\n"
        assert cells(read(TABLE, "a" + suffix, text.encode()).array) == {(1, 3, 3): 1}

    @pytest.mark.parametrize("number", ["30", "30.0", "3e1", " 30 ", "+30", "30."])
    def test_spellings_of_a_number(self, read: Any, number: str) -> None:
        assert cells(read(TABLE, "a.csv", f"sex,workclass,age\nmale,3.0,{number}".encode()).array) == {(1, 3, 3): 1}

    def test_bin_ends(self, read: Any) -> None:
        """Half-open, the last closed; 0.3 in tenths of [0, 1] opens the fourth bin though 3 * 0.1 > 0.3 in
        floats.
        """
        spec = {"kind": "table", "attributes": [{"name": "v", "lower": 0, "upper": 1, "bins": 10}]}
        data = read(spec, "a.csv", b"v\n0.3\n0.7\n1\n0\n0.6\n")
        assert data.array.tolist() == [1, 0, 0, 1, 0, 0, 1, 1, 0, 1]

    def test_blank_lines_are_no_records(self, read: Any) -> None:
        assert read(TABLE, "a.csv", b"\n\nsex,workclass,age\n\nmale,1,20\n\n\n").mass == 1


class TestRefusals:
    HEADER = b"sex,workclass,age\n"

    @pytest.mark.parametrize(
        ("record", "attribute"),
        [
            ("s3cr3t,1,20", "sex"),
            ("Male,1,20", "sex"),
            (" male,1,20", "sex"),
            (",1,20", "sex"),
            ("male,s3cr3t,20", "workclass"),
            ("male,9,20", "workclass"),
            ("male,-1,20", "workclass"),
            ("male,1.5,20", "workclass"),
            ("male,,20", "workclass"),
            ("male,NaN,20", "workclass"),
            ("male,99999999999999999999999,20", "workclass"),
            ("male,1,14.999", "age"),
            ("male,1,95.001", "age"),
            ("male,1,inf", "age"),
            ("male,1,nan", "age"),
            ("male,1,", "age"),
            ("male,1,0x20", "age"),
            ("male,1,2_0", "age"),
            ("male,1,1e999", "age"),
        ],
    )
    def test_outside_the_domain(self, read: Any, refuse: Any, record: str, attribute: str) -> None:
        """Refused with its place, and dropped alone where declared."""
        content = self.HEADER + b"male,1,20\n" + record.encode() + b"\nfemale,0,20\n"
        refuse(TABLE, "a.csv", content, f'row 2, attribute "{attribute}"', '"outside": "drop"')
        assert read({**TABLE, "outside": "drop"}, "a.csv", content).mass == 2

    @pytest.mark.parametrize(
        ("content", "needle"),
        [
            (b"", "empty"),
            (b"\n\n \n", "blank lines"),
            (b"sex,workclass,age", "no records"),
            (b"sex,workclass,age\n", "no records"),
            (b"sex,age\nmale,s3cr3t\n", 'no column "workclass"'),
            (b"s3cr3t,1,20\nmale,2,30\n", 'no column "sex"'),
            (b"sex|workclass|age\nmale|1|20\n", 'no column "sex"'),
            (b"sex;workclass;age\nmale;1\n", "row 1 has 2 fields, the first line has 3"),
            (b"sex;workclass;age\nmale;1;20;\n", "row 1 has 4 fields, the first line has 3"),
            (b"sex,workclass,age,age\nmale,1,20,s3cr3t\n", 'two columns "age"'),
            (b"sex,workclass,age\nmale,1\n", "row 1 has 2 fields, the first line has 3"),
            (b"sex,workclass,age\nmale,1,20\nmale,1,20,s3cr3t\n", "row 2 has 4 fields, the first line has 3"),
            (b'sex,workclass,age\nmale,1,20\n"s3cr3t,1,20\nmale,1,20\n', "a quote in line 3"),
            (b"sex,workclass,age\nmale,1,20\ns3cr3t\xff,1,20\n", "row 2 is not valid UTF-8"),
            (b"s\xe9x,workclass,age\nmale,1,20\n", "first line is not valid UTF-8"),
            ("sex,workclass,age\nmale,1,20\n".encode("utf-16"), "UTF-16"),
            (b"PK\3\4\0\0\0\0", "not text"),
        ],
    )
    def test_broken_text(self, refuse: Any, content: bytes, needle: str) -> None:
        refuse(TABLE, "a.csv", content, needle)

    def test_an_empty_line_is_a_missing_cell_where_there_is_one_column(self, refuse: Any) -> None:
        refuse(
            {"kind": "table", "attributes": [SEX]},
            "a.csv",
            b"sex\nmale\n\nfemale\n",
            'row 2, attribute "sex"',
        )

    def test_unclosed_quote_over_more_than_a_block(self, refuse: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(columns_module, "BLOCK_BYTES", 1000)
        refuse(TABLE, "a.csv", self.HEADER + b'male,1,20\n"s3cr3t,1,20\n' + b"male,1,20\n" * 1000, "quote")

    @pytest.mark.parametrize("name", ["a", "a.xls", "a.ods", "a.csv.gz", ".csv"])
    def test_unknown_format(self, refuse: Any, name: str) -> None:
        refuse(TABLE, name, self.HEADER, ".parquet")

    def test_capacity(self, read: Any, refuse: Any) -> None:
        spec = {**TABLE, "capacity": 2}
        assert read(spec, "a.csv", self.HEADER + b"male,1,20\n" * 2).mass == 2
        refuse(spec, "a.csv", self.HEADER + b"male,1,20\n" * 3, "capacity of 2")

    def test_universe_beyond_memory(self, refuse: Any) -> None:
        """An array of all cells is refused, and records that would be counted in more cells than fit."""
        spec = {"kind": "table", "attributes": [{"name": name, "size": 1000} for name in "abcd"]}
        refuse(spec, "a.npy", b"0", "1000000000000 cells", "leave out attributes", "or give the records")
        spec = {"kind": "table", "attributes": [{"name": name, "size": 1000} for name in "ab"]}
        refuse(spec, "a.csv", b"a,b\n0,0\n", "1000000 cells", "leave out attributes", memory_limit=1 << 18)


class TestNumberType:
    """The type of the counts follows from the declared capacity, never from the data: it would tell their
    size.
    """

    @pytest.mark.parametrize(
        ("capacity", "dtype"),
        [(255, "uint8"), (256, "uint16"), (65536, "int32"), (None, "int32"), (2**31, "int64")],
    )
    @pytest.mark.parametrize("records", [1, 200])
    def test_follows_from_capacity(self, read: Any, capacity: int | None, dtype: str, records: int) -> None:
        spec = {"kind": "table", "attributes": [SEX], **({} if capacity is None else {"capacity": capacity})}
        assert read(spec, "a.csv", b"sex\n" + b"male\n" * records).array.dtype == dtype


def parquet(columns: dict[str, Any], **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink, **options)
    return sink.getvalue()


class TestParquet:
    @pytest.mark.parametrize(
        ("sex", "code", "age"),
        [
            (pa.array(["male", "female"]), pa.array([3, 0], pa.int8()), pa.array([30.0, 95.0])),
            (
                pa.array(["male", "female"]).dictionary_encode(),
                pa.array([3, 0], pa.uint64()),
                pa.array([30, 95]),
            ),
            (pa.array(["male", "female"], pa.large_string()), pa.array([3.0, 0.0]), pa.array(["30", "95"])),
            (
                pa.array(["male", "female"], pa.string_view()),
                pa.array(["3", "0"]).dictionary_encode(),
                pa.array([30, 95]).cast(pa.decimal128(25, 3)),
            ),
        ],
    )
    def test_types(self, read: Any, sex: Any, code: Any, age: Any) -> None:
        content = parquet({"note": ["x", "y"], "age": age, "workclass": code, "sex": sex})
        assert cells(read(TABLE, "a.parquet", content).array) == {(1, 3, 3): 1, (0, 0, 15): 1}

    def test_integer_categories(self, read: Any, refuse: Any) -> None:
        spec = {"kind": "table", "attributes": [{"name": "v", "values": [7, -2, 40]}]}
        for column in (pa.array([7, 40, 7]), pa.array([7.0, 40.0, 7.0]), pa.array(["7", "40", "7.0"])):
            assert read(spec, "a.parquet", parquet({"v": column})).array.tolist() == [2, 0, 1]
        refuse(spec, "a.parquet", parquet({"v": pa.array([7, 41])}), 'row 2, attribute "v"')

    def test_booleans(self, read: Any) -> None:
        spec = {
            "kind": "table",
            "attributes": [{"name": "v", "size": 2}, {"name": "w", "values": ["true", "false"]}],
        }
        column = pa.array([True, False, True])
        assert read(spec, "a.parquet", parquet({"v": column, "w": column})).array.tolist() == [[0, 1], [2, 0]]

    @pytest.mark.parametrize("row_group_size", [7, 1000])
    def test_rows_across_groups(
        self, read: Any, refuse: Any, row_group_size: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(columns_module, "BATCH_ROWS", 10)
        codes = [i % 9 for i in range(100)]
        spec = {"kind": "table", "attributes": [CODE]}
        content = parquet({"workclass": codes}, row_group_size=row_group_size)
        assert read(spec, "a.parquet", content).array.tolist() == [codes.count(i) for i in range(9)]
        codes[73] = 9
        content = parquet({"workclass": codes}, row_group_size=row_group_size)
        refuse(spec, "a.parquet", content, 'row 74, attribute "workclass"')

    def test_missing_cells_are_outside(self, read: Any, refuse: Any) -> None:
        columns = {"sex": ["male", None, "male"], "workclass": [1, 2, 3], "age": [20, 20, 20]}
        refuse(TABLE, "a.parquet", parquet(columns), 'row 2, attribute "sex"')
        columns = {"sex": ["male"] * 3, "workclass": [1, None, 3], "age": [20, 20, None]}
        refuse(TABLE, "a.parquet", parquet(columns), 'row 2, attribute "workclass"')
        assert read({**TABLE, "outside": "drop"}, "a.parquet", parquet(columns)).mass == 1
        refuse(TABLE, "a.parquet", parquet({**columns, "age": pa.nulls(3)}), 'row 1, attribute "age"')

    def test_truncated_and_damaged(self, refuse: Any) -> None:
        content = parquet({"sex": ["s3cr3t"] * 50, "workclass": [1] * 50, "age": [20] * 50}, compression="none")
        for broken in (content[:-10], content[: len(content) // 2], content[4:], b"PAR1", b"sex\ns3cr3t\n"):
            refuse(TABLE, "a.parquet", broken, "truncated or damaged")

    def test_every_flipped_byte_is_read_or_refused(self, read: Any) -> None:
        """No damage may surface as another error, which would be a fault of the server with a value in it."""
        content = parquet({"sex": ["male", "female"] * 9, "workclass": [1] * 18, "age": [20] * 18})
        for at in range(0, len(content), 3):
            broken = bytearray(content)
            broken[at] ^= 0x55
            with contextlib.suppress(InvalidDataset):
                read(TABLE, "a.parquet", bytes(broken))

    def test_other_refusals(self, refuse: Any) -> None:
        import datetime

        columns: dict[str, Any] = {"sex": ["male"], "workclass": [1], "age": [20]}
        refuse(TABLE, "a.parquet", parquet({"sex": ["male"], "age": [1]}), 'no column "workclass"')
        refuse(TABLE, "a.parquet", parquet({**columns, "age": [datetime.date(2000, 1, 1)]}), "date32")
        refuse(TABLE, "a.parquet", parquet({**columns, "age": [[1, 2]]}), "lists")
        refuse(TABLE, "a.parquet", parquet(dict.fromkeys(columns, pa.array([], pa.int64()))), "no records")
        refuse(
            {**TABLE, "capacity": 3},
            "a.parquet",
            parquet({k: v * 4 for k, v in columns.items()}),
            "capacity of 3",
        )

    def test_dictionary_bomb(self, refuse: Any, read: Any) -> None:
        """2 MiB of text repeated 100,000 times is 200 GiB unpacked, and is never unpacked."""
        value = "x" * (2 << 20)
        column = pa.DictionaryArray.from_arrays(np.zeros(100_000, np.int32), pa.array([value]))
        content = parquet({"sex": column}, compression="zstd")
        refuse({"kind": "table", "attributes": [SEX]}, "a.parquet", content, "row 1")


SHAPE = {"kind": "table", "attributes": [CODE, AGE]}


class TestCounts:
    @staticmethod
    def npy(array: Any, **options: Any) -> bytes:
        sink = io.BytesIO()
        np.save(sink, array, **options)
        return sink.getvalue()

    @staticmethod
    def npz(**arrays: Any) -> bytes:
        sink = io.BytesIO()
        np.savez_compressed(sink, **arrays)
        return sink.getvalue()

    @pytest.mark.parametrize("dtype", ["u1", "i8", ">i4", "f8", "f2", "?", "<u2"])
    @pytest.mark.parametrize("order", ["C", "F"])
    def test_types_and_orders(self, read: Any, dtype: str, order: str) -> None:
        wanted = [[(i * 16 + j) % 2 for j in range(16)] for i in range(9)]
        array = np.array(wanted, dtype=dtype, order=order)
        for name, content in (("a.npy", self.npy(array)), ("a.npz", self.npz(counts=array))):
            data = read(SHAPE, name, content)
            assert data.array.tolist() == wanted
            assert data.mass == sum(map(sum, wanted))
            assert data.array.dtype == np.int32

    @pytest.mark.parametrize(
        ("entry", "needle"),
        [
            (-1.0, "negative"),
            (np.nan, "not a finite number"),
            (np.inf, "not a finite"),
            (0.5, "not whole"),
            (1e300, "capa"),
        ],
    )
    def test_entries_that_are_no_counts(self, refuse: Any, entry: float, needle: str) -> None:
        array = np.zeros((9, 16))
        array[7, 3] = entry
        refuse(SHAPE, "a.npy", self.npy(array), needle)
        refuse(SHAPE, "a.npz", self.npz(a=array), needle)

    def test_integers_that_are_no_counts(self, refuse: Any) -> None:
        refuse(SHAPE, "a.npy", self.npy(np.full((9, 16), -1)), "negative")
        refuse(SHAPE, "a.npy", self.npy(np.full((9, 16), 2**64 - 1, np.uint64)), "capacity")
        refuse(
            SHAPE,
            "a.npy",
            self.npy(np.full((9, 16), 2**30)),
            "add up to more than the declared capacity",
        )

    @pytest.mark.parametrize("shape", [(16, 9), (144,), (9, 16, 1), (9, 15), (0,), ()])
    def test_other_shapes(self, refuse: Any, shape: tuple[int, ...]) -> None:
        refuse(SHAPE, "a.npy", self.npy(np.zeros(shape, int)), "declared is 9 x 16")
        refuse(SHAPE, "a.npz", self.npz(a=np.zeros(shape, int)), "declared is 9 x 16")

    def test_pickles_are_never_loaded(self, refuse: Any) -> None:
        class Trap:
            def __reduce__(self) -> Any:
                return pytest.fail, ("a pickle was loaded",)

        trap = np.full((9, 16), None, object)
        trap[0, 0] = Trap()
        refuse(SHAPE, "a.npy", self.npy(trap, allow_pickle=True), "objects")
        refuse(SHAPE, "a.npz", self.npz(a=trap), "objects")

    @pytest.mark.parametrize("dtype", ["c16", "U3", "S2", "M8[D]", [("a", "i4"), ("b", "f4")]])
    def test_other_types(self, refuse: Any, dtype: Any) -> None:
        refuse(SHAPE, "a.npy", self.npy(np.zeros((9, 16), dtype)), "plain integers or floats")

    def test_truncated_or_padded(self, refuse: Any) -> None:
        content = self.npy(np.zeros((9, 16), int))
        for broken in (content[:-1], content[:200], content + b"\0"):
            refuse(SHAPE, "a.npy", broken, "truncated")
        for broken in (content[:5], content[:20], b"\x93NUMPY\x01\x00\xff\xff{", b"junk, no array at all"):
            refuse(SHAPE, "a.npy", broken, "numpy.save")
        for broken in (self.npz(a=np.zeros((9, 16)))[:-30], b"PK\5\6", b"junk"):
            refuse(SHAPE, "a.npz", broken, "numpy.savez")

    def test_every_flipped_byte_of_an_archive_is_read_or_refused(self, read: Any) -> None:
        content = self.npz(a=np.ones((9, 16), np.int64))
        for at in range(len(content)):
            broken = bytearray(content)
            broken[at] ^= 0x41
            with contextlib.suppress(InvalidDataset):
                assert read(SHAPE, "a.npz", bytes(broken)).mass == 144

    def test_zip_bomb(self, refuse: Any) -> None:
        """A gigabyte of zeros in a megabyte: refused by the directory's size, and by reading no more than
        that size.
        """
        import zipfile

        sink = io.BytesIO()
        with (
            zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive,
            archive.open("a.npy", "w") as member,
        ):
            member.write(self.npy(np.zeros((9, 16), int)))
            for _ in range(64):
                member.write(bytes(1 << 20))
        content = sink.getvalue()
        refuse(SHAPE, "a.npz", content, "unpacks to more")
        real, lie = (64 << 20) + 128 + 1152, 128 + 1152
        assert content.count(real.to_bytes(4, "little")) >= 1
        forged = content.replace(real.to_bytes(4, "little"), lie.to_bytes(4, "little"))
        refuse(SHAPE, "a.npz", forged, "damaged")

    def test_several_arrays(self, refuse: Any) -> None:
        refuse(SHAPE, "a.npz", self.npz(a=np.zeros((9, 16)), b=np.zeros(3)), "it holds 2")


class TestRealFiles:
    @pytest.mark.slow
    def test_adult(self, read: Any, shared: Any) -> None:
        """Against the csv module, on six attributes of the census table."""
        import json

        sizes = json.loads((shared / "data/adult-pgm/adult-domain.json").read_text())
        content = (shared / "data/adult-pgm/adult.csv").read_bytes()
        attributes = [{"name": n, "size": sizes[n]} for n in ("age", "workclass", "race", "sex", "income>50K")]
        data = read({"kind": "table", "attributes": attributes}, "adult.csv", content)
        assert cells(data.array) == oracle(attributes, content.decode())
        assert data.mass == 48842

    @pytest.mark.parametrize("name", ["HEPTH", "INCOME", "SEARCHLOGS", "ADULTFRANK"])
    def test_histograms(self, read: Any, shared: Any, name: str) -> None:
        path = shared / f"data/dpbench/{name}.n4096.npy"
        data = read({"kind": "table", "attributes": [{"name": "v", "size": 4096}]}, path.name, path.read_bytes())
        assert data.array.tolist() == np.load(path).tolist()

    def test_floats_in_column_order(self, read: Any, shared: Any) -> None:
        path = shared / "data/dpbench/Adult_2D_256_256.npy"
        sides = [{"name": "v", "size": 256}, {"name": "w", "size": 256}]
        data = read({"kind": "table", "attributes": sides}, path.name, path.read_bytes())
        assert data.array.tolist() == np.load(path).tolist()
        assert data.array.flags.c_contiguous
