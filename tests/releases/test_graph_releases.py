"""Releases of graphs and matrices through the whole service: measured, recorded, finished, read and replayed."""

from __future__ import annotations

import io
import math
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.csv
import pytest

from app.bootstrap.noise import SystemNoise
from app.curator.mechanisms.protocol import Measured
from app.curator.mechanisms.release import job_of
from app.curator.opening import Header
from app.releases.finishing import Outcome, finish
from app.verifying.transcript import replay_file
from benchmarks.research.undirected_cuts import undirected_cut_norm
from tests.kit.service import ARROW, JSON, Service, npy, refused, register, serving, unique

pytestmark = [pytest.mark.api, pytest.mark.slow]

BUDGET = {"epsilon": 1.0, "delta": 1e-9}
NODES = 60
CUTS = {"cuts": "all"}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A server with noise of its own."""
    with serving(tmp_path_factory.mktemp("graphs"), noise=SystemNoise()) as running:
        yield running


def graph(*, directed: bool) -> npt.NDArray[np.int64]:
    """A graph with hubs."""
    rng = np.random.default_rng(8)
    activity = rng.pareto(1.5, NODES) + 1
    matrix = (rng.random((NODES, NODES)) < np.minimum(0.9, np.outer(activity, activity) / 20)).astype(np.int64)
    np.fill_diagonal(matrix, 0)
    return matrix if directed else np.triu(matrix, 1) + np.triu(matrix, 1).T


def registered(service: Service, spec: JSON, data: bytes, file: str) -> str:
    name = unique("graph")
    reply = register(service.admin, {"budget": BUDGET, **spec, "name": name}, data, file)
    assert reply.status_code == 201, reply.text
    return name


def of_nodes(service: Service, *, directed: bool, **more: Any) -> str:
    spec = {"kind": "graph", "nodes": NODES, "directed": directed, **more}
    return registered(service, spec, npy(graph(directed=directed)), "graph.npy")


def release(service: Service, dataset: str, **words: Any) -> JSON:
    """A release at its end."""
    reply = service.admin.post("/v1/releases", json={"dataset": dataset, "workload": CUTS, **words})
    assert reply.status_code == 202, reply.text
    found: JSON = reply.json()
    for _ in range(600):
        found = service.admin.get(f"/v1/releases/{found['id']}").json()
        if found["status"] not in ("queued", "running"):
            break
        time.sleep(0.05)
    assert found["status"] == "done", found
    return found


def edges(service: Service, found: JSON) -> pa.Table:
    reply = service.admin.get(
        f"/v1/releases/{found['id']}/data", params={"part": "edges"}, headers={"Accept": "text/csv"}
    )
    assert reply.status_code == 200, reply.text
    return pyarrow.csv.read_csv(io.BytesIO(reply.content))


def replays(service: Service, found: JSON, folder: Path) -> None:
    reply = service.admin.get(f"/v1/sessions/{found['id']}/transcript")
    assert reply.status_code == 200, reply.text
    path = folder / "transcript.ndjson"
    path.write_bytes(reply.content)
    verdict = replay_file(path)
    assert verdict.ok, (verdict.problem, verdict.sequence)


def columns(table: pa.Table) -> dict[str, npt.NDArray[Any]]:
    return {name: table[name].to_numpy() for name in table.column_names}


def test_an_undirected_graph_whole(service: Service, tmp_path: Path) -> None:
    """All of epsilon buys every unordered pair once, by randomised response: unbiased weights whose cuts keep the
    bound that the plan states, the bits beside them, books that say what was spent, a measurement that all may see, and
    a transcript that replays. Catches a pair that has two rows or none, weights that are biased or of another scale, a
    charge that is not in the books, and a record that cannot be read again.
    """
    name, truth = of_nodes(service, directed=False), graph(directed=False)
    found = release(service, name, epsilon=1.0, method="histogram")
    plan, result = found["plan"], found["result"]
    assert (plan["noise"], plan["regime"], plan["cells"]) == ("flips", "pure", NODES * (NODES - 1) // 2)
    flip = plan["noise_scale"]
    assert 1 / (1 + math.e) <= flip < 1 / (1 + math.e) + 1e-12
    assert plan["cell_error"] == pytest.approx(math.sqrt(flip * (1 - flip)) / (1 - 2 * flip), rel=1e-5)
    told = columns(edges(service, found))
    assert list(told) == ["source", "target", "weight", "bit"]
    assert sorted(zip(told["source"], told["target"], strict=True)) == [
        (i, j) for i in range(NODES) for j in range(i + 1, NODES)
    ]
    weights = np.where(told["bit"] == 1, (1 - flip) / (1 - 2 * flip), -flip / (1 - 2 * flip))
    assert told["weight"] == pytest.approx(weights, rel=1e-9)
    errors = told["weight"] - truth[told["source"], told["target"]]
    assert abs(errors.sum()) < 5 * plan["largest_cut_error"]
    assert np.std(errors) == pytest.approx(plan["cell_error"], rel=0.1)
    rng = np.random.default_rng(0)
    for _ in range(200):
        one, other = rng.random((2, NODES)) < rng.random()
        cut = (one[told["source"]] & other[told["target"]]) | (other[told["source"]] & one[told["target"]])
        assert abs(errors[cut].sum()) <= plan["all_cuts_bound"]
    assert result["all_cuts_bound"] == plan["all_cuts_bound"] == plan["error_bound"]
    ledger = service.admin.get(f"/v1/datasets/{name}/ledger").json()
    assert 1 - 1e-9 <= float(ledger["pure"]["spent"]) <= 1
    assert service.admin.get(f"/v1/datasets/{name}").json()["budget"]["remaining_epsilon"] < 1e-9
    (item,) = service.admin.get(f"/v1/datasets/{name}/measurements").json()["items"]
    assert item["strategy"] == {"type": "edges", "shape": [NODES, NODES], "of": "pairs", "cells": len(errors)}
    assert item["noise"] == {"kind": "flips", "scale": flip}
    whole = service.admin.get(f"/v1/datasets/{name}/measurements/{item['id']}").json()
    assert whole["bits"] == told["bit"].tolist()
    stream = service.admin.get(f"/v1/datasets/{name}/measurements/{item['id']}", headers={"Accept": ARROW})
    assert pa.ipc.open_stream(stream.content).read_all()["bit"].to_pylist() == whole["bits"]
    replays(service, found, tmp_path)


def test_parts_of_epsilon_add_up(service: Service, tmp_path: Path) -> None:
    """A part of epsilon pays by its share of the Renyi sum, and what a release before it measured is used too: two of a
    half each err by less than one. Catches a share that is passed, measurements that are not averaged by precision, and
    a bound that is not that of the average.
    """
    name, truth = of_nodes(service, directed=True), graph(directed=True)
    first = release(service, name, epsilon=0.5, method="auto")
    second = release(service, name, epsilon=0.25)
    alone = release(service, name, epsilon=0.25, start="nothing")
    errors = [each["result"]["cell_error"] for each in (first, second, alone)]
    assert errors[1] ** -2 == pytest.approx(errors[0] ** -2 + errors[2] ** -2, rel=1e-4)
    assert second["result"]["all_cuts_bound"] < alone["result"]["all_cuts_bound"] == alone["plan"]["all_cuts_bound"]
    told = columns(edges(service, second))
    assert len(told["weight"]) == NODES * (NODES - 1)
    assert "bit" not in told
    off = told["weight"] - truth[told["source"], told["target"]]
    assert np.std(off) == pytest.approx(errors[1], rel=0.1)
    ledger = service.admin.get(f"/v1/datasets/{name}/ledger").json()
    assert Decimal(ledger["spent"]) == sum(Decimal(each["plan"]["reserved"]) for each in (first, second, alone))
    for found in (first, second, alone):
        replays(service, found, tmp_path)


def test_a_synthetic_graph(service: Service, tmp_path: Path) -> None:
    """Weights lie from 0 to 1, or are 0 and 1 where that is asked for, and pairs without an edge have no row. Catches
    values that were not brought within bounds, and a graph that reads back as another.
    """
    name = of_nodes(service, directed=True)
    soft = columns(edges(service, release(service, name, epsilon=0.5, method="synthetic_graph")))
    assert (soft["weight"] > 0).all()
    assert (soft["weight"] <= 1).all()
    near = release(service, name, epsilon=0.1, method="synthetic_graph", geometry="cut_norm")
    assert near["result"]["least_distance"] <= near["result"]["distance"]
    hard = release(service, name, epsilon=0.4, method="synthetic_graph", rounding="edges")
    assert hard["result"]["geometry"] == "spectral"
    told = columns(edges(service, hard))
    assert set(told["weight"]) == {1.0}
    assert hard["result"]["mass"] == len(told["weight"])
    assert hard["plan"]["error_bound"] is None
    assert (told["source"] != told["target"]).all()
    replays(service, hard, tmp_path)
    networkx = pytest.importorskip("networkx")
    reply = service.admin.get(f"/v1/releases/{hard['id']}/data", headers={"Accept": "text/csv"})
    lines = reply.text.replace('"', "").splitlines()[1:]
    read = networkx.parse_edgelist(
        lines, delimiter=",", nodetype=int, data=(("weight", float),), create_using=networkx.DiGraph
    )
    assert set(read.edges) == set(zip(told["source"].tolist(), told["target"].tolist(), strict=True))


def test_degrees_beside_edges(service: Service, tmp_path: Path) -> None:
    """A synthetic graph measures degrees beside the edges, both are read and replayed, and the largest error of a cut
    is well below that of the noisy edges of the same epsilon. Catches degrees that are measured and not used, that are
    called by other nodes, and an undirected edge that is counted by one end.
    """
    nodes, rng = 90, np.random.default_rng(5)
    community, activity = np.arange(nodes) % 3, rng.uniform(0.2, 1.8, nodes)
    odds = np.outer(activity, activity) * np.where(community[:, None] == community, 0.25, 0.03)
    truth = np.triu(rng.random((nodes, nodes)) < odds, 1).astype(np.int64)
    truth += truth.T
    labels = [f"n{i}" for i in range(nodes)]
    spec = {"kind": "graph", "nodes": nodes, "directed": False, "labels": labels, "budget": BUDGET | {"epsilon": 2.0}}
    name = registered(service, spec, npy(truth), "graph.npy")
    found = release(service, name, epsilon=1.0, method="synthetic_graph")
    plan = found["plan"]
    assert (plan["measurements"], plan["degrees"]["values"], plan["cells"]) == (2, nodes, nodes * (nodes - 1) // 2)
    items = service.admin.get(f"/v1/datasets/{name}/measurements").json()["items"]
    assert [item["strategy"]["type"] for item in items] == ["edges", "degrees"]
    assert items[1]["strategy"] == {"type": "degrees", "shape": [nodes, nodes], "of": "pairs", "cells": nodes}
    path = f"/v1/datasets/{name}/measurements/{items[1]['id']}"
    degrees = service.admin.get(path).json()
    assert degrees["standard_error"] == pytest.approx(plan["degrees"]["error"], rel=1e-5)
    errors = np.array(degrees["values"]) - truth.sum(axis=1)
    assert np.std(errors) == pytest.approx(degrees["standard_error"], rel=0.6)
    table = pa.ipc.open_stream(service.admin.get(path, headers={"Accept": ARROW}).content).read_all()
    assert table.to_pydict() == {"node": labels, "degree": degrees["values"]}
    assert found["result"]["degree_error"] == plan["degrees"]["error"]
    replays(service, found, tmp_path)
    noisy = release(service, name, epsilon=1.0, method="histogram", start="nothing")

    def largest(told: dict[str, npt.NDArray[Any]]) -> float:
        off = -truth.astype(float)
        ends = [np.array([int(label[1:]) for label in told[end]]) for end in ("source", "target")]
        off[ends[0], ends[1]] += told["weight"]
        off[ends[1], ends[0]] += told["weight"]
        return undirected_cut_norm(off, certified=False).lower

    made, measured = (largest(columns(edges(service, each))) for each in (found, noisy))
    assert made < 0.5 * measured


def remade(lines: list[bytes], id: str) -> Outcome:
    """What an auditor makes of a release's transcript."""
    opening, records = Header.read(lines[0]).opening(), [orjson.loads(line) for line in lines[1:]]
    made = [Measured.read(record).measurement for record in records if record["record"] == "measurement"]
    assert opening.evidence is not None
    known = len(opening.evidence.known)
    return finish(job_of(opening, made[:known], made[known:], seed=int(id[:15], 16)), lambda part: None)


