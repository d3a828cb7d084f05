"""Reading real matrices: exact fractions on the grid are the oracle."""

import io
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.storage.private_data import CsrData

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
