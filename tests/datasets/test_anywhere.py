"""Whatever is asked of records, it is answered alike wherever they lie: as an upload in memory, in files that stay
where they are, and in a sealed file. Noise is nothing here, so that an answer follows from exact counts and public
state alone.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.kit.noise import Noise, nothing
from tests.kit.service import JSON, Service, serving, unique, where
from tests.kit.world import eventually

pytestmark = pytest.mark.api

#: More than 2^24 combinations of values.
ATTRIBUTES: list[JSON] = [
    {"name": "ward", "size": 3},
    {"name": "year", "size": 2**15},
    {"name": "month", "lower": 0, "upper": 11, "grid": 1},
    {"name": "days", "lower": 0, "upper": 40, "grid": 1, "missing": True},
]
WEIGHT: JSON = {"name": "weight", "lower": 0, "upper": 8, "grid": 1, "role": "weight"}
N = 600
#: Of everything that is asked a kind, most of them of parts that no opening counts.
LATE = {"year": {"ge": 2_500}}
QUERIES: list[JSON] = [
    where(month=3, ward=0),
    where(year={"lt": 12_500}, ward=[0, 2]),
    {"type": "predicate", "where": {"any": [{"month": 3}, {"year": {"lt": 8_750}, "ward": 1}]}},
    {"type": "product", "weights": {"ward": [0.25, 1.0, -0.5]}},
    {"type": "marginal", "attributes": ["ward", "month"]},
    {"type": "marginal", "attributes": ["month"], "where": LATE},
    {"type": "sum", "of": "days", "where": LATE},
    {"type": "mean", "of": "month", "where": {"ward": 1, **LATE}},
    {"type": "mean", "of": "days", "group_by": ["ward"], "where": LATE},
    {"type": "variance", "of": "month", "where": {"year": {"lt": 18_750}}},
    {"type": "quantile", "of": "month", "q": 0.5, "where": LATE},
    {"type": "quantile", "of": "days", "q": [0.25, 0.5, 0.75], "group_by": ["ward"]},
    {"type": "share", "of": {"month": [3, 4]}, "where": {"ward": 2, **LATE}},
    {"type": "share", "of": {"days": {"lt": 9}}, "group_by": ["ward"]},
    {"type": "ratio", "of": "days", "per": "month", "where": LATE},
    where(month=5, **LATE) | {"within": 150},
    where(month=6, ward=1, **LATE) | {"adaptive": True},
]
WEIGHTED: list[JSON] = [
    where(month=3, **LATE) | {"weighted": True},
    {"type": "mean", "of": "days", "weighted": True, "where": LATE},
    {"type": "share", "of": {"month": [3, 4]}, "group_by": ["ward"], "weighted": True},
    {"type": "quantile", "of": "month", "q": 0.5, "weighted": True, "where": LATE},
]
STATEMENTS = [
    "SELECT COUNT(*), AVG(days), MEDIAN(month) FROM {} WHERE year < 11200",
    "SELECT ward, SUM(days), AVG(month) FROM {} WHERE year >= 3800 GROUP BY ward",
]
#: What says which cells a table has.
CELLS = {"table", "ward", "month"}
#: What differs from one data set, session or request to another.
OWN = {"id", "entry_hash", "previous_hash", "time", "created_at", "finished_at", "session", "dataset", "name", "links"}


def table() -> pa.Table:
    rng = np.random.default_rng(7)
    days = np.where(rng.random(N) < 0.1, -1, np.minimum(rng.geometric(0.1, N), 40))
    return pa.table(
        {
            "ward": rng.integers(0, 3, N),
            "year": rng.integers(0, 2**15, N),
            "month": rng.integers(0, 12, N),
            "days": pa.array([None if day < 0 else int(day) for day in days], pa.int64()),
            "weight": rng.integers(0, 9, N),
        }
    )


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("anywhere-lake")
    pq.write_table(table(), folder / "all.parquet")
    return folder


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, lake: Path) -> Iterator[Service]:
    var = tmp_path_factory.mktemp("anywhere") / "var"
    with serving(var, noise=Noise(nothing), source_folders=str(lake), source_tick_seconds=0.05) as running:
        yield running


def placed(service: Service, where_to: str, attributes: list[JSON]) -> str:
    """A data set of the same records: in memory, in place or sealed."""
    name = unique("anywhere")
    spec: JSON = {"name": name, "kind": "table", "budget": {"epsilon": 40.0, "delta": 1e-9}, "attributes": attributes}
    if where_to == "memory":
        body = io.BytesIO()
        pq.write_table(table(), body)
        files: Any = {"spec": (None, json.dumps(spec)), "data": ("all.parquet", body.getvalue())}
    else:
        spec["source"] = {"type": "parquet", "files": ["all.parquet"]}
        if where_to == "sealed":
            spec["prepare"] = "vault"
        files = {"spec": (None, json.dumps(spec))}
    reply = service.admin.post("/v1/datasets", files=files)
    assert reply.status_code == 201, reply.text
    return name


def opened(analyst: httpx.Client, name: str, **more: Any) -> str:
    words = {"dataset": name, "mechanism": {"construction": "evidence"}, "epsilon": 4.0, "max_queries": 60} | more
    reply = analyst.post("/v1/sessions", json=words)
    assert reply.status_code == 201, reply.text
    return str(reply.json()["id"])


def alike(told: Any) -> Any:
    """A reply without what is its own."""
    if isinstance(told, dict):
        return {key: alike(value) for key, value in told.items() if key not in OWN}
    return [alike(each) for each in told] if isinstance(told, list) else told


def played(service: Service, name: str, queries: list[JSON], **more: Any) -> list[Any]:
    """What a session tells of questions one by one, of as many together, of statements, prices and a plan."""
    analyst = service.principal("analyst")
    found: list[Any] = []

    def take(reply: httpx.Response) -> None:
        assert reply.status_code < 500, reply.text
        found.append((reply.status_code, alike(reply.json())))

    session = opened(analyst, name, **more)
    for query in queries:
        take(analyst.post(f"/v1/sessions/{session}/price", json=query))
        take(analyst.post(f"/v1/sessions/{session}/queries", json=query))
    session = opened(analyst, name, **more)
    for start in range(0, len(queries), 6):
        batch = queries[start : start + 6]
        take(analyst.post(f"/v1/sessions/{session}/queries/batch", json={"queries": batch}))
    for statement in STATEMENTS:
        take(analyst.post(f"/v1/sessions/{session}/sql", json={"statement": statement.format(name)}))
    free = opened(analyst, name, epsilon=0)
    for query in queries:
        take(analyst.post(f"/v1/sessions/{free}/queries", json=query))
    return found


def released(service: Service, name: str) -> list[Any]:
    """The tables that are published of what was measured, and those of a release of marginals, as they are loaded."""
    analyst, found = service.principal("analyst"), []
    for words in (
        {"method": "publication", "epsilon": 0, "tables": [{"type": "marginal", "attributes": ["ward", "month"]}]},
        {"method": "gaussian", "epsilon": 1.0, "workload": {"marginals": 1, "attributes": ["ward", "month"]}},
    ):
        reply = analyst.post("/v1/releases", json={"dataset": name, **words})
        assert reply.status_code == 202, reply.text
        release = f"/v1/releases/{reply.json()['id']}"
        eventually(lambda release=release: analyst.get(release).json()["status"] == "done")
        told = pa.ipc.open_stream(analyst.get(f"{release}/data").content).read_all().to_pydict()
        # Each publication rounds to whole numbers by chance of its own.
        found.append({name: own for name, own in told.items() if words["method"] != "publication" or name in CELLS})
    return found


def test_every_question(service: Service) -> None:
    """Would catch a kind of question that is answered of an upload alone, or otherwise where records are asked for."""
    expected, tables = None, None
    for whereabouts in ("memory", "in place", "sealed"):
        name = placed(service, whereabouts, ATTRIBUTES)
        found, files = played(service, name, QUERIES), released(service, name)
        if expected is None:
            expected, tables = found, files
            assert [status for status, _ in expected].count(200) > len(expected) * 0.8
        for number, (own, whose) in enumerate(zip(found, expected, strict=True)):
            assert own == whose, (whereabouts, number)
        assert files == tables


def test_weighted_questions(service: Service) -> None:
    """The same of weights, which files in place do not have."""
    attributes = [*ATTRIBUTES, WEIGHT]
    first, second = (played(service, placed(service, each, attributes), WEIGHTED) for each in ("memory", "sealed"))
    for number, (own, whose) in enumerate(zip(first, second, strict=True)):
        assert own == whose, number


def test_answers_that_are_measured_one_by_one(service: Service) -> None:
    """Would catch an answer of a session that learns nothing from others."""
    own = {"mechanism": {"construction": "gaussian"}}
    places = ("memory", "in place", "sealed")
    found = [played(service, placed(service, each, ATTRIBUTES), QUERIES[:6], **own) for each in places]
    assert found[0] == found[1] == found[2]