def test_blocks_that_were_measured_are_kept(service: Service, tmp_path: Path) -> None:
    """What somebody measured of groups is kept by a synthetic graph, at the price and with the plan of one that knows
    nothing of it; the result says so, the transcript replays and gives the same graph again, and one with another
    measured sum does not. Catches sums that are paid for again, that stand between other groups, that are not in the
    transcript, and that are used where nothing is to be known.
    """
    nodes, rng = 80, np.random.default_rng(6)
    community = np.arange(nodes) % 4
    truth = np.triu(rng.random((nodes, nodes)) < np.where(community[:, None] == community, 0.4, 0.04), 1)
    truth = (truth | truth.T).astype(np.int64)
    spec = {"kind": "graph", "nodes": nodes, "directed": False, "budget": BUDGET | {"epsilon": 3.0}}
    name = registered(service, spec, npy(truth), "graph.npy")
    words = {"mechanism": {"construction": "evidence"}, "epsilon": 1.0, "max_queries": 1}
    session = service.admin.post("/v1/sessions", json={"dataset": name, **words}).json()
    groups = {f"g{k}": np.flatnonzero(community == k).tolist() for k in range(4)}
    query = {"type": "blocks", "left": groups}
    assert service.admin.post(f"/v1/sessions/{session['id']}/queries", json=query).status_code == 200
    service.admin.delete(f"/v1/sessions/{session['id']}")

    def of_groups(found: JSON) -> npt.NDArray[np.float64]:
        told, off = columns(edges(service, found)), -truth.astype(float)
        off[told["source"], told["target"]] += told["weight"]
        off[told["target"], told["source"]] += told["weight"]
        members = np.eye(4)[community]
        sums: npt.NDArray[np.float64] = members.T @ off @ members
        return sums

    kept = release(service, name, epsilon=0.5, method="synthetic_graph")
    alone = release(service, name, epsilon=0.5, method="synthetic_graph", start="nothing")
    near = release(service, name, epsilon=0.5, method="synthetic_graph", geometry="cut_norm")
    assert np.abs(of_groups(kept)).mean() < 0.25 * np.abs(of_groups(alone)).mean()
    assert kept["cost"] == alone["cost"]
    (told,) = kept["result"]["blocks"]
    assert told["numbers"] == 10
    assert 0 <= told["discrepancy"] < 4 * told["error"]
    assert "blocks" not in alone["result"]
    assert "blocks" not in near["result"]
    replays(service, kept, tmp_path)
    lines = (tmp_path / "transcript.ndjson").read_bytes().splitlines()
    outcome, sent = remade(lines, kept["id"]), columns(edges(service, kept))
    assert outcome.edges is not None
    weights = outcome.edges.edges.matrix(outcome.edges.values)
    assert np.array_equal(weights[sent["source"], sent["target"]], sent["weight"])
    assert outcome.summary["blocks"] == [told]
    place = next(place for place, line in enumerate(lines) if b'"type":"blocks"' in line)
    record = orjson.loads(lines[place])
    values = record["measurement"]["values"]
    record["measurement"]["values"] = ("A" if values[0] != "A" else "B") + values[1:]
    lines[place] = orjson.dumps(record, option=orjson.OPT_SORT_KEYS)
    path = tmp_path / "forged.ndjson"
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    assert not replay_file(path).ok


