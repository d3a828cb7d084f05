"""Reading graphs, against dictionaries of edges: what stands where, what counts once, and what is refused."""

import io
import itertools
import json
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.storage.private_data import CsrData, DenseData
from app.storage.readers import columns as columns_module
from app.storage.readers import has_weights

pytestmark = [pytest.mark.unit, pytest.mark.slow]

DIRECTED = {"kind": "graph", "nodes": 6, "directed": True}
UNDIRECTED = {"kind": "graph", "nodes": 6}
BIPARTITE = {"kind": "bipartite", "left": 6, "right": 4}


def empty(spec: dict[str, Any]) -> list[list[int]]:
    rows, columns = (spec["left"], spec["right"]) if "left" in spec else (spec["nodes"], spec["nodes"])
    return [[0] * columns for _ in range(rows)]


def npy(array: Any) -> bytes:
    sink = io.BytesIO()
    np.save(sink, array)
    return sink.getvalue()


def parquet(**columns: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()


edges = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), min_size=1, max_size=40)
separators = st.sampled_from([",", " ", "\t", ", ", ";", "   ", " \t "])


class TestLists:
    @pytest.mark.parametrize("spec", [DIRECTED, UNDIRECTED, BIPARTITE], ids=["directed", "undirected", "bipartite"])
    @given(pairs=edges, separator=separators, header=st.booleans(), end=st.sampled_from(["\n", "\r\n", " \n"]))
    def test_against_a_set(
        self,
        read: Any,
        matrix: Any,
        spec: dict[str, Any],
        pairs: list[tuple[int, int]],
        separator: str,
        header: bool,
        end: str,
    ) -> None:
        """Repeated edges and, undirected, both directions count once; loops of a graph are dropped where
        declared.
        """
        expected, present = empty(spec), set()
        for left, right in pairs:
            if spec is BIPARTITE:
                present.add((left, right))
            elif left != right:
                present.add((left, right) if spec is DIRECTED else (min(left, right), max(left, right)))
        for left, right in present:
            expected[left][right] = 1
            if spec is UNDIRECTED:
                expected[right][left] = 1
        lines = [f"source{separator}target"] * header + [f"{left}{separator}{right}" for left, right in pairs]
        declared = spec if spec is BIPARTITE else {**spec, "loops": "drop"}
        data = read(declared, "edges.txt", (end.join(lines) + end).encode())
        assert matrix(data) == expected
        assert data.mass == len(present)

    @given(
        st.dictionaries(
            st.tuples(st.integers(0, 5), st.integers(0, 3)), st.integers(0, 10**6), min_size=1, max_size=20
        ),
        st.integers(0, 20),
    )
    def test_weights_are_rounded_to_the_grid(
        self, read: Any, matrix: Any, weighted: dict[tuple[int, int], int], bits: int
    ) -> None:
        """To nearest in exact fractions, ties to even; the default grid is 2^-10 (bits = 10)."""
        spec = {**BIPARTITE, "weighted": True, **({} if bits == 10 else {"grid": 2.0**-bits})}
        expected = empty(spec)
        lines = []
        for (left, right), millionths in weighted.items():
            expected[left][right] = round(Fraction(millionths, 10**6) * 2**bits)
            lines += [f"{left},{right},{millionths / 10**6:.6f}"] * (1 + millionths % 2)
        data = read(spec, "edges.csv", "\n".join(lines).encode())
        assert matrix(data) == expected
        assert data.mass == sum(map(sum, expected))

    def test_two_columns_of_a_weighted_graph_weigh_one(self, read: Any, matrix: Any) -> None:
        assert matrix(read({**BIPARTITE, "weighted": True}, "a.csv", b"5,3\n"))[5][3] == 1024

    def test_conflicting_weights(self, refuse: Any, read: Any, matrix: Any) -> None:
        spec = {**UNDIRECTED, "weighted": True}
        refuse(spec, "a.txt", b"0 1 0.5\n2 3 0.5\n1 0 0.75\n", "row 3", "another value")
        assert matrix(read(spec, "a.txt", b"0 1 0.5\n1 0 .50\n"))[1][0] == 512
        refuse({**DIRECTED, "weighted": True}, "a.txt", b"0 1 0.5\n0 1 0\n", "row 2")
        assert read({**DIRECTED, "weighted": True}, "a.txt", b"0 1 0.5\n1 0 0.75\n").mass == 512 + 768

    def test_labels(self, read: Any, refuse: Any, matrix: Any) -> None:
        labels = ["New York", "Łódź", "3", "d", "e", "f"]
        spec = {**DIRECTED, "labels": labels}
        text = 'from,to\nNew York, Łódź\n3,"d"\n'
        expected = empty(spec)
        expected[0][1] = expected[2][3] = 1
        assert matrix(read(spec, "a.csv", text.encode())) == expected
        assert matrix(read(spec, "a.csv", text.split("\n", 1)[1].encode())) == expected
        refuse(spec, "a.csv", (text + "d,s3cr3t\n").encode(), 'row 3: "nodes"', "labels")
        refuse(spec, "a.csv", (text + "d,\n").encode(), "row 3")
        spec = {**BIPARTITE, "left_labels": labels, "right_labels": ["w", "x", "y", "z"]}
        assert matrix(read(spec, "a.tsv", "Łódź\tz\n".encode()))[1][3] == 1
        refuse(spec, "a.tsv", "Łódź\tz\nz\tŁódź\n".encode(), 'row 2: "left"')

    def test_many_blocks(self, read: Any, refuse: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """Runs of blanks and line ends at the borders of what is read at a time."""
        for block in (101, 128, 256):
            monkeypatch.setattr(columns_module, "BLOCK_BYTES", block)
            lines = [f"{i}  \t {(i + 1) % 500} " for i in range(500)]
            spec = {"kind": "graph", "nodes": 500, "directed": True}
            data = read(spec, "a.txt", (" \n".join(lines)).encode())
            assert data.mass == 500
            lines[417] = "3 s3cr3t"
            refuse(spec, "a.txt", "\n".join(lines).encode(), 'row 418: "nodes"')

    @pytest.mark.parametrize(
        ("line", "needle"),
        [
            (b"3 3", 'row 3: an edge from a node to itself. Remove it, or declare "loops": "drop"'),
            (b"3 6", 'row 3: "nodes": an integer from 0 to 5'),
            (b"-1 2", "row 3"),
            (b"1.5 2", "row 3"),
            (b"s3cr3t 2", "row 3"),
            (b"nan 2", "row 3"),
            (b"1", "row 3 has 1 field, the first line has 2"),
            (b"1 2 s3cr3t", "row 3 has 3 fields, the first line has 2"),
            (b"s3cr3t\xff 2", "row 3 is not valid UTF-8"),
        ],
    )
    def test_bad_lines(self, refuse: Any, line: bytes, needle: str) -> None:
        refuse(DIRECTED, "a.txt", b"0 1\n1 2\n" + line + b"\n4 5\n", needle)

    @pytest.mark.parametrize("weight", ["s3cr3t", "1.01", "-0.1", "nan", ""])
    def test_bad_weights(self, refuse: Any, weight: str) -> None:
        refuse({**DIRECTED, "weighted": True}, "a.csv", f"0,1,1\n1,2,{weight}\n".encode(), "row 2", "from 0 to 1")

    @pytest.mark.parametrize(
        ("content", "needle"),
        [
            (b"", "empty"),
            (b"\n\n", "blank lines"),
            (b"source,target\n", "no records"),
            (b"# s3cr3t\n0 1\n1\n", "row 2 has 1 field, the first line has 2"),
            (b"#s3cr3t\n0 1\n", "the first line has 1 field"),
            (b"0,1,1,s3cr3t\n", "the first line has 4 fields"),
            (b"0,1,1\n", 'declare "weighted": true'),
            (b"0,x\n", "row 1"),
            ("0 1\n".encode("utf-16"), "UTF-16"),
        ],
    )
    def test_bad_files(self, refuse: Any, content: bytes, needle: str) -> None:
        refuse(DIRECTED, "a.csv", content, needle)

    def test_has_weights(self, tmp_path: Any) -> None:
        path = tmp_path / "upload"
        for name, content, wanted in [
            ("a.csv", b"0,1\n", False),
            ("a.txt", b"0 1  0.5\n", True),
            ("a.parquet", parquet(a=[0], b=[1], c=[0.5]), True),
            ("a.npy", npy(np.zeros((6, 6))), False),
        ]:
            path.write_bytes(content)
            assert has_weights(name, path) is wanted


class TestParquet:
    def test_integers_floats_and_labels(self, read: Any, matrix: Any) -> None:
        expected = empty(BIPARTITE)
        expected[5][3] = expected[0][1] = 1
        for kind in (pa.uint8(), pa.int64(), pa.float64(), pa.string()):
            content = parquet(user=pa.array([5, 0, 5]).cast(kind), item=pa.array([3, 1, 3]).cast(kind))
            assert matrix(read(BIPARTITE, "a.parquet", content)) == expected

    def test_refusals(self, refuse: Any) -> None:
        refuse(BIPARTITE, "a.parquet", parquet(a=[0, None], b=[1, 1]), 'row 2: "left"')
        refuse(BIPARTITE, "a.parquet", parquet(a=[0, 1], b=["1", "s3cr3t"]), 'row 2: "right"')
        refuse(BIPARTITE, "a.parquet", parquet(a=[0]), "1 field")
        refuse(
            BIPARTITE,
            "a.parquet",
            parquet(a=pa.array([], pa.int8()), b=pa.array([], pa.int8())),
            "no records",
        )


class TestAdjacency:
    @given(st.sets(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=30), st.booleans())
    def test_same_as_the_list(self, read: Any, matrix: Any, present: set[tuple[int, int]], directed: bool) -> None:
        spec = {**DIRECTED, "directed": directed, "loops": "drop"}
        array = np.zeros((6, 6), np.int64)
        for left, right in present:
            array[left, right] = 1
            if not directed:
                array[right, left] = 1
        data = read(spec, "a.npy", npy(array))
        np.fill_diagonal(array, 0)
        assert matrix(data) == array.tolist()
        assert data.mass == array.sum() // (1 if directed else 2)

    def test_refusals(self, refuse: Any) -> None:
        array = np.zeros((6, 6))
        array[0, 1] = 1
        refuse(UNDIRECTED, "a.npy", npy(array), "not symmetric")
        array[1, 0] = 0.5
        refuse(DIRECTED, "a.npy", npy(array), '"weighted": true')
        refuse({**UNDIRECTED, "weighted": True}, "a.npy", npy(array), "not symmetric")
        array[1, 0] = 2
        refuse(DIRECTED, "a.npy", npy(array), "from 0 to 1")
        array[1, 0] = np.nan
        refuse(DIRECTED, "a.npy", npy(array), "from 0 to 1")
        refuse(DIRECTED, "a.npy", npy(np.eye(6)), "to itself")
        refuse(DIRECTED, "a.npy", npy(np.eye(5)), "declared is 6 x 6")


class TestLayout:
    """CSR where that takes fewer bytes, and number types from the declaration alone."""

    @pytest.mark.parametrize(("bits", "dtype"), [(None, np.uint8), (7, np.uint8), (8, np.uint16), (20, np.int32)])
    def test_type(self, read: Any, bits: int | None, dtype: Any) -> None:
        spec = {
            **BIPARTITE,
            "left": 6000,
            "right": 4000,
            **({} if bits is None else {"weighted": True, "grid": 2.0**-bits}),
        }
        assert read(spec, "a.csv", b"0,1\n").data.dtype == dtype

    def test_sparse_when_smaller(self, read: Any, matrix: Any) -> None:
        big = {"kind": "graph", "nodes": 400}
        data = read(big, "a.txt", b"3 2\n399 0\n")
        assert isinstance(data, CsrData)
        assert data.mass == 2
        assert data.matrix().toarray().tolist() == matrix(data)
        assert matrix(data)[2][3] == matrix(data)[3][2] == matrix(data)[0][399] == matrix(data)[399][0] == 1
        complete = "\n".join(f"{i} {j}" for i in range(60) for j in range(i))
        data = read({"kind": "graph", "nodes": 60}, "a.txt", complete.encode())
        assert isinstance(data, DenseData)

    @given(st.sets(st.tuples(st.integers(0, 59), st.integers(0, 59)), min_size=1, max_size=80))
    def test_undirected_edges_stand_both_ways(self, read: Any, pairs: set[tuple[int, int]]) -> None:
        """A sparse matrix that is symmetric, its columns ascending in each row, with the weight of each edge twice.
        Would catch mirrored entries that stand behind the others, or in another's row.
        """
        weights = {(min(a, b), max(a, b)): 1 + (a + b) % 4 for a, b in pairs if a != b}
        lines = "".join(f"{a},{b},{weight / 4}\n" for (a, b), weight in weights.items()) or "0,1,0.25\n"
        data = read({"kind": "graph", "nodes": 60, "weighted": True, "grid": 0.25}, "a.csv", lines.encode())
        assert isinstance(data, CsrData)
        found = data.matrix()
        assert found.indices.base is data.indices or np.shares_memory(found.indices, data.indices)
        expected = np.zeros((60, 60), int)
        for (a, b), weight in (weights or {(0, 1): 1}).items():
            expected[a, b] = expected[b, a] = weight
        assert found.toarray().tolist() == expected.tolist()
        assert all((np.diff(data.indices[s:e]) > 0).all() for s, e in itertools.pairwise(data.indptr.tolist()))
        assert data.mass == expected.sum() // 2

    def test_memory_limit(self, refuse: Any) -> None:
        refuse({"kind": "graph", "nodes": 2**26}, "a.txt", b"0 1\n", "memory", memory_limit=1 << 20)
        many = "\n".join(f"{i} {i + 1}" for i in range(20_000)).encode()
        refuse({"kind": "graph", "nodes": 30_000}, "a.txt", many, "memory limit", memory_limit=1 << 20)


class TestRealFiles:
    @pytest.mark.parametrize(
        ("path", "spec", "separator"),
        [
            ("email-Eu-core/email-Eu-core.txt", {"nodes": 1005, "directed": True}, " "),
            ("email-Eu-core/email-Eu-core.txt", {"nodes": 1005}, " "),
            ("wikipedia-chameleon/chameleon_edges.csv", {"nodes": 2277}, ","),
        ],
    )
    def test_against_a_set(self, read: Any, shared: Any, path: str, spec: dict[str, Any], separator: str) -> None:
        content = (shared / "data" / path).read_bytes()
        present = set()
        for line in content.decode().splitlines():
            ends = line.split(separator)
            if ends[0].isdigit() and ends[0] != ends[1]:
                left, right = map(int, ends)
                present.add((left, right))
                if not spec.get("directed"):
                    present.add((right, left))
        data = read({"kind": "graph", **spec, "loops": "drop"}, path, content)
        rows, columns = np.nonzero(data.matrix().toarray())
        assert set(zip(rows.tolist(), columns.tolist(), strict=True)) == present
        assert data.mass == len(present) // (1 if spec.get("directed") else 2)

    def test_junk_above_the_edges(self, read: Any, refuse: Any, shared: Any) -> None:
        content = (shared / "data/facebook_combined/facebook_combined.txt").read_bytes()
        spec = {"kind": "graph", "nodes": 4039}
        refuse(spec, "facebook_combined.txt", content, "the first line has 1 field", "comments")
        assert read(spec, "facebook_combined.txt", content.split(b"\n", 2)[2]).mass == 88234

    def test_bipartite_genres(self, read: Any, shared: Any) -> None:
        """Converted from JSON; the numbers of nodes and edges are those that the file's own lists give."""
        users = json.loads((shared / "data/deezer-RO-genres/RO_genres.json").read_text())
        genres = sorted({genre for liked in users.values() for genre in liked})
        spec = {
            "kind": "bipartite",
            "left": len(users),
            "right": len(genres),
            "left_labels": list(users),
            "right_labels": genres,
        }
        lines = (f'{user},"{genre}"' for user, liked in users.items() for genre in liked)
        data = read(spec, "genres.csv", "\n".join(lines).encode())
        assert data.mass == sum(len(set(liked)) for liked in users.values())
