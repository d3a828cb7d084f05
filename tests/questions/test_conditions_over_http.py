"""Conditions with any and not through the whole service: answered, charged once, recorded, replayed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from app.verifying.transcript import replay_file
from tests.kit.noise import Noise
from tests.kit.service import JSON, Service, ask, npy, open_session, register, unique

pytestmark = pytest.mark.api

SPEC = {
    "kind": "table",
    "attributes": [{"name": "a", "size": 3}, {"name": "b", "size": 4}, {"name": "c", "values": ["x", "y"]}],
    "budget": {"epsilon": 1.0, "delta": 1e-9},
    "records_public": True,
}
COUNTS = np.arange(24).reshape(3, 4, 2) * 50
EITHER: JSON = {"type": "predicate", "where": {"any": [{"a": 1}, {"b": {"ge": 2}}]}}
A, B = np.indices((3, 4))
TRUTH = float(COUNTS.sum(axis=2)[(A == 1) | (B >= 2)].sum())
SPELLED = [
    {"not": {"a": [0, 2], "b": [0, 1]}},
    {"not": {"all": [{"not": {"a": 1}}, {"b": {"lt": 2}}]}},
    {"any": [{"b": [2, 3]}, {"a": 1, "b": {"lt": 2}}], "c": ["x", "y"]},
]


@pytest.mark.parametrize(
    ("mechanism", "more"),
    [
        ({"construction": "gaussian"}, {}),
        ({"construction": "evidence"}, {}),
        ({"construction": "mw"}, {"max_updates": 3}),
        ({"construction": "fk"}, {"max_updates": 3}),
        ({"construction": "md", "potential": "lp", "p": 1.5}, {"max_updates": 3}),
    ],
    ids=lambda value: value.get("construction", ""),
)
def test_every_mechanism_takes_them(
    service: Service, noise: Noise, mechanism: JSON, more: JSON, tmp_path: Path
) -> None:
    """The truth where there is no noise, the same answer however it is spelled, and a transcript that replays. Catches
    a mechanism that cannot hold such weights, and a question that is paid for twice.
    """
    analyst: httpx.Client = service.principal("analyst")
    name = unique("either")
    assert register(service.admin, {**SPEC, "name": name}, npy(COUNTS), "t.npy").status_code == 201
    asked: dict[str, Any] = {"mechanism": mechanism, "epsilon": 0.5, "max_queries": 9, "max_updates": None} | more
    session = open_session(analyst, name, **asked)["id"]
    first = ask(analyst, session, EITHER)
    if first["source"] == "measurement" and mechanism["construction"] != "evidence":
        assert first["value"] == TRUTH
    for where in SPELLED:
        again = ask(analyst, session, {"type": "predicate", "where": where})
        assert (again["value"], again["source"], again["charged_epsilon"]) == (first["value"], "cached", 0)
    path = tmp_path / "transcript.ndjson"
    path.write_bytes(analyst.get(f"/v1/sessions/{session}/transcript").content)
    verdict = replay_file(path)
    assert verdict.ok, verdict.problem