def test_weights_and_matrices(service: Service, tmp_path: Path) -> None:
    """Weighted edges and entries of a matrix get noise on the grid of the data, and rows are called by their labels.
    Catches noise in the wrong unit, entries that are clipped, and ends that change places.
    """
    rng = np.random.default_rng(3)
    weights = np.round(rng.random((6, 9)) * 64) / 64
    spec = {"kind": "bipartite", "left": 6, "right": 9, "weighted": True, "grid": 2.0**-6}
    labels = {"left_labels": [f"l{i}" for i in range(6)], "right_labels": [f"r{j}" for j in range(9)]}
    name = registered(service, {**spec, **labels}, npy(weights), "graph.npy")
    found = release(service, name, epsilon=1.0)
    assert (found["plan"]["noise"], found["plan"]["noise_scale"]) == ("laplace", 1.0)
    told = columns(edges(service, found))
    assert told["source"].tolist() == [f"l{i}" for i in range(6) for _ in range(9)]
    assert told["target"].tolist() == [f"r{j}" for j in range(9)] * 6
    assert np.array_equal(told["weight"] * 64, np.round(told["weight"] * 64))
    assert abs(told["weight"] - weights.reshape(-1)).mean() == pytest.approx(1.0, rel=0.6)
    entries = rng.integers(-8, 9, (5, 40)) / 4.0
    spec = {"kind": "matrix", "rows": 5, "columns": 40, "lower": -2.0, "upper": 2.0, "grid": 0.25}
    name = registered(service, spec, npy(entries), "matrix.npy")
    found = release(service, name, epsilon=0.5, workload={"rank_one": "all"})
    told = columns(edges(service, found))
    assert list(told) == ["row", "column", "value"]
    errors = told["value"] - entries[told["row"], told["column"]]
    assert np.std(errors) == pytest.approx(found["plan"]["cell_error"], rel=0.3)
    replays(service, found, tmp_path)


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ({"method": "projection"}, "plan-infeasible", "use histogram or synthetic_graph"),
        ({"method": "synthetic_table"}, "plan-infeasible", "use histogram or synthetic_graph"),
        ({"workload": {"marginals": 2}}, "invalid-request", "use cuts or rank_one"),
        ({"method": "histogram", "rounding": "edges"}, "plan-infeasible", "rounding does not belong to histogram"),
        ({"method": "synthetic_graph", "records": 5}, "plan-infeasible", "records does not belong to synthetic_graph"),
    ],
)
def test_what_serves_tables_is_refused(service: Service, words: JSON, code: str, says: str) -> None:
    """Every refusal says what serves instead. Catches one that is an error of the server, or says nothing."""
    name = of_nodes(service, directed=True)
    reply = service.admin.post("/v1/releases", json={"dataset": name, "workload": CUTS, "epsilon": 0.5, **words})
    assert refused(reply, code)
    assert says in reply.json()["detail"]


def test_too_many_cells_are_refused(service: Service) -> None:
    """More pairs than can be measured are refused before anything is drawn. Catches a limit of bits for numbers."""
    listed = b"source,target\n0,1\n2,3\n"
    for spec, most in (
        ({"nodes": 5794, "directed": False}, "16,777,216 of bits"),
        ({"nodes": 2897, "directed": False, "weighted": True}, "4,194,304 of numbers"),
    ):
        data = listed if "weighted" not in spec else b"source,target,weight\n0,1,0.5\n"
        name = registered(service, {"kind": "graph", **spec}, data, "edges.csv")
        reply = service.admin.post("/v1/releases", json={"dataset": name, "workload": CUTS, "epsilon": 0.5})
        assert refused(reply, "plan-infeasible")
        assert most in reply.json()["detail"]
    assert service.admin.get(f"/v1/datasets/{name}/measurements").json()["items"] == []
