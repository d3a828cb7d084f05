"""How long graphs of a million nodes and ten million edges take: registration, cuts, degrees, and their memory.

Run `python -m benchmarks.service.graph_scale` (some three minutes, on a quiet machine), or with `--quick` for a
hundredth of the edges, which writes nothing. Graphs are random, files are written to a folder that is deleted
afterwards.

Registration and answers are those of a real server over HTTP, a new one for each graph, so that the memory is its own:
the most that was ever resident. Cuts are asked of a session of Gaussian noise, three of each size, of nodes that stand
together and of nodes drawn at random. In this process the same is taken apart: the query is read and compiled with its
canonical bytes, the exact number is computed, and beside it there is the bare pass over the edges of its rows, a sum of
marks; then all degrees.
"""

from __future__ import annotations

import argparse
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from app.declarations.spec import Spec, parse_spec
from app.measurements.strategies.degrees import Degrees
from app.spaces.factory import space_of
from app.spaces.queries.registry import parse_query
from app.spaces.query import Query
from app.spaces.space import Space
from app.spaces.sparse import SparseTensor
from app.storage.private_data import CsrData
from app.storage.readers import read_private
from benchmarks.harness import ADMIN_KEY, RESULTS, curator, report
from curator_client import Answer, Curator, Question, cut

NODES, EDGES = 10**6, 10**7
SIDES = (10**3, 3 * 10**4, 3 * 10**5)
ASKED = 3
BUDGET = {"epsilon": 1.0, "delta": 1e-9}
Found = TypeVar("Found")
#: What is registered, and the ending of its file. A node has ten edges on average: of half of them some are left out.
GRAPHS: dict[str, tuple[dict[str, Any], str]] = {
    "undirected, CSV": ({"kind": "graph", "loops": "drop"}, ".csv"),
    "directed, Parquet": ({"kind": "graph", "directed": True, "loops": "drop"}, ".parquet"),
    "bipartite, CSV": ({"kind": "bipartite"}, ".csv"),
    "bipartite, ten edges of a node, CSV": ({"kind": "bipartite", "unit": {"side": "left", "max_edges": 10}}, ".csv"),
}


def declared(words: dict[str, Any], nodes: int) -> dict[str, Any]:
    """The declaration of such a graph."""
    sizes = {"left": nodes, "right": nodes} if words["kind"] == "bipartite" else {"nodes": nodes}
    return {"name": "g", "budget": BUDGET, "weighted": False, **sizes, **words}


def written(nodes: int, edges: int, folder: Path) -> dict[str, Path]:
    """Files of one random graph, by their endings."""
    rng = np.random.default_rng(1)
    table = pa.table({end: rng.integers(0, nodes, edges) for end in ("from", "to")})
    paths = {ending: folder / f"edges{ending}" for ending in (".csv", ".parquet")}
    pyarrow.csv.write_csv(table, paths[".csv"])
    pyarrow.parquet.write_table(table, paths[".parquet"])
    return paths


def cuts(nodes: int, size: int, *, together: bool) -> list[Question[Answer]]:
    """Cuts with sides of so many nodes."""
    rng, found = np.random.default_rng(size), []
    for _ in range(ASKED):
        sides = []
        for _ in ("left", "right"):
            first = int(rng.integers(nodes - size))
            chosen = np.arange(first, first + size) if together else rng.choice(nodes, size, replace=False)
            sides.append(chosen.tolist())
        found.append(cut(*sides))
    return found


def seconds(work: Callable[[], Found]) -> tuple[float, Found]:
    """How long a call takes, and what it returns."""
    started = time.perf_counter()
    found = work()
    return time.perf_counter() - started, found


