"""Weighted questions through the whole service: from a file to answers, charges, transcripts and what is refused."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from tests.kit.service import JSON, Service, ask, refused, register, unique
from tests.statistics.test_statistics_over_http import opened, replays

pytestmark = pytest.mark.api

RECORDS = 3000
WEIGHT: JSON = {"name": "w", "lower": 0.5, "upper": 40, "grid": 0.5, "outside": "clamp", "role": "weight"}
SPEC: JSON = {
    "kind": "table",
    "records_public": True,
    "budget": {"epsilon": 2.0, "delta": 1e-9},
    "attributes": [
        {"name": "sex", "values": ["f", "m"]},
        {"name": "region", "size": 4},
        WEIGHT,
        {"name": "hours", "lower": 1, "upper": 80, "grid": 1, "missing": True},
    ],
}
RANDOM = np.random.default_rng(7)
SEX, REGION = RANDOM.integers(0, 2, RECORDS), np.minimum(RANDOM.geometric(0.5, RECORDS) - 1, 3)
#: -1 where there is none.
HOURS = np.clip(RANDOM.normal(30 + 8 * SEX, 9, RECORDS), 1, 80).astype(int)
HOURS[RANDOM.random(RECORDS) < 0.1] = -1
#: In halves; what is above 40 counts as that.
HALVES = (RANDOM.gamma(2.0, 6.0, RECORDS) * (1 + (HOURS > 35))).astype(int) + 1
CSV = "sex,region,w,hours\n" + "".join(
    f"{'fm'[s]},{r},{v / 2},{'' if h < 0 else h}\n" for s, r, v, h in zip(SEX, REGION, HALVES, HOURS, strict=True)
)
W = [Fraction(min(int(v), 80), 2) for v in HALVES]
EVERYBODY, FEMALE, LONG = np.ones(RECORDS, bool), SEX == 0, HOURS >= 40
SOME: list[tuple[JSON, np.ndarray]] = [
    ({}, EVERYBODY),
    ({"sex": "f"}, FEMALE),
    ({"any": [{"sex": "f"}, {"hours": {"ge": 40}, "region": [0, 1]}]}, FEMALE | (LONG & (REGION < 2))),
    ({"w": {"ge": 10}, "not": {"hours": None}}, (HALVES >= 20) & (HOURS >= 0)),
]


def registered(service: Service, **changes: object) -> str:
    name = unique("weights")
    reply = register(service.admin, {**SPEC, "name": name, **changes}, CSV.encode(), "weights.csv")
    assert reply.status_code == 201, reply.text
    return name


def stood_for(kept: np.ndarray) -> float:
    """The sum of the weights of some records, one by one."""
    return float(sum(weight for weight, own in zip(W, kept, strict=True) if own))


def test_counts_of_some_records(exact: Service, tmp_path: Path) -> None:
    """Without noise the sums of weights, of which those beyond their bound count as it and a note says so; the sum of
    the attribute is the same question. Catches records that count once, and weights from the middle of their range."""
    analyst, name = exact.principal("analyst"), registered(exact)
    id = opened(analyst, name)["id"]
    for where, kept in SOME:
        answer = ask(analyst, id, {"type": "predicate", "where": where, "weighted": True})
        assert answer["value"] == pytest.approx(stood_for(kept), rel=1e-9), where
        assert answer["interval"][0] < stood_for(kept) < answer["interval"][1]
        assert "values of w beyond 0.5 and 40 count as these" in answer["note"]
        same = ask(analyst, id, {"type": "sum", "of": "w", "where": where})
        assert (same["source"], same["value"]) == ("cached", answer["value"])
        alone = ask(analyst, id, {"type": "predicate", "where": where})
        assert abs(alone["value"] - kept.sum()) < 30
    replays(analyst, id, tmp_path / "t.ndjson")


def test_marginals(exact: Service, tmp_path: Path) -> None:
    """Each cell has the sum of its own weights, under its labels, with values that bins leave out in none. Catches a
    cell under the labels of another, and a table that is charged cell by cell."""
    analyst, name = exact.principal("analyst"), registered(exact)
    id = opened(analyst, name)["id"]
    words = {
        "type": "marginal",
        "attributes": ["region", "sex"],
        "bins": {"region": {"near": [0], "far": [3, 1]}},
        "where": {"not": {"hours": None}},
        "weighted": True,
    }
    answer = ask(analyst, id, words)
    assert [axis["attribute"] for axis in answer["axes"]] == ["region", "sex"]
    assert answer["axes"][0]["labels"] == ["near", "far"]
    groups = [REGION == 0, (REGION == 1) | (REGION == 3)]
    for place, value in enumerate(answer["values"]):
        kept = groups[place // 2] & (place % 2 == SEX) & (HOURS >= 0)
        assert value == pytest.approx(stood_for(kept), rel=1e-9)
    listed = exact.admin.get(f"/v1/datasets/{name}/measurements?limit=1000").json()["items"]
    assert len([item for item in listed if "parts" in item["strategy"]]) <= 1
    replays(analyst, id, tmp_path / "t.ndjson")


def test_within(noisy: Service) -> None:
    """In the unit of weights; an accuracy that cannot be paid is refused before noise."""
    analyst, name = noisy.principal("analyst"), registered(noisy)
    id = opened(analyst, name)["id"]
    words = {"type": "predicate", "where": {"sex": "f"}, "weighted": True}
    answer = ask(analyst, id, words | {"within": 900})
    low, high = answer["interval"]
    assert (high - low) / 2 <= 900 * 1.001
    assert abs(answer["value"] - stood_for(FEMALE)) < 1800
    refused(analyst.post(f"/v1/sessions/{id}/queries", json=words | {"within": 1e-6}), "plan-infeasible")


BAD_ROLES: list[tuple[JSON, str]] = [
    ({"name": "w", "size": 4, "role": "weight"}, "declare lower, upper and grid"),
    ({"name": "w", "lower": 0, "upper": 9, "bins": 3, "role": "weight"}, "declare lower, upper and grid"),
    ({**WEIGHT, "lower": -1}, "change lower"),
    ({**WEIGHT, "lower": 0.25, "upper": 40.25}, "change lower"),
    ({**WEIGHT, "missing": True}, "leave missing out"),
    ({**WEIGHT, "lower": 4096, "upper": 4097, "grid": 2**-20}, "declare a coarser grid"),
    ({**WEIGHT, "role": "stratum"}, "role"),
]


@pytest.mark.parametrize(("attribute", "says"), BAD_ROLES)
def test_what_is_no_weight(exact: Service, attribute: JSON, says: str) -> None:
    """Refused with what to change. Catches weights below zero, whose quotients have no meaning."""
    attributes = [attribute if one["name"] == "w" else one for one in SPEC["attributes"]]
    spec = {**SPEC, "name": unique("weights"), "attributes": attributes}
    reply = register(exact.admin, spec, CSV.encode(), "weights.csv")
    assert says in refused(reply, "invalid-dataset")["detail"]


def test_one_weight(exact: Service) -> None:
    """Two are refused. Catches a weight that is whichever comes first."""
    other = {"name": "hours", "lower": 1, "upper": 80, "grid": 1, "role": "weight"}
    spec = {**SPEC, "name": unique("weights"), "attributes": [*SPEC["attributes"][:3], other]}
    assert "at most" in refused(register(exact.admin, spec, CSV.encode(), "weights.csv"), "invalid-dataset")["detail"]


UNWEIGHTED: JSON = {k: v for k, v in WEIGHT.items() if k != "role"}


@pytest.mark.parametrize(
    "words",
    [
        {"type": "predicate", "where": {"sex": "f"}},
        {"type": "marginal", "attributes": ["sex"]},
    ],
)
def test_where_there_is_no_weight(exact: Service, words: JSON) -> None:
    """Refused with what to change, and nothing charged. Catches a weight of one for everybody."""
    attributes = [UNWEIGHTED if one["name"] == "w" else one for one in SPEC["attributes"]]
    analyst, name = exact.principal("analyst"), registered(exact, attributes=attributes)
    id = opened(analyst, name)["id"]
    reply = analyst.post(f"/v1/sessions/{id}/queries", json=words | {"weighted": True})
    assert "role of a weight" in refused(reply, "invalid-query")["detail"]
    assert analyst.get(f"/v1/sessions/{id}").json()["queries_left"] == 100


@pytest.mark.parametrize("kind", ["variance", "hierarchy", "ratio", "sum", "product"])
def test_what_cannot_be_weighted(exact: Service, kind: str) -> None:
    """Refused, not answered without weights. Catches a word that is passed over."""
    analyst, name = exact.principal("analyst"), registered(exact)
    id = opened(analyst, name)["id"]
    words = {"type": kind, "of": "hours", "weighted": True}
    assert analyst.post(f"/v1/sessions/{id}/queries", json=words).status_code == 422


def test_other_mechanisms(exact: Service) -> None:
    """A session of counts alone refuses sums of weights, and says what serves. Catches a weighted count that is
    answered as a count."""
    analyst, name = exact.principal("analyst"), registered(exact)
    id = opened(analyst, name, mechanism={"construction": "laplace"}, max_queries=4)["id"]
    words = {"type": "predicate", "where": {"sex": "f"}, "weighted": True}
    assert "evidence" in refused(analyst.post(f"/v1/sessions/{id}/queries", json=words), "invalid-query")["detail"]
