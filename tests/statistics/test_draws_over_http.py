"""Quantiles that are drawn through the whole service: asked, paid, listed, replayed, and told after a restart."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from app.bootstrap.noise import SystemNoise
from tests.kit.service import JSON, Service, ask, register, serving, unique
from tests.statistics.test_statistics_over_http import opened, replays

pytestmark = pytest.mark.api

RECORDS = 30_000
SPEC: JSON = {
    "kind": "table",
    "records_public": True,
    "budget": {"epsilon": 1.0, "delta": 1e-9},
    "attributes": [
        {"name": "sex", "values": ["f", "m"]},
        {"name": "region", "size": 40},
        {"name": "pay", "lower": 0, "upper": 9000, "grid": 10, "missing": True},
    ],
}
RANDOM = np.random.default_rng(5)
SEX, REGION = RANDOM.integers(0, 2, RECORDS), RANDOM.integers(0, 40, RECORDS)
#: In tens; -1 where there is none.
PAY = np.where(RANDOM.random(RECORDS) < 0.1, -1, np.clip(RANDOM.gamma(2.0, 80 + 40 * SEX), 0, 900).astype(int))
CSV = "sex,region,pay\n" + "".join(
    f"{'fm'[s]},{r},{'' if p < 0 else 10 * p}\n" for s, r, p in zip(SEX, REGION, PAY, strict=True)
)
MEDIAN: JSON = {"type": "quantile", "of": "pay", "q": 0.5, "group_by": ["sex"]}


def median(sex: int) -> float:
    return quantile(sex, 0.5)


def quantile(sex: int, q: float) -> float:
    own = np.sort(PAY[(sex == SEX) & (PAY >= 0)])
    return 10.0 * float(own[int(np.ceil(q * len(own))) - 1])


def registered(service: Service) -> str:
    name = unique("pays")
    reply = register(service.admin, {**SPEC, "name": name}, CSV.encode(), "pays.csv")
    assert reply.status_code == 201, reply.text
    return name


def test_without_noise_they_are_the_medians(exact: Service, tmp_path: Path) -> None:
    """And are listed with what was drawn, in the attribute's own numbers. Catches a draw under the label of another
    group, and places in the place of numbers."""
    analyst, name = exact.principal("analyst"), registered(exact)
    id = opened(analyst, name, max_queries=2)["id"]
    price = analyst.post(f"/v1/sessions/{id}/price", json=MEDIAN).json()
    answer = ask(analyst, id, MEDIAN)
    assert answer["values"] == [median(0), median(1)]
    assert all(low <= value <= high for (low, high), value in zip(answer["intervals"], answer["values"], strict=True))
    assert answer["charged_epsilon"] == price["epsilon"]
    listed = exact.admin.get(f"/v1/datasets/{name}/measurements", params={"limit": 100}).json()["items"]
    (drawn,) = (item for item in listed if item["strategy"]["type"] == "quantiles")
    assert (drawn["strategy"]["of"], drawn["strategy"]["attributes"]) == ("pay", ["sex"])
    shown = analyst.get(f"/v1/datasets/{name}/measurements/{drawn['id']}").json()
    (part,) = shown["parts"]
    assert part["drawn"]["values"] == answer["values"]
    assert part["drawn"]["q"] == [0.5]
    assert [axis["attribute"] for axis in part["axes"]] == ["sex", "pay"]
    assert sum(part["values"]) == RECORDS
    replays(analyst, id, tmp_path / "t.ndjson")


def test_several_levels_are_drawn_at_once(exact: Service, tmp_path: Path) -> None:
    """Without noise they are the quartiles of each group, in the order of the question. Catches a draw under the label
    of another level."""
    analyst, name = exact.principal("analyst"), registered(exact)
    id, levels = opened(analyst, name, max_queries=2)["id"], [0.25, 0.5, 0.75]
    price = analyst.post(f"/v1/sessions/{id}/price", json=MEDIAN | {"q": levels}).json()
    answer = ask(analyst, id, MEDIAN | {"q": levels})
    assert answer["values"] == [quantile(sex, q) for sex in (0, 1) for q in levels]
    assert answer["charged_epsilon"] == price["epsilon"]
    listed = exact.admin.get(f"/v1/datasets/{name}/measurements", params={"limit": 100}).json()["items"]
    (drawn,) = (item for item in listed if item["strategy"]["type"] == "quantiles")
    (part,) = analyst.get(f"/v1/datasets/{name}/measurements/{drawn['id']}").json()["parts"]
    assert part["drawn"]["q"] == levels
    replays(analyst, id, tmp_path / "t.ndjson")


def test_a_condition_is_drawn_for_alone(exact: Service, tmp_path: Path) -> None:
    analyst, name = exact.principal("analyst"), registered(exact)
    id = opened(analyst, name, max_queries=2)["id"]
    answer = ask(analyst, id, MEDIAN | {"group_by": [], "where": {"sex": "m"}})
    assert answer["value"] == median(1)
    listed = exact.admin.get(f"/v1/datasets/{name}/measurements", params={"limit": 100}).json()["items"]
    (drawn,) = (item for item in listed if item["strategy"]["type"] == "quantiles")
    shown = analyst.get(f"/v1/datasets/{name}/measurements/{drawn['id']}").json()
    assert shown["parts"][0]["drawn"]["values"] == [None, median(1)]
    replays(analyst, id, tmp_path / "t.ndjson")


def test_a_restart_tells_the_same_and_others_find_them(tmp_path: Path) -> None:
    """From evidence that is read back; a session that pays nothing has them, too. Catches draws that are lost when a
    server ends."""
    with serving(tmp_path / "one", noise=SystemNoise()) as service:
        name = registered(service)
        id = opened(service.admin, name, max_queries=2)["id"]
        before = ask(service.admin, id, MEDIAN)
        replays(service.admin, id, tmp_path / "t.ndjson")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    with serving(tmp_path / "two", noise=SystemNoise()) as service:
        after = ask(service.admin, id, MEDIAN)
        assert after["source"] == "cached"
        assert (after["values"], after["intervals"]) == (before["values"], before["intervals"])
        free = opened(service.admin, name, epsilon=0)["id"]
        told = ask(service.admin, free, MEDIAN)
        assert (told["source"], told["values"]) == ("estimate", before["values"])
        assert told["intervals"] == before["intervals"]
