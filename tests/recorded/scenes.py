"""What is played: data sets of every kind, sessions of every mechanism, releases of every method."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tests.recorded.playing import Play

BUDGET = {"epsilon": 400, "delta": 1e-6}
OWN = ["laplace", "gaussian"]
FROM_EVIDENCE = ["evidence", "histogram", "auto"]
METHODS = ["auto", "histogram", "gaussian", "projection", "factorization", "iterative_construction", "synthetic_graph"]

TABLE: dict[str, Any] = {
    "name": "table",
    "kind": "table",
    "attributes": [
        {"name": "age", "lower": 15, "upper": 95, "bins": 8},
        {"name": "sex", "values": ["female", "male"]},
        {"name": "work", "size": 5},
    ],
    "records_public": True,
    "budget": BUDGET,
}
COUNTS: list[dict[str, Any]] = [
    {"type": "predicate", "where": {"sex": "female", "work": [1, 4], "age": {"ge": 25, "lt": 65}}},
    {"type": "predicate", "where": {"sex": "male", "any": [{"age": {"ge": 65}}, {"not": {"work": [0, 1]}}]}},
    {"type": "product", "weights": {"work": [0, 0.25, 0.5, 0.75, 1]}},
    {"type": "sparse", "indices": [0, 17, 63], "weights": [1, -0.5, 0.25]},
]
MARGINALS: list[dict[str, Any]] = [
    {"type": "marginal", "attributes": ["age", "sex"], "bins": {"age": [15, 35, 65, 95]}, "where": {"work": 4}},
    {"type": "marginal", "attributes": ["work", "sex"]},
    {"type": "marginal", "attributes": ["sex", "work"]},
]
SURVEY: dict[str, Any] = {
    "name": "survey",
    "kind": "table",
    "attributes": [
        {"name": "sex", "values": ["female", "male"]},
        {"name": "age", "lower": 15, "upper": 95, "grid": 1, "bins": 16},
        {"name": "income", "lower": 0, "upper": 50000, "grid": 100, "bins": 20, "missing": True, "outside": "clamp"},
        {"name": "joined", "dates": ["2018-01-01", "2025-12-31"], "by": "month"},
    ],
    "capacity": 100000,
    "budget": BUDGET,
}
STATISTICS: list[dict[str, Any]] = [
    {"type": "mean", "of": "income"},
    {"type": "sum", "of": "income", "where": {"age": {"ge": 30, "lt": 50}}},
    {"type": "mean", "of": "income", "group_by": ["age", "sex"], "bins": {"age": [15, 45, 95]}},
    {
        "type": "variance",
        "of": "age",
        "group_by": ["sex"],
        "where": {"any": [{"joined": {"lt": "2020"}}, {"income": None}]},
    },
    {"type": "quantile", "of": "income", "q": [0.25, 0.5, 0.75], "group_by": ["sex"]},
    {"type": "quantile", "of": "age", "q": 0.5, "where": {"joined": {"ge": "2021"}}},
    {"type": "predicate", "where": {"age": {"between": [30, 65]}, "income": {"gt": 12345.6}}},
    {"type": "marginal", "attributes": ["income", "sex"], "bins": {"income": [0, 20000, 50000]}},
]
CUTS: list[dict[str, Any]] = [
    {"type": "cut", "left": [0, 1, 2], "right": "all"},
    {"type": "cut", "left": [0, 1, 2, 3], "right": [4, 5, 6, 7, 8]},
]
BLOCKS: list[dict[str, Any]] = [
    {"type": "blocks", "left": {"red": [0, 1, 2, 3], "blue": [4, 5, 6]}},
    {"type": "blocks", "left": {"a": [0, 1, 2, 3, 4], "b": [5, 6, 7]}, "only": "within"},
]
SIDES: list[dict[str, Any]] = [
    {"type": "blocks", "left": {"red": [0, 1, 2], "blue": [3, 4]}, "right": {"x": [0, 1], "y": [2, 3, 4]}},
]


def _rng() -> np.random.Generator:
    return np.random.default_rng(7)


def _counts() -> Any:
    return _rng().integers(0, 40, (8, 2, 5))


def _npy(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def _edges(rows: int, columns: int, square: bool, directed: bool, weights: bool) -> bytes:
    rng, lines = _rng(), []
    for a in range(rows):
        for b in range(columns):
            if square and (a == b or (not directed and a > b)):
                continue
            if rng.random() < 0.3:
                lines.append(f"{a},{b},{rng.integers(1, 5) / 4}" if weights else f"{a},{b}")
    return "\n".join(lines).encode()


def _session(play: Play, dataset: str, construction: str, queries: list[dict[str, Any]], **asked: Any) -> None:
    mechanism = {"construction": construction, **asked.pop("parameters", {})}
    play.session({"dataset": dataset, "mechanism": mechanism, "epsilon": 2, "max_queries": 20} | asked, queries)


def _releases(play: Play, dataset: str, workload: dict[str, Any], methods: list[str]) -> None:
    asked = {"dataset": dataset, "workload": workload, "epsilon": 1}
    play.call("POST", "/v1/plans", asked)
    for method in methods:
        play.release({**asked, "method": method})


def tables(play: Play) -> None:
    play.register(TABLE, "counts.npy", _npy(_counts()))
    asked = [*COUNTS, *MARGINALS]
    for construction in FROM_EVIDENCE:
        _session(play, "table", construction, asked)
    for construction in OWN:
        _session(play, "table", construction, asked, calibration="exact")
        _session(play, "table", construction, asked)
    _session(play, "table", "evidence", [*asked, {**COUNTS[0], "within": 30, "confidence": 0.9}], start="nothing")
    _session(play, "table", "evidence", [{**each, "adaptive": True} for each in asked], share=False, within=25)
    _session(play, "table", "evidence", asked, contract=True, max_queries=10)
    _session(play, "table", "evidence", asked, contract=True, max_queries=10, start="nothing")


def constructions(play: Play) -> None:
    asked = [COUNTS[0], COUNTS[2], COUNTS[3]]
    play.register(TABLE | {"name": "little", "budget": {"epsilon": 8, "delta": 1e-6}}, "counts.npy", _npy(_counts()))
    for dataset, release in (("table", "single"), ("little", "race")):
        _session(play, dataset, "mw", asked, max_updates=5, release=release)
    _session(play, "little", "evidence", asked, contract=True, max_queries=10, release="race", start="nothing")
    _session(play, "table", "mw", asked, parameters={"step": "refit"}, max_updates=5)
    for calibration in ("exact", "jt2012", "gru2011"):
        _session(play, "table", "mw", asked, max_updates=5, calibration=calibration)
    for potential in ("entropy", "lp"):
        _session(play, "table", "md", asked, parameters={"potential": potential}, max_updates=5)
    _session(play, "table", "fk", asked, max_updates=5)
    _session(play, "table", "median", asked, parameters={"sampled": True}, max_updates=5)
    _session(play, "table", "mw", asked)


def workloads(play: Play) -> None:
    shapes = [
        {"marginals": 1},
        {"marginals": 2, "attributes": ["sex", "work"]},
        {"ranges": "age"},
        {"queries": [*COUNTS, *MARGINALS]},
    ]
    for workload in shapes:
        _releases(play, "table", workload, METHODS if workload == shapes[0] else ["auto"])
    play.release(
        {"dataset": "table", "workload": {"marginals": 2}, "method": "synthetic_table", "epsilon": 1, "records": 300}
    )
    play.release({"dataset": "table", "workload": {"marginals": 1}, "epsilon": 1, "start": "nothing", "share": False})


def surveys(play: Play) -> None:
    rng, lines = _rng(), ["sex,age,income,joined"]
    for _ in range(800):
        income = "" if rng.random() < 0.1 else str(rng.integers(0, 60000))
        joined = f"20{rng.integers(18, 26)}-{rng.integers(1, 13):02}-11"
        lines.append(f"{rng.choice(['female', 'male'])},{rng.integers(15, 95)},{income},{joined}")
    play.register(SURVEY, "survey.csv", "\n".join(lines).encode())
    for construction in ("evidence", "auto"):
        _session(play, "survey", construction, STATISTICS)
    _session(play, "survey", "evidence", STATISTICS, start="nothing", share=False, max_queries=8)
    _session(play, "survey", "evidence", STATISTICS[3:4] + STATISTICS[6:], contract=True)
    play.release({"dataset": "survey", "workload": {"marginals": 1}, "method": "synthetic_table", "epsilon": 1})
    play.release({"dataset": "survey", "workload": {"ranges": "age"}, "epsilon": 1})


def persons(play: Play) -> None:
    spec = {
        "name": "persons",
        "kind": "table",
        "attributes": [{"name": "ward", "size": 6}, {"name": "year", "size": 3}],
        "unit": {"column": "who", "max_records": 3},
        "budget": BUDGET,
    }
    rng = _rng()
    rows = [f"{rng.integers(6)},{rng.integers(3)},{who % 100}" for who in range(290)]
    play.register(spec, "persons.csv", "\n".join(["ward,year,who", *rows]).encode())
    asked = [
        {"type": "marginal", "attributes": ["ward"]},
        {"type": "predicate", "where": {"ward": [1, 2], "year": 0}},
    ]
    for construction in [*FROM_EVIDENCE, *OWN, "mw"]:
        _session(play, "persons", construction, asked)
    play.release({"dataset": "persons", "workload": {"marginals": 2}, "epsilon": 1})


def graphs(play: Play) -> None:
    kinds = {
        "friends": ({"kind": "graph", "nodes": 10}, (10, 10, True, False, False)),
        "trust": ({"kind": "graph", "nodes": 10, "directed": True}, (10, 10, True, True, False)),
        "loads": ({"kind": "graph", "nodes": 10, "weighted": True, "grid": 0.25}, (10, 10, True, False, True)),
        "likes": ({"kind": "bipartite", "left": 9, "right": 12}, (9, 12, False, True, False)),
        "buys": (
            {"kind": "bipartite", "left": 9, "right": 12, "weighted": False, "unit": {"side": "left", "max_edges": 12}},
            (9, 12, False, True, False),
        ),
    }
    for name, (spec, shape) in kinds.items():
        play.register({"name": name, **spec, "budget": BUDGET}, "edges.csv", _edges(*shape))
        ask = [*CUTS, *(SIDES if spec["kind"] == "bipartite" else BLOCKS)]
        ask.append(
            {"type": "rank_one", "left": [1, 0.5] + [0] * (shape[0] - 2), "right": [0, 0] + [1] * (shape[1] - 2)}
        )
        if not spec.get("weighted"):
            side = {"friends": {}, "trust": {"side": "out"}}.get(name, {"side": "left"})
            ask.append({"type": "degrees", **side, "bins": [0, 1, 2, 4]})
        for construction in [*FROM_EVIDENCE, *OWN]:
            _session(play, name, construction, ask)
        _session(play, name, "evidence", [*ask, {**ask[0], "within": 12}, {**ask[1], "adaptive": True}], within=20)
        _session(play, name, "evidence", ask, share=False, start="nothing", confidence=0.99)
        for construction in ("fk", "mw"):
            _session(play, name, construction, CUTS, max_updates=5)
        _session(play, name, "md", CUTS, parameters={"potential": "schatten"}, max_updates=5)
        _releases(play, name, {"cuts": "all"}, METHODS if name == "friends" else ["synthetic_graph"])
        _releases(play, name, {"queries": ask[:3]}, ["auto"])


def matrices(play: Play) -> None:
    spec = {"name": "ratings", "kind": "matrix", "rows": 7, "columns": 9, "lower": 0, "upper": 5, "grid": 0.5}
    play.register({**spec, "budget": BUDGET}, "ratings.npy", _npy(_rng().integers(0, 11, (7, 9)) / 2))
    asked = [*CUTS, *SIDES, {"type": "rank_one", "left": [1, -0.5] + [0] * 5, "right": [0, 0] + [1] * 7}]
    for construction in [*FROM_EVIDENCE, *OWN]:
        _session(play, "ratings", construction, asked)
    _session(play, "ratings", "fk", CUTS, max_updates=5)
    _session(play, "ratings", "md", CUTS, parameters={"potential": "group", "axis": "rows"}, max_updates=5)
    for workload in ({"cuts": "all"}, {"queries": asked}):
        _releases(play, "ratings", workload, ["auto"])


def multisets(play: Play) -> None:
    spec = {"name": "words", "kind": "multiset", "capacity": 1000, "budget": BUDGET}
    rows = "\n".join(f"word{number % 17}" for number in range(300))
    play.register(spec, "words.txt", ("element\n" + rows).encode())
    asked = [
        {"type": "elements", "weights": {"word1": 1.0, "word2": -0.5}},
        {"type": "elements", "weights": {"word3": 1.0}},
    ]
    _session(play, "words", "smw", asked, parameters={"sparsity": 3}, max_updates=5)
    for construction in OWN:
        _session(play, "words", construction, asked)


def comparisons(play: Play) -> None:
    for name in ("table", "friends", "ratings"):
        mechanisms = [{"construction": each} for each in ("mw", "fk", "evidence", "gaussian", "laplace", "histogram")]
        asked = {"dataset": name, "mechanisms": mechanisms, "epsilon": 1, "max_queries": 50}
        play.call("POST", "/v1/plans", asked)
    for wrong in (
        {"construction": "mw", "sparsity": 3},
        {"construction": "md"},
        {"construction": "none"},
        {"construction": "evidence"},
    ):
        play.call("POST", "/v1/plans", {"dataset": "table", "mechanism": wrong, "epsilon": 1})
    for wrong_query in ({"type": "cut", "left": [0], "right": [1]}, {"type": "none"}, {"type": "mean", "of": "sex"}):
        _session(play, "table", "auto", [wrong_query])


ALL: list[Callable[[Any], None]] = [
    tables,
    constructions,
    workloads,
    surveys,
    persons,
    graphs,
    matrices,
    multisets,
    comparisons,
]
