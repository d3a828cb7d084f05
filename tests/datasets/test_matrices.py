"""Reading real matrices: exact fractions on the grid are the oracle."""

import io
import tracemalloc
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.storage.private_data import CsrData
from app.storage.readers import columns as columns_module
from app.storage.readers import matrices

pytestmark = [pytest.mark.unit, pytest.mark.slow]

SPEC = {"kind": "matrix", "rows": 5, "columns": 4, "lower": -2, "upper": 5}


def npy(array: Any) -> bytes:
    sink = io.BytesIO()
    np.save(sink, array)
    return sink.getvalue()


entries = st.dictionaries(
    st.tuples(st.integers(0, 4), st.integers(0, 3)), st.integers(-2000, 5000), min_size=1, max_size=20
)


@given(entries, st.integers(0, 12), st.sampled_from([0, 1, -0.5]))
def test_triples(read: Any, matrix: Any, given_cells: dict[tuple[int, int], int], bits: int, absent: float) -> None:
    """Every cell rounded to nearest (ties to even), `absent` elsewhere; a repeated equal row changes
    nothing.
    """
    if absent == -0.5 and bits == 0:
        absent = -1
    expected = [[int(absent * 2**bits)] * 4 for _ in range(5)]
    lines = ["row,column,value"]
    for (row, column), thousandths in given_cells.items():
        expected[row][column] = round(Fraction(thousandths, 1000) * 2**bits)
        lines += [f"{row},{column},{thousandths / 1000:.3f}"] * (1 + thousandths % 2)
    data = read({**SPEC, "grid": 2.0**-bits, "absent": absent}, "a.csv", "\n".join(lines).encode())
    assert matrix(data) == expected
    assert data.mass == sum(abs(entry) for row in expected for entry in row)


@given(st.lists(st.lists(st.integers(-2000, 5000), min_size=4, max_size=4), min_size=5, max_size=5))
def test_arrays(read: Any, matrix: Any, thousandths: list[list[int]]) -> None:
    expected = [[round(Fraction(entry, 1000) * 1024) for entry in row] for row in thousandths]
    data = read(SPEC, "a.npy", npy(np.array(thousandths) / 1000))
    assert matrix(data) == expected
    assert data.mass == sum(abs(entry) for row in expected for entry in row)


def test_sparse_when_smaller(read: Any, matrix: Any) -> None:
    spec = {**SPEC, "rows": 500, "columns": 400, "absent": 0}
    data = read(spec, "a.csv", b"row,column,value\n499,0,-2\n0,399,2.5\n")
    assert isinstance(data, CsrData)
    assert matrix(data)[499][0] == -2048
    assert matrix(data)[0][399] == 2560
    assert data.mass == 4608


def test_type_follows_from_the_bounds(read: Any) -> None:
    array = npy(np.zeros((5, 4)))
    assert read(SPEC, "a.npy", array).array.dtype == np.int16
    assert read({**SPEC, "lower": 0, "grid": 1}, "a.npy", array).array.dtype == np.uint8
    assert read({**SPEC, "upper": 100}, "a.npy", array).array.dtype == np.int32


@pytest.mark.parametrize(
    ("line", "needle"),
    [
        ("5,0,1", 'row 2: "row" must be an integer from 0 to 4'),
        ("0,4,1", 'row 2: "column" must be an integer from 0 to 3'),
        ("s3cr3t,0,1", 'row 2: "row"'),
        ("0,0,s3cr3t", "row 2: a value must be a number from -2 to 5"),
        ("0,0,5.0001", "row 2"),
        ("0,0,nan", "row 2"),
        ("0,0,", "row 2"),
        ("1,1,3", "row 2: this cell stands in an earlier row with another value"),
    ],
)
def test_bad_triples(refuse: Any, line: str, needle: str) -> None:
    refuse({**SPEC, "absent": 0}, "a.csv", f"row,column,value\n1,1,2\n{line}\n".encode(), needle)


def test_refusals(refuse: Any) -> None:
    refuse(SPEC, "a.csv", b"row,column,value\n1,1,2\n", 'declare "absent"')
    refuse({**SPEC, "absent": 0}, "a.csv", b"row,col,value\n1,1,2\n", 'no column "column"')
    refuse({**SPEC, "absent": 0}, "a.csv", b"row,column,value\n", "no records")
    array = np.zeros((5, 4))
    array[3, 2] = 5.5
    refuse(SPEC, "a.npy", npy(array), "row 3, column 2: a value must be a number from -2 to 5")
    array[3, 2] = np.nan
    refuse(SPEC, "a.npy", npy(array), "row 3, column 2")
    refuse(SPEC, "a.npy", npy(array.T), "declared is 5 x 4")
    refuse({**SPEC, "rows": 2**20, "columns": 2**20}, "a.npy", npy(array), "memory")