def resident(pid: int) -> float:
    """The most memory that a process ever had resident, in MB."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def served(
    name: str, nodes: int, path: Path, sizes: tuple[int, ...]
) -> tuple[list[Any], dict[tuple[int, bool], float]]:
    """What registration takes, and seconds of an answer by size of the sides and whether their nodes stand together."""
    words = GRAPHS[name][0]
    answers = {}
    with curator() as server, Curator(server.url, ADMIN_KEY) as client:
        before = resident(server.pid)
        registered, found = seconds(lambda: client.register(declared(words, nodes), path))
        after = resident(server.pid)
        left_out = 0 if found.report is None else found.report.beyond_cap
        session = client.session("g", mechanism={"construction": "gaussian"}, epsilon=0.5, max_queries=1000)
        for size in sizes:
            for together in (True, False):
                asked = cuts(nodes, size, together=together)
                answers[size, together] = statistics.median(seconds(partial(session.ask, q))[0] for q in asked)
        row = [name, path.stat().st_size / 1e6, registered, before, after, resident(server.pid), left_out]
    return row, answers


def taken_apart(
    spec: Spec, path: Path, sizes: tuple[int, ...]
) -> tuple[dict[tuple[int, bool], tuple[float, float, float]], float]:
    """By size and whether nodes stand together: seconds of compiling a cut, of its exact number, and of the bare pass
    over the edges of its rows; and the seconds that all degrees take.
    """
    space = space_of(spec)
    data = read_private(spec, path.name, path, memory_limit=8 << 30).data
    assert isinstance(data, CsrData)
    tensor, found = space.tensor(data.matrix()), {}
    assert isinstance(tensor, SparseTensor)
    for size in sizes:
        for together in (True, False):
            times: list[list[float]] = [[], [], []]
            for question in cuts(space.shape[0], size, together=together):
                asked = question.json
                took, query = seconds(partial(compiled, asked, space))
                times[0].append(took)
                times[1].append(min(seconds(partial(query.exact, tensor))[0] for _ in range(3)))
                times[2].append(min(seconds(partial(passed, tensor, asked))[0] for _ in range(3)))
            compiling, exact, bare = map(statistics.median, times)
            found[size, together] = compiling, exact, bare
    degrees = seconds(lambda: Degrees.of(space).exact(space, tensor))[0]
    return found, degrees


def compiled(asked: Mapping[str, Any], space: Space) -> Query:
    """A query with its canonical bytes."""
    query = parse_query(asked).compiled(space)
    assert query.canonical_bytes
    return query


def passed(tensor: SparseTensor, asked: Mapping[str, Any]) -> int:
    """A sum of marks over the edges of the rows of a cut, where these stand together; else over all edges."""
    starts, columns = tensor.matrix.indptr, tensor.matrix.indices
    marks = np.zeros(tensor.shape[1], np.int8)
    marks[asked["right"][0] : asked["right"][-1] + 1] = 1
    rows = asked["left"]
    together = rows[-1] - rows[0] + 1 == len(rows)
    part = columns[starts[rows[0]] : starts[rows[-1] + 1]] if together else columns
    return int(marks.take(part).sum(dtype=np.int64))


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a hundredth of it, which writes nothing")
    quick = parser.parse_args().quick
    nodes, edges = (NODES // 100, EDGES // 100) if quick else (NODES, EDGES)
    sizes = tuple(size // 100 for size in SIDES) if quick else SIDES
    registrations, answers, degrees = [], [], []
    with tempfile.TemporaryDirectory(prefix="graph-scale-") as folder:
        paths = written(nodes, edges, Path(folder))
        for name, (words, ending) in GRAPHS.items():
            row, asked = served(name, nodes, paths[ending], sizes)
            apart, all_degrees = taken_apart(parse_spec(declared(words, nodes)), paths[ending], sizes)
            registrations.append(row)
            degrees.append((name, 1e3 * all_degrees))
            for (size, together), took in asked.items():
                times = [1e3 * part for part in (took, *apart[size, together])]
                answers.append((name, size, "together" if together else "at random", *times))
    results = None if quick else RESULTS
    report(
        "graph_scale",
        "Registration over HTTP, and the most memory of the server",
        ("graph", "file (MB)", "registration (s)", "MB before", "MB after", "MB after cuts", "edges left out"),
        registrations,
        folder=results,
        nodes=nodes,
        edges=edges,
    )
    report(
        "graph_scale_cuts",
        "Cuts: over HTTP, and apart",
        ("graph", "nodes a side", "which", "answer (ms)", "compiling (ms)", "exact number (ms)", "bare pass (ms)"),
        answers,
        folder=results,
        nodes=nodes,
        edges=edges,
    )
    columns = ("graph", "all degrees (ms)")
    report("graph_scale_degrees", "All degrees", columns, degrees, folder=results, nodes=nodes, edges=edges)


if __name__ == "__main__":
    main()
