"""Persons as the unit, through the whole service: declared, registered, asked, charged and replayed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.bootstrap.noise import SystemNoise
from app.verifying.transcript import replay_file
from tests.kit.service import JSON, Service, ask, refused, register, serving, unique

pytestmark = pytest.mark.api

MOST, PEOPLE, EACH = 3, 400, 5
SPEC: JSON = {
    "kind": "table",
    "attributes": [
        {"name": "a", "size": 4},
        {"name": "b", "size": 6},
        {"name": "n", "lower": 0, "upper": 9, "grid": 1},
    ],
    "unit": {"column": "who", "max_records": MOST},
    "records_public": True,
    "budget": {"epsilon": 20.0, "delta": 1e-6},
}
RANDOM = np.random.default_rng(2)
CSV = "\n".join(
    [
        "who,a,b,n",
        *(
            f"w{i},{RANDOM.integers(4)},{RANDOM.integers(6)},{RANDOM.integers(10)}"
            for _ in range(EACH)
            for i in range(PEOPLE)
        ),
    ]
).encode()
SESSIONS: list[JSON] = [
    {"mechanism": {"construction": "mw"}, "max_updates": 3, "max_queries": 40},
    {"mechanism": {"construction": "mw"}, "max_updates": 3, "max_queries": 40, "release": "race"},
    {"mechanism": {"construction": "laplace"}, "max_queries": 10},
    {"mechanism": {"construction": "gaussian"}, "max_queries": 10},
    {"mechanism": {"construction": "evidence"}, "max_queries": 10},
    {"mechanism": {"construction": "histogram"}, "max_queries": 10},
    {"mechanism": {"construction": "evidence"}, "contract": True, "max_queries": 10},
]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A server with noise of its own."""
    with serving(tmp_path_factory.mktemp("persons"), noise=SystemNoise()) as running:
        yield running


def test_of_each_person_so_many_records_are_kept(service: Service) -> None:
    """And the descriptor says who is hidden. Would catch a declaration that is read and not kept."""
    name = unique("people")
    reply = register(service.admin, {**SPEC, "name": name}, CSV, "people.csv")
    assert reply.status_code == 201, reply.text
    descriptor = reply.json()
    assert descriptor["records"] == MOST * PEOPLE
    report = descriptor["report"]
    assert (report["read"], report["kept"]) == (EACH * PEOPLE, MOST * PEOPLE)
    assert (report["dropped"], report["beyond_cap"]) == (0, (EACH - MOST) * PEOPLE)
    assert descriptor["gamma"] == MOST
    assert descriptor["privacy_unit"] == 'one person ("who") with all of up to 3 records added or removed'
    assert service.admin.get(f"/v1/datasets/{name}").json()["domain"]["unit"] == SPEC["unit"]


def test_every_mechanism_is_asked_and_replayed(service: Service, tmp_path: Path) -> None:
    """One data set, a session of each, over each other's evidence. Would catch a replay that prices for one record, and
    a session that cannot be opened or asked where neighbours are three apart."""
    name, analyst = unique("people"), service.principal("analyst")
    assert register(service.admin, {**SPEC, "name": name}, CSV, "people.csv").status_code == 201
    for number, more in enumerate(SESSIONS):
        opened = analyst.post("/v1/sessions", json={"dataset": name, "epsilon": 2.0, **more})
        assert opened.status_code == 201, opened.text
        id = opened.json()["id"]
        for question in (
            {"type": "predicate", "where": {"a": 1}},
            {"type": "predicate", "where": {"a": [0, 2], "b": {"ge": 2}}},
        ):
            assert abs(ask(analyst, id, question)["value"]) < 1e5
        if more == {"mechanism": {"construction": "evidence"}, "max_queries": 10}:
            # About half of nine, of three records of each.
            answer = ask(analyst, id, {"type": "sum", "of": "n"})
            assert abs(answer["value"] - 4.5 * MOST * PEOPLE) < 8 * answer["standard_error"] + 500
        path = tmp_path / f"{number}.ndjson"
        path.write_bytes(analyst.get(f"/v1/sessions/{id}/transcript").content)
        verdict = replay_file(path)
        assert verdict.ok, (more, verdict.problem)


def test_what_cannot_be_read_is_refused(service: Service) -> None:
    """With what to change, and nothing is kept. Would catch a stack trace."""
    for spec, content, told in (
        (SPEC, CSV.replace(b"w3,", b",", 1), "row 4"),
        ({**SPEC, "unit": {"column": "nobody", "max_records": 1}}, CSV, 'no column "nobody"'),
        ({**SPEC, "unit": {"column": "a", "max_records": 1}}, CSV, "no attribute"),
        ({**SPEC, "unit": {"column": "who", "max_records": 0}}, CSV, "unit.max_records"),
    ):
        name = unique("people")
        reply = register(service.admin, {**spec, "name": name}, content, "people.csv")
        assert told in refused(reply, "invalid-dataset")["detail"]
        assert service.admin.get(f"/v1/datasets/{name}").status_code == 404