# --------------------------------------------------------------------------------------------- Parquet, a column each


def parquet(columns: dict[str, Any], **how: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink, **how)
    return sink.getvalue()


@given(
    st.lists(st.lists(st.integers(-2000, 5000), min_size=4, max_size=4), min_size=5, max_size=5),
    st.sampled_from(["float64", "float32", "text"]),
    st.integers(1, 5),
    st.sampled_from([1, 3, 32]),
)
def test_a_column_for_each_of_the_matrix(
    read: Any, thousandths: list[list[int]], kind: str, group: int, width: int
) -> None:
    """Rows in order, columns in the file's order and not their names'; nothing is declared absent. Would catch a matrix
    turned over, a group of rows in another's place, and a file that is taken for triples."""
    rows = [[Fraction(value, 1000) for value in row] for row in thousandths]
    names = ["zeta", "alpha", " row", "value"]
    columns: dict[str, Any] = {}
    for index, name in enumerate(names):
        found = [float(row[index]) for row in rows]
        columns[name] = [f"{v:.3f}" for v in found] if kind == "text" else pa.array(np.array(found, kind))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matrices, "_LEAST_SLICE", width)
        data = read(SPEC, "m.parquet", parquet(columns, row_group_size=group))
    exact = [[Fraction(float(np.float32(v))) if kind == "float32" else v for v in row] for row in rows]
    expected = [[round(value * 1024) for value in row] for row in exact]
    assert data.array.tolist() == expected
    assert data.mass == sum(abs(value) for row in expected for value in row)


def test_columns_that_are_no_matrix(refuse: Any) -> None:
    """Each with what to change, and without a value."""
    good = {f"c{i}": [1.0] * 5 for i in range(4)}
    refuse(SPEC, "m.parquet", parquet(dict(list(good.items())[:3])), "3 columns", "4 declared", '"row"')
    refuse(SPEC, "m.parquet", parquet({name: [1.0] * 4 for name in good}), "4 rows", "declared are 5")
    refuse(SPEC, "m.parquet", parquet({name: [1.0] * 6 for name in good}), "more than the declared 5 rows")
    refuse(SPEC, "m.parquet", parquet({**good, "c2": [1.0, 2.0, 3.0, 5.5, 1.0]}), "row 3, column 2: a value must be")
    refuse(SPEC, "m.parquet", parquet({**good, "c2": [1.0, None, 3.0, 5.5, 1.0]}), "row 1, column 2")
    refuse(SPEC, "m.parquet", parquet({**good, "c1": ["1", "2", "s3cr3t", "4", "5"]}), "row 2, column 1")
    refuse(SPEC, "m.parquet", parquet({**good, "c1": [[1.0]] * 5}), "lists")
    refuse(SPEC, "m.parquet", parquet({" c1 ": [1.0] * 5, **good} | {"c3": [1.0] * 5})[:-9], "not Parquet")
    twice = {"c1": [1.0] * 5, " c1": [1.0] * 5, "c2": [1.0] * 5, "c3": [1.0] * 5}
    refuse(SPEC, "m.parquet", parquet(twice), "one name")
    triples = parquet({"row": [0], "column": [1], "value": [2.0]})
    refuse(SPEC, "m.parquet", triples, 'declare "absent"')
    large = {**SPEC, "rows": 2**20, "columns": 2**20}
    refuse(large, "m.parquet", parquet(good), "memory")


def test_a_wide_file_is_read_in_parts(read: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """20,000 rows of 200 columns in one group, 32 MB as numbers: the reader holds the result (4 MB) and some parts of
    half a megabyte. Would catch one that holds all columns as numbers at once."""
    monkeypatch.setattr(columns_module, "BATCH_CELLS", 1 << 16)
    rng = np.random.default_rng(0)
    values = rng.integers(0, 2, (20_000, 200)).astype(np.float64)
    content = parquet({f"c{i}": values[:, i] for i in range(200)})
    spec = {"kind": "matrix", "rows": 20_000, "columns": 200, "lower": 0, "upper": 1, "grid": 1}
    tracemalloc.start()
    before = pa.total_allocated_bytes()
    try:
        data = read(spec, "m.parquet", content)
        python = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert np.array_equal(data.array, values)
    assert python < 8e6
    assert pa.total_allocated_bytes() - before < 1e6
