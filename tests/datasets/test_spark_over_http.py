"""A table of Spark from outside: by HTTP, beside the upload of the same records, and a cluster that dies.

They would catch an answer that is another than the upload's, a fault of the cluster that is one of the server's or is
told, and a secret that anybody is told or that lies about unsealed.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.datasets.outside import Cluster, cluster
from tests.datasets.source_files import JSON, declare, write
from tests.datasets.test_connections import KEY
from tests.kit import spark
from tests.kit.noise import Noise, nothing
from tests.kit.service import Service, ask, refused, serving, unique, where

pytestmark = [pytest.mark.api, pytest.mark.slow]

RNG = np.random.default_rng(5)
COLUMNS = {
    "zebra_ward": pa.array(np.arange(600) % 3, pa.int32()),
    "city": pa.array([["it's", "b`c", "\\"][number] for number in RNG.integers(0, 3, 600)]),
    "age": pa.array(np.where(RNG.random(600) < 0.1, np.nan, RNG.random(600) * 90)),
    "year": pa.array(RNG.integers(0, 2**18, 600), pa.int64()),
    "stay": pa.array(RNG.integers(0, 31, 600), pa.int16()),
}
ATTRIBUTES: list[JSON] = [
    {"name": "ward", "size": 3, "column": "zebra_ward"},
    {"name": "city", "values": ["it's", "b`c", "\\"]},
    {"name": "age", "lower": 0, "upper": 80, "bins": 4, "outside": "clamp", "missing": True},
    {"name": "year", "size": 2**18},
    {"name": "stay", "lower": 0, "upper": 30, "grid": 1},
]
#: Thirteen kinds of what is asked of a table.
QUESTIONS: list[JSON] = [
    where(ward=1),
    where(city=["it's", "\\"], year={"ge": 100_000}),
    where(any=[{"ward": 0}, {"stay": {"ge": 20}}]),
    {"type": "predicate", "where": {"not": {"ward": 2, "city": "b`c"}}},
    where(age=None),
    {"type": "marginal", "attributes": ["city"]},
    {"type": "marginal", "attributes": ["ward", "stay"], "bins": {"stay": [0, 10, 30]}},
    {"type": "sum", "of": "stay", "where": {"ward": 1}},
    {"type": "mean", "of": "stay"},
    {"type": "mean", "of": "stay", "group_by": ["city"]},
    {"type": "variance", "of": "stay"},
    {"type": "quantile", "of": "stay", "q": 0.5},
    {"type": "share", "of": {"city": "it's"}, "where": {"ward": [0, 1]}},
]


@pytest.fixture(scope="module")
def engine() -> Iterator[Cluster]:
    with cluster() as found:
        found.lay(COLUMNS)
        yield found


def declared(**more: Any) -> JSON:
    return {**declare(ATTRIBUTES), "name": unique("spark"), "budget": {"epsilon": 50.0, "delta": 1e-9}, **more}


def added(service: Service, url: str) -> str:
    name = unique("cluster")
    reply = service.admin.post("/v1/connections", json={"name": name, "url": url})
    assert reply.status_code == 201, reply.text
    assert reply.json()["type"] == "spark"
    return name


def registered(service: Service, connection: str, table: str) -> str:
    spec = declared(source={"type": "spark", "connection": connection, "table": table})
    reply = service.admin.post("/v1/datasets", files={"spec": (None, json.dumps(spec))})
    assert reply.status_code == 201, reply.text
    assert reply.json()["report"]["read"] == 600
    return str(spec["name"])


def opened(analyst: Any, name: str, construction: str) -> str:
    words = {"dataset": name, "mechanism": {"construction": construction}, "epsilon": 0.3, "max_queries": 20}
    reply = analyst.post("/v1/sessions", json=words)
    assert reply.status_code == 201, reply.text
    return str(reply.json()["id"])


def running(folder: Path, port: int) -> Any:
    how = {"source_hosts": f"127.0.0.1:{port}", "vault_key": KEY, "source_tick_seconds": 0.05}
    return serving(folder, noise=Noise(nothing), **how)


def port_of(url: str) -> int:
    return int(url.partition("127.0.0.1:")[2].partition("/")[0])


def test_answers_are_those_of_the_upload(tmp_path: Path, engine: Cluster) -> None:
    """Thirteen kinds of questions, one after another, told without noise; and no secret or name is in any reply, row or
    file. The first answers are counted here by hand.
    """
    with running(tmp_path / "var", port_of(engine.url)) as service:
        connection = added(service, engine.url)
        assert service.admin.post(f"/v1/connections/{connection}/check").json()["problems"] == []
        name = registered(service, connection, engine.table)
        names = {"zebra_ward": "ward"}
        twin = declared(attributes=[{k: v for k, v in each.items() if k != "column"} for each in ATTRIBUTES])
        path = write(tmp_path / "twin.parquet", {names.get(key, key): column for key, column in COLUMNS.items()})
        files = {"data": ("twin.parquet", path.read_bytes())}
        assert service.admin.post("/v1/datasets", data={"spec": json.dumps(twin)}, files=files).status_code == 201
        analyst = service.principal("analyst")
        one, other = (opened(analyst, each, "evidence") for each in (name, twin["name"]))
        for question in QUESTIONS:
            found, expected = (ask(analyst, session, question) for session in (one, other))
            values = {"value", "values", "standard_error", "interval"} & set(expected)
            assert values
            assert [found[key] for key in values] == [expected[key] for key in values], (question, found, expected)
        exact = opened(analyst, name, "gaussian")
        wards, years, cities = (np.array(COLUMNS[each].to_pylist()) for each in ("zebra_ward", "year", "city"))
        assert ask(analyst, exact, where(ward=1))["value"] == 200
        late = where(city=["it's", "\\"], year={"ge": 100_000})
        assert ask(analyst, exact, late)["value"] == ((cities != "b`c") & (years >= 100_000)).sum()
        assert (
            ask(analyst, exact, {"type": "marginal", "attributes": ["ward"]})["values"] == np.bincount(wards).tolist()
        )
        told = [service.stored(), service.admin.get("/v1/connections").text, service.admin.get("/v1/datasets").text]
        told += [service.admin.get("/metrics").text]
        told += [str(service.rows(table)) for table in ("datasets", "events", "connections", "kept_counts")]
        for secret in (spark.TOKEN, "zebra", engine.schema, "visits"):
            assert not any(secret in text for text in told), secret
        refused(service.admin.delete(f"/v1/connections/{connection}"), "conflict")


def test_a_cluster_dies_and_comes_back(tmp_path: Path, logged: list[Any]) -> None:
    """Killed, it answers what was counted, and the rest is a 503 that says nothing of it; started again with the same
    records it answers, and with others it has moved.
    """
    spark.server_of_run()  # skips where there is none
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with ExitStack() as stack:
        first, _ = spark.launch(tmp_path, port)
        stack.callback(first.kill)
        engine = Cluster(spark.url_of(port), tmp_path / "lake")
        engine.lay(COLUMNS)
        service = stack.enter_context(running(tmp_path / "var", port))
        name = registered(service, added(service, engine.url), engine.table)
        analyst = service.principal("analyst")
        session = opened(analyst, name, "gaussian")
        assert ask(analyst, session, where(ward=1))["value"] == 200
        first.kill()
        first.wait()
        path = f"/v1/sessions/{session}/queries"
        document = refused(analyst.post(path, json=where(stay={"lt": 4})), "source-unavailable")
        assert not any(secret in str(document) for secret in (str(port), spark.TOKEN, engine.schema, "refused"))
        (error,) = [event for event in logged if event["level"] == "error"]
        assert (error.pop("event"), error.pop("error")) == ("a source cannot be asked", "UNAVAILABLE")
        assert set(error) == {"connection", "level"}
        logged.clear()
        assert ask(analyst, session, where(ward=1))["value"] == 200
        again, _ = spark.launch(tmp_path, port)
        stack.callback(again.kill)
        refused(analyst.post(path, json=where(stay={"lt": 4})), "source-moved")
        back = Cluster(engine.url, tmp_path / "lake", engine.schema)
        back.lay(COLUMNS)
        stays = np.array(COLUMNS["stay"].to_pylist())
        assert ask(analyst, session, where(stay={"lt": 4}))["value"] == (stays < 4).sum()
