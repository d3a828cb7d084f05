"""Sums that capacities are held against. The oracle is Python's own integers, which never wrap.

It would catch a mass that wrapped on its way: a file of far too large counts that looks empty, or of a small mass.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.storage.readers import arrays as arrays_module
from app.storage.readers.sums import exact_sum

pytestmark = pytest.mark.unit

#: The largest capacity that can be declared.
MOST = 2**40

extremes = st.sampled_from([0, 1, -1, 2**31, 2**32 - 1, 2**32, -(2**32), MOST, 2**62, 2**63 - 1, -(2**63)])
integers = st.integers(-(2**63), 2**63 - 1) | extremes


@given(st.lists(st.tuples(integers, st.integers(1, 400)), max_size=8))
def test_any_integers_add_up_as_pythons_do(runs) -> None:
    """Runs of one number, so that sums pass 64 bits many times over."""
    values = np.repeat(np.array([v for v, _ in runs], np.int64), [n for _, n in runs])
    assert exact_sum(values) == sum(v * n for v, n in runs)


@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "?"])
def test_every_type_and_layout(dtype: str) -> None:
    """Would catch a narrow type added up in itself, and views that are read in another order or only in part."""
    rng = np.random.default_rng(3)
    info = np.iinfo(dtype) if dtype != "?" else None
    low, high = (0, 1) if info is None else (info.min, min(info.max, 2**63 - 1))
    square = rng.integers(low, high, (300, 200), endpoint=True).astype(dtype)
    for view in (square, square.T, square[::3, ::-2], square[:0], square.reshape(-1)):
        assert exact_sum(view) == sum(int(v) for v in view.reshape(-1).tolist())


def test_more_than_a_million() -> None:
    """Would catch a part that is left out where the array is longer than one."""
    values = np.full((1 << 20) * 2 + 3, 2**63 - 1, np.int64)
    assert exact_sum(values) == values.size * (2**63 - 1)


# ---------------------------------------------------------------------------------------- each reader at its edge


def table(cells: int, capacity: int) -> dict[str, Any]:
    return {"kind": "table", "attributes": [{"name": "a", "size": cells}], "capacity": capacity}


def npy(values: Any) -> bytes:
    sink = io.BytesIO()
    np.save(sink, values)
    return sink.getvalue()


def npz(values: Any) -> bytes:
    sink = io.BytesIO()
    np.savez_compressed(sink, a=values)
    return sink.getvalue()


def parquet(**columns: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()


@given(st.lists(st.integers(0, MOST) | st.sampled_from([MOST, MOST - 1, 1]), min_size=1, max_size=9), st.data())
def test_counts_are_held_against_the_capacity(read, refuse, counts, d) -> None:
    """.npy and .npz, every type that holds such counts: accepted, with the true mass, exactly up to the capacity."""
    total = sum(counts)
    capacity = min(MOST, max(1, d.draw(st.sampled_from([total - 1, total, total + 1, MOST]))))
    suffix, written = d.draw(st.sampled_from([(".npy", npy), (".npz", npz)]))
    file = written(np.array(counts, d.draw(st.sampled_from(["i8", "u8", "f8", ">i8"]))))
    if total > capacity:
        refuse(table(len(counts), capacity), "c" + suffix, file, "capacity")
    else:
        assert read(table(len(counts), capacity), "c" + suffix, file).mass == total


@given(st.lists(st.integers(0, MOST) | st.sampled_from([MOST, MOST - 1, 1]), min_size=1, max_size=9), st.data())
def test_counts_of_elements_are_held_against_the_capacity(read, refuse, counts, d) -> None:
    """CSV, text and Parquet, the same element again and again or each another one."""
    total = sum(counts)
    capacity = min(MOST, max(1, d.draw(st.sampled_from([total - 1, total, total + 1, MOST]))))
    distinct = d.draw(st.integers(1, 9))
    names = [f"w{i % distinct}" for i in range(len(counts))]
    suffix = d.draw(st.sampled_from([".csv", ".tsv", ".parquet"]))
    mark = "\t" if suffix == ".tsv" else ","
    lines = [f"{name}{mark}{count}" for name, count in zip(names, counts, strict=True)]
    text = "\n".join([f"element{mark}count", *lines, ""])
    file = text.encode() if suffix != ".parquet" else parquet(element=names, count=counts)
    spec = {"kind": "multiset", "capacity": capacity}
    if total > capacity:
        refuse(spec, "w" + suffix, file, "capacity")
    else:
        data = read(spec, "w" + suffix, file)
        assert data.mass == total
        for name in set(names):
            assert data.lookup([name])[0] == sum(c for n, c in zip(names, counts, strict=True) if n == name)


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet"])
def test_records_are_held_against_the_capacity(read: Any, refuse: Any, suffix: str) -> None:
    """A narrow count type follows from the capacity: one record more would wrap its cell."""
    for capacity in (1, 255, 256, 300):
        for records in (capacity, capacity + 1):
            file = parquet(a=[0] * records) if suffix == ".parquet" else b"a\n" + b"0\n" * records
            if records > capacity:
                refuse(table(1, capacity), "r" + suffix, file, "capacity")
            else:
                data = read(table(1, capacity), "r" + suffix, file)
                assert (data.mass, data.array.tolist()) == (capacity, [capacity])


@given(st.lists(st.integers(0, 2**20), min_size=16, max_size=16), st.sampled_from(["list", "npy"]))
def test_weights_of_edges_add_up(read, units, how) -> None:
    """Weights in the finest units there are, as edge list and as matrix: the mass is their sum in these units."""
    spec = {"kind": "bipartite", "left": 4, "right": 4, "weighted": True, "grid": 2.0**-20}
    weights = np.ldexp(np.array(units, np.float64), -20)
    lines = [f"{i // 4},{i % 4},{float(weights[i])!r}" for i in range(16)]
    text = "\n".join(["left,right,weight", *lines, ""])
    data = read(spec, "g.csv", text.encode()) if how == "list" else read(spec, "g.npy", npy(weights.reshape(4, 4)))
    assert data.mass == sum(units)


@given(st.lists(st.sampled_from([-(2**40), 2**40, 2**40 - 1, -1, 0, 1]), min_size=6, max_size=6), st.data())
def test_entries_of_matrices_add_up(read, units, d) -> None:
    """Entries of either sign at the largest bounds on the finest grid: the mass is the sum of their absolute values."""
    spec = {"kind": "matrix", "rows": 2, "columns": 3, "lower": -(2**20), "upper": 2**20, "grid": 2.0**-20}
    values = np.ldexp(np.array(units, np.float64), -20).reshape(2, 3)
    how = d.draw(st.sampled_from(["npy", "wide", "triples", "holes"]))
    if how == "npy":
        assert read(spec, "m.npy", npy(values)).mass == sum(map(abs, units))
    elif how == "wide":
        file = parquet(**{f"c{i}": values[:, i] for i in range(3)})
        assert read(spec, "m.parquet", file).mass == sum(map(abs, units))
    else:
        # All but the last cell is named, or every cell; what is left out is at the bound.
        kept = 6 if how == "triples" else 5
        rows = {"row": [i // 3 for i in range(kept)], "column": [i % 3 for i in range(kept)]}
        file = parquet(**rows, value=values.reshape(-1)[:kept])
        data = read({**spec, "absent": -(2**20)}, "m.parquet", file)
        assert data.mass == sum(map(abs, units[:kept])) + (6 - kept) * 2**40


@pytest.mark.slow
@pytest.mark.parametrize("cells", [2**23, 2**24])
def test_a_slab_that_would_wrap(read: Any, refuse: Any, cells: int) -> None:
    """One row, so that no cut along the first axis makes less of it: 2^23 counts of 2^40 are -2^63, 2^24 are 0."""
    spec = {"kind": "table", "attributes": [{"name": "a", "size": 1}, {"name": "b", "size": cells}], "capacity": MOST}
    assert int(np.full(cells, MOST).sum()) in (0, -(2**63))  # what the attack lives on
    file = npz(np.full((1, cells), MOST, np.float32))
    refuse(spec, "c.npz", file, "capacity", memory_limit=1 << 30)


@pytest.mark.parametrize("rows", [1, 7])
def test_parts_of_arrays_are_all_looked_at(read: Any, refuse: Any, monkeypatch: Any, rows: int) -> None:
    """Would catch a part of an array that no sum sees: one count too many, in each place."""
    monkeypatch.setattr(arrays_module.slabs, "__defaults__", (4,))
    spec = {"kind": "table", "attributes": [{"name": "a", "size": rows}, {"name": "b", "size": 3}], "capacity": 50}
    for place in range(3 * rows):
        counts = np.zeros(3 * rows, np.int64)
        counts[place], counts[-1 - place] = 30, 21 if 2 * place + 1 != 3 * rows else 51
        refuse(spec, "c.npy", npy(counts.reshape(rows, 3)), "capacity")
        counts[-1 - place] -= 1
        assert read(spec, "c.npy", npy(counts.reshape(rows, 3))).mass == 50
